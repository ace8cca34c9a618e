"""The plan of a synthetic histogram: its statistic, its groups, and the mechanism that makes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.analysis.domains import MAX_GROUPS
from dpsql.analysis.release_analysis import Analysis
from dpsql.analysis.stability import PublicFacts
from dpsql.planning.choose import LossShare, choose_plan
from dpsql.planning.measurement import MeasurementPlan, SynthesisPlan
from dpsql.planning.statistics import ROWS, StatisticVector
from dpsql.privacy.synthesis.mechanism import Mwem, SmallDatabase
from dpsql.privacy.synthesis.mst import Mst, SyntheticMethod
from dpsql.privacy.synthesis.randomized import RandomizedTable
from dpsql.privacy.synthesis.stream import WeightsStream
from dpsql.privacy.synthesis.workload import Marginal

MOST_COLUMNS = 16
"""Columns of a histogram that is held as a whole."""


@dataclass(frozen=True, slots=True)
class SynthesisRequest:
    """The options of a synthetic table; the method chooses a number that is None. `step_columns` are columns of steps."""

    workload: tuple[Marginal, ...]
    method: str
    rounds: int | None = None
    step_columns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """The options of a stream: its first marginals, its updates, and about how many queries will be asked."""

    workload: tuple[Marginal, ...]
    updates: int
    queries: int
    method: str = WeightsStream.method


def plan_synthesis(
    analysis: Analysis, loss: LossShare, facts: PublicFacts, asked: SynthesisRequest | StreamRequest
) -> MeasurementPlan:
    """Return the measurement plan of a synthetic histogram, or of a stream, of the groups of a release that counts rows.

    Claim: the release has the loss of the plan's event.
    Why: the histogram is the vector that COUNT(*) by all columns would measure, whose sensitivity is known; see the mechanisms
    in `dpsql.privacy.synthesis`.
    """
    shape, (vector, l1) = find_shape(analysis), _choose_count_vector(analysis, loss, facts)
    if shape is None:
        raise LookupError("a synthetic table is of columns whose values are public")
    made: SyntheticMethod | WeightsStream | RandomizedTable
    if isinstance(asked, StreamRequest):
        made = WeightsStream.calibrate(
            shape,
            asked.workload,
            l1,
            loss,
            replace=analysis.replace,
            updates=asked.updates,
            queries=asked.queries,
        )
    elif asked.method == RandomizedTable.method:
        made = RandomizedTable.calibrate(
            shape, l1, loss, replace=analysis.replace, rounded=asked.step_columns
        )
    elif asked.method == Mwem.method:
        made = Mwem.calibrate(shape, asked.workload, l1, loss, replace=analysis.replace, rounds=asked.rounds)
    elif asked.method == Mst.method:
        made = Mst.calibrate(shape, asked.workload, l1, loss, replace=analysis.replace)
    else:
        made = SmallDatabase.calibrate(shape, asked.workload, l1, loss, replace=analysis.replace)
    return MeasurementPlan(analysis, (), None, made.event, synthesis=SynthesisPlan(vector, made))


def _choose_count_vector(
    analysis: Analysis, loss: LossShare, facts: PublicFacts
) -> tuple[StatisticVector, int]:
    """Return the count of rows as a vector over all groups, and how far one unit moves it in l1 norm."""
    (measured,) = choose_plan(analysis, loss, facts, allow_clamps=False).vectors
    l1 = measured.sensitivity.l1
    if [part.combination for part in measured.vector.components] != [((ROWS, 1),)] or l1.denominator != 1:
        raise LookupError("a synthetic table is made of whole numbers of rows")
    return measured.vector, int(l1)


def find_shape(analysis: Analysis) -> tuple[int, ...] | None:
    """Return how many public values each column has; None where they are not public, or some are hidden for being rare."""
    domains: Sequence[Sequence[object]] | None = None if analysis.selects_keys else analysis.domains
    return None if domains is None else tuple(map(len, domains))


def fits_histogram(shape: Sequence[int]) -> bool:
    """Return whether a histogram of all columns is held as a whole."""
    return len(shape) <= MOST_COLUMNS and math.prod(shape) <= MAX_GROUPS
