"""Hierarchies of releases: noisy totals and parts, and the least-squares weights that make them consistent.

Several releases of the same rows by different public keys measure marginals of one table. Least squares combines them.

Claim: the adjusted components are the linear unbiased estimates of least variance, no greater than before, and each total
is the sum of its parts. It costs no privacy loss.
Why: let y_S be the noisy components by the keys S, of variance v_S, and T any keys. What y_S says of the effect of T alone is
its sum over S less T with the means over each key of T taken off; of each S that holds T this is the same effect with noise
of one covariance times v_S n(S less T), n being the number of groups. Effects of different keys are orthogonal, so that the
generalised least squares estimate of each is the mean over these S by inverse variance, and the adjusted components by S are
the sum over T within S of the estimated effects, each spread evenly over S less T. Whatever the weights of a mean are, as
long as they add up to one, these tables agree; weights are rounded to a 65,536th part.
Everything is computed from released values, public keys and the laws of the noise.
Source: Rao 1973, "Linear Statistical Inference", section 4a.2 (Gauss, Markov, Aitken); Scheffe 1959, "The Analysis of
Variance", chapter 4 (effects); Hay, Rastogi, Miklau, Suciu 2010, "Boosting the accuracy of differentially private
histograms through consistency", Theorem 3 (trees); Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod

from dpsql.analysis.domains import Domain
from dpsql.analysis.release_analysis import Analysis
from dpsql.plan.aggregates import Moment
from dpsql.plan.expressions import Expr
from dpsql.planning.measurement import MeasurementPlan
from dpsql.planning.statistics import StatisticVector
from dpsql.privacy.mechanisms import ConsistencyNoise, Mechanism

Axes = frozenset[int]
"""A set of keys, by their numbers among all keys of the releases."""

WEIGHTS = 2**16
MOST_GROUPS = 100_000
"""With more groups in all, nothing is adjusted: it would take longer than the release."""
_LEAST = 1e-300
_MOST_FIXED = 2
"""Whole totals by so many sets of keys are kept at once."""
_ADDED = frozenset({Moment.ROWS, Moment.COUNT, Moment.TOTAL})


@dataclass(frozen=True, slots=True)
class Member:
    """A vector of the release at `place` in the statement; its keys are `axes`, in order, and its mechanism `noise`."""

    place: int
    vector: int
    axes: tuple[int, ...]
    noise: Mechanism

    @property
    def keys(self) -> Axes:
        """Return the keys as a set."""
        return frozenset(self.axes)


@dataclass(frozen=True)
class Hierarchy:
    """Vectors with the same components over the same rows, with the number of values of each of their keys."""

    members: tuple[Member, ...]
    sizes: tuple[int, ...]

    def count_groups(self, keys: Axes) -> int:
        """Return how many groups these keys have."""
        return prod(self.sizes[key] for key in keys)

    def compute_variance(self, member: Member) -> float:
        """Return the variance of a member's noise, in squared steps of the lattice that all share."""
        return max(member.noise.compute_variance() / member.noise.subdivisions**2, _LEAST)

    @cached_property
    def effects(self) -> tuple[Axes, ...]:
        """Return the key sets whose effects some member measures."""
        found = {keys: None for member in self.members for keys in iterate_subsets(member.keys)}
        return tuple(found)

    @cached_property
    def weights(self) -> dict[Axes, tuple[int, ...]]:
        """Return the weight of each member for each effect, in 65,536ths; the weights add up to one."""
        found = {}
        for effect in self.effects:
            precise = [
                0.0
                if not effect <= member.keys
                else 1 / (self.compute_variance(member) * self.count_groups(member.keys - effect))
                for member in self.members
            ]
            parts = [round(WEIGHTS * each / math.fsum(precise)) for each in precise]
            parts[precise.index(max(precise))] += WEIGHTS - sum(parts)
            found[effect] = tuple(parts)
        return found

    def compute_subdivisions(self, member: Member) -> int:
        """Return the subdivisions of a step with which each adjusted component of a member is a whole number."""
        return WEIGHTS * self.count_groups(member.keys) * self.common_subdivisions

    @cached_property
    def common_subdivisions(self) -> int:
        """Return the subdivisions of a step in the released values."""
        return math.lcm(*(member.noise.subdivisions for member in self.members))

    def derive_noise(self, member: Member) -> ConsistencyNoise:
        """Return the noise of each of a member's adjusted components: it is the same for all, by symmetry of the keys."""
        parts: dict[tuple[int, Mechanism], int] = {}
        for number, other in enumerate(self.members):
            shared = member.keys & other.keys
            finer = self.common_subdivisions // other.noise.subdivisions
            for equal in iterate_subsets(shared):
                times = prod(self.sizes[key] - 1 for key in shared - equal) * self.count_groups(
                    other.keys - shared
                )
                weight = finer * self._compute_weight(member, number, equal)
                if times and weight:
                    parts[weight, other.noise] = parts.get((weight, other.noise), 0) + times
        return ConsistencyNoise(
            tuple((weight, times, noise) for (weight, noise), times in parts.items()),
            self.compute_subdivisions(member),
        )

    def _compute_weight(self, member: Member, number: int, equal: Axes) -> int:
        """Return the weight of a component of one member in that of another, in steps, where `equal` keys agree.

        The centered indicator of each key is 1 - 1/n where it is equal and -1/n elsewhere.
        """
        shared = member.keys & self.members[number].keys
        whole = Fraction(0)
        for effect in iterate_subsets(shared):
            centered = prod(
                (Fraction((key in equal) * self.sizes[key] - 1, self.sizes[key]) for key in effect),
                start=Fraction(1),
            )
            whole += self.weights[effect][number] * centered / self.count_groups(member.keys - effect)
        return int(whole * self.count_groups(member.keys))

    @cached_property
    def can_round(self) -> bool:
        """Return whether whole numbers that agree are constructed, one set of keys after another.

        The largest sets come one by one; each may share with those before it at most two sets of keys, of which neither
        is within the other.
        """
        return all(
            len(self.list_shared_keys(number)) <= _MOST_FIXED for number in range(len(self.largest_key_sets))
        )

    @cached_property
    def largest_key_sets(self) -> tuple[Axes, ...]:
        """Return the sets of keys that are within no other, in order."""
        sets = dict.fromkeys(member.keys for member in self.members)
        return tuple(keys for keys in sets if not any(keys < other for other in sets))

    @cached_property
    def closure(self) -> tuple[Axes, ...]:
        """Return the sets of keys of all members and what any of them share, the smallest first.

        Members agree on totals by what they share. The first of those within a member is within all of them.
        """
        found = {member.keys for member in self.members}
        while more := {one & other for one, other in itertools.combinations(found, 2)} - found:
            found |= more
        return tuple(sorted(found, key=lambda keys: (len(keys), sorted(keys))))

    def list_shared_keys(self, number: int) -> tuple[Axes, ...]:
        """Return the greatest sets of keys that a largest set shares with those before it, the longest first."""
        found = {self.largest_key_sets[number] & before for before in self.largest_key_sets[:number]}
        greatest = (keys for keys in found if not any(keys < other for other in found))
        return tuple(sorted(greatest, key=lambda keys: (-len(keys), sorted(keys))))


def list_hierarchies(plans: Sequence[MeasurementPlan]) -> tuple[Hierarchy, ...]:
    """Return the vectors of these plans, of one statement, that are made to agree.

    Their keys are public, so that all parts of a total are there; their components are sums over rows, or units that are in
    one group alone; rows, measures and contribution bounds are the same, so they have no clamps.
    """
    alike: dict[object, list[tuple[int, int]]] = {}
    for place, plan in enumerate(plans):
        if plan.selection is None and plan.top_k is None and plan.analysis.domains is not None:
            for index, measured in enumerate(plan.vectors):
                if measured.clamp is None and _is_additive(plan.analysis, measured.vector):
                    alike.setdefault(_compute_statistic_key(plan, index), []).append((place, index))
    found = (_build_hierarchy(plans, members) for members in alike.values() if len(members) > 1)
    return tuple(agreement for agreement in found if agreement is not None)


def adjust_plans(plans: Sequence[MeasurementPlan], found: Sequence[Hierarchy]) -> list[MeasurementPlan]:
    """Return the plans with the vectors and the noise of the adjusted components."""
    after = list(plans)
    for agreement in found:
        for member in agreement.members:
            plan, law = after[member.place], agreement.derive_noise(member)
            vector = plan.vectors[member.vector].with_finer_lattice(
                law, agreement.compute_subdivisions(member) // member.noise.subdivisions
            )
            vectors = (*plan.vectors[: member.vector], vector, *plan.vectors[member.vector + 1 :])
            after[member.place] = replace(plan, vectors=vectors)
    return after


def iterate_subsets(keys: Axes) -> Iterator[Axes]:
    """Yield all sets of these keys, small ones first."""
    for size in range(len(keys) + 1):
        yield from map(frozenset, itertools.combinations(sorted(keys), size))


def _is_additive(analysis: Analysis, vector: StatisticVector) -> bool:
    """Return whether the components of a total are the sums of those of its parts, for data that comply with the policy.

    Units add up if each counts in one group. Rows add up if no row is dropped to limit groups, or if all rows of a unit are
    declared to be in one group.
    """
    moments = {moment for component in vector.components for (moment, _), _ in component.combination}
    if not moments:
        return False  # a vector without combinations does not state what its components count
    bound = analysis.bound
    if Moment.UNITS in moments and bound.groups > 1:
        return False
    return moments <= _ADDED | {Moment.UNITS} and (bound.covers_groups or moments == {Moment.UNITS})


def _compute_statistic_key(plan: MeasurementPlan, index: int) -> object:
    """Return a key for what a vector measures and over which rows, whatever the group keys and the noise."""
    measured, analysis = plan.vectors[index], plan.analysis
    by = measured.mechanism.subdivisions
    components = tuple(
        tuple((statistic, Fraction(weight, by)) for statistic, weight in component.combination)
        for component in measured.vector.components
    )
    return analysis.release.input, analysis.measures, analysis.replace, components


def _build_hierarchy(
    plans: Sequence[MeasurementPlan], members: Sequence[tuple[int, int]]
) -> Hierarchy | None:
    numbers: dict[Expr, int] = {}
    domains: dict[int, Domain] = {}
    found = []
    for place, index in members:
        analysis = plans[place].analysis
        axes = []
        for key, values in zip(analysis.release.keys, analysis.domains or (), strict=True):
            number = numbers.setdefault(key.expr, len(numbers))
            if domains.setdefault(number, values) != values:
                return None
            axes.append(number)
        found.append(Member(place, index, tuple(axes), plans[place].vectors[index].mechanism))
    agreement = Hierarchy(tuple(found), tuple(map(len, domains.values())))
    small = sum(agreement.count_groups(member.keys) for member in found) <= MOST_GROUPS
    return agreement if small and all(agreement.sizes) else None
