"""The words of a catalog query in the form that the parser reads: without schemas of functions, operators and collations."""

from __future__ import annotations

from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.sql.pg_catalog.functions import EXPAND_ARRAY

POSTGRES = Dialect.get_or_raise("postgres")
_ARRAYS_OF = {"regtype": POSTGRES.tokenize("text"), "oid": POSTGRES.tokenize("serial")}
"""The types as which arrays of type names and of oids are read: the parser does not know such arrays, and no client casts to SERIAL."""
_LABELS = {"select", "insert", "update", "delete", "table", "column", "references", "default"}
"""Keywords that PostgreSQL takes as the name of a column after AS, and the parser does not."""


def normalize_tokens(tokens: list[Token]) -> list[Token]:
    """Return the words without `pg_catalog.`, `OPERATOR(~)` and COLLATE, in their plain form."""
    tokens_left = list[Token]()
    at = 0
    while at < len(tokens):
        plain = tokens[at].token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
        word = tokens[at].text.lower() if plain else ""
        following = [token.token_type for token in tokens[at + 1 : at + 2]]
        is_inner = bool(tokens_left) and tokens_left[-1].token_type is TokenType.DOT
        if following == [TokenType.DOT] and (
            (word == "pg_catalog" and not is_inner)
            or (
                word == "information_schema"
                and [each.text for each in tokens[at + 2 : at + 3]] == [EXPAND_ARRAY]
            )
        ):
            at += 2
        elif word in _ARRAYS_OF and following == [TokenType.L_BRACKET]:
            tokens_left += _ARRAYS_OF[word]
            at += 1
        elif word == "collate" and at + 1 < len(tokens):
            at += 2
            while at + 1 < len(tokens) and tokens[at].token_type is TokenType.DOT:
                at += 2
        elif word == "operator" and following == [TokenType.L_PAREN]:
            end = at
            while end < len(tokens) and tokens[end].token_type is not TokenType.R_PAREN:
                end += 1
            inner = tokens[at + 2 : end]
            tokens_left += inner[2:] if len(inner) > 2 and inner[1].token_type is TokenType.DOT else inner
            at = end + 1
        elif word in _LABELS and tokens_left and tokens_left[-1].token_type is TokenType.ALIAS:
            label = tokens[at]
            tokens_left.append(
                Token(TokenType.VAR, label.text, label.line, label.col, label.start, label.end)
            )
            at += 1
        else:
            tokens_left.append(tokens[at])
            at += 1
    return tokens_left
