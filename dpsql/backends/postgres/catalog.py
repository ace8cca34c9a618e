"""Read PostgreSQL's catalog: types, columns, keys and CHECK constraints of tables, and whether they have changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dpsql.backends.base import TableOrigin, build_table_keys
from dpsql.backends.postgres.dialect import POSTGRES, SCHEMA
from dpsql.backends.postgres.session import Rows, TransactionRunner
from dpsql.errors import BackendError, PolicyError
from dpsql.policy import normalize_name, split_table_name
from dpsql.policy.engine_types import UNLIMITED
from dpsql.policy.names import quote_identifier
from dpsql.policy.skeleton import TableKeys

# PostgreSQL's types, by the names of the engine types that policies and plans know.


_MOST_DIGITS = 38
_NAMES = MappingProxyType(
    {
        "smallint": "SMALLINT",
        "integer": "INTEGER",
        "bigint": "BIGINT",
        "real": "FLOAT",
        "double precision": "DOUBLE",
        "numeric": UNLIMITED,
        "text": "VARCHAR",
        "character varying": "VARCHAR",
        "character": "VARCHAR",
        "bpchar": "VARCHAR",
        "boolean": "BOOLEAN",
        "date": "DATE",
        "timestamp without time zone": "TIMESTAMP",
        "timestamp with time zone": "TIMESTAMP WITH TIME ZONE",
        "time without time zone": "TIME",
        "uuid": "UUID",
        "bytea": "BLOB",
    }
)
_SIZED = re.compile(r"(?P<name>[a-z ]+?)\((?P<digits>\d+)(?:,(?P<scale>-?\d+))?\)(?P<rest>[a-z ]*)")


def parse_engine_type(name: str, kind: str = "b", members: Sequence[str] = ()) -> str:
    """Return the engine type of a column, by `format_type`'s name for it, the `typtype` of its type, and the members of an enum.

    A column whose type is not listed here has a name that no policy reads: domains and types of extensions (as citext) among them,
    whose functions and comparisons anybody may have defined.

    >>> parse_engine_type("character varying(20)"), parse_engine_type("numeric(12,2)"), parse_engine_type("numeric")
    ('VARCHAR', 'DECIMAL(12,2)', 'NUMERIC')
    >>> parse_engine_type("timestamp(3) with time zone"), parse_engine_type("mood", "e", ["sad", "ok"]), parse_engine_type("citext")
    ('TIMESTAMP WITH TIME ZONE', "ENUM('sad', 'ok')", 'CITEXT (POSTGRESQL)')
    >>> parse_engine_type("numeric(12,2)[]"), parse_engine_type("interval[]")
    ('DECIMAL(12,2)[]', 'INTERVAL (POSTGRESQL)[]')
    """
    if kind == "e":
        listed = ", ".join("'" + member.replace("'", "''") + "'" for member in members)
        return f"ENUM({listed})"
    unread = f"{name.upper()} (POSTGRESQL)"
    if kind != "b":
        return unread
    if name.endswith("[]"):
        return f"{parse_engine_type(name.removesuffix('[]'))}[]"
    found = _SIZED.fullmatch(name)
    if found is None:
        return _NAMES.get(name, unread)
    if found["name"] == "numeric":
        digits, scale = int(found["digits"]), int(found["scale"] or 0)
        return f"DECIMAL({digits},{scale})" if 0 <= scale <= digits <= _MOST_DIGITS else UNLIMITED
    return _NAMES.get(found["name"] + found["rest"], unread)


# What PostgreSQL's catalog says of tables: columns, what stands behind a name, and what a role may do. No row is read.


_COLUMNS = """
    SELECT n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), t.typtype,
           CASE WHEN NOT (has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'))
                THEN 'NOT GRANTED TO THIS ROLE'
                WHEN a.attgenerated = 'v' THEN 'COMPUTED WHEN READ'
                WHEN t.typtype <> 'e' AND tn.nspname <> 'pg_catalog' THEN upper(t.typname) || ' (EXTENSION)' END,
           ARRAY(SELECT e.enumlabel::text FROM pg_enum AS e WHERE e.enumtypid = a.atttypid ORDER BY e.enumsortorder)
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type AS t ON t.oid = a.atttypid
    JOIN pg_namespace AS tn ON tn.oid = t.typnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
      AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'
      AND NOT c.relispartition
    ORDER BY n.nspname <> 'public', n.nspname, c.relname, a.attnum
"""
"""The columns of all tables and views except partitions, which are read through their table; and the reason why one is not read.

A right to columns alone is not enough for the lock under which a query reads."""

RELATION = """
    WITH RECURSIVE parts AS (
        SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = %s AND c.relname = %s
        UNION SELECT i.inhrelid FROM pg_inherits AS i JOIN parts ON i.inhparent = parts.oid
    )
    SELECT c.oid::bigint, c.relkind, c.relrowsecurity, COALESCE(m.amname, 'heap'), c.relpersistence
    FROM parts JOIN pg_class AS c ON c.oid = parts.oid LEFT JOIN pg_am AS m ON m.oid = c.relam
"""
"""A relation and those that inherit from it: its number, kind, row security, access method and persistence."""

DECLARED = """
    SELECT a.attname, a.attnotnull, NOT COALESCE(l.collisdeterministic, TRUE) FROM pg_attribute AS a
    JOIN pg_class AS c ON c.oid = a.attrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
    WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
"""
"""The columns; whether each is NOT NULL, and whether its collation takes texts for equal that differ."""

CHECKS = """
    SELECT pg_get_expr(k.conbin, k.conrelid) FROM pg_constraint AS k
    JOIN pg_class AS c ON c.oid = k.conrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND k.contype = 'c' AND k.convalidated
    ORDER BY k.conname
"""
"""The conditions of a table's CHECK constraints that hold for all its rows."""

KEYS = """
    SELECT n.nspname, c.relname, CASE k.contype WHEN 'p' THEN 'PRIMARY KEY' WHEN 'u' THEN 'UNIQUE' ELSE 'FOREIGN KEY' END,
           ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (number, place)
                 JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.number ORDER BY place),
           t.relname,
           ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u (number, place)
                 JOIN pg_attribute AS a ON a.attrelid = k.confrelid AND a.attnum = u.number ORDER BY place)
    FROM pg_constraint AS k
    JOIN pg_class AS c ON c.oid = k.conrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_class AS t ON t.oid = k.confrelid
    WHERE k.contype IN ('p', 'u', 'f') AND k.convalidated AND NOT c.relispartition
      AND (t.oid IS NULL OR t.relnamespace = c.relnamespace)
    ORDER BY n.nspname, c.relname, k.conname
"""
"""The primary, unique and foreign keys, as `build_table_keys` reads them."""

SERVER = """
    SELECT current_database(), current_setting('server_version_num')::int, current_setting('server_encoding'),
           (SELECT oid::bigint FROM pg_database WHERE datname = current_database()),
           current_setting('is_superuser') = 'on',
           (SELECT rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication
            FROM pg_roles WHERE rolname = current_user)
"""

IDENTITY = "SELECT (SELECT system_identifier FROM pg_control_system()), (SELECT timeline_id FROM pg_control_checkpoint())"

WRITABLE = """
    SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND n.nspname NOT LIKE 'pg\\_%'
      AND (pg_has_role(c.relowner, 'USAGE') OR has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE'))
    ORDER BY 1, 2
"""
"""The tables that the role may change."""

READABLE = """
    SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND n.nspname NOT LIKE 'pg\\_%' AND NOT c.relispartition
      AND has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
    ORDER BY 1, 2
"""
"""The tables that the role may read."""


# CHECK constraints as PostgreSQL writes them, in the words that `dpsql.policy.check_constraints` reads.


_TEXT = re.compile(r"'(?:[^']|'')*'")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_CAST = re.compile(
    r"'(?P<place>[0-9]+)'::(?P<type>[a-z]+(?: (?:precision|varying|without time zone))?)(?:\([0-9]+\))?"
)
_NUMBERS = r"(?:smallint|integer|bigint|numeric|real|double precision)"
_CONSTANT = re.compile(rf"\((?P<number>-?[0-9.]+)\)::{_NUMBERS}")
_COLUMN = re.compile(r'\((?P<name>\w+|"[^"]+")\)::text')
_ANY = re.compile(r"= ANY \((?:ARRAY\[(?P<plain>[^\[\]]*)\]|\(ARRAY\[(?P<cast>[^\[\]]*)\]\)::text\[\])\)")


def normalize_condition(text: str) -> str:
    """Return the condition, with constants, lists and columns of text as DuckDB writes them.

    Claim: the condition is the same; what has another form than those below stays as it is, and says nothing then.
    Why: PostgreSQL writes constants with casts to their types, negative numbers as texts, and IN as = ANY of an array; each of
    these forms is put into the one that DuckDB writes, outside of texts alone.
    Source: PostgreSQL's documentation, `pg_get_expr` and "Row and Array Comparisons".

    >>> normalize_condition("((n >= '-5'::integer) AND (n <= (10)::numeric) AND (day > '2020-01-01'::date))")
    "((n >= -5) AND (n <= 10) AND (day > CAST('2020-01-01' AS DATE)))"
    >>> normalize_condition("((plan)::text = ANY ((ARRAY['A'::character varying, 'it''s'::character varying])::text[]))")
    "(plan IN ('A', 'it''s'))"
    """
    texts = _TEXT.findall(text)
    places = iter(range(len(texts)))
    bare = _TEXT.sub(lambda _: f"'{next(places)}'", text)
    bare = _CAST.sub(lambda found: _normalize_constant(found, texts), bare)
    bare = _COLUMN.sub(lambda found: found["name"], _CONSTANT.sub(lambda found: found["number"], bare))
    bare = _ANY.sub(lambda found: f"IN ({found['plain'] or found['cast']})", bare)
    return re.sub(r"'([0-9]+)'", lambda found: texts[int(found[1])], bare)


def _normalize_constant(found: re.Match[str], texts: list[str]) -> str:
    """Return a text without its cast: a number, a day or a moment, or the text itself."""
    inner, kind = texts[int(found["place"])][1:-1], found["type"]
    if re.fullmatch(_NUMBERS, kind) and _NUMBER.fullmatch(inner):
        return inner
    if kind == "date" or kind.startswith("timestamp"):
        return f"CAST('{found['place']}' AS {kind.split()[0].upper()})"
    return f"'{found['place']}'" if kind in ("text", "character varying", "bpchar") else found[0]


# The tables of a policy, by the catalog.


_KINDS = MappingProxyType({"v": "a view", "m": "a materialized view", "f": "a foreign table"})
_Tables = dict[str, list[tuple[str, str]]]


class DeclaredTables:
    """The tables that a policy declares, and their definitions when the connection was opened."""

    def __init__(self, runner: TransactionRunner, names: Sequence[str]) -> None:
        self._runner, self.names = runner, names
        self._initial_definitions: object = None

    def read_columns(self) -> _Tables:
        """Read each table's columns with their engine types, and take the definitions of the declared ones as the initial ones.

        Names that differ in case only are left out. Raises PolicyError for a table that the policy spells in another case, which
        is another table here.
        """
        columns = self._query_columns()
        self._initial_definitions = self._read_definitions(columns)
        spelt = {normalize_name(name): name for name in columns}
        for name in self.names:
            if spelt.get(normalize_name(name), name) != name:
                raise PolicyError(
                    f"tables.{name}: the table is spelled {spelt[normalize_name(name)]} in the database, and PostgreSQL distinguishes case",
                    code="table_missing",
                    hint="use the spelling of the database",
                )
        return columns

    def forget_definitions(self) -> None:
        """Forget the initial definitions, so that no table counts as changed."""
        self._initial_definitions = None

    def _query_columns(self) -> _Tables:
        found: _Tables = {}
        for schema, table, column, name, kind, unread, members in self._runner.query_rows(_COLUMNS):
            known = unread or parse_engine_type(name, kind, members)
            found.setdefault(_format_table_name(schema, table), []).append((column, known))
        alike = [normalize_name(name) for name in found]
        return {
            name: [(column, kind) for column, kind in columns if _has_unique_name(column, columns)]
            for name, columns in found.items()
            if alike.count(normalize_name(name)) == 1
        }

    def _read_definitions(self, columns: Mapping[str, Sequence[tuple[str, str]]]) -> object:
        """Return the definitions of the declared tables: their columns, and the relations behind their names."""
        return [
            (
                columns.get(name),
                self._read_relations(name),
                self._runner.query_rows(DECLARED, _split_table_name(name)),
            )
            for name in self.names
        ]

    def _read_relations(self, table: str) -> Rows:
        with self._runner.open_transaction():
            return sorted(self._runner.query_rows(RELATION, _split_table_name(table)))

    def is_unchanged(self) -> bool:
        """Return whether the declared tables have their initial definitions.

        They are locked before the first look, with which the snapshot of the transaction begins: so the tables that are looked
        at are those that are read, and nobody can put another one behind a name meanwhile. A lock excludes changes of a table alone,
        and is waited for at most as long as the settings say.
        """
        if self._initial_definitions is None:
            return True
        tables = ", ".join(map(POSTGRES.queries.quote_table_name, self.names))
        try:
            if tables:
                self._runner.query_rows(f"LOCK TABLE {tables} IN ACCESS SHARE MODE")
            return self._read_definitions(self._query_columns()) == self._initial_definitions
        except BackendError:
            self._runner.restart_transaction()
            return False

    def find_origin(self, table: str) -> TableOrigin | None:
        """Find whether a name is a table, with all that inherits from it; views and foreign tables are told by their kind."""
        rows, query, name = self._read_relations(table), self._runner.query_catalog, _split_table_name(table)
        if not rows:
            return None
        foreign = [_KINDS[kind] for _, kind, *_ in rows if kind in _KINDS]
        foreign += ["a table with row security" for _, _, secured, *_ in rows if secured]
        foreign += ["storage of an extension" for _, _, _, method, _ in rows if method != "heap"]
        declared = query(DECLARED, name)
        checks = tuple(normalize_condition(str(text)) for (text,) in query(CHECKS, name))
        # One from which others inherit shows their rows, too, as a view would.
        return TableOrigin(
            frozenset(str(oid) for oid, *_ in rows),
            tuple(dict.fromkeys(foreign)),
            is_stored_table=len(rows) == 1,
            not_null_columns=frozenset(str(column) for column, present, _ in declared if present),
            check_constraints=checks,
            collated_columns=frozenset(str(column) for column, _, collated in declared if collated),
        )

    def read_table_keys(self) -> dict[str, TableKeys]:
        """Read the primary and foreign keys that each table declares."""
        return build_table_keys(self._runner.query_catalog(KEYS), _format_table_name)


def _format_table_name(schema: str, table: str) -> str:
    """Return the name of a table as policies have it."""
    plain = quote_identifier(table) if "." in table else table
    return plain if schema == SCHEMA else f"{schema}.{plain}"


def _split_table_name(table: str) -> tuple[str, str]:
    """Return the schema and the name of a declared table."""
    schema, name = split_table_name(table)
    return schema or SCHEMA, name


def _has_unique_name(column: str, columns: Sequence[tuple[str, str]]) -> bool:
    """Return whether no other column has this name in another case: policies know no case."""
    return sum(normalize_name(name) == normalize_name(column) for name, _ in columns) == 1
