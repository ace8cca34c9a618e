"""How long the text of a call is, and how much time one row takes, are within what its entry says.

Claim: on every row `growth.bound_result_size` is at least the bytes of the text, and the time is in proportion to at most
`growth.bound_call_work`.
Why: both are asked of every entry, on texts of letters that grow most, and that make engines look far.
Source: none but the definitions.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache

import duckdb
import pytest
from plan.functions.pools import Bench, build, calls, column, read_by, signatures

from dpsql.plan.expressions import Call, Column, Expr, Function, Literal
from dpsql.plan.functions import FUNCTIONS, build_function_call, growth
from dpsql.plan.functions.growth import RegexPattern
from dpsql.plan.interval import TextSize, make_constant_size
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER

_TEXTS = (Type.VARCHAR, Type.BLOB)
GROWING = (
    "Ⱥⱥ" * 40,
    "ßııɐ" * 30,
    "\U0001d160\u0344" * 20,
    "a" * 100,
    " a-b a-b" * 9,
    "é\u0301\u0323" * 20,
    "👩‍👩‍👧" * 9,
    "'\\%_<&" * 9,
    "2024-02-29",
    "",
)
PARTS = (
    "a",
    "",
    "ab",
    "é",
    "😀",
    "\\0",
    "\\1x\\1",
    "aaaaaaaaaa",
    "g",
    "gi",
    "a*",
    "(a)(b)?",
    "[a-b]",
    "\\s+",
    "x*",
    "(.+)",
)
"""Constants of functions that search and replace."""


def of_texts(entry: Function, number: int = 150) -> Iterator[Call]:
    """Calls of an entry over texts, with constants that make texts grow."""
    for types in signatures(entry):
        if not entry.literals:
            yield from calls(entry, types, most=4)
            continue
        places = [
            [column(place, kind)]
            if place not in entry.literals
            else [Literal(value, kind) for value in (PARTS if kind is Type.VARCHAR else (0, 1, 2, 7, 90, -3))]
            for place, kind in enumerate(types)
        ]
        yield from itertools.islice(_products(entry, places), number)


def _products(entry: Function, places: Sequence[Sequence[Expr]]) -> Iterator[Call]:
    """Calls with combinations of arguments, in a drawn order."""
    found = list(itertools.product(*places))
    random.Random(entry.name).shuffle(found)
    for chosen in found:
        built = build(entry, chosen)
        if built is not None:
            yield built


def sized(expr: Expr, size: int) -> TextSize:
    """The bound of an argument where each text column has so many bytes."""
    if isinstance(expr, Literal):
        return growth.compute_literal_size(expr.value)
    return TextSize(Fraction(1), 0, size) if expr.type in _TEXTS else make_constant_size(0)


@cache
def bench() -> Bench:
    return Bench.open()


GIVES_TEXT = [
    entry for entry in FUNCTIONS.values() if any(entry.result(types) in _TEXTS for types in signatures(entry))
]
READS_TEXT = [
    entry for entry in FUNCTIONS.values() if any(Type.VARCHAR in types for types in signatures(entry))
]


@pytest.mark.parametrize("entry", GIVES_TEXT, ids=lambda entry: entry.name)
def test_text_stays_within_its_entry_s_length(entry: Function) -> None:
    """Growing texts are measured in bytes; several arguments have the same text."""
    assert entry.size is not None
    tried = 0
    for built in of_texts(entry):
        if built.type not in _TEXTS or any(part.type in (Type.TIME, Type.UUID) for part in read_by(built)):
            continue
        for text in GROWING:
            named = {part.source: part for part in read_by(built)}
            values = ", ".join(
                f"TRY_CAST({_quoted(text)} AS {part.type.value}) AS {source}"
                for source, part in named.items()
            )
            shown = DUCKDB_COMPILER.emit_expression(built)
            for source in named:
                shown = shown.replace(f'"{source}"."c"', source)
            length = "STRLEN" if built.type is Type.VARCHAR else "OCTET_LENGTH"
            ((found,),) = (
                bench()
                .connection.execute(f"SELECT {length}({shown}) FROM (SELECT {values or '1'})")
                .fetchall()
            )
            bound = growth.bound_result_size(
                built, [sized(part, len(text.encode())) for part in built.arguments]
            )
            assert (found or 0) <= bound.max_bytes, (str(built), text, found, bound)
            tried += 1
    assert tried


@pytest.mark.parametrize(("function", "separators"), [("concat", 0), ("concat_ws", 4)])
def test_every_argument_of_many_is_counted(function: str, separators: int) -> None:
    """CONCAT_WS writes its first text between each two of the others."""
    places = [column(place, Type.VARCHAR) for place in range(5 + (separators > 0))]
    built = build_function_call(function, *places)
    assert isinstance(built, Call)
    bound = growth.bound_result_size(built, [sized(part, 40) for part in built.arguments])
    assert bound.max_bytes >= (5 + separators) * 40


@pytest.mark.parametrize("function", ["lower", "upper", "strip_accents", "nfc_normalize", "reverse", "trim"])
def test_no_letter_grows_more_than_its_function_says(function: str) -> None:
    """Every letter of Unicode alone."""
    built = build_function_call(function, column(0, Type.VARCHAR))
    assert isinstance(built, Call)
    factor = growth.bound_result_size(built, [TextSize(Fraction(1), 0, 2**20)]).share
    letters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    ((most,),) = (
        bench()
        .connection.execute(
            f"SELECT MAX(STRLEN({function}(c)) / STRLEN(c)) FROM (SELECT UNNEST(?) AS c)", [letters]
        )
        .fetchall()
    )
    assert most <= factor < most + 1


FAR = (
    "'a'",
    "'ab'",
    "' '",
    "CHR(769) || CHR(803)",
    "'é'",
    "'👩‍👩‍👧'",
    "'0-'",
)
"""What long texts are made of: letters that a search goes over again and again."""
SOUGHT = (
    "a*b|a",
    "%a%a_%ab",
    "(a|b)*a(a|b){12}c",
    "a" * 300 + "b",
    "ab" * 100,
    "b",
    "aa",
    "g",
    "*a*a?*b",
    "\\s+",
)
_LONG = 2**16
_UNIT = 12
"""How many times as long as the baseline a unit of work may take."""


def timed(connection: duckdb.DuckDBPyConnection, shown: str) -> float:
    """The least time of the processor for a few runs, in seconds; one where that is long."""
    least = float("inf")
    for _ in range(3):
        began = time.process_time()
        connection.execute(f"SELECT {shown} FROM long").fetchall()
        least = min(least, time.process_time() - began)
        if least > 0.5:
            break
    return least


def costly(entry: Function) -> Iterator[Call]:
    """Calls of an entry over one long text, with constants that make it slow."""
    for types in signatures(entry):
        if Type.VARCHAR not in types or len(types) > 4:
            continue
        for step, text in enumerate(SOUGHT):
            chosen: list[Expr] = [
                (
                    Literal(("g" if place == 3 else "x") if place > 1 else text, kind)
                    if kind is Type.VARCHAR
                    else Literal(2 + step, kind)
                )
                if place in entry.literals
                else Column("t0", "c", column(place, kind).facts)
                for place, kind in enumerate(types)
            ]
            built = build(entry, chosen)
            if built is not None and all(part.type is Type.VARCHAR for part in read_by(built)):
                yield built
            if not entry.literals:
                break


@pytest.mark.parametrize("entry", READS_TEXT, ids=lambda entry: entry.name)
def test_long_text_stays_within_its_entry_s_time(entry: Function) -> None:
    """One row with a long text, against the time of a search that goes over it once, on the same machine."""
    engine = bench().connection
    for made in FAR:
        engine.execute(f"CREATE OR REPLACE TABLE long AS SELECT LEFT(REPEAT({made}, {_LONG}), {_LONG}) AS c")
        ((size,),) = engine.execute("SELECT STRLEN(c) FROM long").fetchall()
        once = timed(engine, "LENGTH(REPLACE(c, 'q', 'x')), LENGTH(UPPER(c))") / (10 * size)
        for built in costly(entry):
            sizes = [sized(part, size) for part in built.arguments]
            work = growth.bound_call_work(built, sizes, growth.bound_result_size(built, sizes), {})
            if work > 2**30 // 8:
                continue  # refused of such texts, and of those that are eight times as long
            spent = timed(engine, DUCKDB_COMPILER.emit_expression(built).replace('"t0"."c"', "c"))
            assert spent <= _UNIT * once * (work + 10 * size) + 0.02, (str(built), made, spent / once, work)


@pytest.mark.parametrize("pattern", [r"\s+", "[^a-z]", "a|b+", r"^\s+|\s+$", "(a+)", "ab?c*", "[0-9]{3}"])
def test_common_rewritings_take_one_pass(pattern: str) -> None:
    """Expressions that clean texts need one pass, and are accepted for texts of any length."""
    assert RegexPattern(pattern).is_linear


@pytest.mark.parametrize("pattern", ["a*b|a", "(a*)+b|a", "a(.*c)?", r"\s+$|\s", "a+b*c|a"])
def test_rewritings_with_long_lookahead_are_known(pattern: str) -> None:
    """A match may be short where the search for a longer one goes to the end."""
    assert not RegexPattern(pattern).is_linear


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
