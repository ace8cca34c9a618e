"""What ClickHouse computes of an entry of the function registry: a value on every row, and the one that DuckDB computes.

Each entry that ClickHouse has is tried over every type that it takes, on combinations of nasty values, and with constants in
their place, which ClickHouse computes while it plans.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from plan.functions.pools import (
    ESCAPED_TEXTS,
    EXPRESSED_TEXTS,
    EXPRESSIONS,
    NASTY,
    Bench,
    calls,
    escapes,
    expressions,
    letter_texts,
    of_letters,
    read_by,
    signatures,
)

from dpsql.backends.clickhouse import values
from dpsql.backends.clickhouse.dialect import make_clickhouse_dialect
from dpsql.backends.clickhouse.functions import SPELLINGS
from dpsql.backends.clickhouse.session import SessionRunner, open_session
from dpsql.backends.clickhouse.values import TYPES, emit_constant
from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Call, substitute_columns
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER, Compiler
from dpsql.verification.calls import CONSTANT_TEXTS

_CALENDAR = re.compile(r"(?!0000)\d{4}-\d\d-\d\d( [\d:.]+)?")
_MOST = 120
"""Rows on which a call is tried."""
_NEAR = frozenset(
    {
        *("ln", "log10", "log2", "exp", "power", "cbrt", "degrees", "radians", "epoch"),
        *(
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "atan2",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
        ),
    }
)
"""Functions that a library of mathematics computes, which differ in the last digits."""
_CONSTANTS = {**CONSTANT_TEXTS, "concat_ws": (0,)}
CLICKHOUSE = make_clickhouse_dialect()
PARTS = 24


def test_functions_with_other_last_digits_are_listed() -> None:
    """The dialect names each function whose last digits differ."""
    assert CLICKHOUSE.functions.approximate_functions >= _NEAR


def list_values(kind: Type) -> list[tuple[int, str | None]]:
    """The values that an expression of ClickHouse may have, with their places among the nasty ones."""
    found = list(enumerate(NASTY[kind]))
    if kind.temporal:
        return [(place, text) for place, text in found if text is None or _CALENDAR.fullmatch(text)]
    return found


GARBAGE = {
    Type.INTEGER: "CAST('-9223372036854775808' AS Int64)",
    Type.DOUBLE: values.NAN,
    Type.VARCHAR: "'\\xFF'",
    Type.DATE: f"reinterpret(CAST('9223372036854775807' AS Int64), '{values.DAY}')",
    Type.TIMESTAMP: f"reinterpret(CAST('-9223372036854775808' AS Int64), '{values.MOMENT}')",
    Type.BOOLEAN: "TRUE",
}
"""What stands beside NULL in a column: functions are computed of it, too, and it must not make them fail."""


def to_constant(kind: Type, text: str | None) -> str:
    """A nasty value as ClickHouse has it."""
    if text is None:
        return GARBAGE[kind]
    read = {
        Type.INTEGER: int,
        Type.DOUBLE: float,
        Type.BOOLEAN: lambda found: found == "true",
        Type.DATE: dt.date.fromisoformat,
        Type.TIMESTAMP: dt.datetime.fromisoformat,
    }
    return emit_constant(read[kind](text) if kind in read else text)


@cache
def bench() -> Bench:
    return Bench.open()


@pytest.fixture(scope="module")
def rows(clickhouse: Any) -> Iterator[SessionRunner]:
    """A session as dpsql's own, and a table of each type with these values."""
    clickhouse.query("DROP DATABASE IF EXISTS functions")
    clickhouse.query("CREATE DATABASE functions")
    for kind, name in TYPES.items():
        clickhouse.query(
            f"CREATE TABLE functions.{kind.name} (id Int32, c {name}) ENGINE = MergeTree ORDER BY id"
        )
        for place, text in list_values(kind):
            clickhouse.query(f"INSERT INTO functions.{kind.name} SELECT {place}, {to_constant(kind, text)}")
    session, another, _ = open_session(clickhouse)
    runner = SessionRunner(session, another)
    runner.pin_settings()
    yield runner
    runner.close()


def in_clickhouse(call: Call) -> str | None:
    """The SQL of a call, None where ClickHouse does not have it."""
    if any(argument.type not in TYPES and argument.type is not Type.NULL for argument in call.arguments):
        return None
    try:
        return Compiler(CLICKHOUSE).emit_expression(call)
    except QueryRejected as error:
        return None if error.code == "engine_function" else error.code


def tried(types: Sequence[Type]) -> list[tuple[int, ...]]:
    """Places of the values of columns of these types."""
    found = list(itertools.product(*([place for place, _ in list_values(kind)] for kind in types)))
    random.Random(str(types)).shuffle(found)
    return found[:_MOST]


def computed(
    runner: SessionRunner, types: Sequence[Type], found: Sequence[tuple[Call, str]]
) -> list[dict[tuple[int, ...], Any]]:
    """What ClickHouse computes of these calls, on rows of columns of these types."""
    ids = [f"i{place}" for place in range(len(types))]
    source = "(SELECT 1 AS i) AS chosen"
    if types:
        listed = ", ".join(f"({', '.join(map(str, row))})" for row in tried(types))
        source = f"(SELECT * FROM (VALUES {listed}) AS v({', '.join(ids)})) AS chosen"
    for place, kind in enumerate(types):
        missing = NASTY[kind].index(None)
        of = f"SELECT id, CASE WHEN id <> {missing} THEN c END AS c FROM functions.{kind.name}"
        source += f' JOIN ({of}) AS "t{place}" ON "t{place}".id = i{place}'
    shown = [f"{text} AS v{place}" for place, (_, text) in enumerate(found)]
    read = runner.query_rows(f"SELECT {', '.join([*ids, *shown])} FROM {source}")
    return [{tuple(row[: len(ids)]): row[len(ids) + place] for row in read} for place in range(len(found))]


def by_duckdb(types: Sequence[Type], found: Sequence[tuple[Call, str]]) -> list[dict[tuple[int, ...], Any]]:
    """What DuckDB computes on the same rows, one call after the other."""
    results = []
    for call, _ in found:
        names = [column.source for column in read_by(call)]
        wanted = ", ".join(f"({', '.join(map(str, row))})" for row in tried(types))
        ids = ", ".join(f"{name}.id" for name in names)
        source = ", ".join(f"{kind.name} AS {name}" for kind, name in zip(types, names, strict=True))
        written = DUCKDB_COMPILER.emit_expression(call)
        shown = f"CAST({written} AS {'DOUBLE' if call.type is Type.DOUBLE else 'VARCHAR'})"
        where = f" WHERE ({ids}) IN (VALUES {wanted})" if types else ""
        sql = f"SELECT {', '.join([*([ids] if ids else []), shown])} FROM {source or '(SELECT 1)'}{where}"
        results.append({row[:-1]: row[-1] for row in bench().connection.execute(sql).fetchall()})
    return results


def to_text(value: Any) -> Any:
    """A value as DuckDB writes it."""
    match value:
        case None | float() | str():
            return value
        case bool():
            return str(value).lower()
        case dt.datetime():
            text = value.isoformat(sep=" ")
            return text.rstrip("0") if "." in text else text
        case _:
            return str(value)


def alike(call: Call, ours: Any, theirs: Any) -> bool:
    """Whether two values are one; NULL where a moment leaves the calendar."""
    if isinstance(ours, float) and isinstance(theirs, float):
        near = call.function.name in _NEAR and math.isclose(ours, theirs, rel_tol=1e-12, abs_tol=1e-320)
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs)) or near
    if ours is None and theirs is not None:
        return call.type.temporal and not _CALENDAR.fullmatch(str(theirs))
    return bool(to_text(ours) == theirs)


def of_expressions(call: Call) -> Call:
    """A call of expressions in place of stored columns, which are never NaN once they are read."""
    found = {of: replace(of, facts=replace(of.facts, engine_type="")) for of in read_by(call)}
    changed = substitute_columns(call, found)
    assert isinstance(changed, Call)
    return changed


def group_calls(names: Sequence[str]) -> dict[tuple[Type, ...], list[tuple[Call, str]]]:
    """The calls of these entries by the types of the columns that they read, which are named by their places."""
    groups: dict[tuple[Type, ...], list[tuple[Call, str]]] = defaultdict(list)
    for name in names:
        for types in signatures(FUNCTIONS[name]):
            for drawn in calls(FUNCTIONS[name], types, most=4, constants=_CONSTANTS.get(name, ())):
                call = of_expressions(drawn)
                text, read = in_clickhouse(call), read_by(call)
                if text is None:
                    continue
                for place, of in enumerate(read):
                    text = text.replace(f'"{of.source}".', f'"#{place}".')
                for place in range(len(read)):
                    text = text.replace(f'"#{place}".', f'"t{place}".')
                groups[tuple(column.type for column in read)].append((call, text))
    return groups


def find_differences(
    runner: SessionRunner, types: tuple[Type, ...], several: Sequence[tuple[Call, str]]
) -> list[str]:
    """Where calls differ from DuckDB."""
    found: list[str] = []
    for (call, text), mine, other in zip(
        several, computed(runner, types, several), by_duckdb(types, several), strict=True
    ):
        assert mine.keys() == other.keys()
        found += [
            f"{call.function.name}: {text} at {[NASTY[kind][place] for kind, place in zip(types, row, strict=True)]}: {value!r}, DuckDB {other[row]!r}"
            for row, value in mine.items()
            if not alike(call, value, other[row])
        ][:2]
    return found


@pytest.mark.slow
@pytest.mark.sampled(6)
@pytest.mark.parametrize("part", range(PARTS))
def test_functions_are_total_and_match_duckdb(rows: SessionRunner, part: int) -> None:
    """On every row ClickHouse computes what DuckDB does; NULL where that leaves the calendar or 64 bits."""
    names = [name for name in FUNCTIONS if name in SPELLINGS][part::PARTS]
    groups = group_calls(names)
    found = [text for types, several in groups.items() for text in find_differences(rows, types, several)]
    assert not found, "\n".join(found)
    assert {call.function.name for several in groups.values() for call, _ in several} == set(names)


def test_each_function_has_a_call() -> None:
    """Each entry that ClickHouse has is tried, with constants where it takes nothing else."""
    drawn = {call.function.name for several in group_calls([*SPELLINGS]).values() for call, _ in several}
    assert drawn == {name for name in FUNCTIONS if name in SPELLINGS}


def of_texts(
    runner: SessionRunner, wanted: Sequence[Call], texts: Sequence[str | None]
) -> list[tuple[Any, ...]]:
    """What ClickHouse computes of each text."""
    shown = ", ".join(f"{in_clickhouse(found)} AS v{place}" for place, found in enumerate(wanted))
    listed = ", ".join(f"({place}, {values.emit_constant(text)})" for place, text in enumerate(texts))
    return runner.query_rows(
        f'SELECT {shown} FROM (SELECT * FROM (VALUES {listed}) AS v(i, c)) AS "t0" ORDER BY i'
    )


@pytest.mark.slow
def test_letter_cases_match_duckdb(rows: SessionRunner) -> None:
    """LOWER, UPPER and ILIKE have DuckDB's letters, alone and beside any others."""
    assert of_texts(rows, of_letters(), letter_texts()) == bench().of_texts(of_letters(), letter_texts())


def test_literal_regular_expressions_match_duckdb(rows: SessionRunner) -> None:
    """Alternatives of literals match the same texts as in DuckDB; all other expressions are refused."""
    wanted = [found for found in expressions() if in_clickhouse(found) is not None]
    assert len(wanted) == 2 * (len(EXPRESSIONS) - 8)
    assert of_texts(rows, wanted, EXPRESSED_TEXTS) == bench().of_texts(wanted, EXPRESSED_TEXTS)


def test_patterns_with_escapes_match_duckdb(rows: SessionRunner) -> None:
    """LIKE and ILIKE with ESCAPE match the same texts as in DuckDB; what escapes another letter is refused."""
    wanted = [found for found in escapes() if in_clickhouse(found) is not None]
    refused = {str(found.arguments[1]) for found in escapes() if found not in wanted}
    assert refused == {"'!é%'", "'%!A%'"}
    assert of_texts(rows, wanted, ESCAPED_TEXTS) == bench().of_texts(wanted, ESCAPED_TEXTS)
