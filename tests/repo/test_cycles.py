"""No module imports another that imports it, however far around, also for types alone or within a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import dpsql

ROOT = Path(dpsql.__file__).parents[1]


def modules() -> Mapping[str, Path]:
    """Each module of the package with its file."""
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in ROOT.glob("dpsql/**/*.py")
    }
    return {name.removesuffix(".__init__"): path for name, path in found.items()}


def imported(source: str, known: Mapping[str, object]) -> Iterator[str]:
    """The modules that a source imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (part if part in known else node.module for part in parts)


def test_modules_import_each_other_in_no_cycle() -> None:
    """The order in which modules could be read one by one."""
    known = modules()
    graph = {
        name: set(imported(path.read_text(encoding="utf-8"), known)) - {name} for name, path in known.items()
    }
    assert len(list(TopologicalSorter(graph).static_order())) == len(known)


def test_import_cycle_is_found() -> None:
    """A cycle is found under TYPE_CHECKING and in a function."""
    known = {"dpsql.a": None, "dpsql.b": None}
    first = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dpsql.b import B\n"
    second = "def f():\n    from dpsql import a\n"
    graph = {
        "dpsql.a": set(imported(first, known)),
        "dpsql.b": set(imported(second, {**known, "dpsql": None})),
    }
    with pytest.raises(CycleError):
        list(TopologicalSorter(graph).static_order())
