"""YAML text as plain values, with the line and column of every key.

A policy is read strictly: no anchors, aliases, tags, merge keys, repeated keys or second documents, and
only numbers in plain decimal digits, so that what a person reads is what is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn, Protocol

import yaml

from dpsql.errors import Position
from dpsql.policy.exact import LONGEST, NUMBER
from dpsql.policy.problem import KeyPath, Problem, show
from dpsql.policy.report import Source, policy_error

DEEPEST = 12  # a policy needs 6
_OCTAL = re.compile(r"[-+]?0[0-9]+")
_TAG = "tag:yaml.org,2002:"
_BY_OWN_TEXT: tuple[KeyPath, ...] = (("data_version",),)  # a version 1.10 is not the number 1.1
_MAY_BE_EMPTY = "columns"


@dataclass(frozen=True, slots=True)
class Tree:
    """The values of a YAML text, the places of its keys, and the problems of the text itself."""

    value: object
    source: Source
    problems: tuple[Problem, ...]


def read_tree(text: str, name: str) -> Tree:
    """The values of the YAML `text`: dict, list, str, bool, None, int, and Decimal for other numbers.

    Raises PolicyError, with the code `yaml`, for what is not YAML or not allowed in a policy.
    """
    reader = _Reader(text, name)
    try:
        value = reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = " ".join(part for part in (error.context, error.problem) if part)
        reader.fail(f"is not YAML: {words}", _position(mark) if mark else None)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        reader.fail(f"is not YAML: {error.reason}", Position(line, column))
    return Tree(value, Source(name, text, reader.places), tuple(reader.problems))


class _Mark(Protocol):
    line: int
    column: int


def _position(mark: _Mark | None) -> Position:
    return Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)


class _Reader:
    """One pass over the parser's events; it never builds more than the text holds."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.places: dict[KeyPath, Position] = {}
        self.problems: list[Problem] = []
        self._resolver = yaml.resolver.Resolver()
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)

    def fail(self, message: str, position: Position | None) -> NoReturn:
        places: dict[KeyPath, Position] = {} if position is None else {(): position}
        raise policy_error(Source(self.name, self.text, places), [Problem((), "yaml", message)]) from None

    def document(self) -> object:
        value: object = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self.fail("holds a second document", _position(event.start_mark))
            elif isinstance(event, yaml.NodeEvent):
                self.places[()] = _position(event.start_mark)
                value = self._node(event, ())
        return value

    def _node(self, event: yaml.Event, path: KeyPath) -> object:
        position = _position(event.start_mark)
        if not isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) or event.anchor is not None:
            self.fail("anchors and aliases are not allowed: write the value out", position)
        if event.tag is not None:
            self.fail(f"the tag {show(event.tag)} is not allowed", position)
        if len(path) > DEEPEST:
            self.fail("is nested deeper than any key of a policy", position)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(str(event.value), event.implicit, path)
        return self._mapping(path) if isinstance(event, yaml.MappingStartEvent) else self._sequence(path)

    def _mapping(self, path: KeyPath) -> dict[str, object]:
        entries: dict[str, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key, position = self._key(event), _position(event.start_mark)
            here = (*path, key)
            if key in entries:  # the later value is read on, so that places and values agree
                first = self.places[here].line
                self.fail_later(
                    here, "duplicate_key", f"is written twice, first on line {first}", "keep one of them"
                )
            self.places[here] = position
            entries[key] = self._node(next(self._events), here)
            if entries[key] is None and key != _MAY_BE_EMPTY:
                self.fail_later(here, "empty_key", "is empty", "write a value, or delete the key")
        return entries

    def _key(self, event: yaml.Event) -> str:
        position = _position(event.start_mark)
        if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None or event.tag is not None:
            self.fail("a key must be plain text, without anchor, alias or tag", position)
        if event.value == "<<" and event.implicit[0]:
            self.fail("merge keys are not allowed: write the keys out", position)
        return str(event.value)

    def _sequence(self, path: KeyPath) -> list[object]:
        items: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            here = (*path, len(items))
            self.places[here] = _position(event.start_mark)
            items.append(self._node(event, here))
        return items

    def _scalar(self, text: str, implicit: tuple[bool, bool], path: KeyPath) -> object:
        if not implicit[0]:  # quoted, or a block of text
            return text
        tag = str(self._resolver.resolve(yaml.ScalarNode, text, implicit)).removeprefix(_TAG)  # type: ignore[no-untyped-call]
        if tag == "null":
            return None
        if path in _BY_OWN_TEXT:
            return text
        if tag == "bool":
            return text.lower() in ("yes", "true", "on")
        if NUMBER.fullmatch(text) and not _OCTAL.fullmatch(text):
            return self._number(text)
        if tag in ("int", "float") and not text.lower().endswith(("inf", "nan")):
            words = f"{show(text)} is not a number in plain decimal digits"
            self.fail_later(
                path, "number_format", words, "write it as in 1000 or 0.5, or quote it if it is text"
            )
        return text

    def _number(self, text: str) -> object:
        if len(text) > LONGEST:
            return text  # the models refuse it
        if text.lstrip("+-").isdecimal():
            return int(text)
        try:
            return Decimal(text)
        except ArithmeticError:  # an exponent past what decimal holds
            return text

    def fail_later(self, path: KeyPath, code: str, message: str, hint: str) -> None:
        self.problems.append(Problem(path, code, message, hint))
