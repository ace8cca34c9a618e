"""Read DuckDB's catalog: tables with their columns, declared keys and constraints, and the origin of their rows."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpsql.backends.base import TableOrigin, build_table_keys
from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.backends.duckdb.settings import SettingsGuard
from dpsql.backends.duckdb.statements import Rows, StatementRunner
from dpsql.backends.duckdb.versions import supports
from dpsql.errors import BackendError, OperationalError
from dpsql.policy import normalize_name, split_table_name
from dpsql.policy.check_constraints import parse_constraints
from dpsql.policy.engine_types import parse_struct_fields
from dpsql.policy.names import quote_identifier, quote_literal, quote_table_name
from dpsql.policy.skeleton import TableKeys

# Read the schema, and what it declares: keys, NOT NULL, CHECK and collations.


_SCHEMA = """
    SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()
    WHERE NOT internal AND current_schema() = 'main' AND NOT starts_with(table_name, '#')
      AND (database_name = current_database() OR (database_name = 'temp' AND schema_name = 'main'))
    -- A name that two databases have is left out: which of them it means could change.
    QUALIFY COUNT(DISTINCT database_name) OVER (PARTITION BY lower(schema_name), lower(table_name)) = 1
    ORDER BY schema_name <> 'main', schema_name, table_name, column_index
"""
_FUNCTIONS = "SELECT function_name FROM duckdb_functions() WHERE internal = {}"
_VIEW = """
    SELECT sql FROM duckdb_views()
    WHERE NOT internal AND {} AND view_name = {}
"""
_STORED_NAMES = "SELECT table_name FROM duckdb_tables()"
_COMPUTED = """
    SELECT (SELECT COUNT(*) FROM duckdb_views() WHERE NOT internal)
        + (SELECT COUNT(*) FROM duckdb_tables() WHERE sql IS NULL OR contains(upper(sql), 'GENERATED'))
"""
_COLUMNS = """
    SELECT column_name, is_nullable, data_type FROM duckdb_columns()
    WHERE NOT internal AND {} AND table_name = {}
"""
_CHECKS = """
    SELECT expression FROM duckdb_constraints()
    WHERE {} AND constraint_type = 'CHECK' AND expression IS NOT NULL AND table_name = {}
"""
_KEYS = """
    SELECT schema_name, table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names
    FROM duckdb_constraints()
    WHERE database_name = current_database() AND constraint_type IN ('PRIMARY KEY', 'UNIQUE', 'FOREIGN KEY')
    ORDER BY constraint_index
"""


class CatalogReader:
    """The catalog of a connection, by whose plans the origins of rows are found. No row is read."""

    def __init__(self, runner: StatementRunner, guard: SettingsGuard) -> None:
        self._runner, self._guard = runner, guard

    def read_columns(self) -> dict[str, list[tuple[str, str]]]:
        """Read each table's columns with their engine types."""
        tables: dict[str, list[tuple[str, str]]] = {}
        for schema, table, column, kind in self._runner.query_rows(_SCHEMA):
            tables.setdefault(_format_table_name(schema, table), []).append((column, kind))
        return tables

    def read_table_keys(self) -> dict[str, TableKeys]:
        """Read the primary and foreign keys of each table."""
        return build_table_keys(self._runner.query_rows(_KEYS), _format_table_name)

    def has_computed_columns(self) -> bool:
        """Return whether there are views or generated columns, which may read the clock."""
        ((computed,),) = self._runner.query_rows(_COMPUTED)
        return bool(computed)

    def refuse_shadows(self) -> None:
        """Raise OperationalError if a macro of the database hides a function of DuckDB."""
        macros = {name.lower() for (name,) in self._runner.query_rows(_FUNCTIONS.format("false"))}
        own = self._runner.query_rows(_FUNCTIONS.format("true")) if macros else []
        shadows = sorted(macros.intersection(name.lower() for (name,) in own))
        if shadows:
            raise OperationalError(
                f"macros of the database hide functions of DuckDB: {', '.join(shadows)}",
                code="shadowed",
                hint="drop or rename the macros",
            )

    def find_origin(self, table: str) -> TableOrigin | None:
        """Find the origin of a table's or view's rows, or None if DuckDB cannot bind it."""
        read, condition = self._runner.query_rows, _build_table_condition(table)
        definitions = [str(sql) for (sql,) in read(_VIEW.format(*condition))]
        with self._guard.show_bound_plans():
            try:
                explained = self._runner.query_plans(
                    f"EXPLAIN (FORMAT JSON) SELECT * FROM {quote_table_name(table)}"
                )
            except BackendError:
                return None
        plan = _find_bound_plan(explained)
        if plan is None:
            return None
        frames = frozenset({_ARROW, _PANDAS} if self._runner.owned else {_ARROW})
        found = parse_origin(table, plan, next(iter(definitions), None), frames=frames)
        if not supports("qualified_scans"):
            found = _refuse_ambiguous_scans(found, read(_STORED_NAMES))
        columns = read(_COLUMNS.format(*condition))
        checks = tuple(str(text) for (text,) in read(_CHECKS.format(*condition)))
        said = parse_constraints(checks)
        required = (
            n
            for n, null, _ in columns
            if not null or (normalize_name(n) in said and said[normalize_name(n)].not_null)
        )
        return replace(
            found,
            not_null_columns=frozenset(required),
            check_constraints=checks,
            collated_columns=self.find_collated_columns(table),
        )

    def find_collated_columns(self, table: str) -> frozenset[str]:
        """Return the columns whose collation does not compare bytes."""
        rows = self._runner.query_rows(_COLUMNS.format(*_build_table_condition(table)))
        columns = [(str(name), str(kind)) for name, _, kind in rows]
        with self._guard.show_bound_plans():
            plans = [
                str(_find_bound_plan(self._runner.query_plans(sql)))
                for sql in _build_collation_probes(table, columns)
            ]
        return _compare_collations(columns, plans)


def _refuse_ambiguous_scans(origin: TableOrigin, stored: Rows) -> TableOrigin:
    """Return the origin, in which names of tables that `stored` has more than once are foreign: they may be another's."""
    counts = Counter(str(name) for (name,) in stored)
    ambiguous = [f"one of the tables named {name}" for name in sorted(origin.tables) if counts[name] > 1]
    return replace(origin, foreign_sources=(*origin.foreign_sources, *ambiguous))


def _find_bound_plan(explained: Rows) -> str | None:
    """Return the plan that the engine binds, among those that EXPLAIN shows."""
    plans: dict[str, str] = dict(explained)
    return plans.get("logical_plan")


def _format_table_name(schema: str, table: str) -> str:
    """Return a table's name in a policy; a table with a dot in its own name, which no policy can name, is quoted."""
    plain = quote_identifier(table) if "." in table else table
    return plain if schema == "main" else f"{schema}.{plain}"


def _build_table_condition(table: str) -> tuple[str, str]:
    """Return the catalog condition for a table's schema and database, and its name as a literal."""
    schema, name = split_table_name(table)
    databases = "(current_database(), 'temp')" if not schema else "(current_database())"
    return f"schema_name = {quote_literal(schema or 'main')} AND database_name IN {databases}", quote_literal(
        name
    )


def _build_collation_probes(table: str, columns: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the queries whose plans show which columns, of engine types, have a collation; none of a table without texts.

    Claim: the two plans write a comparison in two ways exactly where the collation of a column or field is not the one that
    compares bytes.
    Why: the catalog does not say what a column's collation is. Binding writes a comparison under a collation as one of
    function calls (`lower(id) = lower('')`), and a view hands the collation of its columns on.
    Source: DuckDB's documentation, "Collations".
    """
    texts = [read for name, kind in columns for read in _iterate_text_paths((name,), kind)]
    return tuple(
        f"EXPLAIN (FORMAT JSON) SELECT {', '.join(form.format(text) for text in texts)} FROM {quote_table_name(table)}"
        for form in ("{} = ''", "({} COLLATE \"binary\") = ''")
        if texts
    )


def _compare_collations(columns: Sequence[tuple[str, str]], plans: Sequence[str]) -> frozenset[str]:
    """Return the columns that have a collation, or a field that has one, by the plans of `_build_collation_probes` as JSON."""
    names = [name for name, kind in columns for _ in _iterate_text_paths((name,), kind)]
    written = [_list_expressions(json.loads(plan)[0]["extra_info"]["Expressions"]) for plan in plans]
    return frozenset(name for name, *forms in zip(names, *written, strict=True) if len(set(forms)) > 1)


def _list_expressions(expressions: Any) -> list[str]:
    return [expressions] if isinstance(expressions, str) else expressions


def _iterate_text_paths(names: tuple[str, ...], kind: str) -> Iterator[str]:
    """Yield each text that is a column or a field of it, as it is read."""
    if kind == "VARCHAR":
        yield DUCKDB.columns.emit_column_path(names)
    for field, of in (parse_struct_fields(kind) or {}).items():
        yield from _iterate_text_paths((*names, field), of)


# Where the rows of a table or view come from, by the plan that DuckDB binds for it.


READS_NOTHING = frozenset(
    {
        *("PROJECTION", "FILTER", "AGGREGATE", "WINDOW", "DISTINCT", "SAMPLE", "LIMIT", "ORDER_BY", "TOP_N"),
        *("COMPARISON_JOIN", "ANY_JOIN", "ASOF_JOIN", "POSITIONAL_JOIN", "CROSS_PRODUCT"),
        *("DELIM_JOIN", "DEPENDENT_JOIN", "DELIM_GET", "UNION", "EXCEPT", "INTERSECT"),
        *("CTE", "REC_CTE", "CTE_SCAN", "EXPRESSION_GET", "DUMMY_SCAN", "EMPTY_RESULT"),
        *("UNNEST", "RANGE", "GENERATE_SERIES", "REPEAT"),
    }
)
"""Operators that pass rows on, or make them of constants."""
STORED = "SEQ_SCAN"
"""The scan of a table in DuckDB's own storage, which looks at the bytes of each text that is put into it."""
_ARROW, _PANDAS = "PYTHON_ARROW_SCAN" if supports("frame_views") else "ARROW_SCAN", "PANDAS_SCAN"
_FRAME = re.compile(
    r"SELECT \* FROM (python_arrow_scan|pandas_scan)\(\) AS \w+;?\Z" if supports("frame_views") else r"\A\Z"
)
_FRAME_PLAN = ("PROJECTION", "PROJECTION")


def parse_origin(table: str, plan: str, definition: str | None, *, frames: frozenset[str]) -> TableOrigin:
    """Return the origin of `table`, by its plan as JSON and the SQL of its view, if it is one.

    A registered frame is a view of its own; what another view reads of frames has no name, so that it is
    foreign there. `frames` are the scans of frames that are read without failing on any value.

    Claim: every stored table that a view reads, through other views, macros, subqueries and names of any spelling, is in its
    `TableOrigin`, and so is every operator that may read anything else.
    Why: the plan is the engine's own, taken before an optimizer could leave a scan out; an operator that is not known to read
    nothing is taken to read something.
    Source: DuckDB's documentation, "EXPLAIN" (explain_output).
    """
    nodes = list(_iterate_nodes(json.loads(plan)))
    names = [str(node["name"]) for node in nodes]
    if definition is not None and _FRAME.search(definition) and (*names[:-1],) == _FRAME_PLAN:
        foreign: tuple[str, ...] = () if names[-1] in frames else (names[-1],)
        return TableOrigin(frozenset({f"frame {table}"}), foreign, has_checked_texts=False)
    tables = frozenset(node["extra_info"].get("Table", "?") for node in nodes if node["name"] == STORED)
    foreign = tuple(dict.fromkeys(name for name in names if name != STORED and name not in READS_NOTHING))
    return TableOrigin(tables, foreign, is_stored_table=definition is None)


def _iterate_nodes(plan: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in plan:
        yield node
        yield from _iterate_nodes(node["children"])


# Fingerprints of tables, by which an owner sees that data changed: exact, salted, and for nobody else.


_BYTES = 16


def compute_fingerprints(
    tables: Mapping[str, Sequence[str]], salt: bytes, query_rows: Callable[[str], Sequence[tuple[Any, ...]]]
) -> dict[str, str]:
    """Return for each table the fingerprint of these columns of all rows, in hexadecimal digits; `query_rows` gives the rows of a statement.

    Claim: equal rows, in any order, have the same fingerprint; other rows have another, except with negligible probability. Without
    the salt nobody can hold a guess of all rows against one.
    Why: the number of rows and two sums of their hashes do not depend on the order, and a row that occurs twice counts twice. The
    digest is keyed by the salt. The engine's hash is not cryptographic: somebody who may write rows can find others with the same
    sums.
    Source: Bellare, Micciancio 1997, "A new paradigm for collision-free hashing" (sums of hashes of a multiset); RFC 7693 (keyed
    BLAKE2).
    """
    found = {}
    for table, columns in tables.items():
        row = f"hash(ROW({', '.join(map(quote_identifier, columns))}))" if columns else "0"
        ((rows, total, other),) = query_rows(
            f"SELECT COUNT(*), SUM(h::HUGEINT), BIT_XOR(hash(h)) FROM (SELECT {row} AS h FROM {quote_table_name(table)})"
        )
        names = "\0".join(columns)
        text = f"{names}\0{rows} {total} {other}".encode(errors="surrogatepass")
        found[table] = hashlib.blake2b(text, key=salt, digest_size=_BYTES).hexdigest()
    return found
