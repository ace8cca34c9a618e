"""The hints of all refusals, found in the source of what reads, analyses and plans a query.

A hint is what the parameter `hint` of a call gets. Names, conditions, tables and functions that it is made of are followed to
the texts that they hold; a part that is only known when a query is refused stands for any text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeVar

import dpsql

_ROOMS = ("sql", "analysis", "planning", "plan", "policy/request", "engine")
_RAISED = frozenset({"QueryRejected", "DataError", "ProgrammingError", "LossError"})
"""Errors whose hint is a keyword."""
_PASSED_ON = frozenset({"hint", "instead", "known"})
"""Parameters whose callers are looked at instead, and lists of names that follow no template."""
Item = TypeVar("Item")
_DEPTH = 12
_SQL = re.compile(r"\b[A-Z][A-Z_]{2,}\b|\b(?:AS|BY|IN|IS|ON|OR)\b")
_NO_SQL = frozenset({"NULL", "NAME", "VALUE", "UTC", "NUL", "SQL"})


@dataclass(frozen=True, slots=True)
class Hint:
    """A hint as the source has it: its texts, and None for each part that is only known with a query."""

    place: str
    parts: tuple[str | None, ...]

    def __str__(self) -> str:
        return "".join("…" if part is None else part for part in self.parts)

    @property
    def quotes(self) -> bool:
        """Whether it quotes SQL: a key word, in capitals."""
        return any(word not in _NO_SQL for part in self.parts if part for word in _SQL.findall(part))

    def says(self, text: str) -> bool:
        """Whether a refusal's hint is this one, alone or as one of several alternatives."""
        pattern = "".join(".*" if part is None else re.escape(part) for part in self.parts)
        return re.search(f"(?:^|; or, ){pattern}(?:$|; or, )", text, re.DOTALL) is not None


@cache
def hints() -> tuple[Hint, ...]:
    """Every hint of the rooms that a query passes through, each once, in the order of files."""
    root = Path(dpsql.__file__).parent
    files = [path for room in _ROOMS for path in sorted((root / room).rglob("*.py"))]
    files = [path for path in files if path.parent != root / "sql" / "catalogue"]
    source = _Source.of({str(path.relative_to(root)): ast.parse(path.read_text("utf-8")) for path in files})
    found = {str(hint): hint for hint in source.hints()}
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class _Source:
    """Modules, with their constants and functions by name: in a module, else anywhere."""

    modules: dict[str, ast.Module]
    constants: dict[str, list[tuple[str, ast.expr]]] = field(default_factory=dict)
    functions: dict[str, list[tuple[str, ast.FunctionDef]]] = field(default_factory=dict)

    @classmethod
    def of(cls, modules: dict[str, ast.Module]) -> _Source:
        source = cls(modules)
        for name, module in modules.items():
            for node in ast.walk(module):
                if isinstance(node, ast.FunctionDef):
                    source.functions.setdefault(node.name, []).append((name, node))
                elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    for target in targets:
                        if isinstance(target, ast.Name):
                            source.constants.setdefault(target.id, []).append((name, node.value))
        return source

    def hints(self) -> Iterator[Hint]:
        for name, module in self.modules.items():
            for node in ast.walk(module):
                if isinstance(node, ast.Call):
                    for argument in self._hint_of(name, node):
                        for parts in self._texts(name, argument):
                            yield Hint(f"{name}:{node.lineno}", tuple(_split(parts)))

    def _hint_of(self, module: str, call: ast.Call) -> Iterator[ast.expr]:
        called = _name(call.func)
        yield from (keyword.value for keyword in call.keywords if keyword.arg == "hint")
        if called in _RAISED:
            return
        for _, function in _nearest(self.functions.get(called, ()), module):
            names = [argument.arg for argument in function.args.args if argument.arg not in ("self", "cls")]
            if "hint" in names and len(call.args) > names.index("hint"):
                yield call.args[names.index("hint")]
                return

    def _texts(self, module: str, node: ast.expr, depth: int = 0) -> Iterator[tuple[str | None, ...]]:
        """What an expression may be."""
        match node:
            case _ if depth > _DEPTH:
                yield (None,)
            case ast.Constant(value=str() as text):
                yield (text,)
            case ast.JoinedStr(values=values):
                yield tuple(
                    part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else None
                    for part in values
                )
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                for first in self._texts(module, left, depth + 1):
                    yield from ((*first, *second) for second in self._texts(module, right, depth + 1))
            case ast.BinOp(left=left):
                yield from ((*first, None) for first in self._texts(module, left, depth + 1))
            case ast.Call():
                yield from self._called(module, node, depth + 1)
            case _:
                for part in self._parts(module, node):
                    yield from self._texts(module, part, depth + 1)

    def _parts(self, module: str, node: ast.expr) -> Iterator[ast.expr]:
        """The expressions that one may be: the sides of a condition, the values of a table, a constant's."""
        match node:
            case ast.IfExp(body=body, orelse=orelse):
                yield from (body, orelse)
            case ast.BoolOp(values=values):
                yield from values
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    yield value.args[-1] if key is None and isinstance(value, ast.Call) else value
            case ast.Tuple(elts=[*_, last]):
                yield last
            case ast.Subscript(value=value):
                yield value
            case ast.Name(id=name) if name not in _PASSED_ON:
                yield from (value for _, value in _nearest(self.constants.get(name, ()), module))

    def _called(self, module: str, call: ast.Call, depth: int) -> Iterator[tuple[str | None, ...]]:
        name = _name(call.func)
        if name in ("get", "format") and isinstance(call.func, ast.Attribute):
            yield from self._texts(module, call.func.value, depth)
        if name in ("get", "alternatives"):
            for argument in call.args[name == "get" :]:
                yield from self._texts(module, argument, depth)
            return
        if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) != "self":
            yield (None,)
            return
        for where, function in _nearest(self.functions.get(name, ()), module):
            for node in ast.walk(function):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield from self._texts(where, node.value, depth)


def _split(parts: tuple[str | None, ...]) -> Iterator[str | None]:
    """The parts, of which names in braces are filled in once a query is refused."""
    for part in parts:
        if part is None:
            yield None
        else:
            pieces = re.split(r"\{name\}", part)
            for place, piece in enumerate(pieces):
                yield from (None, piece) if place else (piece,)


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _nearest(found: Sequence[tuple[str, Item]], module: str) -> list[tuple[str, Item]]:
    """Those of the module, or all where it has none."""
    return [each for each in found if each[0] == module] or list(found)
