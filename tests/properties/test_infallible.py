"""No statement that is sent to the engine can fail on a row, wherever the engine evaluates what is in it.

Claim: the text of a release is infallible on every value of its columns' physical types.
Why: the engine moves expressions above and below filters and joins. A statement that fails on no row without
any of its conditions fails on none with them, whichever rows these drop, and whatever was derived from them.
Source: DuckDB's documentation, "Optimizers" (filter pushdown, common subexpressions).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from unittest import mock

import duckdb
import pytest
from plan.functions.pools import NASTY, Bench
from worlds import Declared, close_all, engine_of, prepared, world, written_by

from dpsql.analysis.release_analysis import Lattice
from dpsql.api.connection import Connection
from dpsql.errors import QueryRejected
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.expressions import Call, Column, ColumnInfo
from dpsql.plan.functions import FUNCTIONS
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type
from dpsql.sql.compile import quantile_windows, relations
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.compile.lattice import emit_lattice_point
from dpsql.sql.compile.statement import emit_release

KINDS = (Type.INTEGER, Type.DOUBLE, Type.DATE, Type.TIMESTAMP, Type.VARCHAR, Type.BOOLEAN)
NAMES = {kind: kind.name.lower() for kind in KINDS}
NARROW = {
    Type.INTEGER: "e BETWEEN 0 AND 5",
    Type.DOUBLE: "e BETWEEN 0 AND 5",
    Type.DATE: "e BETWEEN DATE '2024-02-28' AND DATE '2024-03-01'",
    Type.TIMESTAMP: "e BETWEEN TIMESTAMP '2024-02-28' AND TIMESTAMP '2024-03-01'",
    Type.VARCHAR: "e IN ('a', 'b')",
    Type.BOOLEAN: "e",
}
"""Conditions that no extreme value fulfils, by which intervals are derived that hold none of them."""
DERIVED: dict[Type, tuple[str, ...]] = {
    Type.INTEGER: (
        "e",
        "e * e",
        "e + e",
        "e - 7",
        "-e",
        "ABS(e)",
        "e * e * e",
        "CASE WHEN e < 9 THEN e * e ELSE e END",
    ),
    Type.DOUBLE: ("e", "e * e", "-e"),
    Type.DATE: ("e", "e + 1"),
    Type.TIMESTAMP: ("e", "e + INTERVAL 1 DAY"),
}
"""What is aggregated of a column `e`."""
SETTINGS = (
    "RESET disabled_optimizers",
    "SET disabled_optimizers = 'statistics_propagation,common_subexpressions'",
    "SET disabled_optimizers = 'filter_pushdown,filter_pullup,expression_rewriter'",
)
"""With these the engine evaluates in other places, or without what it knows of columns."""


def people(unit: str) -> Connection:
    """A table whose columns have no bounds, with every extreme value of each type, and a public one of few rows."""
    columns: Declared = {"id": ("INTEGER", {"type": "integer"})} | {
        name: (kind.value, {"type": kind.value.lower()}) for kind, name in NAMES.items()
    }
    columns["integer"] = ("BIGINT", {"type": "integer"})
    most = max(map(len, (NASTY[kind] for kind in KINDS)))
    content = [
        {"id": row % 9, **{name: NASTY[kind][row % len(NASTY[kind])] for kind, name in NAMES.items()}}
        for row in range(most)
    ]
    moments = (
        "CREATE TABLE moments AS SELECT TIMESTAMP '2024-02-29' AS m, DATE '2024-02-29' AS d, 1 AS n, 1.5 AS x"
    )
    return world(*content, columns=columns, unit=unit, setup=[moments], tables={"moments": {"public": True}})


@pytest.fixture(scope="module", params=["id", "row"])
def extremes(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """Units of several rows, and rows that are units."""
    yield people(request.param)
    close_all()


@contextmanager
def unfiltered() -> Iterator[None]:
    """Statements are written without their conditions on rows."""
    select = relations._emit_select

    def bare(items: Iterable[str], source: str, _: Iterable[str], distinct: str = "") -> str:
        return select(items, source, (), distinct)

    with mock.patch.object(relations, "_emit_select", bare):
        yield


def run(connection: Connection, sql: str) -> None:
    """Runs the statements of a query as they are, and without conditions in each setting."""
    cursor = engine_of(connection).cursor()
    cursor.execute(SETTINGS[0])
    bare: list[str] = []
    for part in prepared(connection, sql).releases:
        plan = part.plan
        cursor.execute(part.statement.sql).fetchall()
        with unfiltered():
            text = emit_release(DUCKDB_COMPILER, plan.analysis, plan.quantiles, plan.top_k, plan.clamps).sql
        bare.append(text.replace("WHERE m > 0 AND s IS NOT NULL", "").replace("WHERE m > 0", ""))
    for setting in SETTINGS:
        cursor.execute(setting)
        for text in bare:
            cursor.execute(text).fetchall()


def source(kind: Type, value: str = "e") -> str:
    """A derived table whose column `e` is of a kind, and `v` is computed of it where it is known to be small."""
    narrowed = (
        f"(SELECT * FROM (SELECT id, boolean AS b, {NAMES[kind]} AS e FROM people) WHERE {NARROW[kind]})"
    )
    return f"(SELECT id, b, e, {value} AS v FROM {narrowed})"


def calls(kind: Type) -> Iterator[str]:
    """Each aggregate of the registry over `v`."""
    for name, entry in AGGREGATES.items():
        yield "COUNT(DISTINCT id)" if name == "count_units" else entry.format_call("v", Fraction(1, 3))
    if kind.numeric:
        yield from ("VAR_POP(v)", "CORR(v, e)")
    yield "COUNT(*) FILTER (WHERE v IS NOT NULL)"


def statements(kind: Type) -> Iterator[str]:
    """Every aggregate over the column, and sums and medians of all that is computed of it; of all rows and by groups."""
    first, *others = DERIVED.get(kind, ("e",))
    for call in calls(kind):
        yield f"SELECT {call} FROM {source(kind, first)} AS s GROUP BY b"
        yield f"SELECT b FROM {source(kind, first)} AS s GROUP BY b ORDER BY {call} DESC LIMIT 1"
    yield f"SELECT {', '.join(calls(kind))} FROM {source(kind, first)} AS s"
    for value in others:
        for call, by in (
            ("SUM(v), AVG(v)", ""),
            ("MEDIAN(v)", ""),
            ("COUNT(v), COUNT(DISTINCT v)", " GROUP BY v"),
        ):
            yield f"SELECT {call} FROM {source(kind, value)} AS s{by}"


def answered(connection: Connection, texts: Sequence[str] | Iterator[str]) -> int:
    """How many of the statements are accepted; each of these runs."""
    accepted = 0
    for sql in texts:
        try:
            run(connection, sql)
        except QueryRejected:
            continue
        except duckdb.Error as error:
            pytest.fail(f"{type(error).__name__}: {str(error)[:120]}\n{sql}")
        accepted += 1
    return accepted


@pytest.mark.parametrize("kind", KINDS, ids=NAMES.get)
def test_no_aggregate_fails(kind: Type, extremes: Connection) -> None:
    """No aggregate across units over narrowed columns fails."""
    assert answered(extremes, statements(kind)) > 5


@pytest.mark.parametrize("kind", KINDS, ids=NAMES.get)
def test_no_aggregate_within_a_unit_fails(kind: Type) -> None:
    """Neither an aggregate within units nor what is computed of it fails."""
    connection = people("id")
    texts = []
    for value in DERIVED.get(kind, ("e",))[:2]:
        for entry in WITHIN.values():
            inner = (
                f"SELECT id, {entry.format_call('v', 'e')} AS t FROM {source(kind, value)} AS s GROUP BY id"
            )
            texts += [
                f"SELECT COUNT(t) FROM ({inner})",
                f"SELECT MEDIAN(t) FROM ({inner}) WHERE t BETWEEN 0 AND 3",
            ]
            texts += [f"SELECT SUM(t * t) FROM ({inner}) WHERE t BETWEEN 0 AND 3"]
    assert answered(connection, texts) > len(WITHIN) // 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) FROM people JOIN moments ON date = m",
        "SELECT COUNT(*) FROM people JOIN moments ON timestamp = d",
        "SELECT COUNT(*) FROM people JOIN moments ON integer = x",
        "SELECT COUNT(*) FROM people JOIN moments ON double = n",
        "SELECT COUNT(*) FROM people LEFT JOIN moments ON integer = n WHERE integer * n < 5",
        "SELECT COUNT(*) FROM people WHERE date < (SELECT MAX(m) FROM moments) AND date < timestamp",
        "SELECT COUNT(*) FROM people WHERE date IN (SELECT m FROM moments) OR timestamp IN (DATE '2024-02-29')",
        "SELECT COUNT(*) FROM (SELECT id, date AS t FROM people UNION ALL SELECT id, timestamp FROM people)",
        "SELECT COUNT(*) FROM (SELECT id, integer AS t FROM people UNION SELECT id, double FROM people)",
        "SELECT COUNT(*) FROM people a JOIN people b ON a.id = b.id WHERE a.integer * b.integer < 5 AND a.integer < 3",
        "SELECT COUNT(*) FROM people a WHERE EXISTS (SELECT 1 FROM people b WHERE b.id = a.id AND a.integer - b.integer < 3)",
        "SELECT COUNT(*) FROM people WHERE COALESCE(date, timestamp) > DATE '2024-01-01' AND NULLIF(date, timestamp) IS NULL",
    ],
)
def test_no_comparison_of_two_types_fails(sql: str, extremes: Connection) -> None:
    """Days with moments, and whole numbers with others, compare in conditions, joins and set operations."""
    answered(extremes, [sql])


@pytest.mark.parametrize("kind", [Type.INTEGER, Type.DOUBLE], ids=NAMES.get)
@pytest.mark.parametrize(
    "ends", [(0, 5), (-(2**40), 2**40), (-(2**63), 2**63), (0, Fraction(1, 2**60))], ids=str
)
def test_points_are_infallible(kind: Type, ends: tuple[Fraction, Fraction]) -> None:
    """The point of any value on any lattice, also where its clamp is evaluated after it: each branch of its CASE alone."""
    around = Interval(*map(Fraction, ends))
    lattice = Lattice.from_interval(around, integral=kind is Type.INTEGER)
    text = emit_lattice_point(DUCKDB_COMPILER, Column("t", "c", ColumnInfo(kind, "")), lattice, "c", around)
    branches = re.findall(r"THEN (.*?)(?= WHEN | END)", text)
    bench = Bench.open().connection
    for part in (text, *branches):
        bench.execute(f"SELECT {part} FROM {kind.name}").fetchall()
        assert bench.execute(f"SELECT TYPEOF({text}) FROM {kind.name} WHERE c = 0 LIMIT 1").fetchall() == [
            ("BIGINT",)
        ]


def test_search_finds_failing_arithmetic() -> None:
    """Arithmetic as it is written in SQL, a distance that leaves 64 bits, and plain casts fail on these rows."""
    connection = people("id")
    plain = lambda call: call.function.sql  # noqa: E731
    square = f"SELECT SUM(v) FROM {source(Type.INTEGER, 'e * e')} AS s"
    middle = "SELECT MEDIAN(CASE WHEN integer > 0 THEN 9223372036854775807 ELSE -9223372036854775807 END) FROM people"
    with written_by(plain), pytest.raises(duckdb.Error):
        run(connection, square)
    with (
        mock.patch.object(
            quantile_windows, "_emit_bin", lambda _, at, width: f"(({at} + {2**62}) >> {width})"
        ),
        pytest.raises(duckdb.Error),
    ):
        run(connection, middle)
    run(connection, square)
    run(connection, middle)


def test_whole_number_arithmetic_has_its_own_form() -> None:
    """No entry gives a whole number by an operator that can leave 64 bits."""
    for function in FUNCTIONS.values():
        if function.name.startswith("overlay"):
            continue  # its text is no whole number, and DuckDB 1.x lacks it
        call = Call(function, (), Type.INTEGER)
        template = DUCKDB_COMPILER._get_template(call)
        if (
            function.result((Type.INTEGER,) * 2) is Type.INTEGER
            or function.result((Type.INTEGER,)) is Type.INTEGER
        ):
            for operator in (" + ", " - ", " * ", "(- ", "ABS("):
                assert operator not in template or "HUGEINT" in template or "TRY(" in template, function.name
