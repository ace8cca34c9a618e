"""Streams of counts: a driver that charges once, and answers many queries from one open stream."""

from __future__ import annotations

from dpsql.engine.draw import run_without_frames
from dpsql.engine.pipeline import Engine
from dpsql.engine.prepare import PreparedQuery
from dpsql.engine.release import open_stream as open_running_stream
from dpsql.engine.stop_requests import CANCELLED, is_interruption
from dpsql.errors import BackendError, InternalError, OperationalError
from dpsql.ledger import Entry
from dpsql.privacy.synthesis.stream import Cells, RunningStream, StreamedCount
from dpsql.results.result import Receipt


def open_stream(engine: Engine, prepared: PreparedQuery) -> tuple[RunningStream, Receipt]:
    """Charge a stream of counts for the groups of a query with one release, and open it: all is charged before groups are read."""
    part, entries = prepared.single_release, engine.charge_query(prepared)

    def begin_stream() -> RunningStream:
        return open_running_stream(
            part.plan, part.statement, engine.backend.run_statement(part.statement.sql), engine.entropy
        )

    def finish_opening() -> tuple[RunningStream, Receipt]:
        try:
            running = run_without_frames(begin_stream)
        except (BackendError, InternalError) as error:
            engine.record_failure(part.tables, prepared, entries, error.code)
            raise
        return running, engine.build_receipt(prepared, entries, [part.plan])

    return engine.run_after_charge(prepared, entries, finish_opening)


def answer_stream_query(
    engine: Engine, running: RunningStream, cells: Cells, prepared: PreparedQuery, entry: Entry | None
) -> StreamedCount:
    """Answer one query of a stream; a failure ends the stream, reveals no exact counts, and is recorded like any other."""
    require_current_entry(engine, entry)
    before = running.find_known_count(cells)
    if before is not None:
        return before
    entries = () if entry is None else (entry,)
    try:
        return run_without_frames(lambda: running.answer_query(cells, engine.entropy))
    except BaseException as error:
        if is_interruption(error) or isinstance(error, (BackendError, InternalError)):
            engine.record_failure(
                prepared.single_release.tables, prepared, entries, getattr(error, "code", CANCELLED)
            )
        raise


def require_current_entry(engine: Engine, entry: Entry | None) -> None:
    """Raise OperationalError (`stream_ended`) if the budget of an entry was renewed or reset; see `Ledger.is_current`."""
    if entry is None or not engine.ledger.is_current(entry):
        raise OperationalError(
            "the stream has ended: the budget that paid for it was renewed or reset",
            code="stream_ended",
            hint="open another stream, which is charged again",
        )
