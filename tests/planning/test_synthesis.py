"""Plans of synthetic tables and streams: the loss is derived twice, and a wrong one is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import duckdb
import pytest

import dpsql
from dpsql.engine.synthetic import prepare_local_table, prepare_stream, prepare_synthetic_table
from dpsql.errors import VerificationError
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.verify import verify_plan
from dpsql.policy.request.query import Query
from dpsql.privacy.accounting.events import BoundedRange, Composed, Gaussian, Pure
from dpsql.privacy.mechanisms import Exponential, Geometric

ACCOUNTANTS = ("pure", "zcdp", "gdp", "basic")


def plan_of(kind: str, accountant: str, neighbors: str, *, rows: int = 2) -> MeasurementPlan:
    """The plan of a table, a small database or a stream."""
    database = duckdb.connect()
    database.execute("CREATE TABLE t AS SELECT range AS u, 'A' AS k, 1 AS i FROM range(4)")
    columns = {"k": {"type": "varchar", "values": ["A", "B"]}, "i": {"type": "integer", "bounds": [0, 2]}}
    # A tree of pairs is chosen where there are several.
    listed = "k, i, 2 * i AS j" if kind == "mst" else "k, i"
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "neighbors": neighbors,
        "budget": {"epsilon": 9, "delta": 0 if accountant == "pure" else 1e-6, "accountant": accountant},
        "tables": {"t": {"unit": "u", "rows_per_unit": rows, "columns": columns}},
    }
    asked, parts = Query(f"SELECT {listed} FROM t", epsilon=Fraction(1)), [("k",), ("i",), ("k", "i")]
    with dpsql.connect(database, policy=policy, ledger=":memory:") as con:
        if kind == "stream":
            found = prepare_stream(con.engine, asked, parts, 3, 40)
        elif kind == "local":
            found = prepare_local_table(con.engine, asked)
        else:
            found = prepare_synthetic_table(con.engine, asked, parts, kind, None)
        cost = con.engine.get_account("t").accountant.compute_charge
        assert found.prepared.event is not None
        assert cost(found.prepared.event).is_within(cost(Pure(Fraction(1))))
        return found.prepared.plan


@pytest.mark.parametrize("neighbors", ["add_remove", "replace"])
@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("kind", ["mwem", "mst", "blr", "stream", "local"])
def test_plans_are_verified(kind: str, accountant: str, neighbors: str) -> None:
    """The planner's plan passes, and costs no more than a query; with any part a little too cheap it does not."""
    plan = plan_of(kind, accountant, neighbors)
    verify_plan(plan)
    for event in _cheaper(plan.event):
        with pytest.raises(VerificationError):
            verify_plan(replace(plan, event=event))
    synthesis = plan.synthesis
    assert synthesis is not None
    made = synthesis.mechanism
    assert (made.start if kind == "stream" else made).l1 == (4 if neighbors == "replace" else 2)  # type: ignore[union-attr]
    for name, less in _changed(made):
        with pytest.raises(VerificationError):
            verify_plan(replace(plan, synthesis=replace(synthesis, mechanism=replace(made, **{name: less}))))


def _cheaper(event: Any) -> list[Any]:
    """The event with each kind of its parts a hundredth cheaper."""

    def scaled(part: Any, kind: type) -> Any:
        if isinstance(part, Composed):
            return Composed(tuple(scaled(each, kind) for each in part.events))
        if not isinstance(part, kind):
            return part
        name = "rho" if kind is Gaussian else "epsilon"
        return kind(getattr(part, name) * Fraction(99, 100))

    kinds = (Pure, Gaussian, BoundedRange)
    return [found for kind in kinds if (found := scaled(event, kind)) != event]


def _changed(made: Any) -> list[tuple[str, Any]]:
    """Laws of a mechanism with a little less noise, or chosen a little more sharply."""
    found: list[tuple[str, Any]] = []
    for name in ("noise", "pair_noise", "check", "count"):
        law = getattr(made, name, None)
        if law is not None:
            scale = "scale" if isinstance(law, Geometric) else "variance"
            found.append((name, replace(law, **{scale: getattr(law, scale) * Fraction(9, 10)})))
    selection = getattr(made, "selection", None)
    if selection is not None:
        found.append(("selection", Exponential(selection.rate * Fraction(11, 10))))
    if hasattr(made, "odds"):
        found.append(("odds", tuple(odds * Fraction(11, 10) for odds in made.odds)))
        return found
    test = getattr(made, "test", None)
    if test is not None:
        for name in ("near", "far"):
            law = getattr(test, name)
            found.append(("test", replace(test, **{name: Geometric(law.scale * Fraction(9, 10))})))
        found.append(("updates", made.updates + 1))
    return found


def test_other_columns_are_not_verified() -> None:
    """A shape that is not that of the public values would read other cells than it says."""
    plan = plan_of("mwem", "zcdp", "add_remove")
    synthesis = plan.synthesis
    assert synthesis is not None
    wrong = replace(synthesis, mechanism=replace(synthesis.mechanism, shape=(2, 2)))
    with pytest.raises(VerificationError):
        verify_plan(replace(plan, synthesis=wrong))
