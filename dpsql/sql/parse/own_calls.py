"""The calls of dpsql's own: BEST_EXPERT, DP_INTERVAL_LOW, DP_INTERVAL_HIGH, and those that belong to another statement."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from sqlglot import exp

from dpsql.policy import normalize_name
from dpsql.sql.parse.rejection import QueryText

# The calls that ask for an end of an interval: DP_INTERVAL_LOW(x) and DP_INTERVAL_HIGH(x).


NAMES: Mapping[str, str] = {"dp_interval_low": "low", "dp_interval_high": "high"}


def find_interval_end(node: exp.Expr) -> str | None:
    """Return the end that a call asks for, None where a node is no such call."""
    name = node.args.get("this") if type(node) is exp.Anonymous else None
    return NAMES.get(normalize_name(name)) if isinstance(name, str) else None


def has_interval_calls(source: QueryText, query: exp.Expr) -> bool:
    """Return whether a query, or one in it, asks for an interval end; it only decides which columns are kept."""
    return _names_interval_ends(source.text) and any(
        find_interval_end(node) is not None for node in query.walk()
    )


@lru_cache(maxsize=1)
def _names_interval_ends(text: str) -> bool:
    """Return whether a text has the name of such a call; the latest text is remembered, as each of its queries is looked at."""
    return any(name in normalize_name(text) for name in NAMES)


# BEST_EXPERT(loss1, …) OVER (ORDER BY t).


BEST_EXPERT = "BEST_EXPERT"
EXPERTS = "experts"
"""Where the tree of a statement holds the place of its first loss, and the number of experts."""
MOST_EXPERTS = 64
_HINT = (
    "write SELECT t, BEST_EXPERT(a, b) OVER (ORDER BY t) AS followed FROM (SELECT t, AVG(x) "
    "AS a, AVG(y) AS b FROM … GROUP BY t)"
)


def expand_best_expert(source: QueryText, tree: exp.Expr | None) -> exp.Expr | None:
    """Expand BEST_EXPERT of the outermost SELECT into its columns. Raises QueryRejected (`best_expert`) if it is elsewhere.

    The choice of the expert is drawn when these columns are released, outside of any engine; see `dpsql.engine.expert_choices`.
    """
    if tree is None:
        return tree
    calls = [node for node in tree.find_all(exp.Anonymous) if node.name.upper() == BEST_EXPERT]
    if not calls:
        return tree
    items = tree.expressions if isinstance(tree, exp.Select) else []
    place = next((place for place, item in enumerate(items) if _unwrap_alias(item).this is calls[0]), None)
    if place is None or len(calls) > 1:
        source.refuse(
            calls[-1], "best_expert", f"{BEST_EXPERT} must be a column of the outermost SELECT, once", _HINT
        )
    source.take_arguments(tree, "expressions", "from_", "joins", "where", "order", "with_")
    window = _unwrap_alias(items[place])
    call, order = source.take_arguments(window, "this", "order", over=("OVER",))
    (losses,) = source.take_arguments(call, "expressions", this=(call.name,))
    if order is None or not 2 <= len(losses) <= MOST_EXPERTS:
        source.refuse(
            call,
            "best_expert",
            f"{BEST_EXPERT} takes the losses of 2 to {MOST_EXPERTS} experts, OVER (ORDER BY t)",
            _HINT,
        )
    for item in tree.args["order"].expressions if tree.args.get("order") else ():
        number = item.this.name if isinstance(item.this, exp.Literal) and not item.this.is_string else ""
        own = isinstance(item.this, exp.Column) and normalize_name(item.this.name) == normalize_name(
            items[place].alias or BEST_EXPERT
        )
        if own or (number.isdigit() and int(number[:9]) > place):
            source.refuse(item, "ordinal", "ORDER BY takes the name of a column here, not a number", _HINT)
    name = items[place].alias or BEST_EXPERT.lower()
    rank = exp.Window(this=exp.RowNumber(), order=order.copy(), over="OVER")
    columns = [*(loss.copy() for loss in losses), rank]
    named = [
        exp.Alias(
            this=column, alias=exp.to_identifier(name if not number else f"#{name}{number}", quoted=True)
        )
        for number, column in enumerate(columns)
    ]
    tree.set("expressions", [*items[:place], *named, *items[place + 1 :]])
    tree.meta[EXPERTS] = (place, len(losses))
    return tree


def _unwrap_alias(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias) else item


# Refuse calls that belong to another statement, and names that statement.


MISPLACED: Mapping[str, tuple[str, str]] = {
    "RANDOMIZE": (
        "RANDOMIZE is only allowed in CREATE LOCAL TABLE",
        "CREATE LOCAL TABLE r AS SELECT RANDOMIZE(smoker) AS smoker FROM patients WITH (epsilon = 1)",
    ),
}


def check_misplaced_calls(source: QueryText, tree: exp.Expr | None) -> exp.Expr | None:
    """Return the tree unchanged. Raises QueryRejected (`function`) if it has a call that is only allowed elsewhere."""
    for node in () if tree is None else tree.find_all(exp.Anonymous):
        if node.name.upper() in MISPLACED:
            source.refuse(node, "function", *MISPLACED[node.name.upper()])
    return tree
