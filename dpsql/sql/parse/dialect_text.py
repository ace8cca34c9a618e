"""The text of a query in one dialect, as the rules of translation see it: where it is refused, and its default schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.policy.request.dialects import TITLES
from dpsql.sql.parse.rejection import QueryText, format_sql
from dpsql.sql.parse.typed_calls import is_typed_call

_DEFAULT_SCHEMAS: Mapping[str, str] = {
    "postgres": "public",
    "snowflake": "public",
    "spark": "default",
    "tsql": "dbo",
}
"""The schema in which a dialect looks for tables that are named without one."""
_DUCKDB = "write it in DuckDB's SQL and leave out dialect"
_INSTEAD: Mapping[type[exp.Expr], str] = {
    exp.Initcap: "write UPPER(LEFT(x, 1)) || LOWER(SUBSTRING(x, 2, 1000))",
    **dict.fromkeys((exp.GroupConcat, exp.ArrayAgg), "count each value: SELECT x, COUNT(*) … GROUP BY x"),
}
"""The hints for functions that are not supported."""


@dataclass(frozen=True, slots=True)
class DialectText:
    """The text of a query, and the dialect that it is written in."""

    source: QueryText
    dialect: str

    def refuse_in_dialect(
        self, node: exp.Expr, code: str, message: str, hint: str | None = _DUCKDB
    ) -> NoReturn:
        """Refuse a node in its own dialect's name."""
        self.source.refuse(node, code, f"{TITLES[self.dialect]}: {message}", hint)

    def refuse_unknown(self, node: exp.Expr) -> NoReturn:
        """Refuse a node that is not known to mean the same in DuckDB: a call by its name in the text, else its SQL."""
        is_function = isinstance(node, exp.Func)
        name = self.source.get_function_name(node) if is_function else ""
        if not self.source.has_call(name):
            path = isinstance(node, (exp.JSONPath, exp.JSONPathPart))
            extraction = node.find_ancestor(exp.JSONExtract, exp.JSONExtractScalar) if path else None
            name = format_sql(_hide_typed_calls(extraction or node), self.dialect)
        self.source.refuse(
            node,
            "function" if is_function else "clause",
            f"{name} is not read from {TITLES[self.dialect]}: it may mean something else in DuckDB",
            _INSTEAD.get(type(node), _DUCKDB),
        )

    def translate_schema(self, node: exp.Expr) -> exp.Expr:
        """Return a name in the schema that the dialect has by default, which is main in DuckDB."""
        schema = node.args.get("db")
        if schema is not None and normalize_name(schema.name) == _DEFAULT_SCHEMAS.get(self.dialect):
            node.set("db", exp.to_identifier("main"))
        return node


def _hide_typed_calls(node: exp.Expr) -> exp.Expr:
    """Return a copy of a node without the calls that its translation has already written."""
    return node.transform(lambda part: exp.Var(this="…") if is_typed_call(part) else part)
