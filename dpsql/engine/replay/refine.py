"""Refinement: a stored release is requested again with less noise, and only the difference is charged.

If the accountant does not bound the loss of each outcome (as zCDP), a second release with independent Gaussian noise is charged the difference
(`IndependentTopUp`), and both are combined. If the first noise was Gaussian, the result is as accurate as one release at
the whole loss. This is plain composition.

If the accountant bounds the loss of each outcome (`pure`, `basic`), the smaller noise is drawn given the first release
(`Coupling`), and the difference is charged (`CoupledRefinement`).

Claim: under `pure` and `basic`, charging ε2 - ε1 for a refinement to ε2 of a release that was charged ε1 keeps the
budget, for adaptive queries and refinements, if each release is refined at most once, and the data are those of its first
release.
Why: the density of all answers is a product, of each answer's given those before it. Let X be the exact components, p1 and
p2 the laws of both noises and r that of their difference. The first answer y1 contributes p1(y1 - X), and its
refinement y2 given y1 contributes p2(y2 - X)·r(y1 - y2) / p1(y1 - X), for the same X: together p2(y2 - X)·r(y1 - y2),
whatever was asked between them, and r does not depend on the data. On a neighbor their product changes by a factor
of at most e^ε2, all other factors by what they were charged. So on each path the loss is at most the sum of all
charges, which the filter bounds. A second refinement of y1 would divide by p1(y1 - X) once more, which is why there
is none; a chain goes on from its end.
Source: Koufogiannis, Han, Pappas 2016, section 4 (gradual release); Rogers, Roth, Ullman, Vadhan 2016, section 3
(losses of paths).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dpsql.engine.replay.combine import can_combine_noises, compute_noise_variance, is_combinable
from dpsql.engine.replay.stored_release import StoredRelease
from dpsql.planning.measurement import MeasurementPlan
from dpsql.privacy.accounting.accountants.base import search_largest_epsilon
from dpsql.privacy.accounting.charge import Charge
from dpsql.privacy.accounting.events import Event, Gaussian, Pure
from dpsql.privacy.mechanisms import DiscreteGaussian, Entropy, Refinement

_MOST_PARTS = 32
_AS_ACCURATE = 0.999
"""The least precision of both releases combined, relative to one release at the whole loss."""


@dataclass(frozen=True, slots=True)
class CoupledRefinement:
    """The smaller noise of each vector, drawn given the first release; `event` is the difference, which is charged."""

    event: Pure
    laws: tuple[Refinement, ...]

    def refine_components(
        self, vector: int, exact: Sequence[int], before: Sequence[int], entropy: Entropy
    ) -> list[int]:
        """Return the refined components of a vector, from the exact and the released ones."""
        noise = [old - true for old, true in zip(before, exact, strict=True)]
        drawn = self.laws[vector].refine(noise, entropy)
        return [true + new for true, new in zip(exact, drawn, strict=True)]


@dataclass(frozen=True, slots=True)
class IndependentTopUp:
    """A second release, `plan`, with independent noise, to be combined with the first; its event is charged."""

    event: Gaussian
    plan: MeasurementPlan


def find_independent_top_up(
    plan: MeasurementPlan, before: StoredRelease, charge_functions: Sequence[Callable[[Event], Charge]]
) -> IndependentTopUp | None:
    """Return the second release, charged the difference for each table; None if the combination would be less accurate.

    `charge_functions` are the cost functions of the tables that are read. Keys are public, and components have independent noise.
    """
    if not is_combinable(plan) or not plan.vectors or plan.event is None:
        return None
    parts = [part for noise in before.noise for _, part in noise.summands]
    if not all(part.independent for part in parts) or len(parts) > _MOST_PARTS * len(plan.vectors):
        return None
    left = [(cost, cost(plan.event).loss - cost(before.event).loss) for cost in charge_functions]
    if min(units for _, units in left) <= 0:
        return None
    rho = min(search_largest_epsilon(cost, units, Gaussian) for cost, units in left)
    if not rho:
        return None
    share, vectors = rho / len(plan.vectors), []
    for measurement, old in zip(plan.vectors, before.noise, strict=True):
        noise = DiscreteGaussian.calibrate(measurement.sensitivity.l2_squared, share)
        if not can_combine_noises([old, noise]):
            return None
        precision = 1 / compute_noise_variance(old) + 1 / compute_noise_variance(noise)
        if precision * measurement.mechanism.compute_variance() < _AS_ACCURATE:
            return None
        vectors.append(replace(measurement, mechanism=noise))
    return IndependentTopUp(Gaussian(rho), replace(plan, vectors=tuple(vectors), event=Gaussian(rho)))


def find_coupled_refinement(plan: MeasurementPlan, before: StoredRelease) -> CoupledRefinement | None:
    """Return the coupled refinement of a stored release of the same statistic to a plan; None if there is none.

    Its keys are public, and each mechanism states how its noise is drawn given the old one (`Mechanism.find_refinement`).
    """
    if (
        plan.selection is not None
        or plan.quantiles
        or plan.top_k is not None
        or plan.clamps
        or not plan.vectors
    ):
        return None
    if not isinstance(plan.event, Pure) or not isinstance(before.event, Pure):
        return None
    laws = []
    for measurement, old in zip(plan.vectors, before.noise, strict=True):
        law = old.find_refinement(measurement.mechanism)
        if law is None:
            return None
        laws.append(law)
    if plan.event.epsilon <= before.event.epsilon:
        return None
    return CoupledRefinement(Pure(plan.event.epsilon - before.event.epsilon), tuple(laws))
