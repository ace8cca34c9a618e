"""Words that the package does not use, each with what it says instead: metaphors, and names that hid the field's terms."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import dpsql

PACKAGE = Path(dpsql.__file__).parent
SAY: Mapping[str, str] = {
    "ladder": "clamp target",
    "ladders": "clamp targets",
    "rung": "interval of a clamp histogram",
    "rungs": "clamp histogram",
    "furnish": "create",
    "unsaid": "unverified, unset",
    "standings": "balances",
    "pricing": "loss split",
    "agreeing": "consistency",
    "recalling": "replay",
    "confine": "assign partitions",
}
"""Words of names, docstrings and comments; what to say instead."""
WORD = re.compile(r"[A-Z]?[a-z]+")


def words(source: str) -> Iterator[tuple[int, str]]:
    """Each word of a module's names, docstrings and comments, with its line; other strings are texts or data."""
    docstrings = {
        node.body[0].lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and ast.get_docstring(node, clean=False)
    }
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        docstring = token.type == tokenize.STRING and token.start[0] in docstrings
        if docstring or token.type in (tokenize.NAME, tokenize.COMMENT):
            yield from ((token.start[0], word.lower()) for word in WORD.findall(token.string))


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix()
)
def test_the_package_says_it_in_the_field_s_terms(path: Path) -> None:
    """No module uses a word that the glossary replaces."""
    name = path.relative_to(PACKAGE).as_posix()
    found = [
        f"{name}:{line}: {word}: say {SAY[word]}"
        for line, word in words(path.read_text(encoding="utf-8"))
        if word in SAY
    ]
    assert not found, "\n".join(found)


def test_a_word_is_found_wherever_it_stands() -> None:
    """In a name, a part of a name, a docstring and a comment; not in a text."""
    source = '"""A ladder."""\n\n\ndef f_rung(furnish):\n    return "rungs"  # unsaid\n'
    assert [word for _, word in words(source) if word in SAY] == ["ladder", "rung", "furnish", "unsaid"]
