"""Nothing that can be observed besides released values differs between neighbouring databases.

Every accepted and every refused fixture is played on neighbours that differ in specials, duplicates,
many rows, or all rows there are, for both kinds of unit and of neighbours. With the same draws released
cells differ by exactly what the exact ones do, which is no more than was derived. Naive dataflows, in
each of which one thing follows the data, do not pass.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest
from properties.naive import OBSERVABLE, RELEASED
from properties.replay import Player, Replay, assert_neighbours, assert_same, differing, played
from worlds import close_all, connected, engine_of

from dpsql.engine.intervals import noise_laws
from dpsql.plan.types import Value
from dpsql.planning.clamping import Clamp
from dpsql.sql.parse.session_statement import parse_stated_options
from tests.sql.fixture_files import Fixture, accepted, refused
from tests.sql.study import POLICY, clinic

NEW = {
    "an ordinary row": "('A', 0, 20, 7.25, '2026-01-02', '2026-01-02', 'Fever', 50, TRUE, 1)",
    "nothing known": "(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "not a number": "('B', 1, 69, 'nan', '2026-03-31', '2026-03-31 23:59:59.999999', '', 'nan', FALSE, 3)",
    "too large": "('C', 9223372036854775807, 2147483647, 'inf', 'infinity', 'infinity', 'ünique', 1.7e308, NULL, 9)",
    "too small": "('zz', -9223372036854775808, -2147483648, '-inf', '-infinity', '-infinity', chr(0), '-inf', TRUE, 0)",
    "next to nothing": "('', 2, 21, 5e-324, '5877642-06-25 (BC)', '290309-12-22 (BC) 00:00:00', '\U0001f600', -0.0, TRUE, 2)",
}
"""Rows of a new patient: plan, region, age, cost, day, seen, note, weight, urgent, ward."""
PAY = ("(1, 5000)", "(NULL, NULL)", "(2, 'nan')", "(2147483647, 'inf')", "(-7, -1.7e308)", "(3, 5e-324)")
"""What a new employee brings to `staff`: grade and salary."""
SPECIAL = tuple(NEW)[1:]
LOSS = {"epsilon": 3}
"""Enough for groups of the study's size to pass a threshold, and little enough to leave noise on every value."""

NO_NOISE = {"epsilon": 10**4}


@dataclass(frozen=True)
class Variant:
    """Whose neighbours they are and who keeps the budget, with further rules for `visits`."""

    unit: str
    neighbors: str
    accountant: str
    rules: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return ", ".join((self.unit, self.neighbors, self.accountant, *(name for name, _ in self.rules)))

    def policy(self) -> dict[str, Any]:
        """The study's policy for these units."""
        tables = {name: dict(rules) for name, rules in POLICY["tables"].items()}
        tables["visits"] |= dict(self.rules)
        if self.unit == "row":
            del tables["visits"]["rows_per_unit"]
            tables["visits"]["unit"] = "row"
            del tables["samples"]  # which links to the unit's id
        budget = {"epsilon": 10**7, "delta": 1e-2, "accountant": self.accountant}
        return {"neighbors": self.neighbors, "budget": budget, "tables": tables}


VARIANTS = (
    Variant("patient_id", "add_remove", "zcdp"),
    Variant("row", "add_remove", "pure"),
    Variant("patient_id", "replace", "pure", (("max_groups", 2),)),
    Variant("row", "replace", "zcdp"),
    Variant("patient_id", "add_remove", "zcdp", (("min_frequency", 3), ("partition", "plan"))),
)


@cache
def study() -> tuple[duckdb.DuckDBPyConnection, Iterator[int]]:
    """The study's database, and numbers for the worlds that are made of it."""
    return clinic().execute("SET threads = 1"), itertools.count()


def database(
    *, full: bool, new: Sequence[str], times: int = 1, alone: bool = False
) -> duckdb.DuckDBPyConnection:
    """The study's tables, or empty ones, and a new patient with each of these rows so many times; in one table `alone`."""
    whole, numbers = study()
    cursor, name = whole.cursor(), f"world{next(numbers)}"
    cursor.execute(f"ATTACH ':memory:' AS {name}")
    for table, rules in POLICY["tables"].items():
        few = "" if full or "public" in rules else "LIMIT 0"
        cursor.execute(f"CREATE TABLE {name}.{table} AS FROM memory.{table} {few}")
    cursor.execute(f"USE {name}")
    for row in new:
        values = f"(VALUES {NEW[row]}) AS v(p, r, a, c, d, s, n, w, u, o)"
        cursor.execute(f"INSERT INTO visits SELECT 777, v.* FROM {values}, range({times})")
        if not alone:
            cursor.execute(f"INSERT INTO pulses SELECT 777, p FROM {values}")
    if new and not alone:
        pay = PAY[list(NEW).index(new[-1])]
        cursor.execute(f"INSERT INTO staff SELECT 'new', v.* FROM (VALUES {pay}) AS v(g, s)")
    return cursor


def pair(
    variant: Variant, *new: str, full: bool = True, ledgers: Sequence[Any] = (":memory:", ":memory:")
) -> tuple[Player, Player]:
    """Neighbours: with and without a unit that has these rows, or with it in another's place."""
    replaced = ["an ordinary row"] if variant.neighbors == "replace" else []
    rows = variant.unit == "row"  # each of its table
    ours = database(full=full, new=replaced, alone=rows)
    theirs = database(full=full, new=new[:1] if rows else new, times=1 if rows else 5, alone=rows)
    first, second = (
        Player(connected(each, variant.policy(), ledger=ledger))
        for each, ledger in zip((ours, theirs), ledgers, strict=True)
    )
    return first, second


standing = cache(pair)
"""Neighbours that many tests ask, one after another."""


@pytest.fixture(scope="module", autouse=True)
def _worlds_end() -> Iterator[None]:
    """The worlds of this file are closed with it."""
    yield
    standing.cache_clear()
    close_all()


def hold(variant: Variant, sql: str, parameters: Sequence[Value] = ()) -> list[Replay]:
    """Asserts both laws of one query: with the same noisy cells among everybody, the same draws among nobody."""
    replays: list[Replay] = []
    clamps: dict[int, tuple[Clamp, ...]] = {}
    options = parse_stated_options(sql)
    loss = LOSS if options.epsilon is None and options.target_error is None else {}
    for full in (True, False):
        players = standing(variant, *SPECIAL, full=full)
        replays += passed(played(players, sql, parameters, cells=full, clamps=clamps, **loss))
    assert_same(replays[::2])
    return replays


def passed(replays: list[Replay]) -> list[Replay]:
    """The replays of two neighbours, for which both laws hold."""
    assert_same(replays)
    assert_neighbours(*replays)
    return replays


def in_turn(*sequences: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Every combination of the sequences, each with one variant."""
    turns = itertools.cycle(VARIANTS)
    return [(*combination, next(turns)) for combination in itertools.product(*sequences)]


@pytest.mark.parametrize(("fixture", "variant"), in_turn(accepted()), ids=str)
def test_accepted_query_does_not_reveal_a_unit(fixture: Fixture, variant: Variant) -> None:
    """A unit with many special rows changes only released values, whoever else is there."""
    first, *_ = hold(variant, fixture.query, fixture.parameters)
    # A row has no unit's id, nobody may choose among groups of which rare ones are hidden, databases have names here, and
    # samples are of units that come and go.
    hidden = "min_frequency" in dict(variant.rules) and any(
        call in fixture.query for call in ("MODE(", "HISTOGRAM(")
    )
    other = '"memory"' in fixture.query or (variant.neighbors == "replace" and "TABLESAMPLE" in fixture.query)
    assert not first.observed.error or variant.unit == "row" or hidden or other


@pytest.mark.parametrize(("fixture", "variant"), in_turn(refused()), ids=str)
def test_refused_query_is_refused_on_every_database(fixture: Fixture, variant: Variant) -> None:
    """The refusal has the same words and position on every database."""
    hold(variant, fixture.query, fixture.parameters)


GROUPED = [
    "SELECT weight, COUNT(*) FROM visits GROUP BY weight",
    "SELECT -cost / 2 AS half, SUM(age) FROM visits GROUP BY half ORDER BY 2 DESC, half LIMIT 9",
    "SELECT seen, AVG(cost) FROM visits GROUP BY seen",
    "SELECT day, region, COUNT(*) FROM visits GROUP BY day, region",
    "SELECT UPPER(note) AS word, urgent, AVG(weight) FROM visits WHERE weight < 1e9 AND weight > -9 GROUP BY ALL",
    'SELECT CAST(region AS VARCHAR) AS place, SUM("Ward No") FROM visits GROUP BY place',
    "SELECT CASE WHEN urgent THEN day ELSE TIMESTAMP '2026-01-02 12:00:00' END AS at, COUNT(*) FROM visits GROUP BY at",
    "SELECT COALESCE(DATE_TRUNC('week', day), DATE '2026-01-01') AS at, COUNT(*) FROM visits GROUP BY at",
    "SELECT FLOOR(age / 7), COUNT(note), MAX(age) FROM visits GROUP BY 1",
    "SELECT name, label, SUM(cost), COUNT(*) FROM visits LEFT JOIN regions ON region = id JOIN plans USING (plan) GROUP BY ALL",
    "SELECT price, AVG(cost) FROM visits JOIN prices USING (plan) GROUP BY price HAVING AVG(cost) IS NULL OR price > 1",
    "SELECT grade, AVG(salary), SUM(salary) FROM staff WHERE salary IS NOT NULL GROUP BY grade",
]
"""Keys of every type, with NULL, NaN, zeros of both signs, and moments beyond the calendar."""
DERIVED = [
    "SELECT AVG(c), SUM(n) FROM (SELECT patient_id, AVG(cost) AS c, COUNT(*) AS n FROM visits GROUP BY patient_id) AS p",
    "SELECT m, COUNT(*) FROM (SELECT patient_id, MIN(note) AS m FROM visits GROUP BY patient_id) AS p GROUP BY m",
    "SELECT s, COUNT(*) FROM (SELECT patient_id, SUM(age) AS s, MAX(seen) FROM visits GROUP BY 1 HAVING COUNT(*) > 1) AS p GROUP BY s",
    "WITH v AS (SELECT * FROM visits WHERE urgent) SELECT plan, AVG(cost) FROM v GROUP BY plan",
    "SELECT x, COUNT(*) FROM (SELECT patient_id, day AS x FROM visits UNION ALL SELECT patient_id, seen FROM visits) AS u GROUP BY x",
    "SELECT x, COUNT(*) FROM (SELECT patient_id, weight AS x FROM visits UNION SELECT patient_id, region FROM visits) AS u GROUP BY x",
    "SELECT COUNT(*) FROM (SELECT patient_id, plan FROM visits EXCEPT SELECT patient_id, plan FROM pulses) AS u",
    "SELECT COUNT(*), AVG(a.cost) FROM visits a JOIN visits b ON a.patient_id = b.patient_id WHERE a.cost < b.cost",
    "SELECT SUM(cost) FROM visits v WHERE EXISTS (SELECT 1 FROM pulses p WHERE p.patient_id = v.patient_id AND p.plan = 'A')",
    "SELECT plan, COUNT(*) FROM visits WHERE region NOT IN (SELECT id FROM regions WHERE country = 'X') GROUP BY plan",
    "SELECT AVG(value) FROM samples",
    "SELECT plan, MEDIAN(cost), MAX(age) AS oldest FROM visits GROUP BY plan ORDER BY oldest",
    "SELECT QUANTILE_DISC(day, 0.9), MIN(cost), COUNT(*) FROM visits",
    "SELECT plan FROM visits GROUP BY plan ORDER BY SUM(cost) DESC LIMIT 2",
]
"""Private tables joined, matched and put together, and what is computed of a unit before the release."""
SEVERAL = [
    "SELECT COUNT(*) FROM visits WHERE cost > (SELECT AVG(cost) FROM visits)",
    "SELECT plan, COUNT(*) / (SELECT COUNT(*) FROM visits) AS share FROM visits GROUP BY plan ORDER BY 2, 1",
    "SELECT COUNT(*) FROM visits WHERE note IN (SELECT note FROM visits GROUP BY note HAVING COUNT(*) > 20)",
    "SELECT COUNT(*), AVG(cost) FROM visits JOIN (SELECT plan AS p, AVG(cost) AS m FROM visits GROUP BY plan) AS m ON plan = p WHERE cost > m",
    "SELECT 'all' AS what, COUNT(*) FROM visits UNION ALL SELECT plan, COUNT(*) FROM visits GROUP BY 1 ORDER BY 2, 1",
    "SELECT SUM(n), COUNT(*) FROM (SELECT note, COUNT(*) AS n FROM visits GROUP BY note) AS t WHERE n > 3",
    "SELECT label, n FROM (SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan) AS t JOIN plans USING (plan)",
    "SELECT (SELECT COUNT(*) FROM visits) - (SELECT SUM(salary) FROM staff) AS more, COUNT(*) FROM visits",
    "SELECT * FROM plans",
]
"""Statements of several releases, in which values of one may stand in another, and of none."""


@pytest.mark.parametrize(("sql", "new", "variant"), in_turn(GROUPED, SPECIAL[::2]), ids=str)
def test_keys_of_every_type_hold_for_a_special_row(sql: str, new: str, variant: Variant) -> None:
    """One special row changes neither keys that are public nor the order of those that are not."""
    passed(played(standing(variant, new), sql, **LOSS))


@pytest.mark.parametrize(("sql", "variant"), in_turn([*DERIVED, *SEVERAL]), ids=str)
def test_statements_of_many_parts_do_not_reveal_a_unit(sql: str, variant: Variant) -> None:
    """Only released values differ, both below and above the release boundary."""
    hold(variant, sql)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_explanation_is_not_random(variant: Variant) -> None:
    """EXPLAIN computes the expected noise from its law: a second EXPLAIN is the same."""
    asked = "SELECT COUNT(*), COUNT(note), SUM(cost), AVG(age) FROM visits WHERE cost < 999"
    connection, texts = standing(variant, *SPECIAL)[0].connection, []
    for _ in range(2):
        for known in vars(noise_laws).values():
            getattr(known, "cache_clear", int)()
        texts.append(str(connection.explain(asked, **LOSS)))
    assert texts[0] == texts[1]


@pytest.mark.deep
@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@pytest.mark.parametrize("fixture", [*accepted(), *refused(), *GROUPED, *DERIVED, *SEVERAL], ids=str)
def test_every_query_hides_a_unit_on_every_pair(fixture: Fixture | str, variant: Variant) -> None:
    """The same for every kind of new row by itself, on a full and an empty study, at a loss that leaves much noise or little.

    Of each query every such world is tried on one of the variants, in turn.
    """
    sql, parameters = (fixture, ()) if isinstance(fixture, str) else (fixture.query, fixture.parameters)
    worlds = list(itertools.product(NEW, (True, False), (True, False)))
    first = (zlib.crc32(sql.encode()) + VARIANTS.index(variant)) % len(VARIANTS)
    for new, full, cells in worlds[first :: len(VARIANTS)]:
        players = standing(variant, new, full=full)
        passed(played(players, sql, parameters, cells=cells, epsilon=0.1 if cells else 10))


SESSION = [
    "SELECT plan, AVG(cost), COUNT(*) FROM visits GROUP BY plan HAVING COUNT(*) > 2",
    "SELECT MAX(cost) FROM visits",
    "SELECT note, COUNT(*) FROM visits GROUP BY note",
    "SELECT SUM(salary) FROM staff",
    "EXPLAIN SELECT COUNT(*) FROM visits",
    "SELECT COUNT(*) FROM visits WHERE note = 'ünique'",
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_ledger_on_disk_does_not_reveal_a_unit(variant: Variant, tmp_path: Path) -> None:
    """After a session the budgets are equal, and so is every byte of the two files."""
    files = [tmp_path / "ours", tmp_path / "theirs"]
    players = pair(variant, *SPECIAL, ledgers=files)
    for player in players:
        player.counting = True
    for sql in SESSION:
        passed(played(players, sql, cells=True, **LOSS))
    for player in players:
        player.connection.close()
    ours, theirs = (file.read_bytes() for file in files)
    assert ours == theirs
    assert b"SUM(salary)" in ours


def test_budget_ends_at_the_same_query() -> None:
    """The budget fails to suffice for the same query on both sides."""
    players = pair(VARIANTS[1], "too large")
    most = {"epsilon": 6 * 10**6}
    answered, refused_ = (played(players, SESSION[0], **most) for _ in range(2))
    assert_same(answered)
    assert_same(refused_)
    assert not answered[0].observed.error
    assert refused_[0].observed.error[:2] == ("BudgetExhausted", "budget_exhausted")


def test_engine_failure_does_not_reveal_a_unit() -> None:
    """The engine's words, which quote a value, reach neither side, whichever side fails."""
    players = pair(VARIANTS[2], "too large", full=False)
    told = set()
    for player in players:
        owner = engine_of(player.connection)
        owner.execute("ALTER TABLE visits RENAME TO stored")
        owner.execute("CREATE VIEW visits AS SELECT * REPLACE (CAST(note AS INTEGER) AS age) FROM stored")
        with pytest.raises(duckdb.ConversionException) as caught:
            owner.execute("SELECT SUM(age) FROM visits")
        told.add(str(caught.value))
    replays = played(players, "SELECT SUM(age) FROM visits", **LOSS)
    assert_same(replays)
    assert replays[0].observed.error[:2] == ("BackendError", "backend")
    assert replays[0].observed.entries
    assert len(told) == 2


@pytest.mark.parametrize("observed", OBSERVABLE)
def test_data_dependent_dataflow_is_found(observed: str) -> None:
    """A naive dataflow in which one thing follows the data gives itself away by that thing."""
    players = pair(VARIANTS[0], "too large", full=False)
    for player in players:
        player.counting = True
    with OBSERVABLE[observed].at_work():
        replays = played(players, OBSERVABLE[observed].sql, cells=observed == "shown", **NO_NOISE)
    assert observed in differing(*replays)
    with pytest.raises(AssertionError, match=observed):
        assert_same(replays)


@pytest.mark.parametrize("fault", RELEASED)
def test_wrongly_released_value_is_found(fault: str) -> None:
    """A naive dataflow that moves released values otherwise than derived does not pass."""
    players = pair(VARIANTS[0], *SPECIAL, full=False)
    with RELEASED[fault].at_work():
        replays = played(players, RELEASED[fault].sql, **NO_NOISE)
    with pytest.raises(AssertionError):
        assert_neighbours(*replays)
