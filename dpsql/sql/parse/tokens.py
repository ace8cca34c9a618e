"""Tokens of a query's text: reading them, rewriting those that the parser would misread, numbering parameters."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.sql.parse.dialect import DIALECT
from dpsql.sql.parse.rejection import QueryText, is_valid_text, refuse_query, refuse_token

_NAME = re.compile(r"[^\W\d]\w*")
_ALIASES = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.R_PAREN, TokenType.R_BRACKET}
"""Words that a following colon makes an alias."""
_COMPARISONS = {
    TokenType.EQ,
    TokenType.NEQ,
    TokenType.LT,
    TokenType.LTE,
    TokenType.GT,
    TokenType.GTE,
}
_QUANTIFIERS = {TokenType.ANY, TokenType.SOME, TokenType.ALL}


def read_tokens(text: str, dialect: Dialect = DIALECT) -> list[Token]:
    """Return the words of a text, without semicolons at its end. QueryRejected (`syntax`) where it cannot be read."""
    if not is_valid_text(text):
        refuse_query("syntax", "the query holds a NUL character or half a surrogate pair")
    try:
        tokens = dialect.tokenize(text)
    except (TokenError, RecursionError):
        refuse_query("syntax", "the query cannot be parsed: is a quote or a comment left open?")
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    return _wrap_compared_lists(_merge_fraction_tokens(_split_cast_tokens(tokens)))


def _split_cast_tokens(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the words with `?::` as a parameter and its cast, which another dialect has as one word."""
    for token in tokens:
        if token.token_type is TokenType.QDCOLON:
            yield Token(TokenType.PLACEHOLDER, "?", token.line, token.col - 2, token.start, token.start)
            yield Token(TokenType.DCOLON, "::", token.line, token.col, token.start + 1, token.end)
        else:
            yield token


def _merge_fraction_tokens(tokens: Iterable[Token]) -> list[Token]:
    """Return the words with `.5` after DISTINCT and ALL as one number, which the parser takes for a part of a name."""
    found: list[Token] = []
    for token in tokens:
        point = found[-1] if len(found) > 1 else None
        if (
            point is not None
            and (token.token_type, point.token_type) == (TokenType.NUMBER, TokenType.DOT)
            and found[-2].token_type in (TokenType.DISTINCT, TokenType.ALL)
            and token.start == point.end + 1
        ):
            where = (point.line, point.col, point.start, token.end)
            found[-1] = Token(TokenType.NUMBER, f"0.{token.text}", *where)
        else:
            found.append(token)
    return found


def _wrap_compared_lists(tokens: Sequence[Token]) -> list[Token]:
    """Return the words with the list of `= ANY [1, 2]` in parentheses, without which the parser takes ANY for a column."""
    found: list[Token] = []
    depth, lists = 0, list[int]()
    for place, token in enumerate(tokens):
        where = (token.line, token.col, token.start, token.end)
        if _is_compared_list(tokens, place):
            found.append(Token(TokenType.L_PAREN, "(", *where))
            lists.append(depth + 1)
        found.append(token)
        if token.token_type is TokenType.L_BRACKET:
            depth += 1
        elif token.token_type is TokenType.R_BRACKET:
            if lists and lists[-1] == depth:
                lists.pop()
                found.append(Token(TokenType.R_PAREN, ")", *where))
            depth -= 1
    return found


def _is_compared_list(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a list begins here that ANY, SOME or ALL compares with the words before."""
    before = [token.token_type for token in tokens[max(place - 2, 0) : place]]
    if len(before) < 2 or before[0] not in _COMPARISONS or before[1] not in _QUANTIFIERS:
        return False
    here = [token.token_type for token in tokens[place : place + 2]]
    return here[:1] == [TokenType.L_BRACKET] or here == [TokenType.ARRAY, TokenType.L_BRACKET]


def is_parameter_start(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a parameter's name follows: `:low` where an operand may stand, or `$low`.

    In DuckDB a colon after a name makes the name an alias: `n: COUNT(*)`.
    """
    token = tokens[place]
    if token.token_type not in (TokenType.COLON, TokenType.PARAMETER) or place + 1 == len(tokens):
        return False
    name = tokens[place + 1]
    if name.start != token.end + 1 or not _NAME.fullmatch(name.text):
        return False
    before = tokens[place - 1].token_type if place else None
    return token.token_type is TokenType.PARAMETER or before not in _ALIASES


def blank_sample_units(text: str, tokens: Sequence[Token]) -> str:
    """Return the text with blanks in place of UNITS behind TABLESAMPLE, which the engine's own parser takes for a method of its own."""
    letters = list(text)
    for before, token in itertools.pairwise(tokens):
        if before.token_type is TokenType.TABLE_SAMPLE and token.text.upper() == "UNITS":
            letters[token.start : token.end + 1] = " " * (token.end + 1 - token.start)
    return "".join(letters)


def replace_parameter_colons(text: str, tokens: Sequence[Token]) -> str:
    """Return the text with `$name` in place of `:name`, as the engine's own parser reads it."""
    letters = list(text)
    for place, token in enumerate(tokens):
        if is_parameter_start(tokens, place):
            letters[token.start] = "$"
    return "".join(letters)


def number_parameters(
    source: QueryText, tokens: Sequence[Token], *, named: bool
) -> tuple[list[Token], int, tuple[str, ...]]:
    """Return each `?` as `$1`, `$2`, …, and each `:name` as the number of that name, with how many, and the names.

    A tree does not keep the order of its leaves in the text. Where the numbers are `named`, because not every dialect knows
    `$1`, they are `:p1`, `:p2`, … .
    """
    numbered: list[Token] = []
    names: list[str] = []
    count = 0
    waiting = False
    for place, token in enumerate(tokens):
        if waiting:
            waiting = False
            continue
        waiting = is_parameter_start(tokens, place)
        if not waiting and token.token_type is not TokenType.PLACEHOLDER:
            numbered.append(token)
            continue
        if waiting:
            name = tokens[place + 1].text
            names += [] if name in names else [name]
            number = names.index(name) + 1
        else:
            count += 1
            number = count
        if names and count:
            refuse_token(source, token, "parameter", "parameters must all be written as ?, or all as :name")
        where = (token.line, token.col, token.start, token.end)
        if named:
            numbered += [Token(TokenType.COLON, ":", *where), Token(TokenType.VAR, f"p{number}", *where)]
        else:
            numbered += [
                Token(TokenType.PARAMETER, "$", *where),
                Token(TokenType.NUMBER, str(number), *where),
            ]
    return numbered, count or len(names), tuple(names)
