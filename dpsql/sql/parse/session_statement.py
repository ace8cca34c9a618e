"""Statements about tables of a session: CREATE SYNTHETIC TABLE, CREATE LOCAL TABLE and DROP TABLE.

The parser does not know them. Their words are read here. The query after AS is processed like every query, in a text in which
all other words are blanked out, so that places stay those of the user's text.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any, NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import Error, LossError, QueryRejected
from dpsql.policy.request.loss import parse_amount
from dpsql.sql.parse.options import OptionsClause
from dpsql.sql.parse.parse import MAX_CHARACTERS, MAX_TOKENS, parse_options_clause, strip_explain
from dpsql.sql.parse.rejection import QueryText
from dpsql.sql.parse.tokens import read_tokens

_LONGEST = 63
_OPEN, _CLOSE = TokenType.L_PAREN, TokenType.R_PAREN
_SETS = {TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT}
_QUERIES = {TokenType.SELECT, TokenType.WITH, TokenType.FROM, _OPEN}
_CREATE_HINT = "CREATE SYNTHETIC TABLE s AS SELECT plan, ward FROM visits WITH (epsilon = 1)"
_LOCAL_HINT = "CREATE LOCAL TABLE r AS SELECT RANDOMIZE(smoker) AS smoker FROM patients WITH (epsilon = 1)"
_DROP_HINT = "DROP TABLE s"


class SessionTableKind(Enum):
    """The kinds of session tables."""

    SYNTHETIC = "synthetic"
    LOCAL = "local"


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE [OR REPLACE] SYNTHETIC | LOCAL TABLE name AS query [WITH (option = value, …)].

    `query` is `text` with everything except the query blanked out. `options` are the stated options, by the names of the
    method's arguments, and `places` the places where their values begin.
    """

    text: str
    kind: SessionTableKind
    name: str
    query: str
    options: Mapping[str, Any]
    places: Mapping[str, int]
    replaces: bool = False
    explain: bool = False
    name_at: int = field(default=0, compare=False)

    def locate_option_error(self, error: Error, option: str) -> None:
        """Say of an error that its reason is the value of an option."""
        error.position, error.text = QueryText(self.text).locate_offset(self.places[option]), self.text

    def refuse_at(self, place: int, code: str, message: str, hint: str | None = None) -> NoReturn:
        """Raise QueryRejected at a place of the text."""
        _refuse_at(QueryText(self.text), place, code, message, hint)


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE [IF EXISTS] name."""

    text: str
    name: str
    missing_ok: bool
    name_at: int

    def refuse_name(self, code: str, message: str, hint: str | None = None) -> NoReturn:
        """Raise QueryRejected at the name."""
        _refuse_at(QueryText(self.text), self.name_at, code, message, hint)


def parse_session_statement(text: str) -> CreateTable | DropTable | None:
    """Return the statement about a table of the session that a text is; None for any other.

    Raises QueryRejected, with the place, for a statement that begins like one and continues otherwise.
    """
    lowered = text.lower() if isinstance(text, str) and len(text) <= MAX_CHARACTERS else ""
    if "table" not in lowered or ("create" not in lowered and "drop" not in lowered):
        return None
    explain, asked = strip_explain(text)
    source, tokens = QueryText(text), read_tokens(asked)
    if not tokens or len(tokens) > MAX_TOKENS:
        return None
    words = _TokenReader(source, tokens)
    if words.match_words("CREATE"):
        replaces = words.match_words("OR", "REPLACE")
        kind = next((kind for kind in SessionTableKind if words.match_words(kind.name, "TABLE")), None)
        return (
            None
            if kind is None
            else _parse_create_table(words, asked, kind, replaces=replaces, explain=explain)
        )
    if not explain and words.match_words("DROP", "TABLE"):
        missing_ok = words.match_words("IF", "EXISTS")
        at = words.place
        name = words.read_table_name(_DROP_HINT)
        if words.place < len(tokens):
            words.refuse_token("syntax", "DROP TABLE takes one name", _DROP_HINT)
        return DropTable(text, name, missing_ok, tokens[at].start)
    return None


@dataclass(slots=True)
class _TokenReader:
    """The words of a statement, read from `place` on."""

    source: QueryText
    tokens: Sequence[Token]
    place: int = 0

    def match_words(self, *words: str) -> bool:
        """Pass over these words, if they come next and are not in quotes."""
        found = self.tokens[self.place : self.place + len(words)]
        same = len(found) == len(words) and all(map(_is_word, found, words))
        self.place += len(words) if same else 0
        return same

    def read_table_name(self, hint: str) -> str:
        """Return the name of a table of the session."""
        token = self.tokens[self.place] if self.place < len(self.tokens) else None
        if token is None or token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
            self.refuse_token("syntax", "the name of a table is expected here", hint)
        if not (token.text.isascii() and token.text.isidentifier() and len(token.text) <= _LONGEST):
            self.refuse_token(
                "session_table",
                f"the name of a session table has up to {_LONGEST} letters, digits and _",
                hint,
            )
        self.place += 1
        return token.text

    def refuse_token(self, code: str, message: str, hint: str | None = None) -> NoReturn:
        """Raise QueryRejected at the next word, or at the last one if there is none."""
        token = self.tokens[min(self.place, len(self.tokens) - 1)]
        _refuse_at(self.source, token.start, code, message, hint)


def _parse_create_table(
    words: _TokenReader, asked: str, kind: SessionTableKind, *, replaces: bool, explain: bool
) -> CreateTable:
    hint = _CREATE_HINT if kind is SessionTableKind.SYNTHETIC else _LOCAL_HINT
    at = words.place
    name, tokens = words.read_table_name(hint), words.tokens
    if not words.match_words("AS"):
        words.refuse_token("syntax", "AS and a SELECT are expected here", hint)
    first = words.place
    if first == len(tokens) or tokens[first].token_type not in _QUERIES:
        words.refuse_token("syntax", "a SELECT is expected here", hint)
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            _refuse_at(
                words.source,
                token.start,
                "one_statement",
                "a query must be one statement",
                "send the statements separately",
            )
    clauses = [
        place
        for place in _list_outermost_places(tokens, first)
        if tokens[place].token_type is TokenType.WITH
        and tokens[place + 1 : place + 2]
        and tokens[place + 1].token_type is _OPEN
    ]
    if len(clauses) > 1:
        _refuse_at(
            words.source,
            tokens[clauses[1]].start,
            "ambiguous",
            "the options are given twice: write WITH (…) once, at the end",
            hint,
        )
    last = clauses[0] if clauses else len(tokens)
    if last == first:
        words.refuse_token("syntax", "a SELECT is expected here", hint)
    options = dict[str, Any]()
    places = dict[str, int]()
    if clauses:
        options, places = _read_options(_TokenReader(words.source, tokens, last + 1), kind)
    blanked = (
        _list_randomize_spans(words.source, tokens[first:last]) if kind is SessionTableKind.LOCAL else []
    )
    start, end = tokens[first].start, tokens[last - 1].end + 1
    query = [letter if letter.isspace() else " " for letter in asked]
    query[start:end] = asked[start:end]
    for begin, stop in blanked:
        query[begin:stop] = " " * (stop - begin)
    return CreateTable(
        words.source.text,
        kind,
        name,
        "".join(query),
        options,
        places,
        replaces=replaces,
        explain=explain,
        name_at=tokens[at].start,
    )


def _list_outermost_places(tokens: Sequence[Token], first: int) -> list[int]:
    """List the places, from the first on, of words outside of parentheses."""
    depth, found = 0, list[int]()
    for place in range(first, len(tokens)):
        kind = tokens[place].token_type
        depth -= kind is _CLOSE
        if depth == 0 and kind not in (_OPEN, _CLOSE):
            found.append(place)
        depth += kind is _OPEN
    return found


def _list_randomize_spans(source: QueryText, tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """List the spans to blank in a query of RANDOMIZE(…) columns, so that it selects their arguments."""
    outermost = _list_outermost_places(tokens, 0)
    select = next((place for place in outermost if tokens[place].token_type is TokenType.SELECT), None)
    if select is None or any(tokens[place].token_type in _SETS for place in outermost):
        _refuse_at(
            source,
            tokens[0].start,
            "randomize",
            "CREATE LOCAL TABLE takes one SELECT whose columns are RANDOMIZE(…)",
            _LOCAL_HINT,
        )
    stop = next(
        (place for place in outermost if place > select and tokens[place].token_type is TokenType.FROM),
        len(tokens),
    )
    commas = [
        place for place in outermost if select < place < stop and tokens[place].token_type is TokenType.COMMA
    ]
    blanked = list[tuple[int, int]]()
    for before, after in itertools.pairwise([select, *commas, stop]):
        blanked += _list_item_spans(source, tokens[before + 1 : after], tokens[before])
    return blanked


def _list_item_spans(source: QueryText, item: Sequence[Token], before: Token) -> list[tuple[int, int]]:
    """List the spans to blank in RANDOMIZE(x) [AS name]: the word, and the parentheses if x gives the name."""
    ends = [place for place in _list_closing_places(item) if place]
    called = len(item) > 3 and _is_word(item[0], "RANDOMIZE") and item[1].token_type is _OPEN and bool(ends)
    rest = item[ends[0] + 1 :] if called else item
    named = rest[1:] if rest and rest[0].token_type is TokenType.ALIAS else rest
    if not called or len(named) > 1 or (len(named) == 0 and len(rest) > 0):
        _refuse_at(
            source,
            (item[0] if item else before).start,
            "randomize",
            "each column of a local table must be RANDOMIZE(x), or RANDOMIZE(x) AS name",
            _LOCAL_HINT,
        )
    inside = item[2 : ends[0]]
    for place in _list_outermost_places(inside, 0):
        if inside[place].token_type is TokenType.COMMA:
            _refuse_at(
                source, inside[place].start, "randomize", "RANDOMIZE takes exactly one argument", _LOCAL_HINT
            )
    word, parentheses = item[0], (item[1], item[ends[0]])
    return [
        (word.start, word.end + 1),
        *([] if rest else [(each.start, each.end + 1) for each in parentheses]),
    ]


def _list_closing_places(item: Sequence[Token]) -> list[int]:
    """List the places where outermost parentheses end."""
    depth, found = 0, list[int]()
    for place, token in enumerate(item):
        depth += (token.token_type is _OPEN) - (token.token_type is _CLOSE)
        if token.token_type is _CLOSE and depth == 0:
            found.append(place)
    return found


def _read_options(words: _TokenReader, kind: SessionTableKind) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the options of `(name = value, …)`, at which the statement ends, and the places of their values."""
    known = {name: read for name, (read, kinds) in _OPTIONS.items() if kind in kinds}
    found, places = dict[str, Any](), dict[str, int]()
    tokens = words.tokens
    words.place += 1
    while True:
        token = tokens[words.place] if words.place < len(tokens) else None
        name = "" if token is None or token.token_type is TokenType.IDENTIFIER else token.text.lower()
        if name not in known:
            words.refuse_token(
                "clause", "this statement has no such option", f"there are: {', '.join(known)}"
            )
        if name in found:
            words.refuse_token("ambiguous", f"the option {name} is given twice")
        words.place += 1
        if not (words.place < len(tokens) and tokens[words.place].token_type is TokenType.EQ):
            words.refuse_token("clause", "= is expected here", _CREATE_HINT)
        words.place += 1
        if words.place >= len(tokens):
            words.refuse_token("clause", f"the value of {name} is expected here", _CREATE_HINT)
        places[name] = tokens[words.place].start
        found[name] = known[name](words, name)
        words.place += 1
        end = tokens[words.place].token_type if words.place < len(tokens) else None
        if end not in (TokenType.COMMA, _CLOSE):
            words.refuse_token("clause", "a comma or ) is expected here", _CREATE_HINT)
        words.place += 1
        if end is _CLOSE:
            break
    if words.place < len(tokens):
        words.refuse_token("clause", "nothing may follow the options of the statement", _CREATE_HINT)
    return found, places


def _read_loss(words: _TokenReader, name: str) -> Fraction:
    token = words.tokens[words.place]
    if token.token_type is not TokenType.NUMBER:
        words.refuse_token("constant", f"{name} must be a number above zero", f"{name} = 0.5")
    try:
        return parse_amount(token.text, name)
    except LossError as error:
        problem = error.message
    words.refuse_token("constant", problem, f"{name} = 0.5")


def _read_whole_number(words: _TokenReader, name: str) -> int:
    token = words.tokens[words.place]
    digits = token.token_type is TokenType.NUMBER and token.text.isascii() and token.text.isdigit()
    if not digits or not 0 < int(token.text[:20]) < 2**31:
        words.refuse_token("constant", f"{name} must be a whole number of at least 1", f"{name} = 5")
    return int(token.text)


def _read_boolean(words: _TokenReader, name: str) -> bool:
    kind = words.tokens[words.place].token_type
    if kind not in (TokenType.TRUE, TokenType.FALSE):
        words.refuse_token("constant", f"{name} must be TRUE or FALSE", f"{name} = FALSE")
    return kind is TokenType.TRUE


def _read_text(words: _TokenReader, name: str) -> str:
    token = words.tokens[words.place]
    if token.token_type is not TokenType.STRING:
        words.refuse_token(
            "constant", f"{name} must be a text in quotes", "method = 'mwem', workload = 'marginals(2)'"
        )
    return token.text


def _read_workload(words: _TokenReader, name: str) -> str | list[list[str]]:
    """Return a text "marginals(k)", or "(a, b), (c)": groups of columns."""
    text = _read_text(words, name)
    parts = _TokenReader(words.source, read_tokens(text) if text.strip() else [])
    if parts.match_words("MARGINALS"):
        return text
    groups = list[list[str]]()
    while parts.place < len(parts.tokens):
        group = _read_column_group(parts) if not groups or parts.match_words(",") else None
        if not group:
            break
        groups.append(group)
    else:
        if groups:
            return groups
    words.refuse_token(
        "constant",
        "workload must be 'marginals(k)', or list the columns of its marginals",
        "workload = '(plan, month), (hundreds)'",
    )


def _read_column_group(parts: _TokenReader) -> list[str] | None:
    """Return the names in the parentheses that come next; None for anything else."""
    if not parts.match_words("("):
        return None
    names = list[str]()
    while parts.place < len(parts.tokens):
        token = parts.tokens[parts.place]
        if token.token_type is not TokenType.IDENTIFIER and not token.text.isidentifier():
            return None
        names.append(token.text)
        parts.place += 1
        if parts.match_words(")"):
            return names
        if not parts.match_words(","):
            return None
    return None


def _is_word(token: Token, word: str) -> bool:
    quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
    return not quoted and token.text.upper() == word


def _refuse_at(source: QueryText, place: int, code: str, message: str, hint: str | None = None) -> NoReturn:
    raise QueryRejected(message, code=code, hint=hint, position=source.locate_offset(place), text=source.text)


_OPTIONS: Mapping[str, tuple[Callable[[_TokenReader, str], Any], tuple[SessionTableKind, ...]]] = {
    "epsilon": (_read_loss, tuple(SessionTableKind)),
    "workload": (_read_workload, (SessionTableKind.SYNTHETIC,)),
    "method": (_read_text, (SessionTableKind.SYNTHETIC,)),
    "rounds": (_read_whole_number, (SessionTableKind.SYNTHETIC,)),
    "max_groups": (_read_whole_number, tuple(SessionTableKind)),
    "replay": (_read_boolean, tuple(SessionTableKind)),
}
"""The options by name: the reader of the value, and the statements that take it."""


# The loss and the options in the text of a statement: a query, or CREATE for a table of the session.


def parse_stated_options(text: str, dialect: str = "duckdb") -> OptionsClause:
    """Return the options in the text of a query or a CREATE; none if it cannot be parsed, which is refused when it is run."""
    try:
        statement = parse_session_statement(text)
    except QueryRejected:
        return OptionsClause()
    if isinstance(statement, CreateTable):
        found = statement.options
        return OptionsClause(epsilon=found.get("epsilon"), max_groups=found.get("max_groups"))
    return OptionsClause() if statement is not None else parse_options_clause(text, dialect)
