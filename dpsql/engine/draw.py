"""Draw one release: read its exact statistics, add the noise, and keep exact values out of errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from dpsql.backends import Backend, Exact
from dpsql.engine.prepare import PreparedRelease
from dpsql.engine.release import GroupRows, draw_release, draw_release_in_stages, refine_release
from dpsql.engine.released_table import Keys, ReleasedTable
from dpsql.engine.replay.reuse import CoupledRefinement, IndependentTopUp, combine_tables
from dpsql.errors import BackendError, DatabaseError, InternalError
from dpsql.planning.measurement import MeasurementPlan
from dpsql.privacy.mechanisms import Entropy
from dpsql.privacy.mechanisms.release_cache import clear_cache
from dpsql.sql.compile.staged_statement import Stages
from dpsql.sql.compile.statement import ReleaseStatement

_Outcome = TypeVar("_Outcome")


def draw_noise(backend: Backend, entropy: Entropy, prepared: PreparedRelease) -> ReleasedTable:
    """Return the released table: the stored one, or exact statistics with noise, in stages or with a refinement."""
    if prepared.replayed_release is not None:
        return prepared.replayed_release.table
    prepared = prepared.with_sampling_secret(entropy)
    plan, statement, refinement = prepared.plan, prepared.statement, prepared.refinement
    if statement.stages is not None and refinement is None:
        return _draw_noise_in_stages(backend, entropy, prepared, statement.stages)
    # What is not charged, because it follows from the policy alone, reads nothing private either.
    with _hold_tables(backend, statement if plan.event is not None else None):
        exact = Exact([]) if plan.event is None else backend.run_statement(statement.sql)

    def draw_table() -> ReleasedTable:
        match None if refinement is None else refinement.law:
            case CoupledRefinement() as law if refinement is not None:
                return refine_release(plan, (statement, exact), refinement.table, law, entropy)
            case IndependentTopUp(plan=beside) if refinement is not None:
                return combine_tables([refinement.table, draw_release(beside, statement, exact, entropy)])
        return draw_release(plan, statement, exact, entropy)

    return run_without_frames(draw_table)


def _hold_tables(backend: Backend, statement: ReleaseStatement | None) -> AbstractContextManager[None]:
    """Hold the temporary tables that a statement reads, for engines whose dialect uses them."""
    if statement is None or not statement.held_queries:
        return nullcontext()
    return backend.stage_tables(statement.held_queries)


def _draw_noise_in_stages(
    backend: Backend, entropy: Entropy, prepared: PreparedRelease, stages: Stages
) -> ReleasedTable:
    """Draw a release with clamps by group: read the contributions once, and the groups when their clamps are chosen."""

    def read_groups(plan: MeasurementPlan, selected: Sequence[Keys] | None = None) -> GroupRows:
        sums = prepared.emit_group_sums(plan, selected)
        with _hold_tables(backend, sums):
            return sums, backend.run_statement(sums.sql)

    with backend.stage_tables(stages.tables):
        histograms = backend.run_statement(stages.histograms)
        return run_without_frames(
            lambda: draw_release_in_stages(prepared.plan, histograms, read_groups, entropy)
        )


def run_without_frames(draw: Callable[[], _Outcome]) -> _Outcome:
    """Return what `draw` releases; an error that stops it says nothing about exact values, in its text or by its frames."""
    failure: DatabaseError
    try:
        return draw()
    except BackendError as error:
        failure = error.with_traceback(None)
    except Exception as error:  # noqa: BLE001  (its words and its frames may hold exact values)
        failed = type(error).__name__
        failure = InternalError(f"the noise could not be added ({failed}); the charge stays", code="release")
    finally:
        clear_cache()
    raise failure
