"""Lower ROLLUP, CUBE and GROUPING SETS to one SELECT per grouping set.

Claim: a query with grouping sets is the UNION ALL of one release per set, and its loss is the sum of their losses.
Why: each set is a SELECT over the same rows, in which the other keys are NULL. Each is analysed, charged and noised like
any other release of the statement.
Source: ISO/IEC 9075-2, <grouping sets specification>, which defines them by that union.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from sqlglot import exp

from dpsql.plan.expressions import Expr, Literal
from dpsql.plan.types import Type
from dpsql.sql.lower.scalars import Scalars
from dpsql.sql.parse.rejection import QueryText

MAX_KEYS = 60
"""The most keys of a SELECT; GROUPING, a bit for each, is then a BIGINT."""
MAX_SETS = 32
"""The most grouping sets, each of which is a release."""
_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
Sets = list[tuple[exp.Expr, ...]]


def find_grouping_sets(source: QueryText, group: exp.Expr | None) -> Sets | None:
    """Return the keys of each set that GROUP BY asks for, None where it asks for plain groups."""
    items = [] if group is None else group.expressions
    if group is None or not any(type(item) in _SETS for item in items):
        return None
    (items,) = source.take_arguments(group, "expressions")
    found: Sets = [()]
    for item in items:
        sets = _list_item_sets(source, item)
        if len(found) * len(sets) > MAX_SETS:
            source.refuse(group, "too_long", f"at most {MAX_SETS} grouping sets")
        found = [(*before, *after) for before, after in itertools.product(found, sets)]
    return found


def _list_item_sets(source: QueryText, item: exp.Expr) -> Sets:
    if type(item) not in _SETS:
        return [_list_item_keys(source, item)]
    (parts,) = source.take_arguments(item, "expressions")
    if type(item) is exp.GroupingSets:
        return [found for part in parts or () for found in _list_item_sets(source, part)]
    keys = [_list_item_keys(source, part) for part in parts or ()]
    if type(item) is exp.Rollup:
        return [_merge_keys(keys[:length]) for length in range(len(keys), -1, -1)]
    if 2 ** len(keys) > MAX_SETS:
        source.refuse(item, "too_long", f"at most {MAX_SETS} grouping sets")
    lengths = range(len(keys), -1, -1)
    return [_merge_keys(chosen) for length in lengths for chosen in itertools.combinations(keys, length)]


def _list_item_keys(source: QueryText, item: exp.Expr) -> tuple[exp.Expr, ...]:
    """List the keys of an item, which may be several in parentheses."""
    if type(item) is exp.Tuple:
        (parts,) = source.take_arguments(item, "expressions")
        return tuple(parts or ())
    return (item,)


def list_keys(source: QueryText, items: Sequence[exp.Expr]) -> list[exp.Expr]:
    """List the keys of plain groups, parentheses expanded; () has none."""
    return [key for item in items for key in _list_item_keys(source, item)]


def _merge_keys(parts: Sequence[tuple[exp.Expr, ...]]) -> tuple[exp.Expr, ...]:
    return tuple(key for part in parts for key in part)


def lower_grouping_call(
    source: QueryText, scalars: Scalars, node: exp.Expr, keys: Sequence[Expr], excluded_keys: Sequence[Expr]
) -> Literal:
    """Lower GROUPING(x, …): one bit for each argument, the first one highest, which is 1 if the set omits the key."""
    bits = 0
    (arguments,) = source.take_arguments(node, "expressions")
    if len(arguments) > MAX_KEYS:
        source.refuse(node, "too_long", f"at most {MAX_KEYS} group keys")
    for argument in arguments:
        expr = scalars.lower(argument)
        if expr not in (*keys, *excluded_keys):
            source.refuse(argument, "group_by", "GROUPING may only name group keys")
        bits = 2 * bits + (expr in excluded_keys)
    return Literal(bits, Type.INTEGER)
