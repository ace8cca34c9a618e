"""Translate functions of texts and patterns from other dialects."""

from __future__ import annotations

import re

from sqlglot import exp

from dpsql.sql.parse.dialect import is_whole_number
from dpsql.sql.parse.dialect_text import DialectText
from dpsql.sql.parse.typed_calls import PART, build_call

_ESCAPING = frozenset({"postgres", "spark", "bigquery"})
"""The dialects in which a backslash escapes in a pattern of LIKE."""
_PLAIN_PATTERN = re.compile(
    r"""\^?(
        (\[\^?(\]|[a-zA-Z0-9\ _.,:;/@#%&=<>!?*+$()|{}'"~`-])[a-zA-Z0-9\ _.,:;/@#%&=<>!?*+$()|{}'"~`-]*\]
        | \\[.*+?(){}|^$/\[\]\\-]
        | [^\\\[\]^$*+?(){}|]
        | \((?!\?) | \) | \|)
        ([*+?]|\{\d{1,3}(,\d{0,3})?\})?
    )*\$?""",
    re.VERBOSE | re.ASCII,
)
"""The regular expressions that PostgreSQL, Java, RE2 and DuckDB read alike: characters, classes, groups and quantifiers."""
_BRACKET_CLASS = re.compile(r"\[\^?[^\]]*\[")
_ESCAPED = re.compile(r"\\.|\[\^?\]?[^\]]*\]", re.DOTALL)
"""An escaped letter, or a class, in which letters are escaped otherwise."""
_CLASSES = {r"\d": "[0-9]"}
_QUANTIFIER = re.compile(r"(?<!\\)[*+?{]")
_LONGEST_DIFFERS = re.compile(r"(?<!\\)[(|]")
MOST_PATTERNS = 20
"""The most patterns of LIKE ANY."""
MOST_COPIED = 20
"""The most nodes of an expression that is copied for each of them."""
_MATCHES_DOT_ALL = "s"
_FROM_END = frozenset({"bigquery", "spark"})
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""The letters of Unicode that are white space, which BigQuery trims."""
_JAVA_END = r"(\r\n|[\n\r\x{85}\x{2028}\x{2029}])?$"
"""Where $ matches in Java: at the end, or before the last end of a line."""


def translate_like(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate LIKE, in whose pattern a backslash or a bracket may have a meaning of its own."""
    pattern = node.expression
    if isinstance(pattern, (exp.Any, exp.All)):
        return _expand_patterns(self, node, pattern)
    if not isinstance(pattern, exp.Literal) or isinstance(node.parent, exp.Escape):
        return node
    special = "\\" if self.dialect in _ESCAPING else "["
    if special in str(pattern.this) and self.dialect != "snowflake":
        self.refuse_in_dialect(
            node,
            "constant",
            f"{special} has a meaning of its own in a pattern",
            "add ESCAPE '!', or compare by =",
        )
    return node


def _expand_patterns(self: DialectText, node: exp.Expr, quantifier: exp.Expr) -> exp.Expr:
    """Translate LIKE ANY and LIKE ALL of constants to a comparison with each."""
    listed = read_listed(self, quantifier)
    patterns = listed.expressions if isinstance(listed, (exp.Array, exp.Tuple)) else [listed]
    constant = all(isinstance(each, exp.Literal) and each.is_string for each in patterns)
    if (
        not patterns
        or not constant
        or len(patterns) > MOST_PATTERNS
        or sum(1 for _ in node.this.walk()) > MOST_COPIED
    ):
        self.refuse_in_dialect(
            node,
            "constant",
            f"LIKE ANY takes a list of up to {MOST_PATTERNS} constants",
            "write x LIKE 'a%' OR x LIKE 'b%'",
        )
    parts = []
    for each in patterns:
        part = type(node)(
            this=exp.Paren(this=node.this.copy()), expression=each.copy(), negate=node.args.get("negate")
        )
        parts.append(translate_like(self, part))
    return exp.Paren(this=(exp.or_ if isinstance(quantifier, exp.Any) else exp.and_)(*parts))


def take_pattern(self: DialectText, node: exp.Expr, pattern: exp.Expr | None) -> str:
    """Return a constant regular expression that means the same everywhere."""
    text = (
        pattern.name
        if isinstance(pattern, exp.RawString) or (isinstance(pattern, exp.Literal) and pattern.is_string)
        else None
    )
    if text is not None and self.dialect == "bigquery":  # RE2, as in DuckDB
        return text
    text = None if text is None else _ESCAPED.sub(lambda found: _CLASSES.get(found[0], found[0]), text)
    if text is None or not _PLAIN_PATTERN.fullmatch(text) or _BRACKET_CLASS.search(text):
        self.refuse_in_dialect(
            node,
            "constant",
            "a regular expression must be a constant of characters, classes such as [a-z], groups and quantifiers",
            "write [a-zA-Z0-9_] for \\w, and LIKE for simple patterns",
        )
    return text


def translate_regexp_match(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate ~, ~*, RLIKE and REGEXP_LIKE: whether a part of a text matches; in Snowflake, the whole text."""
    text = take_pattern(self, node, node.expression)
    if self.dialect == "spark" and text.endswith("$") and not text.endswith("\\$"):
        text = text[:-1] + _JAVA_END
    options = _MATCHES_DOT_ALL if self.dialect == "postgres" and "." in text else ""
    if isinstance(node, exp.RegexpILike):
        options += "i"
    name = "regexp_full_match" if node.args.get("full_match") else "regexp_matches"
    more = [exp.Literal.string(options)] if options else []
    return build_call(name, node.this, exp.Literal.string(text), *more)


def translate_similar(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate SIMILAR TO of PostgreSQL, in whose patterns % and _ stand for any text and any letter."""
    pattern = node.expression
    text = pattern.name if isinstance(pattern, exp.Literal) and pattern.is_string else "\\"
    made = re.sub(r"[.^$]", lambda found: f"\\{found[0]}", text).replace("%", ".*").replace("_", ".")
    if self.dialect != "postgres" or "\\" in text or "[" in text or not _PLAIN_PATTERN.fullmatch(made):
        self.refuse_in_dialect(
            node,
            "constant",
            "SIMILAR TO needs a constant pattern of characters, %, _, |, groups and quantifiers",
            "write x LIKE 'a%' OR x LIKE 'b%'",
        )
    return build_call(
        "regexp_full_match", node.this, exp.Literal.string(made), exp.Literal.string(_MATCHES_DOT_ALL)
    )


def translate_regexp_replace(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate REGEXP_REPLACE: PostgreSQL replaces the first match unless 'g' is given, the others all."""
    text = take_pattern(self, node, node.expression)
    replacement, options = node.args.get("replacement"), node.args.get("modifiers")
    said = options.name if isinstance(options, exp.Literal) else ""
    new = replacement.name if isinstance(replacement, exp.Literal) and replacement.is_string else "\\"
    if (
        len(_QUANTIFIER.findall(text)) > 1
        or _LONGEST_DIFFERS.search(text)
        or set("\\$&") & set(new)
        or set(said) - set("gi")
    ):
        self.refuse_in_dialect(
            node,
            "constant",
            "REGEXP_REPLACE needs a pattern of one quantifier and no group, and a constant without \\, $ and &",
            "write REPLACE(x, 'a', 'b')",
        )
    flags = "".join(sorted({*said, *("" if self.dialect == "postgres" else "g")}))
    flags += _MATCHES_DOT_ALL if self.dialect == "postgres" else ""
    return build_call(
        "regexp_replace",
        node.this,
        exp.Literal.string(text),
        exp.Literal.string(new),
        exp.Literal.string(flags),
    )


def translate_split_part(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate SPLIT_PART with a constant place."""
    place, separator = node.args["part_index"], node.args["delimiter"]
    if (
        not is_whole_number(place)
        or not int(place.name)
        or not isinstance(separator, exp.Literal)
        or not separator.name
    ):
        self.refuse_in_dialect(
            node, "constant", "SPLIT_PART needs a constant separator and a constant place of at least 1"
        )
    return build_call("split_part", node.this, separator, place)


def translate_pad(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate LPAD and RPAD with a constant text that fills."""
    length, fill = node.expression, node.args.get("fill_pattern") or exp.Literal.string(" ")
    if not isinstance(fill, exp.Literal) or not fill.name:
        self.refuse_in_dialect(node, "constant", "LPAD and RPAD need a constant text that fills")
    return build_call("lpad" if node.args.get("is_left") else "rpad", node.this, length, fill)


def translate_length(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate the number of letters; T-SQL does not count spaces at the end."""
    if self.dialect == "tsql":
        return build_call("length", build_call("rtrim", node.this))
    return build_call("length", node.this)


def translate_text_position(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate the place of a text in another one."""
    return build_call("strpos", node.this, node.args["substr"])


def translate_concatenation(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate CONCAT, which passes NULLs over in some dialects and is NULL in others."""
    parts = node.expressions
    if self.dialect == "postgres":
        parts = [_write_part(part, in_call=True) for part in parts]
    if node.args.get("coalesce"):
        return build_call("concat", *parts)
    together = parts[0] if parts else exp.Literal.string("")
    for part in parts[1:]:
        together = exp.DPipe(this=together, expression=part, safe=True)
    return exp.Paren(this=together)


def translate_separated(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate CONCAT_WS."""
    separator, *parts = node.expressions
    if self.dialect == "postgres":
        parts = [_write_part(part, in_call=True) for part in parts]
    return build_call("concat_ws", separator, *parts)


def translate_joined(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate ||."""
    if self.dialect != "postgres":
        return node
    sides = (_write_part(side, in_call=False) for side in (node.this, node.expression))
    return exp.DPipe(**dict(zip(("this", "expression"), sides, strict=True)), safe=True)


def _write_part(node: exp.Expr, *, in_call: bool) -> exp.Expr:
    """Return a part of a joined text as PostgreSQL writes it; CONCAT and CONCAT_WS write truth values as t and f."""
    if isinstance(node, (exp.Null, exp.DPipe)) or (isinstance(node, exp.Literal) and node.is_string):
        return node
    return build_call(PART, node, exp.Boolean(this=in_call))


def translate_text_side(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate LEFT and RIGHT with a constant number of letters."""
    count = node.expression
    if isinstance(count, exp.Neg) and is_whole_number(count.this) and self.dialect == "postgres":
        return build_call(node.key, node.this, count)  # all letters but as many at the other end
    if not is_whole_number(node.expression):
        self.refuse_in_dialect(
            node, "constant", f"{node.key.upper()} needs a constant whole number that is not negative"
        )
    return build_call(node.key, node.this, node.expression)


def translate_places(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate SUBSTRING with constant places; a negative one counts from the end in BigQuery and Spark."""
    start, length = node.args.get("start"), node.args.get("length")
    if (
        isinstance(start, exp.Neg)
        and is_whole_number(start.this)
        and length is None
        and self.dialect in _FROM_END
    ):
        return build_call("right", node.this, start.this)
    if not (isinstance(start, exp.Literal) and is_whole_number(start) and int(start.name)) or not (
        length is None or is_whole_number(length)
    ):
        self.refuse_in_dialect(
            node,
            "constant",
            "SUBSTRING needs constant whole numbers, a start of at least 1 and a length of at least 0",
        )
    return build_call("substring", *(part for part in (node.this, start, length) if part is not None))


def translate_trim(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Translate TRIM and its sides, of spaces or of given letters."""
    characters = node.args.get("expression")
    if self.dialect == "bigquery" and characters is None:
        characters = exp.Literal.string(_SPACES)
    name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(node.args.get("position")).upper(), "trim")
    return build_call(name, *(part for part in (node.this, characters) if part is not None))


_QUANTILES = (exp.PercentileCont, exp.PercentileDisc, exp.Quantile, exp.ApproxQuantile)


def translate_array(self: DialectText, node: exp.Expr) -> exp.Expr:
    """Keep a list of constants after = ANY and <> ALL, within UNNEST, and as shares of quantiles; elsewhere lists are not supported."""
    if not is_listed(node) and not isinstance(node.parent, _QUANTILES):
        self.source.refuse(
            node, "clause", "a list is only allowed after = ANY and <> ALL", "write x IN (1, 2)"
        )
    return exp.Array(expressions=node.expressions)


def is_listed(node: exp.Expr) -> bool:
    """Return whether a node is what = ANY, <> ALL or UNNEST takes."""
    around = node.parent
    while isinstance(around, (exp.Paren, exp.Cast)):
        around = around.parent
    named = isinstance(around, exp.Anonymous) and str(around.this).lower() in ("all", "some")
    return named or isinstance(around, (exp.Any, exp.All, exp.Unnest, exp.RangeBucket, exp.WidthBucket))


def read_listed(_: DialectText, node: exp.Expr) -> exp.Expr:
    """Return what ANY or ALL takes: a parameter, a list, or PostgreSQL's text of one, such as '{1,2}'."""
    inner: exp.Expr = node.this
    while isinstance(inner, (exp.Paren, exp.Cast)):
        inner = inner.this
    if isinstance(inner, exp.Literal) and inner.is_string and re.fullmatch(r"\{[^{}\"\\]+\}", inner.name):
        items = [exp.Literal.string(item.strip()) for item in inner.name[1:-1].split(",")]
        return exp.Array(expressions=items)
    return inner
