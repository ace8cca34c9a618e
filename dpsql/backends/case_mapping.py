"""Which letters LOWER and UPPER change in DuckDB, and into what, for engines whose own tables of letters are others.

Claim: each letter changes into one letter, whatever stands beside it.
Why: the table is read from DuckDB itself, one letter at a time, and a test holds that texts are their letters.
Source: Unicode 15, section 5.18 (case mappings that are simple, that is, of one letter to one).
"""

from __future__ import annotations

from functools import cache

import duckdb

_SURROGATES = 0xD800, 0xE000
_LETTERS = " UNION ALL ".join(
    f"SELECT CHR(CAST(i AS INTEGER)) AS c FROM RANGE({low}, {high}) AS r(i)"
    for low, high in ((1, _SURROGATES[0]), (_SURROGATES[1], 0x110000))
)


@cache
def read_case_mapping(function: str) -> tuple[str, str]:
    """The letters that `lower` or `upper` changes, and what they become, in the same order.

    >>> before, after = read_case_mapping("lower")
    >>> after[before.index("Σ")]
    'σ'
    """
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT c, {function}(c) FROM ({_LETTERS}) WHERE {function}(c) <> c ORDER BY 1"
        ).fetchall()
    return "".join(row[0] for row in found), "".join(row[1] for row in found)
