"""Streams of counts: a driver that charges once, and answers many queries from one open stream."""

from __future__ import annotations

from dataclasses import replace

from dpsql.engine.charging import record_failure, record_release_failures, run_after_charge
from dpsql.engine.engine import Engine
from dpsql.engine.exact_release import run_without_frames
from dpsql.engine.query_run import QueryRun
from dpsql.engine.receipts import build_receipt
from dpsql.engine.release.draw_release import open_stream as open_running_stream
from dpsql.engine.stages import charge, run
from dpsql.engine.stop_requests import CANCELLED, is_interruption
from dpsql.errors import BackendError, InternalError, OperationalError
from dpsql.ledger import Entry
from dpsql.privacy.synthesis.stream import Cells, RunningStream, StreamedCount
from dpsql.results.result import Receipt


def open_stream(engine: Engine, prepared: QueryRun) -> tuple[RunningStream, Receipt]:
    """Charge a stream of counts for the groups of a query with one release, and open it: all is charged before groups are read."""
    part, charged = prepared.single_release, charge(engine, prepared)

    def begin_stream() -> RunningStream:
        with run(engine, part) as measured:
            return open_running_stream(part.plan, part.statement, measured.rows, engine.entropy)

    def finish_opening() -> tuple[RunningStream, Receipt]:
        with record_release_failures(engine, charged, part):
            running = run_without_frames(begin_stream)
        return running, build_receipt(engine, charged, [part.plan])

    return run_after_charge(engine, charged, finish_opening)


def answer_stream_query(
    engine: Engine, running: RunningStream, cells: Cells, prepared: QueryRun, entry: Entry | None
) -> StreamedCount:
    """Answer one query of a stream; a failure ends the stream, reveals no exact counts, and is recorded like any other."""
    require_current_entry(engine, entry)
    before = running.find_known_count(cells)
    if before is not None:
        return before
    charged = replace(prepared, entries=() if entry is None else (entry,))
    try:
        return run_without_frames(lambda: running.answer_query(cells, engine.entropy))
    except BaseException as error:
        if is_interruption(error) or isinstance(error, (BackendError, InternalError)):
            record_failure(engine, charged, charged.tables, getattr(error, "code", CANCELLED))
        raise


def require_current_entry(engine: Engine, entry: Entry | None) -> None:
    """Raise OperationalError (`stream_ended`) if the budget of an entry was renewed or reset; see `Ledger.is_current`."""
    if entry is None or not engine.ledger.is_current(entry):
        raise OperationalError(
            "the stream has ended: the budget that paid for it was renewed or reset",
            code="stream_ended",
            hint="open another stream, which is charged again",
        )
