"""The registry of scalar functions that may read private rows, one module a family.

Anything that is not in `FUNCTIONS` is refused. A new function is one entry in its family's tuple:
its names, its types, its interval, its SQL and why that SQL cannot fail on any row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from dpsql.plan.expressions import Call, Expr, Function
from dpsql.plan.functions.casts import CASTS
from dpsql.plan.functions.dates import DATE_FUNCTIONS, PARTS, UNITS
from dpsql.plan.functions.durations import BUCKETS, DURATION_FUNCTIONS
from dpsql.plan.functions.integers import INTEGER_FUNCTIONS
from dpsql.plan.functions.numeric import NUMERIC_FUNCTIONS, POWERS, TRIGONOMETRY
from dpsql.plan.functions.operators import CONDITIONALS, OPERATORS
from dpsql.plan.functions.patterns import PATTERN_FUNCTIONS
from dpsql.plan.functions.strings import TEXT_FUNCTIONS

FAMILIES: Mapping[str, tuple[Function, ...]] = MappingProxyType(
    {
        "Whole numbers": INTEGER_FUNCTIONS,  # before the operators, whose / and // take numbers of any kind
        "Operators": OPERATORS,
        "Numbers": NUMERIC_FUNCTIONS,
        "Powers": POWERS,
        "Angles": TRIGONOMETRY,
        "Choices": CONDITIONALS,
        "Text": TEXT_FUNCTIONS,
        "Patterns": PATTERN_FUNCTIONS,
        "Parts of dates": DATE_FUNCTIONS,
        "Distances of dates": DURATION_FUNCTIONS,
        "Casts": CASTS,
    }
)
FUNCTIONS = MappingProxyType({function.name: function for family in FAMILIES.values() for function in family})


def _group_by_name(functions: Iterable[Function]) -> dict[str, tuple[Function, ...]]:
    found: dict[str, list[Function]] = {}
    for function in functions:
        for name in function.names or (function.name,):
            found.setdefault(name, []).append(function)
    return {name: tuple(entries) for name, entries in found.items()}


OVERLOADS = MappingProxyType(_group_by_name(FUNCTIONS.values()))
"""The entries of each name; the first that takes the arguments is called."""

BY_UNIT = MappingProxyType(
    {
        "date_trunc": MappingProxyType({unit: f"date_trunc_{unit}" for unit in UNITS}),
        "date_diff": MappingProxyType({unit: f"date_diff_{unit}" for unit in UNITS}),
        "date_sub": MappingProxyType({unit: f"date_sub_{unit}" for unit in UNITS}),
        "date_part": MappingProxyType({part: part for part in PARTS}),
        "interval": MappingProxyType({unit: f"plus_{unit}" for unit in UNITS}),
        "time_bucket": MappingProxyType({unit: f"time_bucket {unit}" for unit in BUCKETS}),
    }
)
"""The entry, or the name of several entries, for each constant unit of time."""

SYNONYMS = MappingProxyType(
    {"datetrunc": "date_trunc", "datediff": "date_diff", "datesub": "date_sub", "datepart": "date_part"}
)
"""Further names of the functions whose first argument is a unit of time, which are its values."""

CALLS = frozenset(
    name for function in FUNCTIONS.values() for name in function.names if re.fullmatch(r"[a-z]\w*", name)
)
"""The names of callable entries, without those of `BY_UNIT`."""


def get_overloads(name: str) -> tuple[Function, ...]:
    """Return the entries that a name may mean: those called so, or those that share a name with an entry.

    >>> [entry.name for entry in get_overloads("substr")], [entry.name for entry in get_overloads("round_digits")]
    (['substring_from', 'substring'], ['round', 'round_digits'])
    """
    found = OVERLOADS.get(name)
    return found if found is not None else OVERLOADS[FUNCTIONS[name].names[0]]


def build_function_call(name: str, *arguments: Expr) -> Call | None:
    """Build the typed call of an entry, or None where it refuses the arguments' types.

    >>> from dpsql.plan.expressions import Literal
    >>> from dpsql.plan.types import Type
    >>> build_function_call("add", Literal(1, Type.INTEGER), Literal("a", Type.VARCHAR)) is None
    True
    """
    return build_typed_call(FUNCTIONS[name], arguments)


def build_typed_call(function: Function, arguments: tuple[Expr, ...]) -> Call | None:
    """Build the call of an entry, or None where it refuses the arguments' types."""
    result = function.result(tuple(argument.type for argument in arguments))
    return None if result is None else Call(function, arguments, result)
