"""The PostgreSQL catalog for clients: the policy's tables, from an emulator without data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache, partial
from threading import Condition
from typing import Any

from dpsql.backends.analyst_schema import AnalystSchema, AnalystTable
from dpsql.backends.pg_catalog_emulator import PgCatalogEmulator
from dpsql.backends.pg_catalog_rows import OWNER, EmulatedColumn, EmulatedTable, ForeignKey
from dpsql.engine.schema_description import describe_protection
from dpsql.interfaces.server.protocol.messages import SERVER_VERSION
from dpsql.interfaces.server.protocol.values import (
    BOOL,
    DATE,
    FLOAT8,
    INT2VECTOR,
    INT8,
    OID,
    OIDVECTOR,
    TEXT,
    TIMESTAMP,
    Column,
    get_array_oid,
    get_oid,
)
from dpsql.plan.types import Type
from dpsql.policy import Column as PolicyColumn
from dpsql.policy import Policy, Table, normalize_name
from dpsql.sql.pg_catalog.functions import MACROS, PREFIX
from dpsql.sql.pg_catalog.parameters import ListType, infer_parameter_types
from dpsql.sql.pg_catalog.rewrite import CatalogQuery, parse_catalog_query

DATABASE = "dpsql"
_OIDS = {
    Type.INTEGER: INT8,
    Type.DOUBLE: FLOAT8,
    Type.VARCHAR: TEXT,
    Type.DATE: DATE,
    Type.TIMESTAMP: TIMESTAMP,
    Type.BOOLEAN: BOOL,
}
_CATALOG_TYPES = {
    **dict.fromkeys(("INTEGER", "UINTEGER", "SMALLINT", "BIGINT"), Type.INTEGER), "BOOLEAN": Type.BOOLEAN,
    "DOUBLE": Type.DOUBLE, "TIMESTAMP": Type.TIMESTAMP, "VARCHAR": Type.VARCHAR,
}  # fmt: skip
"""Types of the catalog's columns, as parameters are compared with them."""
_VECTORS = {"USMALLINT[]": INT2VECTOR, "UBIGINT[]": OIDVECTOR}
"""Engine types of the emulator's columns that are vectors in PostgreSQL."""
_LISTED = 20
_REMEMBERED = 64
"""The number of texts that are cached with whether they are catalog queries: clients send the same ones again."""


class PgCatalog:
    """The policy's tables as PostgreSQL's catalog shows them, in up to `limit` emulators.

    Each emulator answers one query at a time, with its own engine and memory, so that slow queries of a user delay no others.
    """

    def __init__(self, policy: Policy, catalog: AnalystSchema, seconds: float, limit: int = 1) -> None:
        declared = frozenset(map(normalize_name, policy.tables))
        self._match_cached = lru_cache(_REMEMBERED)(partial(parse_catalog_query, declared=declared))
        self._seconds = seconds
        tables = _build_tables(policy, catalog)
        self._types = dict[str, Type]()
        for table in catalog.tables.values():
            for name, facts in table.columns.values():
                self._types.setdefault(normalize_name(name), facts.type)
        self._create_emulator = partial(PgCatalogEmulator, DATABASE, tables, MACROS, PREFIX)
        self._idle, self._free = [self._create_emulator()], Condition()
        self._catalog_types = {
            name: _CATALOG_TYPES[kind]
            for name, kind in self._idle[0].list_column_types().items()
            if kind in _CATALOG_TYPES
        }
        self._creatable = limit - 1

    def match_query(self, text: str, dialect: str = "postgres") -> CatalogQuery | None:
        """Return the catalog query of a text, or None if it is for the engine, which reads it in this dialect."""
        return self._match_cached(text, dialect=dialect)

    def infer_parameter_types(self, text: str, types: tuple[int, ...]) -> tuple[int, ...]:
        """Infer the types of a statement's parameters: as the client states, else from the context, else text."""
        if all(types):
            return types
        is_catalog = self.match_query(text) is not None
        found = infer_parameter_types(text, self._catalog_types if is_catalog else self._types)
        return tuple(
            given or _get_parameter_oid(found.get(number, Type.VARCHAR))
            for number, given in enumerate(types, 1)
        )

    def answer_query(
        self,
        query: CatalogQuery,
        user: str,
        setting: Callable[[str], str | None],
        values: Collection[Any],
        activity: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
        *,
        assign: Callable[[str, str], str],
        settings: Callable[[], Sequence[tuple[str, str]]] = tuple,
    ) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
        """Return the columns and rows of a catalog query. Raises QueryRejected if it is not supported.

        `activity` returns the rows of pg_stat_activity that the user may see, `assign` runs set_config, and `settings` lists the
        session's settings.
        """
        session = {
            "current_user": user,
            "database": DATABASE,
            "schema": "public",
            "process": "0",
            "version": f"PostgreSQL {SERVER_VERSION} (dpsql: answers are differentially private)",
            "moment": datetime.now(UTC).replace(tzinfo=None).isoformat(" "),
        }
        written = query.to_duckdb_sql(session, setting, values, assign)
        lowered = written.lower()
        with self._acquire_emulator() as emulator:
            for place, build_rows in _SESSION_ROWS.items():
                if any(name in lowered for name in _READERS[place]):
                    emulator.show_rows(place, build_rows(_Session(user, emulator, activity, settings)))
            columns, rows = emulator.answer_statement(written, self._seconds)
        return tuple(Column(name, _VECTORS.get(kind) or get_oid(kind)) for name, kind in columns), rows

    @contextmanager
    def _acquire_emulator(self) -> Iterator[PgCatalogEmulator]:
        """Acquire an emulator for exclusive use: an idle one, or a new one below the limit."""
        with self._free:
            while not self._idle and not self._creatable:
                self._free.wait()
            makes = not self._idle
            self._creatable -= makes
            emulator = None if makes else self._idle.pop()
        try:
            emulator = emulator or self._create_emulator()
            yield emulator
        finally:
            with self._free:
                if emulator is None:
                    self._creatable += 1
                else:
                    self._idle.append(emulator)
                self._free.notify()

    def close(self) -> None:
        """Close the emulators."""
        with self._free:
            for each in self._idle:
                each.close()


def _get_parameter_oid(kind: Type | ListType) -> int:
    """Return the OID of a parameter's type."""
    if isinstance(kind, ListType):
        return get_array_oid(OID if kind.item is None else _get_parameter_oid(kind.item))
    return _OIDS.get(kind, TEXT)


def _build_tables(policy: Policy, catalog: AnalystSchema) -> dict[str, EmulatedTable]:
    """Return the tables as clients see them, with the keys whose columns analysts may use."""
    columns = {table.name: _list_columns(policy, table) for table in catalog.tables.values()}
    visible_columns = {
        normalize_name(name): {normalize_name(column.name): column.name for column in listed}
        for name, listed in columns.items()
    }
    spelt = {normalize_name(name): name for name in columns}
    return {
        table.name: EmulatedTable(
            describe_protection(policy, table),
            columns[table.name],
            _find_columns(
                visible_columns[normalize_name(table.name)], _get_primary_key(policy.tables[table.name])
            ),
            tuple(
                filter(
                    None,
                    (
                        _find_columns(visible_columns[normalize_name(table.name)], key)
                        for key in policy.tables[table.name].unique or ()
                    ),
                )
            ),
            tuple(
                _iterate_foreign_keys(
                    policy.tables[table.name], normalize_name(table.name), visible_columns, spelt
                )
            ),
        )
        for table in catalog.tables.values()
    }


def _get_primary_key(table: Table) -> tuple[str, ...]:
    """Return the unit's column of a table with one row for each unit, else nothing."""
    has_one = table.unit is not None and table.rows_per_unit == 1
    return (table.unit,) if has_one and table.unit is not None else ()


def _iterate_foreign_keys(
    table: Table, name: str, visible_columns: Mapping[str, Mapping[str, str]], spelt: Mapping[str, str]
) -> Iterator[ForeignKey]:
    for link in table.all_links:
        target = normalize_name(link.table)
        columns = _find_columns(visible_columns[name], link.names)
        references = _find_columns(visible_columns.get(target, {}), link.keys)
        if columns and references:
            yield ForeignKey(columns, spelt[target], references)


def _find_columns(visible_columns: Mapping[str, str], names: Sequence[str]) -> tuple[str, ...]:
    """Return columns as they are spelled, or nothing if analysts may not use one of them."""
    found = tuple(visible_columns.get(normalize_name(name), "") for name in names)
    return found if all(found) else ()


@dataclass(frozen=True, slots=True)
class _Session:
    """The session that a catalog query is of."""

    user: str
    emulator: PgCatalogEmulator
    activity: Callable[[], Sequence[Mapping[str, Any]]]
    settings: Callable[[], Sequence[tuple[str, str]]]

    def list_activity(self) -> list[Mapping[str, Any]]:
        """Return the rows of pg_stat_activity."""
        return [{"datid": 5, "datname": DATABASE, "usesysid": _USER, **row} for row in self.activity()]

    def list_roles(self) -> list[Mapping[str, Any]]:
        """Return the user itself and the owner of the tables: other users are not shown."""
        own = {
            "oid": _USER,
            "rolname": self.user,
            "rolcanlogin": True,
            "rolinherit": True,
            "rolconnlimit": -1,
        }
        return [{"oid": OWNER, "rolname": "owner", "rolconnlimit": -1}, own]

    def list_users(self) -> list[Mapping[str, Any]]:
        """Return the user itself."""
        return [{"usename": self.user, "usesysid": _USER}]

    def list_settings(self) -> list[Mapping[str, Any]]:
        """Return the rows of pg_settings."""
        return [
            {"name": name, "setting": value, "context": "user", "vartype": "string", "source": "session",
             "category": "dpsql" if name.startswith("dpsql.") else "PostgreSQL", "reset_val": value, "short_desc": ""}
            for name, value in self.settings()
        ]  # fmt: skip

    def list_privileges(self) -> list[Mapping[str, Any]]:
        """Return the tables of the policy, which every user may read."""
        return [
            {"grantor": "owner", "grantee": self.user, "table_catalog": DATABASE, "table_schema": schema,
             "table_name": table, "privilege_type": "SELECT", "is_grantable": "NO", "with_hierarchy": "NO"}
            for schema, table in self.emulator.list_tables()
        ]  # fmt: skip

    def list_role_names(self) -> list[Mapping[str, Any]]:
        """Return the name of the user's role."""
        return [{"role_name": self.user}]


_USER = 16_000
"""The number of the session's user in the catalog."""
_SESSION_ROWS: Mapping[str, Callable[[_Session], Sequence[Mapping[str, Any]]]] = {
    "pg.pg_stat_activity": _Session.list_activity,
    "pg.pg_roles": _Session.list_roles,
    "pg.pg_user": _Session.list_users,
    "pg.pg_settings": _Session.list_settings,
    "info.table_privileges": _Session.list_privileges,
    "info.role_table_grants": _Session.list_privileges,
    "info.enabled_roles": _Session.list_role_names,
}
"""Tables of the catalog whose rows are those of the session."""
_READERS = {
    place: (
        place.partition(".")[2],
        *(PREFIX + name for name, meanings in MACROS.items() if any(place in each for each in meanings)),
    )
    for place in _SESSION_ROWS
}
"""The names in a statement by which it reads such a table: its own, and those of the functions that look it up."""


def _list_columns(policy: Policy, table: AnalystTable) -> list[EmulatedColumn]:
    """List the columns that analysts may use; for a public table, all readable columns."""
    declared = policy.tables[table.name].columns
    return [
        EmulatedColumn(
            name,
            _OIDS[facts.type],
            not facts.nullable,
            _describe_column(declared.get(name), is_unit=table.is_private and facts.is_unit),
        )
        for name, facts in table.columns.values()
        if facts.type in _OIDS and (not table.is_private or name in declared)
    ]


def _describe_column(column: PolicyColumn | None, *, is_unit: bool) -> str | None:
    """Describe a column from the policy: whether it is the privacy unit, and its values."""
    found = [*(["the privacy unit"] if is_unit else []), *filter(None, [_describe_values(column)])]
    return ", ".join(found) or None


def _describe_values(column: PolicyColumn | None) -> str | None:
    if column is None:
        return None
    if column.bounds is not None:
        low, high = (f"{float(end):g}" if isinstance(end, Fraction) else str(end) for end in column.bounds)
        return f"from {low} to {high}"
    if column.values is not None:
        listed = ", ".join(map(str, column.values[:_LISTED]))
        return f"one of {listed}" + ", …" * (len(column.values) > _LISTED)
    return None
