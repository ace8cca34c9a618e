"""What PostgreSQL computes of an entry of the function registry: a value on every row, and the one that DuckDB computes.

Each entry that PostgreSQL has is tried over every type that it takes, on combinations of nasty values, and with constants
in their place, which PostgreSQL computes while it plans.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import psycopg
import pytest
from engines.loading import database
from plan.functions.pools import (
    ESCAPED_TEXTS,
    EXPRESSED_TEXTS,
    EXPRESSIONS,
    NASTY,
    Bench,
    calls,
    column,
    escapes,
    expressions,
    letter_texts,
    of_letters,
    read_by,
    signatures,
)
from postgres import Server

from dpsql.backends.postgres.dialect import POSTGRES
from dpsql.backends.postgres.functions import SPELLINGS
from dpsql.backends.postgres.session import build_settings_statements
from dpsql.backends.postgres.values import TYPES, emit_constant
from dpsql.errors import QueryRejected
from dpsql.plan.expressions import Call, Literal
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.functions import build_function_call as call_of
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER, Compiler
from dpsql.verification.calls import CONSTANT_TEXTS

_CALENDAR = re.compile(r"(?!0000)\d{4}-\d\d-\d\d( [\d:.]+)?")
_MOST = 300
"""Rows on which a call is tried."""
_NEAR = frozenset({"ln", "log10", "exp"})
"""Functions that a library of mathematics computes, which differ in the last digits."""


def test_functions_with_other_last_digits_are_listed() -> None:
    """The dialect names each function whose last digits differ."""
    assert POSTGRES.functions.approximate_functions >= _NEAR


def list_values(kind: Type) -> list[tuple[int, str | None]]:
    """The values that an expression of PostgreSQL may have, with their places among the nasty ones."""
    found = list(enumerate(NASTY[kind]))
    if kind.temporal:
        return [(place, text) for place, text in found if text is None or _CALENDAR.fullmatch(text)]
    if kind is Type.TIME:
        return [(place, text) for place, text in found if text != "24:00:00"]
    if kind is Type.BLOB:
        return [(place, text) for place, text in found if text is None or text.isalpha() or not text]
    return [(place, text) for place, text in found if text is None or "\0" not in text]


@pytest.fixture(scope="module")
def rows(server: Server) -> Iterator[psycopg.Connection[Any]]:
    """A table of each type with these values."""
    with database(server, "functions") as (_, owner):
        for kind in NASTY:
            owner.execute(f"CREATE TABLE {kind.name} (id INTEGER, c {TYPES[kind]})".encode())
            for place, text in list_values(kind):
                owner.execute(
                    f"INSERT INTO {kind.name} VALUES (%s, CAST(%s AS {TYPES[kind]}))".encode(), [place, text]
                )
        yield owner


@cache
def bench() -> Bench:
    return Bench.open()


def spelt() -> list[str]:
    return [name for name in FUNCTIONS if name in SPELLINGS]


def in_postgres(call: Call) -> str | None:
    """The SQL of a call, None where PostgreSQL does not have it."""
    try:
        return Compiler(POSTGRES).emit_expression(call)
    except QueryRejected as error:
        return None if error.code == "engine_function" else error.code


def tried(call: Call) -> list[tuple[int, ...]]:
    """Places of the values of its columns."""
    places = [[place for place, _ in list_values(read.type)] for read in read_by(call)]
    found = list(itertools.product(*places))
    random.Random(str(call)).shuffle(found)
    return found[:_MOST]


def computed(connection: psycopg.Connection[Any], call: Call, text: str) -> dict[tuple[int, ...], Any]:
    """What PostgreSQL computes on these rows, with the settings of an answer."""
    read = read_by(call)
    shown = f"CAST({text} AS {'DOUBLE PRECISION' if call.type.numeric else 'TEXT'})"
    if call.type is Type.BLOB:
        shown = f"UPPER(ENCODE({text}, 'hex'))"
    if not read:
        with connection.transaction():
            connection.execute(build_settings_statements(60).encode())
            return {(): connection.execute(f"SELECT {shown}".encode()).fetchall()[0][0]}
    ids = ", ".join(f'"{column.source}".id' for column in read)
    source = ", ".join(f'public.{column.type.name.lower()} AS "{column.source}"' for column in read)
    wanted = ", ".join(f"({', '.join(map(str, row))})" for row in tried(call))
    with connection.transaction():
        connection.execute(build_settings_statements(60).encode())
        sql = f"SELECT {ids}, {shown} FROM {source} WHERE ({ids}) IN (VALUES {wanted})"
        return {tuple(row[:-1]): row[-1] for row in connection.execute(sql.encode()).fetchall()}


def by_duckdb(call: Call) -> dict[tuple[int, ...], Any]:
    """What DuckDB computes on the same rows."""
    read = read_by(call)
    shown = f"CAST({DUCKDB_COMPILER.emit_expression(call)} AS {'DOUBLE' if call.type.numeric else 'VARCHAR'})"
    if call.type is Type.BLOB:
        shown = f"HEX({DUCKDB_COMPILER.emit_expression(call)})"
    if not read:
        return {(): bench().connection.execute(f"SELECT {shown}").fetchall()[0][0]}
    ids = ", ".join(f'"{column.source}".id' for column in read)
    source = ", ".join(f'{column.type.name} AS "{column.source}"' for column in read)
    wanted = ", ".join(f"({', '.join(map(str, row))})" for row in tried(call))
    sql = f"SELECT {ids}, {shown} FROM {source} WHERE ({ids}) IN (VALUES {wanted})"
    return {tuple(row[:-1]): row[-1] for row in bench().connection.execute(sql).fetchall()}


def few_digits(name: str) -> Iterator[Call]:
    """Calls for columns of few digits, which are no calls of computed decimals; of one entry."""
    for digits in ((9, 2), (15, 14)) if name == "cast_varchar decimal" else ():
        found = call_of(name, column(0, Type.DOUBLE), *(Literal(part, Type.INTEGER) for part in digits))
        if found is not None:
            yield found


@pytest.mark.parametrize("name", spelt())
def test_functions_are_total_and_match_duckdb(rows: psycopg.Connection[Any], name: str) -> None:
    """On every row PostgreSQL computes what DuckDB does; NULL where that leaves the calendar or 64 bits."""
    function, found = FUNCTIONS[name], 0
    for types in signatures(function):
        for call in (
            *calls(function, types, most=6, constants=CONSTANT_TEXTS.get(name, ())),
            *few_digits(name),
        ):
            text = in_postgres(call)
            if text is None:
                continue
            found += 1
            ours, theirs = computed(rows, call, text), by_duckdb(call)
            assert ours.keys() == theirs.keys()
            for row, value in ours.items():
                assert alike(call, value, theirs[row]), (text, row, value, theirs[row])
    assert found, "no call of it was tried"


def alike(call: Call, ours: Any, theirs: Any) -> bool:
    if isinstance(ours, float) and isinstance(theirs, float):
        near = (
            math.isclose(ours, theirs, rel_tol=1e-12, abs_tol=1e-320)
            if call.function.name in _NEAR
            else False
        )
        return (
            ours == theirs
            or (math.isnan(ours) and math.isnan(theirs))
            or near
            or abs(ours - theirs) < 2.0**-1022
        )
    if ours is None and theirs is not None:
        return call.type.temporal and not _CALENDAR.fullmatch(str(theirs))
    return bool(ours == theirs)


def of_texts(
    rows: psycopg.Connection[Any], wanted: Sequence[Call], texts: Sequence[str | None]
) -> list[tuple[Any, ...]]:
    """What PostgreSQL computes of each text."""
    shown = ", ".join(f"{in_postgres(found)} AS v{place}" for place, found in enumerate(wanted))
    listed = ", ".join(f"({place}, {emit_constant(text)})" for place, text in enumerate(texts))
    sql = f'SELECT {shown} FROM (VALUES {listed}) AS "t0"(i, c) ORDER BY i'
    return rows.execute(sql.encode()).fetchall()


def test_letter_cases_match_duckdb(rows: psycopg.Connection[Any]) -> None:
    """LOWER, UPPER and ILIKE have DuckDB's letters, alone and beside any others."""
    assert of_texts(rows, of_letters(), letter_texts()) == bench().of_texts(of_letters(), letter_texts())


def test_literal_regular_expressions_match_duckdb(rows: psycopg.Connection[Any]) -> None:
    """Alternatives of literals match the same texts as in DuckDB; all other expressions are refused."""
    wanted = [found for found in expressions() if in_postgres(found) is not None]
    assert len(wanted) == 2 * (len(EXPRESSIONS) - 8)
    assert of_texts(rows, wanted, EXPRESSED_TEXTS) == bench().of_texts(wanted, EXPRESSED_TEXTS)


def test_patterns_with_escapes_match_duckdb(rows: psycopg.Connection[Any]) -> None:
    """LIKE and ILIKE with ESCAPE match the same texts as in DuckDB, whatever is escaped."""
    assert of_texts(rows, escapes(), ESCAPED_TEXTS) == bench().of_texts(escapes(), ESCAPED_TEXTS)


@pytest.mark.parametrize("name", ["regexp_extract", "round_digits", "cast_decimal"])
def test_unsupported_functions_are_refused(name: str) -> None:
    """An entry without a spelling is refused, and so is a call of types that may fail."""
    function = FUNCTIONS[name]
    found = [in_postgres(call) for types in signatures(function) for call in calls(function, types, most=2)]
    assert found
    assert set(found) == {None}


def test_constants_read_back_unchanged(rows: psycopg.Connection[Any]) -> None:
    """A constant reads back as itself, quotes, backslashes and the ends of DOUBLE too."""
    for value in (
        "it's",
        "a\\b",
        '"',
        "é",
        1.7976931348623157e308,
        5e-324,
        -0.1,
        2**63 - 1,
        -(2**63),
        b"\x00\\'",
        True,
    ):
        with rows.transaction():
            rows.execute(build_settings_statements(60).encode())
            ((found,),) = rows.execute(f"SELECT {emit_constant(value)}".encode()).fetchall()
        assert found == value
