"""The methods of a connection for synthetic tables, randomized tables and streams of counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from dpsql.api.base_connection import BaseConnection
from dpsql.errors import ProgrammingError, QueryRejected
from dpsql.policy.request.loss import Amount
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import Query, QueryOptions
from dpsql.results.local_table import LocalTable
from dpsql.results.result import Receipt
from dpsql.results.stream import Stream
from dpsql.results.synthetic_table import SyntheticTable

if TYPE_CHECKING:
    from dpsql.api.session_tables import SessionConnection, SessionTables
    from dpsql.engine.engine import Engine
    from dpsql.engine.explain import Explanation
    from dpsql.engine.synthetic import PreparedSynthesis
    from dpsql.privacy.synthesis.stream import Cells, RunningStream, StreamedCount
    from dpsql.privacy.synthesis.workload import Counts

_P = ParamSpec("_P")
_T = TypeVar("_T")
_C = TypeVar("_C", bound="SyntheticConnection")


def exclusive(
    method: Callable[Concatenate[_C, _P], _T],
) -> Callable[Concatenate[_C, _P], _T]:
    """Let one thread at a time run a method, among all methods on the same database connection."""

    @wraps(method)
    def run_exclusively(self: _C, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._engine.backend.lock():
            return method(self, *args, **kwargs)

    return run_exclusively


class SyntheticConnection(BaseConnection):
    """A connection in this process that makes synthetic tables and opens streams."""

    _engine: Engine
    _dialect: str
    _cell_tables: list[_CellTable]
    """The tables of cells of its streams, which end with it."""

    @property
    @abstractmethod
    def engine(self) -> Engine:
        """Return the engine of this connection.

        Raises:
            InterfaceError: if the connection is closed.
        """

    @abstractmethod
    def _build_query(self, sql: str, parameters: Parameters, **options: Unpack[QueryOptions]) -> Query: ...

    @abstractmethod
    def explain(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Explanation:
        """Return the plan of a query with its proofs and its price; see `Connection.explain`."""

    @abstractmethod
    def _open_database(self, database: Any, policy: dict[str, Any]) -> SyntheticConnection:
        """Return a connection to a database in memory."""

    @exclusive
    def synthetic(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        epsilon: Amount | None = None,
        workload: str | Iterable[Sequence[str] | str] = "marginals(2)",
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
        from dpsql.engine.synthetic import prepare_synthetic_table

        asked = self._build_query(sql, parameters, epsilon=epsilon, max_groups=max_groups, replay=replay)
        with self.engine.backend.open_snapshot():
            return self._make_synthetic_table(
                prepare_synthetic_table(self.engine, asked, workload, method, rounds)
            )

    def _make_synthetic_table(self, prepared: PreparedSynthesis) -> SyntheticTable:
        from dpsql.engine.synthetic import make_synthetic_table

        return replace(make_synthetic_table(self.engine, prepared), _connect=self._connect_to_table)

    @exclusive
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
        from dpsql.engine.synthetic import make_local_table, prepare_local_table

        asked = self._build_query(sql, parameters, epsilon=epsilon, max_groups=max_groups, replay=replay)
        with self.engine.backend.open_snapshot():
            return make_local_table(self.engine, prepare_local_table(self.engine, asked))

    @exclusive
    def stream(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        epsilon: Amount | None = None,
        method: str = "pmw",
        workload: str | Iterable[Sequence[str] | str] = "marginals(2)",
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
        from dpsql.engine.streams import open_stream
        from dpsql.engine.synthetic import prepare_stream

        if method != "pmw":
            raise ProgrammingError(f"there is no method {method!r}", code="synthetic_method", hint="'pmw'")
        asked = self._build_query(sql, parameters, epsilon=epsilon, max_groups=max_groups, replay=False)
        with self.engine.backend.open_snapshot():
            prepared = prepare_stream(self.engine, asked, workload, updates, queries)
            running, receipt = open_stream(self.engine, prepared.prepared)
        return self._build_stream(prepared, running, receipt)

    def disable_session_tables(self) -> None:
        """Refuse CREATE from now on, for a connection that several sessions use in turn."""
        from dpsql.api.session_tables import SessionTables

        self._session = SessionTables(_ConnectionHost(self), is_enabled=False)

    def is_free(self, sql: str) -> bool:
        """Return whether a statement reads only tables of the session, and costs nothing."""
        return self._session.is_free(sql)

    def list_session_tables(self) -> Mapping[str, Sequence[str]]:
        """Return the columns of each table of this session; see `CREATE SYNTHETIC TABLE`."""
        return self._session.list_columns()

    @cached_property
    def _session(self) -> SessionTables:
        from dpsql.api.session_tables import SessionTables

        return SessionTables(_ConnectionHost(self))

    def _build_stream(self, prepared: PreparedSynthesis, running: RunningStream, receipt: Receipt) -> Stream:
        from dpsql.engine.streams import answer_stream_query, require_current_entry
        from dpsql.engine.synthetic import build_hypothesis_table

        cut, entry = _CellTable(prepared, self._open_database), receipt.entries[0]["id"]
        self._cell_tables.append(cut)
        engine = self.engine
        charged = engine.ledger.find_entry(entry)

        def answer_cells(cells: Cells) -> StreamedCount:
            with self.engine.backend.lock():
                return answer_stream_query(engine, running, cells, prepared.prepared, charged)

        def build_table(histogram: Counts) -> SyntheticTable:
            require_current_entry(engine, charged)
            return replace(
                build_hypothesis_table(prepared, histogram, receipt), _connect=self._connect_to_table
            )

        return Stream(
            prepared.columns,
            prepared.types,
            receipt,
            prepared.domains,
            answer_cells,
            running,
            cut.list_matching_cells,
            build_table,
        )

    def _connect_to_table(self, made: SyntheticTable) -> BaseConnection:
        """Return a connection to a synthetic table, which is public."""
        from dpsql.backends.scratch_database import create_database

        columns = list(zip(made.columns, made.types, strict=True))
        return self._open_database(
            create_database(made.name, columns, made.rows), _make_public_policy(made.name)
        )


def _make_public_policy(table: str) -> dict[str, Any]:
    """Return the policy of a database with one public table."""
    tables = {table: {"public": True}}
    return {"version": 1, "privacy_unit": "none", "budget": {"epsilon": 1}, "tables": tables}


class _CellTable:
    """The public table of all cells of a stream, on which conditions are parsed and run as for any query."""

    def __init__(
        self, prepared: PreparedSynthesis, connect: Callable[[Any, dict[str, Any]], BaseConnection]
    ) -> None:
        self._prepared = prepared
        self._connect = connect
        self._connection: BaseConnection | None = None

    def close(self) -> None:
        """Close the database of the table, if a condition has opened it."""
        if self._connection is not None:
            self._connection.close()

    def list_matching_cells(self, condition: str) -> list[int]:
        """Return the numbers of the cells that satisfy a condition; raise QueryRejected for a text that is not a condition."""
        from dpsql.analysis.domains import list_combinations
        from dpsql.backends.scratch_database import create_database

        if self._connection is None:
            named = self._prepared
            columns = [*zip(named.columns, named.types, strict=True), ("#cell", "BIGINT")]
            cells = [(*keys, place) for place, keys in enumerate(list_combinations(named.domains))]
            self._connection = self._connect(
                create_database("stream", columns, cells), _make_public_policy("stream")
            )
        found = self._connection.query(f'SELECT "#cell" FROM stream WHERE (\n{condition}\n)')
        places = [int(place) for (place,) in found.rows]  # type: ignore[arg-type]
        if len(found.columns) != 1 or len(set(places)) < len(places):
            raise QueryRejected("this is not a condition", code="condition", text=condition)
        return places


@dataclass(frozen=True, slots=True)
class _ConnectionHost:
    """The methods of a connection that its session tables call."""

    connection: SyntheticConnection

    @property
    def engine(self) -> Engine:
        return self.connection.engine

    def build_query(self, sql: str, parameters: Parameters, options: QueryOptions) -> Query:
        return self.connection._build_query(sql, parameters, **options)  # noqa: SLF001  (it stands for the connection)

    def get_dialect(self, options: QueryOptions) -> str:
        return options.get("dialect") or self.connection._dialect  # noqa: SLF001

    def make_synthetic_table(self, prepared: PreparedSynthesis) -> SyntheticTable:
        return self.connection._make_synthetic_table(prepared)  # noqa: SLF001

    def open_database(self, database: Any, policy: dict[str, Any]) -> SessionConnection:
        return self.connection._open_database(database, policy)  # noqa: SLF001
