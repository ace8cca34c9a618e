"""Units of time: their spellings, and INTERVAL and TO_DAYS(n), which are lengths of time."""

from __future__ import annotations

from sqlglot import exp

from dpsql.plan.functions import BY_UNIT
from dpsql.plan.functions.moments import SPELLINGS
from dpsql.policy import normalize_name
from dpsql.sql.lower.operators import SPANS
from dpsql.sql.parse.rejection import QueryText


def is_span(node: exp.Expr | None) -> bool:
    """Return whether a node is a length of time."""
    while type(node) is exp.Paren:
        node = node.this
    called = node.this if type(node) is exp.Anonymous else None
    return type(node) is exp.Interval or (isinstance(called, str) and normalize_name(called) in SPANS)


def take_unit_word(source: QueryText, node: exp.Expr) -> str:
    """Return the word for a unit of time that a constant holds."""
    if type(node) is exp.Literal and node.is_string:
        text, _ = source.take_arguments(node, "this", "is_string")
        return str(text)
    if type(node) is exp.Var:
        (text,) = source.take_arguments(node, "this")
        return str(text)
    source.refuse(node, "constant", "a unit of time must be a constant such as 'month'")


def resolve_time_unit(source: QueryText, node: exp.Expr, name: str, said: str) -> str:
    """Return the name of the function that computes `name` in one unit of time."""
    known = BY_UNIT[name]
    unit = normalize_name(said)
    entry = known.get(SPELLINGS.get(unit, unit))
    if entry is None:
        title = name.upper()
        source.refuse(node, "constant", f"{title} has no unit {said}", f"its units are {', '.join(known)}")
    return entry
