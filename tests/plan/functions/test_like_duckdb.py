"""An entry means what DuckDB means by the same text: the two compute the same on every row.

The text of a call is written as the entry's signature shows it. dpsql must read the call back from it, and
DuckDB, given that text alone, must compute what dpsql's own SQL computes, but where that gives NULL on purpose.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any

import duckdb
import pytest
from plan.functions.pools import Bench, calls, read_by, signatures, texts
from properties.printing import scalar
from sqlglot import exp

import dpsql
from dpsql.backends.duckdb.versions import supports
from dpsql.plan.expressions import Call, Expr, Function
from dpsql.plan.functions import CALLS, FUNCTIONS, OVERLOADS, SYNONYMS
from dpsql.plan.functions.strings import MOST_COMPARED
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.lower.constants import StatementTime
from dpsql.sql.lower.function_calls import SPANS
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.parse.parse import parse_statement

_EXACT = 2**53
_BY_DOUBLE = frozenset({"round_digits", "round_even", "trunc_digits", "plus_microsecond"})
"""Functions of which dpsql or DuckDB reads whole numbers as DOUBLE, which is exact below 2^53."""
_WORDS = re.compile(r"\s*-?infinity\s*|\s*epoch\s*", re.IGNORECASE)
"""What STRPTIME takes for a moment whatever the format is, and TRY_STRPTIME for 1900."""


_FOUR = re.compile(r"\d{4}-(?!.*BC)")
"""A day or moment of a year of four digits."""
_MIDNIGHT = "24:00:00"
"""What DuckDB takes for a time of day, and Python does not."""
_NARROW = frozenset({"make_timestamp_us", "make_timestamp_ms", "from_epoch_ms"})
"""Functions of which DuckDB itself breaks down on numbers of 64 bits."""


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench.open()


def read_back(text: str, call: Call) -> Expr:
    """What dpsql reads a text as, whose columns are those of a call."""
    statement = parse_statement(f"SELECT {text}")
    columns = {read.source: read for read in read_by(call)}

    def column(node: exp.Column) -> Expr:
        return columns[node.table]

    return Scalars(statement.source, (), StatementTime(dt.datetime(2026, 4, 1)), column).lower(
        statement.query.expressions[0]
    )


BY_TYPE = [entry for entry in FUNCTIONS.values() if entry.name != "cast_varchar float"]
"""The entries that the types of their arguments tell; the text of a FLOAT, which is read as DOUBLE, is in tests/sql/test_floats.py."""
_BY_BEGINNINGS = frozenset(
    {"levenshtein", "damerau_levenshtein", "jaro_similarity", "jaro_winkler_similarity", "jaccard"}
)
"""What compares the beginnings of texts alone."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("function", BY_TYPE, ids=lambda entry: entry.name)
def test_text_of_a_call_means_the_call(function: Function) -> None:
    """The text of the signature is read as the entry, with the same arguments."""
    for types in signatures(function):
        for call in calls(function, types, most=4):
            assert read_back(scalar(call), call) == call


@pytest.mark.sampled(1)
@pytest.mark.parametrize("function", BY_TYPE, ids=lambda entry: entry.name)
def test_values_match_duckdb(bench: Bench, function: Function) -> None:
    """On every row the value is DuckDB's own, or NULL where that is an error, infinite or out of the calendar."""
    for types in signatures(function):
        for call in calls(function, types, most=2):
            shown = "DOUBLE" if call.type.numeric else "VARCHAR"
            plain, read = _plain(bench, call, shown)
            ours = bench.rows(
                call, f"CAST({DUCKDB_COMPILER.emit_expression(call)} AS {shown})", *texts(call), read=read
            )
            for (value, *row), (theirs,) in zip(ours, plain, strict=True):
                assert _agree(call, row, value, theirs), (scalar(call), row, value, theirs)


def _plain(bench: Bench, call: Call, shown: str) -> tuple[list[tuple[Any, ...]], str]:
    """What DuckDB computes, and how the columns are read: as INTEGER where BIGINT is not taken."""
    item = f"CAST(TRY({scalar(call)}) AS {shown})"
    if call.function.name not in _NARROW:
        try:
            return bench.rows(call, item), "c"
        except duckdb.BinderException:
            pass
    read = "TRY_CAST(c AS INTEGER)"
    return bench.rows(call, item, read=read), f"CAST({read} AS BIGINT)"


def _agree(call: Call, row: list[str | None], ours: Any, theirs: Any) -> bool:
    ours, theirs = (
        None if isinstance(value, float) and math.isnan(value) else value for value in (ours, theirs)
    )
    if ours is None and theirs is not None:
        unheld = isinstance(theirs, float) and (
            math.isinf(theirs) or (call.type is Type.INTEGER and abs(theirs) >= 2**63)
        )
        beyond = call.type.temporal and not _FOUR.match(str(theirs))
        return unheld or beyond or _extraordinary(call, row) or str(theirs) == _MIDNIGHT
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-12) or ours == theirs or _excused(call, row)
    return bool(ours == theirs) or _excused(call, row)


def _extraordinary(call: Call, row: list[str | None]) -> bool:
    """Whether a moment is at the end of the engine's calendar, or beyond."""
    moments = [value for read, value in zip(read_by(call), row, strict=True) if read.type.temporal]
    return not all(_FOUR.match(str(value)) for value in moments)


def _excused(call: Call, row: list[str | None]) -> bool:
    if call.function.name in _BY_BEGINNINGS:
        return any(len(str(value)) > MOST_COMPARED for value in row)
    if call.function.name in _BY_DOUBLE:
        numbers = [
            float(value)
            for read, value in zip(read_by(call), row, strict=True)
            if read.type is Type.INTEGER and value
        ]
        return any(abs(number) >= _EXACT for number in numbers)
    return call.function.name == "strptime" and any(_WORDS.fullmatch(str(value)) for value in row)


def test_every_name_is_a_duckdb_function() -> None:
    """Each name that is called by is one of DuckDB's functions, and none is volatile or has effects."""
    known = duckdb.execute(
        "SELECT lower(function_name), bool_or(has_side_effects OR stability = 'VOLATILE') FROM duckdb_functions() "
        "WHERE function_type IN ('scalar', 'macro') GROUP BY 1"
    ).fetchall()
    names = CALLS | set(SYNONYMS) | set(SYNONYMS.values()) | set(SPANS) | {"time_bucket"}
    grammar = {"coalesce", "ifnull"}  # words of DuckDB's grammar rather than functions
    if not supports("overlay"):
        grammar |= {"overlay", "days_in_month"}
    assert names - grammar <= {name for name, _ in known}
    assert not names & {name for name, volatile in known if volatile}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_every_name_is_read(name: str) -> None:
    """A call by any of its names, in any case, is read as one of the entries that have it."""
    for function in OVERLOADS[name]:
        for types in signatures(function):
            for call in calls(function, types, most=1):
                for spelt in (name, name.title()):
                    text = f"{spelt}({', '.join(map(scalar, call.arguments))})"
                    assert read_back(text, call) == call, text


def test_negative_number_has_the_bits_of_its_type() -> None:
    """BIT_COUNT of a column counts as many bits as DuckDB has for its type, through derived tables and unions too."""
    database = duckdb.connect()
    kinds = {"t": "TINYINT", "s": "SMALLINT", "i": "INTEGER", "b": "BIGINT"}
    items = ", ".join(f"CAST(-3 AS {kind}) AS {name}" for name, kind in kinds.items())
    database.execute(f"CREATE TABLE numbers AS SELECT i AS id, {items} FROM range(9) AS r(i)")
    columns = {name: {"type": kind.lower(), "bounds": [-9, 9]} for name, kind in kinds.items()}
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**9},
        "tables": {"numbers": {"unit": "id", "rows_per_unit": 1, "columns": columns}},
    }
    con = dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=10**6)
    derived = "(SELECT id, s AS x FROM numbers UNION ALL SELECT id, i FROM numbers) AS q"
    computed = (
        *(
            "CAST(b AS TINYINT)",
            "CAST(i AS SMALLINT)",
            "CAST(t AS BIGINT)",
            "-1::SMALLINT",
            "(-1)::TINYINT",
            "-1",
            "-3000000000",
        ),
        *(
            "-s",
            "~t",
            "ABS(s) - 9",
            "t + t",
            "t * s",
            "t - 1",
            "t - 1000",
            "s + 1::TINYINT",
            "s - i",
            "t & s",
            "t | 1",
            "xor(t, s)",
        ),
        *(
            "t % 2",
            "t // 2",
            "t // 1000",
            "GREATEST(t, s)",
            "LEAST(t, -1)",
            "COALESCE(NULL, t, -1)",
            "NULLIF(t, 9)",
            "NULLIF(t, i - 9)",
        ),
        *(
            "CASE WHEN t > 0 THEN t ELSE s END",
            "CASE WHEN t > 0 THEN -1 ELSE t END",
            "IF(t < 0, -1, -1000)",
            "SIGN(t)",
            "-BIT_COUNT(t)",
        ),
        *(
            "STRPOS('a', 'b') - 1",
            "ROUND(t)",
            "CAST('-1' AS SMALLINT)",
            "CAST(-1.0 AS INTEGER)",
            "-(1::SMALLINT)",
        ),
    )
    for sql in (
        *(f"SELECT SUM(BIT_COUNT({expr})) FROM numbers" for expr in computed),
        *(f"SELECT SUM(BIT_COUNT(x)) FROM (SELECT id, {expr} AS x FROM numbers) AS q" for expr in computed),
        "SELECT SUM(BIT_COUNT(x)) FROM (SELECT id, MIN(t) AS x FROM numbers GROUP BY id) AS q",
        *(f"SELECT SUM(BIT_COUNT({name})) FROM numbers" for name in kinds),
        *(f"SELECT SUM(BIT_COUNT(x)) FROM (SELECT id, {name} AS x FROM numbers) AS q" for name in kinds),
        f"SELECT SUM(BIT_COUNT(x)) FROM {derived}",
    ):
        assert con.query(sql).rows == tuple(database.execute(sql).fetchall()), sql
