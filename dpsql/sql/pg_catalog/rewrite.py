"""Rewrite a catalog query in PostgreSQL's SQL as one in DuckDB's over the tables of a catalog emulator.

Claim: the rewritten statement only reads the emulator's catalog tables.
Why: it is one SELECT; every table in it is a catalog table, a common table expression or a subquery of its own; every
function is on a list of functions that read nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import DataError, QueryRejected
from dpsql.policy.names import normalize_name
from dpsql.sql.parse.parse import call_without_logging

POSTGRES = Dialect.get_or_raise("postgres")
MOST_CHARACTERS = 50_000
SCHEMAS = {"pg_catalog": "pg", "information_schema": "info"}
"""The schemas of the emulator that hold the catalog's tables."""
PREFIX = "pg_fn_"
"""The prefix of the emulator's own functions."""
_EXPAND = "_pg_expandarray"
"""The one function of the information schema that clients call: the items of an array with their places."""
MACROS: Mapping[str, tuple[str, ...]] = {
    _EXPAND: ("a := unnest(list_transform(a, lambda x, i: {'x': x, 'n': i}))",),
    "array_upper": ("a, d := len(a)",),
    "col_description": ("o, n := (SELECT any_value(description) FROM pg.pg_description WHERE objoid = o AND objsubid = n)",),
    "format_type": ("o, m := (SELECT any_value(shown) FROM pg.shown_types WHERE oid = o)",),
    "has_any_column_privilege": ("a, b := true", "a, b, c := true"),
    "has_column_privilege": ("a, b, c := true", "a, b, c, d := true"),
    "has_database_privilege": ("a, b := true", "a, b, c := true"),
    "has_function_privilege": ("a, b := true", "a, b, c := true"),
    "has_schema_privilege": ("a, b := true", "a, b, c := true"),
    "has_sequence_privilege": ("a, b := false", "a, b, c := false"),
    "has_table_privilege": ("a, b := true", "a, b, c := true"),
    "obj_description": (
        "o := (SELECT any_value(description) FROM pg.pg_description WHERE objoid = o AND objsubid = 0)",
        "o, c := (SELECT any_value(description) FROM pg.pg_description WHERE objoid = o AND objsubid = 0)",
    ),
    "pg_advisory_unlock_all": (" := ''",),
    "pg_collation_is_visible": ("o := true",),
    "pg_encoding_to_char": ("n := 'UTF8'",),
    "pg_function_is_visible": ("o := true",),
    "pg_get_constraintdef": ("o := NULL::VARCHAR", "o, p := NULL::VARCHAR"),
    "pg_get_expr": ("e, o := NULL::VARCHAR", "e, o, p := NULL::VARCHAR"),
    "pg_get_function_arguments": ("o := NULL::VARCHAR",),
    "pg_get_function_identity_arguments": ("o := NULL::VARCHAR",),
    "pg_get_function_result": ("o := NULL::VARCHAR",),
    "pg_get_indexdef": ("o := NULL::VARCHAR", "o, n, p := NULL::VARCHAR"),
    "pg_get_partkeydef": ("o := NULL::VARCHAR",),
    "pg_get_ruledef": ("o := NULL::VARCHAR", "o, p := NULL::VARCHAR"),
    "pg_get_serial_sequence": ("t, c := NULL::VARCHAR",),
    "pg_get_statisticsobjdef_columns": ("o := NULL::VARCHAR",),
    "pg_get_triggerdef": ("o := NULL::VARCHAR", "o, p := NULL::VARCHAR"),
    "pg_get_userbyid": ("o := 'owner'",),
    "pg_get_viewdef": ("o := NULL::VARCHAR", "o, p := NULL::VARCHAR"),
    "pg_is_in_recovery": (" := true",),
    "pg_is_other_temp_schema": ("o := false",),
    "pg_my_temp_schema": (" := 0",),
    "pg_opclass_is_visible": ("o := true",),
    "pg_operator_is_visible": ("o := true",),
    "pg_relation_is_publishable": ("o := false",),
    "pg_relation_size": ("o := NULL::BIGINT",),
    "pg_size_pretty": ("n := NULL::VARCHAR",),
    "pg_table_is_visible": (
        "o := o IN (SELECT oid FROM pg.pg_class WHERE relnamespace IN (11, 2200))",
    ),
    "pg_table_size": ("o := NULL::BIGINT",),
    "pg_tablespace_location": ("o := ''",),
    "pg_total_relation_size": ("o := NULL::BIGINT",),
    "pg_type_is_visible": ("o := true",),
    "quote_ident": ("n := n",),
    "regclass_name": ("o := (SELECT any_value(relname) FROM pg.pg_class WHERE oid = o)",),
    "schema_name": ("o := (SELECT any_value(nspname) FROM pg.pg_namespace WHERE oid = o)",),
    "shobj_description": ("o, c := NULL::VARCHAR",),
    "to_regclass": ("n := (SELECT any_value(oid) FROM pg.pg_class WHERE relname = regexp_extract(n, '([^.\"]+)\"?$', 1))",),
    "to_regnamespace": ("n := (SELECT any_value(oid) FROM pg.pg_namespace WHERE nspname = n)",),
    "to_regtype": (
        "n := (SELECT any_value(oid) FROM pg.shown_types WHERE lower(regexp_extract(n, '([^.\"]+)\"?$', 1)) IN (shown, typname))",
    ),
}  # fmt: skip
"""PostgreSQL's functions in the emulator: parameters, and a definition over the emulator's tables."""
_BUILT_IN = {
    "abs", "array_agg", "array_length", "array_to_string", "bool_and", "bool_or", "char_length", "coalesce", "concat",
    "count", "generate_series", "generate_subscripts", "greatest", "least", "left", "length", "lower", "ltrim", "max",
    "min", "nullif", "octet_length", "position", "right", "row_number", "rtrim",
    "split_part", "starts_with", "string_agg", "strpos", "substr", "substring", "sum", "trim", "unnest", "upper",
}  # fmt: skip
_NODES = (
    exp.Cast, exp.Case, exp.If, exp.Coalesce, exp.And, exp.Or, exp.Array, exp.ArrayAgg, exp.ArrayToString, exp.Count,
    exp.Max, exp.Min, exp.Sum, exp.Lower, exp.Upper, exp.Length, exp.Substring, exp.Concat, exp.Nullif, exp.Greatest,
    exp.Least, exp.GroupConcat, exp.Unnest, exp.Explode, exp.Posexplode, exp.GenerateSeries, exp.ExplodingGenerateSeries,
    exp.LogicalAnd, exp.LogicalOr, exp.RowNumber, exp.RegexpLike, exp.RegexpILike, exp.Exists, exp.Trim, exp.StrPosition,
    exp.Left, exp.Right, exp.ArraySize, exp.SplitPart, exp.Abs, exp.Literal,
)  # fmt: skip
_LONGEST_SERIES = 1_000
_MOST_JOINED = 10
_LONGEST_REPLACEMENT = 63
_ITEM = re.compile(r'"([^"\\{}]*+)"|([^",\\{}\s]++)')
_ARRAY = re.compile(r'\{(?:(?:"[^"\\{}]*+"|[^",\\{}\s]++)(?:,(?!\})|(?=\})))*+\}')
_LONGEST_TEXT = 10_000
"""The most characters or items of a concatenated text or array: the engine's memory limit does not apply to texts and lists."""
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


def parse_catalog_query(text: str, declared: Collection[str]) -> CatalogQuery | None:
    """Return the catalog query of a text; None if it names tables outside of the catalog.

    `declared` are the folded names of the policy's tables, which take precedence over the catalog's.
    """
    if len(text) > MOST_CHARACTERS:
        return None
    try:
        tokens = normalize_tokens(POSTGRES.tokenize(text))
        parser = POSTGRES.parser(error_level=ErrorLevel.IMMEDIATE)
        trees = call_without_logging(lambda: parser.parse(tokens, text))
    except (ParseError, TokenError, RecursionError, TypeError, ValueError, AttributeError, LookupError):
        return None
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, (exp.Select, exp.SetOperation)):
        return None
    named = [table for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
    common = {normalize_name(cte.alias) for cte in tree.find_all(exp.CTE)}
    read = [table for table in named if table.db or normalize_name(table.name) not in common]
    if not all(_find_schema(table, declared) for table in read):
        return None
    if not read and not _has_known_functions(tree):
        return None
    return CatalogQuery(tree)


def _has_known_functions(tree: exp.Expr) -> bool:
    """Return whether a query without tables only calls functions that the twin has: the engine refuses the rest, with a reason."""
    return all(
        isinstance(call, _NODES)
        or _get_function_name(call) in _SESSION
        or _get_function_name(call) in MACROS
        or _get_function_name(call) in _BUILT_IN
        for call in tree.find_all(exp.Func)
    )


def _find_schema(table: exp.Table, declared: Collection[str]) -> str | None:
    """Return the schema of the twin in which a table is, None for another table."""
    name, schema = normalize_name(table.name), normalize_name(table.db)
    if table.catalog or (not schema and name in declared):
        return None
    for known, twin in SCHEMAS.items():
        if (schema or "pg_catalog") == known and (known == "information_schema" or name.startswith("pg_")):
            return twin
    return None


def normalize_tokens(tokens: list[Token]) -> list[Token]:
    """Return the words without `pg_catalog.`, `OPERATOR(~)` and COLLATE, in their plain form."""
    tokens_left = list[Token]()
    at = 0
    while at < len(tokens):
        plain = tokens[at].token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
        word = tokens[at].text.lower() if plain else ""
        following = [token.token_type for token in tokens[at + 1 : at + 2]]
        if following == [TokenType.DOT] and (
            word == "pg_catalog"
            or (word == "information_schema" and [each.text for each in tokens[at + 2 : at + 3]] == [_EXPAND])
        ):
            at += 2
        elif word in _ARRAYS_OF and following == [TokenType.L_BRACKET]:
            tokens_left += _ARRAYS_OF[word]
            at += 1
        elif word == "collate" and at + 1 < len(tokens):
            at += 2
            while at + 1 < len(tokens) and tokens[at].token_type is TokenType.DOT:
                at += 2
        elif word == "operator" and following == [TokenType.L_PAREN]:
            end = at
            while end < len(tokens) and tokens[end].token_type is not TokenType.R_PAREN:
                end += 1
            inner = tokens[at + 2 : end]
            tokens_left += inner[2:] if len(inner) > 2 and inner[1].token_type is TokenType.DOT else inner
            at = end + 1
        else:
            tokens_left.append(tokens[at])
            at += 1
    return tokens_left


_ARRAYS_OF = {"regtype": POSTGRES.tokenize("text"), "oid": POSTGRES.tokenize("serial")}
"""The types as which arrays of type names and of oids are read: the parser does not know such arrays, and no client casts to SERIAL."""
_SESSION = {
    "current_user", "session_user", "user", "current_role", "current_database", "current_catalog", "current_schema",
    "current_schemas", "version", "pg_backend_pid", "current_setting", "inet_server_addr", "inet_server_port",
    "inet_client_addr", "pg_postmaster_start_time", "set_config",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _CatalogRewriter:
    session: Mapping[str, str]
    setting: Callable[[str], str | None]
    values: tuple[Any, ...]
    assign: Callable[[str, str], str]

    def to_duckdb_sql(self, tree: exp.Expr) -> str:
        common = {normalize_name(cte.alias) for cte in tree.find_all(exp.CTE)}
        try:
            return str(self._rewrite_tree(tree, common).sql(dialect="duckdb"))
        except (ValueError, RecursionError):
            _refuse_query("the catalog query cannot be translated")

    def _rewrite_tree(self, node: exp.Expr, common: Collection[str]) -> exp.Expr:
        """Return each node after those within it, so that none is left as it was written."""
        for child in list(node.iter_expressions()):
            written = self._rewrite_tree(child, common)
            if written is not child:
                child.replace(written)
        return self._rewrite_node(node, common)

    def _rewrite_node(self, node: exp.Expr, common: Collection[str]) -> exp.Expr:  # noqa: C901, PLR0912  (a case for each kind of node)
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                if not node.db and normalize_name(node.name) in common:
                    return node
                schema = _find_schema(node, ())
                alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name))
                return exp.Table(
                    this=exp.to_identifier(normalize_name(node.name)),
                    db=exp.to_identifier(schema),
                    alias=alias,
                    joins=node.args.get("joins"),
                )
            case exp.Table() if not isinstance(node.this, exp.Func):
                _refuse_query("a catalog query may only read tables by their names")
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
            case exp.GenerateSeries() | exp.ExplodingGenerateSeries():
                return _limit_series(node)
            case exp.DPipe() | exp.Concat():
                return _limit_concatenation(node)
            case exp.Any():
                return _rewrite_any(node)
            case exp.Replace():
                return _limit_replacement(node)
            case exp.Func():
                return self._rewrite_call(node)
            case exp.Into() | exp.Lock():
                _refuse_query("a catalog query may only read")
        return node

    def _build_parameter_value(self, node: exp.Expr) -> exp.Expr:
        number = node.this.name if isinstance(node.this, exp.Expr) else str(node.this)
        if not (number.isascii() and number.isdigit() and 0 < int(number) <= len(self.values)):
            _refuse_query("a parameter of a catalog query has no value")
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
                named = literal or (isinstance(outer, exp.Cast) and outer.to.sql().upper() == "OID")
                return _build_macro_call("to_regclass" if named else "regclass_name", inner)
            case "REGTYPE":
                if literal:
                    return _build_macro_call("to_regtype", inner)
                return _build_macro_call("format_type", inner, exp.Null())
            case "REGNAMESPACE":
                return _build_macro_call("to_regnamespace" if literal else "schema_name", inner)
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
        name = _get_function_name(node)
        arguments = list(node.expressions) if isinstance(node, exp.Anonymous) else []
        if name in _SESSION:
            return self._rewrite_session_call(name, arguments, node)
        if name in MACROS and isinstance(node, exp.Anonymous):
            return _build_macro_call(name, *arguments)
        if name == "json_build_object" or isinstance(node, exp.JSONObject):
            return exp.Null()  # for sequences and collations, which the twin lacks
        if isinstance(node, _NODES) or name in _BUILT_IN:
            return node
        _refuse_query(f"the function {name} is not supported in catalog queries")

    def _rewrite_session_call(self, function: str, arguments: list[exp.Expr], node: exp.Expr) -> exp.Expr:
        match function:
            case "set_config":
                return self._apply_set_config(arguments, node)
            case "current_setting":
                name = arguments[0].unnest() if arguments else exp.Null()
                name = name.this if isinstance(name, exp.Cast) else name
                if not isinstance(name, exp.Literal):
                    _refuse_query("current_setting takes the name of a setting")
                found = self.setting(name.name)
                return exp.Null() if found is None else _build_string_literal(found)
            case "current_schemas":
                return exp.Array(
                    expressions=[_build_string_literal("pg_catalog"), _build_string_literal("public")]
                )
            case "pg_backend_pid":
                return exp.Literal.number(self.session["process"])
            case "current_schema":
                return _build_string_literal("public")
            case "current_database" | "current_catalog":
                return _build_string_literal(self.session["database"])
            case "version":
                return _build_string_literal(self.session["version"])
            case "current_user" | "session_user" | "user" | "current_role":
                return _build_string_literal(self.session["current_user"])
        return exp.Null()

    def _apply_set_config(self, arguments: list[exp.Expr], node: exp.Expr) -> exp.Expr:
        """Return the value that set_config has set, once: in the SELECT list of a query of one row."""
        item = node.parent if isinstance(node.parent, exp.Alias) else node
        select = item.parent
        if (
            not isinstance(select, exp.Select)
            or select.parent is not None
            or set(filter(select.args.get, select.args)) - {"expressions", "kind"}
        ):
            _refuse_query(
                "set_config is only allowed in the SELECT list of a query without FROM; SET is another "
                "way to change a setting"
            )
        name, value = ([*arguments, exp.Null(), exp.Null()])[:2]
        if len(arguments) != 3 or not all(isinstance(each, exp.Literal) for each in (name, value)):
            _refuse_query("set_config takes a name, a value, and whether it only lasts for the transaction")
        return _build_string_literal(self.assign(name.name, value.name))


def _limit_series(series: exp.Func) -> exp.Func:
    """Return a series that ends soon."""
    start, end, step = (series.args.get(name) for name in ("start", "end", "step"))
    if start is None or end is None or not (step is None or (isinstance(step, exp.Literal) and step.is_int)):
        _refuse_query("generate_series takes a start, an end, and a step that is a literal whole number")
    start, end = start.copy(), end.copy()
    surplus = exp.paren(end) - exp.paren(start) - _LONGEST_SERIES
    # The engine's GREATEST ignores a NULL, of which the series has no end, and no values.
    series.set(
        "end", exp.paren(end) - exp.Anonymous(this="GREATEST", expressions=[exp.Literal.number(0), surplus])
    )
    return series


def _limit_concatenation(text: exp.Expr) -> exp.Expr:
    """Return a concatenated text or array that is cut to `_LONGEST_TEXT`."""
    if len(text.expressions) > _MOST_JOINED:
        _refuse_query(f"CONCAT takes at most {_MOST_JOINED} texts")
    first, last = exp.Literal.number(1), exp.Literal.number(_LONGEST_TEXT)
    return exp.Bracket(this=exp.paren(text), expressions=[exp.Slice(this=first, expression=last)])


def _limit_replacement(call: exp.Replace) -> exp.Expr:
    """Return a REPLACE of short texts in the first `_LONGEST_TEXT` characters, so that its result is bounded."""
    old, new = call.args.get("expression"), call.args.get("replacement")
    for each in (old, new):
        if not isinstance(each, exp.Literal) or len(each.name) > _LONGEST_REPLACEMENT:
            _refuse_query("REPLACE takes two short texts that are constants")
    first, last = exp.Literal.number(1), exp.Literal.number(_LONGEST_TEXT)
    short = exp.Bracket(this=exp.paren(call.this), expressions=[exp.Slice(this=first, expression=last)])
    return exp.Anonymous(this="REPLACE", expressions=[short, old, new])


def _rewrite_any(node: exp.Any) -> exp.Expr:
    """Return `= ANY('{r,v}')` with PostgreSQL's notation of an array as a list, as clients give it for a parameter."""
    listed = node.this.unnest()
    if not isinstance(listed, exp.Literal) or not listed.is_string:
        return node
    return exp.Any(this=exp.paren(_parse_array(listed)))


def _parse_array(listed: exp.Literal) -> exp.Array:
    """Return the items of an array that is written as a text."""
    if not _ARRAY.fullmatch(listed.name):
        _refuse_query("an array of a catalog query must be a plain list of names")
    items = [quoted or plain for quoted, plain in _ITEM.findall(listed.name[1:-1])]
    return exp.Array(expressions=list(map(_build_string_literal, items)))


def _get_function_name(call: exp.Func) -> str:
    if isinstance(call, exp.Anonymous):
        return normalize_name(call.name)
    name = normalize_name(call.sql_name())
    return {"current_version": "version"}.get(name, name)


def _build_macro_call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=PREFIX + name, expressions=list(arguments))


def _build_string_literal(value: str) -> exp.Expr:
    return exp.Literal.string(value)


def _refuse_query(message: str) -> NoReturn:
    raise QueryRejected(
        message,
        code="catalogue",
        hint="dpsql only supports the catalog queries by which clients list tables and columns",
    )
