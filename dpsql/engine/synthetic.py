"""Drivers of synthetic tables, randomized tables and streams: a count by all columns with another mechanism in its plan."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dpsql.analysis.domains import MAX_GROUPS, Domain, derive_domain, list_combinations
from dpsql.analysis.intervals import derive_interval, derive_known_intervals
from dpsql.engine.charging import build_receipt, record_failure, record_release_failures, run_after_charge
from dpsql.engine.engine import CANCELLED, Engine, is_interruption
from dpsql.engine.query_run import PlanOptions, QueryRun
from dpsql.engine.release.exact_release import run_without_frames
from dpsql.engine.release.noise import open_stream as open_running_stream
from dpsql.engine.release.released_table import ReleasedTable
from dpsql.engine.replay.replays import match_stored
from dpsql.engine.stages import charge, draw_releases, prepare_query, run
from dpsql.errors import (
    BackendError,
    InternalError,
    LossError,
    OperationalError,
    Position,
    ProgrammingError,
    QueryRejected,
)
from dpsql.ledger import Entry
from dpsql.plan.interval import Interval
from dpsql.plan.nodes import Release
from dpsql.plan.steps import find_sampling_rate
from dpsql.plan.types import Type
from dpsql.planning.synthesis import MOST_COLUMNS as MOST_HELD
from dpsql.planning.synthesis import (
    StreamRequest,
    SynthesisRequest,
    find_shape,
    fits_histogram,
    plan_synthesis,
)
from dpsql.planning.verify import verify_plan
from dpsql.policy.names import quote_identifier
from dpsql.policy.request.loss import Target
from dpsql.policy.request.query import Query
from dpsql.privacy.synthesis.mechanism import Mwem
from dpsql.privacy.synthesis.mst import (
    METHODS,
    MOST_COLUMNS,
    Mst,
    SyntheticMethod,
    list_read_marginals,
    require_small_tables,
)
from dpsql.privacy.synthesis.randomized import RandomizedTable
from dpsql.privacy.synthesis.stream import Cells, RunningStream, StreamedCount, WeightsStream
from dpsql.privacy.synthesis.workload import Counts, Marginal, parse_workload
from dpsql.results.local_table import LocalTable
from dpsql.results.result import Receipt
from dpsql.results.synthetic_table import SyntheticTable, WorkloadError
from dpsql.sql.compile.compiler import Compiler
from dpsql.sql.compile.outer_query import find_unchanged_columns
from dpsql.sql.compile.statement import emit_marginals, emit_release
from dpsql.sql.lower.statement import lower_statement
from dpsql.sql.parse.parse import parse_cached

# Synthetic tables: the count of rows by all columns, released as whole rows of a distribution instead of noisy counts.


STEPS = 256
"""Steps of a column that is rounded to one of its bounds; what they lose of a mean is in its interval."""
Workload = str | Iterable[Sequence[str] | str]


@dataclass(frozen=True)
class PreparedSynthesis:
    """A synthetic table or a stream before its charge: the prepared count, and its columns with types and public values.

    A synthetic table is prepared, charged, stored and replayed like the query that counts its rows by all columns; its mechanism
    stands in that query's plan.
    """

    prepared: QueryRun
    columns: tuple[str, ...]
    types: tuple[str, ...]
    domains: tuple[Domain, ...]
    ends: tuple[Interval | None, ...] = ()
    """Of each column whose values are rounded to one of two ends, these."""

    @property
    def workload(self) -> tuple[Marginal, ...]:
        """Return the requested marginals."""
        made = _get_mechanism(self.prepared)
        if isinstance(made, RandomizedTable):
            return ()
        return made.start.workload if isinstance(made, WeightsStream) else made.workload


def prepare_synthetic_table(
    engine: Engine, asked: Query, wanted: Workload, method: str | None, rounds: int | None
) -> PreparedSynthesis:
    """Prepare a synthetic table up to the charge; see `Connection.synthetic`."""
    if method is None and rounds is not None:
        method = Mwem.method
    if method is not None and method not in METHODS:
        raise ProgrammingError(
            f"there is no method {method!r}",
            code="synthetic_method",
            hint=f"one of {', '.join(map(repr, METHODS))}",
        )
    if rounds is not None and (type(rounds) is not int or rounds < 0 or method != Mwem.method):
        raise ProgrammingError(
            "rounds must be a whole number of at least 0, and needs method='mwem', which selects as many marginals",
            code="synthetic_method",
        )
    found = _prepare_synthesis(
        engine,
        asked,
        wanted,
        lambda shape, marginals: SynthesisRequest(
            marginals, method or (Mwem.method if fits_histogram(shape) else Mst.method), rounds
        ),
        "SYNTHETIC TABLE",
    )
    return replace(found, prepared=match_stored(engine, found.prepared))


def prepare_local_table(engine: Engine, asked: Query) -> PreparedSynthesis:
    """Prepare a randomized table up to the charge; see `Connection.randomize`."""
    try:
        found = _prepare_randomization(engine, asked)
    except QueryRejected as error:
        if error.code not in ("synthetic_domain", "delta_required"):
            raise
        bounds = derive_column_bounds(engine, asked)
        if not any(bounds.values()):
            raise
        rounded = tuple(place for place, ends in enumerate(bounds.values()) if ends is not None)
        steps = _prepare_randomization(
            engine, replace(asked, sql=build_rounding_query(asked.sql, bounds)), rounded
        )
        found = with_statement_text(
            replace(steps, ends=tuple(bounds.values())), _format_statement(steps, asked, "LOCAL TABLE")
        )
    return replace(found, prepared=match_stored(engine, found.prepared)) if asked.replay else found


def _prepare_randomization(engine: Engine, asked: Query, rounded: tuple[int, ...] = ()) -> PreparedSynthesis:
    return _prepare_synthesis(
        engine,
        asked,
        "marginals(1)",
        lambda _, __: SynthesisRequest((), RandomizedTable.method, step_columns=rounded),
        "LOCAL TABLE",
    )


def make_local_table(engine: Engine, synthesis: PreparedSynthesis) -> LocalTable:
    """Charge durably, read and randomize the rows; or return them from a stored release, free."""
    table, receipt = _answer_release(engine, synthesis.prepared)
    made = _get_mechanism(synthesis.prepared)
    if not isinstance(made, RandomizedTable):
        raise TypeError("a randomized table has its own plan")
    ends = synthesis.ends or (None,) * len(synthesis.columns)
    meaning = [
        dict(zip(values, values, strict=True))
        if end is None
        else {values[0]: get_ends(end)[0], values[-1]: get_ends(end)[1]}
        for values, end in zip(synthesis.domains, ends, strict=True)
    ]
    cells = (
        (*(names[value] for names, value in zip(meaning, row, strict=False)), row[-1])
        for row in table.rows
        if row[-1]
    )
    return LocalTable(
        synthesis.columns,
        tuple(
            kind if end is None else Type.DOUBLE.value
            for kind, end in zip(synthesis.types, ends, strict=True)
        ),
        tuple(tuple(names.values()) for names in meaning),
        tuple(cells),
        made.odds,
        receipt,
        made.count.compute_half_width,
        steps=tuple(0.0 if end is None else compute_step(end) for end in ends),
    )


def prepare_stream(
    engine: Engine, asked: Query, wanted: Workload, updates: int, queries: int
) -> PreparedSynthesis:
    """Prepare a stream up to the charge; see `Connection.stream`."""
    for name, number in (("updates", updates), ("queries", queries)):
        if type(number) is not int or not 1 <= number <= 10**9:
            raise ProgrammingError(f"{name} must be a whole number of at least 1", code="stream")
    return _prepare_synthesis(
        engine,
        asked,
        wanted,
        lambda _, marginals: StreamRequest(marginals, updates, queries),
        "STREAM",
    )


def _prepare_synthesis(
    engine: Engine,
    asked: Query,
    wanted: Workload,
    request: Callable[[tuple[int, ...], tuple[Marginal, ...]], SynthesisRequest | StreamRequest],
    what: str,
) -> PreparedSynthesis:
    prepared = _prepare_count(engine, asked)
    columns = _list_column_names(prepared, asked.sql)
    part = prepared.single_release
    analysis = part.plan.analysis
    if find_sampling_rate(part.release.input) is not None:
        raise QueryRejected(
            f"a {what.lower()} cannot be made from a sample of the units",
            code="sample",
            hint="remove TABLESAMPLE UNITS",
            text=asked.sql,
        )
    shape = find_shape(analysis)
    if shape is None:
        raise QueryRejected(
            "each column of a synthetic table needs public values, and partition selection may hide none of them",
            code="synthetic_domain",
            hint="list the values in the policy, or group them: CAST(FLOOR(cost / 100) AS INTEGER) AS cost",
        )
    marginals = parse_workload(wanted, columns)
    made = request(shape, marginals)
    method = made.method
    if method == Mst.method:
        require_small_tables(shape, marginals, columns)
    elif not fits_histogram(shape):
        raise QueryRejected(
            f"these columns have {math.prod(shape):,} combinations of values; this method counts each of them, so it "
            f"takes at most {MAX_GROUPS:,} combinations of {MOST_HELD} columns",
            code="synthetic_domain",
            hint="use con.synthetic(…, method='mst'), fewer columns, or groups of values: CAST(FLOOR(cost / 100) AS INTEGER) AS cost",
        )
    plan = plan_synthesis(analysis, part.loss_share, engine.public_lookups, made)
    verify_plan(plan)
    compiler = Compiler(part.dialect)
    statement = emit_release(compiler, analysis)
    if method == Mst.method:
        statement = emit_marginals(compiler, statement, list_read_marginals(len(shape), marginals))
    whole = replace(prepared, releases=(replace(part, plan=plan, statement=statement),))
    types = tuple(key.expr.type.value for key in part.release.keys)
    found = PreparedSynthesis(whole, columns, types, analysis.domains or ())
    text = _format_statement(found, asked, what, method)
    return with_statement_text(replace(found, prepared=replace(whole, query=asked)), text)


def _format_statement(
    found: PreparedSynthesis, asked: Query, what: str, method: str = RandomizedTable.method
) -> str:
    """Return the text of the ledger's entry: a CREATE statement."""
    epsilon = float(found.prepared.terms.epsilon)
    terms = f"epsilon = {epsilon:g}, workload = {_format_workload(found)}, method = '{method}'"
    return f"CREATE {what} AS {asked.sql.strip()} WITH ({terms})"


def make_synthetic_table(engine: Engine, synthesis: PreparedSynthesis) -> SyntheticTable:
    """Charge durably, read, and make the table; or make it again from a stored release, free."""
    table, receipt = _answer_release(engine, synthesis.prepared)
    plan = table.plan.synthesis
    if plan is None or isinstance(plan.mechanism, (WeightsStream, RandomizedTable)):
        raise LookupError("a synthetic table has a plan of its own")
    made = plan.mechanism
    ((_, distance),) = table.components[0]
    cells = tuple(row for row in table.rows if row[-1])
    error = WorkloadError(
        rows=sum(number for ((number, _),) in table.components),
        marginals=len(made.workload),
        distance=distance,
        direct=made.direct_distance,
        half_width=made.check.compute_half_width,
    )
    return SyntheticTable(synthesis.columns, synthesis.types, cells, error, receipt)


def _answer_release(engine: Engine, prepared: QueryRun) -> tuple[ReleasedTable, Receipt]:
    """Return the released table and the receipt of a query with one release, charged, read and stored as any other."""
    charged = charge(engine, prepared)

    def finish_release() -> tuple[ReleasedTable, Receipt]:
        released = draw_releases(engine, charged)
        (table,) = released.released_tables
        return table, build_receipt(engine, released, [table.plan])

    return run_after_charge(engine, charged, finish_release)


def build_hypothesis_table(
    synthesis: PreparedSynthesis, histogram: Counts, receipt: Receipt
) -> SyntheticTable:
    """Return the hypothesis of a stream as a synthetic table, whose distance from the private rows was not measured."""
    keys = list_combinations(synthesis.domains)
    counts = histogram.ravel().tolist()
    cells = tuple((*key, number) for key, number in zip(keys, counts, strict=True) if number)
    return SyntheticTable(synthesis.columns, synthesis.types, cells, None, receipt)


def _get_mechanism(prepared: QueryRun) -> SyntheticMethod | WeightsStream | RandomizedTable:
    plan = prepared.plan.synthesis
    if plan is None:
        raise LookupError("a synthetic table has a plan of its own")
    return plan.mechanism


def _prepare_count(engine: Engine, asked: Query) -> QueryRun:
    """Prepare the count; the place of a refusal is that in the user's text."""
    counted = _build_count_query(asked.sql)
    try:
        return prepare_query(
            engine, replace(asked, sql=counted, replay=False), PlanOptions(separate_keys=True)
        )
    except QueryRejected as error:
        if error.text == counted and error.position is not None:
            line = error.position.line - 1
            inside = 1 <= line <= asked.sql.count("\n") + 1
            error.position = Position(line, error.position.column) if inside else None
            error.text = asked.sql
        raise


def with_statement_text(synthesis: PreparedSynthesis, text: str) -> PreparedSynthesis:
    """Return the same, charged under the statement that a user wrote."""
    prepared = synthesis.prepared
    return replace(synthesis, prepared=replace(prepared, query=replace(prepared.query, sql=text)))


def derive_column_bounds(engine: Engine, asked: Query) -> dict[str, Interval | None]:
    """Return the bounds of each column without public values, by name; None for a column that has values, or no bounds either."""
    parsed = parse_cached(_build_count_query(asked.sql), asked.dialect)
    outer = lower_statement(
        parsed, engine.catalog, engine.public_lookups, asked.parameters, asked.max_groups, at=asked.time
    ).outer
    release = outer.source
    if not isinstance(release, Release):
        return {}
    known = derive_known_intervals(release.input)
    found = dict[str, Interval | None]()
    for output, key in zip(outer.outputs, release.keys, strict=False):
        ends = derive_interval(key.expr, known)
        rounds = key.expr.type.numeric and ends.is_bounded and derive_domain(key.expr, known) is None
        found[output.name] = ends if rounds and compute_step(ends) > 0 else None
    return found


def build_rounding_query(sql: str, bounds: Mapping[str, Interval | None]) -> str:
    """Return the query in which each bounded column is the nearest of `STEPS` steps, and the middle one if it is missing."""
    columns = list[str]()
    for name, ends in bounds.items():
        quoted = quote_identifier(name)
        if ends is None:
            columns.append(quoted)
            continue
        low, _ = get_ends(ends)
        level = f"CAST(FLOOR(({quoted} - {low!r}) / {compute_step(ends)!r} + 0.5) AS INTEGER)"
        columns.append(f"COALESCE({level}, {STEPS // 2}) AS {quoted}")
    return f"SELECT {', '.join(columns)} FROM (\n{sql.rstrip().rstrip(';')}\n) AS rows_in_steps"


def get_ends(ends: Interval) -> tuple[float, float]:
    """Return both ends of a bounded interval."""
    if ends.low is None or ends.high is None:
        raise TypeError("a column that is rounded has bounds")
    return float(ends.low), float(ends.high)


def compute_step(ends: Interval) -> float:
    """Return the length of one step between the ends."""
    low, high = get_ends(ends)
    return (high - low) / STEPS


def _build_count_query(sql: str) -> str:
    """Return the query that counts the rows of another by all its columns; each of its places is one line further down."""
    return f"SELECT *, COUNT(*) FROM (\n{sql.rstrip().rstrip(';')}\n) AS synthetic_rows GROUP BY ALL"


def _list_column_names(prepared: QueryRun, sql: str) -> tuple[str, ...]:
    """Return the names of the columns, if the query reads private rows and is nothing but that count."""
    places = find_unchanged_columns(prepared.outer)
    release = prepared.releases[0].release if len(prepared.releases) == 1 else None
    width = len(prepared.outer.outputs) - 1
    counts = (
        release is not None
        and release.top is None
        and not prepared.explain
        and [(item.function, item.argument) for item in release.aggregations] == [("count_rows", None)]
        and len(release.keys) == width
    )
    if release is None or not counts or places != tuple(range(width + 1)):
        raise QueryRejected(
            "a synthetic table needs a query that selects columns of private rows, without aggregates",
            code="synthetic",
            hint="con.synthetic('SELECT age, plan FROM visits WHERE cost > 10', epsilon=1)",
            text=sql,
        )
    if isinstance(prepared.terms.loss, Target):
        raise LossError(
            "a synthetic table does not support target_error", hint="pass epsilon, as in epsilon=1"
        )
    names = tuple(output.name for output in prepared.outer.outputs[:width])
    if not 1 <= width <= MOST_COLUMNS or len(set(names)) < width:
        raise QueryRejected(
            f"a synthetic table has 1 to {MOST_COLUMNS} columns with distinct names",
            code="synthetic",
            hint="SELECT age, FLOOR(cost / 10) AS cost FROM …",
            text=sql,
        )
    return names


def _format_workload(found: PreparedSynthesis) -> str:
    """Return the workload as text: its marginals by the names of their columns."""
    return json.dumps(
        [[found.columns[place] for place in part] for part in found.workload], ensure_ascii=False
    )


# Streams of counts: a driver that charges once, and answers many queries from one open stream.


def open_stream(engine: Engine, prepared: QueryRun) -> tuple[RunningStream, Receipt]:
    """Charge a stream of counts for the groups of a query with one release, and open it: all is charged before groups are read."""
    part, charged = prepared.single_release, charge(engine, prepared)

    def begin_stream() -> RunningStream:
        with run(engine, charged, part) as measured:
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
