"""The methods that connections in this process and to a server share: those of PEP 249 with its cursor, and those that dpsql adds."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack, overload

from dpsql import errors
from dpsql.errors import InterfaceError, NotSupportedError, ProgrammingError
from dpsql.plan.types import Row, Value
from dpsql.policy.request.loss import Amount
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import Query, QueryOptions
from dpsql.results.covariance import CovarianceMatrix, iterate_matrices
from dpsql.results.optional import require_library
from dpsql.results.result import Receipt, Result
from dpsql.sql.regression import Columns, build_covariance_query, regression

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from datetime import datetime

    import pandas
    import polars
    import pyarrow

    from dpsql.ledger.budget_state import BudgetState
    from dpsql.results.description import Description
    from dpsql.results.forecast import Forecast
    from dpsql.results.rendering import Budgets
    from dpsql.results.result import ExplainedQuery


# The PEP 249 cursor: the rows of one query at a time.


class QueryConnection(Protocol):
    """The methods of a connection that a cursor calls."""

    def require_open(self) -> None:
        """Raise InterfaceError if the connection is closed."""
        ...

    def query(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """Return the private answer to a SELECT."""
        ...


class Cursor:
    """A PEP 249 cursor over the result of one query at a time."""

    arraysize = 1

    def __init__(self, connection: QueryConnection, result: Result | None = None) -> None:
        self.connection = connection
        self._result = result
        self._next = 0
        self._closed = False
        self._lock = threading.RLock()

    def execute(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Self:
        """Run a query and keep its result; the arguments and errors are those of `Connection.query`."""
        with self._lock:
            self._require_open()
            self._result = None
            self._result = self.connection.query(sql, parameters, **options)
            self._next = 0
        return self

    def executemany(self, sql: str, parameters: Sequence[Sequence[Value]]) -> None:
        """Raise NotSupportedError: each run would be charged separately."""
        raise NotSupportedError(
            "executemany is not supported: it writes, and dpsql only reads",
            code="executemany",
            hint="call execute for each set of parameters; each query is charged",
        )

    def callproc(self, name: str, parameters: Parameters = ()) -> None:
        """Raise NotSupportedError: there are no stored procedures."""
        raise NotSupportedError("callproc is not supported: there are no stored procedures", code="callproc")

    @property
    def result(self) -> Result:
        """Return the answer with its intervals and receipt.

        Raises:
            InterfaceError: before `execute`, and once the cursor is closed.
        """
        self._require_open()
        if self._result is None:
            raise InterfaceError("this cursor has no result", hint="call execute first")
        return self._result

    @property
    def description(self) -> tuple[tuple[str, str, None, None, None, None, bool], ...] | None:
        """Return the name and the engine type of each column, as the seven values of PEP 249; None before `execute`."""
        if self._result is None:
            return None
        columns = zip(self._result.columns, self._result.types, strict=True)
        return tuple((name, kind, None, None, None, None, True) for name, kind in columns)

    @property
    def rowcount(self) -> int:
        """Return the number of rows of the answer; -1 before `execute`."""
        return -1 if self._result is None else len(self._result)

    def fetchone(self) -> Row | None:
        """Return the next row, or None after the last one."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next rows: `size` of them, or `arraysize` by default."""
        wanted = self.arraysize if size is None else size
        if wanted < 0:
            raise ProgrammingError("the size of fetchmany must not be negative", code="size")
        with self._lock:
            rows = list(self.result.rows[self._next : self._next + wanted])
            self._next += len(rows)
        return rows

    def fetchall(self) -> list[Row]:
        """Return all remaining rows."""
        return self.fetchmany(len(self.result))

    def df(self, *, intervals: bool = False, confidence: float = 0.95) -> pandas.DataFrame:
        """Return the whole answer as a pandas DataFrame; the arguments are those of `Result.df`."""
        return self.result.df(intervals=intervals, confidence=confidence)

    def pl(self, *, intervals: bool = False, confidence: float = 0.95) -> polars.DataFrame:
        """Return the whole answer as a polars DataFrame; the arguments are those of `Result.df`."""
        return self.result.pl(intervals=intervals, confidence=confidence)

    def to_arrow_table(self, *, intervals: bool = False, confidence: float = 0.95) -> pyarrow.Table:
        """Return the whole answer as an Arrow table; the arguments are those of `Result.df`."""
        return self.result.to_arrow_table(intervals=intervals, confidence=confidence)

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing, as PEP 249 allows."""

    def close(self) -> None:
        """Close the cursor, which cannot be used afterwards."""
        self._closed = True
        self._result = None

    def __iter__(self) -> Iterator[Row]:
        while (row := self.fetchone()) is not None:
            yield row

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed")
        self.connection.require_open()


class TypeObject:
    """A type object of PEP 249, which equals each engine type of its kind."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        # A DECIMAL says its digits, which make no other kind.
        return other.partition("(")[0] in self.names if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        return hash(self.names)


STRING = TypeObject("VARCHAR")
BINARY = TypeObject("BLOB")
NUMBER = TypeObject("BIGINT", "DOUBLE", "DECIMAL", "HUGEINT", "INTEGER")
DATETIME = TypeObject("DATE", "TIMESTAMP")
ROWID = TypeObject()


# The methods of connections, in this process and to a server.


@dataclass(frozen=True, slots=True)
class QueryDefaults:
    """The loss, the dialect and the use of stored releases of a connection's queries that do not set them."""

    epsilon: Fraction | None = None
    dialect: str = "duckdb"
    replay: bool = True

    def build_query(self, sql: str, parameters: Parameters, options: QueryOptions) -> Query:
        """Return the query of a call, with its options or the defaults; the errors are those of `Query.from_call`."""
        replay = options.get("replay")
        return Query.from_call(
            sql,
            parameters,
            epsilon=options.get("epsilon"),
            delta=options.get("delta"),
            max_groups=options.get("max_groups"),
            target_error=options.get("target_error"),
            confidence=options.get("confidence"),
            dialect=self.get_dialect(options),
            replay=self.replay if replay is None else replay,
            default=self.epsilon,
        )

    def get_dialect(self, options: QueryOptions) -> str:
        """Return the dialect of a text."""
        return options.get("dialect") or self.dialect


class BaseConnection(ABC):
    """A connection to private data under a policy: a `Connection` in this process, or a `RemoteConnection` over HTTP."""

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError

    _thread: ThreadPoolExecutor | None = None
    """The thread of `aquery`, which its first call starts."""

    @abstractmethod
    def require_open(self) -> None:
        """Raise InterfaceError if the connection is closed."""

    @abstractmethod
    def query(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """Return the private answer to a SELECT; see `Connection.query`."""

    @abstractmethod
    def combine(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        max_groups: int | None = None,
        dialect: str | None = None,
    ) -> Result:
        """Return the most accurate answer that follows from stored releases, free; see `Connection.combine`."""

    @abstractmethod
    def explain(
        self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]
    ) -> ExplainedQuery:
        """Return the plan of a query with its proofs and its price, free; see `Connection.explain`."""

    @overload
    def budget(self) -> Budgets: ...

    @overload
    def budget(
        self, plan: str | Sequence[str], *, epsilon: Amount | None = None, dialect: str | None = None
    ) -> Forecast: ...

    def budget(
        self,
        plan: str | Sequence[str] | None = None,
        *,
        epsilon: Amount | None = None,
        dialect: str | None = None,
    ) -> Budgets | Forecast:
        """Return the budgets of the private tables, or the forecast of a plan; nothing is charged, and nothing private is read.

        Args:
            plan: One or several queries whose cost is forecast. Without it, the current budgets are returned.
            epsilon: The loss of the queries of the plan that name none.
            dialect: The dialect of the queries of the plan.

        Returns:
            The budgets by the name of their table, and by "<table> for <analyst>" those of the analyst; or the forecast.

        Raises:
            QueryRejected: if a query of the plan would be refused.
        """
        if plan is not None:
            return self._forecast_queries([plan] if isinstance(plan, str) else plan, epsilon, dialect)
        from dpsql.results.rendering import Budgets

        return Budgets(self._read_budgets())

    @abstractmethod
    def _read_budgets(self) -> dict[str, BudgetState]: ...

    @abstractmethod
    def _forecast_queries(
        self, texts: Sequence[str], epsilon: Amount | None, dialect: str | None
    ) -> Forecast: ...

    @abstractmethod
    def describe(self) -> Description:
        """Return the tables that may be queried, with the bounds and public values of their columns, from the policy alone."""

    def is_free(self, sql: str) -> bool:
        """Return whether a statement reads only tables of the session, and costs nothing."""
        return False

    def list_session_tables(self) -> Mapping[str, Sequence[str]]:
        """Return the columns of each table of this session; see `CREATE SYNTHETIC TABLE`."""
        return {}

    @abstractmethod
    def charge_probe(self, sql: str) -> Callable[[], str]:
        """Return a function that says whether a query was charged; call this before the query, and the function after Ctrl-C."""

    @abstractmethod
    def find_answer_time(self, receipt: Receipt) -> datetime | None:
        """Return the time at which the newest stored release of an answer was charged; None if none was used, or it is not known."""

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        self.require_open()
        return Cursor(self)

    def execute(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Cursor:
        """Run a query and return a new cursor with its result; the arguments and errors are those of `query`."""
        return Cursor(self, self.query(sql, parameters, **options))

    def regress(
        self, y: str, x: Columns, *, source: str, by: Columns = (), **options: Unpack[QueryOptions]
    ) -> Result:
        """Return the least-squares coefficients of `y` on one to four `x`: the intercept, then one coefficient per `x`.

        It is one query at one price, whose text `dpsql.sql.regression.regression` has. It reads the rows in which all columns have a
        value. The intervals of the result are those of the coefficients. Coefficients are NULL if noise leaves the covariances of
        `x` not positive definite.

        Args:
            y: An SQL expression over `source`.
            x: One SQL expression over `source`, several in a list, or a dict of name → expression.
            source: The table or join that follows FROM.
            by: The expressions to group by, as for `x`.
            **options: The keyword arguments of `query`; `dialect` is DuckDB's by default.

        Returns:
            A row of coefficients for each group.

        Raises:
            Error: as `query` does.
        """
        options.setdefault("dialect", "duckdb")
        return self.query(regression(y, x, source, by).sql, **options)

    def covariance(
        self, columns: Columns, *, source: str, by: Columns = (), **options: Unpack[QueryOptions]
    ) -> list[CovarianceMatrix]:
        """Return the covariance matrix of up to ten columns in each group, positive semidefinite, from one query at one price.

        A group is left out if, as far as noise shows, no row of it has a value in all columns.

        Args:
            columns: SQL expressions over `source`, in a list or as a dict of name → expression.
            source: The table or join that follows FROM.
            by: The expressions to group by, as for `columns`.
            **options: The keyword arguments of `query`; `dialect` is DuckDB's by default.

        Returns:
            A matrix for each group.

        Raises:
            ImportError: without numpy, before the query is charged.
            Error: as `query` does.
        """
        require_library("covariance()", "numpy")  # before the charge; dpsql-client does not install it
        options.setdefault("dialect", "duckdb")
        asked = build_covariance_query(columns, source, by)
        return list(iterate_matrices(asked, self.query(asked.sql, **options)))

    async def aquery(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """Run `query` in a thread, for asyncio; the arguments and errors are those of `query`.

        The queries of a connection run one after the other. A task that is cancelled before its query begins is not charged. A
        query that has begun runs to its end, and its answer is then replayed free.
        """
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        self.require_open()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "dpsql query")
        asked = partial(self.query, sql, parameters, **options)
        return await asyncio.get_running_loop().run_in_executor(self._thread, asked)

    def commit(self) -> None:
        """Do nothing: a charge is durable before its answer is returned."""
        self.require_open()

    def rollback(self) -> None:
        """Do nothing: an answer that was returned stays charged."""
        self.require_open()

    def close(self) -> None:
        """Close the connection; the budgets stay in the ledger.

        Queries of `aquery` that have begun are waited for, and others are cancelled. What is left of a reservation of this process is
        returned. A shared ledger stays open.
        """
        if self._thread is not None:
            self._thread.shutdown(wait=True, cancel_futures=True)
        self._close()

    @abstractmethod
    def _close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
