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
    "seal": "lock down, digest",
}
"""Words of names, docstrings and comments; what to say instead."""
TEXTS: Mapping[str, str] = {"slice": "reservation", "slices": "reservations"}
"""Words of texts of several words, docstrings among them. Stored columns, keys and codes keep their names."""
PARTICIPLES = frozenset({"told", "kept", "shown"})
"""Names that say what was done and not what there is: a name is the noun that is meant (records, listed columns, notices)."""
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


@pytest.mark.sampled(1)
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


def names(source: str) -> Iterator[tuple[int, str]]:
    """Each name of a module, without leading underscores, with its line; those in formatted texts too."""
    for node in ast.walk(ast.parse(source)):
        found = {
            ast.Name: "id",
            ast.arg: "arg",
            ast.Attribute: "attr",
            ast.keyword: "arg",
            ast.FunctionDef: "name",
            ast.ClassDef: "name",
        }.get(type(node))
        name = getattr(node, found) if found else None
        if name is not None:
            yield getattr(node, "lineno", 0), name.lstrip("_").lower()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix()
)
def test_no_participle_is_a_name(path: Path) -> None:
    """No variable, argument, attribute, function or class is named by a participle alone."""
    module = path.relative_to(PACKAGE).as_posix()
    found = [
        f"{module}:{line}: {name}"
        for line, name in names(path.read_text(encoding="utf-8"))
        if name in PARTICIPLES
    ]
    assert not found, "\n".join(found)


def test_a_participle_is_found_wherever_it_is_a_name() -> None:
    """As a variable, an argument, an attribute, a method and a class, and in a formatted text; not in a docstring."""
    source = """class Shown:
        def _kept(self, told):
            'what is kept'
            return f"{self.shown} {told}"
    """
    found = sorted(name for _, name in names(source) if name in PARTICIPLES)
    assert found == ["kept", "shown", "shown", "told", "told"]


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Each word of a module's texts that have several, with its line; names with underscores are one word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from ((node.lineno, word.lower()) for word in re.findall(r"\w+", node.value))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix()
)
def test_messages_say_it_in_the_field_s_terms(path: Path) -> None:
    """No message, help text or docstring uses a word that the glossary replaces; SQL names columns as they are stored."""
    name = path.relative_to(PACKAGE).as_posix()
    found = [
        f"{name}:{line}: {word}: say {TEXTS[word]}"
        for line, word in texts(path.read_text(encoding="utf-8"))
        if word in TEXTS and name not in ("ledger/migration.py", "cli/owner_actions.py")
    ]
    assert not found, "\n".join(found)


def test_a_word_of_a_text_is_found() -> None:
    """In a part of a formatted text too; not in a name, a key or a code."""
    source = 'slice = {"slice": f"slice {1} of it"}  # `slice_closed`\n'
    assert [word for _, word in texts(source) if word in TEXTS] == ["slice"]


def test_a_word_is_found_wherever_it_stands() -> None:
    """In a name, a part of a name, a docstring and a comment; not in a text."""
    source = '"""A ladder."""\n\n\ndef f_rung(furnish):\n    return "rungs"  # unsaid\n'
    assert [word for _, word in words(source) if word in SAY] == ["ladder", "rung", "furnish", "unsaid"]
