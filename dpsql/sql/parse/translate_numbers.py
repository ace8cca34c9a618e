"""Translate numbers as texts from other dialects: TO_CHAR, FORMAT, FORMAT_NUMBER and printf."""

from __future__ import annotations

import dataclasses

from sqlglot import exp

from dpsql.sql.parse.dialect import is_whole_number
from dpsql.sql.parse.dialect_text import DialectText
from dpsql.sql.parse.equivalents import MOST_COPIED
from dpsql.sql.parse.number_formats import (
    MOST_DECIMALS,
    NumberFormat,
    read_directives,
    read_net_format,
    read_pattern,
)
from dpsql.sql.parse.typed_calls import NUMBER_TEXT, PLAIN_TEXT, build_call

_FLAGS = {"bigquery": "-0'", "spark": "-0,", "postgres": ""}
_KINDS = {"bigquery": "text", "spark": "any", "postgres": "any"}
"""Which values %s takes: texts, or whole numbers and days, too."""


def build_number_text(value: exp.Expr, form: NumberFormat) -> exp.Expr:
    """Build a number as a text."""
    return build_call(NUMBER_TEXT, value, exp.Literal.string(form.write()))


def find_number_format(text: exp.Expr, dialect: str) -> NumberFormat | None:
    """Return the format of numbers that a constant text is; None for formats of dates and others."""
    if not isinstance(text, exp.Literal) or not text.is_string:
        return None
    return read_net_format(text.name) if dialect == "tsql" else read_pattern(text.name, dialect)


def translate_format_number(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate FORMAT_NUMBER(x, d) of Spark, which rounds halves to even."""
    if len(node.expressions) != 2:
        return None
    value, digits = node.expressions
    if not is_whole_number(digits) or int(digits.name) > MOST_DECIMALS:
        self.refuse_in_dialect(
            node, "constant", f"FORMAT_NUMBER takes a constant number of digits, up to {MOST_DECIMALS}"
        )
    return build_number_text(
        value, NumberFormat(decimals=int(digits.name), is_grouped=True, halves_to_even=True, signs_zero=True)
    )


def translate_printf(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate FORMAT of BigQuery and PostgreSQL, and PRINTF of Spark, with %d, %s and %f."""
    text, *values = node.expressions or [exp.Null()]
    parts = (
        read_directives(text.name, _FLAGS[self.dialect])
        if isinstance(text, exp.Literal) and text.is_string
        else None
    )
    taken = [part for part in parts or () if not isinstance(part, str)]
    if self.dialect == "postgres" and any(kind != "text" for kind, _ in taken):
        parts = None
    if parts is None or len(taken) != len(values):
        self.refuse_in_dialect(
            node,
            "constant",
            "a format must be a constant with %s, %d or %.2f for each value",
            "write CONCAT(COUNT(*), ' rows')",
        )
    rest = iter(values)
    pieces = [
        exp.Literal.string(part) if isinstance(part, str) else _write_part(self, next(rest), *part)
        for part in parts
    ]
    if self.dialect == "postgres":  # a NULL is an empty text there
        return build_call("concat", exp.Literal.string(""), *pieces)
    found: exp.Expr = pieces[0] if pieces else exp.Literal.string("")
    for piece in pieces[1:]:
        found = exp.DPipe(this=found, expression=piece, safe=True)
    return exp.Paren(this=found)


def _write_part(self: DialectText, value: exp.Expr, kind: str, form: NumberFormat) -> exp.Expr:
    found: exp.Expr
    if kind == "text":
        found = build_call(PLAIN_TEXT, value, exp.Literal.string(_KINDS[self.dialect]))
    elif kind == "zeros":
        if sum(1 for _ in value.walk()) > MOST_COPIED:
            self.refuse_in_dialect(
                value,
                "too_long",
                "an expression this long cannot be translated: zeros before it take a copy of it",
            )
        found = _fill_with_zeros(value, form)
    else:
        found = build_number_text(value, form)
    return build_call("coalesce", found, exp.Literal.string("null")) if self.dialect == "spark" else found


def _fill_with_zeros(value: exp.Expr, form: NumberFormat) -> exp.Expr:
    """Return a whole number with zeros before it, one fewer where it has a sign."""
    wide, narrow = (
        dataclasses.replace(form, width=0, least_digits=max(form.width - less, 1)) for less in (0, 1)
    )
    is_negative = exp.LT(this=exp.Paren(this=value.copy()), expression=exp.Literal.number(0))
    return exp.Case(
        ifs=[exp.If(this=is_negative, true=build_number_text(value.copy(), narrow))],
        default=build_number_text(value.copy(), wide),
    )
