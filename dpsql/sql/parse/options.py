"""GoogleSQL's clause `SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = …, …)`: the options of one query.

The parser does not know the clause. It is found among the words of the text, read here, and blanked out, so that
the places of all other words stay those of the user's text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, NoReturn, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import LossError
from dpsql.policy.request.loss import TargetError, parse_amount, parse_confidence, parse_target_error
from dpsql.policy.request.query import StatedOptions
from dpsql.sql.parse.rejection import QueryText, refuse_token

_SETS = {TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT}
_WRITTEN = re.compile(r"\S")
_Read = TypeVar("_Read")
_HINT = "write SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5) COUNT(*) FROM …"


@dataclass(frozen=True, slots=True)
class OptionsClause(StatedOptions):
    """The options in a query's text, with the column that it names as its privacy unit.

    That column is checked against the policy and never trusted.
    """

    unit: exp.Column | None = None


def extract_options(
    source: QueryText, text: str, tokens: Sequence[Token]
) -> tuple[OptionsClause, str, list[Token]]:
    """Return the options of a query, its text with the clause blanked out, and the words that are left.

    Raises QueryRejected for an invalid clause, and for one that is not in the only outermost SELECT.
    """
    places = [place for place in range(1, len(tokens) - 1) if _is_clause_start(tokens[place - 1 : place + 2])]
    if not places:
        return OptionsClause(), text, list(tokens)
    if len(places) > 1:
        refuse_token(
            source, tokens[places[1]], "clause", "WITH DIFFERENTIAL_PRIVACY may stand only once in a query"
        )
    first = places[0]
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if (place == first and depth) or (depth == 0 and token.token_type in _SETS):
            refuse_token(
                source,
                tokens[first],
                "clause",
                "WITH DIFFERENTIAL_PRIVACY is only allowed in the outermost SELECT",
                "move it there, or wrap the query in SELECT WITH DIFFERENTIAL_PRIVACY * FROM (…)",
            )
    clause = _ClauseReader(source, tokens, first)
    options = clause.read_options()
    start, end = tokens[first].start, tokens[clause.place - 1].end + 1
    blanked = text[:start] + _WRITTEN.sub(" ", text[start:end]) + text[end:]
    return options, blanked, [*tokens[:first], *tokens[clause.place :]]


def _is_clause_start(words: Sequence[Token]) -> bool:
    """Return whether these are SELECT WITH DIFFERENTIAL_PRIVACY."""
    select, with_, name = words
    if select.token_type is not TokenType.SELECT or with_.token_type is not TokenType.WITH:
        return False
    return name.token_type is TokenType.VAR and name.text.upper() == "DIFFERENTIAL_PRIVACY"


@dataclass(slots=True)
class _ClauseReader:
    """A clause that is read from `place` on."""

    source: QueryText
    tokens: Sequence[Token]
    place: int

    def read_options(self) -> OptionsClause:
        self.place += 2
        options, said = OptionsClause(), set[str]()
        if not (self._is_token(TokenType.VAR, "OPTIONS") and self._is_token(TokenType.L_PAREN, ahead=1)):
            return options
        self.place += 2
        while True:
            word = self._take_token(TokenType.VAR, "the name of an option")
            name = word.text.lower()
            known = _OPTIONS.get(name)
            if known is None:
                self._refuse_token(
                    word, "clause", f"there is no option {word.text}", f"there are: {', '.join(_OPTIONS)}"
                )
            if name in said:
                self._refuse_token(word, "ambiguous", f"the option {name} is given twice")
            said.add(name)
            self._take_token(TokenType.EQ, "=")
            field, value = known
            options = replace(options, **{field: value(self)})
            if (
                self._take_token((TokenType.COMMA, TokenType.R_PAREN), "a comma or )").token_type
                is TokenType.R_PAREN
            ):
                return options

    def read_positive_number(self, name: str, read: Callable[[str], Fraction] | None = None) -> Fraction:
        """Return a number above zero, as `read` takes it."""
        word, text = self._read_number(name)
        return self._parse_value(word, text, partial(parse_amount, name=name) if read is None else read)

    def read_target_error(self) -> TargetError:
        """Return an error in the values' own units, or a text: a part of each value, as '5%'."""
        if not self._is_token(TokenType.STRING):
            return self.read_positive_number("target_error")
        word = self._take_token(TokenType.STRING, "a part of the values")
        if not word.text.rstrip().endswith("%"):
            self._refuse_token(
                word, "constant", "target_error must be a number, or a percentage of each value", "'5%'"
            )
        return self._parse_value(word, word.text, parse_target_error)

    def _parse_value(self, word: Token, text: str, read: Callable[[str], _Read]) -> _Read:
        try:
            return read(text)
        except LossError as error:
            problem = error.message
        self._refuse_token(word, "constant", problem)

    def read_delta(self) -> Fraction:
        """Return a probability above zero."""
        found = self.read_positive_number("delta")
        if found >= 1:
            self._refuse_token(
                self.tokens[self.place - 1], "constant", "delta must be a probability below 1", "delta = 1e-8"
            )
        return found

    def read_max_groups(self) -> int:
        """Return a whole number from 1."""
        word, text = self._read_number("max_groups_contributed")
        if not (text.isascii() and text.isdigit() and 0 < int(text[:20]) < 2**63):
            self._refuse_token(
                word, "constant", "max_groups_contributed must be a whole number of at least 1"
            )
        return int(text)

    def read_unit_column(self) -> exp.Column:
        """Return the name of a column, with its table's before it or not."""
        names = [self._read_name()]
        if self._is_token(TokenType.DOT):
            self.place += 1
            names.append(self._read_name())
        return exp.Column(this=names[-1], table=names[0] if len(names) > 1 else None)

    def _read_name(self) -> exp.Identifier:
        word = self._take_token(None, "a column")
        quoted = word.token_type is TokenType.IDENTIFIER
        if not quoted and not (word.text.isidentifier() and word.token_type is not TokenType.STRING):
            self._refuse_token(word, "clause", "privacy_unit_column must be the name of a column")
        name = exp.Identifier(this=word.text, quoted=quoted)
        name.meta["start"] = word.start
        return name

    def _read_number(self, name: str) -> tuple[Token, str]:
        """Return the word that a number begins with, and its text; one that begins with its point is two words."""
        first = self.tokens[min(self.place, len(self.tokens) - 1)]
        if self._is_token(TokenType.DOT) and self._is_token(TokenType.NUMBER, ahead=1):
            second = self.tokens[self.place + 1]
            if second.start == first.end + 1:
                self.place += 2
                return first, f".{second.text}"
        word = self._take_token(TokenType.NUMBER, f"a number for {name}")
        return word, word.text

    def _is_token(self, kind: TokenType, text: str | None = None, *, ahead: int = 0) -> bool:
        if self.place + ahead >= len(self.tokens):
            return False
        token = self.tokens[self.place + ahead]
        return token.token_type is kind and text in (None, token.text.upper())

    def _take_token(self, kinds: TokenType | tuple[TokenType, ...] | None, what: str) -> Token:
        token = self.tokens[min(self.place, len(self.tokens) - 1)]
        wanted = kinds if isinstance(kinds, tuple) else (kinds,)
        if self.place >= len(self.tokens) or (kinds is not None and token.token_type not in wanted):
            self._refuse_token(token, "clause", f"OPTIONS expects {what} here", _HINT)
        self.place += 1
        return token

    def _refuse_token(self, token: Token, code: str, message: str, hint: str | None = None) -> NoReturn:
        refuse_token(self.source, token, code, message, hint)


_OPTIONS: Mapping[str, tuple[str, Callable[[_ClauseReader], Any]]] = {
    "epsilon": ("epsilon", lambda clause: clause.read_positive_number("epsilon")),
    "delta": ("delta", _ClauseReader.read_delta),
    "max_groups_contributed": ("max_groups", _ClauseReader.read_max_groups),
    "target_error": ("target_error", _ClauseReader.read_target_error),
    "confidence": ("confidence", lambda clause: clause.read_positive_number("confidence", parse_confidence)),
    "privacy_unit_column": ("unit", _ClauseReader.read_unit_column),
}
"""The options by name: the field that each sets, and the reader of its value."""
