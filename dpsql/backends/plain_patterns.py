r"""Regular expressions that are texts: alternatives of literals, for engines whose own expressions are not DuckDB's.

Claim: a text matches such an expression where it contains, begins with, ends with or is one of the literals, as the anchors say.
Why: of all that RE2, the expressions of PostgreSQL and those of Java mean, this is what needs no engine for expressions: `^` and
`$` are the ends of the text, and `\` takes a sign of punctuation as it is. Time is in proportion to the text.
Source: RE2's documentation, "Syntax", single characters, composites and empty strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from dpsql.plan.expressions import Call, Literal

_LITERAL = r"(?:[^\\.+*?()\[\]{}|^$\x00]|\\[!-/:-@\[-^`{-~])*"
_ALTERNATIVE = re.compile(rf"(\^?)({_LITERAL})(\$?)(?:\||\Z)", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)")
PLAIN = "alternatives of literals with or without ^ and $: a text is searched for each"


def parse_alternatives(pattern: str, *, whole: bool) -> list[tuple[bool, bool, str]] | None:
    r"""The literals of a pattern, each with whether it is at the beginning and at the end; None of other patterns.

    `whole` says that the expression is asked for all of the text.

    >>> parse_alternatives(r"^a|b\.c$", whole=False)
    [(True, False, 'a'), (False, True, 'b.c')]
    >>> parse_alternatives("a+", whole=False)
    """
    found, at = list[tuple[bool, bool, str]](), 0
    while (part := _ALTERNATIVE.match(pattern, at)) is not None:
        found.append((whole or part[1] != "", whole or part[3] != "", _ESCAPED.sub(r"\1", part[2])))
        if not part[0].endswith("|") or part[0].endswith("\\|"):
            return found
        at = part.end()
    return None


def make_pattern_template(
    tests: Mapping[tuple[bool, bool], str],
    emit_constant: Callable[[str], str],
    bind_arguments: Callable[[str, str], str],
    *,
    whole: bool = False,
) -> Callable[[Call], str | None]:
    """The template of a call by `tests` of a text `a` for a literal {0}, by whether it is at the beginning and at the end."""

    def build_template(call: Call) -> str | None:
        pattern = call.arguments[1]
        found = parse_alternatives(str(pattern.value), whole=whole) if isinstance(pattern, Literal) else None
        if found is None:
            return None
        each = [tests[first, last].format(emit_constant(text)) for first, last, text in found]
        return bind_arguments(f"({' OR '.join(each)})".replace("{", "{{").replace("}", "}}"), "{0}")

    return build_template
