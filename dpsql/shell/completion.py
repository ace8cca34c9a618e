"""What may follow the cursor: tables, columns, functions, keywords, commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from dpsql.aggregates.windows import OVER
from dpsql.engine.description import Description
from dpsql.functions import FUNCTIONS
from dpsql.policy import fold
from dpsql.shell.answers import Format
from dpsql.shell.commands import COMMANDS
from dpsql.shell.statements import Kind, inside, pieces
from dpsql.sql.lower.aggregates import AGGREGATE_CALLS, spelled_apart
from dpsql.sql.read.interval_calls import NAMES as ENDS
from dpsql.sql.read.regressions import CALLS

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
    """A completion: the text to insert, and what it is."""

    text: str
    kind: str


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The words to choose from; `tables` maps each table's name to its columns'."""

    tables: Mapping[str, Sequence[str]]
    functions: Sequence[str]
    keywords: Sequence[str] = KEYWORDS

    @classmethod
    def of(cls, described: Description) -> Vocabulary:
        """The words for these tables, with every function that is known to be safe."""
        tables = {table.name: [column.name for column in table.columns] for table in described.tables}
        return cls(tables, functions())


def functions() -> tuple[str, ...]:
    """The calls of the registries, as `NAME(`; operators and CASE are no calls."""
    aggregates = (f"{name}(" for entry in AGGREGATE_CALLS for _, name in spelled_apart(entry))
    signatures = [entry.signature for entry in (*OVER.values(), *FUNCTIONS.values())]
    named = [*aggregates, *(found[0] for text in signatures if (found := re.match(r"[A-Z_0-9]+\(", text)))]
    ends = (f"{name.upper()}(" for name in ENDS)
    return tuple(dict.fromkeys(("COUNT(*)", "COUNT(DISTINCT ", *named, *ends, *CALLS)))


def candidates(before: str, after: str, words: Vocabulary) -> tuple[str, list[Candidate]]:
    """What the cursor's word begins with, and its completions, likeliest first.

    `before` and `after` are the text on the two sides of the cursor.
    """
    if before.lstrip().startswith("\\"):
        return _of_command(before.lstrip(), after, words)
    if inside(before) is not None:
        return "", []
    found = _WORD.search(before)
    owner, prefix = (found[1], found[2]) if found else (None, "")
    # The word at the cursor is not yet an alias.
    scope = _in_scope(before[: len(before) - len(prefix)] + after, words)
    if owner is not None:
        options = [Candidate(_quoted(name), "column") for name in scope.get(fold(_bare(owner)), ())]
    elif _AFTER_FROM.search(before):
        options = [Candidate(_quoted(name), "table") for name in words.tables]
    else:
        options = [*_columns(scope, words), *_words(prefix, words)]
    return prefix, _starting(options, prefix)


def _of_command(line: str, after: str, words: Vocabulary) -> tuple[str, list[Candidate]]:
    name, space, argument = line.partition(" ")
    if not space:
        return line, _starting(
            [Candidate(f"\\{command.names[0]}", command.help) for command in COMMANDS], line
        )
    match name:
        case "\\explain":
            return candidates(argument, after, words)
        case "\\d":
            options = [Candidate(_quoted(table), "table") for table in words.tables]
        case "\\format":
            options = [Candidate(each.value, "format") for each in Format]
        case _:
            options = []
    return argument, _starting(options, argument)


def _in_scope(text: str, words: Vocabulary) -> dict[str, Sequence[str]]:
    """The columns of each table that the text names, under the name or alias that it gives."""
    known = {fold(table): columns for table, columns in words.tables.items()}
    scope: dict[str, Sequence[str]] = {}
    for name, alias, further in _TABLES.findall(_plain(text)):
        columns = known.get(fold(_bare(name or further)))
        if columns is not None:
            called = alias if alias and alias.upper() not in _RESERVED else name or further
            scope[fold(_bare(called))] = columns
    return scope


def _columns(scope: Mapping[str, Sequence[str]], words: Vocabulary) -> list[Candidate]:
    """The columns in scope; of every table while the query names none; and the names to qualify by."""
    of = scope or words.tables
    names = dict.fromkeys(name for columns in of.values() for name in columns)
    return [Candidate(_quoted(name), "column") for name in names] + [
        Candidate(_quoted(name), "table") for name in of
    ]


def _words(prefix: str, words: Vocabulary) -> Iterator[Candidate]:
    """Functions and keywords, in the case in which the word was begun."""
    small = prefix.islower()
    for text in words.functions:
        yield Candidate(text.lower() if small else text, "function")
    for text in words.keywords:
        yield Candidate(text.lower() if small else text, "keyword")


def _starting(options: Iterable[Candidate], prefix: str) -> list[Candidate]:
    wanted = prefix.lower()
    return [option for option in options if option.text.lower().lstrip('"').startswith(wanted)]


def _plain(text: str) -> str:
    """The text with its strings and comments blanked out."""
    for piece in pieces(text):
        if piece.kind in (Kind.STRING, Kind.COMMENT):
            text = text[: piece.start] + " " * (piece.end - piece.start) + text[piece.end :]
    return text


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name) and name.upper() not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def _bare(name: str) -> str:
    return name.strip('"')


class SqlCompleter(Completer):
    """Offers the candidates; while one types, only once there is something to go by.

    `further` gives the tables that there are by now beside those of `words`.
    """

    def __init__(self, words: Vocabulary, further: Callable[[], Mapping[str, Sequence[str]]] = dict) -> None:
        self._words, self._further = words, further

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """The completions at the cursor."""
        before = document.text_before_cursor
        words = replace(self._words, tables={**self._words.tables, **self._further()})
        prefix, options = candidates(before, document.text_after_cursor, words)
        expected = prefix or before.endswith(".") or _AFTER_FROM.search(before)
        if complete_event.completion_requested or expected:
            for option in options:
                yield Completion(option.text, start_position=-len(prefix), display_meta=option.kind)
