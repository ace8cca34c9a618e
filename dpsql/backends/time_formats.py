"""Formats of STRFTIME that are put together of parts, for engines whose own formats differ from DuckDB's.

Claim: the text is the one that DuckDB writes, for each moment of the years 1 to 9999.
Why: each part is a whole number with leading zeros, or a literal text; no language, setting or time zone decides it.
Source: DuckDB's documentation, "Date Format Functions", format specifiers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from dpsql.plan.expressions import Call, Literal

PARTS = {
    "Y": ("year", 4),
    "m": ("month", 2),
    "d": ("day", 2),
    "H": ("hour", 2),
    "M": ("minute", 2),
    "S": ("second", 2),
}
"""The fields of a moment by their specifiers, and how many digits each has at least."""
FORMATTED = "whole numbers with leading zeros and literal texts: %Y, %m, %d, %H, %M, %S, %F, %T and %%"
_SHORT = {"%F": "%Y-%m-%d", "%T": "%H:%M:%S"}
_MOST = 100
"""The most characters of a format."""


def make_strftime_template(
    fields: Mapping[str, str], join_parts: Callable[[list[str]], str], emit_constant: Callable[[str], str]
) -> Callable[[Call], str | None]:
    """The template of STRFTIME by the texts of a moment's `fields`, with their zeros, which are `join_parts` with literals."""

    def build_template(call: Call) -> str | None:
        form = call.arguments[1]
        if not isinstance(form, Literal) or len(str(form.value)) > _MOST:
            return None
        text = re.sub("%[FT]", lambda found: _SHORT[found[0]], str(form.value))
        parts = re.findall(r"%.?|[^%]+", text, re.DOTALL)
        if not all(part[0] != "%" or part == "%%" or part[1:] in PARTS for part in parts):
            return None
        return join_parts(
            [
                fields[PARTS[part[1:]][0]]
                if part[0] == "%" and part != "%%"
                else emit_constant("%" if part == "%%" else part).replace("{", "{{").replace("}", "}}")
                for part in parts
            ]
        )

    return build_template
