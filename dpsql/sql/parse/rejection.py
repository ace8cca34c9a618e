"""Refusals: a QueryRejected with the position in the text, the reason and a hint."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import Position, QueryRejected

PIVOTS = (
    "for a column for each value write SUM(CASE WHEN k = 'a' THEN x END) AS a; for rows from "
    "columns write UNION ALL"
)
UNITS_SAMPLED = (
    "leave out the sample: noise is smaller over all rows; to sample privacy units, write "
    "TABLESAMPLE UNITS (10%) behind a private table"
)
CLAUSE_HINTS: Mapping[str, str] = {
    "pivots": PIVOTS,
    "symmetric": "order the ends: x BETWEEN LEAST(a, b) AND GREATEST(a, b)",
    "sample": UNITS_SAMPLED,
}
"""What to write for a clause that is refused wherever it stands."""
_CLAUSES: Mapping[str, str] = {
    "distribute": "DISTRIBUTE BY",
    "exclude": "EXCLUDE in a window",
    "hint": "a hint to the optimizer",
    "into": "SELECT … INTO",
    "kind": "SELECT AS",
    "laterals": "LATERAL VIEW",
    "limit_options": "LIMIT with a percentage",
    "locks": "FOR UPDATE",
    "match": "MATCH_RECOGNIZE",
    "ordinality": "WITH ORDINALITY",
    "pivots": "PIVOT",
    "prewhere": "PREWHERE",
    "recursive": "WITH RECURSIVE",
    "sample": "a sample of these rows",
    "seed": "REPEATABLE",
    "sort": "SORT BY",
    "symmetric": "BETWEEN SYMMETRIC",
    "unlogged": "UNLOGGED",
    "when": "AT (VERSION …) or AT (TIMESTAMP …)",
}
"""Clauses of which the parser keeps an argument of another name, or nothing that could be shown."""
_LONGEST_SHOWN = 60
_DESCRIBED = (
    "\\d in the shell lists tables and columns, with their bounds and values as the policy states them"
)
_SAID = "options belong into the query: SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) …"
STATEMENTS: Mapping[str, str] = {
    **dict.fromkeys(("PIVOT_LONGER", "PIVOT_WIDER"), PIVOTS),
    **dict.fromkeys(("DESC", "DESCRIBE", "SHOW", "SUMMARIZE"), _DESCRIBED),
    **dict.fromkeys(("PRAGMA", "RESET", "SET", "USE"), _SAID),
    "CREATE": (
        "only CREATE SYNTHETIC TABLE and CREATE LOCAL TABLE are supported, in Python and in the "
        "shell; the owner makes all other tables"
    ),
    "DROP": (
        "DROP TABLE only drops tables of a connection, in Python and in the shell; the owner drops all others"
    ),
    "ANALYZE": "EXPLAIN without ANALYZE shows the plan and its loss",
    "CALL": "functions that return rows are called in FROM: SELECT x FROM RANGE(3) AS t(x)",
    "TABLE": "write SELECT … FROM t",
    "VALUES": "write SELECT * FROM (VALUES (1), (2)) AS t(x)",
}
"""What to write for a statement that begins so and changes nothing."""
_PLAIN_NAME = re.compile(r"[^\W\d]\w*")
_PART = re.compile(r"\[ (?P<first>(?:- )?\d{1,9} )?(?:(?P<colon>: )(?P<last>(?:- )?\d{1,9} )?)?\]")
"""The words of brackets with a place, or with the first and the last."""
_QUOTED = {TokenType.IDENTIFIER, TokenType.STRING}
_MOST_PART_WORDS = 7
"""The most words of such brackets."""
_NEAR = 100
"""How many characters before a place are searched or shown: a search that may begin anywhere takes time quadratic in its text."""
_CALLED = re.compile(r"(\w+)\s*\(\s*(?:DISTINCT\s+)?$", re.IGNORECASE)
"""The end of a text before the first argument of a call."""


@dataclass(frozen=True, slots=True)
class QueryText:
    """The text of a query, with the positions of its parts."""

    text: str

    def find_position(self, node: exp.Expr | None) -> Position | None:
        """Return the position where a node begins, if the parser kept it."""
        if node is None:
            return None
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        return None if not starts else self.locate_offset(min(starts))

    def locate_offset(self, offset: int) -> Position:
        """Return the position of an offset into the text."""
        before = self.text[:offset]
        return Position(before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1)

    def get_function_name(self, node: exp.Expr) -> str:
        """Return the name that the text gives to a function, in capitals; the parser's, where it keeps no place of it."""
        while type(node) in (exp.IgnoreNulls, exp.RespectNulls):
            node = node.this
        if "end" in node.meta and "start" in node.meta:
            written = self.text[node.meta["start"] : node.meta["end"] + 1]
        else:
            starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
            found = _CALLED.search(self.text[max(0, min(starts) - _NEAR) : min(starts)]) if starts else None
            written = found[1] if found is not None else ""
        if re.fullmatch(r"\w+", written):
            return written.upper()
        return str(node.sql_name() if isinstance(node, exp.Func) else node.key).upper()

    def has_call(self, name: str) -> bool:
        """Return whether the text calls a function of this name anywhere."""
        return bool(name) and re.search(rf"\b{re.escape(name)}\s*\(", self.text, re.IGNORECASE) is not None

    def refuse(self, node: exp.Expr | None, code: str, message: str, hint: str | None = None) -> NoReturn:
        """Raise QueryRejected at a node."""
        raise QueryRejected(message, code=code, hint=hint, position=self.find_position(node), text=self.text)

    def describe_clause(self, node: exp.Expr, key: str, value: object) -> str:
        """Return an argument of a node that is not supported, in SQL: its clause where it has a name, else the SQL of the node.

        The parser's own names for nodes and their arguments are never shown.
        """
        if isinstance(node, exp.DataType):
            return f"the type {format_sql(node)}"
        if isinstance(node, exp.Func):
            text, name = format_sql(node), self.get_function_name(node)
            return text if text.upper().startswith(f"{name}(") else f"{name}(…) with these arguments"
        if key in _CLAUSES:
            return _CLAUSES[key]
        return (format_sql(value) if isinstance(value, exp.Expr) else "") or format_sql(node)

    def take_arguments(self, node: exp.Expr | None, *names: str, **fixed: Any) -> list[Any]:
        """Return the named arguments of a node; refuse the node if any other argument is set.

        This closes the whitelist: an argument that a new release of the parser adds is refused until its meaning is modelled.
        `fixed` names arguments whose value must be as given.
        """
        if node is None:
            self.refuse(None, "syntax", "the query cannot be parsed")
        for key, value in node.args.items():
            if value is None or value is False or value == [] or key in names:
                continue
            if key in fixed and value in fixed[key]:
                continue
            self.refuse(
                value if isinstance(value, exp.Expr) else node,
                "clause",
                f"{self.describe_clause(node, key, value)} is not supported",
                CLAUSE_HINTS.get(key),
            )
        return [node.args.get(name) for name in names]


def refuse_token(
    source: QueryText, token: Token, code: str, message: str, hint: str | None = None
) -> NoReturn:
    """Raise QueryRejected at a word of the text."""
    raise QueryRejected(
        message, code=code, hint=hint, position=source.locate_offset(token.start), text=source.text
    )


def refuse_query(code: str, message: str, hint: str | None = None) -> NoReturn:
    """Raise QueryRejected for a text as a whole, without a place."""
    raise QueryRejected(message, code=code, hint=hint) from None


def is_valid_text(value: str) -> bool:
    """Return whether the engine can hold a text: no NUL character, and valid as UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def format_sql(node: exp.Expr, dialect: str = "duckdb") -> str:
    """Return a part of a query in a dialect, in one line of at most some 60 characters, as messages show it."""
    try:
        text = node.sql(dialect=dialect, comments=False, unsupported_level=ErrorLevel.IGNORE)
    except (SqlglotError, TypeError, ValueError, AttributeError, LookupError):
        text = f"{node.key.upper()} …"  # an argument is missing
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def refuse_brackets(source: QueryText, tokens: Sequence[Token], place: int) -> NoReturn:
    """Refuse `s[1]` and `s[1:3]`, whose bracket is a word of the text, with the function that takes a part of a text."""
    name, part = _read_name_before(tokens, place), _read_part(tokens, place)
    refuse_token(
        source,
        tokens[place],
        "syntax",
        "brackets after a value are not supported"
        + ("" if part is None else f": {name or '…'}[{''.join(part)}]"),
        f"a part of a text is {_rewrite_part(name or 's', part)}; elements of a list are rows: FROM t, UNNEST(t.list) AS u(x)",
    )


def _read_name_before(tokens: Sequence[Token], place: int) -> str | None:
    """Return the name without quotes that ends before a word of the text, with those before its dots; None for a long one."""
    names, length = list[str](), 0
    while place > 0 and length <= _NEAR and _is_plain_name(tokens[place - 1]):
        names.append(tokens[place - 1].text)
        length += len(names[-1]) + 1
        if place < 2 or tokens[place - 2].token_type is not TokenType.DOT:
            break
        place -= 2
    return ".".join(reversed(names)) if names and length <= _NEAR else None


def _is_plain_name(token: Token) -> bool:
    return token.token_type not in _QUOTED and _PLAIN_NAME.fullmatch(token.text) is not None


def _read_part(tokens: Sequence[Token], place: int) -> tuple[str, str, str] | None:
    """Return the first place, the colon and the last place in brackets, each "" where it is missing; None for all others."""
    words = " ".join(token.text[:_NEAR] for token in tokens[place : place + _MOST_PART_WORDS])
    found = _PART.match(words)
    if found is None:
        return None
    first, colon, last = ((found[name] or "").replace(" ", "") for name in ("first", "colon", "last"))
    return first, colon, last


def _rewrite_part(text: str, part: tuple[str, str, str] | None) -> str:
    """Return the call that takes the part of a text which brackets name, as far as they hold constants."""
    if part is None:
        return f"SUBSTRING({text}, start, length)"
    first, colon, last = part
    if not colon:
        if first == "-1":
            return f"RIGHT({text}, 1)"
        return (
            f"SUBSTRING({text}, {first}, 1)" if int(first or 0) > 0 else f"SUBSTRING({text}, start, length)"
        )
    start = int(first or 1)
    if start < 1 or last.startswith("-"):
        return f"SUBSTRING({text}, start, length)"
    return (
        f"SUBSTRING({text}, {start}, {max(0, int(last) - start + 1)})"
        if last
        else f"SUBSTRING({text}, {start})"
    )
