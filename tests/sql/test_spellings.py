"""Spellings beyond the plainest mean what DuckDB means by them, on rows with NULLs and duplicates."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import duckdb
import pytest

from dpsql.api.connection import Connection
from dpsql.sql.lower.derived_tables import MAX_CHAIN

_SETS = ("UNION ALL", "UNION", "INTERSECT", "EXCEPT")


def alike(connection: Connection, plain: duckdb.DuckDBPyConnection, query: str) -> None:
    """The rows, in any order, are DuckDB's."""
    ours = Counter(tuple(row) for row in connection.query(query, replay=False).rows)
    assert ours == Counter(plain.execute(query).fetchall()), query


def _values(random: Random) -> str:
    rows = [str(random.choice([0, 1, 1, 2, "NULL"])) for _ in range(random.randrange(1, 4))]
    return f"SELECT x FROM (VALUES {', '.join(f'(CAST({row} AS BIGINT))' for row in rows)}) AS t(x)"


@pytest.mark.parametrize("seed", range(60))
def test_chain_is_evaluated_from_left_to_right(
    seed: int, connection: Connection, plain: duckdb.DuckDBPyConnection
) -> None:
    """INTERSECT comes before the others, as in DuckDB, with any parentheses."""
    random = Random(seed)
    parts = [_values(random) for _ in range(random.randrange(2, 8))]
    if seed % 3 == 0:
        parts[-1] = f"({parts[-1]} {random.choice(_SETS[:2])} {_values(random)})"
    links = [random.choice(_SETS) for _ in parts[1:]]
    alike(connection, plain, " ".join(itertools.chain(parts[:1], *zip(links, parts[1:], strict=True))))


def test_longest_chain_is_answered(connection: Connection, plain: duckdb.DuckDBPyConnection) -> None:
    """Chains of releases, of rows of units, and of constants are answered."""
    many = range(MAX_CHAIN + 1)
    alike(connection, plain, " UNION ALL ".join(f"SELECT {i} AS i" for i in many))
    of_units = " UNION ALL ".join("SELECT patient_id, age FROM visits" for _ in many)
    alike(connection, plain, f"SELECT COUNT(*) FROM ({of_units})")


_LISTS = ("[0, 2]", "ARRAY[1]", "[NULL, 1]", "[0, 1, 2]")


@pytest.mark.parametrize("listed", _LISTS)
@pytest.mark.parametrize("word", ["ANY", "SOME", "ALL"])
@pytest.mark.parametrize("sign", ["=", "<>", "<", "<=", ">", ">="])
def test_comparisons_with_lists_match_duckdb(
    sign: str, word: str, listed: str, connection: Connection, plain: duckdb.DuckDBPyConnection
) -> None:
    """True, false and unknown as DuckDB has them, of a column with NULL."""
    query = f"SELECT COUNT(*) FROM visits WHERE (region {sign} {word} ({listed})) IS "
    for truth in ("TRUE", "FALSE", "NULL"):
        alike(connection, plain, query + truth)


@pytest.mark.parametrize(
    "aggregate",
    ["BOOL_AND(c)", "BOOL_OR(c)", "BOOL_AND(NOT c)", "BOOL_OR(c) FILTER (WHERE k > 0)", "MEAN(k)", "FAVG(k)", "FSUM(k)",
     "KAHAN_SUM(k)", "SUMKAHAN(k)"],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(6))
def test_aggregates_of_few_rows_match_duckdb(
    seed: int, aggregate: str, connection: Connection, plain: duckdb.DuckDBPyConnection
) -> None:
    """The rows are NULLs, duplicates, or none."""
    random = Random(seed)
    rows = [(random.choice(["TRUE", "FALSE", "NULL"]), random.choice([0, 1, 1, "NULL"])) for _ in range(seed)]
    listed = ", ".join(f"({c}::BOOLEAN, {k}::BIGINT)" for c, k in [*rows, ("NULL", 7)])
    alike(
        connection, plain, f"SELECT {aggregate} FROM (VALUES {listed}) AS t(c, k) WHERE k IS DISTINCT FROM 7"
    )
