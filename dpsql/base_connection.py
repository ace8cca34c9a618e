"""What every connection offers, wherever its engine is: PEP 249, and what dpsql adds to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack, overload

from dpsql import errors
from dpsql.covariance import CovarianceMatrix, iterate_matrices
from dpsql.cursor import Cursor
from dpsql.regression import Columns, build_covariance_query, regression
from dpsql.request.loss import Amount
from dpsql.request.parameters import Parameters
from dpsql.request.query import QueryOptions
from dpsql.result import Receipt, Result

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor
    from datetime import datetime

    from dpsql.budgets import Budgets
    from dpsql.engine.description import Description
    from dpsql.engine.forecast import Forecast
    from dpsql.explained import ExplainedQuery
    from dpsql.ledger import BudgetState


class BaseConnection(ABC):
    """A connection to private data under a policy: `Connection` in this process, `RemoteConnection` over HTTP."""

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

    @abstractmethod
    def require_open(self) -> None:
        """Raises InterfaceError once the connection is closed."""

    @abstractmethod
    def query(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """The private answer to a SELECT; see `Connection.query`."""

    @abstractmethod
    def combine(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        max_groups: int | None = None,
        dialect: str | None = None,
    ) -> Result:
        """The most accurate answer that follows from stored releases, free; see `Connection.combine`."""

    @abstractmethod
    def explain(
        self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]
    ) -> ExplainedQuery:
        """The plan with its proofs and its price, free; see `Connection.explain`."""

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
        """Where the budget of each private table stands, and, as "<table> for <analyst>", what its analyst may spend.

        With a `plan` it says what the plan's queries would cost; `epsilon` is the loss of those that say none
        themselves. Nothing private is read and nothing is charged. Raises QueryRejected for a query that would be
        refused.
        """
        if plan is not None:
            return self._forecast_plan(plan, epsilon, dialect)
        from dpsql.budgets import Budgets

        return Budgets(self._read_budgets())

    @abstractmethod
    def _read_budgets(self) -> dict[str, BudgetState]: ...

    @abstractmethod
    def _forecast_plan(
        self, plan: str | Sequence[str], epsilon: Amount | None, dialect: str | None
    ) -> Forecast: ...

    @abstractmethod
    def describe(self) -> Description:
        """The tables that may be queried, with the bounds and public values of their columns, from the policy alone."""

    def is_free(self, sql: str) -> bool:  # noqa: ARG002  (a connection that keeps tables looks at it)
        """Whether a statement is about tables of the session alone, and costs nothing."""
        return False

    def list_session_tables(self) -> Mapping[str, Sequence[str]]:
        """The columns of each table that this connection keeps; see `CREATE SYNTHETIC TABLE`."""
        return {}

    @abstractmethod
    def charge_probe(self, sql: str) -> Callable[[], str]:
        """Called before a query is asked: what it returns says, after Ctrl-C, whether the query was charged."""

    @abstractmethod
    def find_answer_time(self, receipt: Receipt) -> datetime | None:
        """When the newest stored release was charged that an answer rests on; None where it rests on none, or is not known."""

    def cursor(self) -> Cursor:
        """A new cursor."""
        self.require_open()
        return Cursor(self)

    def execute(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Cursor:
        """A new cursor with the result of a query; the arguments are those of `query`."""
        return Cursor(self, self.query(sql, parameters, **options))

    def regress(
        self, y: str, x: Columns, *, source: str, by: Columns = (), **options: Unpack[QueryOptions]
    ) -> Result:
        """The least-squares coefficients of `y` on one to four `x`, in each group `by`: the intercept, then one of each `x`.

        `y`, `x` and `by` are SQL expressions over `source`, which is what stands behind FROM; several in a list, or in a dict by
        the names that they get. It is one query (`dpsql.regression.regression` has its text) at one price, over rows in
        which all have a value; `intervals` are those of the coefficients. They are NULL where noise leaves the covariances of
        `x` not positive definite. The other arguments, and what it raises, are those of `query`; the dialect is DuckDB's unless
        it is stated.
        """
        options.setdefault("dialect", "duckdb")
        return self.query(regression(y, x, source, by).sql, **options)

    def covariance(
        self, columns: Columns, *, source: str, by: Columns = (), **options: Unpack[QueryOptions]
    ) -> list[CovarianceMatrix]:
        """The covariance matrix of up to ten columns in each group `by`, positive semidefinite; the arguments are as in `regress`.

        It is one query at one price. A group in which no row has all values, as far as noise lets see, is left out.
        """
        options.setdefault("dialect", "duckdb")
        asked = build_covariance_query(columns, source, by)
        return list(iterate_matrices(asked, self.query(asked.sql, **options)))

    async def aquery(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """`query` for asyncio: the event loop goes on meanwhile. The arguments are those of `query`.

        A connection's queries are answered one after the other. A task that is cancelled before its query begins is not
        charged; one that has begun ends, and what it was charged for is answered again, free.
        """
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        self.require_open()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "dpsql query")
        asked = partial(self.query, sql, parameters, **options)
        return await asyncio.get_running_loop().run_in_executor(self._thread, asked)

    def commit(self) -> None:
        """Does nothing: a charge is durable before its answer is seen."""
        self.require_open()

    def rollback(self) -> None:
        """Does nothing: an answer that was seen stays charged."""
        self.require_open()

    def close(self) -> None:
        """Closes the connection; the budget stays in the ledger.

        Queries of `aquery` that have begun are waited for, others are cancelled. What a connection in this process has
        reserved is given back; a shared ledger stays open.
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
