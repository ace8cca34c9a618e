"""Synthetic tables: the count of rows by all columns, released as whole rows of a distribution instead of noisy counts.

A synthetic table is prepared, charged, stored and replayed as the query that counts its rows by all columns would be; its
mechanism stands in that query's plan.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from dpsql.analysis.domains import MAX_GROUPS, Domain, product
from dpsql.engine.pipeline import Engine
from dpsql.engine.prepare import PreparedQuery
from dpsql.errors import LossError, ProgrammingError, QueryRejected
from dpsql.local_table import LocalTable
from dpsql.plan.sampling import sampling_rate
from dpsql.planning.synthesis import MOST_COLUMNS as MOST_HELD
from dpsql.planning.synthesis import Request, StreamRequest, fits, planned, shape_of
from dpsql.planning.verify import verify
from dpsql.request.query import Query
from dpsql.request.target import Target
from dpsql.result import Receipt
from dpsql.sql.emit.marginals import emit_marginals
from dpsql.sql.emit.outer_query import unchanged
from dpsql.sql.emit.statement import emit
from dpsql.synthesis.mechanism import Mwem
from dpsql.synthesis.methods import METHODS, SyntheticMethod
from dpsql.synthesis.mst import MOST_COLUMNS, Mst, read_by, require_tables
from dpsql.synthesis.randomized import RandomizedTable
from dpsql.synthesis.stream import RunningStream, WeightsStream
from dpsql.synthesis.workload import Counts, Marginal, workload
from dpsql.synthetic_table import SyntheticTable, WorkloadError

Workload = str | Iterable[Sequence[str] | str]


@dataclass(frozen=True)
class PreparedSynthesis:
    """A synthetic table or a stream before its charge: the prepared count, and its columns with types and public values."""

    prepared: PreparedQuery
    columns: tuple[str, ...]
    types: tuple[str, ...]
    domains: tuple[Domain, ...]

    @property
    def workload(self) -> tuple[Marginal, ...]:
        """The marginals that are asked for."""
        made = _mechanism(self.prepared)
        if isinstance(made, RandomizedTable):
            return ()
        return made.start.workload if isinstance(made, WeightsStream) else made.workload


def prepare(
    engine: Engine, asked: Query, wanted: Workload, method: str | None, rounds: int | None
) -> PreparedSynthesis:
    """Everything up to the charge; see `Connection.synthetic`."""
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
            "rounds is how many marginals method='mwem' selects, a whole number", code="synthetic_method"
        )
    found = _prepared(
        engine,
        asked,
        wanted,
        lambda shape, marginals: Request(
            marginals, method or (Mwem.method if fits(shape) else Mst.method), rounds
        ),
        "SYNTHETIC TABLE",
    )
    return replace(found, prepared=engine.replayed(found.prepared))


def prepare_local(engine: Engine, asked: Query) -> PreparedSynthesis:
    """Everything up to the charge; see `Connection.randomize`."""
    found = _prepared(
        engine,
        asked,
        "marginals(1)",
        lambda _, __: Request((), RandomizedTable.method),
        "LOCAL TABLE",
    )
    return replace(found, prepared=engine.replayed(found.prepared)) if asked.replay else found


def randomized(engine: Engine, synthesis: PreparedSynthesis) -> LocalTable:
    """Charges durably, reads and randomises the rows; or has them from what is stored, free."""
    table, receipt = engine.release_alone(synthesis.prepared)
    made = _mechanism(synthesis.prepared)
    if not isinstance(made, RandomizedTable):
        raise TypeError("a randomised table has a plan of its own")
    return LocalTable(
        synthesis.columns,
        synthesis.types,
        tuple(map(tuple, synthesis.domains)),
        tuple(row for row in table.rows if row[-1]),
        made.odds,
        receipt,
        made.count.half_width,
    )


def prepare_stream(
    engine: Engine, asked: Query, wanted: Workload, updates: int, queries: int
) -> PreparedSynthesis:
    """Everything up to the charge; see `Connection.stream`."""
    for name, number in (("updates", updates), ("queries", queries)):
        if type(number) is not int or not 1 <= number <= 10**9:
            raise ProgrammingError(f"{name} is a whole number of at least 1", code="stream")
    return _prepared(
        engine,
        asked,
        wanted,
        lambda _, marginals: StreamRequest(marginals, updates, queries),
        "STREAM",
    )


def _prepared(
    engine: Engine,
    asked: Query,
    wanted: Workload,
    request: Callable[[tuple[int, ...], tuple[Marginal, ...]], Request | StreamRequest],
    what: str,
) -> PreparedSynthesis:
    prepared = engine.planned(replace(asked, sql=_counted(asked.sql), replay=False), apart=True)
    columns = _columns(prepared, asked.sql)
    part = prepared.only
    analysis = part.plan.analysis
    if sampling_rate(part.release.input) is not None:
        raise QueryRejected(
            f"no {what.lower()} is made of a sample of the units",
            code="sample",
            hint="leave the sample out",
            text=asked.sql,
        )
    shape = shape_of(analysis)
    if shape is None:
        raise QueryRejected(
            "a synthetic table is of columns whose values are public, none of them hidden for being rare",
            code="synthetic_domain",
            hint="let the policy list the values, or group values: CAST(FLOOR(cost / 100) AS INTEGER) AS cost",
        )
    marginals = workload(wanted, columns)
    made = request(shape, marginals)
    method = made.method
    if method == Mst.method:
        require_tables(shape, marginals, columns)
    elif not fits(shape):
        raise QueryRejected(
            f"these columns have {math.prod(shape):,} combinations of values; what is held for each of them is for "
            f"{MAX_GROUPS:,} at most, of {MOST_HELD} columns",
            code="synthetic_domain",
            hint="con.synthetic(…, method='mst'), fewer columns, or groups of values: CAST(FLOOR(cost / 100) AS INTEGER) AS cost",
        )
    plan = planned(analysis, part.price, engine.public, made)
    verify(plan)
    statement = emit(analysis, (), None, (), part.dialect)
    if method == Mst.method:
        statement = emit_marginals(statement, read_by(len(shape), marginals), part.dialect)
    whole = replace(prepared, releases=(replace(part, plan=plan, statement=statement),))
    types = tuple(key.expr.type.value for key in part.release.keys)
    found = PreparedSynthesis(whole, columns, types, analysis.domains or ())
    terms = f"epsilon = {float(prepared.terms.epsilon):g}, workload = {_named(found)}, method = '{method}'"
    text = f"CREATE {what} AS {asked.sql.strip()} WITH ({terms})"
    return replace(found, prepared=replace(whole, asked=replace(asked, sql=text)))


def released(engine: Engine, synthesis: PreparedSynthesis) -> SyntheticTable:
    """Charges durably, reads, and makes the table; or makes it again from what is stored, free."""
    table, receipt = engine.release_alone(synthesis.prepared)
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
        half_width=made.check.half_width,
    )
    return SyntheticTable(synthesis.columns, synthesis.types, cells, error, receipt)


def of_hypothesis(synthesis: PreparedSynthesis, histogram: Counts, receipt: Receipt) -> SyntheticTable:
    """The hypothesis of a stream as a synthetic table, whose distance from the private rows was not measured."""
    keys = product(synthesis.domains)
    counts = histogram.ravel().tolist()
    cells = tuple((*key, number) for key, number in zip(keys, counts, strict=True) if number)
    return SyntheticTable(synthesis.columns, synthesis.types, cells, None, receipt)


def opened(engine: Engine, synthesis: PreparedSynthesis) -> tuple[RunningStream, Receipt]:
    """Charges all that a stream may lose, durably, and reads its histogram."""
    return engine.open_stream(synthesis.prepared)


def _mechanism(prepared: PreparedQuery) -> SyntheticMethod | WeightsStream | RandomizedTable:
    plan = prepared.plan.synthesis
    if plan is None:
        raise LookupError("a synthetic table has a plan of its own")
    return plan.mechanism


def _counted(sql: str) -> str:
    """The query that counts the rows of another by all its columns."""
    return f"SELECT *, COUNT(*) FROM (\n{sql.strip().rstrip(';')}\n) AS synthetic_rows GROUP BY ALL"


def _columns(prepared: PreparedQuery, sql: str) -> tuple[str, ...]:
    """The names of the columns, where the query is of private rows and is nothing but that count."""
    places = unchanged(prepared.outer)
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
            "a synthetic table is made of columns of private rows",
            code="synthetic",
            hint="con.synthetic('SELECT age, plan FROM visits WHERE cost > 10', epsilon=1)",
            text=sql,
        )
    if isinstance(prepared.terms.loss, Target):
        raise LossError("a synthetic table has a loss, not a target error", hint="epsilon=1")
    names = tuple(output.name for output in prepared.outer.outputs[:width])
    if not 1 <= width <= MOST_COLUMNS or len(set(names)) < width:
        raise QueryRejected(
            f"a synthetic table has 1 to {MOST_COLUMNS} columns, each with a name of its own",
            code="synthetic",
            hint="SELECT age, FLOOR(cost / 10) AS cost FROM …",
            text=sql,
        )
    return names


def _named(found: PreparedSynthesis) -> str:
    """The workload as text: its marginals by the names of their columns."""
    return json.dumps(
        [[found.columns[place] for place in part] for part in found.workload], ensure_ascii=False
    )
