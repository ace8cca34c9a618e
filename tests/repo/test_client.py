"""dpsql-client is a part of the package that needs no other part: the list of its files is closed under imports."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dpsql

ROOT = Path(__file__).parents[2]
_OF_THE_ENGINE = {"dpsql.api.in_process"}
"""What a function imports inside, to say that it is missing."""


def read_project(folder: Path) -> Any:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


WHOLE, CLIENT = read_project(ROOT), read_project(ROOT / "client")
INCLUDED: dict[str, str] = CLIENT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
FILES = {(ROOT / "client" / source).resolve() for source in INCLUDED}


def name_module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_module(path): path for path in FILES}


def find_file(module: str) -> Path | None:
    """The file of a module of this package, or None."""
    found = ROOT.joinpath(*module.split("."))
    return next((each for each in (found.with_suffix(".py"), found / "__init__.py") if each.is_file()), None)


def iterate_imports(path: Path) -> Iterator[str]:
    """The modules that a file imports anywhere, but for its types; of this package they may also be names in a module."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        waiting.extend(ast.iter_child_nodes(node))


Runner = Callable[[str], str]


@pytest.fixture(scope="module")
def run_client(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Runs code in an interpreter that has the client's files and the standard library, and no site-packages."""
    site = tmp_path_factory.mktemp("site")
    for source, place in {"dpsql.py": "dpsql.py", **INCLUDED}.items():
        target = site / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / "client" / source).read_bytes())

    def run(code: str) -> str:
        command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.append({str(site)!r})\n{code}"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    return run


def test_client_holds_what_its_modules_import() -> None:
    """Each module of the package that one in the client's list imports, at its top or in a function, is in the list."""
    for name, path in {**MODULES, "dpsql": ROOT / "client" / "dpsql.py"}.items():
        for module in set(iterate_imports(path)) - _OF_THE_ENGINE:
            file = find_file(module)
            if module.startswith("dpsql.") and file is not None:
                assert file in FILES, f"{name} imports {module}"


def test_client_holds_nothing_else() -> None:
    """Each file of the list is reached from the client's `dpsql.py`, or is the `__init__.py` of a folder of one."""
    waiting, reached = [ROOT / "client" / "dpsql.py"], set[Path]()
    while waiting:
        for module in iterate_imports(waiting.pop()):
            file = find_file(module) if module.startswith("dpsql.") else None
            if file in FILES and file not in reached:
                reached.add(file)
                waiting.append(file)
    reached |= {parent / "__init__.py" for file in reached for parent in file.parents}
    assert reached >= FILES


def test_client_leaves_out_only_folders_that_import_the_engine() -> None:
    """A folder's `__init__.py` is in the list unless it imports modules that are not, and then it has no other use here."""
    for folder in {path.parent for path in FILES} - {ROOT / "dpsql"}:
        own = folder / "__init__.py"
        outside = {
            module
            for module in iterate_imports(own)
            if (file := find_file(module)) is not None and file not in FILES
        }
        assert (own in FILES) == (not outside), own


def test_client_and_its_contract_have_the_same_modules() -> None:
    """The contract on imports is about the modules that the client installs."""
    (contract,) = (
        each for each in WHOLE["tool"]["importlinter"]["contracts"] if each["name"].startswith("Client:")
    )
    sources = contract["source_modules"]
    listed = {name for name, path in MODULES.items() if path.name != "__init__.py"}
    assert {
        name for name in listed if not any(f"{name}.".startswith(f"{each}.") for each in sources)
    } == set()
    assert all(any(f"{name}.".startswith(f"{each}.") for name in listed) for each in sources)


def test_no_path_is_in_both_wheels() -> None:
    """The client installs `dpsql.py` and `dpsql_client/`, which the whole package does not have, and no command."""
    assert all(
        place == f"dpsql_client/{(ROOT / 'client' / source).resolve().relative_to(ROOT / 'dpsql').as_posix()}"
        for source, place in INCLUDED.items()
    )
    assert CLIENT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"] == ["dpsql.py"]
    assert WHOLE["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["dpsql"]
    assert "scripts" not in CLIENT["project"]
    assert not (ROOT / "dpsql.py").exists()
    assert not (ROOT / "dpsql_client").exists()


def test_client_has_the_names_of_the_package(run_client: Runner) -> None:
    """`from dpsql import …` gives the same names from the same modules, but for those that open a database."""

    def read_names(path: Path) -> set[tuple[str | None, str]]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
        return {(node.module, each.name) for node in found for each in node.names}

    whole, client = read_names(ROOT / "dpsql" / "__init__.py"), read_names(ROOT / "client" / "dpsql.py")
    assert whole - client == {
        ("dpsql.api.connection", "Connection"),
        ("dpsql.api.opening", "SharedLedger"),
    }
    assert client - whole == {
        ("pathlib", "Path"),
        ("typing", "NoReturn"),
        ("dpsql.version", "write_pip_command"),
    }
    names = json.loads(run_client("import dpsql, json; print(json.dumps(dpsql.__all__))"))
    assert set(names) == set(dpsql.__all__) - {"Connection", "SharedLedger"}


def test_extras_and_pythons_of_the_client_are_those_of_the_package() -> None:
    """What an extra installs does not depend on the wheel, and both are for the same versions of Python."""
    extras = CLIENT["project"]["optional-dependencies"]
    assert extras == {name: WHOLE["project"]["optional-dependencies"][name] for name in extras}
    assert CLIENT["project"]["requires-python"] == WHOLE["project"]["requires-python"]
    assert CLIENT["project"]["dependencies"] == []


def test_every_module_of_the_client_imports_without_any_library(run_client: Runner) -> None:
    """With the standard library alone, each module loads, and nothing of the package loads that is not in the list."""
    code = f"import importlib, json\nfor name in {sorted(MODULES)!r}: importlib.import_module(name)\n"
    code += "print(json.dumps([name for name in sys.modules if name.startswith('dpsql')]))"
    loaded = set(json.loads(run_client(code)))
    parents = {name.rpartition(".")[0] for name in MODULES} | {"dpsql", "dpsql.privacy.accounting"}
    assert set(MODULES) <= loaded <= set(MODULES) | parents


def test_remote_connection_of_the_whole_package_loads_no_engine() -> None:
    """`dpsql.connect("https://…")` loads neither the engine's modules nor numpy, DuckDB or the parser there, either."""
    code = "import dpsql, json, sys; dpsql.connect('http://localhost:1', token='dpsql_0_0')\n"
    code += "print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(json.loads(ran.stdout))
    assert loaded.isdisjoint({"duckdb", "numpy", "scipy", "sqlglot", "sqlalchemy", "dpsql.engine"})
