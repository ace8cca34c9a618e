"""Pattern matching: LIKE, GLOB and regular expressions, with constant patterns.

A regular expression takes time in proportion to the text and to its states, but for REGEXP_REPLACE of every match
(`regex_size`). Whether it is one is tried on an engine without data, before anything is charged.
"""

from __future__ import annotations

import re

from dpsql.functions import growth
from dpsql.functions.enclosures import constantly
from dpsql.functions.signatures import INTEGER, TEXT, fixed, written
from dpsql.plan.expr import Function
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value

MOST_PATTERN = 1_000
"""Most characters of a pattern."""
MOST_GROUP = 9
_TRUTH = constantly(Interval(0, 1))
_TRIED = "the regular expression is a constant that was tried before"


def _escaped(values: tuple[Value, ...]) -> str | None:
    pattern, escape = map(str, values)
    if len(escape) != 1 or not escape.isascii():
        return "ESCAPE takes one ASCII character"
    # What follows an escape is taken as it is, so they come in pairs.
    rest = re.sub(f"{re.escape(escape)}.", "", pattern, flags=re.DOTALL)
    return "the pattern ends with its escape" if escape in rest else None


def _escaped_in_any_case(values: tuple[Value, ...]) -> str | None:
    # The engine lowers the case of the pattern, by which a character can become the escape.
    return "ESCAPE after ILIKE takes no letter" if str(values[1]).isalpha() else _escaped(values)


def _expression(values: tuple[Value, ...]) -> str | None:
    pattern, *rest = values
    if len(str(pattern)) > MOST_PATTERN:
        return f"a regular expression of at most {MOST_PATTERN:,} characters"
    if "\\C" in str(pattern):
        return "\\C would cut characters in two"
    group = next((value for value in rest if isinstance(value, int)), 0)
    return None if 0 <= group <= MOST_GROUP else f"a group between 0 and {MOST_GROUP}"


def _rewriting(values: tuple[Value, ...]) -> str | None:
    if len(str(values[1])) > MOST_PATTERN:
        return f"a replacement of at most {MOST_PATTERN:,} characters"
    return _expression(values[:1])


def _like(name: str, word: str, example: tuple[str, str]) -> Function:
    return Function(
        name,
        f"s {word} 'pattern'",
        fixed(Type.BOOLEAN, TEXT, TEXT),
        f"({{0}} {word} {{1}})",
        "the pattern is a constant without escapes",
        interval=_TRUTH,
        strict=True,
        literals=frozenset({1}),
        work=growth.liked if name == "like" else growth.each_pair(),
        example=example,
    )


def _like_escape(name: str, word: str, example: tuple[str, str]) -> Function:
    return Function(
        f"{name}_escape",
        f"s {word} 'pattern' ESCAPE 'character'",
        fixed(Type.BOOLEAN, TEXT, TEXT, TEXT),
        f"({{0}} {word} {{1}} ESCAPE {{2}})",
        "the pattern is a constant that does not end with an escape",
        interval=_TRUTH,
        strict=True,
        literals=frozenset({1, 2}),
        check=_escaped if name == "like" else _escaped_in_any_case,
        names=(f"{name}_escape",),
        work=growth.each_pair(),
        example=example,
    )


def _matching(name: str, word: str, names: tuple[str, ...], example: tuple[str, str], *more: str) -> Function:
    """A question to a regular expression, with or without options."""
    arguments = ("'pattern'", *more)
    return Function(
        name,
        f"{word}(s, {', '.join(arguments)})",
        fixed(Type.BOOLEAN, TEXT, *([TEXT] * len(arguments))),
        f"{word}({written(1 + len(arguments))})",
        _TRIED,
        interval=_TRUTH,
        strict=True,
        literals=frozenset(range(1, len(arguments) + 1)),
        check=_expression,
        tried=True,
        work=growth.matched,
        names=names,
        example=example,
    )


def _extraction(
    name: str, arguments: str, types: tuple[tuple[Type, ...], ...], example: tuple[str, str]
) -> Function:
    return Function(
        name,
        f"REGEXP_EXTRACT(s, {arguments})",
        fixed(Type.VARCHAR, TEXT, *types),
        f"REGEXP_EXTRACT({written(1 + len(types))})",
        _TRIED,
        strict=True,
        literals=frozenset(range(1, len(types) + 1)),
        check=_expression,
        tried=True,
        size=growth.as_long,
        work=growth.matched,
        names=("regexp_extract",),
        example=example,
    )


def _replacement(name: str, arguments: str, count: int, example: tuple[str, str]) -> Function:
    return Function(
        name,
        f"REGEXP_REPLACE(s, {arguments})",
        fixed(Type.VARCHAR, TEXT, *([TEXT] * count)),
        f"REGEXP_REPLACE({written(1 + count)})",
        _TRIED,
        strict=True,
        literals=frozenset(range(1, count + 1)),
        check=_rewriting,
        tried=True,
        size=growth.rewritten,
        work=growth.matched_everywhere,
        names=("regexp_replace",),
        example=example,
    )


ENTRIES = (
    _like("like", "LIKE", ("'abc' LIKE 'a%'", "true")),
    _like("ilike", "ILIKE", ("'ABC' ILIKE 'a%'", "true")),
    _like("glob", "GLOB", ("'abc' GLOB 'a*'", "true")),
    _like_escape("like", "LIKE", ("'a%c' LIKE 'a!%c' ESCAPE '!'", "true")),
    _like_escape("ilike", "ILIKE", ("'A%C' ILIKE 'a!%c' ESCAPE '!'", "true")),
    _matching(
        "regexp_matches", "REGEXP_MATCHES", ("regexp_matches",), ("REGEXP_MATCHES('abc', 'b|x')", "true")
    ),
    _matching(
        "regexp_matches_options",
        "REGEXP_MATCHES",
        ("regexp_matches",),
        ("REGEXP_MATCHES('abc', 'B', 'i')", "true"),
        "'options'",
    ),
    _matching(
        "regexp_full_match",
        "REGEXP_FULL_MATCH",
        ("regexp_full_match",),
        ("REGEXP_FULL_MATCH('abc', 'b')", "false"),
    ),
    _matching(
        "regexp_full_match_options",
        "REGEXP_FULL_MATCH",
        ("regexp_full_match",),
        ("REGEXP_FULL_MATCH('abc', 'A.C', 'i')", "true"),
        "'options'",
    ),
    _extraction("regexp_extract", "'pattern'", (TEXT,), ("REGEXP_EXTRACT('ab12', '[0-9]+')", "12")),
    _extraction(
        "regexp_extract_group",
        "'pattern', group",
        (TEXT, INTEGER),
        ("REGEXP_EXTRACT('ab12', '([a-z]+)([0-9]+)', 2)", "12"),
    ),
    _extraction(
        "regexp_extract_options",
        "'pattern', group, 'options'",
        (TEXT, INTEGER, TEXT),
        ("REGEXP_EXTRACT('ab12', '([A-Z]+)', 1, 'i')", "ab"),
    ),
    _replacement("regexp_replace", "'pattern', 'new'", 2, ("REGEXP_REPLACE('ab12', '[0-9]', 'x')", "abx2")),
    _replacement(
        "regexp_replace_options",
        "'pattern', 'new', 'options'",
        3,
        ("REGEXP_REPLACE('ab12', '[0-9]', 'x', 'g')", "abxx"),
    ),
)
