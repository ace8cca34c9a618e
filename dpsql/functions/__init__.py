"""The functions that may touch private rows: a registry of entries, one module a family.

Anything that is not in `FUNCTIONS` is refused. A new function is one entry in its family's tuple:
its types, its interval, its SQL and why that SQL cannot fail on any row.
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.functions import casts, conditional, dates, numeric, operators, strings
from dpsql.plan.expr import Call, Expr, Function

FUNCTIONS = MappingProxyType(
    {
        function.name: function
        for family in (operators, numeric, conditional, strings, dates, casts)
        for function in family.ENTRIES
    }
)


def call(name: str, *arguments: Expr) -> Call | None:
    """The typed call of an entry, or None where it refuses the arguments' types.

    >>> from dpsql.plan.expr import Literal
    >>> from dpsql.plan.types import Type
    >>> call("add", Literal(1, Type.INTEGER), Literal("a", Type.VARCHAR)) is None
    True
    """
    function: Function = FUNCTIONS[name]
    result = function.result(tuple(argument.type for argument in arguments))
    return None if result is None else Call(function, arguments, result)
