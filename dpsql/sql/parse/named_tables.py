"""The tables that a statement names, except for those that it defines itself."""

from __future__ import annotations

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse.parse import Statement


def collect_table_names(statement: Statement) -> frozenset[str]:
    """Collect the folded names of tables without a schema; those that a WITH of the statement defines are left out.

    The names only decide where a statement is answered; lowering resolves them again.
    """
    own = {normalize_name(table.alias) for table in statement.query.find_all(exp.CTE)}
    named = {
        normalize_name(table.name)
        for table in statement.query.find_all(exp.Table)
        if isinstance(table.this, exp.Identifier) and not table.args.get("db")
    }
    return frozenset(named - own)
