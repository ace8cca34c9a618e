"""The PostgreSQL catalog for clients: the policy's tables, from an emulator without data."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache, partial
from threading import Condition
from typing import Any

from dpsql.backends.analyst_schema import AnalystSchema, AnalystTable
from dpsql.backends.pg_catalog_emulator import EmulatedColumn, PgCatalogEmulator
from dpsql.interfaces.server.protocol.messages import SERVER_VERSION
from dpsql.interfaces.server.protocol.values import (
    BOOL,
    DATE,
    FLOAT8,
    INT8,
    OID,
    TEXT,
    TIMESTAMP,
    Column,
    get_array_oid,
    get_oid,
)
from dpsql.plan.types import Type
from dpsql.policy import Column as PolicyColumn
from dpsql.policy import Policy, normalize_name
from dpsql.sql.pg_catalog.parameters import ListType, infer_parameter_types
from dpsql.sql.pg_catalog.rewrite import MACROS, PREFIX, CatalogQuery, parse_catalog_query

DATABASE = "dpsql"
_OIDS = {
    Type.INTEGER: INT8,
    Type.DOUBLE: FLOAT8,
    Type.VARCHAR: TEXT,
    Type.DATE: DATE,
    Type.TIMESTAMP: TIMESTAMP,
    Type.BOOLEAN: BOOL,
}
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
        tables = {
            table.name: (_describe_table(policy, table), _list_columns(policy, table))
            for table in catalog.tables.values()
        }
        self._types = dict[str, Type]()
        for table in catalog.tables.values():
            for name, facts in table.columns.values():
                self._types.setdefault(normalize_name(name), facts.type)
        self._create_emulator = partial(PgCatalogEmulator, DATABASE, tables, MACROS, PREFIX)
        self._idle, self._free = [self._create_emulator()], Condition()
        self._creatable = limit - 1

    def match_query(self, text: str) -> CatalogQuery | None:
        """Return the catalog query of a text, or None if it is for the engine."""
        return self._match_cached(text)

    def infer_parameter_types(self, text: str, types: tuple[int, ...]) -> tuple[int, ...]:
        """Infer the types of a statement's parameters: as the client states, else from the context, else text."""
        found = {} if all(types) else infer_parameter_types(text, self._types)
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
    ) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
        """Return the columns and rows of a catalog query. Raises QueryRejected if it is not supported.

        `activity` returns the rows of pg_stat_activity that the user may see, and `assign` runs set_config.
        """
        session = {
            "current_user": user,
            "database": DATABASE,
            "process": "0",
            "version": f"PostgreSQL {SERVER_VERSION} (dpsql: answers are differentially private)",
        }
        written = query.to_duckdb_sql(session, setting, values, assign)
        with self._acquire_emulator() as emulator:
            if "pg_stat_activity" in written:
                emulator.show_activity(DATABASE, activity())
            columns, rows = emulator.answer_statement(written, self._seconds)
        return tuple(Column(name, get_oid(kind)) for name, kind in columns), rows

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


def _list_columns(policy: Policy, table: AnalystTable) -> list[EmulatedColumn]:
    """List the columns that analysts may use; for a public table, all readable columns."""
    declared = policy.tables[table.name].columns
    return [
        EmulatedColumn(name, _OIDS[facts.type], not facts.nullable, _describe_column(declared.get(name)))
        for name, facts in table.columns.values()
        if facts.type in _OIDS and (not table.is_private or name in declared)
    ]


def _describe_table(policy: Policy, table: AnalystTable) -> str:
    return f"private: it protects each {policy.privacy_unit}" if table.is_private else "public"


def _describe_column(column: PolicyColumn | None) -> str | None:
    """Describe the values of a column from the policy."""
    if column is None:
        return None
    if column.bounds is not None:
        low, high = (f"{float(end):g}" if isinstance(end, Fraction) else str(end) for end in column.bounds)
        return f"from {low} to {high}"
    if column.values is not None:
        listed = ", ".join(map(str, column.values[:_LISTED]))
        return f"one of {listed}" + ", …" * (len(column.values) > _LISTED)
    return None
