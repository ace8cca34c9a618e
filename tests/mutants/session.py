"""Faults of tables of a session and of choices: names that shadow, options that are not read, estimates that are biased."""

from __future__ import annotations

from .fault import Fault

_NAMES = "tests/attacks/test_a08_session_tables.py"
_TABLES = "tests/api/test_session_tables.py"

_REGRESSIONS = "tests/api/test_regression_sql.py"

FAULTS = (
    Fault(
        "rounds-from-the-last-to-the-first",
        "dpsql.engine.expert_choices:ExpertLosses.choose_experts",
        "sorted(range(len(rows)), key=lambda number: rows[number][after - 1])",
        "sorted(range(len(rows)), key=lambda number: -rows[number][after - 1])",
        "a choice among experts sees later losses",
        "tests/api/test_best_expert.py::test_each_round_uses_earlier_losses_only",
    ),
    Fault(
        "rows-of-a-regression-without-their-condition",
        "dpsql.sql.parse.regressions:_MomentSelect.build_moment_query",
        '_fill_template(outer, put, {"from_": origin, "joins": joins, "where": where})',
        '_fill_template(outer, put, {"from_": origin, "joins": joins})',
        "a WHERE beside REGRESS is left out",
        f"{_REGRESSIONS}::test_a_condition_is_one_of_its_rows",
    ),
    Fault(
        "matrices-as-they-were-released",
        "dpsql.engine.postprocess.answer:build_result",
        "project_rows(_build_answer_rows(rows, digits), prepared.matrix_columns)",
        "_build_answer_rows(rows, digits)",
        "a covariance matrix has negative eigenvalues",
        f"{_REGRESSIONS}::test_matrices_are_semidefinite_with_intervals_of_the_releases",
    ),
    Fault(
        "choices-of-the-worst",
        "dpsql.sql.parse.dialect",
        'SPELLINGS: Mapping[str, type[exp.AggFunc]] = {"FAVG": exp.Avg, "MEAN": exp.Avg, "FSUM": exp.Sum, "KAHAN_SUM": exp.Sum, "SUMKAHAN": exp.Sum, "CHOOSE": exp.ArgMax}',
        'SPELLINGS: Mapping[str, type[exp.AggFunc]] = {"FAVG": exp.Avg, "MEAN": exp.Avg, "FSUM": exp.Sum, "KAHAN_SUM": exp.Sum, "SUMKAHAN": exp.Sum, "CHOOSE": exp.ArgMin}',
        "CHOOSE takes what scores least",
        "tests/api/test_choose.py::test_choose_equals_arg_max_and_limit_1",
    ),
    Fault(
        "session-tables-take-the-owners-names",
        "dpsql.api.session_tables:SessionTables._require_free_name",
        "any(normalize_name(each.name) == name for each in self._engine.current.catalog.tables.values())",
        "any(each.name == statement.name for each in self._engine.current.catalog.tables.values())",
        "a table of a session has the name of a private one in capitals",
        f"{_NAMES}::test_statement_is_read_whole_or_refused",
    ),
    Fault(
        "sessions-in-turn-share-tables",
        "dpsql.api.session_tables:SessionTables._require_free_name",
        "not self._is_enabled",
        "False",
        "a server's connection keeps one user's tables for the next",
        f"{_NAMES}::test_successive_sessions_share_no_tables",
    ),
    Fault(
        "columns-of-a-local-table-not-randomised",
        "dpsql.sql.parse.session_statement:_list_item_spans",
        'called = len(item) > 3 and _is_word(item[0], "RANDOMIZE") and item[1].token_type is _OPEN and bool(ends)',
        "called = len(item) > 3 and item[1].token_type is _OPEN and bool(ends)",
        "any call is taken for RANDOMIZE, and its name is left out",
        f"{_NAMES}::test_statement_is_read_whole_or_refused",
    ),
    Fault(
        "options-given-twice",
        "dpsql.sql.parse.session_statement:_read_options",
        "name in found",
        "False",
        "of two losses the last one counts",
        f"{_NAMES}::test_statement_is_read_whole_or_refused",
    ),
    Fault(
        "estimates-with-a-bias",
        "dpsql.results.local_table:LocalStatistics.estimate_sum",
        "(weights - q * weights.sum(axis=axis, keepdims=True)) / (p - q)",
        "weights / (p - q)",
        "answers that are at random are counted",
        f"{_TABLES}::test_an_estimate_has_no_bias",
    ),
    Fault(
        "random-rows-not-in-intervals",
        "dpsql.results.local_table:LocalStatistics.estimate_sum",
        "return found, max(spread, 0.0) ** 0.5, self.table.bound_changed_rows(_ROWS_OFF) * most",
        "return found, 0.0, 0.0",
        "intervals of estimates have no width",
        f"{_TABLES}::test_estimates_are_those_of_the_private_rows",
    ),
)
