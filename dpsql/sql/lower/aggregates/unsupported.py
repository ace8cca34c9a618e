"""Aggregates that are not supported, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse.rejection import QueryText

_LISTED = "count each value: SELECT x, COUNT(*) … GROUP BY x"
_IN_PLACE: Mapping[str, str] = {
    "regr_count": "write COUNT(*) FILTER (WHERE y IS NOT NULL AND x IS NOT NULL)",
    **dict.fromkeys(("grouping_id", "groupingid"), "write GROUPING(x, y)"),
    "entropy": (
        "compute it from counts: SELECT -SUM(n / t * LOG2(n / t)) FROM (SELECT x, COUNT(*) AS n, "
        "SUM(COUNT(*)) OVER () AS t … GROUP BY x HAVING COUNT(*) > 0)"
    ),
}
"""Aggregates with an equivalent, and that equivalent."""
_INSTEAD: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("string_agg", "stringagg", "listagg", "group_concat", "array_agg", "list", "json_group_array"),
        ("is not supported: it would release the value of each row", _LISTED),
    ),
    "product": (
        "is not supported: one row decides how large a product is",
        "write GEOMEAN(x) for the mean of factors above zero, or SUM(x) for a total",
    ),
    **dict.fromkeys(
        ("bit_and", "bit_or", "bit_xor"),
        ("is not supported: one row decides a bit", "count the rows with a bit: COUNT_IF((x & 4) = 4)"),
    ),
    **dict.fromkeys(
        ("arg_max_null", "arg_min_null", "arg_max_nulls_last", "arg_min_nulls_last"),
        ("would release one row's value", "write SELECT x, SUM(y) … GROUP BY x ORDER BY SUM(y) DESC LIMIT 1"),
    ),
}
"""Aggregates that one row decides, by name, each with the reason and the replacement."""


def refuse_unsupported(
    source: QueryText, node: exp.Expr, signatures: Iterable[str], *, across: bool
) -> NoReturn:
    """Refuse an unknown aggregate, with a hint to its replacement or to the known signatures.

    `across` says whether rows of several units are aggregated.
    """
    name = source.get_function_name(node)
    names = dict.fromkeys(signature.partition("(")[0] for signature in signatures)
    known = _IN_PLACE.get(normalize_name(name)) or f"there are: {', '.join(names)}"
    why, instead = _INSTEAD.get(normalize_name(name), ("", known))
    if why and across:
        source.refuse(node, "aggregate", f"{name} {why}", instead)
    source.refuse(node, "aggregate", f"{name} is not supported", _LISTED if instead == _LISTED else known)
