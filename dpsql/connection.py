"""The PEP 249 face: `connect`, Connection, Cursor, and the module attributes.

Charges are durable when a query returns, so there is nothing to commit or roll back.
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

from dpsql import errors
from dpsql.errors import InterfaceError, ProgrammingError
from dpsql.opening import get_ledger_path, get_user_name, open_server, with_sources
from dpsql.remote.address import is_address, is_database_url, is_spark
from dpsql.request.loss import Amount, parse_amount
from dpsql.request.parameters import Parameters
from dpsql.request.query import Query, QueryOptions, get_naive_utc_now
from dpsql.request.target import RelativeError
from dpsql.result import Receipt, Result
from dpsql.shared_ledger import SharedLedger
from dpsql.synthetic_connection import SyntheticConnection, exclusive

if TYPE_CHECKING:
    from datetime import datetime

    from dpsql.backends import Backend
    from dpsql.engine.description import Description
    from dpsql.engine.explain import Explanation
    from dpsql.engine.forecast import Forecast
    from dpsql.engine.pipeline import Engine
    from dpsql.engine.prepare import PreparedQuery
    from dpsql.engine.reservation import Reservation
    from dpsql.ledger import BudgetState, LedgerHead, RemainingBudget
    from dpsql.remote.connection import RemoteConnection

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
    """Opens private data for questions.

    `database` is the path of a DuckDB, Parquet, CSV, JSON, Arrow or SQLite file, or of a folder of such files, each of which is a table;
    the URL of a PostgreSQL database, `postgresql://…` (`pip install 'dpsql[postgres]'`); a SparkSession, or the URL of
    a Spark cluster, `spark://…`, or of Spark Connect, `sc://…` (`pip install 'dpsql[spark]'`); an open duckdb connection; or a dict of name → pandas, polars or Arrow table, or path, folder or pattern of files.
    Tables with a `source` in the policy need none. `policy` is a YAML path or text, a dict, or a `dpsql.policy.Policy`. `ledger` is the file
    that remembers what was spent; it defaults to the policy's path with the ending .ledger, and
    ":memory:" forgets at exit; a `SharedLedger` is one that several connections share. `epsilon` is the loss of a query that names none, by default the policy's `default_epsilon`. `anchor` is a small file,
    on another disk or machine, that holds how far the ledger has come: beside it an older ledger, or none, is
    refused. It is made with a new ledger and replaced after each charge. `ledger_key` is a secret of the owner's, or
    the path of a file that holds it: what the ledger says cannot be changed without it. A new ledger is made with it,
    and opens with it alone. `dialect` is that of queries which name none: duckdb, postgres, spark, snowflake,
    bigquery or tsql. `replay=False` asks for new noise, and a new charge, in each query that does not say otherwise:
    see `Connection.query`. `reserve` is the ε that is reserved of each private table until the connection closes: see
    `Connection.reserve`. `temp_directory` lets the engine write what does not fit into memory to a folder of its own in
    that directory, private to this user and removed at the end; at most `temp_limit`, as "20GB", or half of the free
    space. Without it nothing is written to disk, and a query that needs more memory than four fifths of the machine's
    fails.

    `database` may be the address of a server, as "https://dp.example.org:8439": then `token` says who asks, by default
    what the environment's DPSQL_TOKEN holds, `tls_ca` is a file with the authorities that the server's certificate is
    held against, in place of the system's, and what belongs to the owner (policy, ledger, data) is the server's.

    A ledger is of one database, for which alone a release is answered again or refined: the policy's `database` names
    it, else the file's path does; without a name what is in memory is another one for each connection. Raises PolicyError where the policy is wrong, asks for what the database does not have, or has another one than the
    ledger (`another_database`), IntegrityError where the ledger was edited (`ledger_tampered`) or is older than its
    anchor knows (`ledger_rolled_back`).
    """
    if is_address(database):
        owners = (policy, ledger, analyst, anchor, ledger_key, reserve, temp_directory, temp_limit)
        return _open_remote(database, token, tls_ca, (epsilon, dialect, replay), owners)
    if policy is None:
        raise ProgrammingError(
            "no policy given",
            code="policy_missing",
            hint='connect(…, policy="name.yaml")',
        )
    if token is not None or tls_ca is not None:
        raise ProgrammingError(
            "a token is only valid with the URL of a server, and this database is opened in this process",
            code="argument",
            hint='connect("https://host:8439", token=…)',
        )

    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.engine.budgets import collect_budgets
    from dpsql.engine.identity import find_ledger_identity
    from dpsql.engine.pipeline import Engine
    from dpsql.ledger import open_ledger  # the engine and its libraries load when they are needed
    from dpsql.ledger.open import is_url
    from dpsql.policy import load
    from dpsql.sql.read.dialect import require_dialect

    require_dialect(dialect)
    rules = load(policy)
    target = ledger if ledger is not None else get_ledger_path(policy)
    shared = target if isinstance(target, SharedLedger) else None
    if shared is not None and not (anchor is None and ledger_key is None):
        raise ProgrammingError(
            "a shared ledger has its own anchor and key",
            code="shared_ledger",
            hint="SharedLedger(…, anchor=…, ledger_key=…)",
        )
    place = target.target if isinstance(target, SharedLedger) else target
    host = platform.node() if is_url(place) else ""
    backend: Backend = (
        database
        if isinstance(database, DuckDBBackend)
        else open_server(database, rules, policy, spills=temp_directory is not None)
        if is_database_url(database) or is_spark(database)
        else DuckDBBackend(
            with_sources(database, rules, policy),
            host=host,
            types=rules.get_column_types(),
            temp_directory=temp_directory,
            temp_limit=temp_limit,
        )
    )
    try:
        who = rules.resolve_analyst_name(analyst or get_user_name())
        if isinstance(target, SharedLedger):
            book = target.open_for_connection(rules, who, find_ledger_identity(rules, backend))
        else:
            book = open_ledger(
                target,
                collect_budgets(rules, [who]),
                anchor=anchor,
                key=ledger_key,
                database=find_ledger_identity(rules, backend),
                max_failures=rules.get_failure_limits(),
            )
        engine = Engine(rules, backend, book, who)
        engine.catalog  # noqa: B018  (the policy is held against the database now, not at the first query)
    except errors.Error:
        backend.close()
        raise
    default = rules.default_epsilon if epsilon is None else parse_amount(epsilon)
    con = Connection(engine, default, dialect, replay=replay)
    con._shares_ledger = shared is not None  # noqa: SLF001  (this makes it)
    if reserve is not None:
        try:
            con.reserve(epsilon=reserve)
        except errors.Error:
            con.close()
            raise
    return con


def _open_remote(
    url: str,
    token: str | None,
    tls_ca: str | Path | None,
    defaults: tuple[Amount | None, str, bool],
    owners: tuple[Any, ...],
) -> RemoteConnection:
    from dpsql.remote.connection import RemoteConnection

    if any(given is not None for given in owners):
        raise ProgrammingError(
            "policy, ledger, analyst and reservations are the server's: its token says who asks",
            code="argument",
            hint="connect(url, token=…, epsilon=…, dialect=…, replay=…, tls_ca=…)",
        )
    found = os.environ.get("DPSQL_TOKEN", "") if token is None else token
    epsilon, dialect, replay = defaults
    loss = None if epsilon is None else parse_amount(epsilon)
    return RemoteConnection(url, found, epsilon=loss, dialect=dialect, replay=replay, tls_ca=tls_ca)


class CombineOptions(TypedDict, total=False):
    """The keyword arguments of `Connection.combine_stored_releases`."""

    max_groups: int | None
    dialect: str | None


class Connection(SyntheticConnection):
    """A connection to private data under a policy; see `connect`.

    Threads that share one wait for each other, so that nothing is charged whose answer goes to another thread or to
    none. They had better have connections of their own (`threadsafety` is 1).
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
        """The engine behind this connection. Raises InterfaceError once it is closed."""
        if self._closed:
            raise InterfaceError("the connection is closed", hint="dpsql.connect(…) opens another")
        return self._current_engine

    def _open_database(self, database: Any, policy: dict[str, Any]) -> Connection:
        return connect(database, policy=policy, ledger=":memory:", epsilon=1)

    def require_open(self) -> None:
        """Raises InterfaceError once the connection is closed."""
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
        """The private answer to a SELECT.

        `parameters` stand for the `?` of the text, or, as a dict, for its `:name`; a list stands after IN. `epsilon` is the loss: under `pure` the answer is
        ε-DP, under `zcdp` it is charged as an ε-DP answer would be. `delta` is for choosing group keys
        that the policy does not declare; by default it is spent in proportion to the loss.
        `max_groups` lowers the number of groups of a privacy unit that count. `target_error` asks for an accuracy
        instead of a loss: the query gets the least ε at which the noise of each value is at most that, in its own
        units, with probability `confidence`, 0.95 unless stated. As a part of each released value, "5%" up to "50%", it
        is met in several releases, each charged, together at most what one query may lose; where it cannot be, the last
        of them is the answer, and `receipt.notices` says so. The query may say all of these itself,
        `SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) …`: that goes before what `connect` was told, and
        is refused beside another value here. `dialect` is that of the text: it is put into DuckDB's SQL, and refused
        where that is not known to mean the same.

        What was released before for the same plan, parameters, loss and data version is answered again, free, whoever
        asked for it and in whatever words: noise is not drawn anew, so asking often tells no more. What is done with
        a release, as ORDER BY, HAVING and arithmetic, may differ. `replay=False` asks for a release with noise of its
        own, and is charged.

        Raises QueryRejected for what is not known to be safe and BudgetExhausted where the budget does
        not suffice, both before anything is read or charged; BackendError if the engine fails after
        the charge.
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
        with self.engine.backend.open_snapshot():
            return self._answer_prepared(self.engine.plan_and_match(asked))

    def _answer_prepared(self, prepared: PreparedQuery) -> Result:
        from dpsql.engine.progressive import answer_in_steps

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
        """The most accurate answer that follows from stored releases, at no charge.

        All stored releases of the same statistics, whatever their loss, are combined by their inverse variances, and
        `intervals` are those of the combination. Of values that are selected by their noise, as medians and keys
        that the policy does not know, it answers the first release. Whoever may query the tables gets it, as `query` does.

        Raises QueryRejected with code "nothing_released" where there is no stored release.
        """
        asked = self._build_query(sql, parameters, max_groups=max_groups, dialect=dialect, replay=False)
        with self.engine.backend.open_snapshot():
            return self.engine.combine_stored_releases(asked)

    def best(self, sql: str, parameters: Parameters = (), **options: Unpack[CombineOptions]) -> Result:
        """The former name of `combine`."""
        warnings.warn(
            "Connection.best is now called combine; the old name goes with the next version.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.combine(sql, parameters, **options)

    @exclusive
    def explain(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Explanation:
        """The plan with its proofs and its price; charges nothing and reads nothing private.

        The arguments are those of `query`.
        """
        asked = self._build_query(sql, parameters, **options)
        in_session = self._session.find_explanation(sql, parameters, options)
        if in_session is not None:
            return in_session
        with self.engine.backend.open_snapshot():
            prepared = self.engine.plan_and_match(asked, forecast=True)
            self.engine.require_bindable(prepared)
            return self._explain_prepared(prepared)

    @exclusive
    def plan(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> PreparedQuery:
        """The plan of a query, for `answer`: what `explain` shows, without its price; charges nothing and reads nothing private.

        The arguments are those of `query`.
        """
        asked = self._build_query(sql, parameters, **options)
        self._session.require_no_session_tables(sql, options)
        with self.engine.backend.open_snapshot():
            return self.engine.plan(asked)

    @exclusive
    def answer(self, planned: PreparedQuery) -> Result:
        """The private answer to what `plan` has planned, here or on another connection of the same analyst, under the same policy.

        It is planned again where it names the time, or where public tables may have changed since. Raises as `query`.
        """
        self.require_open()
        with self.engine.backend.open_snapshot():
            if planned.constants or not self.engine.backend.is_unchanging:
                planned = self.engine.plan(replace(planned.query, time=get_naive_utc_now()))
            return self._answer_prepared(self.engine.match_stored(planned))

    def _explain_prepared(self, prepared: PreparedQuery) -> Explanation:
        from dpsql.engine.explain import Explanation

        return Explanation.from_prepared(self.engine, prepared)

    @exclusive
    def _read_budgets(self) -> dict[str, BudgetState]:
        # A shared ledger has accounts of other analysts too.
        own = ("", self.engine.analyst)
        return {state.name: state for state in self.engine.ledger.list_states() if state.key.analyst in own}

    @exclusive
    def remaining_budget(self, receipt: Receipt) -> tuple[RemainingBudget, ...]:
        """What is left now in the accounts to which an answer was charged, by its receipt."""
        from dpsql.ledger.protocol import AccountKey

        charged = (AccountKey(entry["table"], entry.get("account", "")) for entry in receipt.entries)
        return self.engine.ledger.list_remaining_budgets(dict.fromkeys(charged))

    @exclusive
    def _forecast_plan(
        self, plan: str | Sequence[str], epsilon: Amount | None, dialect: str | None
    ) -> Forecast:
        if self._reservation is not None:
            raise ProgrammingError(
                "a forecast covers whole budgets, and this connection spends from its reservation",
                code="slice_forecast",
                hint="forecast before con.reserve(…); con.explain(sql) says what one query costs",
            )
        from dpsql.engine.forecast import Forecast

        texts = [plan] if isinstance(plan, str) else plan
        asked = [self._build_query(sql, (), dialect=dialect) for sql in texts]
        if epsilon is not None:
            loss = parse_amount(epsilon)
            asked = [replace(query, default=loss) for query in asked]
        with self.engine.backend.open_snapshot():
            prepared = [self.engine.plan_and_match(query, forecast=True) for query in asked]
            for part in prepared:
                self.engine.require_bindable(part)
            return Forecast.from_queries(self.engine, prepared)

    def describe(self) -> Description:
        """The tables that may be queried, with the bounds and public values of their columns, from the policy alone; then those of the session."""
        from dpsql.engine.description import Description

        return self._session.extend_description(
            Description.from_catalog(self.engine.policy, self.engine.catalog)
        )

    def charge_probe(self, sql: str) -> Callable[[], str]:
        """Called before a query is asked: what it returns says, after Ctrl-C, whether the query was charged.

        It reads the ledger, which may have entries of others' meanwhile.
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
        """When the newest stored release was charged that an answer rests on; None where it rests on none."""
        entries = map(self._engine.ledger.find_entry, receipt.replayed)
        return max((entry.at for entry in entries if entry is not None), default=None)

    @exclusive
    def reserve(
        self, *, epsilon: Amount, delta: Amount | None = None, tables: Iterable[str] | None = None
    ) -> Reservation:
        """Reserves a part of the budget of each private table, or of those named, for this connection's queries.

        It is charged at once and whole, durably, as one query with that `epsilon` and `delta` on the whole table would
        be; δ is by default what goes with such a query. Until the reservation ends, all that this connection asks is
        charged to it, and refused where it does not suffice; others cannot spend it. A `with` ends it, and so do
        `Reservation.close` and `close`: what is not spent is given back then. It ends by itself, without anything given
        back, where a budget begins anew. A policy's cap is for each query, within a reservation too.

        Raises BudgetExhausted, with nothing reserved, where a budget does not suffice; ProgrammingError, `slice_held`
        while another reservation is open, `slice_table` for what is no private table.
        """
        from dpsql.engine.reservation import reserve_budgets

        loss, share = parse_amount(epsilon), None if delta is None else parse_amount(delta, "delta")
        self._require_no_reservation()
        return self._hold_reservation(
            reserve_budgets(self.engine, self._drop_reservation, loss, share, tables)
        )

    @exclusive
    def resume(self, number: int) -> Reservation:
        """Takes up a reservation of the same analyst that is still open, by its number, as after a crash.

        Raises ProgrammingError where there is none (`slice_closed`).
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
        """A connection to invented rows under the same policy, whose ledger ends with it: queries are tried free of charge.

        The rows are drawn from the policy alone, as `dpsql simulate` draws them: `units` privacy units, and `rows` in each
        table in which a unit may have several, by default three a unit. Public tables are invented too, or copied from
        the DuckDB file `public`. What is spent here is not spent there, and answers are about no real unit.
        """
        import dpsql.backends.simulated as simulation
        from dpsql.policy.other_data import drop_sources

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
