"""Bounds on the length of a text result, from the lengths of the texts that it is computed from.

Claim: the text of an expression is at most its growth times as long as all texts that it is made of.
Why: REPLACE and its like are the only functions whose text can be longer than their arguments' together, by
a factor that their constants bound; the factors of nested calls multiply.
Source: none but the definitions. A row must not be able to exhaust the engine's memory by itself.
"""

from __future__ import annotations

from dpsql.plan.expr import Call, Expr, Literal
from dpsql.plan.types import Value

MOST_GROWTH = 1_000


def growth(expr: Expr) -> int:
    """The largest product of factors on a path from the expression to its leaves."""
    return _growth(expr, {})


def _growth(expr: Expr, found: dict[int, int]) -> int:
    if not isinstance(expr, Call):
        return 1
    # By identity: shared parts are looked at once, however often they are written.
    if id(expr) not in found:
        inner = max((_growth(argument, found) for argument in expr.arguments), default=1)
        found[id(expr)] = inner * factor(expr)
    return found[id(expr)]


def factor(expr: Call) -> int:
    """By how much the call itself can multiply the length of a text."""
    grows = expr.function.growth
    return 1 if grows is None else grows(constants(expr))


def constants(expr: Call) -> tuple[Value, ...]:
    """The values of the arguments that must be constants, in the order of their positions."""
    literals = (expr.arguments[place] for place in sorted(expr.function.literals))
    return tuple(literal.value for literal in literals if isinstance(literal, Literal))
