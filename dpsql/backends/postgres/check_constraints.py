"""CHECK constraints as PostgreSQL writes them, in the words that `dpsql.policy.check_constraints` reads.

Claim: the condition is the same; what has another form than those below stays as it is, and says nothing then.
Why: PostgreSQL writes constants with casts to their types, negative numbers as texts, and IN as = ANY of an array; each of these
forms is put into the one that DuckDB writes, outside of texts alone.
Source: PostgreSQL's documentation, `pg_get_expr` and "Row and Array Comparisons".
"""

from __future__ import annotations

import re

_TEXT = re.compile(r"'(?:[^']|'')*'")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_CAST = re.compile(
    r"'(?P<place>[0-9]+)'::(?P<type>[a-z]+(?: (?:precision|varying|without time zone))?)(?:\([0-9]+\))?"
)
_NUMBERS = r"(?:smallint|integer|bigint|numeric|real|double precision)"
_CONSTANT = re.compile(rf"\((?P<number>-?[0-9.]+)\)::{_NUMBERS}")
_COLUMN = re.compile(r'\((?P<name>\w+|"[^"]+")\)::text')
_ANY = re.compile(r"= ANY \((?:ARRAY\[(?P<plain>[^\[\]]*)\]|\(ARRAY\[(?P<cast>[^\[\]]*)\]\)::text\[\])\)")


def normalize_condition(text: str) -> str:
    """The condition, with constants, lists and columns of text as DuckDB writes them.

    >>> normalize_condition("((n >= '-5'::integer) AND (n <= (10)::numeric) AND (day > '2020-01-01'::date))")
    "((n >= -5) AND (n <= 10) AND (day > CAST('2020-01-01' AS DATE)))"
    >>> normalize_condition("((plan)::text = ANY ((ARRAY['A'::character varying, 'it''s'::character varying])::text[]))")
    "(plan IN ('A', 'it''s'))"
    """
    texts = _TEXT.findall(text)
    places = iter(range(len(texts)))
    bare = _TEXT.sub(lambda _: f"'{next(places)}'", text)
    bare = _CAST.sub(lambda found: _normalize_constant(found, texts), bare)
    bare = _COLUMN.sub(lambda found: found["name"], _CONSTANT.sub(lambda found: found["number"], bare))
    bare = _ANY.sub(lambda found: f"IN ({found['plain'] or found['cast']})", bare)
    return re.sub(r"'([0-9]+)'", lambda found: texts[int(found[1])], bare)


def _normalize_constant(found: re.Match[str], texts: list[str]) -> str:
    """A text with its cast: a number, a day or a moment, or the text itself."""
    inner, kind = texts[int(found["place"])][1:-1], found["type"]
    if re.fullmatch(_NUMBERS, kind) and _NUMBER.fullmatch(inner):
        return inner
    if kind == "date" or kind.startswith("timestamp"):
        return f"CAST('{found['place']}' AS {kind.split()[0].upper()})"
    return f"'{found['place']}'" if kind in ("text", "character varying", "bpchar") else found[0]
