"""Amplification by a Poisson sample of the units: how much is charged, and that less is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from properties.worlds import World, policy

from dpsql.errors import VerificationError
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.statistics import compute_sample_loss
from dpsql.planning.synthesis import SynthesisRequest, plan_synthesis
from dpsql.planning.verify import derive_sample_loss, verify_plan
from dpsql.privacy.accounting import Composed, Gaussian, Pure, Selection
from dpsql.privacy.accounting.composition import Guarantee, sampled
from dpsql.privacy.synthesis.workload import Marginal

LOSSES = tuple(map(Fraction, ("1e-25", "1/1000", "1", "20", "5000", "1e15")))
RATES = tuple(map(Fraction, ("1e-6", "1/100", "1/3", "999/1000")))
FORMS = {
    "counts": "SELECT k, COUNT(*), AVG(x) FROM t TABLESAMPLE UNITS (10%) GROUP BY k",
    "quantile": "SELECT MEDIAN(x), COUNT(DISTINCT s) FROM t TABLESAMPLE UNITS (25%)",
    "top k": "SELECT k FROM t TABLESAMPLE UNITS (25%) GROUP BY k ORDER BY COUNT(*) DESC LIMIT 1",
    "keys": "SELECT s FROM t TABLESAMPLE UNITS (25%) GROUP BY s",
    "selected groups": "SELECT s, COUNT(*) FROM t TABLESAMPLE UNITS (25%) GROUP BY s",
}


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("epsilon", LOSSES)
def test_loss_on_a_sample_is_amplified_to_the_charge(epsilon: Fraction, rate: Fraction) -> None:
    """It is the inverse of the theorem, to thirty digits; the second derivation allows it, and hardly more."""
    inner = compute_sample_loss(epsilon, rate)
    slack = 2 * Fraction(1, 10**30)
    assert inner >= epsilon
    assert epsilon - slack <= sampled(Guarantee(inner), rate).epsilon <= epsilon + slack
    charged = {"pure": epsilon, "gaussian": Fraction(0), "range": Fraction(0), "delta": Fraction(1, 10**9)}
    allowed = derive_sample_loss(charged, inner, rate, replace=False)
    assert (allowed["pure"], allowed["gaussian"], allowed["delta"] * rate) == (inner, 0, charged["delta"])
    with pytest.raises(VerificationError):
        derive_sample_loss(charged, inner + max(inner / 10**9, slack), rate, replace=False)


def plan(form: str, accountant: str = "zcdp", **rules: object) -> MeasurementPlan:
    """A plan of a sample over the tiny schema, at ε = 1."""
    return World(policy(accountant=accountant, **rules)).prepare(FORMS[form]).plan  # type: ignore[arg-type]


@pytest.mark.parametrize("accountant", ["pure", "zcdp", "gdp"])
@pytest.mark.parametrize("form", FORMS)
def test_a_release_of_a_sample_is_charged_as_one_of_all(form: str, accountant: str) -> None:
    """The ε that was asked for is charged, and of the δ of hidden keys the part that is sampled; less does not pass."""
    measured = plan(form, accountant)
    events = measured.event.events if isinstance(measured.event, Composed) else (measured.event,)
    selects = measured.analysis.selects_keys
    assert [type(event) for event in events] == [Pure] + [Selection] * selects
    assert events[0] == Pure(Fraction(1))
    verify_plan(measured)
    rest = events[1:]
    less = [Composed((Pure(1 - Fraction(1, 10**9)), *rest))]
    less += [Composed((Gaussian(Fraction(1)), *rest))]
    less += [
        Composed((events[0], Selection(event.delta * 999 / 1000)))
        for event in rest
        if isinstance(event, Selection)
    ]
    for event in less:
        with pytest.raises(VerificationError):
            verify_plan(replace(measured, event=event))


def test_replaced_units_have_no_amplification() -> None:
    """Amplification is claimed for a unit that is added or removed: not even the loss that is charged passes."""
    charged = {"pure": Fraction(1), "gaussian": Fraction(0), "range": Fraction(0), "delta": Fraction(0)}
    assert derive_sample_loss(charged, Fraction(1), Fraction(1, 2), replace=False)["pure"] == 1
    with pytest.raises(VerificationError, match="added or removed"):
        derive_sample_loss(charged, Fraction(1), Fraction(1, 2), replace=True)


def test_a_synthetic_table_of_a_sample_does_not_pass() -> None:
    """Its choices and noise are not known to be amplified."""
    world = World(policy())
    part = world.prepare("SELECT k, COUNT(*) FROM t WHERE k IS NOT NULL GROUP BY k").single_release
    made = plan_synthesis(
        part.plan.analysis,
        part.loss_share,
        world.engine.public_lookups,
        SynthesisRequest((Marginal((0,)),), "mwem", 1),
    )
    verify_plan(made)
    with pytest.raises(VerificationError, match="synthetic"):
        verify_plan(replace(made, analysis=plan("counts").analysis))
