"""One release: read its exact rows, add the noise, and keep exact values out of errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

from dpsql.backends import Backend, Exact
from dpsql.engine.query_run import PreparedRelease
from dpsql.engine.release.noise import (
    GroupRows,
    ReadGroups,
    draw_release,
    draw_release_in_stages,
    refine_release,
)
from dpsql.engine.release.released_table import Keys, ReleasedTable
from dpsql.engine.replay.reuse import CoupledRefinement, IndependentTopUp, combine_tables
from dpsql.errors import BackendError, DatabaseError, Error, InternalError
from dpsql.planning.measurement import MeasurementPlan
from dpsql.privacy.mechanisms import Entropy
from dpsql.privacy.mechanisms.sampler import clear_cache
from dpsql.sql.compile.staged_statement import Stages
from dpsql.sql.compile.statement import ReleaseStatement

_Outcome = TypeVar("_Outcome")


@dataclass(frozen=True, slots=True)
class ExactRelease:
    """A release whose rows were read, before its noise; `part` selects the units of its sample, if it has one.

    `rows` are exact and hidden. In a release with clamps by group they are the histograms of the clamps, and `read_groups` reads the
    groups when the clamps are chosen.
    """

    part: PreparedRelease
    rows: Exact = field(repr=False)
    read_groups: ReadGroups | None = field(default=None, repr=False)


@contextmanager
def open_exact_release(backend: Backend, entropy: Entropy, part: PreparedRelease) -> Iterator[ExactRelease]:
    """Read the exact rows of a release, and hold the temporary tables that its noise may still need.

    A replayed release reads nothing. `entropy` draws the secret of a sample of units.
    """
    if part.replayed_release is not None:
        yield ExactRelease(part, Exact([]))
        return
    part = part.with_sampling_secret(entropy)
    statement = part.statement
    if statement.stages is not None and part.refinement is None:
        with _open_stages(backend, part, statement.stages) as measured:
            yield measured
        return
    # What is not charged, because it follows from the policy alone, reads nothing private either.
    charged = part.plan.event is not None
    with _hold_tables(backend, statement if charged else None):
        rows = _read_rows(backend, statement.sql) if charged else Exact([])
    yield ExactRelease(part, rows)


def draw_table(measured: ExactRelease, entropy: Entropy) -> ReleasedTable:
    """Return the released table: the stored one, or exact statistics with noise, in stages or with a refinement."""
    if measured.part.replayed_release is not None:
        return measured.part.replayed_release.table
    return run_without_frames(lambda: _draw_new_table(measured, entropy))


def _draw_new_table(measured: ExactRelease, entropy: Entropy) -> ReleasedTable:
    part, rows = measured.part, measured.rows
    plan, statement, refinement = part.plan, part.statement, part.refinement
    if measured.read_groups is not None:
        return draw_release_in_stages(plan, rows, measured.read_groups, entropy)
    match None if refinement is None else refinement.law:
        case CoupledRefinement() as law if refinement is not None:
            return refine_release(plan, (statement, rows), refinement.table, law, entropy)
        case IndependentTopUp(plan=beside) if refinement is not None:
            return combine_tables([refinement.table, draw_release(beside, statement, rows, entropy)])
    return draw_release(plan, statement, rows, entropy)


def _hold_tables(backend: Backend, statement: ReleaseStatement | None) -> AbstractContextManager[None]:
    """Hold the temporary tables that a statement reads, for engines whose dialect uses them."""
    if statement is None or not statement.held_queries:
        return nullcontext()
    return backend.stage_tables(statement.held_queries)


@contextmanager
def _open_stages(backend: Backend, part: PreparedRelease, stages: Stages) -> Iterator[ExactRelease]:
    """Open a release with clamps by group: read the contributions once, and the groups when their clamps are chosen."""

    def read_groups(plan: MeasurementPlan, selected: Sequence[Keys] | None = None) -> GroupRows:
        sums = part.emit_group_sums(plan, selected)
        with _hold_tables(backend, sums):
            return sums, _read_rows(backend, sums.sql)

    with backend.stage_tables(stages.tables):
        yield ExactRelease(part, _read_rows(backend, stages.histograms), read_groups)


def _read_rows(backend: Backend, sql: str) -> Exact:
    """Return the exact rows of a statement; any failure that is not dpsql's own becomes a BackendError, which is recorded.

    Its words and its frames may hold values of rows, so nothing of it stays.
    """
    try:
        return backend.run_statement(sql)
    except Error:
        raise
    except Exception:  # noqa: BLE001, S110  (raised out here, where no error is being handled: else it would be the context)
        pass
    raise BackendError


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
