"""Faults of what a query asks for itself, of other dialects, and of the ends of intervals."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        "unit-of-the-query-trusted",
        "sql/lower.py",
        "if not column.facts.is_unit:",
        "if column is None:",
        "a query names a unit of its own, and believes to be answered for it",
        "tests/sql/test_fixtures.py::test_refusal[options: A column that is not the unit's]",
    ),
    Fault(
        "clause-goes-unheard",
        "prepared.py",
        "return called if written is None else written",
        "return called",
        "a query that asks for less is charged what the connection was told",
        "tests/faces/test_options.py::test_the_clause_goes_before_the_connection_s_epsilon",
    ),
    Fault(
        "ends-swapped",
        "uncertainty.py",
        'high if which == "high" else low for',
        'low if which == "high" else high for',
        "the lower end of an interval is above the upper one",
        "tests/sql/test_interval_ends.py::test_above_a_subquery_they_are_the_same",
    ),
    Fault(
        "remainders-kept",
        "sql/reading.py",
        'if node.args.get("typed") and not any(',
        'if node.args.get("untyped") and not any(',
        "PostgreSQL's 7 / 2 is 3.5",
        "tests/sql/test_dialects.py::test_refusal[postgres: Whole numbers drop the remainder there]",
    ),
    Fault(
        "arguments-of-other-dialects-pass",
        "sql/reading.py",
        "self.source.take(node, *known)",
        "_ = known",
        "what a word after a function or clause says is left out without a word",
        "tests/sql/test_dialects.py::test_refusal[postgres: BETWEEN in either order]",
    ),
    Fault(
        "days-between-in-their-order",
        "sql/reading.py",
        "node.expression, node.this)\n\n\ndef _moved",
        "node.this, node.expression)\n\n\ndef _moved",
        "the days between two dates have the wrong sign",
        "tests/sql/test_dialects.py::test_it_answers_what_the_manual_says[spark: Days between]",
    ),
    Fault(
        "joins-without-limit",
        "sql/parse.py",
        "if waiting > MAX_JOINS:",
        "if waiting > 100 * MAX_JOINS:",
        "a short text keeps the parser busy for years",
        "tests/sql/test_fixtures.py::test_refusal[refused_length: Joins whose conditions are not said]",
    ),
)
