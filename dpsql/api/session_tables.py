"""Tables of a session: CREATE SYNTHETIC TABLE, CREATE LOCAL TABLE and DROP TABLE, and SELECTs over these tables.

The statements call `synthetic` and `randomize`, and their tables live as long as the connection. Nothing here reads private
rows: a SELECT over tables of the session runs in a database that holds nothing else, and a SELECT over private tables never
sees these. So the meaning of a name, and not the privacy, depends on which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dpsql.errors import Error, QueryRejected
from dpsql.policy import normalize_name
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import QueryOptions
from dpsql.results.local_table import LocalTable
from dpsql.results.result import Receipt, Result, get_no_interval
from dpsql.results.synthetic_table import SyntheticTable
from dpsql.sql.parse.session_statement import (
    CreateTable,
    DropTable,
    SessionTableKind,
    parse_session_statement,
)

if TYPE_CHECKING:
    from dpsql.api.engine_queries import (
        EngineQueries,
        OpenEngine,
        OpenPublicTables,
        PublicConnection,
        SyntheticTables,
    )
    from dpsql.engine.explain import Explanation
    from dpsql.engine.synthetic import PreparedSynthesis
    from dpsql.policy.request.query import Query
    from dpsql.results.description import Description, TableDescription
    from dpsql.sql.parse.parse import Statement

MOST_TABLES = 64
_TERMS: tuple[Literal["epsilon", "max_groups", "replay"], ...] = ("epsilon", "max_groups", "replay")
"""The options that both a call and the text of a statement may give."""
_APART = "query the two separately, and combine their answers"


@dataclass(frozen=True, slots=True)
class SessionTable:
    """A table of a session, with the name that it was given."""

    name: str
    content: SyntheticTable | LocalTable

    @property
    def kind(self) -> str:
        """Return the kind of table, in one word."""
        return "randomized" if isinstance(self.content, LocalTable) else "synthetic"

    @property
    def entries(self) -> tuple[int, ...]:
        """Return the ledger's entries that paid for the table."""
        receipt = self.content.receipt
        return (*(entry["id"] for entry in receipt.entries), *receipt.replayed)

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Return the columns with their types."""
        return list(zip(self.content.columns, self.content.types, strict=True))


class SessionTables:
    """The tables that a connection keeps until it is closed, by name."""

    def __init__(
        self,
        engine: OpenEngine,
        queries: EngineQueries,
        synthetic: SyntheticTables,
        open_public_tables: OpenPublicTables,
    ) -> None:
        self._engine, self._queries, self._synthetic = engine, queries, synthetic
        self._open_public_tables = open_public_tables
        self._is_enabled = True
        self._tables = dict[str, SessionTable]()
        self._connection: PublicConnection | None = None
        # The tables in the database of `_connection`.
        self._open_names: frozenset[str] = frozenset()

    def disable(self) -> None:
        """Refuse CREATE from now on."""
        self._is_enabled = False

    def find_answer(
        self, sql: str, parameters: Parameters, options: QueryOptions
    ) -> Callable[[], Result] | None:
        """Return a function that answers a statement about tables of the session, or a SELECT over them; None for other statements."""
        statement = parse_session_statement(sql)
        if isinstance(statement, CreateTable):
            if statement.explain:
                return lambda: self._explain_creation(statement, parameters, options).to_result()
            return lambda: self._create_table(statement, parameters, options)
        if isinstance(statement, DropTable):
            return lambda: self._drop_table(statement)
        found = self._find_named_tables(sql, options)
        return None if found is None else lambda: self._answer_select(*found, sql, parameters, options)

    def is_free(self, sql: str) -> bool:
        """Return whether a statement reads only tables of the session, and costs nothing."""
        try:
            statement = parse_session_statement(sql)
            return isinstance(statement, DropTable) or (
                statement is None and self._find_named_tables(sql, {}) is not None
            )
        except Error:
            return False

    def list_columns(self) -> Mapping[str, Sequence[str]]:
        """Return the columns of each table of the session."""
        return {table.name: table.content.columns for table in self._tables.values()}

    def extend_description(self, known: Description) -> Description:
        """Return the description of the policy's tables, with the tables of the session added."""
        return replace(known, tables=(*known.tables, *map(_describe_table, self._tables.values())))

    def require_no_session_tables(self, sql: str, options: QueryOptions) -> None:
        """Raise QueryRejected (`session_table`) for a statement that is answered at once and has no plan."""
        statement = parse_session_statement(sql)
        if isinstance(statement, CreateTable):
            self._require_free_name(statement)
        if statement is not None or self._find_named_tables(sql, options) is not None:
            raise QueryRejected(
                "statements about session tables cannot be prepared",
                code="session_table",
                hint="con.query(sql), or con.explain(sql) for the price",
                text=sql,
            )

    def find_explanation(self, sql: str, parameters: Parameters, options: QueryOptions) -> Explanation | None:
        """Return the plan of a statement about tables of the session; None for other statements."""
        statement = parse_session_statement(sql)
        if isinstance(statement, CreateTable):
            return self._explain_creation(statement, parameters, options)
        named = None if statement is not None else self._find_named_tables(sql, options)
        if named is None or any(isinstance(table.content, LocalTable) for table in named[1]):
            self.require_no_session_tables(sql, options)
            return None
        dialect = self._queries.defaults.get_dialect(options)
        return self._open_tables(named[1]).explain(sql, parameters, dialect=dialect)

    def _explain_creation(
        self, statement: CreateTable, parameters: Parameters, options: QueryOptions
    ) -> Explanation:
        """Return what CREATE would do and cost."""
        from dpsql.engine.charging import require_bindable
        from dpsql.engine.explain import Explanation

        self._require_free_name(statement)
        with self._engine.current.backend.open_snapshot(), _locate_errors(statement):
            prepared = self._prepare_table(statement, parameters, options)
            require_bindable(self._engine.current, prepared.prepared)
            return Explanation.from_prepared(self._engine.current, prepared.prepared)

    def _create_table(self, statement: CreateTable, parameters: Parameters, options: QueryOptions) -> Result:
        from dpsql.engine.synthetic import make_local_table

        self._require_free_name(statement)
        made: SyntheticTable | LocalTable
        with self._engine.current.backend.open_snapshot(), _locate_errors(statement):
            prepared = self._prepare_table(statement, parameters, options)
            if statement.kind is SessionTableKind.SYNTHETIC:
                made = self._synthetic.charge_table(prepared)
            else:
                made = make_local_table(self._engine.current, prepared)
        table = SessionTable(statement.name, made)
        self._tables[normalize_name(statement.name)] = table
        self.close_database()
        notices = [f"{table.name} is {table.kind}, and belongs to this session: SELECTs over it are free"]
        if isinstance(made, SyntheticTable) and made.error is not None:
            notices.append(str(made.error))
        receipt = replace(made.receipt, notices=(*made.receipt.notices, *notices))
        return _build_row_result({"table": (table.name, "VARCHAR"), "rows": (len(made), "BIGINT")}, receipt)

    def _prepare_table(
        self, statement: CreateTable, parameters: Parameters, options: QueryOptions
    ) -> PreparedSynthesis:
        """Prepare a table up to the charge, under the statement's own text."""
        from dpsql.engine.synthetic import prepare_local_table, prepare_synthetic_table, with_statement_text

        said = dict(statement.options)
        if self._queries.defaults.get_dialect(options) != "duckdb":
            statement.refuse_at(
                statement.name_at,
                "session_table",
                "session tables are only supported in DuckDB's dialect",
                "remove dialect, or pass dialect='duckdb'",
            )
        for name in _TERMS:
            called, written = options.get(name), said.get(name)
            if called is not None and written is not None and called != written:
                statement.refuse_at(
                    statement.places[name],
                    "ambiguous",
                    f"the text of the query and the call give different values for {name}",
                    "give it in only one of the two",
                )
        terms = options.copy()
        for name in _TERMS:
            if name in said:
                terms[name] = said.pop(name)
        asked = self._queries.build_query(statement.query, parameters, terms)
        self._require_private_source(statement, asked)
        if statement.kind is SessionTableKind.LOCAL:
            found = prepare_local_table(self._engine.current, asked)
        else:
            found = prepare_synthetic_table(
                self._engine.current,
                asked,
                said.get("workload", "marginals(2)"),
                said.get("method"),
                said.get("rounds"),
            )
        return with_statement_text(found, statement.text)

    def _require_private_source(self, statement: CreateTable, asked: Query) -> None:
        if found := self._find_named_tables(asked.sql, {}):
            _, (table, *_) = found
            statement.refuse_at(
                statement.name_at,
                "session_table",
                f"{table.name} is a table of this session, so it needs no other table: SELECTs over it are free",
                f"SELECT … FROM {table.name}",
            )

    def _require_free_name(self, statement: CreateTable) -> None:
        if not self._is_enabled:
            statement.refuse_at(
                statement.name_at,
                "session_table",
                "session tables are not supported on a server",
                "use dpsql shell, or dpsql.connect(…), on the machine that has the data",
            )
        name = normalize_name(statement.name)
        if any(normalize_name(each.name) == name for each in self._engine.current.catalog.tables.values()):
            statement.refuse_at(
                statement.name_at,
                "session_table",
                f"{statement.name} is already the name of a table of the data owner",
                "give it another name",
            )
        if name in self._tables and not statement.replaces:
            statement.refuse_at(
                statement.name_at,
                "session_table",
                f"this session already has a table {self._tables[name].name}",
                "use CREATE OR REPLACE to replace it, or DROP TABLE to remove it",
            )
        if name not in self._tables and len(self._tables) >= MOST_TABLES:
            statement.refuse_at(
                statement.name_at,
                "session_table",
                f"a session keeps at most {MOST_TABLES} tables",
                "remove one with DROP TABLE",
            )

    def _drop_table(self, statement: DropTable) -> Result:
        found = self._tables.pop(normalize_name(statement.name), None)
        self.close_database()
        if found is None and not statement.missing_ok:
            owners = {normalize_name(each.name) for each in self._engine.current.catalog.tables.values()}
            message = f"there is no table {statement.name} in this session"
            if normalize_name(statement.name) in owners:
                message = f"{statement.name} is a table of the data owner, which cannot be dropped"
            statement.refuse_name("session_table", message, "SHOW TABLES lists the tables")
        name = statement.name if found is None else found.name
        return _build_row_result(
            {"dropped": (None if found is None else name, "VARCHAR")}, self._build_receipt(statement.text, ())
        )

    def _find_named_tables(
        self, sql: str, options: QueryOptions
    ) -> tuple[Statement, tuple[SessionTable, ...]] | None:
        """Return the parsed statement and the tables of the session that it names; None if it names none."""
        if not self._tables:
            return None
        from dpsql.sql.parse.local_select import collect_table_names
        from dpsql.sql.parse.parse import parse_cached

        statement = parse_cached(sql, self._queries.defaults.get_dialect(options))
        named = collect_table_names(statement)
        found = tuple(table for name, table in self._tables.items() if name in named)
        if not found:
            return None
        owners = {
            normalize_name(each.name): each.name for each in self._engine.current.catalog.tables.values()
        }
        mixed = sorted(owners[name] for name in named if name in owners)
        if mixed:
            raise QueryRejected(
                f"{found[0].name} is a table of this session, and {mixed[0]} one of the data owner: a SELECT cannot read both",
                code="session_table",
                hint=_APART,
                text=sql,
            )
        return statement, found

    def _answer_select(
        self,
        statement: Statement,
        tables: tuple[SessionTable, ...],
        sql: str,
        parameters: Parameters,
        options: QueryOptions,
    ) -> Result:
        """Return the answer to a SELECT over tables of the session, which is free."""
        local = next((each.content for each in tables if isinstance(each.content, LocalTable)), None)
        if local is None:
            notice = "rows of {} are synthetic: the answer is exact for them, and only approximates the private rows"
        else:
            notice = "values of {} are randomized one by one: the answer shows the randomized values"
        names = ", ".join(each.name for each in tables)
        entries = tuple(dict.fromkeys(entry for each in tables for entry in each.entries))
        receipt = replace(self._build_receipt(sql, entries), notices=(notice.format(names),))
        if local is not None and not self._is_row_select(statement, tables):
            return self._estimate_select(statement, tables, local, sql)
        dialect = self._queries.defaults.get_dialect(options)
        found = self._open_tables(tables).query(sql, parameters, dialect=dialect)
        return replace(found, receipt=replace(receipt, explained=found.receipt.explained))

    def _is_row_select(self, statement: Statement, tables: tuple[SessionTable, ...]) -> bool:
        from dpsql.sql.parse.local_select import is_row_select

        return len(tables) == 1 and is_row_select(statement)

    def _estimate_select(
        self, statement: Statement, tables: tuple[SessionTable, ...], local: LocalTable, sql: str
    ) -> Result:
        """Return estimates from a randomized table."""
        from dpsql.results.local_table import estimate_answer
        from dpsql.sql.parse.local_select import parse_local_select

        if len(tables) > 1 or statement.explain or statement.translated:
            raise QueryRejected(
                "a local table supports one SELECT in DuckDB's dialect that reads no other table",
                code="local_query",
                hint=_APART,
                text=sql,
            )
        (table,) = tables
        rounded = [name for place, name in enumerate(local.columns) if local.get_step(place)]
        select = parse_local_select(statement, local.columns, rounded)
        notice = f"{table.name} is randomized: these are estimates of the private rows, with their intervals"
        receipt = replace(self._build_receipt(sql, table.entries), notices=(notice,))
        with self._open_cell_table(table, local) as cells:
            return estimate_answer(local, select, cells.query(select.cells), receipt)

    @contextmanager
    def _open_cell_table(self, table: SessionTable, local: LocalTable) -> Iterator[PublicConnection]:
        """Return a connection to a table of the same name with a row for each combination of values, and its number."""
        from dpsql.analysis.domains import list_combinations
        from dpsql.backends.scratch_database import create_database
        from dpsql.sql.parse.local_select import CELL

        rows = [(*keys, place) for place, keys in enumerate(list_combinations(local.domains))]
        database = create_database(table.name, [*table.columns, (CELL, "BIGINT")], rows)
        connection = self._open_public_tables(database, [table.name])
        try:
            yield connection
        finally:
            connection.close()

    def _open_tables(self, tables: Sequence[SessionTable]) -> PublicConnection:
        """Return a connection to a database of these tables, which is kept for the next SELECT."""
        from dpsql.backends.scratch_database import add_table, create_memory_database

        names = frozenset(table.name for table in tables)
        if self._connection is None or not names <= self._open_names:
            rows = {table.name: table.content.rows for table in tables}
            self.close_database()
            database = create_memory_database()
            for table in tables:
                add_table(database, table.name, table.columns, rows[table.name])
            self._connection, self._open_names = (
                self._open_public_tables(database, sorted(names)),
                names,
            )
        return self._connection

    def close_database(self) -> None:
        """Close the database of session tables; the next SELECT makes a new one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _build_receipt(self, sql: str, paid: tuple[int, ...]) -> Receipt:
        """Return the receipt of a free statement; `paid` are the ledger's entries that paid for the tables that it reads."""
        engine = self._engine.current
        policy = engine.policy
        return Receipt(
            query=sql,
            plan="",
            analyst=engine.analyst,
            privacy_unit=policy.privacy_unit,
            neighbors=policy.neighbors,
            data_version=policy.data_version,
            policy=engine.policy_digest,
            mechanisms=(),
            loss=None,
            entries=(),
            versions={},
            replayed=paid,
        )


@contextmanager
def _locate_errors(statement: CreateTable) -> Iterator[None]:
    """Set the place of a refusal within the statement, if an option or the query of it is the reason."""
    try:
        yield
    except Error as error:
        if error.text == statement.query:
            error.text = statement.text
        option = next((name for name in _REASONS.get(error.code, ()) if name in statement.places), None)
        if error.position is None and option is not None:
            statement.locate_option_error(error, option)
        raise


_REASONS: Mapping[str, tuple[str, ...]] = {
    "workload": ("workload",),
    "synthetic_method": ("method", "rounds"),
    "epsilon_small": ("epsilon",),
    "loss": ("epsilon",),
}
"""The options that a refusal is about, by its code."""


def _describe_table(table: SessionTable) -> TableDescription:
    from dpsql.results.description import ColumnDescription, TableDescription

    columns = tuple(ColumnDescription(name, kind.lower()) for name, kind in table.columns)
    rule = f"{table.kind}, only in this session: SELECTs over it are free"
    return TableDescription(
        table.name, private=False, unit="", columns=columns, rules=(rule,), kind=table.kind
    )


def _build_row_result(values: Mapping[str, tuple[Any, str]], receipt: Receipt) -> Result:
    """Return an answer of one row."""
    row = tuple(value for value, _ in values.values())
    types = tuple(kind for _, kind in values.values())
    return Result(tuple(values), types, (row,), ((None,) * len(row),), receipt, get_no_interval)
