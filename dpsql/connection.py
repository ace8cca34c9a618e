"""The PEP 249 face: `connect`, Connection, Cursor, and the module attributes.

Charges are durable when a query returns, so there is nothing to commit or roll back.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

from dpsql import errors
from dpsql.errors import InterfaceError, NotSupportedError, ProgrammingError
from dpsql.loss import Amount, amount
from dpsql.plan.types import Value
from dpsql.result import Result

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from dpsql.accounting import BudgetState, Head
    from dpsql.engine import Engine
    from dpsql.explain import Explanation
    from dpsql.prepared import Asked, Prepared

apilevel = "2.0"
threadsafety = 1
paramstyle = "qmark"


class TypeObject:
    """A PEP 249 type object: equal to each engine type of its kind."""

    def __init__(self, *names: str) -> None:
        self.names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return other in self.names if isinstance(other, str) else self is other

    def __hash__(self) -> int:
        return hash(self.names)


STRING = TypeObject("VARCHAR")
BINARY = TypeObject("BLOB")
NUMBER = TypeObject("BIGINT", "DOUBLE", "HUGEINT", "INTEGER")
DATETIME = TypeObject("DATE", "TIMESTAMP")
ROWID = TypeObject()


def connect(
    database: Any,
    *,
    policy: Any,
    ledger: str | Path | None = None,
    analyst: str | None = None,
    epsilon: Amount | None = None,
    anchor: Head | str | Path | None = None,
    dialect: str = "duckdb",
) -> Connection:
    """Opens private data for questions.

    `database` is a DuckDB path, an open duckdb connection, or a dict of name → pandas, polars or Arrow
    table. `policy` is a YAML path or text, a dict, or a `dpsql.policy.Policy`. `ledger` is the file
    that remembers what was spent; it defaults to the policy's path with the ending .ledger, and
    ":memory:" forgets at exit. `epsilon` is the loss of a query that names none. `anchor` is a small file,
    on another disk or machine, that holds how far the ledger has come: beside it an older ledger, or none, is
    refused. It is made with a new ledger and replaced after each charge. `dialect` is that of queries which
    name none: duckdb, postgres, spark, snowflake, bigquery or tsql.

    Raises PolicyError where the policy is wrong or asks for what the database does not have, IntegrityError
    where the ledger was edited (`ledger_tampered`) or is an older one than its anchor knows
    (`ledger_rolled_back`).
    """
    from dpsql.accounting import open_ledger  # the engine and its libraries load when they are needed
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.engine import Engine, budget
    from dpsql.policy import load
    from dpsql.sql.dialect import require

    require(dialect)
    rules = load(policy)
    target = ledger if ledger is not None else _ledger_beside(policy)
    backend = DuckDBBackend(database)
    try:
        budgets = {name: budget(rules, name) for name in rules.private_tables()}
        book = open_ledger(target, budgets, anchor=anchor)
        engine = Engine(rules, backend, book, analyst or _login())
        engine.catalog  # noqa: B018  (the policy is held against the database now, not at the first query)
    except errors.Error:
        backend.close()
        raise
    return Connection(engine, None if epsilon is None else amount(epsilon), dialect)


def _ledger_beside(policy: Any) -> Path:
    if isinstance(policy, Path) or (isinstance(policy, str) and "\n" not in policy):
        return Path(policy).with_suffix(".ledger")
    raise ProgrammingError(
        "which file is to remember what was spent?",
        code="ledger_missing",
        hint='connect(…, ledger="name.ledger"), or ledger=":memory:" to forget at exit',
    )


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return "unknown"


class AskedFor(TypedDict, total=False):
    """What a query may be asked for with; see `Connection.query`."""

    epsilon: Amount | None
    delta: Amount | None
    max_groups: int | None
    target_error: Amount | None
    confidence: Amount | None
    dialect: str | None


class Connection:
    """A connection to private data under a policy; see `connect`."""

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

    def __init__(self, engine: Engine, epsilon: Any = None, dialect: str = "duckdb") -> None:
        self._engine = engine
        self._epsilon = epsilon
        self._dialect = dialect
        self._closed = False

    @property
    def engine(self) -> Engine:
        """The engine behind this connection. Raises InterfaceError once it is closed."""
        if self._closed:
            raise InterfaceError("the connection is closed", hint="dpsql.connect(…) opens another")
        return self._engine

    def cursor(self) -> Cursor:
        """A new cursor."""
        self.engine  # noqa: B018  (refuses a closed connection)
        return Cursor(self)

    def execute(self, sql: str, parameters: Sequence[Value] = (), **options: Unpack[AskedFor]) -> Cursor:
        """Answers a query on a new cursor; the arguments are those of `query`."""
        return self.cursor().execute(sql, parameters, **options)

    def query(
        self,
        sql: str,
        parameters: Sequence[Value] = (),
        *,
        epsilon: Amount | None = None,
        delta: Amount | None = None,
        max_groups: int | None = None,
        target_error: Amount | None = None,
        confidence: Amount | None = None,
        dialect: str | None = None,
    ) -> Result:
        """The private answer to a SELECT.

        `parameters` stand for the `?` of the text. `epsilon` is the loss: under `pure` the answer is
        ε-DP, under `zcdp` it is charged as an ε-DP answer would be. `delta` is for choosing group keys
        that the policy does not declare; by default it is spent in proportion to the loss.
        `max_groups` lowers the number of groups of a privacy unit that count. `target_error` asks for an accuracy
        instead of a loss: the query gets the least ε at which the noise of each value is at most that, in its own
        units, with probability `confidence`, 0.95 unless stated. The query may say all of these itself,
        `SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) …`: that goes before what `connect` was told, and
        is refused beside another value here. `dialect` is that of the text: it is put into DuckDB's SQL, and refused
        where that is not known to mean the same.

        Raises QueryRejected for what is not known to be safe and BudgetExhausted where the budget does
        not suffice, both before anything is read or charged; BackendError if the engine fails after
        the charge.
        """
        asked = self._asked(
            sql,
            parameters,
            epsilon=epsilon,
            delta=delta,
            max_groups=max_groups,
            target_error=target_error,
            confidence=confidence,
            dialect=dialect,
        )
        with self.engine.backend.snapshot():
            prepared = self.engine.prepare(asked)
            return self._explained(prepared).result() if prepared.explain else self.engine.answer(prepared)

    def explain(
        self,
        sql: str,
        parameters: Sequence[Value] = (),
        *,
        epsilon: Amount | None = None,
        delta: Amount | None = None,
        max_groups: int | None = None,
        target_error: Amount | None = None,
        confidence: Amount | None = None,
        dialect: str | None = None,
    ) -> Explanation:
        """The plan with its proofs and its price; charges nothing and reads nothing private."""
        asked = self._asked(
            sql,
            parameters,
            epsilon=epsilon,
            delta=delta,
            max_groups=max_groups,
            target_error=target_error,
            confidence=confidence,
            dialect=dialect,
        )
        with self.engine.backend.snapshot():
            return self._explained(self.engine.prepare(asked))

    def _explained(self, prepared: Prepared) -> Explanation:
        from dpsql.explain import Explanation

        return Explanation.of(self.engine, prepared)

    def budget(self) -> dict[str, BudgetState]:
        """Where the budget of each private table stands."""
        return {state.table: state for state in self.engine.ledger.states()}

    def commit(self) -> None:
        """Does nothing: a charge is durable before its answer is seen."""
        self.engine  # noqa: B018

    def rollback(self) -> None:
        """Does nothing: an answer that was seen stays charged."""
        self.engine  # noqa: B018

    def close(self) -> None:
        """Closes the database and the ledger; the budget stays in the ledger's file."""
        if not self._closed:
            self._closed = True
            self._engine.backend.close()
            self._engine.ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _asked(self, sql: str, parameters: Sequence[Value], **options: Any) -> Asked:
        from dpsql.prepared import Asked

        self.engine  # noqa: B018  (refuses a closed connection)
        return Asked.of(
            sql,
            parameters,
            **options | {"dialect": options["dialect"] or self._dialect},
            default=self._epsilon,
        )


class Cursor:
    """A PEP 249 cursor over one answer at a time."""

    arraysize = 1

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._result: Result | None = None
        self._next = 0
        self._closed = False

    def execute(self, sql: str, parameters: Sequence[Value] = (), **options: Unpack[AskedFor]) -> Self:
        """Answers a query; see `Connection.query`."""
        self._open()
        self._result = None
        self._result = self.connection.query(sql, parameters, **options)
        self._next = 0
        return self

    def executemany(self, sql: str, parameters: Sequence[Sequence[Value]]) -> None:
        """Always refused: each run would be charged for itself."""
        raise NotSupportedError(
            "executemany is for writing, and dpsql only reads",
            code="executemany",
            hint="call execute for each set of parameters; every answer is charged",
        )

    def callproc(self, name: str, parameters: Sequence[Value] = ()) -> None:
        """Always refused: there are no stored procedures."""
        raise NotSupportedError("there are no stored procedures", code="callproc")

    @property
    def result(self) -> Result:
        """The answer with its intervals and receipt. Raises InterfaceError before `execute`."""
        self._open()
        if self._result is None:
            raise InterfaceError("no query has been answered on this cursor", hint="call execute first")
        return self._result

    @property
    def description(self) -> tuple[tuple[str, str, None, None, None, None, bool], ...] | None:
        """Name and engine type of each column, in PEP 249's sevenfold shape; None before `execute`."""
        if self._result is None:
            return None
        columns = zip(self._result.columns, self._result.types, strict=True)
        return tuple((name, kind, None, None, None, None, True) for name, kind in columns)

    @property
    def rowcount(self) -> int:
        """The number of rows of the answer, or -1 before `execute`."""
        return -1 if self._result is None else len(self._result)

    def fetchone(self) -> tuple[Value, ...] | None:
        """The next row, or None."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Value, ...]]:
        """The next `size` rows, by default `arraysize`."""
        wanted = self.arraysize if size is None else size
        if wanted < 0:
            raise ProgrammingError("size is not negative", code="size")
        rows = list(self.result.rows[self._next : self._next + wanted])
        self._next += len(rows)
        return rows

    def fetchall(self) -> list[tuple[Value, ...]]:
        """All rows that are left."""
        return self.fetchmany(len(self.result))

    def df(self, *, intervals: bool = False, confidence: float = 0.95) -> pandas.DataFrame:
        """The whole answer as a pandas DataFrame, with `intervals` their ends beside the values."""
        return self.result.df(intervals=intervals, confidence=confidence)

    def pl(self, *, intervals: bool = False, confidence: float = 0.95) -> polars.DataFrame:
        """The whole answer as a polars DataFrame, with `intervals` their ends beside the values."""
        return self.result.pl(intervals=intervals, confidence=confidence)

    def to_arrow_table(self, *, intervals: bool = False, confidence: float = 0.95) -> pyarrow.Table:
        """The whole answer as an Arrow table, with `intervals` their ends beside the values."""
        return self.result.to_arrow_table(intervals=intervals, confidence=confidence)

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Does nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing, as PEP 249 allows."""

    def close(self) -> None:
        """Makes the cursor unusable."""
        self._closed = True
        self._result = None

    def __iter__(self) -> Iterator[tuple[Value, ...]]:
        while (row := self.fetchone()) is not None:
            yield row

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed")
        self.connection.engine  # noqa: B018  (refuses a closed connection)
