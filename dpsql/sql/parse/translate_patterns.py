"""Translate functions that take parts of texts by patterns, separators and places from other dialects."""

from __future__ import annotations

import re

from sqlglot import exp

from dpsql.sql.parse.dialect import is_whole_number
from dpsql.sql.parse.dialect_text import DialectText
from dpsql.sql.parse.equivalents import build_equivalent
from dpsql.sql.parse.translate_texts import take_pattern, translate_places
from dpsql.sql.parse.typed_calls import build_call

MOST_PARTS = 100
_GROUP = re.compile(r"(?<!\\)\((?!\?)")
_OPTIONAL = re.compile(r"(?<!\\)\||(?<!\\)\)[?*{]")
"""A pattern whose group may be passed over, so that it has no text at all."""
_QUANTIFIER = re.compile(r"(?<!\\)[*+?{]")
_PLAIN_SEPARATOR = re.compile(r"(\\[.|*+?^$(){}\[\]\\]|[^.|*+?^$(){}\[\]\\])+")
_ELEMENT_CALLS = (exp.Split, exp.RegexpSplit, exp.StringToArray)


def _extract(self: DialectText, node: exp.Expr, text: str, group: int) -> exp.Expr:
    """Build the first match of a pattern, or a group of it; NULL without a match."""
    pattern = exp.Literal.string(text)
    value = node.this if isinstance(node.this, exp.Expr) else node.expressions[0]
    return build_equivalent(
        self,
        node,
        f"CASE WHEN REGEXP_MATCHES(_1, _2) THEN REGEXP_EXTRACT(_1, _2, {group}) END",
        value,
        pattern,
    )


def translate_regexp_extract(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate REGEXP_EXTRACT and REGEXP_SUBSTR: of BigQuery the group if there is one, of Spark the given group."""
    items = node.expressions
    if len(items) not in (
        (2, 3) if self.dialect == "spark" and node.name.lower() == "regexp_extract" else (2,)
    ):
        return None
    text = take_pattern(self, node, items[1])
    groups = len(_GROUP.findall(text))
    if self.dialect == "spark" and node.name.lower() == "regexp_extract":
        number = items[2] if len(items) > 2 else exp.Literal.number(1)
        if not is_whole_number(number) or int(number.name) > groups:
            self.refuse_in_dialect(
                node, "constant", "the number of the group must be a constant up to the number of groups",
                "write REGEXP_EXTRACT(x, '([0-9]+)', 1), or 0 for the whole match",
            )  # fmt: skip
        return build_call("regexp_extract", items[0], exp.Literal.string(text), number)
    if self.dialect == "bigquery":
        if groups > 1 or (groups and _OPTIONAL.search(text)):
            self.refuse_in_dialect(
                node,
                "constant",
                "REGEXP_EXTRACT takes a pattern with at most one group, which each match has",
            )
        return _extract(self, node, text, groups)
    _check_single_match(self, node, text)
    return _extract(self, node, text, 0)


def _check_single_match(self: DialectText, node: exp.Expr, text: str) -> None:
    """Refuse a pattern whose first match may be longer where the longest alternative is taken."""
    if len(_QUANTIFIER.findall(text)) > 1 or _GROUP.search(text) or re.search(r"(?<!\\)\|", text):
        self.refuse_in_dialect(
            node,
            "constant",
            "a part of a text is taken by a pattern of one quantifier and no group",
            "write a pattern such as '[0-9]+'",
        )


def translate_substring(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate SUBSTRING by places, and SUBSTRING(x FROM 'pattern') of PostgreSQL."""
    start = node.args.get("start")
    if self.dialect != "postgres" or not isinstance(start, exp.Literal) or not start.is_string:
        return translate_places(self, node)
    text = take_pattern(self, node, start)
    _check_single_match(self, node, text)
    return _extract(self, node, text, 0)


def translate_element(self: DialectText, node: exp.Expr) -> exp.Expr | None:
    """Translate the element of a text that a constant separator splits, NULL behind the last one; None for other brackets."""
    listed = node.this.unnest()
    separator = listed.args.get("expression") if isinstance(listed, _ELEMENT_CALLS) else None
    places = node.expressions
    if separator is None or len(places) != 1:
        return None
    text = _read_separator(separator, is_pattern=isinstance(listed, exp.RegexpSplit))
    place = int(places[0].name) - int(node.args.get("offset") or 0) if is_whole_number(places[0]) else -1
    if not text or not 0 <= place < MOST_PARTS:
        self.refuse_in_dialect(
            node,
            "constant",
            f"a part of a text needs a constant separator, and a constant place among the first {MOST_PARTS}",
            "write SPLIT(x, '-')[0], with the place in brackets as the dialect counts it",
        )
    found = f"SPLIT_PART(_1, _2, {place + 1})"
    if place:
        enough = f"LENGTH(_1) - LENGTH(REPLACE(_1, _2, '')) >= {place * len(text)}"
        found = f"CASE WHEN {enough} THEN {found} END"
    elif self.dialect == "postgres":  # an empty text has no parts there
        found = f"CASE WHEN _1 <> '' THEN {found} END"
    return build_equivalent(self, node, found, listed.this, exp.Literal.string(text))


def _read_separator(node: exp.Expr, *, is_pattern: bool) -> str:
    """Return a constant separator; of Spark's, a regular expression, only one that is a plain text. Empty if it is neither."""
    text = node.name if isinstance(node, exp.Literal) and node.is_string else ""
    if not is_pattern:
        return text
    return re.sub(r"\\(.)", r"\1", text) if _PLAIN_SEPARATOR.fullmatch(text) else ""


def keep_split(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Keep a text that is split within brackets; a list of its parts is not supported."""
    around = node.parent
    while isinstance(around, exp.Paren):
        around = around.parent
    if not isinstance(around, exp.Bracket):
        self.source.refuse(
            node,
            "clause",
            "a list of the parts of a text is not supported",
            "take one part: SPLIT(x, '-')[0]",
        )
    return node
