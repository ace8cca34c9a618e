"""Pattern matching: LIKE, GLOB and regular expressions, with constant patterns.

A regular expression takes time in proportion to the text and to its states, except in REGEXP_REPLACE of every match
(`growth.RegexPattern`). An engine without data tries whether the pattern is valid, before anything is charged.
"""

from __future__ import annotations

import re

from dpsql.plan.expressions import Function
from dpsql.plan.functions import growth
from dpsql.plan.functions.signatures import (
    INTEGER,
    TEXT,
    format_placeholders,
    make_constant_rule,
    make_fixed_rule,
)
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value

MOST_PATTERN = 1_000
"""Most characters of a pattern."""
MOST_GROUP = 9
_TRUTH = make_constant_rule(Interval(0, 1))
_TRIED = "the regular expression is a constant that was tried before"


def _find_escape_error(values: tuple[Value, ...]) -> str | None:
    pattern, escape = map(str, values)
    if len(escape) != 1 or not escape.isascii():
        return "ESCAPE takes one ASCII character"
    # An escape makes the next character literal, so they come in pairs.
    rest = re.sub(f"{re.escape(escape)}.", "", pattern, flags=re.DOTALL)
    return "the pattern must not end with its escape" if escape in rest else None


def _find_ilike_escape_error(values: tuple[Value, ...]) -> str | None:
    # The engine lowers the case of the pattern, by which a character can become the escape.
    return (
        "ESCAPE after ILIKE must not be a letter" if str(values[1]).isalpha() else _find_escape_error(values)
    )


def _find_regex_error(values: tuple[Value, ...]) -> str | None:
    pattern, *rest = values
    if len(str(pattern)) > MOST_PATTERN:
        return f"the regular expression must have at most {MOST_PATTERN:,} characters"
    if "\\C" in str(pattern):
        return "\\C would cut characters in two"
    group = next((value for value in rest if isinstance(value, int)), 0)
    return None if 0 <= group <= MOST_GROUP else f"the group must be between 0 and {MOST_GROUP}"


def _find_replacement_error(values: tuple[Value, ...]) -> str | None:
    if len(str(values[1])) > MOST_PATTERN:
        return f"the replacement must have at most {MOST_PATTERN:,} characters"
    return _find_regex_error(values[:1])


def _define_like(name: str, word: str, example: tuple[str, str]) -> Function:
    return Function(
        name,
        f"s {word} 'pattern'",
        make_fixed_rule(Type.BOOLEAN, TEXT, TEXT),
        f"({{0}} {word} {{1}})",
        "the pattern is a constant without escapes",
        interval=_TRUTH,
        strict=True,
        literals=frozenset({1}),
        work=growth.bound_like_work if name == "like" else growth.make_pair_work_rule(),
        example=example,
    )


def _define_like_escape(name: str, word: str, example: tuple[str, str]) -> Function:
    return Function(
        f"{name}_escape",
        f"s {word} 'pattern' ESCAPE 'character'",
        make_fixed_rule(Type.BOOLEAN, TEXT, TEXT, TEXT),
        f"({{0}} {word} {{1}} ESCAPE {{2}})",
        "the pattern is a constant that does not end with an escape",
        interval=_TRUTH,
        strict=True,
        literals=frozenset({1, 2}),
        check=_find_escape_error if name == "like" else _find_ilike_escape_error,
        names=(f"{name}_escape",),
        work=growth.make_pair_work_rule(),
        example=example,
    )


def _define_regex_match(
    name: str, word: str, names: tuple[str, ...], example: tuple[str, str], *more: str
) -> Function:
    """Return a question to a regular expression, with or without options."""
    arguments = ("'pattern'", *more)
    return Function(
        name,
        f"{word}(s, {', '.join(arguments)})",
        make_fixed_rule(Type.BOOLEAN, TEXT, *([TEXT] * len(arguments))),
        f"{word}({format_placeholders(1 + len(arguments))})",
        _TRIED,
        interval=_TRUTH,
        strict=True,
        literals=frozenset(range(1, len(arguments) + 1)),
        check=_find_regex_error,
        checked_by_engine=True,
        work=growth.bound_match_work,
        names=names,
        example=example,
    )


def _define_regex_extraction(
    name: str, arguments: str, types: tuple[tuple[Type, ...], ...], example: tuple[str, str]
) -> Function:
    return Function(
        name,
        f"REGEXP_EXTRACT(s, {arguments})",
        make_fixed_rule(Type.VARCHAR, TEXT, *types),
        f"REGEXP_EXTRACT({format_placeholders(1 + len(types))})",
        _TRIED,
        strict=True,
        literals=frozenset(range(1, len(types) + 1)),
        check=_find_regex_error,
        checked_by_engine=True,
        size=growth.bound_by_first_text,
        work=growth.bound_match_work,
        names=("regexp_extract",),
        example=example,
    )


def _define_regex_replacement(name: str, arguments: str, count: int, example: tuple[str, str]) -> Function:
    return Function(
        name,
        f"REGEXP_REPLACE(s, {arguments})",
        make_fixed_rule(Type.VARCHAR, TEXT, *([TEXT] * count)),
        f"REGEXP_REPLACE({format_placeholders(1 + count)})",
        _TRIED,
        strict=True,
        literals=frozenset(range(1, count + 1)),
        check=_find_replacement_error,
        checked_by_engine=True,
        size=growth.bound_regexp_replaced_text,
        work=growth.bound_regexp_replace_work,
        names=("regexp_replace",),
        example=example,
    )


PATTERN_FUNCTIONS = (
    _define_like("like", "LIKE", ("'abc' LIKE 'a%'", "true")),
    _define_like("ilike", "ILIKE", ("'ABC' ILIKE 'a%'", "true")),
    _define_like("glob", "GLOB", ("'abc' GLOB 'a*'", "true")),
    _define_like_escape("like", "LIKE", ("'a%c' LIKE 'a!%c' ESCAPE '!'", "true")),
    _define_like_escape("ilike", "ILIKE", ("'A%C' ILIKE 'a!%c' ESCAPE '!'", "true")),
    _define_regex_match(
        "regexp_matches", "REGEXP_MATCHES", ("regexp_matches",), ("REGEXP_MATCHES('abc', 'b|x')", "true")
    ),
    _define_regex_match(
        "regexp_matches_options",
        "REGEXP_MATCHES",
        ("regexp_matches",),
        ("REGEXP_MATCHES('abc', 'B', 'i')", "true"),
        "'options'",
    ),
    _define_regex_match(
        "regexp_full_match",
        "REGEXP_FULL_MATCH",
        ("regexp_full_match",),
        ("REGEXP_FULL_MATCH('abc', 'b')", "false"),
    ),
    _define_regex_match(
        "regexp_full_match_options",
        "REGEXP_FULL_MATCH",
        ("regexp_full_match",),
        ("REGEXP_FULL_MATCH('abc', 'A.C', 'i')", "true"),
        "'options'",
    ),
    _define_regex_extraction(
        "regexp_extract", "'pattern'", (TEXT,), ("REGEXP_EXTRACT('ab12', '[0-9]+')", "12")
    ),
    _define_regex_extraction(
        "regexp_extract_group",
        "'pattern', group",
        (TEXT, INTEGER),
        ("REGEXP_EXTRACT('ab12', '([a-z]+)([0-9]+)', 2)", "12"),
    ),
    _define_regex_extraction(
        "regexp_extract_options",
        "'pattern', group, 'options'",
        (TEXT, INTEGER, TEXT),
        ("REGEXP_EXTRACT('ab12', '([A-Z]+)', 1, 'i')", "ab"),
    ),
    _define_regex_replacement(
        "regexp_replace", "'pattern', 'new'", 2, ("REGEXP_REPLACE('ab12', '[0-9]', 'x')", "abx2")
    ),
    _define_regex_replacement(
        "regexp_replace_options",
        "'pattern', 'new', 'options'",
        3,
        ("REGEXP_REPLACE('ab12', '[0-9]', 'x', 'g')", "abxx"),
    ),
)
