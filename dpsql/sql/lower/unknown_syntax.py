"""Refuses functions, syntax and types that are not known, with what to write instead in the user's own words.

The callers have decided to refuse already: this module only explains, and accepts nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NoReturn

from sqlglot import exp

from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.functions import CALLS, get_overloads
from dpsql.plan.types import Type
from dpsql.policy import normalize_name
from dpsql.sql.lower.function_calls import REFUSED
from dpsql.sql.parse.rejection import QueryText, format_sql
from dpsql.sql.parse.typed_calls import NAMES as TYPED_CALLS

_SCHEMAS = frozenset({"main", "pg_catalog", "system"})
"""Schemas before a function's name, which DuckDB does not take for a value."""
_SIMILAR = 0.75
"""The least similarity, by difflib's measure, of a name that is proposed."""
_MOST_ITEMS = 3
"""The most columns or patterns that a hint writes out."""
_LONGEST_PATTERN, _MOST_REPEATED = 100, 2
"""The most characters of a pattern whose columns a hint names, and the most of its parts that are repeated."""
_AGGREGATES = {
    entry.signature.partition("(")[0].lower(): entry.signature
    for entry in AGGREGATES.values()
    if "(x)" in entry.signature
}


def refuse_unknown_node(source: QueryText, node: exp.Expr) -> NoReturn:
    """Refuse a node that no rule lowers: syntax in its own words, a call by the name that the text gives it."""
    _refuse_known_syntax(source, node)
    name = source.get_function_name(node).lower()
    if name not in REFUSED and not source.has_call(name):
        source.refuse(node, "function", f"{format_sql(node)} is not supported here")
    refuse_unknown_function(source, node, name)


def refuse_unknown_function(source: QueryText, node: exp.Expr, name: str) -> NoReturn:
    """Refuse a function that is not in the registry, with what to write instead."""
    if name == "unnest":
        source.refuse(
            node,
            "unnest",
            "UNNEST is only allowed in FROM, SELECT and GROUP BY: it makes one row of each element",
            "FROM t, UNNEST(t.list) AS u(x)",
        )
    if name == "columns":
        refuse_columns_call(source, node, ())
    reason, hint = REFUSED.get(name, (None, None))
    if reason is not None:
        source.refuse(node, "function", f"the function {name} is not supported: {reason}", hint)
    if _is_aggregate(name):
        source.refuse(
            node,
            "function",
            f"the aggregate {name.upper()} is not supported in this form",
            f"write {name.upper()}(x)",
        )
    if name in TYPED_CALLS:
        source.refuse(node, "function", "a name inside this call is not supported", "leave out AS within it")
    close = find_closest_function(name)
    source.refuse(
        node,
        "function",
        f"the function {name} is not known to be safe",
        f"did you mean {close}?" if close else None,
    )


def refuse_columns_call(source: QueryText, node: exp.Expr, names: Iterable[str]) -> NoReturn:
    """Refuse COLUMNS(…), with the items for the columns of FROM that it stands for."""
    chosen = _match_columns(node, names) or ["a", "b"]
    around = node.parent
    called = f"{source.get_function_name(around)}({{}})" if isinstance(around, exp.Func) else "{}"
    items = [called.format(name) for name in chosen[:_MOST_ITEMS]]
    items += ["…"] if len(chosen) > _MOST_ITEMS else []
    source.refuse(
        node,
        "function",
        "COLUMNS(…) stands for several columns, and each item of SELECT is one value",
        f"name each column: SELECT {', '.join(items)}",
    )


def _match_columns(node: exp.Expr, names: Iterable[str]) -> list[str]:
    """Return the columns that COLUMNS('pattern'), COLUMNS(*) or COLUMNS([…]) stands for; none where that is not simple.

    A longer pattern, or one with more repetitions, is not tried: each repetition multiplies the work by the length of a name.
    """
    (asked, *_) = node.expressions or [None]
    if isinstance(asked, exp.Star) and not any(asked.args.values()):
        return list(names)
    if isinstance(asked, exp.Array):
        wanted = {normalize_name(part.name) for part in asked.expressions}
        return [name for name in names if normalize_name(name) in wanted]
    if isinstance(asked, exp.Literal) and asked.is_string and _is_simple_pattern(asked.name):
        try:
            return [name for name in names if re.search(asked.name, name, re.IGNORECASE)]
        except re.error:
            return []
    return []


def _is_simple_pattern(text: str) -> bool:
    """Return whether a regular expression is short, and takes little work on any name."""
    short = len(text) <= _LONGEST_PATTERN and sum(map(text.count, "*?")) <= _MOST_REPEATED
    return short and re.fullmatch(r"[\w .|*?$^]*", text) is not None


def refuse_constant_key(
    source: QueryText, node: exp.Expr, target: exp.Expr, items: Sequence[exp.Expr] | None
) -> NoReturn:
    """Refuse a group key that has one value for all rows; `items` are those that GROUP BY ALL groups by, where it does."""
    if items is None:
        source.refuse(
            node,
            "constant",
            "a constant cannot be a group key",
            "leave it out of GROUP BY; HAVING COUNT(*) > 0 then gives no row where there are no rows",
        )
    keys = [
        format_sql(item)
        for item in items
        if item is not target and item.find(exp.Column) and not item.find(exp.Query)
    ]
    source.refuse(
        node,
        "constant",
        f"GROUP BY ALL makes {format_sql(target)} a group key, which has one value for all rows",
        f"name the keys: GROUP BY {', '.join(keys)}"
        if keys
        else "leave GROUP BY ALL out; HAVING COUNT(*) > 0 then gives no row where there are no rows",
    )


def suggest_statistic(node: exp.AggFunc, signature: str, given: Type) -> str | None:
    """Return what to write for an aggregate of values of a type that it does not take, with the user's own SQL."""
    text = format_sql(node.this) if isinstance(node.this, exp.Expr) else "x"
    name = signature.partition("(")[0]
    why = (
        "numbers alone are added"
        if name in ("SUM", "AVG")
        else f"one row would decide the {name} of such values"
    )
    match given:
        case Type.TIME:
            return f"for a time of day write {name}(HOUR({text}) * 60 + MINUTE({text}))"
        case Type.DATE | Type.TIMESTAMP:
            return f"compute with days: {name}(DATE_DIFF('day', DATE '2000-01-01', {text}))"
        case Type.BOOLEAN:
            return f"count where it is true: COUNT_IF({text})"
        case Type.VARCHAR if name in ("SUM", "AVG"):
            return f"if the texts are numbers, convert them: {name}(CAST({text} AS DOUBLE))"
        case Type.NULL | Type.LIST:
            return None
        case _:
            return f"{why}; count each value: SELECT {text}, COUNT(*) … GROUP BY {text}"


@lru_cache(maxsize=64)
def find_closest_function(name: str) -> str | None:
    """Return the signature of the function that a misspelt name most likely means; None where no name is close.

    >>> find_closest_function("lenght"), find_closest_function("read_text")
    ('LENGTH(s)', None)
    """
    choices = [choice for choice in (*CALLS, *_AGGREGATES) if choice[:1] == name[:1]]
    close = (
        choice
        for choice in difflib.get_close_matches(name, choices, 5, _SIMILAR)
        if count_edits(name, choice) <= max(len(name), 3) // 4
    )
    found = next(close, None)
    if found is None:
        return None
    return _AGGREGATES[found] if found in _AGGREGATES else get_overloads(found)[0].signature


def count_edits(first: str, second: str) -> int:
    """Return the least number of letters that are put in, left out, replaced or swapped with their neighbor.

    >>> count_edits("lenght", "length"), count_edits("count", "cot")
    (1, 2)
    """
    rows = [list(range(len(second) + 1))]
    for i, letter in enumerate(first, 1):
        row = [i]
        for j, other in enumerate(second, 1):
            best = min(row[-1] + 1, rows[-1][j] + 1, rows[-1][j - 1] + (letter != other))
            if i > 1 and j > 1 and (letter, first[i - 2]) == (second[j - 2], other):
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def _is_aggregate(name: str) -> bool:
    """Return whether a name is that of an aggregate, to which no function is similar by chance."""
    known = exp.FUNCTION_BY_NAME.get(name.upper())
    return known is not None and issubclass(known, exp.AggFunc)


def _refuse_known_syntax(source: QueryText, node: exp.Expr) -> None:
    """Refuse syntax that calls no function by its name; return for all other nodes."""
    if isinstance(node, exp.Dot):
        source.refuse(
            node,
            "function",
            "a function cannot be called after a dot",
            f"write {_rewrite_method_call(node)}",
        )
    if isinstance(node, exp.Collate):
        text = format_sql(node.this)
        folded = node.expression.name.lower() in ("nocase", "ci")
        source.refuse(
            node,
            "function",
            "COLLATE is not supported: texts are compared by their bytes",
            f"write LOWER({text}), and compare with a text in small letters"
            if folded
            else f"write {text} without COLLATE",
        )
    if isinstance(node, (exp.Any, exp.All)):
        _refuse_quantifier(source, node)
    if isinstance(node, exp.Order):
        if node.this is None:
            source.refuse(node, "function", "ORDER BY is not supported as an argument", "leave it out")
        name = source.get_function_name(node)
        source.refuse(
            node,
            "function",
            f"ORDER BY is not supported in {name}(…)",
            f"leave it out: {name}({format_sql(node.this)})",
        )
    _refuse_known_literal(source, node)


def _refuse_known_literal(source: QueryText, node: exp.Expr) -> None:
    """Refuse texts, lists and operators that are written in a way of their own; return for all other nodes."""
    if isinstance(node, exp.RawString):
        source.refuse(
            node,
            "function",
            "a text in dollar quotes is not supported",
            f"write {format_sql(exp.Literal.string(node.name))}",
        )
    if isinstance(node, exp.ByteString):
        source.refuse(
            node,
            "function",
            "a text with escapes, as in E'a\\n', is not supported",
            "write it in single quotes; other characters are CHR(10) and the like, joined by ||",
        )
    if isinstance(node, exp.Concat) and not source.has_call("concat"):
        source.refuse(
            node,
            "function",
            "texts that stand side by side are not joined",
            f"write {' || '.join(map(format_sql, node.expressions[:_MOST_ITEMS]))}",
        )
    if isinstance(node, exp.Array):
        source.refuse(
            node, "function", "a list is not supported as a value", "x IN (1, 2) compares with each"
        )
    if isinstance(node, (exp.PropertyEQ, exp.Kwarg)):
        source.refuse(
            node, "function", "arguments with names are not supported", "write the arguments in their order"
        )
    if isinstance(node, (exp.JSONExtract, exp.JSONExtractScalar, exp.Lambda)) and not source.has_call(
        "json_extract"
    ):
        source.refuse(
            node,
            "function",
            "the operator -> is not supported: it takes parts of JSON, or makes a function",
            "the data's owner can declare a column of a view that has the part",
        )
    if isinstance(node, exp.StartsWith):
        source.refuse(node, "function", "the operator ^@ is not supported", f"write {format_sql(node)}")
    if source.get_function_name(node) in ("CAST", "TRY_CAST"):
        source.refuse(
            node,
            "function",
            "CAST with FORMAT is not supported",
            "write STRPTIME(s, 'format'), or STRFTIME(t, 'format') for a text",
        )


def _rewrite_method_call(node: exp.Expr) -> str:
    """`s.trim().upper()` as UPPER(TRIM(s))."""
    if not isinstance(node, exp.Dot) or not isinstance(node.expression, exp.Func):
        return format_sql(node)
    call, owner = node.expression, node.this
    arguments = [format_sql(part) for part in call.expressions]
    if not isinstance(call, exp.Anonymous):
        inner = [part for part in call.args.values() if isinstance(part, exp.Expr)]
        arguments = [*map(format_sql, inner), *arguments]
    if not (isinstance(owner, exp.Identifier) and normalize_name(owner.name) in _SCHEMAS):
        arguments = [_rewrite_method_call(owner), *arguments]
    name = call.name if isinstance(call, exp.Anonymous) else call.sql_name()
    return f"{name.upper()}({', '.join(arguments)})"


def _refuse_quantifier(source: QueryText, node: exp.Expr) -> NoReturn:
    """Refuse ANY and ALL where nothing is compared, and after LIKE and ILIKE, which are written out."""
    word, around = node.key.upper(), node.parent
    if not isinstance(around, (exp.Like, exp.ILike)):
        source.refuse(
            node,
            "function",
            f"{word} is only allowed after =, <>, <, <=, > and >=",
            "x = ANY([1, 2]), or x > ALL (SELECT …)",
        )
    listed = node.this.unnest() if isinstance(node.this, exp.Paren) else node.this
    patterns = listed.expressions if isinstance(listed, (exp.Tuple, exp.Array)) else []
    like, text = around.key.upper(), format_sql(around.this)
    if around.args.get("negate") or not patterns:
        source.refuse(
            node,
            "function",
            f"{word} is not supported after {like}",
            f"write each comparison out, as {text} {like} 'a%' OR {text} {like} 'b%'",
        )
    parts = [f"{text} {like} {format_sql(each)}" for each in patterns[:_MOST_ITEMS]]
    parts += ["…"] if len(patterns) > _MOST_ITEMS else []
    joined = f" {'OR' if word == 'ANY' else 'AND'} ".join(parts)
    source.refuse(node, "function", f"{word} is not supported after {like}", f"write {joined}")
