"""Faults of what the owner and the analyst may say: the policy, the catalogue, options and parameters."""

from __future__ import annotations

from .fault import Fault

_REFUSED = "tests/policy/test_policy_refusals.py::test_a_bad_policy_names_line_key_and_code"

FAULTS = (
    Fault(
        "defaults-taken-for-words",
        "dpsql.policy.load:_dumped",
        "policy.model_dump(warnings=False, exclude_unset=True)",
        "policy.model_dump(warnings=False)",
        "a policy that is loaded again states a data version that its owner has not stated",
        "tests/policy/test_policy_load.py::test_a_model_is_held_to_the_rules_again",
    ),
    Fault(
        "misspelt-keys-ignored",
        "dpsql.policy.tables:Model",
        'ConfigDict(frozen=True, extra="forbid", strict=True, revalidate_instances="always")',
        'ConfigDict(frozen=True, extra="ignore", strict=True, revalidate_instances="always")',
        "a bound with a typo is no bound",
        _REFUSED,
    ),
    Fault(
        "repeated-keys-pass",
        "dpsql.policy.tree:_Reader._mapping",
        "key in entries",
        "not key",
        "the last of two budgets holds",
        "tests/policy/test_policy_refusals.py::test_a_repeated_key_points_at_the_repetition",
    ),
    Fault(
        "numbers-as-floats",
        "dpsql.policy.exact:exact",
        "return _decimal(Decimal(float.__repr__(value)))",
        "return _decimal(Decimal(value))",
        "0.1 is the nearest double",
        "tests/policy/test_policy_exact.py::test_a_float_keeps_its_shortest_text",
    ),
    Fault(
        "delta-of-one-declared",
        "dpsql.policy.fields:_delta",
        "0 <= number < 1",
        "0 <= number <= 1",
        "a budget may protect nobody",
        _REFUSED,
    ),
    Fault(
        "inverted-bounds-pass",
        "dpsql.policy.domain:bounds_of",
        "low > high",
        "low is high",
        "bounds are the wrong way round",
        _REFUSED,
    ),
    Fault(
        "links-to-public-tables",
        "dpsql.policy.links:link_problem",
        "target.public",
        "target.public is None",
        "rows belong to a unit that nobody is",
        _REFUSED,
    ),
    Fault(
        "linked-units-taken-for-direct",
        "dpsql.policy.models:Policy.unit_of",
        'direct = unit.kind == "column" and unit.column is not None and [fold(unit.column)] == keys',
        'direct = unit.kind == "column"',
        "the number of an order is taken for that of a customer",
        "tests/policy/test_policy_models.py::test_the_unit_of_each_table",
    ),
    Fault(
        "own-budget-ignored",
        "dpsql.policy.models:Policy.budget_of",
        "return BudgetSpec.model_validate({**dict(self.budget), **given})",
        "return BudgetSpec.model_validate({**given, **dict(self.budget)})",
        "a table's smaller budget does not hold",
        "tests/policy/test_policy_models.py::test_a_budget_is_merged_key_by_key",
    ),
    Fault(
        "rows-per-unit-guessed",
        "dpsql.policy.table_check:_unit_problems",
        """
        if "rows_per_unit" in given:
            return []
        """,
        """
        if given:
            return []
        """,
        "a bound that the owner forgot is one",
        _REFUSED,
    ),
    Fault(
        "least-frequency-without-delta",
        "dpsql.policy.check:_budget_problems",
        "table.min_frequency > 1",
        "table.min_frequency < 1",
        "groups are hidden by a rule that costs delta, and there is none",
        _REFUSED,
    ),
    Fault(
        "undeclared-columns-exist",
        "dpsql.backends.catalog:_table",
        "table.public",
        "table.columns is not None",
        "an analyst reads columns that the policy does not name",
        "tests/sql/test_fixtures.py::test_refusal[refused_meaning: An undeclared column of the database]",
    ),
    Fault(
        "names-folded-beyond-ascii",
        "dpsql.policy.names:fold",
        "return name.translate(_ASCII_LOWER)",
        "return name.casefold()",
        "the name of one column leads to another",
        "tests/attacks/test_a08_name_games.py::test_names_that_only_unicode_folds_together_stay_apart",
    ),
    Fault(
        "reserved-names-pass",
        "dpsql.backends.catalog:_refuse_reserved",
        'name.startswith("#")',
        'name == "#"',
        "a table of the owner's meets a part of the written SQL",
        "tests/attacks/test_a08_name_games.py::test_names_that_begin_like_the_written_sql_s_own_are_refused",
    ),
    Fault(
        "incomparable-integers-read",
        "dpsql.backends.catalog",
        '(r"U?(TINYINT|SMALLINT|INTEGER|BIGINT)|HUGEINT", Type.INTEGER)',
        '(r"U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)", Type.INTEGER)',
        "a value of a type that the engine compares by a cast fails the query",
        "tests/attacks/test_a05_data_errors.py::test_a_type_beyond_comparison_is_refused_or_read",
    ),
    Fault(
        "least-frequency-of-the-policy-ignored",
        "dpsql.backends.catalog:_contribution",
        "table.min_frequency",
        "1",
        "groups of any size are released",
        "tests/attacks/test_a11_secret_keys.py::test_a_small_department_is_never_shown",
    ),
    Fault(
        "group-limit-of-the-policy-ignored",
        "dpsql.backends.catalog:_contribution",
        "table.max_groups",
        "None",
        "a unit counts in as many groups as it has rows",
        "tests/attacks/test_a23_options.py::test_max_groups_cannot_be_raised",
    ),
    Fault(
        "cap-ignored",
        "dpsql.engine.budgets:require_below",
        "loss > most",
        "loss > 10**40 * most",
        "one query may take the whole budget",
        "tests/api/test_answers.py::test_the_cap_of_a_query",
    ),
    Fault(
        "negative-losses-pass",
        "dpsql.request.loss:amount",
        "exact <= 0",
        "exact == 0",
        "a query with a loss below zero is planned",
        "tests/api/test_pep249.py::test_a_loss_must_be_a_positive_number",
    ),
    Fault(
        "delta-of-one-asked-for",
        "dpsql.request.query:Query.of",
        "probability is not None and probability >= 1",
        "probability is not None and probability > 1",
        "a query may ask for every key",
        "tests/attacks/test_a23_options.py::test_a_delta_of_one_or_more_buys_nothing[1_0]",
    ),
    Fault(
        "parameters-write-themselves",
        "dpsql.request.parameters:_plain",
        "return _PLAIN[kind](value)",
        "return value",
        "an object's own words become SQL",
        "tests/attacks/test_a09_catalogues_and_files.py::test_a_parameter_is_a_value_whatever_it_says_of_itself",
    ),
    Fault(
        "nullable-against-the-schema",
        "dpsql.backends.catalog:_declared",
        "column.nullable if column.says_nullable else spelt not in required",
        "column.nullable",
        "a column that is never NULL has a group of NULL",
        "tests/attacks/test_a10_presence.py::test_the_schema_says_what_is_never_null_where_the_policy_does_not",
    ),
)
