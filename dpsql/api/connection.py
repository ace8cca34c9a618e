"""A connection to private data in this process; `dpsql.connect` opens it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypedDict, TypeVar, Unpack

from dpsql.api.arguments import OwnerOptions
from dpsql.api.base_connection import BaseConnection, QueryDefaults
from dpsql.api.opening import open_database, open_engine
from dpsql.errors import ProgrammingError
from dpsql.policy.request.loss import Amount, RelativeError, parse_amount
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import QueryOptions
from dpsql.results.result import Receipt, Result

if TYPE_CHECKING:
    from datetime import datetime

    from dpsql.api.engine_queries import Workload
    from dpsql.engine.charging import Reservation
    from dpsql.engine.engine import Engine
    from dpsql.engine.explain import Explanation
    from dpsql.engine.query_run import QueryRun
    from dpsql.ledger import BudgetState, RemainingBudget
    from dpsql.results.description import Description
    from dpsql.results.forecast import Forecast
    from dpsql.results.local_table import LocalTable
    from dpsql.results.synthetic_table import Stream, SyntheticTable

_P = ParamSpec("_P")
_T = TypeVar("_T")


class CombineOptions(TypedDict, total=False):
    """The keyword arguments of `Connection.combine`."""

    max_groups: int | None
    dialect: str | None


def _exclusive(
    method: Callable[Concatenate[Connection, _P], _T],
) -> Callable[Concatenate[Connection, _P], _T]:
    """Let one thread at a time run a method, among all methods on the same database connection."""

    @wraps(method)
    def run_exclusively(self: Connection, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._engine.lock():
            return method(self, *args, **kwargs)

    return run_exclusively


class Connection(BaseConnection):
    """A connection to private data under a policy; see `connect`.

    Threads that share a connection wait for each other, so that a charged answer always goes to the thread that asked. It is
    better to open one connection per thread (`threadsafety` is 1).

    Its parts are the engine while it is open, with the reservation that is charged; the queries, with their defaults; what makes
    synthetic tables; and the tables of the session.
    """

    def __init__(
        self,
        engine: Engine,
        epsilon: Fraction | None = None,
        dialect: str = "duckdb",
        *,
        replay: bool = True,
        shares_ledger: bool = False,
    ) -> None:
        # The parser and the engine's libraries load when a connection is opened, not with `import dpsql`.
        from dpsql.api.engine_queries import EngineQueries, OpenEngine, SyntheticTables
        from dpsql.api.session_tables import SessionTables

        self._engine = OpenEngine(engine, shares_ledger=shares_ledger)
        self._queries = EngineQueries(self._engine, QueryDefaults(epsilon, dialect, replay))
        self._synthetic = SyntheticTables(self._engine, _open_public_tables)
        self._session_tables = SessionTables(
            self._engine, self._queries, self._synthetic, _open_public_tables
        )

    @property
    def engine(self) -> Engine:
        """Return the engine of this connection.

        Raises:
            InterfaceError: if the connection is closed.
        """
        return self._engine.current

    def require_open(self) -> None:
        """Raise InterfaceError if the connection is closed."""
        self._engine.require_open()

    @_exclusive
    def query(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        epsilon: Amount | None = None,
        delta: Amount | None = None,
        max_groups: int | None = None,
        target_error: Amount | RelativeError | None = None,
        confidence: Amount | None = None,
        dialect: str | None = None,
        replay: bool | None = None,
    ) -> Result:
        """Return the private answer to a SELECT.

        A query whose plan, parameters, loss and data version were released before is replayed from the stored release, free,
        no matter who ran it first and in which words. Its noise is not drawn again, so repeated queries reveal nothing more.
        Post-processing of a release, such as ORDER BY, HAVING and arithmetic, may differ. `replay=False` makes a new release with
        new noise, which is charged.

        The query may set these options itself, `SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) …`. They precede the
        defaults of `connect`, and a different value in this call is refused.

        Args:
            sql: The text of the SELECT.
            parameters: A sequence with a value for each `?` of the text, or a dict with one for each `:name`. A list of values
                stands after IN.
            epsilon: The privacy loss. Under the accountant `pure` the answer is ε-DP; under `zcdp` the charge is that of an ε-DP
                answer.
            delta: The δ with which group keys that the policy does not list are selected, by default a part in proportion to the
                loss.
            max_groups: A lower bound on the groups to which a privacy unit contributes than the policy's.
            target_error: An accuracy in place of a loss: the query gets the smallest ε at which the noise of each value is at most
                this, in the value's own units, with probability `confidence`. A part of each released value, "5%" up to "50%", is
                met in several releases. Each is charged, and together they cost at most what one query may lose. If the target
                cannot be met, the answer is the last release, and `receipt.notices` says so.
            confidence: The probability that belongs to `target_error`, 0.95 by default.
            dialect: The dialect of the text. It is translated to DuckDB's SQL, and refused if the translation is not known to mean
                the same.
            replay: Whether stored releases may answer the query, by default as `connect` was called.

        Returns:
            The rows with the intervals of their noise, and a receipt.

        Raises:
            QueryRejected: if the query is not known to be safe; nothing was read or charged.
            BudgetExhausted: if the remaining budget is too small; nothing was read or charged.
            BackendError: if the engine fails after the charge, which stays.
        """
        options = QueryOptions(
            epsilon=epsilon,
            delta=delta,
            max_groups=max_groups,
            target_error=target_error,
            confidence=confidence,
            dialect=dialect,
            replay=replay,
        )
        query = self._queries.build_query(sql, parameters, options)
        in_session = self._session_tables.find_answer(sql, parameters, options)
        return self._queries.run(query) if in_session is None else in_session()

    @_exclusive
    def combine(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        max_groups: int | None = None,
        dialect: str | None = None,
    ) -> Result:
        """Return the most accurate answer that follows from stored releases, free.

        All stored releases of the same statistics, whatever their loss, are combined by their inverse variances, and the
        `intervals` are those of the combination. Values that are selected by noise, such as medians, and keys that the policy does
        not list come from the first release. Each analyst who may query the tables may combine, as for `query`.

        Args:
            sql: The text of the SELECT.
            parameters: The values of its parameters, as for `query`.
            max_groups: As for `query`.
            dialect: As for `query`.

        Returns:
            The answer, with a receipt that names the entries that paid for it.

        Raises:
            QueryRejected: with the code "nothing_released" if there is no stored release.
        """
        options: QueryOptions = {"max_groups": max_groups, "dialect": dialect, "replay": False}
        return self._queries.combine(self._queries.build_query(sql, parameters, options))

    @_exclusive
    def explain(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Explanation:
        """Return the plan of a query with its proofs and its price; nothing is charged, and nothing private is read.

        Args:
            sql: The text of the SELECT.
            parameters: The values of its parameters, as for `query`.
            **options: The other arguments of `query`.

        Returns:
            The explanation, which prints as text.

        Raises:
            QueryRejected: if the query would be refused.
        """
        query = self._queries.build_query(sql, parameters, options)
        in_session = self._session_tables.find_explanation(sql, parameters, options)
        return self._queries.explain(query) if in_session is None else in_session

    @_exclusive
    def plan(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> QueryRun:
        """Return the plan of a query for `answer`: that of `explain`, without a price. Nothing is charged, and nothing private is read.

        Args:
            sql: The text of the SELECT.
            parameters: The values of its parameters, as for `query`.
            **options: The other arguments of `query`.

        Raises:
            QueryRejected: if the query would be refused.
        """
        query = self._queries.build_query(sql, parameters, options)
        self._session_tables.require_no_session_tables(sql, options)
        return self._queries.plan(query)

    @_exclusive
    def answer(self, planned: QueryRun) -> Result:
        """Return the private answer to a query that `plan` planned, on this or on another connection of the same analyst and policy.

        The query is planned again if it names the time, or if public tables may have changed. The errors are those of `query`.
        """
        return self._queries.answer(planned)

    @_exclusive
    def _read_budgets(self) -> dict[str, BudgetState]:
        # A shared ledger has accounts of other analysts too.
        own = ("", self.engine.analyst)
        return {state.name: state for state in self.engine.ledger.list_states() if state.key.analyst in own}

    @_exclusive
    def remaining_budget(self, receipt: Receipt) -> tuple[RemainingBudget, ...]:
        """Return the budgets that remain in the accounts to which an answer was charged, by its receipt."""
        from dpsql.ledger.budget_state import AccountKey

        charged = (AccountKey(entry["table"], entry.get("account", "")) for entry in receipt.entries)
        return self.engine.ledger.list_remaining_budgets(dict.fromkeys(charged))

    @_exclusive
    def _forecast_queries(
        self, texts: Sequence[str], epsilon: Amount | None, dialect: str | None
    ) -> Forecast:
        return self._queries.forecast(texts, epsilon, dialect)

    def describe(self) -> Description:
        """Return the tables that may be queried, with the bounds and public values of their columns; then the tables of the session.

        It follows from the policy and from the session: nothing is charged, and nothing private is read.
        """
        from dpsql.engine.schema_description import describe_schema

        declared = describe_schema(self.engine.policy, self.engine.catalog)
        return self._session_tables.extend_description(declared)

    def is_free(self, sql: str) -> bool:
        """Return whether a statement reads only tables of the session, and costs nothing."""
        return self._session_tables.is_free(sql)

    def list_session_tables(self) -> Mapping[str, Sequence[str]]:
        """Return the columns of each table of this session; see `CREATE SYNTHETIC TABLE`."""
        return self._session_tables.list_columns()

    def disable_session_tables(self) -> None:
        """Refuse CREATE from now on, for a connection that several sessions use in turn."""
        self._session_tables.disable()

    def charge_probe(self, sql: str) -> Callable[[], str]:
        """Return a function that says whether a query was charged; call this before the query, and the function after Ctrl-C.

        It compares the ledger before and after, in which entries of other analysts may have been added meanwhile.
        """
        from dpsql.api.engine_queries import probe_charges

        return probe_charges(self._engine.unreserved, sql)

    def find_answer_time(self, receipt: Receipt) -> datetime | None:
        """Return the time at which the newest stored release of an answer was charged; None if no stored release was used."""
        entries = map(self._engine.unreserved.ledger.find_entry, receipt.replayed)
        return max((entry.at for entry in entries if entry is not None), default=None)

    @_exclusive
    def reserve(
        self, *, epsilon: Amount, delta: Amount | None = None, tables: Iterable[str] | None = None
    ) -> Reservation:
        """Reserve a part of the budget of private tables for the queries of this connection.

        The whole reservation is charged at once, durably, as one query with that `epsilon` and `delta` on the whole table would be.
        Until it ends, each query of this connection is charged to the reservation, and refused if the rest is too small; other
        connections cannot spend it. The policy's cap for one query applies within a reservation too.

        A reservation ends with its `with` block, with `Reservation.close`, or with `close`, and what was not spent is then returned.
        It also ends, with nothing returned, if the budget of a table is renewed.

        Args:
            epsilon: The ε to reserve of each table.
            delta: The δ to reserve, by default that of a query with this `epsilon`.
            tables: The names of the tables, by default all private tables.

        Returns:
            The open reservation.

        Raises:
            BudgetExhausted: if the budget of a table is too small; nothing is reserved then.
            ProgrammingError: if another reservation is open (`slice_held`), or a table is not private (`slice_table`).
        """
        loss, share = parse_amount(epsilon), None if delta is None else parse_amount(delta, "delta")
        return self._engine.reserve(loss, share, tables)

    @_exclusive
    def resume(self, number: int) -> Reservation:
        """Continue a reservation of the same analyst that is still open, as after a crash.

        Args:
            number: The number of the reservation, which `dpsql budget` lists.

        Raises:
            ProgrammingError: if there is no such reservation (`slice_closed`).
        """
        return self._engine.resume(number)

    @_exclusive
    def synthetic(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        epsilon: Amount | None = None,
        workload: Workload = "marginals(2)",
        method: str | None = None,
        rounds: int | None = None,
        max_groups: int | None = None,
        replay: bool | None = None,
    ) -> SyntheticTable:
        """Make a table of synthetic rows that are distributed like the rows of a query.

        The rows are as accurate as the loss allows on the marginals of the workload. All queries over the table are free. The loss is
        charged as that of a query, and the same table is replayed free, unless `replay=False`.

        Args:
            sql: A SELECT of columns of private rows, each with public values.
            parameters: The values of its parameters, as for `query`.
            epsilon: The privacy loss.
            workload: The marginals that matter: "marginals(k)" for all of k columns, or a list of groups of column names.
            method: "mwem" measures single columns, and then selects `rounds` marginals of the workload; it takes at most 16 columns
                whose values have at most 100,000 combinations. "mst" measures single columns and a tree of pairs that it selects; it
                takes up to 40 columns with any number of combinations, and does not depend on the workload. "blr" compares all small
                databases on tiny domains. The default is "mwem" if all combinations fit, and else "mst".
            rounds: The number of marginals that "mwem" selects, by default twice the number of columns.
            max_groups: As for `query`.
            replay: As for `query`.

        Returns:
            The table, with its distance from the private rows and a receipt.

        Raises:
            QueryRejected: if the rows are not known to be safe (`synthetic`, `synthetic_domain`); nothing was read or charged.
            ProgrammingError: for an unknown workload or method.
            BudgetExhausted: if the remaining budget is too small; nothing was read or charged.
        """
        options: QueryOptions = {"epsilon": epsilon, "max_groups": max_groups, "replay": replay}
        query = self._queries.build_query(sql, parameters, options)
        return self._synthetic.make_table(query, workload, method, rounds)

    @_exclusive
    def randomize(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        epsilon: Amount | None = None,
        max_groups: int | None = None,
        replay: bool | None = None,
    ) -> LocalTable:
        """Return the rows of a query with each value randomized on its own: a table that may be given to anyone.

        The loss covers one unit over all its rows and columns, and even the number of rows is noisy. All that is done with the rows
        is free, and `LocalTable.estimate` corrects for the noise. The loss is charged as that of a query, and the same table is
        replayed free, unless `replay=False`: a second table of the same rows reveals as much again.

        Args:
            sql: As for `synthetic`.
            parameters: As for `query`.
            epsilon: The privacy loss.
            max_groups: As for `query`.
            replay: As for `query`.

        Raises:
            Error: as `synthetic` does.
        """
        options: QueryOptions = {"epsilon": epsilon, "max_groups": max_groups, "replay": replay}
        query = self._queries.build_query(sql, parameters, options)
        return self._synthetic.randomize(query)

    @_exclusive
    def stream(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        epsilon: Amount | None = None,
        method: str = "pmw",
        workload: Workload = "marginals(2)",
        updates: int = 20,
        queries: int = 1000,
        max_groups: int | None = None,
    ) -> Stream:
        """Open a stream of counting queries over the rows of a query, at one price for any number of answers.

        A hypothesis answers each counting query; at first it is a synthetic table (see `synthetic`). If the hypothesis is wrong by
        more than noise, the rows are counted, with noise, and the hypothesis is updated. The rows are read once, when the stream is
        opened, and its whole loss is charged then. A stream is never replayed.

        Args:
            sql: As for `synthetic`.
            parameters: As for `query`.
            epsilon: The privacy loss of the whole stream.
            method: "pmw", private multiplicative weights.
            workload: As for `synthetic`.
            updates: How many times the hypothesis may be wrong before the stream ends.
            queries: About how many counting queries will be asked, which sets the error that counts as wrong.
            max_groups: As for `query`.

        Raises:
            Error: as `synthetic` does.
        """
        options: QueryOptions = {"epsilon": epsilon, "max_groups": max_groups, "replay": False}
        query = self._queries.build_query(sql, parameters, options)
        return self._synthetic.open_stream(query, method, workload, updates, queries)

    def rehearse(
        self, *, units: int = 1000, rows: int | None = None, public: str | Path | None = None
    ) -> Connection:
        """Return a connection to simulated rows under the same policy, on which queries can be tried free of charge.

        The rows are drawn from the policy alone, as `dpsql simulate` draws them. The budgets of the new connection are its own, and
        its ledger ends with it; its answers describe no real unit.

        Args:
            units: The number of privacy units.
            rows: The rows of each table in which a unit may have several, by default three per unit.
            public: The path of a DuckDB file from which public tables are copied; without it they are simulated too.
        """
        import dpsql.backends.simulated_rows as simulation
        from dpsql.policy.skeleton import drop_sources

        for name, number in (("units", units), ("rows", rows)):
            if number is not None and (type(number) is not int or number < 1):
                raise ProgrammingError(f"{name} must be a whole number of at least 1", code="argument")
        rules, analyst = drop_sources(self.engine.policy), self.engine.analyst
        size = simulation.SimulationSize(units, 3 * units if rows is None else rows)
        data = simulation.create_simulated_database(rules, size, None if public is None else Path(public))
        defaults = self._queries.defaults
        return Connection(
            _open_temporary_engine(data, rules, analyst),
            defaults.epsilon,
            defaults.dialect,
            replay=defaults.replay,
        )

    @_exclusive
    def _close(self) -> None:
        if self._engine.is_open:
            try:
                self._synthetic.close()
                self._session_tables.close_database()
            finally:
                self._engine.close()


def _open_temporary_engine(database: Any, policy: Any, analyst: str | None = None) -> Engine:
    """Open an engine over a database in memory, with a ledger that ends with it."""
    options = OwnerOptions(policy, ledger=":memory:", analyst=analyst)
    return open_engine(partial(open_database, database), options)


def _open_public_tables(database: Any, tables: Sequence[str]) -> Connection:
    """Return a connection to a database in memory, all of whose tables are public."""
    policy = {
        "version": 1,
        "privacy_unit": "none",
        "budget": {"epsilon": 1},
        "tables": {name: {"public": True} for name in tables},
    }
    return Connection(_open_temporary_engine(database, policy), Fraction(1))
