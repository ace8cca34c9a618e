"""Poisson samples of units: who is in them, that all statements of a release read one, and the law of what is answered."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from entropy import SeededEntropy
from numpy.typing import NDArray
from privacy.mechanisms.test_laws import law
from properties.worlds import Row, World, policy

import dpsql
from dpsql.backends import Exact
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.engine.query_run import PreparedRelease
from dpsql.engine.replay.replays import plan_and_match
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.receipts import check_receipt
from dpsql.plan.steps import find_sampling_rate
from dpsql.policy.request.query import Query
from dpsql.privacy.mechanisms.entropy import draw_secret
from dpsql.sql.compile.compiler import PLACEHOLDER, Compiler
from dpsql.sql.compile.scan_conditions import compute_sampling_threshold
from dpsql.sql.compile.statement import emit_release

NO_NOISE = 10**15


def in_sample(key: str, unit: object, rate: Fraction) -> bool:
    """Whether a unit is in the sample of a secret, by Python's SHA-256."""
    digest = hashlib.sha256(f"{key}{unit}".encode()).digest()
    return Fraction(int.from_bytes(digest), 2**256) < rate - Fraction(1, 2**200)


def exact(world: World, part: PreparedRelease, rows: Sequence[Row], key: str) -> int:
    """The exact number that the noise of a release is added to, over the sample of a secret."""
    plan = part.plan
    world.hold(rows)
    statement = emit_release(
        Compiler(part.dialect, key), plan.analysis, plan.quantiles, plan.top_k, plan.clamps
    )
    (row,) = world.engine.backend.run_statement(statement.sql).reveal()
    named = {
        statistic: value or 0
        for statistic, value in zip(statement.moments.values(), row[len(statement.keys) :], strict=False)
    }
    (measured,) = plan.vectors
    (component,) = measured.vector.components
    return component.compute_exact(named)


def secrets(units: Sequence[int], rate: Fraction) -> dict[frozenset[int], str]:
    """A secret for each possible sample of these units."""
    found: dict[frozenset[int], str] = {}
    for number in itertools.count():
        key = str(number)
        found.setdefault(frozenset(unit for unit in units if in_sample(key, unit, rate)), key)
        if len(found) == 2 ** len(units):
            return found
    raise AssertionError


def answered(
    world: World, part: PreparedRelease, rows: Sequence[Row], keys: dict[frozenset[int], str], reach: int
) -> NDArray[np.float64]:
    """The probability of each answer from -reach to reach: a mixture over all samples."""
    noise, zero = law(part.plan.vectors[0].mechanism)
    units = {row.u for row in rows if row.u is not None}
    rate = find_sampling_rate(part.release.input)
    assert rate is not None
    total = np.zeros(2 * reach + 1)
    for size in range(len(units) + 1):
        weight = float(rate**size * (1 - rate) ** (len(units) - size))
        for sample in map(frozenset, itertools.combinations(units, size)):
            key = next(key for taken, key in keys.items() if taken & units == sample)
            places = np.arange(-reach, reach + 1) - exact(world, part, rows, key) + zero
            total += weight * noise[places]
    return total


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(3)])
@pytest.mark.parametrize("percent", [50, 25])
@pytest.mark.parametrize("asked", ["COUNT(*)", "SUM(i)", "COUNT(DISTINCT u)"])
def test_answer_of_a_sample_keeps_its_epsilon(asked: str, percent: int, epsilon: Fraction) -> None:
    """Over all samples of tiny databases, the answer loses at most ε for any unit, and exactly ε for some."""
    world, rate = World(policy(rows=2, accountant="pure")), Fraction(percent, 100)
    part = plan_and_match(
        world.engine, Query(f"SELECT {asked} FROM t TABLESAMPLE UNITS ({percent}%)", epsilon=epsilon)
    ).single_release
    keys = secrets((1, 2, 3), rate)
    rows = [
        Row(1, "A", i=5),
        Row(1, "A", i=5),
        Row(2, "B", i=-9),
        Row(3, None, i=3),
        Row(3, None, i=None),
        Row(None, "A"),
    ]
    reach = int(30 * part.plan.vectors[0].mechanism.std) + 20
    before = answered(world, part, rows, keys, reach)
    worst = 0.0
    for unit in (1, 2, 3):
        after = answered(world, part, [row for row in rows if row.u != unit], keys, reach)
        likely = (before > 1e-30) & (after > 1e-30)
        worst = max(worst, float(np.max(np.abs(np.log(before[likely] / after[likely])))))
    assert float(epsilon) * 0.999 <= worst <= float(epsilon) * (1 + 1e-9)


@pytest.mark.parametrize("units", [1, 5])
def test_hidden_keys_of_a_sample_are_shown_within_delta(units: int) -> None:
    """A lone unit's key is shown with at most the charged δ, so no more is charged."""
    part = World(policy(rows=1)).prepare("SELECT s FROM t TABLESAMPLE UNITS (25%) GROUP BY s").single_release
    chosen, event = part.plan.selection, part.plan.event
    assert chosen is not None
    assert event is not None
    shown = [_shown(part, number) for number in range(units + 1)]
    mixed = sum(math.comb(units, n) * 0.25**n * 0.75 ** (units - n) * shown[n] for n in range(units + 1))
    without = sum(
        math.comb(units - 1, n) * 0.25**n * 0.75 ** (units - 1 - n) * shown[n] for n in range(units)
    )
    delta = float(event.events[1].delta)  # type: ignore[union-attr]
    assert mixed <= math.e * without + delta * (1 + 1e-9)
    assert 1 - without <= math.e * (1 - mixed) + delta * (1 + 1e-9)
    if units == 1:
        assert mixed >= delta * 0.999


def _shown(part: PreparedRelease, units: int) -> float:
    """The probability that a group of so many sampled units is shown."""
    chosen = part.plan.selection
    if units == 0:
        return 0.0
    if hasattr(chosen, "mechanism"):
        low, _ = chosen.mechanism.bound_probability(units - chosen.min_frequency + 1, 40)
        return float(Fraction(low, 10**40)) if isinstance(low, int) else float(low)
    noise = part.plan.vectors[chosen.vector].mechanism
    return noise.bound_sum_tail(len(chosen.components), chosen.threshold - chosen.scale * units)


def test_units_are_sampled_independently_at_the_rate() -> None:
    """Each of the eight samples of three units is as frequent as its law says, over fresh secrets."""
    source, rate, count = SeededEntropy(7), Fraction(1, 3), 3000
    keys = [(draw_secret(source),) for _ in range(count)]
    assert len(set(keys)) == count
    assert all(len(key) == 32 for (key,) in keys)
    texts = [
        DUCKDB.hashes.emit_sample_condition(unit, "a", compute_sampling_threshold(rate)).replace("'a'", "key")
        for unit in ("17", "18", "'18x'")
    ]
    with duckdb.connect() as database:
        database.execute("CREATE TABLE k (key VARCHAR)")
        database.execute("INSERT INTO k SELECT unnest(CAST(? AS VARCHAR[]))", [[key for (key,) in keys]])
        rows = database.execute(f"SELECT {', '.join(texts)}, COUNT(*) FROM k GROUP BY ALL").fetchall()
    found = {tuple(row[:3]): row[3] for row in rows}
    squares = 0.0
    for taken in itertools.product((True, False), repeat=3):
        wanted = count * float(math.prod(rate if one else 1 - rate for one in taken))
        squares += (found.get(taken, 0) - wanted) ** 2 / wanted
    assert squares < 30  # seven degrees of freedom: one in 10,000


def test_rate_is_rounded_down() -> None:
    """No unit is sampled more often than is charged for."""
    for rate in map(Fraction, ("1/3", "1e-6", "0.1", "0.999999")):
        assert rate - Fraction(1, 2**255) < Fraction(compute_sampling_threshold(rate), 2**256) <= rate


@dataclass
class Sent:
    """The SQL that is sent to a backend for private rows."""

    texts: list[str] = field(default_factory=list)

    def keys(self) -> set[str]:
        """The secrets in it."""
        found = set[str]()
        for text in self.texts:
            for part in text.split("SHA256(CONCAT('")[1:]:
                found.add(part.partition("'")[0])
        return found


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """What is sent while a test runs."""
    found, run, staged = Sent(), DuckDBBackend.run_statement, DuckDBBackend.stage_tables

    def running(self: DuckDBBackend, sql: str) -> Exact:
        found.texts.append(sql)
        return run(self, sql)

    def staging(self: DuckDBBackend, tables: Any) -> AbstractContextManager[None]:
        found.texts += [sql for _, sql in tables]
        return staged(self, tables)

    monkeypatch.setattr(DuckDBBackend, "run_statement", running)
    monkeypatch.setattr(DuckDBBackend, "stage_tables", staging)
    return found


PATIENTS, RATE = 400, Fraction(1, 4)
POLICY: dict[str, Any] = {
    "version": 1,
    "privacy_unit": "patient",
    "data_version": "1",
    "budget": {"epsilon": 10**30, "delta": 1e-6, "accountant": "zcdp"},
    "tables": {
        "patients": {
            "unit": "id",
            "rows_per_unit": 1,
            "columns": {
                "plan": {"type": "varchar", "values": ["A", "B"]},
                "age": {"type": "integer", "bounds": [0, 99]},
            },
        },
        "visits": {
            "link": {"column": "patient", "references": "patients.id"},
            "rows_per_unit": 6,
            "columns": {"cost": {"type": "integer", "bounds": [0, 1000]}, "kind": {"type": "varchar"}},
        },
    },
}


def hospital(
    ids: str = "INTEGER", ledger: str | Path = ":memory:", **policy: Any
) -> tuple[dpsql.Connection, duckdb.DuckDBPyConnection]:
    """400 patients with up to five visits each, private and plain."""
    database = duckdb.connect()
    database.execute(
        f"""
        CREATE TABLE patients AS SELECT CAST(i AS {ids}) AS id, CASE WHEN i % 3 = 0 THEN 'A' ELSE 'B' END AS plan, i % 90 AS age
        FROM range({PATIENTS}) AS t(i);
        CREATE TABLE visits AS SELECT CAST(i AS {ids}) AS patient, (i * 37 + v) % 1000 AS cost, 'k' || (i * v) % 4 AS kind
        FROM range({PATIENTS}) AS t(i), range(5) AS u(v) WHERE v <= i % 5;
        INSERT INTO visits VALUES (NULL, 1, 'k1'), (CAST('9999' AS {ids}), 1, 'k1'), (CAST('1' AS {ids}), NULL, NULL)
        """
    )
    return dpsql.connect(database.cursor(), policy=POLICY | policy, ledger=ledger, epsilon=1), database


QUERIES = {
    "rows": "SELECT COUNT(*), SUM(age) FROM patients {s}",
    "groups": "SELECT plan, COUNT(*), AVG(age) FROM patients p {s} WHERE age > 20 GROUP BY plan ORDER BY plan",
    "selected": "SELECT kind, COUNT(*), SUM(cost) FROM visits {s} GROUP BY kind ORDER BY kind",
    "distinct": "SELECT COUNT(DISTINCT kind), COUNT(DISTINCT patient), COUNT(cost) FROM visits {s}",
    "joined": "SELECT plan, COUNT(*), SUM(cost) FROM patients {s} JOIN visits {s} ON id = patient GROUP BY plan ORDER BY plan",
    "optional": "SELECT COUNT(*), COUNT(cost) FROM patients {s} LEFT JOIN visits {s} ON id = patient AND cost > 500",
    "all rows": "SELECT COUNT(*), SUM(cost) FROM patients {s} FULL JOIN visits {s} ON id = patient",
    "common": "SELECT COUNT(*) FROM (SELECT id FROM patients {s} EXCEPT SELECT patient FROM visits {s} WHERE cost > 99) AS e",
    "matched": "SELECT COUNT(*) FROM patients {s} WHERE NOT EXISTS (SELECT 1 FROM visits {s} WHERE patient = id AND cost > 300)",
    "united": "SELECT COUNT(*) FROM (SELECT id FROM patients {s} UNION ALL SELECT patient FROM visits {s}) AS u",
    "per unit": "SELECT AVG(n) FROM (SELECT patient, COUNT(*) AS n FROM visits {s} GROUP BY patient) AS v",
}


@pytest.mark.parametrize("ids", ["INTEGER", "VARCHAR", "UBIGINT"])
@pytest.mark.parametrize("form", QUERIES)
def test_sampled_answer_is_that_of_the_sampled_units(sent: Sent, form: str, ids: str) -> None:
    """It is DuckDB's over the units that SHA-256 selects, without noise, in all tables and statements."""
    ours, database = hospital(ids)
    with ours, database:
        found = ours.query(QUERIES[form].format(s="TABLESAMPLE UNITS (25%)"), epsilon=NO_NOISE).rows
        (key,) = sent.keys()
        taken = [str(unit) for unit in (*range(PATIENTS), 9999) if in_sample(key, unit, RATE)]
        assert 0 < len(taken) < PATIENTS
        for table, unit in (("patients", "id"), ("visits", "patient")):
            database.execute(
                f"DELETE FROM {table} WHERE {unit} IS NULL OR CAST({unit} AS VARCHAR) NOT IN (SELECT unnest(CAST(? AS VARCHAR[])))",
                [taken],
            )
        wanted = database.execute(QUERIES[form].format(s="")).fetchall()
        assert [tuple(map(_number, row)) for row in found] == [
            tuple(map(_number, row)) for row in wanted if None not in row
        ]


def _number(value: Any) -> Any:
    return value if isinstance(value, str) else pytest.approx(float(value), rel=1e-6)


STAGED = "SELECT kind, SUM(cost), COUNT(*), COUNT(DISTINCT cost), MEDIAN(cost) FROM visits {s} GROUP BY kind"


def test_all_statements_of_a_release_read_one_sample(sent: Sent) -> None:
    """Clamps, keys, sums and quantiles are read in several statements, by one secret; the next release has another."""
    visits = POLICY["tables"]["visits"] | {"rows_per_unit": 200}
    tables = POLICY["tables"] | {"visits": visits}
    ours, database = hospital(data_version="2", budget={"epsilon": 1000, "delta": 0.1}, tables=tables)
    with ours, database:
        keys, readers = set[str](), list[int]()
        for epsilon in (2, 3, 3):
            ours.query(STAGED.format(s="TABLESAMPLE UNITS (90%)"), epsilon=epsilon, replay=False)
            (key,) = sent.keys()
            assert key not in keys
            assert key != PLACEHOLDER
            keys.add(key)
            readers.append(sum("SHA256" in text for text in sent.texts))
            sent.texts.clear()
        assert min(readers) > 1


def test_sample_of_all_units_is_no_sample() -> None:
    """It has the plan of the whole table, and so replays its release, free."""
    ours, database = hospital()
    with ours, database:
        first = ours.query("SELECT COUNT(*) FROM patients")
        again = ours.query("SELECT COUNT(*) FROM patients TABLESAMPLE UNITS (100%)")
        assert (again.rows, again.receipt.entries) == (first.rows, ())


def test_sample_is_replayed_and_never_refined_or_combined() -> None:
    """The same part is answered again, free; another part or loss is another sample, at its whole price."""
    for accountant in ("pure", "zcdp"):
        ours, database = hospital(budget={"epsilon": 100, "delta": 1e-6, "accountant": accountant})
        with ours, database:
            sql = "SELECT COUNT(*) FROM patients TABLESAMPLE UNITS ({}%)"
            first = ours.query(sql.format(20), epsilon=1)
            assert ours.query(sql.format("20.0"), epsilon=1).rows == first.rows
            assert len(ours.engine.ledger.list_entries()) == 1
            other = ours.query(sql.format(30), epsilon=1)
            assert other.receipt.replayed == ()
            more = ours.query(sql.format(20), epsilon=2)
            assert more.receipt.refined == ()
            assert more.receipt.loss == {"epsilon": "2/1", "type": "pure", "v": 1}
            assert ours.combine(sql.format(20)).rows in (first.rows, more.rows)
            ours.engine.ledger.verify()


def test_notice_mentions_the_sample() -> None:
    """It states the part and how a count is scaled to all units; so do EXPLAIN and the receipt."""
    ours, database = hospital()
    with ours, database:
        sql = "SELECT COUNT(*) FROM patients TABLESAMPLE UNITS (12.5%)"
        (notice,) = ours.query(sql, epsilon=5).notices
        assert "12.5%" in notice
        assert "Divide a count or a sum by 0.125" in notice
        text = str(ours.explain(sql, epsilon=1))
        assert (
            "Poisson sample of 12.5% of the units: ε 1 is charged for noise of ε 2.691 on the sample" in text
        )
        assert (
            ours.query(sql, epsilon=5).receipt.mechanisms[0]["noise"] == "Poisson sample, 12.5% of the units"
        )


def test_ledger_verifies_a_sample(tmp_path: Path) -> None:
    """A receipt of a sample is verified, within a reservation too; one that leaves the sample out is not."""
    ours, database = hospital(ledger=tmp_path / "a.ledger", budget={"epsilon": 100, "delta": 1e-6})
    with ours, database:
        receipts = [ours.query(QUERIES["selected"].format(s="TABLESAMPLE UNITS (25%)"), epsilon=5).receipt]
        with ours.reserve(epsilon=3):
            receipts.append(
                ours.query("SELECT COUNT(*) FROM patients TABLESAMPLE UNITS (25%)", epsilon=1).receipt
            )
    with closing(LedgerReader.open(tmp_path / "a.ledger")) as reader:
        for receipt in receipts:
            check_receipt(receipt.to_dict(), reader)
        forged = receipts[0].to_dict()
        forged["mechanisms"] = forged["mechanisms"][1:]
        with pytest.raises(dpsql.IntegrityError):
            check_receipt(forged, reader)


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ({"neighbors": "replace"}, {}),
        ({}, {"epsilon": None, "target_error": 5}),
        ({}, {"epsilon": None, "target_error": "5%"}),
    ],
)
def test_unproven_samples_are_refused(policy: dict[str, Any], options: dict[str, Any]) -> None:
    """Samples with replaced units, or with a searched loss, are refused with their code and no charge."""
    ours, database = hospital(**policy)
    with ours, database:
        with pytest.raises(dpsql.QueryRejected) as caught:
            ours.query("SELECT COUNT(*) FROM patients TABLESAMPLE UNITS (10%)", **({"epsilon": 1} | options))
        assert caught.value.code == "sample"
        assert not ours.engine.ledger.list_entries()


@pytest.mark.parametrize("method", ["synthetic", "randomize", "stream"])
def test_synthetic_table_of_a_sample_is_refused(method: str) -> None:
    """Its mechanism is not known to be amplified."""
    ours, database = hospital()
    with ours, database, pytest.raises(dpsql.QueryRejected) as caught:
        getattr(ours, method)("SELECT plan FROM patients TABLESAMPLE UNITS (10%)", epsilon=1)
    assert caught.value.code == "sample"


def test_ids_with_several_spellings_are_not_sampled() -> None:
    """-0.0 and 0.0 are one unit, and two texts."""
    ours, database = hospital("DOUBLE")
    with ours, database, pytest.raises(dpsql.QueryRejected) as caught:
        ours.query("SELECT COUNT(*) FROM patients TABLESAMPLE UNITS (10%)")
    assert caught.value.code == "sample"
