"""Rewrite a catalog query in PostgreSQL's SQL as one in DuckDB's over the tables of a catalog emulator.

Claim: the rewritten statement only reads the emulator's catalog tables.
Why: it is one SELECT; every table in it is a catalog table, a common table expression or a subquery of its own; every
function is on a list of functions that read nothing else.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, TokenError

from dpsql.errors import DataError
from dpsql.policy.names import normalize_name
from dpsql.sql.parse.parse import call_without_logging
from dpsql.sql.parse.rejection import QueryText
from dpsql.sql.parse.translate import name_outputs
from dpsql.sql.pg_catalog.bounded_calls import (
    build_macro_call,
    limit_concatenation,
    limit_json,
    limit_quoting,
    limit_replacement,
    limit_series,
    limit_time_format,
    refuse_query,
    spell_out_format,
)
from dpsql.sql.pg_catalog.functions import (
    ALLOWED_NODES,
    BUILT_IN,
    MACROS,
    SESSION_FUNCTIONS,
    TABLE_FUNCTIONS,
    VECTORS,
    get_function_name,
)
from dpsql.sql.pg_catalog.planned_size import require_plannable
from dpsql.sql.pg_catalog.sources import names_common_table, prepare_sources
from dpsql.sql.pg_catalog.tokens import POSTGRES, normalize_tokens

MOST_CHARACTERS = 50_000
SCHEMAS = {"pg_catalog": "pg", "information_schema": "info"}
"""The schemas of the emulator that hold the catalog's tables."""
_ITEM = re.compile(r'"([^"\\{}]*+)"|([^",\\{}\s]++)')
_ARRAY = re.compile(r'\{(?:(?:"[^"\\{}]*+"|[^",\\{}\s]++)(?:,(?!\})|(?=\})))*+\}')
_TYPES = {
    "NAME": "TEXT", "OID": "UINTEGER", "INT2": "SMALLINT", "INT4": "INT", "INT8": "BIGINT", "REGPROC": "TEXT",
    "REGROLE": "TEXT", "CHAR": "TEXT", "XID": "UINTEGER", "SERIAL": "UINTEGER", "REGPROCEDURE": "TEXT", "REGOPER": "TEXT",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CatalogQuery:
    """A query that reads PostgreSQL's catalog, or nothing."""

    _tree: Any

    def to_duckdb_sql(
        self,
        session: Mapping[str, str],
        setting: Callable[[str], str | None],
        values: Collection[Any],
        assign: Callable[[str, str], str],
    ) -> str:
        """Return the statement for the twin, with the session's names and settings and the values of its parameters.

        `session` holds the values of current_user and the like, `setting` returns those of current_setting, and `assign`
        implements set_config. Raises QueryRejected for syntax that the emulator does not have.
        """
        return _CatalogRewriter(session, setting, tuple(values), assign).to_duckdb_sql(self._tree.copy())


def parse_catalog_query(
    text: str, declared: Collection[str], dialect: str = "postgres"
) -> CatalogQuery | None:
    """Return the catalog query of a text; None if it names tables outside of the catalog.

    `declared` are the folded names of the policy's tables, which take precedence over the catalog's. In another dialect than
    PostgreSQL's, a query without tables is one if it calls a function of PostgreSQL's catalog, or only has constants and
    functions of the session, which mean the same in each dialect.
    """
    if len(text) > MOST_CHARACTERS:
        return None
    try:
        tokens = normalize_tokens(POSTGRES.tokenize(text))
        parser = POSTGRES.parser(error_level=ErrorLevel.IMMEDIATE)
        trees = call_without_logging(lambda: parser.parse(tokens, text))
        tree = trees[0] if len(trees) == 1 else None
        if not isinstance(tree, (exp.Select, exp.SetOperation)) or not _reads_only_catalog(
            tree, declared, dialect
        ):
            return None
        if dialect == "postgres" or tree.find(exp.Func, exp.Table) is not None:
            name_outputs(QueryText(text), tree)
    except (ParseError, TokenError, RecursionError, TypeError, ValueError, AttributeError, LookupError):
        return None
    return CatalogQuery(tree)


def _reads_only_catalog(tree: exp.Expr, declared: Collection[str], dialect: str) -> bool:
    """Return whether every table of a query is in the catalog, or it has no table and may be answered without one."""
    named = [table for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
    read = [table for table in named if not names_common_table(table)]
    if not all(_find_schema(table, declared) for table in read):
        return False
    if read:
        return True
    if dialect != "postgres" and not (_calls_catalog(tree) or _has_only_constants(tree)):
        return False
    return _has_known_functions(tree)


def _calls_catalog(tree: exp.Expr) -> bool:
    """Return whether a query calls a function or names a type of PostgreSQL's catalog, which other dialects do not have."""
    if tree.find(exp.ObjectIdentifier) is not None:
        return True
    names = {get_function_name(call) for call in tree.find_all(exp.Func)}
    return any(
        name in MACROS or name in TABLE_FUNCTIONS or name in SESSION_FUNCTIONS - _SHARED for name in names
    )


def _has_only_constants(tree: exp.Expr) -> bool:
    """Return whether a query lists constants and values of the session, as pools send it to test a connection."""
    return all(
        isinstance(node, _CONSTANTS)
        or (isinstance(node, exp.Func) and get_function_name(node) in SESSION_FUNCTIONS)
        for node in tree.walk()
    )


def _has_known_functions(tree: exp.Expr) -> bool:
    """Return whether a query without tables only calls functions that the twin has: the engine refuses the rest, with a reason."""
    return all(
        isinstance(call, ALLOWED_NODES)
        or get_function_name(call) in SESSION_FUNCTIONS
        or isinstance(call, _SPELT_OUT)
        or get_function_name(call) in _JSON
        or get_function_name(call) in MACROS
        or get_function_name(call) in TABLE_FUNCTIONS
        or get_function_name(call) in BUILT_IN
        for call in tree.find_all(exp.Func)
    )


def _rewrite_table(node: exp.Table) -> exp.Table:
    """Return a catalog table by the name of its schema, under its alias or its own name."""
    return exp.Table(
        this=exp.to_identifier(normalize_name(node.name)),
        db=exp.to_identifier(_find_schema(node, ())),
        alias=node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name)),
        joins=node.args.get("joins"),
    )


def _find_schema(table: exp.Table, declared: Collection[str]) -> str | None:
    """Return the schema of the twin in which a table is, None for another table."""
    name, schema = normalize_name(table.name), normalize_name(table.db)
    if (table.catalog and not schema) or (not schema and name in declared):
        return None
    for known, twin in SCHEMAS.items():
        if (schema or "pg_catalog") == known and (known == "information_schema" or name.startswith("pg_")):
            return twin
    return None


_SHARED = {
    "current_date", "current_timestamp", "now", "localtimestamp", "current_user", "user", "version", "current_schema",
}  # fmt: skip
"""Functions of the session that other dialects have, too: among operators they are left to the query's own dialect."""
_CONSTANTS = (
    exp.Select, exp.From, exp.Table, exp.Star, exp.Alias, exp.TableAlias, exp.Identifier, exp.Literal, exp.Null, exp.Boolean,
)  # fmt: skip
_SPELT_OUT = (exp.ArrayRemove, exp.Format, exp.TimeToStr, exp.JSONArrayAgg, exp.JSONObjectAgg)
"""Calls that are written in another way for the emulator."""
_NAMES = {
    "current_schema": "schema", "current_database": "database", "current_catalog": "database", "version": "version",
    "current_user": "current_user", "session_user": "current_user", "user": "current_user", "current_role": "current_user",
}  # fmt: skip
"""What functions of the session return, by the names in `session`."""
_QUOTING = {"quote_ident", "quote_literal"}
_JSON = {"row_to_json", "to_json", "to_jsonb"}
_PLACES = {"generate_subscripts", "array_lower", "array_upper"}
_MOMENTS = {
    "current_timestamp",
    "clock_timestamp",
    "statement_timestamp",
    "transaction_timestamp",
    "now",
    "localtimestamp",
}


@dataclass(frozen=True, slots=True)
class _CatalogRewriter:
    session: Mapping[str, str]
    setting: Callable[[str], str | None]
    values: tuple[Any, ...]
    assign: Callable[[str, str], str]

    def to_duckdb_sql(self, tree: exp.Expr) -> str:
        try:
            require_plannable(tree)
            prepare_sources(tree)
            return str(self._rewrite_tree(tree).sql(dialect="duckdb"))
        except (ValueError, RecursionError, TypeError, AttributeError, LookupError):
            refuse_query("the catalog query cannot be translated")

    def _rewrite_tree(self, node: exp.Expr) -> exp.Expr:
        """Return each node after those within it, so that none is left as it was written."""
        for child in list(node.iter_expressions()):
            written = self._rewrite_tree(child)
            if written is not child:
                child.replace(written)
        return self._rewrite_node(node)

    def _rewrite_node(self, node: exp.Expr) -> exp.Expr:  # noqa: C901, PLR0912  (a case for each kind of node)
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                return node if names_common_table(node) else _rewrite_table(node)
            case exp.Table() if not isinstance(node.this, exp.Func):
                refuse_query("a catalog query may only read tables by their names")
            case exp.Column() if node.table and node.args.get("db"):
                return exp.Column(this=node.this, table=node.args["table"])
            case exp.Column() if not node.table and normalize_name(node.name) in (
                "session_user",
                "user",
                "current_role",
            ):
                return _build_string_literal(self.session["current_user"])
            case exp.Parameter() | exp.Placeholder():
                return self._build_parameter_value(node)
            case exp.ByteString():
                return _build_string_literal(str(node.this))
            case exp.Cast():
                return self._rewrite_cast(node)
            case exp.Bracket() if _is_vector(node.this):
                place = exp.paren(node.expressions[0].copy()) + 1
                return exp.Bracket(this=node.this, expressions=[place])
            case exp.Anonymous() if node.name.lower() in _PLACES and _is_vector(
                next(iter(node.expressions), node)
            ):
                return exp.paren(self._rewrite_call(node) - 1)
            case exp.Unnest() if len(node.expressions) > 1:
                return _build_parallel_unnest(node)
            case exp.Anonymous() if node.name.upper() in ("ALL", "SOME") and len(node.expressions) == 1:
                listed = node.expressions[0]
                is_text = isinstance(listed, exp.Literal) and listed.is_string
                return exp.Anonymous(this=node.name, expressions=[_parse_array(listed)]) if is_text else node
            case exp.GenerateSeries() | exp.ExplodingGenerateSeries():
                return limit_series(node)
            case exp.DPipe() | exp.Concat():
                return limit_concatenation(node)
            case exp.Any():
                return _rewrite_any(node)
            case exp.Replace():
                return limit_replacement(node)
            case exp.ArrayRemove():
                return build_macro_call("array_remove", node.this, node.expression)
            case exp.Format():
                return spell_out_format(node)
            case exp.TimeToStr():
                return limit_time_format(node)
            case exp.JSONArrayAgg() | exp.JSONObjectAgg():
                return _rewrite_json_aggregate(node)
            case exp.Func():
                return self._rewrite_call(node)
            case exp.Into() | exp.Lock():
                refuse_query("a catalog query may only read")
        return node

    def _build_parameter_value(self, node: exp.Expr) -> exp.Expr:
        number = node.this.name if isinstance(node.this, exp.Expr) else str(node.this)
        if not (number.isascii() and number.isdigit() and 0 < int(number) <= len(self.values)):
            refuse_query("a parameter of a catalog query has no value")
        value = self.values[int(number) - 1]
        match value:
            case None:
                return exp.Null()
            case bool():
                return exp.Boolean(this=value)
            case int() | float():
                return exp.Literal.number(value) if value >= 0 else exp.Neg(this=exp.Literal.number(-value))
            case str():
                return _build_string_literal(value)
            case tuple():  # as PostgreSQL writes an array, which `= ANY` takes
                return _build_string_literal("{" + ",".join(f'"{item}"' for item in value) + "}")
        raise DataError("a parameter of a catalog query must be a text or a number", code="parameter")

    def _rewrite_cast(self, node: exp.Cast) -> exp.Expr:
        name = node.to.sql(dialect="postgres").strip('"').upper()
        inner = node.this
        literal = isinstance(inner, exp.Literal) and inner.is_string and not inner.name.isdigit()
        match name:
            case "REGCLASS":
                # A name, if it is one or is to be a number; else a number, of which the name is shown.
                outer = node.parent
                is_number = isinstance(outer, exp.Cast) and outer.to.sql().upper() == "OID"
                if literal or (is_number and not isinstance(inner, exp.Literal)):
                    return build_macro_call("to_regclass", inner)
                if isinstance(inner, exp.Literal) and not isinstance(outer, exp.Cast):
                    return exp.Cast(this=inner, to=exp.DataType.build("UINTEGER", dialect="duckdb"))
                return inner if is_number else build_macro_call("regclass_name", inner)
            case "REGTYPE":
                return build_macro_call("to_regtype" if literal else "regtype_name", inner)
            case "REGNAMESPACE":
                return build_macro_call("to_regnamespace" if literal else "schema_name", inner)
        if name.endswith("[]") and isinstance(inner, exp.Literal) and inner.is_string:
            inner = _parse_array(inner)
            node = exp.Cast(this=inner, to=node.to)
        if name.removesuffix("[]") in _TYPES:
            to = _TYPES[name.removesuffix("[]")] + "[]" * name.endswith("[]")
            return exp.Cast(this=inner, to=exp.DataType.build(to, dialect="duckdb"))
        if name == '"CHAR"':
            return exp.Cast(this=inner, to=exp.DataType.build("TEXT"))
        return node

    def _rewrite_call(self, node: exp.Func) -> exp.Expr:
        name = get_function_name(node)
        arguments = list(node.expressions) if isinstance(node, exp.Anonymous) else []
        if name in SESSION_FUNCTIONS:
            return self._rewrite_session_call(name, arguments, node)
        if name in _QUOTING and len(arguments) == 1:
            return limit_quoting(name, arguments[0])
        if name in _JSON and arguments:
            return limit_json(exp.Anonymous(this="to_json", expressions=arguments[:1]))
        if name in MACROS and isinstance(node, exp.Anonymous):
            return build_macro_call(name, *arguments)
        if name == "json_build_object" or isinstance(node, exp.JSONObject):
            return exp.Null()  # for sequences and collations, which the twin lacks
        if isinstance(node, ALLOWED_NODES) or name in BUILT_IN:
            return node
        refuse_query(f"the function {name} is not supported in catalog queries")

    def _rewrite_session_call(self, function: str, arguments: list[exp.Expr], node: exp.Expr) -> exp.Expr:
        match function:
            case "set_config":
                return self._apply_set_config(arguments, node)
            case "current_setting":
                return self._read_setting(arguments)
            case "current_schemas":
                return exp.Array(
                    expressions=[_build_string_literal("pg_catalog"), _build_string_literal("public")]
                )
            case "pg_backend_pid":
                return exp.Literal.number(self.session["process"])
            case "current_date":
                return exp.cast(_build_string_literal(self.session["moment"][:10]), "DATE")
            case _ if function in _MOMENTS:
                return exp.cast(_build_string_literal(self.session["moment"]), "TIMESTAMP")
        named = _NAMES.get(function)
        return exp.Null() if named is None else _build_string_literal(self.session[named])

    def _read_setting(self, arguments: list[exp.Expr]) -> exp.Expr:
        """Return the value of a setting, or NULL if there is none."""
        name = arguments[0].unnest() if arguments else exp.Null()
        name = name.this if isinstance(name, exp.Cast) else name
        if not isinstance(name, exp.Literal):
            return build_macro_call("pg_settings_value", name)
        found = self.setting(name.name)
        return exp.Null() if found is None else _build_string_literal(found)

    def _has_one_row(self, select: exp.Select) -> bool:
        """Return whether a query has no clause but its SELECT list, or reads one setting by its name."""
        clauses = {name for name, value in select.args.items() if value} - {"expressions", "kind"}
        if not clauses:
            return True
        if clauses != {"from_", "where"}:
            return False
        table, condition = select.args["from_"].this, select.args["where"].this
        return (
            isinstance(table, exp.Table)
            and not table.args.get("joins")
            and normalize_name(table.name) == "pg_settings"
            and isinstance(condition, exp.EQ)
            and isinstance(condition.this, exp.Column)
            and normalize_name(condition.this.name) == "name"
            and isinstance(condition.expression, exp.Literal)
            and self.setting(condition.expression.name) is not None
        )

    def _apply_set_config(self, arguments: list[exp.Expr], node: exp.Expr) -> exp.Expr:
        """Return the value that set_config has set, once: in the SELECT list of a query of one row."""
        item = node.parent if isinstance(node.parent, exp.Alias) else node
        select = item.parent
        if not isinstance(select, exp.Select) or select.parent is not None or not self._has_one_row(select):
            refuse_query(
                "set_config is only allowed in the SELECT list of a query without FROM; SET is another "
                "way to change a setting"
            )
        name, value = ([*arguments, exp.Null(), exp.Null()])[:2]
        if len(arguments) != 3 or not all(isinstance(each, exp.Literal) for each in (name, value)):
            refuse_query("set_config takes a name, a value, and whether it only lasts for the transaction")
        return _build_string_literal(self.assign(name.name, value.name))


def _rewrite_any(node: exp.Any) -> exp.Expr:
    """Return `= ANY('{r,v}')` with PostgreSQL's notation of an array as a list, as clients give it for a parameter."""
    listed = node.this.unnest()
    if not isinstance(listed, exp.Literal) or not listed.is_string:
        return node
    return exp.Any(this=exp.paren(_parse_array(listed)))


def _is_vector(node: exp.Expr) -> bool:
    """Return whether an expression is a vector, whose places begin at 0."""
    return isinstance(node, exp.Column) and normalize_name(node.name) in VECTORS


def _build_parallel_unnest(node: exp.Unnest) -> exp.Expr:
    """Return `unnest(a, b) WITH ORDINALITY` as a subquery, since the engine's takes one list."""
    items: list[exp.Expr] = [exp.Explode(this=each.copy()) for each in node.expressions]
    if node.args.get("offset"):
        places = [node.expressions[0].copy(), exp.Literal.number(1)]
        items.append(exp.Anonymous(this="generate_subscripts", expressions=places))
    alias = node.args.get("alias")
    names = [*(alias.args.get("columns") or ())] if alias is not None else []
    if isinstance(node.args.get("offset"), exp.Identifier):
        names.append(node.args["offset"])
    named = [
        exp.Alias(this=item, alias=name.copy()) if name is not None else item
        for item, name in itertools.zip_longest(items, names[: len(items)])
    ]
    label = None if alias is None else exp.TableAlias(this=alias.this)
    return exp.Lateral(this=exp.Subquery(this=exp.Select(expressions=named)), alias=label)


def _rewrite_json_aggregate(node: exp.Expr) -> exp.Expr:
    """Return JSON_AGG and JSON_OBJECT_AGG as the engine calls them."""
    if isinstance(node, exp.JSONArrayAgg):
        items, name = [node.this], "json_group_array"
    else:
        items, name = list(node.expressions), "json_group_object"
    if any(isinstance(item, exp.Order) for item in items):
        refuse_query("JSON_AGG with ORDER BY is not supported in catalog queries")
    return limit_json(exp.Anonymous(this=name, expressions=items))


def _parse_array(listed: exp.Literal) -> exp.Array:
    """Return the items of an array that is written as a text."""
    if not _ARRAY.fullmatch(listed.name):
        refuse_query("an array of a catalog query must be a plain list of names")
    items = [quoted or plain for quoted, plain in _ITEM.findall(listed.name[1:-1])]
    return exp.Array(expressions=list(map(_build_string_literal, items)))


def _build_string_literal(value: str) -> exp.Expr:
    return exp.Literal.string(value)
