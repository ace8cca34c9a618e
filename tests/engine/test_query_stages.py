"""The stages: nothing is charged that was not verified, nothing is read that is not charged, and one module opens exact rows."""

from __future__ import annotations

import ast
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from worlds import close_all, connected, engine_of, person, prepared, spent, words_drawn, world

import dpsql
from dpsql.api import engine_queries
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine import stages
from dpsql.engine.engine import Engine
from dpsql.engine.postprocess import answer
from dpsql.engine.query_run import QueryRun
from dpsql.engine.replay import replays
from dpsql.planning import clamping
from dpsql.policy.request.query import Query
from dpsql.privacy.mechanisms import Sensitivity
from dpsql.sql.compile.outer_query import find_unchanged_columns


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    """Worlds are closed with their test."""
    yield
    close_all()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The exact rows of each statement that reads private data, as they are read, and the queries of temporary tables."""
    rows: list[Any] = []
    run, stage = DuckDBBackend.run_statement, DuckDBBackend.stage_tables

    def heard(self: DuckDBBackend, sql: str) -> Any:
        exact = run(self, sql)
        rows.append(exact.reveal())
        return exact

    def staged(self: DuckDBBackend, tables: Any) -> Any:
        rows.extend(tables)
        return stage(self, tables)

    monkeypatch.setattr(DuckDBBackend, "run_statement", heard)
    monkeypatch.setattr(DuckDBBackend, "stage_tables", staged)
    return rows


@pytest.mark.parametrize("budget", [{"epsilon": 100}, {"epsilon": 100, "delta": 1e-6}], ids=["pure", "zcdp"])
def test_plan_with_too_little_noise_is_neither_charged_nor_run(
    budget: dict[str, Any], monkeypatch: pytest.MonkeyPatch, read: list[Any]
) -> None:
    """Where the planner slips, the second derivation stops the query before any effect, EXPLAIN too."""
    right = clamping.compute_sensitivity

    def slipped(*args: Any, **kwargs: Any) -> Sensitivity:
        found = right(*args, **kwargs)
        return Sensitivity(found.l1 / 2, found.l2_squared / 4)

    connection = world(person(1), budget=budget)
    monkeypatch.setattr(clamping, "compute_sensitivity", slipped)
    for ask in (connection.query, connection.explain):
        with pytest.raises(dpsql.InternalError) as caught:
            ask("SELECT COUNT(*) FROM people")
        assert caught.value.code == "verification"
    assert (spent(connection), words_drawn(connection), read) == (0, 0, [])


def test_all_statements_of_a_query_read_one_snapshot(
    monkeypatch: pytest.MonkeyPatch, read: list[Any]
) -> None:
    """What the owner commits between the look-up of public facts and the read is not read."""
    connection = world(person(1, city="Bonn"))
    owner = engine_of(connection).cursor()
    prepare = replays.plan_and_match

    def overtaken(engine: Engine, asked: Query) -> QueryRun:
        decided = prepare(engine, asked)
        owner.execute("INSERT INTO regions SELECT 'Bonn', 9 FROM range(500)")
        return decided

    monkeypatch.setattr(engine_queries, "plan_and_match", overtaken)
    sql = "SELECT COUNT(*) FROM people JOIN regions ON city = name"
    connection.query(sql)
    assert read == [[(1, 1)]]
    monkeypatch.undo()
    assert prepared(connection, sql).plan.analysis.bound.rows == 2 * 501


def test_every_table_that_is_read_is_charged() -> None:
    """A release over two private tables costs each of them what it loses, whichever is named first."""
    setup = ["CREATE TABLE visits AS SELECT 1 AS id, 9 AS cost"]
    visits = {"unit": "id", "rows_per_unit": 1, "columns": {"cost": {"type": "integer", "bounds": [0, 9]}}}
    connection = world(person(1), setup=setup, tables={"visits": visits})
    for number, tables in enumerate(("people AS p JOIN visits AS v", "visits AS v JOIN people AS p"), 1):
        query = prepared(connection, f"SELECT COUNT(*) FROM {tables} ON p.id = v.id")
        assert {bill.table for bill in query.table_charges} == {"people", "visits"}
        assert len({bill.event for bill in query.table_charges}) == 1
        connection.query(query.query.sql)
        assert {name: state.queries for name, state in connection.budget().items()} == {
            "people": number,
            "visits": number,
        }


EVERY_TYPE = {
    "n": {"type": "integer", "values": [-3, 10**15, 7]},
    "x": {"type": "double", "values": [-0.0, 0.5, 1e150]},
    "s": {"type": "varchar", "values": ["", "ä", "it's"]},
    "b": {"type": "boolean"},
    "d": {"type": "date", "values": [dt.date(1, 1, 1), dt.date(2024, 2, 29)]},
    "t": {"type": "timestamp", "values": [dt.datetime(2024, 2, 29, 23, 59, 59, 999999)]},
}
UNCHANGED = [
    *(
        f"SELECT COUNT(*) AS many, {key}, AVG(LEAST(n, 9)), {key} FROM every GROUP BY {key}"
        for key in EVERY_TYPE
    ),
    "SELECT SUM(LEAST(GREATEST(n, 0), 9)), COUNT(DISTINCT id) FROM every",
    "SELECT b, s FROM every GROUP BY s, b",
]


@pytest.mark.parametrize("query", UNCHANGED)
def test_unchanged_released_rows_equal_those_of_an_engine(
    query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that need no post-processing are what an engine makes of them: values, types, scales, intervals."""
    found = []
    for places in (find_unchanged_columns, lambda _: None):
        monkeypatch.setattr(answer, "find_unchanged_columns", places)
        made = duckdb.connect()
        made.execute(
            "CREATE TABLE every (id BIGINT, n BIGINT, x DOUBLE, s VARCHAR, b BOOLEAN, d DATE, t TIMESTAMP)"
        )
        made.execute(
            "INSERT INTO every VALUES (1, 7, 0.5, 'ä', TRUE, '2024-02-29', NULL), (2, NULL, NULL, NULL, NULL, NULL, NULL)"
        )
        rules = {"unit": "id", "rows_per_unit": 2, "max_groups": 1, "columns": EVERY_TYPE}
        connection = connected(made, {"budget": {"epsilon": 9, "delta": 1e-6}, "tables": {"every": rules}})
        result = connection.query(query)
        assert find_unchanged_columns(prepared(connection, query).outer) is not None
        assert len(result.rows) > 0
        found.append((result.columns, result.types, repr(result.rows), result.scales, repr(result.receipt)))
        found[-1] += (repr(result.intervals()),)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT city, COUNT(*) FROM people GROUP BY city HAVING COUNT(*) > 0",
        "SELECT city, COUNT(*) FROM people GROUP BY city ORDER BY city",
        "SELECT city, COUNT(*) FROM people GROUP BY city LIMIT 1",
        "SELECT city, COUNT(*) FROM people GROUP BY city OFFSET 1",
        "SELECT DISTINCT city, COUNT(*) FROM people GROUP BY city",
        "SELECT COUNT(*) + 1 FROM people",
        "SELECT COUNT(*) FROM people WHERE cost > (SELECT AVG(cost) FROM people)",
        "SELECT rank FROM regions",
    ],
)
def test_outer_query_that_changes_rows_is_run_by_an_engine(query: str) -> None:
    """A clause above the boundary, DISTINCT, an expression, an earlier release: more than rows as they are."""
    assert find_unchanged_columns(prepared(world(person(1)), query).outer) is None


def test_stages_stand_in_the_order_of_the_module() -> None:
    """`STAGES` names the functions of the module in the order in which a reader meets them."""
    names = [stage.__name__ for stage in stages.STAGES]  # type: ignore[attr-defined]
    assert names == [
        *("parse", "lower", "analyze", "choose", "verify"),
        *("charge", "run", "release", "post_process"),
    ]
    lines = [stage.__code__.co_firstlineno for stage in stages.STAGES]  # type: ignore[attr-defined]
    assert lines == sorted(lines)


def test_uncharged_release_is_not_run(read: list[Any]) -> None:
    """A driver that forgot the charge fails before the read, whichever release of a statement it runs."""
    connection = world(person(1))
    for sql in ("SELECT COUNT(*) FROM people", "SELECT city, SUM(age) FROM people GROUP BY city"):
        query = prepared(connection, sql)
        with pytest.raises(dpsql.InternalError) as caught:
            stages.draw_releases(connection.engine, query)
        assert caught.value.code == "uncharged"
    assert (read, spent(connection)) == ([], 0)


def test_prepared_query_keeps_no_lookups_and_no_tree() -> None:
    """A plan that is kept does not answer from public rows of another moment."""
    kept = prepared(world(person(1)), "SELECT COUNT(*) FROM people")
    assert (kept.lookups, kept.parsed, kept.entries, kept.released_tables) == (None, None, (), ())


def test_exact_rows_are_opened_in_one_module() -> None:
    """`Exact.reveal` is called in `dpsql.engine.release.exact_rows` and nowhere else in the package."""
    package = Path(dpsql.__file__).parent
    opening = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in {"reveal", "_Exact__rows"}
    }
    assert opening == {"engine/release/exact_rows.py"}


def test_private_rows_are_read_in_one_module() -> None:
    """The engine is asked for private rows in `exact_release` alone, which only the stage `run` opens."""
    package = Path(dpsql.__file__).parent
    asking = {"run_statement": set[str](), "stage_tables": set[str](), "open_exact_release": set[str]()}
    for path in package.rglob("*.py"):
        if path.is_relative_to(package / "backends") or path.is_relative_to(
            package / "interfaces" / "server"
        ):
            continue  # the server runs the statements of a session, by a method of this name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node, "attr", None) or getattr(node, "id", None)
            if isinstance(node, (ast.Attribute, ast.Name)) and name in asking:
                asking[name].add(path.relative_to(package).as_posix())
    assert asking == {
        "run_statement": {"engine/release/exact_release.py"},
        "stage_tables": {"engine/release/exact_release.py"},
        "open_exact_release": {"engine/stages.py"},
    }
