"""Fingerprints of tables, by which an owner sees that data changed: exact, salted, and for nobody else.

Claim: equal rows, in any order, have the same fingerprint; other rows have another, but for chance. Without the salt nobody
can hold a guess of all rows against one.
Why: the number of rows and two sums of their hashes do not depend on the order, and a row that occurs twice counts twice. The
digest is keyed by the salt. The engine's hash is no cryptographic one: whoever may write rows can find others with the same sums.
Source: Bellare, Micciancio 1997, "A new paradigm for collision-free hashing" (sums of hashes of a multiset); RFC 7693 (keyed BLAKE2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpsql.backends.quoting import quote_identifier, quote_table_name

_BYTES = 16


def compute_fingerprints(
    tables: Mapping[str, Sequence[str]], salt: bytes, query_rows: Callable[[str], Sequence[tuple[Any, ...]]]
) -> dict[str, str]:
    """For each table the fingerprint of these columns of all rows, in hexadecimal digits; `query_rows` gives the rows of a statement."""
    found = {}
    for table, columns in tables.items():
        row = f"hash(ROW({', '.join(map(quote_identifier, columns))}))" if columns else "0"
        ((rows, total, other),) = query_rows(
            f"SELECT COUNT(*), SUM(h::HUGEINT), BIT_XOR(hash(h)) FROM (SELECT {row} AS h FROM {quote_table_name(table)})"
        )
        names = "\0".join(columns)
        text = f"{names}\0{rows} {total} {other}".encode(errors="surrogatepass")
        found[table] = hashlib.blake2b(text, key=salt, digest_size=_BYTES).hexdigest()
    return found
