"""Places of a module's syntax tree: where some code stands in a definition, and other code in its place."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

Named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.Module | Named
Node = ast.expr | ast.stmt


@dataclass(frozen=True, slots=True)
class Code:
    """One expression, or statements that follow one another, as text and as nodes."""

    text: str
    nodes: Sequence[Node]

    @classmethod
    def read(cls, text: str) -> Code:
        """Python code; what can be an expression is one. Raises SyntaxError."""
        text = textwrap.dedent(text).strip()
        if text:
            try:
                return cls(text, [ast.parse(f"(\n{text}\n)", mode="eval").body])
            except SyntaxError:
                pass
        return cls(text, ast.parse(text).body)

    @property
    def is_expression(self) -> bool:
        """Whether it is one expression, which can stand within a statement."""
        return len(self.nodes) == 1 and isinstance(self.nodes[0], ast.expr)

    def as_statements(self) -> Code:
        """The same code as statements."""
        return Code(self.text, ast.parse(self.text).body) if self.is_expression else self


@dataclass(frozen=True, slots=True)
class Place:
    """Nodes that follow one another; `only` where they are all that a body has."""

    nodes: Sequence[Node]
    only: bool = False


@lru_cache(maxsize=1)  # faults are asked about module by module
def definitions(text: str) -> Sequence[tuple[str, Definition]]:
    """The functions and classes of a module with their qualified names, and the module itself, which has none."""
    module = ast.parse(text)
    return [("", module), *_within(module, "")]


def _within(node: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Named):
            yield prefix + child.name, child
            yield from _within(child, f"{prefix}{child.name}.")
        else:
            yield from _within(child, prefix)


def places(definition: Definition, text: str, code: Code) -> Iterator[Place]:
    """Where a definition holds some code.

    Decorators, defaults, annotations and bases belong to their definition; definitions within it do not. There is no
    place within an f-string, since its pieces have no position of their own.
    """
    for node in _own(definition):
        if code.is_expression:
            if isinstance(node, ast.expr) and same([node], code.nodes):
                yield Place([node])
            continue
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and not _is_elif(body, text):
                for start in range(len(body) - len(code.nodes) + 1):
                    run = body[start : start + len(code.nodes)]
                    if same(run, code.nodes):
                        yield Place(run, len(run) == len(body))


def _own(definition: Definition) -> Iterator[ast.AST]:
    """The definition and its nodes, without those of definitions within it."""
    waiting: list[ast.AST] = [definition]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.JoinedStr):
            waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, Named)]


def _is_elif(body: Sequence[ast.stmt], text: str) -> bool:
    """Whether it is a statement that its own text does not say: `elif` is an `if` in the `else` of another."""
    return len(body) == 1 and isinstance(body[0], ast.If) and text[_span(text, body)[0] :].startswith("elif")


def same(one: Sequence[Node], other: Sequence[Node]) -> bool:
    """Whether two pieces of code are the same but for layout and comments."""
    return [type(node) for node in one] == [type(node) for node in other] and all(
        ast.dump(first) == ast.dump(second) for first, second in zip(one, other, strict=True)
    )


def spliced(text: str, place: Place, code: Code) -> str:
    """The module's text with other code in a place; the lines behind it keep their numbers unless the code is longer."""
    begin, end = _span(text, place.nodes)
    new = code.text or ("pass" if place.only else "")
    missing = "\n" * (text[begin:end].count("\n") - new.count("\n"))
    if code.is_expression:
        return f"{text[:begin]}({new}{missing}){text[end:]}"
    margin = text[text.rfind("\n", 0, begin) + 1 : begin]
    return text[:begin] + textwrap.indent(new, margin).removeprefix(margin) + missing + text[end:]


def _span(text: str, nodes: Sequence[Node]) -> tuple[int, int]:
    """Where the text of nodes begins and ends."""
    first, last = nodes[0], nodes[-1]
    decorators = getattr(first, "decorator_list", [])
    begin = min([first.lineno, *(decorator.lineno for decorator in decorators)])
    if last.end_lineno is None or last.end_col_offset is None:
        raise TypeError("nodes that were parsed have an end")
    return _offset(text, begin, first.col_offset), _offset(text, last.end_lineno, last.end_col_offset)


def _offset(text: str, line: int, column: int) -> int:
    """The place in the text of a line, counted from one, and a column in bytes."""
    lines = text.split("\n")
    within = lines[line - 1].encode()[:column].decode()
    return sum(len(each) + 1 for each in lines[: line - 1]) + len(within)
