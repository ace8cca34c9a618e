"""Faults of proposals for a policy."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        "proposals-each-at-the-whole-loss",
        "dpsql.cli.suggest:suggest",
        "Fraction(loss) / len(asked)",
        "Fraction(loss)",
        "each column is charged what all together may cost",
        "tests/suggest/test_suggest.py::test_proposals_hold_what_most_have_and_are_charged_in_all",
    ),
    Fault(
        "proposals-of-no-public-range",
        "dpsql.suggest.questions:_range",
        "if spec.type != 'integer':\n    return None",
        "if spec.type == 'varchar':\n    return None",
        "bounds are proposed for a column of which no range is public",
        "tests/suggest/test_suggest.py::test_a_range_is_public_or_there_is_none",
    ),
)
