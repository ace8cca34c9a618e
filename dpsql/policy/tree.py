"""YAML text as plain values, with the line and column of every key.

A policy is read strictly: no anchors, aliases, tags, merge keys, repeated keys or second documents, and
only numbers in plain decimal digits, so that the policy means what a person reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import NoReturn, Protocol

import yaml

from dpsql.errors import Position
from dpsql.policy.domain import LONGEST, NUMBER
from dpsql.policy.problem import KeyPath, PolicySource, Problem, format_value, make_policy_error

DEEPEST = 12  # a policy needs 6
_OCTAL = re.compile(r"[-+]?0[0-9]+")
_TAG = "tag:yaml.org,2002:"
_BY_OWN_TEXT: tuple[KeyPath, ...] = (("data_version",),)  # a version 1.10 is not the number 1.1
_MAY_BE_EMPTY = "columns"


@dataclass(frozen=True, slots=True)
class YamlTree:
    """The values of a YAML text, the places of its keys, and the problems of the text itself."""

    value: object
    source: PolicySource
    problems: tuple[Problem, ...]


def parse_yaml(text: str, name: str) -> YamlTree:
    """Return the values of the YAML `text`: dict, list, str, bool, None, int, and Decimal for other numbers.

    Raises PolicyError, with the code `yaml`, for text that is not YAML, and for YAML that is not allowed in a policy.
    """
    reader = _Reader(text, name)
    try:
        value = reader.read_document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = " ".join(part for part in (error.context, error.problem) if part)
        reader.fail(f"is not YAML: {words}", _to_position(mark) if mark else None)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - text.rfind("\n", 0, error.position)
        reader.fail(f"is not YAML: {error.reason}", Position(line, column))
    return YamlTree(value, PolicySource(name, text, reader.positions), tuple(reader.problems))


class _Mark(Protocol):
    line: int
    column: int


def _to_position(mark: _Mark | None) -> Position:
    return Position(mark.line + 1, mark.column + 1) if mark else Position(1, 1)


class _Reader:
    """One pass over the parser's events; it never builds more than the text holds."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name
        self.positions: dict[KeyPath, Position] = {}
        self.problems: list[Problem] = []
        self._resolver = yaml.resolver.Resolver()
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)

    def fail(self, message: str, position: Position | None) -> NoReturn:
        places: dict[KeyPath, Position] = {} if position is None else {(): position}
        raise make_policy_error(
            PolicySource(self.name, self.text, places), [Problem((), "yaml", message)]
        ) from None

    def read_document(self) -> object:
        value: object = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    self.fail(
                        "holds a second YAML document: delete the line `---` and what follows",
                        _to_position(event.start_mark),
                    )
            elif isinstance(event, yaml.NodeEvent):
                self.positions[()] = _to_position(event.start_mark)
                value = self._read_node(event, ())
        return value

    def _read_node(self, event: yaml.Event, path: KeyPath) -> object:
        position = _to_position(event.start_mark)
        if not isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) or event.anchor is not None:
            self.fail("anchors and aliases are not allowed: write the value out", position)
        if event.tag is not None:
            self.fail(f"the tag {format_value(event.tag)} is not allowed", position)
        if len(path) > DEEPEST:
            self.fail(f"is nested more than {DEEPEST} levels deep", position)
        if isinstance(event, yaml.ScalarEvent):
            return self._read_scalar(str(event.value), event.implicit, path)
        return (
            self._read_mapping(path)
            if isinstance(event, yaml.MappingStartEvent)
            else self._read_sequence(path)
        )

    def _read_mapping(self, path: KeyPath) -> dict[str, object]:
        entries: dict[str, object] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key, position = self._read_key(event), _to_position(event.start_mark)
            here = (*path, key)
            if key in entries:  # the later value is kept, so that places and values agree
                first = self.positions[here].line
                self.add_problem(
                    here, "duplicate_key", f"is written twice, first on line {first}", "keep one of them"
                )
            self.positions[here] = position
            entries[key] = self._read_node(next(self._events), here)
            if entries[key] is None and key != _MAY_BE_EMPTY:
                self.add_problem(here, "empty_key", "is empty", "write a value, or delete the key")
        return entries

    def _read_key(self, event: yaml.Event) -> str:
        position = _to_position(event.start_mark)
        if not isinstance(event, yaml.ScalarEvent) or event.anchor is not None or event.tag is not None:
            self.fail("a key must be plain text, without anchor, alias or tag", position)
        if event.value == "<<" and event.implicit[0]:
            self.fail("merge keys are not allowed: write the keys out", position)
        return str(event.value)

    def _read_sequence(self, path: KeyPath) -> list[object]:
        items: list[object] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            here = (*path, len(items))
            self.positions[here] = _to_position(event.start_mark)
            items.append(self._read_node(event, here))
        return items

    def _read_scalar(self, text: str, implicit: tuple[bool, bool], path: KeyPath) -> object:
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
            return self._parse_number(text)
        if tag in ("int", "float") and not text.lower().endswith(("inf", "nan")):
            words = f"{format_value(text)} is not a number in plain decimal digits"
            self.add_problem(
                path, "number_format", words, "write it as in 1000 or 0.5, or quote it if it is text"
            )
        return text

    def _parse_number(self, text: str) -> object:
        if len(text) > LONGEST:
            return text  # the models refuse it
        if text.lstrip("+-").isdecimal():
            return int(text)
        try:
            return Decimal(text)
        except ArithmeticError:  # an exponent past what decimal holds
            return text

    def add_problem(self, path: KeyPath, code: str, message: str, hint: str) -> None:
        self.problems.append(Problem(path, code, message, hint))
