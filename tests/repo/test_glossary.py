"""Words that the package does not use, each with what it says instead, and the glossary that lists the words that it does use."""

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
FUNCTIONS: Mapping[str, str] = {
    "of": "from_…, or parse_…",
    "apart": "a verb with an object, such as split_ranges or is_disjoint",
    "alone": "lock, or is_exclusive",
}
"""Names that no function has, and what to call it instead."""
IRREGULAR = frozenset(
    re.findall(
        r"\w+",
        """begun bought brought built caught chosen done drawn driven fallen forgotten found given gone grown hidden held kept laid
        led left lent lost made meant met paid put said seen sent set shown sold sought spent stood sworn taken thrown told torn
        understood won worn wound woven written""",
    )
)
"""Participles that do not end in -ed."""
TERMS: Mapping[str, str] = {
    "advanced": "advanced composition",
    "sampled": "composition of sampled releases",
    "Reservation.left": "the public interface",
    "Schedule.concentrated": "concentrated differential privacy",
    "Schedule.published": "the published rate",
    "InterruptSafeEvent.set": "as of `threading.Event`",
}
"""Functions whose name is a term of the field, of a standard or of the public interface, each with which."""
GLOSSARY = Path(__file__).parents[2] / "docs" / "explanation" / "glossary.md"
CANON = frozenset(
    re.findall(
        r"\w+",
        """compute_ get_ find_ list_ iterate_ count_ build_ emit_ lower_ parse_ read_ write_ load_ save_ format_ describe_ derive_ bound_
        estimate_ sample_ draw_ charge_ reserve_ refund_ check_ require_ select_ choose_ clamp_ clip_ fold_ match_ render_""",
    )
)
"""Verbs of functions that the glossary must explain."""
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
def test_package_uses_the_terms_of_the_glossary(path: Path) -> None:
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


def test_participle_as_a_name_is_found() -> None:
    """It is found as any kind of name and in a formatted text, not in a docstring."""
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
def test_messages_use_the_terms_of_the_glossary(path: Path) -> None:
    """No message, help text or docstring uses a word that the glossary replaces; SQL names columns as they are stored."""
    name = path.relative_to(PACKAGE).as_posix()
    found = [
        f"{name}:{line}: {word}: say {TEXTS[word]}"
        for line, word in texts(path.read_text(encoding="utf-8"))
        if word in TEXTS and name not in ("ledger/schema.py", "interfaces/cli/ledger.py")
    ]
    assert not found, "\n".join(found)


def test_replaced_word_in_a_text_is_found() -> None:
    """It is found in a part of a formatted text, too, not in a name, a key or a code."""
    source = 'slice = {"slice": f"slice {1} of it"}  # `slice_closed`\n'
    assert [word for _, word in texts(source) if word in TEXTS] == ["slice"]


def test_replaced_word_in_a_name_or_comment_is_found() -> None:
    """It is found in a name, its parts, a docstring and a comment, not in a text."""
    source = '"""A ladder."""\n\n\ndef f_rung(furnish):\n    return "rungs"  # unsaid\n'
    assert [word for _, word in words(source) if word in SAY] == ["ladder", "rung", "furnish", "unsaid"]


def functions(source: str) -> Iterator[tuple[int, str, str]]:
    """Each function of a module: its line, its qualified name, and its name without underscores around it.

    Properties are nouns, and not functions.
    """
    pending: list[tuple[str, ast.AST]] = [("", ast.parse(source))]
    while pending:
        prefix, parent = pending.pop()
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                pending.append((f"{prefix}{node.name}.", node))
            else:
                pending.append((prefix, node))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any(
                ast.unparse(each).endswith("property") for each in node.decorator_list
            ):
                yield node.lineno, f"{prefix}{node.name}", node.name.strip("_")


def is_lone_participle(name: str) -> bool:
    """Whether a name is one word that says what was done."""
    return name in IRREGULAR or ("_" not in name and name.endswith("ed") and not name.endswith("eed"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(PACKAGE).as_posix()
)
def test_functions_are_named_by_verbs(path: Path) -> None:
    """No function is named by a participle alone, by a preposition, or by a word that had several meanings."""
    module = path.relative_to(PACKAGE).as_posix()
    found = [
        f"{module}:{line}: {name}: say {FUNCTIONS.get(name, 'what it does, a verb with an object')}"
        for line, qualified, name in functions(path.read_text(encoding="utf-8"))
        if (name in FUNCTIONS or is_lone_participle(name)) and qualified not in TERMS
    ]
    assert not found, "\n".join(found)


def test_retired_name_of_a_function_is_found() -> None:
    """It is found in every kind of function; a property and a field may be nouns."""
    source = """class Batch:
    ended = 0

    @classmethod
    def of(cls): ...
    def _counted(self): ...
    @property
    def left(self): ...
    @cached_property
    def alone(self): ...
    def succeed(self): ...
    def count_left(self): ...

async def apart():
    def drawn(): ...
"""
    found = {
        qualified for _, qualified, name in functions(source) if name in FUNCTIONS or is_lone_participle(name)
    }
    assert found == {"Batch.of", "Batch._counted", "apart", "apart.drawn"}


def test_allowed_names_are_used() -> None:
    """An exception that nothing needs would admit a name by chance."""
    found = {
        qualified
        for path in PACKAGE.rglob("*.py")
        for _, qualified, _ in functions(path.read_text(encoding="utf-8"))
    }
    assert set(TERMS) <= found, set(TERMS) - found


def read_glossary() -> list[tuple[str, ...]]:
    """The rows of the glossary's tables of terms: term, meaning, and what it is not."""
    rows = re.findall(r"(?m)^\| (.+?) \| (.+?) \| (.+?) \|$", GLOSSARY.read_text(encoding="utf-8"))
    return [row for row in rows if row[0] != "term"]


def test_glossary_has_each_term_once() -> None:
    """Some 120 terms, each with a meaning that is short, and another word than its own that it is not."""
    rows = read_glossary()
    terms = [term for term, _, _ in rows]
    assert len(terms) >= 120
    assert len(set(terms)) == len(terms)
    assert all(len(meaning) <= 120 and other for _, meaning, other in rows)


def test_glossary_names_classes_of_the_package() -> None:
    """A class that is renamed is renamed in the glossary, too."""
    classes = {
        node.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    named = set(re.findall(r"`([A-Z]\w*[a-z]\w*)`", GLOSSARY.read_text(encoding="utf-8")))
    assert len(named) >= 60
    assert named <= classes, named - classes


def test_glossary_explains_the_verbs_of_functions() -> None:
    """Each verb of the canon has a meaning."""
    explained = re.findall(r"(?m)^\| ((?:`\w+_`(?:, )?)+) \| .+ \|$", GLOSSARY.read_text(encoding="utf-8"))
    verbs = {verb for cell in explained for verb in re.findall(r"`(\w+_)`", cell)}
    assert verbs >= CANON, CANON - verbs
