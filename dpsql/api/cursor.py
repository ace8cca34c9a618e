"""The PEP 249 cursor: the rows of one query at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack

from dpsql.errors import InterfaceError, NotSupportedError, ProgrammingError
from dpsql.plan.types import AnswerValue, Value
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import QueryOptions
from dpsql.results.result import Result

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


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

    def fetchone(self) -> tuple[AnswerValue, ...] | None:
        """Return the next row, or None after the last one."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[AnswerValue, ...]]:
        """Return the next rows: `size` of them, or `arraysize` by default."""
        wanted = self.arraysize if size is None else size
        if wanted < 0:
            raise ProgrammingError("the size of fetchmany must not be negative", code="size")
        with self._lock:
            rows = list(self.result.rows[self._next : self._next + wanted])
            self._next += len(rows)
        return rows

    def fetchall(self) -> list[tuple[AnswerValue, ...]]:
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

    def __iter__(self) -> Iterator[tuple[AnswerValue, ...]]:
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
