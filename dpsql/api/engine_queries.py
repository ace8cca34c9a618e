"""The queries of a connection in this process: its engine while it is open, and the way from a text to an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.engine.explain import Explanation
from dpsql.engine.forecast import Forecast, plan_for_forecast
from dpsql.engine.relative_targets import answer_in_steps
from dpsql.engine.replays import combine_stored_releases, match_stored, plan_and_match
from dpsql.engine.reservation import Reservation, reserve_budgets, resume_reservation
from dpsql.engine.stages import prepare_query
from dpsql.errors import InterfaceError, ProgrammingError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.policy.request.query import get_naive_utc_now

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from dpsql.api.base_connection import QueryDefaults
    from dpsql.engine.engine import Engine
    from dpsql.engine.query_run import QueryRun
    from dpsql.policy.request.parameters import Parameters
    from dpsql.policy.request.query import Query, QueryOptions
    from dpsql.results.result import Result


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
        if not self.is_open:
            raise InterfaceError("the connection is closed", hint="dpsql.connect(…) opens another")
        return self._current

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
        return self._hold(reserve_budgets(self.current, self._drop_reservation, epsilon, delta, tables))

    def resume(self, number: int) -> Reservation:
        """Continue a reservation; see `Connection.resume`."""
        self._require_no_reservation()
        return self._hold(resume_reservation(self.current, self._drop_reservation, number))

    def _require_no_reservation(self) -> None:
        if self._reservation is not None:
            raise ProgrammingError(
                f"this connection holds reservation {self._reservation.number} already",
                code="slice_held",
                hint="close it first, or open another connection",
            )

    def _hold(self, reservation: Reservation) -> Reservation:
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

    def build(self, sql: str, parameters: Parameters, options: QueryOptions) -> Query:
        """Return a query of a call; raise InterfaceError if the connection is closed."""
        self._engine.current  # noqa: B018  (a closed connection is refused before a malformed query)
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
        queries = [self.build(sql, (), {"dialect": dialect}) for sql in texts]
        if epsilon is not None:
            loss = parse_amount(epsilon)
            queries = [replace(query, default=loss) for query in queries]
        engine = self._engine.current
        with engine.backend.open_snapshot():
            return Forecast.from_queries(engine, [plan_for_forecast(engine, query) for query in queries])


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
