"""Utility statements of a session (SET, SHOW, DISCARD): which statements they are, and the columns of their answers."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dpsql.interfaces.server.protocol.failure import Failure
from dpsql.interfaces.server.protocol.values import (
    BOOL,
    INT8,
    NUMERIC,
    TEXT,
    Column,
    get_oid,
)
from dpsql.interfaces.server.statements import (
    Statement,
)
from dpsql.policy.request.loss import format_rounded
from dpsql.sql.parse.scanner import collapse_space

if TYPE_CHECKING:
    from dpsql.ledger import BudgetState
    from dpsql.results.result import Result


_UTILITIES = {"set", "reset", "show", "discard", "deallocate", "close", "unlisten"}
MOST_CHARACTERS = 10_000
"""The largest number of characters of a utility statement, which is parsed while all sessions wait."""
_BUDGET = (
    Column("table", TEXT),
    Column("analyst", TEXT),
    Column("epsilon", NUMERIC),
    Column("delta", NUMERIC),
    Column("accountant", TEXT),
    Column("queries", INT8),
    Column("spent_epsilon", NUMERIC),
    Column("next_query_epsilon", NUMERIC),
    Column("locked", BOOL),
)


def is_utility(statement: Statement) -> bool:
    """Return whether a statement is for the session and not for the engine."""
    words = statement.words
    return not words or words[0] in _UTILITIES or statement.command is not None


def needs_ledger(statement: Statement) -> bool:
    """Return whether a utility statement reads the ledger."""
    return statement.words[:1] == ("show",) and parse_setting_name(statement.text) == "dpsql.budget"


def make_unknown_process_notice(number: int) -> Failure:
    """Return the warning that no session or request has a PID that the user may end."""
    return Failure(
        "01000",
        f"no session or request that you may end has PID {number}",
        "list them: SELECT pid, usename, state, query FROM pg_stat_activity",
        severity="WARNING",
    )


def parse_setting_name(text: str) -> str:
    """Return the folded name of the setting that a SHOW statement reads."""
    return " ".join(collapse_space(text[:MOST_CHARACTERS]).split()[1:]).strip('"').lower()


def unquote_value(part: str) -> str:
    """Return the value of a SET statement without its quotation marks."""
    part = part.strip()
    if len(part) > 1 and part[0] == part[-1] and part[0] in "'\"":
        return part[1:-1].replace(part[0] * 2, part[0])
    return part


def find_utility_columns(statement: Statement, last: Result | None) -> tuple[Column, ...] | None:
    """Return the columns of a utility statement's answer, or None without rows."""
    if statement.words[:1] != ("show",):
        return None
    name = parse_setting_name(statement.text)
    match name:
        case "dpsql.budget":
            return _BUDGET
        case "dpsql.intervals":
            beside = None if last is None else last.with_interval_columns(0.95)
            if beside is None:
                return (Column(name, TEXT),)
            return tuple(map(Column, beside.columns, map(get_oid, beside.types)))
        case "all":
            return (Column("name", TEXT), Column("setting", TEXT))
        case _:
            return (Column(name.rpartition(".")[2] if name.startswith("dpsql.") else name, TEXT),)


def to_budget_row(state: BudgetState) -> tuple[Any, ...]:
    """Return a budget as a row of SHOW dpsql.budget."""
    return (
        state.table,
        state.analyst,
        Decimal(format_rounded(state.epsilon, 6).replace(",", "")),
        Decimal(format_rounded(state.delta, 6).replace(",", "")),
        state.accountant,
        state.queries,
        Decimal(format_rounded(state.spent_epsilon, up=True).replace(",", "")),
        Decimal(format_rounded(state.remaining_epsilon).replace(",", "")),
        bool(state.locked),
    )
