"""Calls of catalog queries whose results could be much larger than their arguments, with a bound on each result.

Claim: a text or list that one of these calls returns has at most some ten thousand characters or items, or twice its argument.
Why: the engine's memory limit does not apply to texts and lists, so that each call is cut here, whatever its arguments are.
"""

from __future__ import annotations

import re
from typing import NoReturn

from sqlglot import exp

from dpsql.errors import QueryRejected
from dpsql.sql.pg_catalog.functions import PREFIX

_LONGEST_SERIES = 1_000
_MOST_JOINED = 10
_LONGEST_REPLACEMENT = 63
_LONGEST_TEXT = 10_000
"""The most characters or items of a concatenated text or array."""
_LONGEST_JSON = 1_000_000
_PLACEHOLDER = re.compile(r"%(?:([sIL])|%)|%.?", re.DOTALL)


def refuse_query(message: str) -> NoReturn:
    """Raise QueryRejected for a catalog query that is not supported."""
    raise QueryRejected(
        message,
        code="catalogue",
        hint="dpsql only supports the catalog queries by which clients list tables and columns",
    )


def build_macro_call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """Return a call of one of the emulator's own functions."""
    return exp.Anonymous(this=PREFIX + name, expressions=list(arguments))


def cut_text(text: exp.Expr, longest: int = _LONGEST_TEXT) -> exp.Expr:
    """Return the first characters of a text, or the first items of an array."""
    first, last = exp.Literal.number(1), exp.Literal.number(longest)
    return exp.Bracket(this=exp.paren(text), expressions=[exp.Slice(this=first, expression=last)])


def limit_series(series: exp.Func) -> exp.Func:
    """Return a series that ends soon."""
    start, end, step = (series.args.get(name) for name in ("start", "end", "step"))
    if start is None or end is None or not (step is None or (isinstance(step, exp.Literal) and step.is_int)):
        refuse_query("generate_series takes a start, an end, and a step that is a literal whole number")
    start, end = start.copy(), end.copy()
    surplus = exp.paren(end) - exp.paren(start) - _LONGEST_SERIES
    # The engine's GREATEST ignores a NULL, of which the series has no end, and no values.
    series.set(
        "end", exp.paren(end) - exp.Anonymous(this="GREATEST", expressions=[exp.Literal.number(0), surplus])
    )
    return series


def limit_concatenation(text: exp.Expr) -> exp.Expr:
    """Return a concatenated text or array that is cut to `_LONGEST_TEXT`."""
    if len(text.expressions) > _MOST_JOINED:
        refuse_query(f"CONCAT takes at most {_MOST_JOINED} texts")
    return cut_text(text)


def limit_replacement(call: exp.Replace) -> exp.Expr:
    """Return a REPLACE of short texts in the first `_LONGEST_TEXT` characters, so that its result is bounded."""
    old, new = call.args.get("expression"), call.args.get("replacement")
    for each in (old, new):
        if not isinstance(each, exp.Literal) or len(each.name) > _LONGEST_REPLACEMENT:
            refuse_query("REPLACE takes two short texts that are constants")
    return exp.Anonymous(this="REPLACE", expressions=[cut_text(call.this), old, new])


def limit_quoting(name: str, text: exp.Expr) -> exp.Expr:
    """Return a call of a quoting function, which doubles quotation marks, for the first characters of a text."""
    return build_macro_call(name, cut_text(text))


def limit_json(call: exp.Expr) -> exp.Expr:
    """Return a JSON text that is cut: each quotation mark in it is doubled when it is put into JSON again."""
    text = exp.Cast(this=call, to=exp.DataType.build("TEXT"))
    is_row = isinstance(call, exp.Anonymous) and call.name == "to_json"
    return cut_text(text, _LONGEST_TEXT if is_row else _LONGEST_JSON)


def spell_out_format(call: exp.Format) -> exp.Expr:
    """Return FORMAT with `%s`, `%I` and `%L` as a concatenation; NULL counts as an empty text."""
    pattern, arguments = call.this, list(call.expressions)
    if not isinstance(pattern, exp.Literal) or not pattern.is_string or len(arguments) > _MOST_JOINED:
        refuse_query(f"FORMAT takes a constant text and at most {_MOST_JOINED} values")
    parts, at = list[exp.Expr](), 0
    for place in _PLACEHOLDER.finditer(pattern.name):
        parts.append(exp.Literal.string(pattern.name[at : place.start()]))
        at = place.end()
        if place[1] is None and place[0] != "%%":
            refuse_query("FORMAT takes the placeholders %s, %I and %L")
        if place[1] is None:
            parts.append(exp.Literal.string("%"))
            continue
        if not arguments:
            refuse_query("FORMAT takes as many values as placeholders")
        text: exp.Expr = exp.Cast(this=arguments.pop(0), to=exp.DataType.build("TEXT"))
        if place[1] != "s":
            text = limit_quoting("quote_ident" if place[1] == "I" else "quote_literal", text)
        parts.append(exp.Coalesce(this=text, expressions=[exp.Literal.string("")]))
    parts.append(exp.Literal.string(pattern.name[at:]))
    written: exp.Expr = parts[0]
    for part in parts[1:]:
        written = exp.DPipe(this=written, expression=part)
    return cut_text(written)


def limit_time_format(call: exp.TimeToStr) -> exp.Expr:
    """Return TO_CHAR of a moment by a short pattern that is a constant; the time zone is the server's, UTC."""
    pattern = call.args.get("format")
    if not isinstance(pattern, exp.Literal) or len(pattern.name) > _LONGEST_REPLACEMENT:
        refuse_query("TO_CHAR takes a moment and a short text that is a constant")
    moment = exp.Cast(this=call.this, to=exp.DataType.build("TIMESTAMP"))
    written = exp.Literal.string(pattern.name.replace("%Z", "UTC"))
    return exp.Anonymous(this="STRFTIME", expressions=[moment, written])
