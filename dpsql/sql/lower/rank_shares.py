"""Read the constants with which PERCENT_RANK and CUME_DIST of a row are compared: their values matter no further.

Claim: a value that is on the same side of each of these constants as the rank of a row makes every comparison of the statement true
or false as the rank does.
Why: all places that could read the column are comparisons with constants. A name that is used in any other way, a star that could
hold the column, DISTINCT, and NATURAL JOIN, which reads columns that it does not name, leave the statement alone.
Source: ISO/IEC 9075-2, <comparison predicate>.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.lower.row_positions import read_number

_FLIPPED: Mapping[type[exp.Expr], type[exp.Expr]] = MappingProxyType(
    {exp.GTE: exp.LTE, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.LT: exp.GT}
)
_MOST_CUTS = 100


@dataclass(frozen=True, slots=True, order=True)
class Cut:
    """A constant that divides ranks: those below it, with the constant itself if it is `closed`, and all others."""

    share: Fraction
    closed: bool


def find_cuts(window: exp.Expr) -> list[Cut] | None:
    """Find the constants with which the value of a window is compared, in order; None if it is used in any other way."""
    top = _strip_parentheses(window)
    places: list[exp.Expr] = []
    if isinstance(top.parent, exp.Alias) and isinstance(top.parent.parent, exp.Select):
        columns = _find_columns(top.parent, top.parent.parent)
        if columns is None:
            return None
        places += columns
    else:
        places.append(top)
    cuts: set[Cut] = set()
    for place in places:
        found = _read_comparison(_strip_parentheses(place))
        if found is None:
            return None
        cuts |= {*found}
    return sorted(cuts) if 0 < len(cuts) <= _MOST_CUTS else None


def choose_representatives(cuts: Sequence[Cut]) -> list[Fraction]:
    """Choose a rank before, between and after cuts: one on the right side of each constant.

    >>> [float(at) for at in choose_representatives([Cut(Fraction(1, 2), False), Cut(Fraction(1, 2), True)])]
    [0.25, 0.5, 0.75]
    """
    shares = [Fraction(0), *(cut.share for cut in cuts), Fraction(1)]
    return [(one + other) / 2 for one, other in pairwise(shares)]


def _strip_parentheses(node: exp.Expr) -> exp.Expr:
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    return node


def _find_columns(item: exp.Alias, select: exp.Select) -> list[exp.Expr] | None:
    """Return the columns that may read an item of a derived table; None where it may be read otherwise."""
    around = select.parent
    if not isinstance(around, (exp.Subquery, exp.CTE)) or item not in select.expressions:
        return None
    alias = around.args.get("alias")
    if (alias is not None and alias.args.get("columns")) or select.args.get("distinct"):
        return None
    root, name = select.root(), normalize_name(item.alias)
    if any(
        join.args.get("method") for join in root.find_all(exp.Join)
    ):  # NATURAL compares all columns of one name
        return None
    for star in root.find_all(exp.Star):
        if not isinstance(star.parent, exp.Count) and star not in select.expressions:
            return None
    columns: list[exp.Expr] = []
    for identifier in root.find_all(exp.Identifier):
        if normalize_name(identifier.name) != name or identifier.parent is item:
            continue
        if not isinstance(identifier.parent, exp.Column) or identifier.arg_key != "this":
            return None
        columns.append(identifier.parent)
    return columns


def _read_comparison(node: exp.Expr) -> list[Cut] | None:
    """Return the cuts of the comparison of a node with constants."""
    around = node.parent
    if isinstance(around, exp.Between) and around.this is node and not around.args.get("symmetric"):
        low, high = _read_share(around.args["low"]), _read_share(around.args["high"])
        return None if low is None or high is None else [Cut(low, closed=False), Cut(high, closed=True)]
    if around is None or type(around) not in _FLIPPED:
        return None
    first = around.this is node
    share = _read_share(around.expression if first else around.this)
    kind = type(around) if first else _FLIPPED[type(around)]
    return None if share is None else [Cut(share, closed=kind in (exp.LTE, exp.GT))]


def _read_share(node: exp.Expr) -> Fraction | None:
    share = read_number(node)
    return share if share is not None and 0 < share < 1 else None
