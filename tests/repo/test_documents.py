"""The documents are true: what they point to exists, and everything that should be pointed to is."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

import dpsql

ROOT = Path(__file__).parents[2]
PRIVACY = (ROOT / "PRIVACY.md").read_text(encoding="utf-8")
RULES = range(1, 18)
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
PROGRAM = re.compile(r"`python -m ([\w.]+)`")


def rows(title: str) -> dict[str, str]:
    """The rows of the table under a heading, by their first cell."""
    (_, section) = PRIVACY.split(f"### {title}\n", 1)
    lines = re.split(r"^#", section, maxsplit=1, flags=re.MULTILINE)[0].splitlines()
    cells = [line.strip("| ").split(" | ", 1) for line in lines if line.startswith("| ")]
    found = dict(cells[1:])
    assert len(found) == len(cells) - 1, f"two rows of one name under {title}"
    return found


@cache
def find_tests(path: str) -> dict[str, str]:
    """The tests of a file with their docstrings."""
    assert (ROOT / path).is_file(), f"{path}, which PRIVACY.md names, does not exist"
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {node.name: ast.get_docstring(node) or "" for node in functions if node.name.startswith("test_")}


def attack_files() -> Iterator[tuple[int, str]]:
    """Each file of an attack with the attack's number."""
    for path in sorted((ROOT / "tests/attacks").glob("test_a*.py")):
        found = re.match(r"test_a(\d\d)_", path.name)
        assert found is not None, f"{path.name} is not named after an attack"
        yield int(found[1]), path.relative_to(ROOT).as_posix()


ATTACKS = sorted({*range(1, 41), *(number for number, _ in attack_files())})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("found", sorted(set(TEST.findall(PRIVACY))), ids="::".join)
def test_privacy_names_existing_tests(found: tuple[str, str]) -> None:
    """Each file that PRIVACY.md names holds a test; each function that it names is one."""
    path, function = found
    assert find_tests(path)
    assert not function or function in find_tests(path), f"{path} has no test {function}"


@pytest.mark.parametrize("module", sorted(set(PROGRAM.findall(PRIVACY))))
def test_privacy_names_existing_programs(module: str) -> None:
    """Programs that PRIVACY.md says to run exist."""
    place = ROOT / module.replace(".", "/")
    assert (place / "__main__.py").is_file() or place.with_suffix(".py").is_file()


def test_each_rule_of_soundness_has_a_test() -> None:
    """The rules 1 to 17 have one row each, which names at least one test."""
    found = rows("The rules of soundness")
    assert list(found) == [str(number) for number in RULES]
    for number, row in found.items():
        assert TEST.search(row), f"rule {number} names no test"


def test_each_assumption_of_soundness_has_a_test() -> None:
    """The assumptions of the rules name their tests, too."""
    for part, row in rows("What these rules stand on").items():
        assert TEST.search(row), f"nothing holds: {part}"


def test_each_attack_has_its_files() -> None:
    """A1 to A40 and those found since have files, and each row of PRIVACY.md names exactly the files of its attack."""
    found = rows("What was tried")
    assert list(found) == [f"A{number}" for number in ATTACKS]
    assert set(ATTACKS) >= set(range(1, 41))
    named = {(int(attack[1:]), path) for attack, row in found.items() for path, _ in TEST.findall(row)}
    assert named == set(attack_files())


ATTACKS = sorted({number for number, _ in attack_files()})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", ATTACKS)
def test_each_attack_works_on_a_careless_variant(number: int) -> None:
    """Some test of each attack runs it against a careless variant, where it works."""
    docstrings = [
        text for found, path in attack_files() if found == number for text in find_tests(path).values()
    ]
    assert any("attack works" in text for text in docstrings)


def test_versions_agree() -> None:
    """Both wheels read the version of the package from its one place."""
    for folder in (ROOT, ROOT / "client"):
        project = tomllib.loads((folder / "pyproject.toml").read_text())
        assert project["project"]["dynamic"] == ["version"]
        source = project["tool"]["hatch"]["version"]
        (found,) = re.findall(source["pattern"], (folder / source["path"]).read_text())
        assert found == dpsql.__version__


def test_files_are_short() -> None:
    """A file of over 600 lines wants to be two; a shorter one is split by idea, not by length."""
    long = [path for path in (ROOT / "dpsql").rglob("*.py") if len(path.read_text().splitlines()) > 600]
    assert not long


def test_pre_commit_runs_the_pinned_linter() -> None:
    """The hooks lint and format with the requirement of ruff that the tests and CI install."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (pin,) = (item for item in extras["test"] if item.startswith("ruff"))
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff-check", "ruff-format"]
    assert all(hook["additional_dependencies"] == [pin] for hook in repository["hooks"])
