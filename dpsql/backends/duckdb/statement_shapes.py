"""The shape of an emitted statement: its text without its constants, by which the engine binds it alike."""

from __future__ import annotations

import re

_CONSTANT = re.compile(
    r"""
    (?P<name>"(?:[^"]|"")*") | (?P<text>'(?:[^']|'')*')
    | (?<!\w)(?: (?P<double>\d+(?:\.\d+)?e[+-]?\d+) | (?P<decimal>\d+\.\d+) | (?P<whole>\d+) )
    """,
    re.VERBOSE,
)
_WIDTHS = (31, 63, 127)
"""Binary digits of the magnitudes of DuckDB's INTEGER, BIGINT and HUGEINT."""


def compute_statement_shape(sql: str) -> str:
    """The text of an emitted statement with a mark for the type of each text and number in it.

    Claim: of statements of one shape, the engine binds all or none.
    Why: binding resolves names and types. The type of a text or a floating-point number does not depend on its value, that
    of a whole number on its width alone, and what else binding reads of a constant, as a regular expression, was tried
    before. Names, and decimals, whose type has their digits, stay as they are.

    >>> print(compute_statement_shape("SELECT 'a''b', 3, 2147483648, 1.5, 2.5e0 FROM t1 WHERE x1 > -7"))
    SELECT '', #31, #63, 1.5, #e FROM t1 WHERE x1 > -#31
    """
    return _CONSTANT.sub(_mask_constant, sql)


def _mask_constant(found: re.Match[str]) -> str:
    if found["text"] is not None:
        return "''"
    if found["double"] is not None:
        return "#e"
    if found["whole"] is not None:
        digits = int(found["whole"]).bit_length() if len(found["whole"]) <= 40 else 128
        return next((f"#{width}" for width in _WIDTHS if digits <= width), found["whole"])
    return found[0]
