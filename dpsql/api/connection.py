"""The public interface by PEP 249: `connect`, Connection, and the module attributes.

A charge is durable when its query returns, so there is nothing to commit or roll back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from dpsql import errors
from dpsql.api.opening import open_engine, open_remote
from dpsql.api.remote.address import is_address
from dpsql.api.shared_ledger import SharedLedger
from dpsql.api.synthetic_connection import SyntheticConnection, exclusive
from dpsql.errors import InterfaceError, ProgrammingError
from dpsql.policy.request.loss import Amount, parse_amount
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import Query, QueryOptions, get_naive_utc_now
from dpsql.policy.request.target import RelativeError
from dpsql.results.result import Receipt, Result

if TYPE_CHECKING:
    from datetime import datetime

    from dpsql.api.remote.connection import RemoteConnection
    from dpsql.engine.engine import Engine
    from dpsql.engine.explain import Explanation
    from dpsql.engine.forecast import Forecast
    from dpsql.engine.query_run import QueryRun
    from dpsql.engine.reservation import Reservation
    from dpsql.engine.schema_description import Description
    from dpsql.ledger import BudgetState, LedgerHead, RemainingBudget

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"


@overload
def connect(
    database: Any = None,
    *,
    policy: Any,
    ledger: str | Path | SharedLedger | None = None,
    analyst: str | None = None,
    epsilon: Amount | None = None,
    anchor: LedgerHead | str | Path | None = None,
    ledger_key: bytes | str | Path | None = None,
    dialect: str = "duckdb",
    replay: bool = True,
    reserve: Amount | None = None,
    temp_directory: str | Path | None = None,
    temp_limit: str | None = None,
) -> Connection: ...


@overload
def connect(
    database: str,
    *,
    token: str | None = None,
    tls_ca: str | Path | None = None,
    epsilon: Amount | None = None,
    dialect: str = "duckdb",
    replay: bool = True,
) -> RemoteConnection: ...


def connect(
    database: Any = None,
    *,
    policy: Any = None,
    ledger: str | Path | SharedLedger | None = None,
    analyst: str | None = None,
    epsilon: Amount | None = None,
    anchor: LedgerHead | str | Path | None = None,
    ledger_key: bytes | str | Path | None = None,
    dialect: str = "duckdb",
    replay: bool = True,
    reserve: Amount | None = None,
    temp_directory: str | Path | None = None,
    temp_limit: str | None = None,
    token: str | None = None,
    tls_ca: str | Path | None = None,
) -> Connection | RemoteConnection:
    """Open private data for queries.

    With a database of this process, `policy` is required. With the address of a server, such as "https://dp.example.org:8439",
    only `token`, `tls_ca`, `epsilon`, `dialect` and `replay` apply: the server has the policy, the ledger and the data.

    A stored release is only replayed or refined for the database that it was made from. The policy's `database` names that
    database, or else the path of its file does. A database in memory without a name is a new one for each connection.

    Args:
        database: The path of a DuckDB, Parquet, CSV, JSON, Arrow or SQLite file, or of a folder of such files, each of which is
            a table; the URL of a PostgreSQL database, `postgresql://…` (`pip install 'dpsql[postgres]'`); a SparkSession, or
            the URL of a Spark cluster, `spark://…`, or of Spark Connect, `sc://…` (`pip install 'dpsql[spark]'`); an open
            duckdb connection; a dict of name → pandas, polars or Arrow table, or path, folder or pattern of files; or the
            address of a server. None if the policy names a `source` for each table.
        policy: The path or the text of a YAML file, a dict, or a `dpsql.policy.Policy`.
        ledger: The file that records the charges, by default the policy's path with the ending .ledger. ":memory:" is a ledger
            that ends with the process; a `SharedLedger` is one that several connections share.
        analyst: The name of the analyst, by default that of the user of the operating system.
        epsilon: The loss of a query that names none, by default the policy's `default_epsilon`.
        anchor: A small file, on another disk or machine, that records the state of the ledger. It is made with a new ledger and
            replaced after each charge; an older or a missing ledger is then refused.
        ledger_key: A secret of the owner, or the path of a file with it. The ledger cannot be changed without it. A new ledger
            is made with the key, and then opens only with it.
        dialect: The dialect of queries that name none: duckdb, postgres, spark, snowflake, bigquery or tsql.
        replay: False draws new noise, with a new charge, for each query that does not set `replay` itself; see
            `Connection.query`.
        reserve: The ε to reserve of each private table until the connection closes; see `Connection.reserve`.
        temp_directory: A directory in which the engine may write what does not fit into memory. It makes a folder of its own
            there, private to this user, and removes it at the end. Without it nothing is written to disk, and a query that
            needs more than four fifths of the machine's memory fails.
        temp_limit: The most that may be written to `temp_directory`, such as "20GB"; by default half of the free space.
        token: The token that identifies the analyst to a server, by default the environment variable DPSQL_TOKEN.
        tls_ca: A file with the authorities that may have signed the server's certificate, in place of those of the system.

    Returns:
        A `Connection`, or a `RemoteConnection` for the address of a server.

    Raises:
        PolicyError: if the policy is wrong, names what the database does not have, or if the ledger was made for another
            database (`another_database`).
        IntegrityError: if the ledger was edited (`ledger_tampered`), or is older than its anchor (`ledger_rolled_back`).
        ProgrammingError: if arguments are missing or contradict each other.
    """
    if is_address(database):
        owners = (policy, ledger, analyst, anchor, ledger_key, reserve, temp_directory, temp_limit)
        return open_remote(database, token, tls_ca, (epsilon, dialect, replay), owners)
    if policy is None:
        raise ProgrammingError(
            "no policy given",
            code="policy_missing",
            hint='connect(…, policy="name.yaml")',
        )
    if token is not None or tls_ca is not None:
        raise ProgrammingError(
            "token is only valid with the URL of a server, and this database is opened in this process",
            code="argument",
            hint='connect("https://host:8439", token=…)',
        )

    # The engine and its libraries load when they are needed.
    from dpsql.sql.parse.dialect import require_dialect

    require_dialect(dialect)
    engine = open_engine(
        database,
        policy,
        ledger,
        analyst,
        anchor=anchor,
        ledger_key=ledger_key,
        temp=(temp_directory, temp_limit),
    )
    default = engine.policy.default_epsilon if epsilon is None else parse_amount(epsilon)
    con = Connection(engine, default, dialect, replay=replay)
    con._shares_ledger = isinstance(ledger, SharedLedger)  # noqa: SLF001  (this makes it)
    if reserve is not None:
        try:
            con.reserve(epsilon=reserve)
        except errors.Error:
            con.close()
            raise
    return con


class CombineOptions(TypedDict, total=False):
    """The keyword arguments of `Connection.combine`."""

    max_groups: int | None
    dialect: str | None


class Connection(SyntheticConnection):
    """A connection to private data under a policy; see `connect`.

    Threads that share a connection wait for each other, so that a charged answer always goes to the thread that asked. It is
    better to open one connection per thread (`threadsafety` is 1).
    """

    def __init__(
        self, engine: Engine, epsilon: Any = None, dialect: str = "duckdb", *, replay: bool = True
    ) -> None:
        self._engine = self._current_engine = engine
        self._reservation: Reservation | None = None
        self._epsilon = epsilon
        self._dialect = dialect
        self._replay = replay
        self._closed = False
        self._shares_ledger = False
        self._cell_tables = []

    @property
    def engine(self) -> Engine:
        """Return the engine of this connection.

        Raises:
            InterfaceError: if the connection is closed.
        """
        if self._closed:
            raise InterfaceError("the connection is closed", hint="dpsql.connect(…) opens another")
        return self._current_engine

    def _open_database(self, database: Any, policy: dict[str, Any]) -> Connection:
        return connect(database, policy=policy, ledger=":memory:", epsilon=1)

    def require_open(self) -> None:
        """Raise InterfaceError if the connection is closed."""
        self.engine  # noqa: B018  (refuses a closed connection)

    @exclusive
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
        options: QueryOptions = {
            "epsilon": epsilon,
            "delta": delta,
            "max_groups": max_groups,
            "target_error": target_error,
            "confidence": confidence,
            "dialect": dialect,
            "replay": replay,
        }
        asked = self._build_query(sql, parameters, **options)
        in_session = self._session.find_answer(sql, parameters, options)
        if in_session is not None:
            return in_session()
        from dpsql.engine.replays import plan_and_match

        with self.engine.backend.open_snapshot():
            return self._answer_prepared(plan_and_match(self.engine, asked))

    def _answer_prepared(self, prepared: QueryRun) -> Result:
        from dpsql.engine.relative_targets import answer_in_steps

        if prepared.explain:
            return self._explain_prepared(prepared).to_result()
        result = answer_in_steps(self.engine, prepared)
        self.engine.stops.require_not_stopped()
        return result

    @exclusive
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
        asked = self._build_query(sql, parameters, max_groups=max_groups, dialect=dialect, replay=False)
        from dpsql.engine.replays import combine_stored_releases

        with self.engine.backend.open_snapshot():
            return combine_stored_releases(self.engine, asked)

    @exclusive
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
        asked = self._build_query(sql, parameters, **options)
        in_session = self._session.find_explanation(sql, parameters, options)
        if in_session is not None:
            return in_session
        from dpsql.engine.forecast import plan_for_forecast

        with self.engine.backend.open_snapshot():
            return self._explain_prepared(plan_for_forecast(self.engine, asked))

    @exclusive
    def plan(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> QueryRun:
        """Return the plan of a query for `answer`: that of `explain`, without a price. Nothing is charged, and nothing private is read.

        Args:
            sql: The text of the SELECT.
            parameters: The values of its parameters, as for `query`.
            **options: The other arguments of `query`.

        Raises:
            QueryRejected: if the query would be refused.
        """
        asked = self._build_query(sql, parameters, **options)
        self._session.require_no_session_tables(sql, options)
        from dpsql.engine.stages import prepare_query

        with self.engine.backend.open_snapshot():
            return prepare_query(self.engine, asked)

    @exclusive
    def answer(self, planned: QueryRun) -> Result:
        """Return the private answer to a query that `plan` planned, on this or on another connection of the same analyst and policy.

        The query is planned again if it names the time, or if public tables may have changed. The errors are those of `query`.
        """
        from dpsql.engine.replays import match_stored
        from dpsql.engine.stages import prepare_query

        self.require_open()
        with self.engine.backend.open_snapshot():
            if planned.constants or not self.engine.backend.is_unchanging:
                planned = prepare_query(self.engine, replace(planned.query, time=get_naive_utc_now()))
            return self._answer_prepared(match_stored(self.engine, planned))

    def _explain_prepared(self, prepared: QueryRun) -> Explanation:
        from dpsql.engine.explain import Explanation

        return Explanation.from_prepared(self.engine, prepared)

    @exclusive
    def _read_budgets(self) -> dict[str, BudgetState]:
        # A shared ledger has accounts of other analysts too.
        own = ("", self.engine.analyst)
        return {state.name: state for state in self.engine.ledger.list_states() if state.key.analyst in own}

    @exclusive
    def remaining_budget(self, receipt: Receipt) -> tuple[RemainingBudget, ...]:
        """Return the budgets that remain in the accounts to which an answer was charged, by its receipt."""
        from dpsql.ledger.protocol import AccountKey

        charged = (AccountKey(entry["table"], entry.get("account", "")) for entry in receipt.entries)
        return self.engine.ledger.list_remaining_budgets(dict.fromkeys(charged))

    @exclusive
    def _forecast_plan(
        self, plan: str | Sequence[str], epsilon: Amount | None, dialect: str | None
    ) -> Forecast:
        if self._reservation is not None:
            raise ProgrammingError(
                "a forecast covers whole budgets, so it is not available while the connection holds a reservation",
                code="slice_forecast",
                hint="forecast before con.reserve(…); con.explain(sql) says what one query costs",
            )
        from dpsql.engine.forecast import Forecast, plan_for_forecast

        texts = [plan] if isinstance(plan, str) else plan
        asked = [self._build_query(sql, (), dialect=dialect) for sql in texts]
        if epsilon is not None:
            loss = parse_amount(epsilon)
            asked = [replace(query, default=loss) for query in asked]
        with self.engine.backend.open_snapshot():
            prepared = [plan_for_forecast(self.engine, query) for query in asked]
            return Forecast.from_queries(self.engine, prepared)

    def describe(self) -> Description:
        """Return the tables that may be queried, with the bounds and public values of their columns; then the tables of the session.

        It follows from the policy and from the session: nothing is charged, and nothing private is read.
        """
        from dpsql.engine.schema_description import Description

        return self._session.extend_description(
            Description.from_catalog(self.engine.policy, self.engine.catalog)
        )

    def charge_probe(self, sql: str) -> Callable[[], str]:
        """Return a function that says whether a query was charged; call this before the query, and the function after Ctrl-C.

        It compares the ledger before and after, in which entries of other analysts may have been added meanwhile.
        """
        engine = self._engine
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
            counted = (
                "; it counts as a failure of its tables"
                if any(entry.kind == "failure" for entry in found)
                else ""
            )
            return f"interrupted after the charge, which stays: ledger {several} {', '.join(own)}{counted}"

        return describe_charge

    def find_answer_time(self, receipt: Receipt) -> datetime | None:
        """Return the time at which the newest stored release of an answer was charged; None if no stored release was used."""
        entries = map(self._engine.ledger.find_entry, receipt.replayed)
        return max((entry.at for entry in entries if entry is not None), default=None)

    @exclusive
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
        from dpsql.engine.reservation import reserve_budgets

        loss, share = parse_amount(epsilon), None if delta is None else parse_amount(delta, "delta")
        self._require_no_reservation()
        return self._hold_reservation(
            reserve_budgets(self.engine, self._drop_reservation, loss, share, tables)
        )

    @exclusive
    def resume(self, number: int) -> Reservation:
        """Continue a reservation of the same analyst that is still open, as after a crash.

        Args:
            number: The number of the reservation, which `dpsql budget` lists.

        Raises:
            ProgrammingError: if there is no such reservation (`slice_closed`).
        """
        from dpsql.engine.reservation import resume_reservation

        self._require_no_reservation()
        return self._hold_reservation(resume_reservation(self.engine, self._drop_reservation, number))

    def _require_no_reservation(self) -> None:
        if self._reservation is not None:
            raise ProgrammingError(
                f"this connection holds reservation {self._reservation.number} already",
                code="slice_held",
                hint="close it first, or open another connection",
            )

    def _hold_reservation(self, held: Reservation) -> Reservation:
        self._reservation, self._current_engine = held, replace(self._engine, reservation=held.number)
        return held

    @exclusive
    def _drop_reservation(self) -> None:
        self._reservation, self._current_engine = None, self._engine

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
        rules = drop_sources(self.engine.policy)
        size = simulation.SimulationSize(units, 3 * units if rows is None else rows)
        data = simulation.create_simulated_database(rules, size, None if public is None else Path(public))
        return connect(
            data,
            policy=rules,
            ledger=":memory:",
            analyst=self.engine.analyst,
            epsilon=self._epsilon,
            dialect=self._dialect,
            replay=self._replay,
        )

    @exclusive
    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            for cells in self._cell_tables:
                cells.close()
            self._session.close_database()
            try:
                if self._reservation is not None:
                    self._reservation.close()
            finally:
                self._engine.backend.close()
                if not self._shares_ledger:
                    self._engine.ledger.close()

    def _build_query(self, sql: str, parameters: Parameters, **options: Unpack[QueryOptions]) -> Query:
        self.require_open()
        return Query.from_call(
            sql,
            parameters,
            epsilon=options.get("epsilon"),
            delta=options.get("delta"),
            max_groups=options.get("max_groups"),
            target_error=options.get("target_error"),
            confidence=options.get("confidence"),
            dialect=options.get("dialect") or self._dialect,
            replay=self._replay if (replay := options.get("replay")) is None else replay,
            default=self._epsilon,
        )
