"""An aggregate is one file: what lists aggregates is made from the registry."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

import dpsql
from dpsql.interfaces.shell.completion import list_functions
from dpsql.plan.aggregates.windows import OVER
from dpsql.sql.lower.aggregates import AGGREGATE_CALLS, iterate_distinct_spellings
from dpsql.sql.parse.parse import parse_statement

PACKAGE = Path(dpsql.__file__).parent
ROOT = PACKAGE.parent
NAMES = {name for entry in AGGREGATE_CALLS for name in entry.names}
WORDS = {"ENTROPY", "LIST"}
"""Names that are words of other things, too."""
ALLOWED = {
    "backends/postgres/dialect.py": (
        {
            "ARG_MAX",
            "ARG_MIN",
            "ARRAY_AGG",
            "AVG",
            "MAX",
            "MEDIAN",
            "MIN",
            "QUANTILE_CONT",
            "QUANTILE_DISC",
        },
        "names of exact aggregates that PostgreSQL has otherwise, or not of all types; and its SQL",
    ),
    "backends/dialect.py": ({"BOOL_AND", "COUNT", "SUM"}, "the engine's SQL"),
    "backends/spark/dialect.py": (
        {"ARG_MAX", "ARG_MIN", "AVG", "MEDIAN", "QUANTILE_CONT", "QUANTILE_DISC", "SUM"},
        "names of exact aggregates that Spark has otherwise",
    ),
    "analysis/number_types.py": ({"SUM"}, "the name of an exact aggregate, in a plan"),
    "backends/duckdb/guesses.py": ({"COUNT"}, "the engine's SQL"),
    "interfaces/cli/times.py": ({"MIN"}, "minutes"),
    "plan/functions/growth.py": ({"COUNT"}, "the name of a group of a regular expression"),
    "plan/functions/strings.py": ({"COUNT"}, "the argument of LEFT and RIGHT"),
    "privacy/local.py": ({"MEAN"}, "the name of an estimate"),
    "ledger/tables.py": ({"LAST"}, "the last entries of an account"),
    "privacy/mechanisms/gaussian.py": ({"VARIANCE"}, "that of the noise"),
    "plan/provenance.py": ({"MIN", "MAX"}, "names of exact aggregates, in a plan"),
    "plan/text.py": ({"COUNT"}, "the name of a window function, in a plan"),
    "engine/postprocess/empty_groups.py": ({"COUNT"}, "the name of a statistic, in a plan"),
    "plan/smooth.py": ({"AVG", "SUM"}, "names of window functions and of exact aggregates, in a plan"),
    "interfaces/server/settings.py": ({"MIN", "MODE"}, "a minute, and a word of SET"),
    "sql/lower/ranked_quantiles.py": ({"COUNT"}, "the name of a window function, in a plan"),
    "sql/parse/typed_calls.py": ({"MEAN"}, "names of functions, as their dialects write them"),
    "sql/parse/translate_types.py": (
        {"MAX", "MIN", "SUM"},
        "names of functions, as their dialects write them, and of minutes",
    ),
    "verification/calls.py": ({"MAX"}, "the engine's SQL"),
    "interfaces/server/protocol/cursors.py": ({"COUNT", "FIRST", "LAST"}, "the engine's SQL"),
    "backends/clickhouse/dialect.py": (
        {"ARG_MAX", "ARG_MIN", "AVG", "COUNT", "MEDIAN", "MIN", "QUANTILE_CONT", "QUANTILE_DISC", "SUM"},
        "the engine's SQL",
    ),
    "sql/lower/row_positions.py": ({"COUNT"}, "the name of a window function, in a plan"),
    "sql/compile/unit_windows.py": ({"COUNT"}, "the name of a window function, in a plan"),
    "sql/compile/outer_query.py": ({"SUM"}, "the name of an exact aggregate, in a plan"),
    "sql/compile/compiler.py": (
        {"AVG", "COUNT", "FIRST", "LAST"},
        "names of window functions, in a plan; and NULLS FIRST",
    ),
    "interfaces/suggest.py": ({"QUANTILE_CONT", "QUANTILE_DISC"}, "what it asks, as SQL"),
    "sql/compile/contribution_bounds.py": ({"SUM"}, "the engine's SQL"),
    "engine/notices.py": ({"COUNT"}, "what to write, in a notice"),
    "sql/compile/joint_intervals.py": ({"SUM", "MAX"}, "the engine's SQL"),
    "sql/compile/per_unit_aggregates.py": (
        {"ARG_MAX", "COUNT", "MIN", "MAX", "QUANTILE_DISC"},
        "names of exact aggregates and windows, in a plan; and a hint",
    ),
    "sql/compile/statement.py": ({"COUNT", "SUM"}, "the engine's SQL"),
    "sql/pg_catalog/functions.py": (
        {"ARRAY_AGG", "BOOL_AND", "BOOL_OR", "COUNT", "MAX", "MIN", "STRING_AGG", "SUM"},
        "what clients may call in queries of the catalogue",
    ),
    "sql/lower/coarse_groups.py": (
        {"AVG", "COUNT", "MAX", "MEDIAN", "MIN", "SUM"},
        "names of exact aggregates, in a plan",
    ),
    "sql/lower/correlated_subqueries.py": ({"COUNT"}, "what names of exact aggregates begin with, in a plan"),
    "sql/lower/release_builder.py": ({"MAX"}, "the name of an exact aggregate, in a plan"),
    "sql/lower/grouping.py": ({"AVG", "COUNT"}, "a hint"),
    "sql/lower/quantified_comparisons.py": ({"COUNT", "MIN", "MAX"}, "names of exact aggregates, in a plan"),
    "sql/lower/unknown_syntax.py": ({"AVG", "SUM"}, "aggregates whose hint says what to count instead"),
    "sql/lower/windows.py": ({"COUNT"}, "the name of a window function, in a plan"),
    "sql/parse/dialect.py": (None, "a table of the parser: which calls are aggregates, dpsql's or not"),
    "sql/regression.py": ({"AVG", "COVAR_POP", "VAR_POP"}, "the query that it writes"),
    "sql/parse/translate_nodes.py": ({"COUNT"}, "an argument of FETCH"),
    "sql/parse/translate_calls.py": ({"CHOOSE", "MEAN", "QUANTILE"}, "what other dialects have otherwise"),
    "sql/parse/translate.py": ({"STRING_AGG"}, "what other dialects have otherwise"),
    "sql/parse/translate_aggregates.py": ({"KURTOSIS_POP", "MAX"}, "what they mean in DuckDB's SQL"),
    "sql/parse/translate_buckets.py": ({"MIN"}, "a name of minutes"),
    "sql/parse/counted_limits.py": ({"COUNT"}, "what LIMIT with a percentage counts"),
    "sql/parse/rejection.py": ({"FIRST", "LAST"}, "words of a clause, which a refusal quotes"),
    "sql/parse/parse.py": (
        {"QUANTILE", "QUANTILE_CONT", "QUANTILE_DISC"},
        "calls of which the parser drops an argument in silence",
    ),
}
"""Where else a name may stand as a literal, which names, and why."""


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    """The names of docs/generate.py."""
    return runpy.run_path(str(ROOT / "docs" / "generate.py"))


def _literals(path: Path) -> set[str]:
    """The names of aggregates that are literals in a file, whole or as a call that begins."""
    texts = (
        node.value for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Constant)
    )
    return {text.upper().strip("()") for text in texts if isinstance(text, str)} & (NAMES - WORDS)


def test_aggregate_names_are_in_the_registries_only() -> None:
    """No aggregate's name is a literal outside the registries, except for listed reasons."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE).as_posix()
        if not place.startswith(("sql/lower/aggregates/", "plan/aggregates/")):
            found[place] = _literals(path)
    for place, names in found.items():
        allowed, _ = ALLOWED.get(place, (set(), ""))
        assert allowed is None or names == allowed, place
    assert set(ALLOWED) <= set(found)


def test_registry_files_share_no_name() -> None:
    """Two files of the registry have no name in common, except names of statistics, which are small."""
    seen: dict[str, str] = {}
    for path in (PACKAGE / "sql" / "lower" / "aggregates").glob("*.py"):
        texts = (
            node.value
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Constant)
        )
        for text in {text for text in texts if text in NAMES}:
            assert seen.setdefault(text, path.name) == path.name, text
    assert {"SUM", "CORR", "MODE", "HISTOGRAM"} <= set(seen)


def test_grammar_has_the_aggregate_names(generator: dict[str, Any]) -> None:
    """The words for aggregates in the grammar are the registry's, each in the terminal of its form."""
    text = (ROOT / "grammars" / "query.lark").read_text(encoding="utf-8")
    assert text == generator["grammar"](), "run: python docs/generate.py"
    _, _, part = text.partition("// aggregates: generated")
    terminals = dict(re.findall(r"(?m)^(\w+)\.2: /\(([a-z0-9_|]+)\)\(", part.partition("// end")[0]))
    forms = {form for entry in AGGREGATE_CALLS for form in entry.forms}
    assert set(terminals) == {form.terminal for form in forms}
    for terminal, words in terminals.items():
        named = {name.lower() for form in forms if form.terminal == terminal for name in form.names}
        assert set(words.split("|")) == named
        assert re.search(rf"\b{terminal}\b", text.partition("// aggregates: generated")[0]), (
            "no rule reads it"
        )


def test_completion_has_the_aggregate_names() -> None:
    """The shell offers each aggregate of the registry, and no other."""
    offered = {text.partition("(")[0] for text in list_functions()}
    assert {name for entry in AGGREGATE_CALLS for _, name in iterate_distinct_spellings(entry)} <= offered
    windows = {entry.signature.partition("(")[0] for entry in OVER.values()}
    moments = {"REGRESS", "COVAR_MATRIX"}  # which are read as queries over aggregates
    assert {name for name in offered - windows - moments if _is_aggregate(name)} <= NAMES


def _is_aggregate(name: str) -> bool:
    try:
        query = parse_statement(f"SELECT {name}(x) FROM t").query
    except dpsql.Error:
        return False
    return any(isinstance(node, exp.AggFunc) for node in query.walk())


def test_documents_have_the_aggregate_names(generator: dict[str, Any]) -> None:
    """The tables of the SQL reference have a line for each aggregate by each name, and what it is."""
    table = generator["aggregates"]()
    for entry in AGGREGATE_CALLS:
        for _, name in iterate_distinct_spellings(entry):
            assert f"\n| `{name}(" in table, name
        assert f"\n| `{entry.signature}` | {entry.says} |" in table
