"""The loss and the options in the text of a statement: a query, or CREATE for a table of the session."""

from __future__ import annotations

from dpsql.errors import QueryRejected
from dpsql.sql.parse.options import OptionsClause
from dpsql.sql.parse.parse import parse_options_clause
from dpsql.sql.parse.session_statement import CreateTable, parse_session_statement


def parse_stated_options(text: str, dialect: str = "duckdb") -> OptionsClause:
    """Return the options in the text of a query or a CREATE; none if it cannot be parsed, which is refused when it is run."""
    try:
        statement = parse_session_statement(text)
    except QueryRejected:
        return OptionsClause()
    if isinstance(statement, CreateTable):
        found = statement.options
        return OptionsClause(epsilon=found.get("epsilon"), max_groups=found.get("max_groups"))
    return OptionsClause() if statement is not None else parse_options_clause(text, dialect)
