"""What refusals say: of the form of a query, of its meaning, or of its size."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import dpsql

FORM = frozenset(
    {
        "aggregate",
        "clause",
        "function",
        "not_a_select",
        "one_statement",
        "syntax",
        "window",
    }
)
"""The query is no sentence of the grammar."""

MEANING = frozenset(
    {
        "ambiguous",
        "best_expert",
        "column",
        "constant",
        "delta_required",
        "distinct",
        "exact_only",
        "fanout",
        "group_by",
        "group_by_unit",
        "hidden_groups",
        "join",
        "list",
        "mode",
        "nested_aggregate",
        "no_aggregate",
        "ordinal",
        "parameter",
        "private_join",
        "private_order",
        "private_window",
        "qualify",
        "regression",
        "relative_target",
        "released_only",
        "reserved_name",
        "sample",
        "set_operation",
        "star",
        "subquery",
        "table",
        "target_error",
        "type",
        "unbounded",
        "unnest",
    }
)
"""Names, types, bounds or values do not fit, whether or not the query is a sentence of the grammar."""

ENGINE = "engine"
"""What an engine cannot do, which tests of the engine show."""
SIZE = frozenset({"too_deep", "too_long"})
"""The query is larger than what is read."""


def raised() -> frozenset[str]:
    """Every code that dpsql.sql, dpsql.analysis, dpsql.planning and what finds a loss refuse with, by their source."""
    root = Path(dpsql.__file__).parent
    files = [path for folder in ("sql", "analysis", "planning") for path in (root / folder).rglob("*.py")]
    # Statements about tables of a session, and SELECTs over them, are no queries of the policy's tables: tests/api has them.
    files = [path for path in files if path.name not in ("session_statement.py", "local_select.py")]
    # What clients ask of the catalogue are no questions of an analyst's.
    files = [path for path in files if path.parent != root / "sql" / "pg_catalog"]
    files += [
        root / f"{name}.py"
        for name in ("engine/accuracy_targets", "policy/request/query", "policy/request/loss")
    ]
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in files)
    calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    return frozenset(code for call in calls for code in _codes(call)) - {ENGINE}


def _codes(call: ast.Call) -> Iterator[str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if "refuse" in name:
        codes = (list(_texts(argument)) for argument in call.args)
        yield from next((found for found in codes if found and all(map(str.isidentifier, found))), [])
    elif name in ("QueryRejected", "DataError"):
        for keyword in call.keywords:
            if keyword.arg == "code":
                yield from _texts(keyword.value)


def _texts(node: ast.expr) -> Iterator[str]:
    """The constant that an expression is, or the two that it chooses from."""
    for part in (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node,):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
