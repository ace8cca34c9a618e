"""What a connection asks its engine for: queries, reservations, synthetic tables and streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from dpsql.analysis.domains import list_combinations
from dpsql.backends.scratch_database import create_database
from dpsql.engine.charging import Reservation, reserve_budgets, resume_reservation
from dpsql.engine.explain import Explanation
from dpsql.engine.forecast import forecast_queries, plan_for_forecast
from dpsql.engine.relative_targets import answer_in_steps
from dpsql.engine.replay.replays import combine_stored_releases, match_stored, plan_and_match
from dpsql.engine.stages import prepare_query
from dpsql.engine.synthetic import (
    answer_stream_query,
    build_hypothesis_table,
    make_local_table,
    make_synthetic_table,
    open_stream,
    prepare_local_table,
    prepare_stream,
    prepare_synthetic_table,
    require_current_entry,
)
from dpsql.errors import InterfaceError, ProgrammingError, QueryRejected
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import Query, QueryOptions, get_naive_utc_now
from dpsql.results.forecast import Forecast
from dpsql.results.synthetic_table import Stream

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from dpsql.api.base_connection import QueryDefaults
    from dpsql.engine.engine import Engine
    from dpsql.engine.query_run import QueryRun
    from dpsql.engine.synthetic import PreparedSynthesis
    from dpsql.privacy.synthesis.stream import Cells, RunningStream, StreamedCount
    from dpsql.privacy.synthesis.workload import Counts
    from dpsql.results.local_table import LocalTable
    from dpsql.results.result import Receipt, Result
    from dpsql.results.synthetic_table import SyntheticTable


# The queries of a connection in this process: its engine while it is open, and the way from a text to an answer.


class OpenEngine:
    """The engine of a connection until it is closed, and the reservation that its queries are charged to, if there is one.

    It owns the engine's database, and the engine's ledger unless other connections share that.
    """

    def __init__(self, engine: Engine, *, shares_ledger: bool = False) -> None:
        self.unreserved = self._current = engine
        self._reservation: Reservation | None = None
        self._shares_ledger = shares_ledger
        self.is_open = True

    @property
    def current(self) -> Engine:
        """Return the engine that charges the reservation, if there is one; raise InterfaceError if the connection is closed."""
        self.require_open()
        return self._current

    def require_open(self) -> None:
        """Raise InterfaceError if the connection is closed."""
        if not self.is_open:
            raise InterfaceError("the connection is closed", hint="dpsql.connect(…) opens another")

    @property
    def has_reservation(self) -> bool:
        """Return whether the connection holds a reservation."""
        return self._reservation is not None

    def lock(self) -> AbstractContextManager[object]:
        """Return the lock that all connections to the same database share."""
        return self.unreserved.backend.lock()

    def reserve(self, epsilon: Fraction, delta: Fraction | None, tables: Iterable[str] | None) -> Reservation:
        """Reserve budgets for this connection; see `Connection.reserve`."""
        self._require_no_reservation()
        return self._hold_reservation(
            reserve_budgets(self.current, self._drop_reservation, epsilon, delta, tables)
        )

    def resume(self, number: int) -> Reservation:
        """Continue a reservation; see `Connection.resume`."""
        self._require_no_reservation()
        return self._hold_reservation(resume_reservation(self.current, self._drop_reservation, number))

    def _require_no_reservation(self) -> None:
        if self._reservation is not None:
            raise ProgrammingError(
                f"this connection holds reservation {self._reservation.number} already",
                code="slice_held",
                hint="close it first, or open another connection",
            )

    def _hold_reservation(self, reservation: Reservation) -> Reservation:
        self._reservation = reservation
        self._current = replace(self.unreserved, reservation=reservation.number)
        return reservation

    def _drop_reservation(self) -> None:
        with self.lock():
            self._reservation, self._current = None, self.unreserved

    def close(self) -> None:
        """Return what is left of the reservation, and close the database and the ledger, unless it is shared."""
        self.is_open = False
        try:
            if self._reservation is not None:
                self._reservation.close()
        finally:
            self.unreserved.backend.close()
            if not self._shares_ledger:
                self.unreserved.ledger.close()


class EngineQueries:
    """Queries over private tables: built with the defaults of a connection, then planned, explained or answered by its engine."""

    def __init__(self, engine: OpenEngine, defaults: QueryDefaults) -> None:
        self._engine = engine
        self.defaults = defaults

    def build_query(self, sql: str, parameters: Parameters, options: QueryOptions) -> Query:
        """Return a query of a call; raise InterfaceError if the connection is closed."""
        self._engine.require_open()
        return self.defaults.build_query(sql, parameters, options)

    def run(self, query: Query) -> Result:
        """Return the answer to a query; see `Connection.query`."""
        engine = self._engine.current
        with engine.backend.open_snapshot():
            return self._answer(engine, plan_and_match(engine, query))

    def combine(self, query: Query) -> Result:
        """Return the most accurate answer that follows from stored releases; see `Connection.combine`."""
        engine = self._engine.current
        with engine.backend.open_snapshot():
            return combine_stored_releases(engine, query)

    def explain(self, query: Query) -> Explanation:
        """Return the plan of a query with its price; see `Connection.explain`."""
        engine = self._engine.current
        with engine.backend.open_snapshot():
            return Explanation.from_prepared(engine, plan_for_forecast(engine, query))

    def plan(self, query: Query) -> QueryRun:
        """Return the plan of a query; see `Connection.plan`."""
        engine = self._engine.current
        with engine.backend.open_snapshot():
            return prepare_query(engine, query)

    def answer(self, planned: QueryRun) -> Result:
        """Return the answer to a planned query; see `Connection.answer`."""
        engine = self._engine.current
        with engine.backend.open_snapshot():
            if planned.constants or not engine.backend.is_unchanging:
                planned = prepare_query(engine, replace(planned.query, time=get_naive_utc_now()))
            return self._answer(engine, match_stored(engine, planned))

    def _answer(self, engine: Engine, prepared: QueryRun) -> Result:
        if prepared.explain:
            return Explanation.from_prepared(engine, prepared).to_result()
        result = answer_in_steps(engine, prepared)
        engine.stops.require_not_stopped()
        return result

    def forecast(self, texts: Iterable[str], epsilon: Amount | None, dialect: str | None) -> Forecast:
        """Return the costs of queries; see `Connection.budget`."""
        if self._engine.has_reservation:
            raise ProgrammingError(
                "a forecast covers whole budgets, so it is not available while the connection holds a reservation",
                code="slice_forecast",
                hint="forecast before con.reserve(…); con.explain(sql) says what one query costs",
            )
        queries = [self.build_query(sql, (), {"dialect": dialect}) for sql in texts]
        if epsilon is not None:
            loss = parse_amount(epsilon)
            queries = [replace(query, default=loss) for query in queries]
        engine = self._engine.current
        with engine.backend.open_snapshot():
            return forecast_queries(engine, [plan_for_forecast(engine, query) for query in queries])


def probe_charges(engine: Engine, sql: str) -> Callable[[], str]:
    """Return a function that compares the ledger with its state now, and says whether a query was charged."""
    before = engine.ledger.read_head().entries

    def describe_charge() -> str:
        since = engine.ledger.read_head().entries - before
        found = [
            entry
            for entry in (engine.ledger.list_entries(limit=since) if since else ())
            if entry.id > before and entry.query == sql and entry.analyst == engine.analyst
        ]
        own = [str(entry.id) for entry in found if entry.kind != "failure"]
        if not own:
            return "interrupted; nothing was charged"
        several = "entries" if len(own) > 1 else "entry"
        failed = any(entry.kind == "failure" for entry in found)
        counted = "; it counts as a failure of its tables" if failed else ""
        return f"interrupted after the charge, which stays: ledger {several} {', '.join(own)}{counted}"

    return describe_charge


# The synthetic tables, randomized tables and streams of a connection, and the public tables that they are queried as.


Workload = str | Iterable[Sequence[str] | str]


class PublicConnection(Protocol):
    """A connection to a database of public tables."""

    def query(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """Return the answer to a SELECT."""
        ...

    def explain(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Explanation:
        """Return the plan of a SELECT."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


OpenPublicTables = Callable[[Any, Sequence[str]], PublicConnection]
"""Open a connection to a database in memory whose tables, with these names, are public."""


class SyntheticTables:
    """Makes synthetic tables, randomized tables and streams of private rows; it keeps the cells of its streams until it is closed."""

    def __init__(self, engine: OpenEngine, open_public_tables: OpenPublicTables) -> None:
        self._engine = engine
        self._open_public_tables = open_public_tables
        self._cell_tables: list[_CellTable] = []

    def make_table(
        self, query: Query, workload: Workload, method: str | None, rounds: int | None
    ) -> SyntheticTable:
        """Return a table of synthetic rows; see `Connection.synthetic`."""
        engine = self._engine.current
        with engine.backend.open_snapshot():
            return self.charge_table(prepare_synthetic_table(engine, query, workload, method, rounds))

    def charge_table(self, prepared: PreparedSynthesis) -> SyntheticTable:
        """Charge and return a prepared table, which can be queried."""
        made = make_synthetic_table(self._engine.current, prepared)
        return replace(made, _connect=self._connect_to_table)

    def randomize(self, query: Query) -> LocalTable:
        """Return a table of rows that are randomized one by one; see `Connection.randomize`."""
        engine = self._engine.current
        with engine.backend.open_snapshot():
            return make_local_table(engine, prepare_local_table(engine, query))

    def open_stream(
        self, query: Query, method: str, workload: Workload, updates: int, queries: int
    ) -> Stream:
        """Charge and open a stream of counting queries; see `Connection.stream`."""
        if method != "pmw":
            raise ProgrammingError(f"there is no method {method!r}", code="synthetic_method", hint="'pmw'")
        engine = self._engine.current
        with engine.backend.open_snapshot():
            prepared = prepare_stream(engine, query, workload, updates, queries)
            running, receipt = open_stream(engine, prepared.prepared)
        return self._build_stream(prepared, running, receipt)

    def _build_stream(self, prepared: PreparedSynthesis, running: RunningStream, receipt: Receipt) -> Stream:
        cell_table = _CellTable(prepared, self._open_public_tables)
        self._cell_tables.append(cell_table)
        engine = self._engine.current
        charged = engine.ledger.find_entry(receipt.entries[0]["id"])

        def answer_cells(cells: Cells) -> StreamedCount:
            with self._engine.current.backend.lock():
                return answer_stream_query(engine, running, cells, prepared.prepared, charged)

        def build_table(histogram: Counts) -> SyntheticTable:
            require_current_entry(engine, charged)
            made = build_hypothesis_table(prepared, histogram, receipt)
            return replace(made, _connect=self._connect_to_table)

        return Stream(
            prepared.columns,
            prepared.types,
            receipt,
            prepared.domains,
            answer_cells,
            running,
            cell_table.list_matching_cells,
            build_table,
        )

    def _connect_to_table(self, made: SyntheticTable) -> PublicConnection:
        """Return a connection to a synthetic table, which is public."""
        columns = list(zip(made.columns, made.types, strict=True))
        return self._open_public_tables(create_database(made.name, columns, made.rows), [made.name])

    def close(self) -> None:
        """Close the databases of cells; the streams end."""
        for cells in self._cell_tables:
            cells.close()


class _CellTable:
    """The public table of all cells of a stream, on which conditions are parsed and run as for any query."""

    def __init__(self, prepared: PreparedSynthesis, open_public_tables: OpenPublicTables) -> None:
        self._prepared = prepared
        self._open_public_tables = open_public_tables
        self._connection: PublicConnection | None = None

    def close(self) -> None:
        """Close the database of the table, if a condition has opened it."""
        if self._connection is not None:
            self._connection.close()

    def list_matching_cells(self, condition: str) -> list[int]:
        """Return the numbers of the cells that satisfy a condition; raise QueryRejected for a text that is not a condition."""
        if self._connection is None:
            named = self._prepared
            columns = [*zip(named.columns, named.types, strict=True), ("#cell", "BIGINT")]
            cells = [(*keys, place) for place, keys in enumerate(list_combinations(named.domains))]
            database = create_database("stream", columns, cells)
            self._connection = self._open_public_tables(database, ["stream"])
        found = self._connection.query(f'SELECT "#cell" FROM stream WHERE (\n{condition}\n)')
        places = [int(place) for (place,) in found.rows]
        if len(found.columns) != 1 or len(set(places)) < len(places):
            raise QueryRejected("this is not a condition", code="condition", text=condition)
        return places
