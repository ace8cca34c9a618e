"""Windows over private rows: within a unit as DuckDB has them, with ties that the rows' own values break."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pytest
from filling import insert

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.duckdb.dialect import DUCKDB

_NO_NOISE = 10**15
_WHOLE = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


def _policy(unit: str = "who") -> dict[str, Any]:
    columns = {
        "day": {"type": "date", "bounds": [dt.date(2024, 1, 1), dt.date(2024, 1, 31)]},
        "n": {"type": "integer", "bounds": [-5, 9]},
        "x": {"type": "double", "bounds": [-4, 4]},
        "raw": {"type": "integer"},
        "s": {"type": "varchar"},
        "k": {"type": "varchar", "values": ["a", "b"]},
    }
    rows = {} if unit == "row" else {"rows_per_unit": 12}
    return {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 10**30, "delta": 1e-6},
        "tables": {"t": {"unit": unit, **rows, "columns": columns}, "p": {"public": True}},
    }


_VALUES = {
    "n": (1, 1, 2, 5, None),
    "x": (0.0, -0.0, 1.5, -4.0, None),
    "raw": (2**63 - 1, -(2**63), 3, None),
    "s": ("a", "A", "", None),
    "k": ("a", "b", None),
}


def _rows(*, order_alike: bool) -> list[tuple[Any, ...]]:
    """Rows of 20 people with NULLs and duplicates; unless some are `order_alike`, each has a day of its own."""
    draw = random.Random(7)
    made = []
    for who, place in itertools.product(range(20), range(9)):
        day = f"2024-01-{(place // 3 if order_alike else place) + 1:02}"
        made.append((who, day, *(draw.choice(values) for values in _VALUES.values())))
    return made + made[:30] if order_alike else made


def _database(rows: list[tuple[Any, ...]]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE p AS SELECT 'a' AS k, 1 AS w")
    connection.execute(
        "CREATE TABLE t (who BIGINT, day DATE, n BIGINT, x DOUBLE, raw BIGINT, s VARCHAR, k VARCHAR)"
    )
    insert(connection, "t", rows)
    return connection


def _connect(rows: list[tuple[Any, ...]], unit: str = "who") -> Connection:
    return dpsql.connect(_database(rows), policy=_policy(unit), ledger=":memory:", epsilon=_NO_NOISE)


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    with _connect(_rows(order_alike=False)) as opened:
        yield opened


_BY_DAY = "PARTITION BY who ORDER BY day"
AS_DUCKDB = (
    f"SELECT COUNT(*), SUM(n), SUM(x) FROM (SELECT *, ROW_NUMBER() OVER ({_BY_DAY}) AS r FROM t) WHERE r = 1",
    f"SELECT COUNT(*), SUM(n) FROM (SELECT * FROM t QUALIFY ROW_NUMBER() OVER ({_BY_DAY} DESC) <= 2)",
    "SELECT COUNT(*), SUM(n) FROM (SELECT * FROM t WHERE k = 'a' QUALIFY ROW_NUMBER() OVER (PARTITION BY who, k ORDER BY day) = 1)",
    "SELECT SUM(r), COUNT(*) FROM (SELECT RANK() OVER (PARTITION BY who ORDER BY n NULLS FIRST) AS r FROM t)",
    "SELECT SUM(r), COUNT(*) FROM (SELECT DENSE_RANK() OVER (PARTITION BY who ORDER BY s DESC) AS r FROM t)",
    "SELECT SUM(r), SUM(c) FROM (SELECT PERCENT_RANK() OVER w AS r, CUME_DIST() OVER w AS c FROM t WINDOW w AS (PARTITION BY who ORDER BY n))",
    f"SELECT SUM(r) FROM (SELECT NTILE(4) OVER ({_BY_DAY}) AS r FROM t)",
    f"SELECT COUNT(l), SUM(n - l), SUM(m) FROM (SELECT n, LAG(n) OVER ({_BY_DAY}) AS l, LEAD(n, 2, 7) OVER ({_BY_DAY}) AS m FROM t)",
    f"SELECT COUNT(l), SUM(l) FROM (SELECT LAG(n IGNORE NULLS) OVER ({_BY_DAY}) AS l FROM t)",
    f"SELECT AVG(gap), COUNT(gap) FROM (SELECT day - LAG(day) OVER ({_BY_DAY}) AS gap FROM t)",
    f"SELECT COUNT(f), SUM(f) FROM (SELECT FIRST_VALUE(n) OVER ({_BY_DAY}) AS f FROM t)",
    f"SELECT COUNT(f), SUM(f) FROM (SELECT LAST_VALUE(n) OVER ({_BY_DAY} {_WHOLE}) AS f FROM t)",
    f"SELECT COUNT(f), SUM(f) FROM (SELECT NTH_VALUE(x, 3) OVER ({_BY_DAY} {_WHOLE}) AS f FROM t)",
    f"SELECT SUM(a), SUM(b), SUM(c) FROM (SELECT SUM(n) OVER w AS a, COUNT(s) OVER w AS b, COUNT(*) OVER w AS c FROM t WINDOW w AS ({_BY_DAY}))",
    f"SELECT SUM(a), SUM(b), SUM(c) FROM (SELECT SUM(x) OVER w AS a, MIN(x) OVER w AS b, MAX(n) OVER w AS c FROM t WINDOW w AS ({_BY_DAY} ROWS 2 PRECEDING))",
    "SELECT SUM(a), SUM(b) FROM (SELECT AVG(n) OVER (PARTITION BY who) AS a, SUM(n) OVER (PARTITION BY who ORDER BY n) AS b FROM t)",
    "SELECT COUNT(m), COUNT(*) FROM (SELECT MIN(s) OVER (PARTITION BY who ORDER BY n GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW) AS m FROM t)",
    f"SELECT COUNT(*) FROM (SELECT s FROM t QUALIFY COUNT(*) FILTER (WHERE k = 'a') OVER ({_BY_DAY}) = 2)",
    f"SELECT c, COUNT(*) FROM (SELECT LAG(k, 1, 'b') OVER ({_BY_DAY}) AS c FROM t) GROUP BY c",
    (f"SELECT COUNT(*), SUM(total) FROM (SELECT who, visit, SUM(n) AS total FROM (SELECT who, n, SUM(begins) OVER ({_BY_DAY}) AS visit FROM"
    f" (SELECT who, n, day, CASE WHEN LAG(s) OVER ({_BY_DAY}) = 'a' THEN 0 ELSE 1 END AS begins FROM t)) GROUP BY who, visit)"),
    "SELECT COUNT(*) FROM (SELECT who, k, RANK() OVER (PARTITION BY who ORDER BY COUNT(*) DESC) AS place FROM t GROUP BY who, k) WHERE place = 1",
    f"SELECT COUNT(*), SUM(w) FROM (SELECT k, ROW_NUMBER() OVER ({_BY_DAY}) AS r FROM t) AS d JOIN p USING (k) WHERE r < 4",
    f"SELECT COUNT(*) FROM t WHERE EXISTS (SELECT 1 FROM (SELECT who, LAG(n) OVER ({_BY_DAY}) AS l FROM t) AS d WHERE d.who = t.who AND l = 5)",
)  # fmt: skip


@pytest.mark.parametrize("sql", AS_DUCKDB)
def test_windows_within_a_unit_are_those_of_duckdb(connection: Connection, sql: str) -> None:
    """The answer is DuckDB's wherever ties make no difference."""
    ours = sorted(connection.query(sql).rows, key=str)
    with _database(_rows(order_alike=False)) as plain:
        theirs = sorted(plain.execute(sql).fetchall(), key=str)
    assert len(ours) == len(theirs)
    for mine, its in zip(ours, theirs, strict=True):
        assert mine == pytest.approx(its, abs=1e-6)


_ENDS = ("UNBOUNDED PRECEDING", "2 PRECEDING", "CURRENT ROW", "1 FOLLOWING", "UNBOUNDED FOLLOWING")
FRAMES = [
    f"{kind} BETWEEN {first} AND {last}{exclude}"
    for kind in ("ROWS", "RANGE", "GROUPS")
    for first, last in itertools.combinations_with_replacement(_ENDS, 2)
    for exclude in ("", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES")
    if last != _ENDS[0] and first != _ENDS[-1] and not (kind == "RANGE" and {"2", "1"} & {first[0], last[0]})
]
_RANKED = ("RANK()", "DENSE_RANK()", "PERCENT_RANK()", "CUME_DIST()")
_PLACED = ("ROW_NUMBER()", "NTILE(3)", "LAG(x)", "LEAD(x, 2, 0)")
_CHOSEN = ("FIRST_VALUE(n)", "LAST_VALUE(x IGNORE NULLS)", "NTH_VALUE(n, 2)")
_AGGREGATED = ("COUNT(*)", "COUNT(s)", "SUM(n)", "AVG(x)", "MIN(x)", "MAX(n)")


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.sampled(15)
def test_functions_in_frames_are_those_of_duckdb(connection: Connection, frame: str) -> None:
    """Every function in every frame, whether rows are equal in order or not: DuckDB's values, or a refusal."""
    no_ties = frame.startswith("ROWS") and frame.endswith(("GROUP", "TIES"))
    for order in ("", "ORDER BY n", "ORDER BY s DESC, day", "ORDER BY day"):
        together = _RANKED  # where rows are equal in order, nothing says which of them comes first
        together += _PLACED * ("day" in order) + _AGGREGATED * ("day" in order or "ROWS" not in frame)
        for functions in (together, *((chosen,) for chosen in _CHOSEN if "day" in order)):
            windows = [f"{function} OVER (PARTITION BY who {order} {frame})" for function in functions]
            named = ", ".join(f"{window} AS v{place}" for place, window in enumerate(windows))
            added = ", ".join(f"SUM(v{place}), COUNT(v{place})" for place, _ in enumerate(windows))
            sql = f"SELECT n, COUNT(*), {added} FROM (SELECT n, {named} FROM t) GROUP BY n"
            try:
                ours = sorted(connection.query(sql).rows, key=str)
            except dpsql.QueryRejected as refused:
                if refused.code != "private_window" or not (no_ties or functions[0] in _CHOSEN):
                    raise
                continue
            with _database(_rows(order_alike=False)) as plain:
                theirs = sorted(plain.execute(sql).fetchall(), key=str)
            for mine, its in zip(ours, theirs, strict=True):
                assert mine == pytest.approx(its, abs=1e-6), sql


@pytest.mark.parametrize("ignores_nulls", [True, False])
@pytest.mark.parametrize(
    "frame", [frame for frame in FRAMES if frame.startswith("GROUPS") and "EX" not in frame]
)
@pytest.mark.sampled(30)
def test_frames_of_groups_are_ranges_of_ranks(
    connection: Connection, frame: str, ignores_nulls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They match engines without such frames and without IGNORE NULLS."""
    windows = [
        f"{function} OVER (PARTITION BY who {order} {frame})"
        for function, order in zip(_AGGREGATED, itertools.cycle(("ORDER BY n", "ORDER BY s DESC, x", "")))
    ]
    windows.append("LAG(n IGNORE NULLS) OVER (PARTITION BY who ORDER BY day)")
    named = ", ".join(f"{window} AS v{place}" for place, window in enumerate(windows))
    added = ", ".join(f"SUM(v{place}), COUNT(v{place})" for place, _ in enumerate(windows))
    sql = f"SELECT k, COUNT(*), {added} FROM (SELECT k, {named} FROM t) GROUP BY k"
    theirs = connection.query(sql, replay=False).rows
    other = replace(
        DUCKDB,
        capabilities=replace(
            DUCKDB.capabilities, supports_groups_frames=False, supports_ignore_nulls=ignores_nulls
        ),
    )
    monkeypatch.setattr(connection.engine.backend, "dialect", other)
    assert sorted(connection.query(sql, replay=False).rows, key=str) == sorted(theirs, key=str)


TIED = (
    "ROW_NUMBER() OVER (PARTITION BY who ORDER BY day)",
    "NTILE(2) OVER (PARTITION BY who)",
    "LAG(n) OVER (PARTITION BY who ORDER BY day)",
    "LEAD(raw, 2) OVER (PARTITION BY who ORDER BY x)",
    "FIRST_VALUE(n) OVER (PARTITION BY who)",
    f"LAST_VALUE(n) OVER (PARTITION BY who ORDER BY day {_WHOLE})",
    f"NTH_VALUE(n, 2 IGNORE NULLS) OVER (PARTITION BY who ORDER BY s {_WHOLE})",
    "SUM(x) OVER (PARTITION BY who ORDER BY day ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
    "AVG(x) OVER (PARTITION BY who ORDER BY day)",
    "SUM(raw) OVER (PARTITION BY who ORDER BY day ROWS 3 PRECEDING)",
    "1 / LAG(x) OVER (PARTITION BY who ORDER BY day)",
    "CAST(x AS VARCHAR) || CAST(ROW_NUMBER() OVER (PARTITION BY who ORDER BY day) AS VARCHAR)",
)


@pytest.mark.parametrize("window", TIED)
def test_storage_order_has_no_influence(window: str) -> None:
    """No value depends on the storage of many equal rows and of zeros of both signs."""
    sql = f"SELECT v, n, COUNT(*) AS c FROM (SELECT CAST({window} AS VARCHAR) AS v, n FROM t) GROUP BY v, n ORDER BY v, n"
    answers = set()
    rows = _rows(order_alike=True)
    for seed in range(4):
        random.Random(seed).shuffle(rows)
        with _connect(rows) as opened:
            answers.add(opened.query(sql).rows)
    assert len(answers) == 1


REFUSED = {
    "SELECT COUNT(*) FROM (SELECT RANK() OVER (ORDER BY n) AS r FROM t)": "PARTITION BY who",
    "SELECT COUNT(*) FROM (SELECT RANK() OVER (PARTITION BY k ORDER BY n) AS r FROM t)": "PARTITION BY who",
    "SELECT COUNT(*) FROM (SELECT RANK() OVER (PARTITION BY who % 2) AS r FROM t)": "PARTITION BY who",
    "SELECT COUNT(*) FROM (SELECT s FROM t QUALIFY COUNT(*) OVER (ORDER BY n) > 3)": "PARTITION BY who",
    "SELECT COUNT(*) FROM (SELECT LAG(a.n) OVER (PARTITION BY b.who) AS r FROM t a LEFT JOIN t b ON a.who = b.who AND a.n = 1)": "PARTITION BY a.who",
    "SELECT COUNT(*) FROM (SELECT who, SUM(COUNT(*)) OVER (PARTITION BY k ORDER BY COUNT(*)) AS r FROM t GROUP BY who, k)": "PARTITION BY who",
    "SELECT COUNT(r) FROM (SELECT LAST_VALUE(n) OVER (PARTITION BY who ORDER BY day) AS r FROM t)": "ROWS BETWEEN",
    "SELECT COUNT(r) FROM (SELECT FIRST_VALUE(n IGNORE NULLS) OVER (PARTITION BY who ORDER BY day) AS r FROM t)": "ROWS BETWEEN",
    "SELECT COUNT(r) FROM (SELECT FIRST_VALUE(n) OVER (PARTITION BY who ORDER BY day GROUPS 1 PRECEDING) AS r FROM t)": "ROWS BETWEEN",
}  # fmt: skip


@pytest.mark.parametrize(("sql", "hint"), REFUSED.items())
def test_windows_over_several_units_are_refused(connection: Connection, sql: str, hint: str) -> None:
    """The hint proposes the unit in PARTITION BY, or an order without ties."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.explain(sql)
    assert caught.value.code == "private_window"
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("SELECT SUM(r) FROM (SELECT SUM(x * raw) OVER (PARTITION BY who) AS r FROM t)", "unbounded"),
        ("SELECT COUNT(*) FROM (SELECT n FROM t ORDER BY ROW_NUMBER() OVER (PARTITION BY who) LIMIT 3)", "private_order"),
        ("SELECT COUNT(*) FROM (SELECT SUM(n) OVER (PARTITION BY who ORDER BY n ROWS CURRENT ROW EXCLUDE TIES) AS r FROM t)", "private_window"),
    ],
)  # fmt: skip
def test_windows_without_bounds_or_rows_of_one_unit_are_refused(
    connection: Connection, sql: str, code: str
) -> None:
    """Sums of what has no bounds, an order of private rows, and what a frame of rows cannot tell."""
    with pytest.raises(dpsql.QueryRejected) as caught:
        connection.explain(sql)
    assert caught.value.code == code


def test_rows_that_are_units_have_no_windows() -> None:
    """A window over them would always read other units' rows."""
    with _connect(_rows(order_alike=False), "row") as opened, pytest.raises(dpsql.QueryRejected) as caught:
        opened.explain("SELECT COUNT(*) FROM (SELECT LAG(n) OVER (PARTITION BY s ORDER BY n) AS l FROM t)")
    assert caught.value.code == "private_window"
    assert "each row is a privacy unit" in str(caught.value.hint)


def test_first_rows_of_a_unit_bound_its_contribution(connection: Connection) -> None:
    """ROW_NUMBER <= n leaves n rows of each partition, and with the unit alone n rows of the unit."""
    numbered = "SELECT COUNT(*) FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY day) AS r FROM t) WHERE r {}"
    for partition, condition, rows in (
        ("who", "= 1", 1), ("who", "<= 3", 3), ("who, k", "= 1", 3), ("who, s", "= 1", 12), ("who", "> 2", 12)
    ):  # fmt: skip
        text = str(connection.explain(numbered.format(partition, condition)))
        assert f"contribution: at most {rows} row{'s' * (rows > 1)} per unit" in text


def test_number_beyond_the_bound_is_the_bound() -> None:
    """A unit with more rows than declared has no number beyond them: the group of a number is public."""
    rows = [(1, "2024-01-01", 1, 0.0, 1, "a", "a")] * 40
    with _connect(rows) as opened:
        answer = opened.query(
            "SELECT r, COUNT(*) FROM (SELECT ROW_NUMBER() OVER (PARTITION BY who) AS r FROM t) GROUP BY r ORDER BY r"
        )
    numbers = {r for r, _ in answer.rows}
    assert 12 in numbers <= {*range(1, 13)}
