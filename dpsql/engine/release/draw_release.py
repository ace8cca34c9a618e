"""A release of each kind: noisy groups, a top-k selection, synthetic rows, the refinement of an earlier release, a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from dpsql.backends import Exact
from dpsql.engine.release.exact_rows import (
    UnreleasedGroups,
    count_marginals,
    iterate_rows,
    read_groups,
    read_scores,
)
from dpsql.engine.release.noisy_groups import ReadGroups, StagedSource, WholeSource, draw_from_groups
from dpsql.engine.released_table import ReleasedTable, build_released_table
from dpsql.errors import InternalError
from dpsql.planning.measurement import MeasurementPlan, SynthesisPlan
from dpsql.privacy.mechanisms import Entropy
from dpsql.privacy.synthesis.mst import Mst
from dpsql.privacy.synthesis.stream import RunningStream, WeightsStream
from dpsql.privacy.synthesis.workload import Counts
from dpsql.sql.compile.statement import ReleaseStatement


def draw_release(
    plan: MeasurementPlan, statement: ReleaseStatement, exact: Exact, entropy: Entropy
) -> ReleasedTable:
    """Choose the clamps, add the noise, select the groups, and choose the quantiles; or make a top-k selection or synthetic rows.

    Claim: the loss of the released table is at most that of the plan's event.
    Why: the clamps of a vector are chosen before its noise, which is calibrated to them. Each component of each group has
    its own noise, and each quantile its own choice. The groups are all groups of public domains, or those that partition
    selection returns; they are in the order of their keys, or of their choice.
    Source: Dwork, Roth 2014, Theorems 3.6 and 3.16, Proposition 2.1 (post-processing).
    """
    if plan.top_k is not None:
        keys, scores = read_scores(plan.analysis, statement, exact)
        best = [keys[index] for index in plan.top_k.select_groups(scores, entropy)]
        return build_released_table(plan, best, ((),) * len(best))
    if plan.synthesis is not None:
        if isinstance(plan.synthesis.mechanism, Mst):
            return _draw_synthetic_rows(plan, plan.synthesis.mechanism, statement, exact, entropy)
        return _draw_synthetic_histogram(plan, plan.synthesis, read_groups(plan, statement, exact), entropy)
    return draw_from_groups(plan, WholeSource(read_groups(plan, statement, exact)), entropy)


def draw_release_in_stages(
    plan: MeasurementPlan, histograms: Exact, read: ReadGroups, entropy: Entropy
) -> ReleasedTable:
    """Draw a release from the histograms of all clamps; `read` returns the groups of a plan whose clamps are chosen so far.

    Claim: the released table has the same law as that of `draw_release`.
    Why: clamps are chosen from the same numbers of units, and noise is added to the same sums; see
    `dpsql.sql.compile.staged_statement`.
    """
    return draw_from_groups(plan, StagedSource.from_histograms(plan, histograms, read), entropy)


class RefinementLaw(Protocol):
    """A rule that refines released components, vector by vector."""

    def refine_components(
        self, vector: int, exact: Sequence[int], before: Sequence[int], entropy: Entropy
    ) -> list[int]:
        """Return the refined components of a vector in all groups, from the exact and the released ones."""
        ...


def refine_release(
    plan: MeasurementPlan,
    measured: tuple[ReleaseStatement, Exact],
    before: ReleasedTable,
    law: RefinementLaw,
    entropy: Entropy,
) -> ReleasedTable:
    """Return the released table of the same groups with less noise; `measured` are the statement and its exact result.

    Claim: the loss of both tables together is that of the refinement law.
    Why: the exact components are those of the first release, and each is refined independently.
    """
    statement, exact = measured
    groups = read_groups(plan, statement, exact)
    keys = groups.keys
    if keys != [row[: len(statement.keys)] for row in before.rows]:
        raise InternalError("a release is refined for the groups that it has", code="release")
    columns: list[list[tuple[int, ...]]] = []
    for place, part in enumerate(plan.vectors):
        components = part.vector.components
        series = [component.compute_exact_series(groups.moments) for component in components]
        true = [value for values in iterate_rows(series, len(groups)) for value in values]
        old = [component for row in before.components for component in row[place]]
        drawn = iter(law.refine_components(place, true, old, entropy))
        columns.append([tuple(next(drawn) for _ in components) for _ in groups])
    return build_released_table(
        plan, keys, [tuple(column[index] for column in columns) for index in range(len(groups))]
    )


def _draw_synthetic_histogram(
    plan: MeasurementPlan, synthesis: SynthesisPlan, groups: UnreleasedGroups, entropy: Entropy
) -> ReleasedTable:
    """Return the cells of a synthetic histogram that have rows, or one without any, each with the distance of the whole histogram.

    Claim: the loss is that of `synthesis.mechanism` for the sensitivity of its vector.
    Why: only that vector is read from the groups, in the order of the public keys.
    """
    if isinstance(synthesis.mechanism, (WeightsStream, Mst)):
        raise TypeError(
            "a histogram of all columns is read for neither a stream's answer nor a tree of pairs"
        )
    found = synthesis.mechanism.run(_build_histogram(synthesis, groups), entropy)
    rows = found.histogram.ravel().tolist()
    places = [place for place, number in enumerate(rows) if number] or [0]
    components = [((rows[place], found.distance),) for place in places]
    return build_released_table(plan, [groups.keys[place] for place in places], components)


def _draw_synthetic_rows(
    plan: MeasurementPlan, mechanism: Mst, statement: ReleaseStatement, exact: Exact, entropy: Entropy
) -> ReleasedTable:
    """Return the different rows that a tree of pairs gives, in the order of their values, or one that stands for none.

    Claim: the loss is that of `mechanism` for the sensitivity of the count of rows by all columns.
    Why: only marginals of that count are read.
    """
    domains = plan.analysis.domains or ()
    found = mechanism.run(count_marginals(mechanism, domains, statement, exact), entropy)
    rows, places = np.unique(found.rows, axis=0, return_inverse=True)
    numbers = np.zeros(len(rows), np.int64)
    np.add.at(numbers, places.ravel(), found.numbers)
    keys = [tuple(domain[place] for domain, place in zip(domains, row, strict=True)) for row in rows.tolist()]
    if not keys:
        keys, numbers = [tuple(domain[0] for domain in domains)], np.zeros(1, np.int64)
    components = [((number, found.distance),) for number in numbers.tolist()]
    return build_released_table(plan, keys, components)


def open_stream(
    plan: MeasurementPlan, statement: ReleaseStatement, exact: Exact, entropy: Entropy
) -> RunningStream:
    """Return a stream of counts over the exact histogram, which it holds and does not show.

    Claim: the loss of all its answers is that of its mechanism, for the sensitivity of its vector; see `WeightsStream`.
    """
    synthesis = plan.synthesis
    if synthesis is None or not isinstance(synthesis.mechanism, WeightsStream):
        raise TypeError("a stream has a plan of its own")
    groups = read_groups(plan, statement, exact)
    return RunningStream.start_stream(synthesis.mechanism, _build_histogram(synthesis, groups), entropy)


def _build_histogram(synthesis: SynthesisPlan, groups: UnreleasedGroups) -> Counts:
    """Return the exact counts, with an axis for each column."""
    (component,) = synthesis.vector.components
    return np.array(component.compute_exact_series(groups.moments), np.int64).reshape(
        synthesis.mechanism.shape
    )
