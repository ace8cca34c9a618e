"""Complete the word at the cursor: tables, columns, functions, keywords, commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from dpsql.interfaces.shell.answers import AnswerFormat
from dpsql.interfaces.shell.commands import COMMANDS
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.functions import FUNCTIONS
from dpsql.policy import normalize_name
from dpsql.results.description import Description
from dpsql.sql.lower.aggregates import AGGREGATE_CALLS, iterate_distinct_spellings
from dpsql.sql.parse.own_calls import BEST_EXPERT
from dpsql.sql.parse.own_calls import NAMES as ENDS
from dpsql.sql.parse.regressions import CALLS
from dpsql.sql.parse.scanner import find_open_kind, mask_literals

KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET", "JOIN", "INNER JOIN",
    "LEFT JOIN", "FULL JOIN", "ON", "USING", "AS", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "ILIKE", "IS NULL",
    "IS NOT NULL", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "TRY_CAST", "DISTINCT", "ASC", "DESC",
    "NULLS FIRST", "NULLS LAST", "OVER", "PARTITION BY", "QUALIFY", "WINDOW", "ROLLUP", "UNION ALL", "WITH", "DATE", "TRUE", "FALSE", "NULL", "EXPLAIN",
    "CREATE SYNTHETIC TABLE", "CREATE LOCAL TABLE", "DROP TABLE",
)  # fmt: skip
_PLAIN = re.compile(r"[A-Za-z_]\w*")
_NAME = r'(?:[A-Za-z_]\w*|"[^"]+")'
_WORD = re.compile(rf"(?:({_NAME})\.)?(\w*)$")
_TABLES = re.compile(rf"\b(?:FROM|JOIN)\s+({_NAME})(?:\s+(?:AS\s+)?({_NAME}))?|,\s*({_NAME})", re.IGNORECASE)
_AFTER_FROM = re.compile(r"\b(?:FROM|JOIN)\s+(?:[\w\s,\"]*,\s*)?\w*$", re.IGNORECASE)
_RESERVED = frozenset(word for phrase in KEYWORDS for word in phrase.split()) - {"LOCAL", "SYNTHETIC"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A completion: the text to insert, and its kind."""

    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words to complete; `tables` maps each table's name to the names of its columns."""

    tables: Mapping[str, Sequence[str]]
    functions: Sequence[str]
    keywords: Sequence[str] = KEYWORDS

    @classmethod
    def from_description(cls, described: Description) -> Vocabulary:
        """Return the words for described tables, with every allowed function."""
        tables = {table.name: [column.name for column in table.columns] for table in described.tables}
        return cls(tables, list_functions())


def list_functions() -> tuple[str, ...]:
    """Return the functions of the registries, as `NAME(`; operators and CASE are not functions."""
    aggregates = (f"{name}(" for entry in AGGREGATE_CALLS for _, name in iterate_distinct_spellings(entry))
    signatures = [entry.signature for entry in OVER.values()] + [
        entry.signature for entry in FUNCTIONS.values()
    ]
    named = [*aggregates, *(found[0] for text in signatures if (found := re.match(r"[A-Z_0-9]+\(", text)))]
    ends = (f"{name.upper()}(" for name in ENDS)
    return tuple(dict.fromkeys(("COUNT(*)", "COUNT(DISTINCT ", *named, *ends, *CALLS, f"{BEST_EXPERT}(")))


def list_candidates(before: str, after: str, words: Vocabulary) -> tuple[str, list[Candidate]]:
    """Return the prefix of the word at the cursor, and its completions, likeliest first.

    `before` and `after` are the text on the two sides of the cursor.
    """
    if before.lstrip().startswith("\\"):
        return _list_command_candidates(before.lstrip(), after, words)
    if find_open_kind(before) is not None:
        return "", []
    found = _WORD.search(before)
    owner, prefix = (found[1], found[2]) if found else (None, "")
    # The word at the cursor is not yet an alias.
    scope = _resolve_scope(before[: len(before) - len(prefix)] + after, words)
    if owner is not None:
        options = [
            Candidate(_quote_name(name), "column")
            for name in scope.get(normalize_name(_strip_quotes(owner)), ())
        ]
    elif _AFTER_FROM.search(before):
        options = [Candidate(_quote_name(name), "table") for name in words.tables]
    else:
        options = [*_list_column_candidates(scope, words), *_iterate_word_candidates(prefix, words)]
    return prefix, _filter_by_prefix(options, prefix)


def _list_command_candidates(line: str, after: str, words: Vocabulary) -> tuple[str, list[Candidate]]:
    name, space, argument = line.partition(" ")
    if not space:
        return line, _filter_by_prefix(
            [Candidate(f"\\{command.names[0]}", command.help) for command in COMMANDS], line
        )
    match name:
        case "\\explain":
            return list_candidates(argument, after, words)
        case "\\d" | "\\d+":
            options = [Candidate(_quote_name(table), "table") for table in words.tables]
        case "\\format":
            options = [Candidate(each.value, "format") for each in AnswerFormat]
        case _:
            options = []
    return argument, _filter_by_prefix(options, argument)


def _resolve_scope(text: str, words: Vocabulary) -> dict[str, Sequence[str]]:
    """Return the columns of each table in the text, by the table's alias or name."""
    known = {normalize_name(table): columns for table, columns in words.tables.items()}
    scope: dict[str, Sequence[str]] = {}
    for name, alias, further in _TABLES.findall(mask_literals(text)):
        columns = known.get(normalize_name(_strip_quotes(name or further)))
        if columns is not None:
            called = alias if alias and alias.upper() not in _RESERVED else name or further
            scope[normalize_name(_strip_quotes(called))] = columns
    return scope


def _list_column_candidates(scope: Mapping[str, Sequence[str]], words: Vocabulary) -> list[Candidate]:
    """Return the columns and tables in scope, or of all tables if the query names none."""
    of = scope or words.tables
    names = dict.fromkeys(name for columns in of.values() for name in columns)
    return [Candidate(_quote_name(name), "column") for name in names] + [
        Candidate(_quote_name(name), "table") for name in of
    ]


def _iterate_word_candidates(prefix: str, words: Vocabulary) -> Iterator[Candidate]:
    """Yield functions and keywords, in the case of the prefix."""
    small = prefix.islower()
    for text in words.functions:
        yield Candidate(text.lower() if small else text, "function")
    for text in words.keywords:
        yield Candidate(text.lower() if small else text, "keyword")


def _filter_by_prefix(options: Iterable[Candidate], prefix: str) -> list[Candidate]:
    wanted = prefix.lower()
    return [option for option in options if option.text.lower().lstrip('"').startswith(wanted)]


def _quote_name(name: str) -> str:
    if _PLAIN.fullmatch(name) and name.upper() not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def _strip_quotes(name: str) -> str:
    return name.strip('"')


class SqlCompleter(Completer):
    """Offer completions; while the user types, only after a prefix, a dot or FROM.

    `session_tables` returns the tables of the session, in addition to those of `words`.
    """

    def __init__(
        self, words: Vocabulary, session_tables: Callable[[], Mapping[str, Sequence[str]]] = dict
    ) -> None:
        self._words, self._session_tables = words, session_tables

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield the completions at the cursor."""
        before = document.text_before_cursor
        words = replace(self._words, tables={**self._words.tables, **self._session_tables()})
        prefix, options = list_candidates(before, document.text_after_cursor, words)
        expected = prefix or before.endswith(".") or _AFTER_FROM.search(before)
        if complete_event.completion_requested or expected:
            for option in options:
                yield Completion(option.text, start_position=-len(prefix), display_meta=option.kind)
