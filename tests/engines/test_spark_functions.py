"""What Spark computes of an entry of the function registry: a value on every row, and the one that DuckDB computes.

Each entry that Spark has is tried over every type that it takes, on combinations of nasty values, and with constants in
their place, which Spark computes while it plans. All calls over the same columns are in one statement.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from engines import sparks
from plan.functions.pools import (
    CONSTANTS,
    ESCAPED_TEXTS,
    EXPRESSED_TEXTS,
    EXPRESSIONS,
    NASTY,
    Bench,
    build,
    calls,
    column,
    escapes,
    expressions,
    letter_texts,
    of_letters,
    read_by,
    signatures,
)

from dpsql.backends.spark import values
from dpsql.backends.spark.dialect import make_spark_dialect
from dpsql.backends.spark.functions import SPELLINGS
from dpsql.backends.spark.session import pin_settings
from dpsql.backends.spark.values import TYPES
from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Call, Literal
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER, Compiler

pytestmark = sparks.WARNINGS
_CALENDAR = re.compile(r"(?!0000)\d{4}-\d\d-\d\d( [\d:.]+)?")
_MOST = 60
"""Rows on which a call is tried."""
_NEAR = frozenset(
    {
        *("ln", "log10", "log2", "exp", "power", "cbrt", "degrees", "radians", "epoch"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "atanh"),
    }
)
"""Functions that a library of mathematics computes, which differ in the last digits."""
SPARK = make_spark_dialect()
SPARK_COLUMN = '"t0"."c"'
"""How the column of a call is written."""
PARTS = 12
"""In how many parts the entries are tried: few statements of many calls each take less time than many of few."""


def test_functions_with_other_last_digits_are_listed() -> None:
    """The dialect names each function whose last digits differ."""
    assert SPARK.functions.approximate_functions >= _NEAR


def list_values(kind: Type) -> list[tuple[int, str | None]]:
    """The values that an expression of Spark may have, with their places among the nasty ones."""
    found = list(enumerate(NASTY[kind]))
    if kind.temporal:
        return [(place, text) for place, text in found if text is None or _CALENDAR.fullmatch(text)]
    return found


@cache
def bench() -> Bench:
    return Bench.open()


@pytest.fixture(scope="module")
def rows(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session as dpsql's own, and a table of each type with these values."""
    session = spark.newSession()
    pin_settings(session)
    folder: Path = tmp_path_factory.mktemp("functions")
    session.sql("CREATE SCHEMA IF NOT EXISTS functions")
    for kind, name in TYPES.items():
        places = ", ".join(str(place) for place, _ in list_values(kind))
        query = f"(SELECT id, c FROM {kind.name} WHERE id IN ({places}))"
        columns = [("id", "INT"), ("c", name)]
        sparks.hold(
            session,
            f"functions.{kind.name}",
            columns,
            folder / kind.name,
            (bench().connection, query),
            files=1,
        )
    return session


def in_spark(call: Call) -> str | None:
    """The SQL of a call, None where Spark does not have it."""
    if any(argument.type not in TYPES and argument.type is not Type.NULL for argument in call.arguments):
        return None
    try:
        return Compiler(SPARK).emit_expression(call)
    except QueryRejected as error:
        return None if error.code == "engine_function" else error.code


def tried(types: Sequence[Type]) -> list[tuple[int, ...]]:
    """Places of the values of columns of these types."""
    found = list(itertools.product(*([place for place, _ in list_values(kind)] for kind in types)))
    random.Random(str(types)).shuffle(found)
    return found[:_MOST]


def computed(
    session: Any, types: Sequence[Type], found: Sequence[tuple[Call, str]]
) -> list[dict[tuple[int, ...], Any]]:
    """What Spark computes of these calls, on rows of columns of these types."""
    shown = []
    for place, (call, text) in enumerate(found):
        kind = {Type.DOUBLE: f"CAST({text} AS DOUBLE)", Type.BLOB: f"HEX({text})"}
        shown.append(f"{kind.get(call.type, f'CAST({text} AS STRING)')} AS v{place}")
    ids = [f"i{place}" for place in range(len(types))]
    source = "(VALUES (0)) AS chosen(i)"
    if types:
        values = ", ".join(f"({', '.join(map(str, row))})" for row in tried(types))
        source = f"(VALUES {values}) AS chosen({', '.join(ids)})"
    for place, kind in enumerate(types):
        source += f' JOIN functions.{kind.name} AS "t{place}" ON "t{place}".id = i{place}'
    read = session.sql(f"SELECT {', '.join([*ids, *shown])} FROM {source}").toArrow().to_pylist()
    return [
        {tuple(row[name] for name in ids): row[f"v{place}"] for row in read} for place in range(len(found))
    ]


def alike(call: Call, ours: Any, theirs: Any) -> bool:
    """Whether two values are one; NULL where a moment leaves the calendar."""
    if isinstance(ours, float) and isinstance(theirs, float):
        near = call.function.name in _NEAR and math.isclose(ours, theirs, rel_tol=1e-12, abs_tol=1e-320)
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs)) or near
    if ours is None and theirs is not None:
        return call.type.temporal and not _CALENDAR.fullmatch(str(theirs))
    return bool(ours == theirs)


def called(name: str, types: tuple[Type, ...]) -> Iterator[Call]:
    """Calls of an entry, also with a constant as the second argument."""
    yield from calls(FUNCTIONS[name], types, most=4)
    for text in CONSTANTS[Type.VARCHAR][:4] if types == (Type.VARCHAR, Type.VARCHAR) else ():
        built = build(FUNCTIONS[name], (column(0, Type.VARCHAR), Literal(text, Type.VARCHAR)))
        if built is not None:
            yield built


def differing(session: Any, names: Sequence[str]) -> tuple[list[str], set[str]]:
    """Where the entries differ from DuckDB, and which of them were tried."""
    groups: dict[tuple[Type, ...], list[tuple[Call, str]]] = defaultdict(list)
    for name in names:
        for types in signatures(FUNCTIONS[name]):
            for call in called(name, types):
                text = in_spark(call)
                read = read_by(call)
                if text is None:
                    continue
                # Columns are called by the places of their arguments, of which constants have none.
                for place, of in enumerate(read):
                    text = text.replace(f'"{of.source}".', f'"#{place}".')
                for place in range(len(read)):
                    text = text.replace(f'"#{place}".', f'"t{place}".')
                groups[tuple(column.type for column in read)].append((call, text))
    found: list[str] = []
    for types, several in groups.items():
        ours, theirs = computed(session, types, several), by_duckdb(types, several)
        for (call, text), mine, other in zip(several, ours, theirs, strict=True):
            assert mine.keys() == other.keys()
            found += [
                f"{call.function.name}: {text} at {[NASTY[kind][place] for kind, place in zip(types, row, strict=True)]}: {value!r}, DuckDB {other[row]!r}"
                for row, value in mine.items()
                if not alike(call, value, other[row])
            ][:2]
    return found, {call.function.name for several in groups.values() for call, _ in several}


def by_duckdb(types: Sequence[Type], found: Sequence[tuple[Call, str]]) -> list[dict[tuple[int, ...], Any]]:
    """What DuckDB computes on the same rows, one call after the other."""
    results = []
    for call, _text in found:
        names = [column.source for column in read_by(call)]
        wanted = ", ".join(f"({', '.join(map(str, row))})" for row in tried(types))
        ids = ", ".join(f"{name}.id" for name in names)
        source = (
            ", ".join(f"{kind.name} AS {name}" for kind, name in zip(types, names, strict=True))
            or "(SELECT 1)"
        )
        written = DUCKDB_COMPILER.emit_expression(call)
        kind = {Type.DOUBLE: f"CAST({written} AS DOUBLE)", Type.BLOB: f"HEX({written})"}
        shown = kind.get(call.type, f"CAST({written} AS VARCHAR)")
        where = f" WHERE ({ids}) IN (VALUES {wanted})" if types else ""
        sql = f"SELECT {', '.join([*([ids] if ids else []), shown])} FROM {source}{where}"
        results.append({row[:-1]: row[-1] for row in bench().connection.execute(sql).fetchall()})
    return results


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(PARTS))
def test_functions_are_total_and_match_duckdb(rows: Any, part: int) -> None:
    """On every row Spark computes what DuckDB does; NULL where that leaves the calendar or 64 bits."""
    names = [name for name in FUNCTIONS if name in SPELLINGS][part::PARTS]
    found, tried_names = differing(rows, names)
    assert not found, "\n".join(found)
    assert tried_names == set(names), "no call of it was tried"


def of_texts(session: Any, wanted: Sequence[Call], texts: Sequence[str | None]) -> list[tuple[Any, ...]]:
    """What Spark computes of each text, with settings of its own."""
    shown = ", ".join(f"{in_spark(found)} AS v{place}" for place, found in enumerate(wanted))
    listed = ", ".join(f"({place}, {values.emit_constant(text)})" for place, text in enumerate(texts))
    sql = f'SELECT {shown} FROM (VALUES {listed}) AS "t0"(i, c) ORDER BY i'
    return [tuple(row.values()) for row in session.sql(sql).toArrow().to_pylist()]


@pytest.mark.slow
def test_letter_cases_match_duckdb(rows: Any) -> None:
    """LOWER, UPPER and ILIKE have DuckDB's letters, alone and beside any others."""
    assert of_texts(rows, of_letters(), letter_texts()) == bench().of_texts(of_letters(), letter_texts())


@pytest.mark.slow
def test_literal_regular_expressions_match_duckdb(rows: Any) -> None:
    """Alternatives of literals match the same texts as in DuckDB; all other expressions are refused."""
    wanted = [found for found in expressions() if in_spark(found) is not None]
    assert len(wanted) == 2 * (len(EXPRESSIONS) - 8)
    assert of_texts(rows, wanted, EXPRESSED_TEXTS) == bench().of_texts(wanted, EXPRESSED_TEXTS)


@pytest.mark.slow
def test_patterns_with_escapes_match_duckdb(rows: Any) -> None:
    """LIKE and ILIKE with ESCAPE match the same texts as in DuckDB; what fails in Spark is refused."""
    wanted = [found for found in escapes() if in_spark(found) is not None]
    refused = {str(found.arguments[1]) for found in escapes() if found not in wanted}
    assert refused == {"'!é%'", "'%!A%'"}
    assert of_texts(rows, wanted, ESCAPED_TEXTS) == bench().of_texts(wanted, ESCAPED_TEXTS)


LIKES = (
    "%a%b%",
    "a%b%c",
    "%a_b%c%",
    "%%a%%b%%",
    "a%%_b_%a",
    "%é%😀%",
    "_%a%b",
    "%a.%*b%",
    "%'%\\\\%",
    "%a%a%a%ab",
)


def test_like_with_many_parts_matches_duckdb(spark: Any) -> None:
    """Patterns with several % are expressions that find each part at its first place, over texts of few letters."""
    drawn = random.Random(3)
    texts = ["".join(drawn.choices("abc.é😀_*\\'\n", k=drawn.randint(0, 9))) for _ in range(300)]
    for pattern in LIKES:
        for name in ("like", "ilike"):
            built = build(FUNCTIONS[name], (column(0, Type.VARCHAR), Literal(pattern, Type.VARCHAR)))
            assert built is not None
            shown = Compiler(SPARK).emit_expression(built).replace(SPARK_COLUMN, "c")
            assert "RLIKE" in shown or pattern.strip("%").count("%") < 1
            rows = ", ".join(f"({place}, {values.emit_constant(text)})" for place, text in enumerate(texts))
            found = spark.sql(f"SELECT {shown} FROM VALUES {rows} AS t(i, c) ORDER BY i").collect()
            assert [row[0] for row in found] == [row[0] for row in bench().of_texts([built], texts)], pattern


def test_like_does_not_backtrack(spark: Any) -> None:
    """A text that matches all parts but the last in many ways takes no longer than one that matches none.

    Of three runs the quickest counts, as others may need the machine meanwhile.
    """

    def took(pattern: str) -> float:
        built = build(FUNCTIONS["like"], (column(0, Type.VARCHAR), Literal(pattern, Type.VARCHAR)))
        assert built is not None
        shown = Compiler(SPARK).emit_expression(built).replace(SPARK_COLUMN, "c")
        began = time.perf_counter()
        spark.sql(
            f"SELECT {shown} FROM (SELECT REPEAT('a', 2400 + CAST(id AS INT)) AS c FROM RANGE(1))"
        ).collect()
        return time.perf_counter() - began

    took("%a%q%")
    most = 5 * took("%q%a%ab") + 2
    assert any(took("%a%a%ab") < most for _ in range(3))
