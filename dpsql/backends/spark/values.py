"""Constants, types and patterns of LIKE as Spark's SQL writes them, under the settings that are pinned."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

from dpsql.backends.dialect import ValueSyntax
from dpsql.backends.function_spellings import has_few_wildcards, read_case_mapping
from dpsql.plan.expressions import Call, Literal
from dpsql.plan.types import Type

# Constants and types as Spark's SQL writes them, under the settings that are pinned.


TYPES = MappingProxyType(
    {
        Type.INTEGER: "BIGINT",
        Type.DOUBLE: "DOUBLE",
        Type.VARCHAR: "STRING",
        Type.DATE: "DATE",
        Type.TIMESTAMP: "TIMESTAMP_NTZ",
        Type.BOOLEAN: "BOOLEAN",
        Type.BLOB: "BINARY",
    }
)
"""Spark's names of the value types; it has no times of day and no UUID."""


@dataclass(frozen=True)
class SparkValues(ValueSyntax):
    r"""Constants and casts of Spark: texts are read under the collation that compares bytes.

    >>> print(VALUES.emit_constant(3), VALUES.emit_constant(0.5), VALUES.emit_constant("it's"))
    CAST(3 AS BIGINT) CAST('0.5' AS DOUBLE) 'it\u0027s'
    """

    def _emit_text(self, value: str) -> str:
        """Escape all but plain letters and digits, so that no setting of the parser can change the text."""
        return f"'{''.join(map(_escape_letter, value))}'"


def _escape_letter(letter: str) -> str:
    if letter.isascii() and (letter.isalnum() or letter in " _-.,:;()"):
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) < 2**16 else f"\\U{ord(letter):08x}"


VALUES = SparkValues(engine="Spark", types=TYPES)
NAN, INFINITY = VALUES.nan, VALUES.infinity
emit_constant = VALUES.emit_constant


# How Spark writes LIKE, so that no text makes it fail or go back, and letters as DuckDB changes them.


ESCAPE = "\x01"
"""The character that escapes in patterns; a pattern that has it is refused."""


def _allows_default_escape(call: Call) -> bool:
    pattern = call.arguments[1]
    return has_few_wildcards(call) and isinstance(pattern, Literal) and ESCAPE not in str(pattern.value)


def translate_letters(function: str, text: str) -> str:
    """Write a text whose letters a function changes as DuckDB does."""
    before, after = map(emit_constant, read_case_mapping(function))
    return f"TRANSLATE({text}, {before}, {after})"


def _split_pattern(pattern: str, escape: str) -> list[str]:
    """Split a pattern at its %, into regular expressions of Java.

    >>> _split_pattern("a%b_!%c", "!")
    ['a', 'b.%c']
    """
    parts, letters = [""], iter(pattern)
    for letter in letters:
        if escape and letter == escape:
            parts[-1] += re.escape(next(letters, ""))
        elif letter == "%":
            parts.append("")
        else:
            parts[-1] += "." if letter == "_" else re.escape(letter)
    return parts


def _build_atomic_regex(pattern: str, escape: str) -> str:
    """Return LIKE as a regular expression of Java that finds each part at its first place, and never looks for a later one.

    Claim: it matches the texts that the pattern is LIKE, in time in proportion to the product of both.
    Why: where a later place of a part leads to a match, its first place does, as what follows may have any letters before it.
    """
    first, *between, last = _split_pattern(pattern, escape)
    found = "".join(f"(?>.*?{part})" for part in between if part)
    return f"(?s)\\A{first}{found}.*{last}\\z"


def make_like_template(function: str = "") -> Callable[[Call], str | None]:
    """Write LIKE of texts, of what `function` makes of their letters if one is named, with the escape of the call if it has one."""

    def build_template(call: Call) -> str | None:
        escape = "".join(str(part.value) for part in call.arguments[2:] if isinstance(part, Literal))
        fits = _has_valid_escapes(call, escape) if escape else _allows_default_escape(call)
        text, pattern = (translate_letters(function, part) if function else part for part in ("{0}", "{1}"))
        known = str(call.arguments[1].value) if isinstance(call.arguments[1], Literal) else ""
        if fits and len([part for part in _split_pattern(known, escape)[1:] if part]) > 1:
            lowered = known.translate(str.maketrans(*read_case_mapping(function))) if function else known
            expression = emit_constant(_build_atomic_regex(lowered, escape))
            return f"({text} RLIKE {expression.replace('{', '{{').replace('}', '}}')})"
        return f"({text} LIKE {pattern} ESCAPE '\\u{ord(escape or ESCAPE):04x}')" if fits else None

    return build_template


def _has_valid_escapes(call: Call, escape: str) -> bool:
    """Return whether the pattern escapes nothing but wildcards and the escape: Spark fails on all else."""
    pattern = call.arguments[1]
    escaped = rf"{re.escape(escape)}[%_{re.escape(escape)}]"
    return (
        has_few_wildcards(call)
        and isinstance(pattern, Literal)
        and escape not in re.sub(escaped, "", str(pattern.value))
    )
