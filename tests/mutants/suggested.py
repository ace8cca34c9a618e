"""Faults of what a policy is begun with: proposals, and what others' metadata say."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        "proposals-each-at-the-whole-loss",
        "dpsql.interfaces.cli.suggest:_ask_questions",
        "task.loss / len(asked)",
        "task.loss",
        "each column is charged what all together may cost",
        "tests/interfaces/test_suggest.py::test_proposals_cover_most_units_and_share_the_loss",
    ),
    Fault(
        "proposals-of-no-public-range",
        "dpsql.interfaces.suggest:_find_type_range",
        "if spec.type != 'integer':\n    return None",
        "if spec.type == 'varchar':\n    return None",
        "bounds are proposed for a column of which no range is public",
        "tests/interfaces/test_suggest.py::test_a_column_without_public_range_is_refused",
    ),
    Fault(
        "dbt-tests-of-some-rows-decide",
        "dpsql.policy.metadata:_is_partial",
        "'where' in place",
        "'when' in place",
        "a test of some rows lists the values of all",
        "tests/policy/test_metadata.py::test_dbt_metadata_decides_units_bounds_and_values",
    ),
    Fault(
        "changed-data-unnoticed",
        "dpsql.interfaces.cli.check:compare_fingerprints",
        "known['tables'].get(table, found) != found",
        "known['tables'].get(table, found) is None",
        "an owner who changes the data and not its version is not told",
        "tests/interfaces/cli/test_check.py::test_changed_data_of_the_same_version_are_noticed",
    ),
)
