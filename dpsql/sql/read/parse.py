"""Text to one SELECT tree, within fixed limits of length and nesting."""

from __future__ import annotations

import itertools
import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NoReturn, TypeVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import Position, QueryRejected
from dpsql.sql.read.dialect import (
    DIALECT,
    DIALECTS,
    DUCKDB,
    parse_foreign_tokens,
    parse_tokens,
    require_dialect,
)
from dpsql.sql.read.elsewhere import check_misplaced_calls
from dpsql.sql.read.experts import EXPERTS, expand_best_expert
from dpsql.sql.read.options import OptionsClause, extract_options
from dpsql.sql.read.pivots import rewrite_pivots
from dpsql.sql.read.regressions import MATRICES, replace_regress_on, rewrite_regressions
from dpsql.sql.read.rejection import PIVOTS, STATEMENTS, QueryText, is_valid_text, refuse_brackets
from dpsql.sql.read.translate import translate_tree

MAX_CHARACTERS = 500_000
MAX_TOKENS = 50_000
MAX_NESTING = 22
"""Levels of parentheses, brackets, CASE and NOT within each other; the parser recurses up to 26 frames for each."""
MAX_DEPTH = 100
"""Levels of the tree, chains of AND, OR, UNION, INTERSECT and EXCEPT counting once."""
MAX_JOINS = 12
"""Joins whose condition does not follow them at once."""
ROOM = 700
"""Frames of Python's stack that a query at these limits takes, from its text to its receipt.

tests/sql/test_depth.py holds it for every construct that nests.
"""

SHORT = 2_000
"""Characters of a query that is kept with its tree, so that it is parsed once for all its parameters."""

_T = TypeVar("_T")
_Query = exp.Select | exp.SetOperation
_LOGGER = logging.getLogger("sqlglot")
_EXPLAIN = re.compile(r"(?:\s+|--[^\n]*\n|/\*.*?\*/)*+EXPLAIN\b", re.IGNORECASE | re.DOTALL)
"""Possessive: what has been taken for a comment is never taken for two, which would double the work."""
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_DOUBLE = {TokenType.NOT, TokenType.ANY, TokenType.SOME, TokenType.INTERVAL}
"""Words after which a parenthesis is two levels: the parser recurses as far for them as for it."""
_QUANTIFIERS = {TokenType.ANY, TokenType.SOME, TokenType.ALL}
_COMPARISONS = {
    TokenType.EQ,
    TokenType.NEQ,
    TokenType.LT,
    TokenType.LTE,
    TokenType.GT,
    TokenType.GTE,
}
_JOINS = {TokenType.JOIN, TokenType.STRAIGHT_JOIN}
_CONDITIONS = {TokenType.ON, TokenType.USING}
_QUANTILES = {"QUANTILE", "QUANTILE_CONT", "QUANTILE_DISC"}
_BRACKETS = {TokenType.L_BRACKET, TokenType.L_BRACE}
_VALUES = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_BRACKET, TokenType.R_PAREN}
_NAME = re.compile(r"[^\W\d]\w*")
_ALIASES = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.R_PAREN, TokenType.R_BRACKET}
"""Words after which a colon says that they were an alias."""
_STARTS = {
    TokenType.SELECT,
    TokenType.FROM,
    TokenType.WITH,
    TokenType.L_PAREN,
    TokenType.PIVOT,
    TokenType.UNPIVOT,
}


@dataclass(frozen=True, slots=True)
class Statement:
    """A parsed statement: `parameters` is the number of `?` in it, `names` are those of `:name` instead; `options` are what it asks for itself.

    `text` is what the engine's own parser must read too; `translated` says that it is not the user's. `matrix` are the places of the
    columns that are the entries of a covariance matrix, `experts` that of the first loss of experts, and their number.
    """

    source: QueryText
    query: exp.Select | exp.SetOperation
    explain: bool
    parameters: int
    options: OptionsClause
    text: str
    translated: bool = False
    names: tuple[str, ...] = ()
    matrix: tuple[int, ...] = ()
    experts: tuple[int, int] | None = None


def parse_statement(text: str, dialect: str = DUCKDB) -> Statement:
    """The one SELECT, or EXPLAIN SELECT, that `text` holds; of another dialect, what it means in DuckDB's.

    Raises QueryRejected with code "syntax", "too_long", "too_deep", "one_statement" or
    "not_a_select", ProgrammingError where there is no such dialect.
    """
    reader = require_dialect(dialect)
    if reader is DIALECT:
        return _parse_duckdb(text)
    words = _tokenize_query(text, reader)
    translated = _translate_to_duckdb(words, dialect)
    with mark_translation_errors():
        statement = _parse_duckdb(translated, numbered=True)
    return replace(
        statement,
        explain=words.explain,
        parameters=words.parameters,
        options=words.options,
        translated=True,
        names=words.names,
    )


def parse_cached(text: str, dialect: str = DUCKDB) -> Statement:
    """As `parse_statement`, with what was found for the same text before, where it is short. Nobody changes the tree: it is shared."""
    return _parse_remembered(text, dialect) if len(text) <= SHORT else parse_statement(text, dialect)


@lru_cache(maxsize=64)
def _parse_remembered(text: str, dialect: str) -> Statement:
    return parse_statement(text, dialect)


@contextmanager
def mark_translation_errors() -> Iterator[None]:
    """Say of a refusal that its place is one in the translation, whose text it shows."""
    try:
        yield
    except QueryRejected as error:
        if error.position is not None:
            error.message += ", in the query's translation into DuckDB's SQL"
        raise


@dataclass(frozen=True, slots=True)
class _TokenizedQuery:
    """The words of a text, within limits; `text` is what they stand in, without EXPLAIN and the clause."""

    source: QueryText
    text: str
    tokens: list[Token]
    explain: bool
    parameters: int
    options: OptionsClause
    names: tuple[str, ...] = ()


def _tokenize_query(text: str, dialect: Dialect) -> _TokenizedQuery:
    source = QueryText(text)
    _check_length(text)
    explain, asked = strip_explain(text)
    tokens = read_tokens(asked, dialect)
    _check_tokens(source, tokens)
    options, asked, tokens = extract_options(source, asked, tokens)
    asked, tokens = replace_regress_on(asked, tokens)
    asked = _blank_sample_units(_replace_parameter_colons(asked, tokens), tokens)
    tokens, parameters, names = _number_parameters(source, tokens, named=dialect is not DIALECT)
    return _TokenizedQuery(source, asked, tokens, explain, parameters, options, names)


def strip_explain(text: str) -> tuple[bool, str]:
    """Whether a text begins with EXPLAIN, and the text with that word blanked out, so that places stay what they are."""
    explain = _EXPLAIN.match(text)
    return (False, text) if explain is None else (True, " " * explain.end() + text[explain.end() :])


def _parse_duckdb(text: str, *, numbered: bool = False) -> Statement:
    """The statement of a text in DuckDB's SQL; `numbered` says that its parameters are `$1`, `$2` already."""
    if numbered:
        source, tokens = QueryText(text), read_tokens(text, DIALECT)
        _check_length(text, tokens)
        _check_nesting(tokens)
        words = _TokenizedQuery(source, text, tokens, explain=False, parameters=0, options=OptionsClause())
    else:
        words = _tokenize_query(text, DIALECT)
    tree = rewrite_regressions(
        words.source, rewrite_pivots(words.source, _parse_single_tree(words, parse_tokens))
    )
    tree = expand_best_expert(words.source, check_misplaced_calls(words.source, tree))
    select = _require_select(words.source, tree)
    _check_depth(words.source, select)
    return Statement(
        words.source,
        select,
        words.explain,
        words.parameters,
        words.options,
        words.text,
        names=words.names,
        matrix=tuple(select.meta.get(MATRICES, ())),
        experts=select.meta.get(EXPERTS),
    )


def _translate_to_duckdb(words: _TokenizedQuery, dialect: str) -> str:
    """The text in DuckDB's SQL that a text in another dialect means."""
    select = _require_select(
        words.source, _parse_single_tree(words, partial(parse_foreign_tokens, dialect=dialect))
    )
    if select.find(exp.Pivot) is not None:
        words.source.refuse(select.find(exp.Pivot), "clause", "PIVOT is read in DuckDB's SQL", PIVOTS)
    _check_depth(words.source, select)
    named = sorted({node.name for node in select.find_all(exp.Placeholder)})
    if named != sorted(f"p{number}" for number in range(1, words.parameters + 1)):
        _refuse_query("parameter", "a parameter stands where none can be read")
    text = call_without_logging(partial(translate_tree, words.source, select, dialect))
    if text is None:
        _refuse_query(
            "syntax",
            "the query has no translation into DuckDB's SQL",
            "write it in DuckDB's SQL and leave out dialect",
        )
    return text


def _parse_single_tree(
    words: _TokenizedQuery, read: Callable[[list[Token], str], list[exp.Expr | None]]
) -> exp.Expr | None:
    """The one statement of the words."""
    source = words.source
    try:
        trees = call_without_logging(partial(read, words.tokens, words.text))
    except ParseError as error:
        _refuse_syntax(source, error)
    except RecursionError:
        _refuse_query("too_deep", "the query is nested too deeply")
    except (TypeError, ValueError, AttributeError, LookupError):
        _refuse_query("syntax", "the query cannot be parsed")
    if len(trees) > 1:
        _refuse_query("one_statement", "a query must be one statement", "send the statements separately")
    return trees[0] if trees else None


def _require_select(source: QueryText, select: exp.Expr | None) -> _Query:
    """The statement, which is a SELECT."""
    if not isinstance(select, (exp.Select, exp.SetOperation)):
        source.refuse(select, "not_a_select", "only a SELECT is answered")
    return select


def parse_options_clause(text: str, dialect: str = DUCKDB) -> OptionsClause:
    """What a query asks for itself; nothing where it cannot be read, which `parse_statement` refuses."""
    try:
        return _tokenize_query(text, DIALECTS.get(dialect, DIALECT)).options
    except QueryRejected:
        return OptionsClause()


def require_stack_room() -> None:
    """Raises QueryRejected with code "too_deep" where the caller's stack leaves less than `ROOM` frames.

    The limits on a text hold for any caller. A caller that is itself nested deeply could still end Python's stack after
    the charge, and lose an answer that is paid for; so the depth of its stack is looked up before anything else.
    """
    try:
        sys._getframe(max(0, sys.getrecursionlimit() - ROOM))  # noqa: SLF001  (inspect walks the whole stack)
    except ValueError:
        return
    _refuse_query(
        "too_deep",
        f"the calling program leaves less than {ROOM} frames of Python's stack",
        "query from a less deeply nested function",
    )


def call_without_logging(work: Callable[[], _T]) -> _T:
    """The result of the parser's library, without its warnings, which would log the query."""
    before, _LOGGER.disabled = _LOGGER.disabled, True
    try:
        return work()
    finally:
        _LOGGER.disabled = before


def read_tokens(text: str, dialect: Dialect = DIALECT) -> list[Token]:
    """The words of a text, without semicolons at its end. QueryRejected (`syntax`) where it cannot be read."""
    if not is_valid_text(text):
        _refuse_query("syntax", "the query holds a NUL character or half a surrogate pair")
    try:
        tokens = dialect.tokenize(text)
    except (TokenError, RecursionError):
        _refuse_query("syntax", "the query cannot be read: is a quote or a comment left open?")
    while tokens and tokens[-1].token_type is TokenType.SEMICOLON:
        tokens.pop()
    return _wrap_compared_lists(_merge_fraction_tokens(_split_cast_tokens(tokens)))


def _split_cast_tokens(tokens: Iterable[Token]) -> Iterator[Token]:
    """The words with `?::` as a parameter and its cast, which another dialect has as one word."""
    for token in tokens:
        if token.token_type is TokenType.QDCOLON:
            yield Token(TokenType.PLACEHOLDER, "?", token.line, token.col - 2, token.start, token.start)
            yield Token(TokenType.DCOLON, "::", token.line, token.col, token.start + 1, token.end)
        else:
            yield token


def _merge_fraction_tokens(tokens: Iterable[Token]) -> list[Token]:
    """The words with `.5` after DISTINCT and ALL as one number, which the parser takes for a part of a name."""
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
    """The words with the list of `= ANY [1, 2]` in parentheses, without which the parser takes ANY for a column."""
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
    """Whether a list begins here of which ANY, SOME or ALL is compared with what stands before."""
    before = [token.token_type for token in tokens[max(place - 2, 0) : place]]
    if len(before) < 2 or before[0] not in _COMPARISONS or before[1] not in _QUANTIFIERS:
        return False
    here = [token.token_type for token in tokens[place : place + 2]]
    return here[:1] == [TokenType.L_BRACKET] or here == [TokenType.ARRAY, TokenType.L_BRACKET]


def _check_length(text: str, tokens: Sequence[Token] = ()) -> None:
    if len(text) > MAX_CHARACTERS:
        _refuse_query("too_long", f"the query has more than {MAX_CHARACTERS:,} characters")
    if len(tokens) > MAX_TOKENS:
        _refuse_query("too_long", f"the query has more than {MAX_TOKENS:,} words and symbols")


def _check_tokens(source: QueryText, tokens: Sequence[Token]) -> None:
    if not tokens:
        _refuse_query("syntax", "the query is empty")
    _check_length(source.text, tokens)
    if tokens[0].token_type not in _STARTS:
        word = tokens[0].text.upper()
        raise QueryRejected(
            f"only SELECT is answered, not {word}",
            code="not_a_select",
            hint=STATEMENTS.get(word, "dpsql reads; changes are made by the owner on the database itself"),
            position=source.locate_offset(tokens[0].start),
            text=source.text,
        )
    for place, (token, following) in enumerate(itertools.pairwise(tokens)):
        before = tokens[place - 1].token_type if place else None
        if not _is_table_alias(tokens, place):
            _check_token_pair(source, before, token, following)
        if following.token_type is TokenType.STRING and _needs_table_next(
            tokens[max(place - 2, 0) : place + 1]
        ):
            _refuse_token(source, following, "table", "FROM takes the name of a declared table")
    _check_joins(tokens)
    _check_quantiles(source, tokens)
    _check_nesting(tokens)
    for place, token in enumerate(tokens):
        if token.token_type is TokenType.PARAMETER and not _is_parameter_start(tokens, place):
            raise QueryRejected(
                "parameters are written as ? or :name",
                code="parameter",
                hint='execute("… WHERE age > ?", [18]), or execute("… WHERE age > :low", {"low": 18})',
                position=source.locate_offset(token.start),
                text=source.text,
            )


def _is_parameter_start(tokens: Sequence[Token], place: int) -> bool:
    """Whether a parameter's name follows: `:low` where an operand may stand, or `$low`.

    After a name a colon follows an alias in DuckDB: `n: COUNT(*)`.
    """
    token = tokens[place]
    if token.token_type not in (TokenType.COLON, TokenType.PARAMETER) or place + 1 == len(tokens):
        return False
    name = tokens[place + 1]
    if name.start != token.end + 1 or not _NAME.fullmatch(name.text):
        return False
    before = tokens[place - 1].token_type if place else None
    return token.token_type is TokenType.PARAMETER or before not in _ALIASES


def _check_nesting(tokens: Sequence[Token]) -> None:
    """Refuses levels within each other beyond the limit."""
    levels, depth, negations = list[int](), 0, 0
    for place, token in enumerate(tokens):
        kind = token.token_type
        if kind in _OPENING:
            levels.append(2 if place and tokens[place - 1].token_type in _DOUBLE else 1)
            depth += levels[-1]
        elif kind in _CLOSING and levels:
            depth -= levels.pop()
        # Only one NOT right after another nests: most stand side by side.
        negations = negations + 1 if kind is TokenType.NOT else 0
        if depth + negations > MAX_NESTING:
            _refuse_query("too_deep", f"the query is nested more than {MAX_NESTING} levels deep")


def _check_joins(tokens: Sequence[Token]) -> None:
    """Refuses many joins whose condition is still to come: for each the parser reads all that follows twice."""
    waiting = 0
    before = None
    for token in tokens:
        kind = token.token_type
        waiting += kind in _JOINS and before is not TokenType.CROSS
        waiting = max(0, waiting - (kind in _CONDITIONS and before is not TokenType.DISTINCT))
        if waiting > MAX_JOINS:
            _refuse_query(
                "too_long",
                f"the query has more than {MAX_JOINS} joins without a condition",
                "write JOIN … ON, or CROSS JOIN",
            )
        before = kind


def _check_token_pair(source: QueryText, before: TokenType | None, token: Token, following: Token) -> None:
    """Refuses what the parser would take for something else than the engine does.

    A bracket after a comma, a parenthesis or ARRAY begins a list, and one before a text takes a field of a STRUCT; elsewhere it
    would take a part of a value.
    """
    kind = token.token_type
    listed = kind is TokenType.L_BRACKET and before in (TokenType.COMMA, TokenType.L_PAREN, TokenType.ARRAY)
    field = kind is TokenType.L_BRACKET and before in _VALUES and following.token_type is TokenType.STRING
    if (kind is TokenType.NOT and token.text == "!") or (kind in _BRACKETS and not listed and not field):
        if kind is TokenType.L_BRACKET and before in _VALUES:
            refuse_brackets(source, token.start)
        _refuse_token(source, token, "syntax", f"{token.text} has no meaning here")
    if following.token_type is TokenType.L_PAREN and kind is TokenType.IDENTIFIER:
        _refuse_token(
            source,
            token,
            "function",
            f'the name of a function cannot be in quotes: "{token.text}"(…)',
            f"write {token.text.upper()}(…)" if token.text.isidentifier() else None,
        )


def _is_table_alias(tokens: Sequence[Token], place: int) -> bool:
    """Whether a name in quotes before a parenthesis is that of a table with names of its columns, no function's.

    It follows AS or a parenthesis, or its own parentheses are followed by AS ( or AS MATERIALIZED.
    """
    if tokens[place].token_type is not TokenType.IDENTIFIER:
        return False
    if place and tokens[place - 1].token_type in (TokenType.ALIAS, TokenType.R_PAREN):
        return True
    depth = 0
    for at in range(place + 1, len(tokens) - 2):
        kind = tokens[at].token_type
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if depth == 0:
            after = tokens[at + 2]
            query = (
                after.token_type in (TokenType.L_PAREN, TokenType.NOT) or after.text.upper() == "MATERIALIZED"
            )
            return tokens[at + 1].token_type is TokenType.ALIAS and query
        if depth > 1:
            return False
    return False


def _check_quantiles(source: QueryText, tokens: Sequence[Token]) -> None:
    """Refuses a third argument of a quantile, which the parser would leave out in silence."""
    for place, (token, following) in enumerate(itertools.pairwise(tokens)):
        if token.text.upper() not in _QUANTILES or following.token_type is not TokenType.L_PAREN:
            continue
        depth = commas = 0
        for inner, after in itertools.pairwise(tokens[place + 1 :]):
            depth += (inner.token_type in _OPENING) - (inner.token_type in _CLOSING)
            last = after.token_type is TokenType.R_PAREN  # such a comma may stand before the end
            commas += depth == 1 and inner.token_type is TokenType.COMMA and not last
            if depth == 0 or commas > 1:
                break
        if commas > 1:
            _refuse_token(source, token, "syntax", f"{token.text.upper()} takes a value and its share")


def _needs_table_next(tokens: Sequence[Token]) -> bool:
    """Whether the last of these, up to three, is followed by a table: FROM, but for IS (NOT) DISTINCT FROM, or JOIN."""
    compared, distinct, last = [None, None, *(token.token_type for token in tokens)][-3:]
    if last is TokenType.FROM and distinct is TokenType.DISTINCT:
        return compared not in (TokenType.IS, TokenType.NOT)
    return last in (TokenType.FROM, TokenType.JOIN)


def _refuse_token(
    source: QueryText, token: Token, code: str, message: str, hint: str | None = None
) -> NoReturn:
    raise QueryRejected(
        message, code=code, hint=hint, position=source.locate_offset(token.start), text=source.text
    )


def _blank_sample_units(text: str, tokens: Sequence[Token]) -> str:
    """The text with blanks in place of UNITS behind TABLESAMPLE, which the engine's own parser takes for a method of its own."""
    letters = list(text)
    for before, token in itertools.pairwise(tokens):
        if before.token_type is TokenType.TABLE_SAMPLE and token.text.upper() == "UNITS":
            letters[token.start : token.end + 1] = " " * (token.end + 1 - token.start)
    return "".join(letters)


def _replace_parameter_colons(text: str, tokens: Sequence[Token]) -> str:
    """The text with `$name` in place of `:name`, as the engine's own parser reads it."""
    letters = list(text)
    for place, token in enumerate(tokens):
        if _is_parameter_start(tokens, place):
            letters[token.start] = "$"
    return "".join(letters)


def _number_parameters(
    source: QueryText, tokens: Sequence[Token], *, named: bool
) -> tuple[list[Token], int, tuple[str, ...]]:
    """Each `?` as `$1`, `$2`, …, and each `:name` as the number of that name, with how many, and the names.

    A tree does not keep the order in which its leaves were written. Where the numbers are `named`, because not every
    dialect knows `$1`, they are `:p1`, `:p2`, … .
    """
    numbered: list[Token] = []
    names: list[str] = []
    count = 0
    waiting = False
    for place, token in enumerate(tokens):
        if waiting:
            waiting = False
            continue
        waiting = _is_parameter_start(tokens, place)
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
            _refuse_token(source, token, "parameter", "parameters are written as ? or as :name, not as both")
        where = (token.line, token.col, token.start, token.end)
        if named:
            numbered += [Token(TokenType.COLON, ":", *where), Token(TokenType.VAR, f"p{number}", *where)]
        else:
            numbered += [
                Token(TokenType.PARAMETER, "$", *where),
                Token(TokenType.NUMBER, str(number), *where),
            ]
    return numbered, count or len(names), tuple(names)


def _check_depth(source: QueryText, root: exp.Expr) -> None:
    stack: list[tuple[exp.Expr, int]] = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            source.refuse(node, "too_deep", f"the query is nested more than {MAX_DEPTH} levels deep")
        for child in node.iter_expressions():
            chained = isinstance(node, (exp.And, exp.Or)) and type(child) is type(node)
            chained |= isinstance(node, exp.SetOperation) and isinstance(child, exp.SetOperation)
            stack.append((child, depth + (not chained)))


def _refuse_syntax(source: QueryText, error: ParseError) -> NoReturn:
    first = error.errors[0] if error.errors else {}
    description = str(first.get("description") or "the query cannot be parsed")
    before, highlight = str(first.get("start_context") or ""), str(first.get("highlight") or "")
    line, column = first.get("line"), first.get("col")
    position = None
    if isinstance(line, int) and isinstance(column, int):
        position = Position(line, max(1, column - len(highlight) + 1))
    message = "the query cannot be parsed"
    if description.startswith("Required keyword"):
        message += f": something is missing near {highlight!r}"  # the parser names its own classes
    elif description.startswith("Invalid expression") and highlight:
        message += f": {highlight!r} is not expected here"
    elif "<" not in description:
        message += f": {description[:1].lower()}{description[1:]}"
    elif before or highlight:
        message += f" after {highlight!r}"
    raise QueryRejected(message, code="syntax", position=position, text=source.text) from None


def _refuse_query(code: str, message: str, hint: str | None = None) -> NoReturn:
    raise QueryRejected(message, code=code, hint=hint) from None
