"""Translate a tree of another dialect to text in DuckDB's SQL, which is then processed like every query.

The translation is not trusted: its text is parsed, lowered and refused like a user's.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, SqlglotError

from dpsql.sql.parse.output_names import name_outputs
from dpsql.sql.parse.rejection import QueryText
from dpsql.sql.parse.translate_nodes import Translator


def translate_tree(source: QueryText, tree: exp.Expr, dialect: str) -> str | None:
    """Return the text that a tree of another dialect means; None where it has none.

    Raises QueryRejected, with the place in the user's text, for syntax that is not known to mean the same in DuckDB.
    """
    if dialect == "postgres":
        name_outputs(source, tree)
    Translator(source, dialect).translate_in_place(tree)
    try:
        return DuckDB().generate(
            tree, identify=True, comments=False, normalize_functions=False, unsupported_level=ErrorLevel.RAISE
        )
    except (SqlglotError, RecursionError, TypeError, ValueError, AttributeError, LookupError):
        return None
