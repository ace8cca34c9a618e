"""Parse text to one SELECT tree, within fixed limits of length and nesting."""

from __future__ import annotations

import itertools
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NoReturn, TypeVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType

from dpsql.errors import Position, QueryRejected
from dpsql.policy.request.dialects import DUCKDB
from dpsql.sql.parse.counted_limits import rewrite_counted_limits
from dpsql.sql.parse.dialect import (
    DIALECT,
    DIALECTS,
    parse_foreign_tokens,
    parse_tokens,
    require_dialect,
)
from dpsql.sql.parse.lateral_tables import rewrite_lateral_tables
from dpsql.sql.parse.method_calls import rewrite_method_calls
from dpsql.sql.parse.older_parser import find_ambiguous_predicate
from dpsql.sql.parse.options import OptionsClause, extract_options
from dpsql.sql.parse.own_calls import (
    BEST_EXPERT,
    EXPERTS,
    MISPLACED,
    check_misplaced_calls,
    expand_best_expert,
)
from dpsql.sql.parse.pivots import prepare_foreign_pivots, rewrite_pivots
from dpsql.sql.parse.regressions import (
    COVAR_MATRIX,
    MATRICES,
    REGRESS,
    replace_regress_on,
    rewrite_regressions,
)
from dpsql.sql.parse.rejection import (
    STATEMENTS,
    QueryText,
    refuse_brackets,
    refuse_query,
    refuse_token,
)
from dpsql.sql.parse.scanner import find_explain_end
from dpsql.sql.parse.tokens import (
    blank_sample_units,
    is_parameter_start,
    number_parameters,
    read_tokens,
    replace_parameter_colons,
)
from dpsql.sql.parse.translate import translate_tree
from dpsql.sql.parse.translated_places import find_original_position
from dpsql.sql.parse.typed_calls import PREFIX
from dpsql.sql.parse.unions_by_name import rewrite_unions_by_name

MAX_CHARACTERS = 500_000
MAX_TOKENS = 21_000
"""The most words and symbols: the parser reads this many in about a second."""
MAX_SELECTS = 1_000
"""SELECTs in a text: more than a plan has tables and subqueries."""
_MOST_WORDS_BEFORE = 100
"""The words before FROM among which SUBSTRING is looked for."""
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
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_DOUBLE = {TokenType.NOT, TokenType.ANY, TokenType.SOME, TokenType.INTERVAL}
"""Words after which a parenthesis is two levels: the parser recurses as deeply for them as for the parenthesis."""
_PIVOTS = {TokenType.PIVOT, TokenType.UNPIVOT}
_OWN_CALLS = {REGRESS, COVAR_MATRIX, BEST_EXPERT, *MISPLACED}
_JOINS = {TokenType.JOIN, TokenType.STRAIGHT_JOIN}
_CONDITIONS = {TokenType.ON, TokenType.USING}
_QUANTILES = {"QUANTILE", "QUANTILE_CONT", "QUANTILE_DISC"}
_BRACKETS = {TokenType.L_BRACKET, TokenType.L_BRACE}
_VALUES = {TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_BRACKET, TokenType.R_PAREN}
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
    """A parsed statement: `parameters` counts its `?`, `names` holds the names of `:name` instead; `options` are the options in its text.

    `text` is the text that the engine's own parser must accept too; `translated` says that it is a translation, not the
    user's text. `matrix` holds the places of the columns that are entries of a covariance matrix, `experts` the place of the
    first loss of experts and their number.
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
    """Parse the one SELECT, or EXPLAIN SELECT, of `text`; from another dialect, as its translation into DuckDB's.

    Raises QueryRejected with code "syntax", "too_long", "too_deep", "one_statement" or
    "not_a_select", ProgrammingError where there is no such dialect.
    """
    reader = require_dialect(dialect)
    if reader is DIALECT:
        return _parse_duckdb(text)
    words = _tokenize_query(text, reader)
    translated = _translate_to_duckdb(words, dialect)
    with locate_translation_errors(text, dialect):
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
    """Parse like `parse_statement`, with a cache for short texts. Nobody may change the tree: it is shared."""
    return _parse_remembered(text, dialect) if len(text) <= SHORT else parse_statement(text, dialect)


@lru_cache(maxsize=64)
def _parse_remembered(text: str, dialect: str) -> Statement:
    return parse_statement(text, dialect)


@contextmanager
def locate_translation_errors(original: str, dialect: str) -> Iterator[None]:
    """Let a refusal of a translation show the user's own text, and the place in it."""
    try:
        yield
    except QueryRejected as error:
        if error.position is not None and error.text and error.text != original:
            error.position = find_original_position(error.text, error.position, original, DIALECTS[dialect])
            error.text = original
        raise


@dataclass(frozen=True, slots=True)
class _TokenizedQuery:
    """The tokens of a text within limits; `text` is the text that they point into, without EXPLAIN and the clause."""

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
    _check_tokens(source, tokens, is_foreign=dialect is not DIALECT)
    options, asked, tokens = extract_options(source, asked, tokens)
    asked, tokens = replace_regress_on(asked, tokens)
    asked = blank_sample_units(replace_parameter_colons(asked, tokens), tokens)
    tokens, parameters, names = number_parameters(source, tokens, named=dialect is not DIALECT)
    return _TokenizedQuery(source, asked, tokens, explain, parameters, options, names)


def strip_explain(text: str) -> tuple[bool, str]:
    """Return whether a text begins with EXPLAIN, and the text with that word blanked, so that positions stay the same."""
    end = find_explain_end(text)
    return (False, text) if end is None else (True, " " * end + text[end:])


def _parse_duckdb(text: str, *, numbered: bool = False) -> Statement:
    """Parse a text in DuckDB's SQL; `numbered` if its parameters are `$1`, `$2` already."""
    if numbered:
        source, tokens = QueryText(text), read_tokens(text, DIALECT)
        _check_length(text, tokens)
        _check_nesting(tokens)
        words = _TokenizedQuery(source, text, tokens, explain=False, parameters=0, options=OptionsClause())
    else:
        words = _tokenize_query(text, DIALECT)
    tree = rewrite_method_calls(_parse_single_tree(words, parse_tokens))
    if any(token.token_type in _PIVOTS or token.text.upper() in _OWN_CALLS for token in words.tokens):
        tree = rewrite_regressions(words.source, rewrite_pivots(words.source, tree))
        tree = expand_best_expert(words.source, check_misplaced_calls(words.source, tree))
    tree = rewrite_unions_by_name(words.source, rewrite_lateral_tables(words.source, tree))
    if tree is not None:
        rewrite_counted_limits(words.source, tree, dialect=DUCKDB)
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
    """Return the text in DuckDB's SQL that a text in another dialect means."""
    tree = _parse_single_tree(words, partial(parse_foreign_tokens, dialect=dialect))
    if tree is not None and tree.find(exp.Pivot) is not None:
        prepare_foreign_pivots(words.source, tree, dialect)
        tree = rewrite_pivots(words.source, tree)
    select = _require_select(words.source, tree)
    rewrite_counted_limits(words.source, select, dialect=dialect)
    _check_depth(words.source, select)
    if (found := find_ambiguous_predicate(select)) is not None:
        words.source.refuse(
            found,
            "syntax",
            "the installed version of sqlglot may bind this comparison otherwise than the dialect",
            "put one of the conditions in parentheses",
        )
    named = sorted({node.name for node in select.find_all(exp.Placeholder)})
    if named != sorted(f"p{number}" for number in range(1, words.parameters + 1)):
        refuse_query("parameter", "a parameter may only stand for a value")
    try:
        text = call_without_logging(partial(translate_tree, words.source, select, dialect))
    except RecursionError:
        _refuse_nesting()  # which its text in DuckDB's SQL has, where it can be written
    if text is None:
        refuse_query(
            "syntax",
            "the query cannot be translated into DuckDB's SQL",
            "write it in DuckDB's SQL and leave out dialect",
        )
    return text


def _refuse_nesting() -> NoReturn:
    refuse_query("too_deep", f"the query is nested more than {MAX_NESTING} levels deep")


def _parse_single_tree(
    words: _TokenizedQuery, read: Callable[[list[Token], str], list[exp.Expr | None]]
) -> exp.Expr | None:
    """Return the one statement of the words."""
    source = words.source
    try:
        trees = call_without_logging(partial(read, words.tokens, words.text))
    except ParseError as error:
        _refuse_syntax(source, error)
    except RecursionError:
        refuse_query("too_deep", "the query is nested too deeply")
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        refuse_query("syntax", "the query cannot be parsed")
    if len(trees) > 1:
        refuse_query("one_statement", "a query must be one statement", "send the statements separately")
    return trees[0] if trees else None


def _require_select(source: QueryText, select: exp.Expr | None) -> _Query:
    """Return the statement, which is a SELECT."""
    if not isinstance(select, (exp.Select, exp.SetOperation)):
        source.refuse(select, "not_a_select", "only a SELECT is allowed")
    return select


def parse_options_clause(text: str, dialect: str = DUCKDB) -> OptionsClause:
    """Return the options clause of a query; an empty one if it cannot be parsed, which `parse_statement` refuses."""
    try:
        return _tokenize_query(text, DIALECTS.get(dialect, DIALECT)).options
    except QueryRejected:
        return OptionsClause()


def require_stack_room() -> None:
    """Raise QueryRejected with code "too_deep" where the caller's stack leaves less than `ROOM` frames.

    The limits on a text hold for any caller. A caller that is itself nested deeply could still exhaust Python's stack after
    the charge, and lose a paid answer; so the depth of its stack is checked first.
    """
    try:
        sys._getframe(max(0, sys.getrecursionlimit() - ROOM))  # noqa: SLF001  (inspect walks the whole stack)
    except ValueError:
        return
    refuse_query(
        "too_deep",
        f"the calling program leaves less than {ROOM} frames of Python's stack",
        "query from a less deeply nested function",
    )


def call_without_logging(work: Callable[[], _T]) -> _T:
    """Return the result of the parser's library, without its warnings, which would log the query."""
    before, _LOGGER.disabled = _LOGGER.disabled, True
    try:
        return work()
    finally:
        _LOGGER.disabled = before


def _check_length(text: str, tokens: Sequence[Token] = ()) -> None:
    if len(text) > MAX_CHARACTERS:
        refuse_query("too_long", f"the query has more than {MAX_CHARACTERS:,} characters")
    if len(tokens) > MAX_TOKENS:
        refuse_query(
            "too_long",
            f"the query has more than {MAX_TOKENS:,} words and symbols",
            "pass a long list as one parameter, or split the query",
        )
    if sum(token.token_type is TokenType.SELECT for token in tokens) > MAX_SELECTS:
        refuse_query("too_long", f"the query has more than {MAX_SELECTS:,} SELECTs", "split the query")


def _check_tokens(source: QueryText, tokens: Sequence[Token], *, is_foreign: bool = False) -> None:
    if not tokens:
        refuse_query("syntax", "the query is empty")
    _check_length(source.text, tokens)
    if tokens[0].token_type not in _STARTS:
        word = tokens[0].text.upper()
        raise QueryRejected(
            f"only SELECT is allowed, not {word}",
            code="not_a_select",
            hint=STATEMENTS.get(word, "dpsql only reads; the owner changes data on the database itself"),
            position=source.locate_offset(tokens[0].start),
            text=source.text,
        )
    for place, following in enumerate(tokens[1:]):
        if not _is_table_alias(tokens, place) and not (is_foreign and _is_foreign_pair(tokens, place)):
            _check_token_pair(source, tokens, place)
        if (
            following.token_type is TokenType.STRING
            and _needs_table_next(tokens[max(place - 2, 0) : place + 1])
            and not (is_foreign and _is_in_substring(tokens, place))
        ):
            refuse_token(source, following, "table", "FROM takes the name of a declared table")
    _check_joins(tokens)
    _check_quantiles(source, tokens)
    _check_nesting(tokens)
    for place, token in enumerate(tokens):
        if token.token_type is TokenType.PARAMETER and not is_parameter_start(tokens, place):
            raise QueryRejected(
                "parameters are written as ? or :name",
                code="parameter",
                hint='execute("… WHERE age > ?", [18]), or execute("… WHERE age > :low", {"low": 18})',
                position=source.locate_offset(token.start),
                text=source.text,
            )


def _check_nesting(tokens: Sequence[Token]) -> None:
    """Refuse levels within each other beyond the limit."""
    levels, depth, negations = list[int](), 0, 0
    for place, token in enumerate(tokens):
        kind = token.token_type
        if kind in _OPENING:
            levels.append(2 if place and tokens[place - 1].token_type in _DOUBLE else 1)
            depth += levels[-1]
        elif kind in _CLOSING and levels:
            depth -= levels.pop()
        # Only adjacent NOTs nest; most are apart.
        negations = negations + 1 if kind is TokenType.NOT else 0
        if depth + negations > MAX_NESTING:
            _refuse_nesting()


def _check_joins(tokens: Sequence[Token]) -> None:
    """Refuse many joins whose condition is still to come: for each the parser reads all that follows twice."""
    waiting = 0
    before = None
    for token in tokens:
        kind = token.token_type
        waiting += kind in _JOINS and before is not TokenType.CROSS
        waiting = max(0, waiting - (kind in _CONDITIONS and before is not TokenType.DISTINCT))
        if waiting > MAX_JOINS:
            refuse_query(
                "too_long",
                f"the query has more than {MAX_JOINS} joins without a condition",
                "write JOIN … ON, or CROSS JOIN",
            )
        before = kind


_PLACES = frozenset({"OFFSET", "SAFE_OFFSET", "ORDINAL", "SAFE_ORDINAL"})


def _is_foreign_pair(tokens: Sequence[Token], place: int) -> bool:
    """Return whether two words have a meaning in another dialect alone: `!~`, the type `int[]`, `[OFFSET(2)]` and `)[2]`."""
    token, following = tokens[place], tokens[place + 1]
    if token.token_type is TokenType.NOT:
        return following.text.startswith("~")
    if token.token_type is not TokenType.L_BRACKET:
        return False
    is_element = (
        following.token_type is TokenType.NUMBER and tokens[place - 1].token_type is TokenType.R_PAREN
    )
    return is_element or following.token_type is TokenType.R_BRACKET or following.text.upper() in _PLACES


def _check_token_pair(source: QueryText, tokens: Sequence[Token], place: int) -> None:
    """Refuse pairs of words that the parser reads differently from the engine.

    A bracket after a comma, a parenthesis or ARRAY begins a list, and a bracket before a text takes a field of a STRUCT;
    anywhere else it would take a part of a value.
    """
    token, following = tokens[place], tokens[place + 1]
    before, kind = tokens[place - 1].token_type if place else None, token.token_type
    listed = kind is TokenType.L_BRACKET and before in (TokenType.COMMA, TokenType.L_PAREN, TokenType.ARRAY)
    field = kind is TokenType.L_BRACKET and before in _VALUES and following.token_type is TokenType.STRING
    if (kind is TokenType.NOT and token.text == "!") or (kind in _BRACKETS and not listed and not field):
        if kind is TokenType.L_BRACKET and before in _VALUES:
            refuse_brackets(source, tokens, place)
        refuse_token(source, token, "syntax", f"{token.text} has no meaning here")
    if following.token_type is TokenType.L_PAREN and token.text.lower().startswith(PREFIX):
        refuse_token(source, token, "function", f"the function {token.text} is reserved for translations")
    if following.token_type is TokenType.L_PAREN and kind is TokenType.IDENTIFIER:
        refuse_token(
            source,
            token,
            "function",
            f'the name of a function cannot be in quotes: "{token.text}"(…)',
            f"write {token.text.upper()}(…)" if token.text.isidentifier() else None,
        )


def _is_table_alias(tokens: Sequence[Token], place: int) -> bool:
    """Return whether a name in quotes before a parenthesis is that of a table with names of its columns, no function's.

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
    """Refuse a third argument of a quantile, which the parser would leave out in silence."""
    for place, (token, following) in enumerate(itertools.pairwise(tokens)):
        if token.text.upper() not in _QUANTILES or following.token_type is not TokenType.L_PAREN:
            continue
        depth = commas = 0
        for inner, after in itertools.pairwise(tokens[place + 1 :]):
            depth += (inner.token_type in _OPENING) - (inner.token_type in _CLOSING)
            last = after.token_type is TokenType.R_PAREN  # a trailing comma is allowed
            commas += depth == 1 and inner.token_type is TokenType.COMMA and not last
            if depth == 0 or commas > 1:
                break
        if commas > 1:
            refuse_token(
                source, token, "syntax", f"{token.text.upper()} takes two arguments, a value and its share"
            )


def _is_in_substring(tokens: Sequence[Token], place: int) -> bool:
    """Return whether FROM stands in SUBSTRING(x FROM 'pattern'), as far as the words just before tell."""
    depth = 0
    for before in range(place - 1, max(place - _MOST_WORDS_BEFORE, 0), -1):
        kind = tokens[before].token_type
        depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
        if depth < 0:
            return tokens[before - 1].text.upper() == "SUBSTRING"
    return False


def _needs_table_next(tokens: Sequence[Token]) -> bool:
    """Return whether a table follows the last of these, up to three, words: FROM, but not IS (NOT) DISTINCT FROM, or JOIN."""
    compared, distinct, last = [None, None, *(token.token_type for token in tokens)][-3:]
    if last is TokenType.FROM and distinct is TokenType.DISTINCT:
        return compared not in (TokenType.IS, TokenType.NOT)
    return last in (TokenType.FROM, TokenType.JOIN)


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
