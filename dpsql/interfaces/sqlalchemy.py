"""SQLAlchemy's dialect: `create_engine("dpsql:///hie.duckdb?policy=hie.yaml&epsilon=0.1")`, with reflection.

Reflection reads the policy and the schema: tables, columns and their types, no key, no index and no count of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import pool, types
from sqlalchemy.engine import URL, default, reflection
from sqlalchemy.sql import compiler

from dpsql.engine.schema_description import describe_protection
from dpsql.plan.types import Type

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import ConnectArgsType, ReflectedColumn, ReflectedTableComment

    from dpsql.backends.analyst_schema import AnalystSchema, AnalystTable

SCHEMA = "main"
OPTIONS = ("policy", "ledger", "ledger_key", "anchor", "analyst", "epsilon", "dialect")
"""What a URL may say after its question mark: arguments of `dpsql.connect`."""
_TYPES: dict[Type, type[types.TypeEngine[Any]]] = {
    Type.INTEGER: types.BigInteger,
    Type.DOUBLE: types.Double,
    Type.VARCHAR: types.String,
    Type.BOOLEAN: types.Boolean,
    Type.DATE: types.Date,
    Type.TIMESTAMP: types.DateTime,
    Type.TIME: types.Time,
    Type.UUID: types.Uuid,
    Type.BLOB: types.LargeBinary,
}


class DpsqlTypeCompiler(compiler.GenericTypeCompiler):
    """Types as DuckDB spells them, of which FLOAT has 32 bits."""

    def visit_FLOAT(self, type_: types.Float[Any], **kw: Any) -> str:
        """Return the type of a 64-bit number."""
        return "DOUBLE"

    def visit_DOUBLE(self, type_: types.Double[Any], **kw: Any) -> str:
        """Return the type of a 64-bit number."""
        return "DOUBLE"


class DpsqlDialect(default.DefaultDialect):
    """The dialect for SQLAlchemy: connections are read-only, and each query is charged."""

    name = "dpsql"
    driver = "dpsql"
    default_paramstyle = "qmark"
    default_schema_name = SCHEMA
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = False
    supports_native_uuid = True
    supports_sane_rowcount = False
    supports_default_values = False
    postfetch_lastrowid = False
    type_compiler_cls = DpsqlTypeCompiler

    @classmethod
    def import_dbapi(cls) -> Any:
        """Return the package, which implements PEP 249."""
        import dpsql

        return dpsql

    @classmethod
    def get_pool_class(cls, url: URL) -> type[pool.Pool]:
        """Return a pool of one connection if the ledger is in memory, since each connection would have a ledger of its own."""
        from dpsql.ledger.open import MEMORY

        return pool.StaticPool if url.query.get("ledger") == MEMORY else pool.QueuePool

    def create_connect_args(self, url: URL) -> ConnectArgsType:
        """Return the arguments of `dpsql.connect`. Raises sqlalchemy's ArgumentError for an invalid URL."""
        unknown = [name for name in url.query if name not in OPTIONS]
        if unknown or url.host or not url.database:
            raise sa.exc.ArgumentError(
                f"dpsql:///FILE?policy=FILE takes {', '.join(OPTIONS)}"
                + (f", and no {unknown[0]}" if unknown else ", and no host")
            )
        stated = {name: str(value) for name, value in url.query.items()}
        if url.database.endswith((".yaml", ".yml")):
            return [], {"database": None, "policy": url.database, **stated}
        stated.setdefault("policy", f"{url.database.rpartition('.')[0] or url.database}.yaml")
        return [], {"database": url.database, **stated}

    def do_ping(self, dbapi_connection: Any) -> bool:
        """Return whether the connection is open, without a query."""
        dbapi_connection.cursor()
        return True

    @reflection.cache
    def get_schema_names(self, connection: sa.Connection, **kw: Any) -> list[str]:
        """Return the default schema only; tables of other schemas are named `schema.table`."""
        return [SCHEMA]

    @reflection.cache
    def get_table_names(self, connection: sa.Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """Return the tables that the policy declares."""
        return (
            [table.name for table in _get_catalog(connection).tables.values()]
            if schema in (None, SCHEMA)
            else []
        )

    @reflection.cache
    def get_view_names(self, connection: sa.Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """Return no views, since the policy declares tables only."""
        return []

    def has_table(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        """Return whether the policy declares a table."""
        return schema in (None, SCHEMA) and _get_catalog(connection).find_table(table_name) is not None

    @reflection.cache
    def get_columns(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[ReflectedColumn]:
        """Return a table's columns with their types, whether they may be NULL, and their bounds, values and rules as comments."""
        found, described = (
            _require_table(connection, table_name, schema),
            _get_driver(connection).describe().get_table(table_name),
        )
        comments = {
            each.name: ", ".join(filter(None, [*each.notes, each.span])) or None for each in described.columns
        }
        return [
            {
                "name": name,
                "type": _TYPES.get(facts.type, types.NullType)(),
                "nullable": facts.nullable,
                "default": None,
                "autoincrement": False,
                "comment": comments[name],
            }
            for name, facts in found.columns.values()
        ]

    @reflection.cache
    def get_table_comment(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> ReflectedTableComment:
        """Return whom the table protects, with the unit column, and the rules on contributions and budget."""
        found, driver = _require_table(connection, table_name, schema), _get_driver(connection)
        rules = driver.describe().get_table(table_name).rules
        return {"text": "; ".join([describe_protection(driver.engine.policy, found), *rules])}

    def get_pk_constraint(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """Return no primary key, since a policy declares none."""
        _require_table(connection, table_name, schema)
        return {"constrained_columns": [], "name": None}

    def get_foreign_keys(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Return the policy's link from a table to the table with the unit."""
        found = _require_table(connection, table_name, schema)
        if found.link is None or found.unit_column is None:
            return []
        referred = _get_catalog(connection).find_table(found.link.table)
        if referred is None:
            return []
        return [
            {
                "name": None,
                "constrained_columns": [found.columns[column][0] for column, _ in found.link.pairs],
                "referred_schema": None,
                "referred_table": referred.name,
                "referred_columns": [referred.columns[column][0] for _, column in found.link.pairs],
                "options": {},
            }
        ]

    def get_indexes(
        self, connection: sa.Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Return no indexes."""
        _require_table(connection, table_name, schema)
        return []


def _get_driver(connection: sa.Connection) -> Any:
    return connection.connection.driver_connection


def _get_catalog(connection: sa.Connection) -> AnalystSchema:
    found: AnalystSchema = _get_driver(connection).engine.catalog
    return found


def _require_table(connection: sa.Connection, name: str, schema: str | None) -> AnalystTable:
    """Return a declared table. Raises sqlalchemy's NoSuchTableError for another name."""
    found = _get_catalog(connection).find_table(name) if schema in (None, SCHEMA) else None
    if found is None:
        raise sa.exc.NoSuchTableError(name)
    return found
