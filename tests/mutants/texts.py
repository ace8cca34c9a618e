"""Faults in the bounds on texts and on the work of one row."""

from __future__ import annotations

from .fault import Fault

_CHAINS = "tests/properties/test_text_chains.py"
_SIZES = "tests/functions/test_text_sizes.py"
_GROWTH = "tests/attacks/test_a41_texts_that_grow.py"
_WORK = "tests/attacks/test_a43_work_of_one_row.py"

FAULTS = (
    Fault(
        "texts-of-derived-columns-are-forgotten",
        "dpsql.analysis.text_bounds:_Expressions._named",
        "return found",
        "return Bounded(NO_TEXT)",
        "a text that grows through derived tables is as long as an engine can hold, and fails for one row",
        f"{_CHAINS}::test_texts_of_chains_are_within_their_bounds",
    ),
    Fault(
        "texts-of-statements-are-not-bounded",
        "dpsql.engine.finish:finish",
        "require_bounded_texts(outer, work)",
        "pass",
        "nothing refuses a chain of texts that grow",
        f"{_GROWTH}::test_growth_through_columns_is_refused_for_everybody",
    ),
    Fault(
        "texts-of-unions-are-of-one-side",
        "dpsql.analysis.text_bounds:_Statement._made_columns",
        "one | other",
        "one",
        "a text that grows on the right side of UNION ALL is not seen",
        f"{_CHAINS}::test_texts_of_chains_are_within_their_bounds",
    ),
    Fault(
        "texts-of-windows-are-empty",
        "dpsql.analysis.text_bounds:_Expressions._bounded",
        "Bounded(_of_type(expr.type, [self.of(part).size for part in expr.arguments]))",
        "Bounded(NO_TEXT)",
        "a text that LAG or FIRST_VALUE carries on is not seen",
        f"{_CHAINS}::test_texts_of_chains_are_within_their_bounds",
    ),
    Fault(
        "texts-of-units-are-empty",
        "dpsql.analysis.text_bounds:_Statement._of_groups",
        "[] if item.argument is None else [read.of(item.argument).size]",
        "[]",
        "a text that MAX carries on is not seen",
        f"{_CHAINS}::test_texts_of_chains_are_within_their_bounds",
    ),
    Fault(
        "translated-letters-keep-their-bytes",
        "dpsql.functions.growth:translated",
        "sizes[0].times(max([Fraction(1), *ratios]))",
        "sizes[0]",
        "TRANSLATE makes four bytes of each, unseen",
        f"{_SIZES}::test_a_text_is_no_longer_than_its_entry_says[translate]",
    ),
    Fault(
        "rewritten-groups-are-free",
        "dpsql.functions.growth:rewritten",
        "size.times(1 + references) + constant_size(fixed)",
        "size + constant_size(fixed)",
        "REGEXP_REPLACE repeats what a group has found, unseen",
        f"{_SIZES}::test_a_text_is_no_longer_than_its_entry_says[regexp_replace]",
    ),
    Fault(
        "stored-texts-are-read-whole",
        "dpsql.backends.duckdb.columns:_bounded",
        'f"CASE WHEN {length}({read}) <= {MOST_STORED} THEN {read} END"',
        "read",
        "one person's long text is made longer than DuckDB's texts can be",
        f"{_CHAINS}::test_stored_texts_are_read_bounded",
    ),
    Fault(
        "normalizing-is-linear",
        "dpsql.functions.strings",
        "growth.each_square(40, 8)",
        "growth.each_byte(40)",
        "letters with many marks are put in order in quadratic time",
        f"{_SIZES}::test_a_long_text_takes_no_more_time_than_its_entry_says[nfc_normalize]",
    ),
    Fault(
        "rewriting-every-match-is-linear",
        "dpsql.functions.growth:matched_everywhere",
        "once + sizes[0].most ** 2",
        "once",
        "each match of a*b|a is looked for up to the end of the text",
        f"{_SIZES}::test_a_long_text_takes_no_more_time_than_its_entry_says[regexp_replace_options]",
    ),
    Fault(
        "distances-are-of-whole-texts",
        "dpsql.functions.strings",
        'f"LEFT({{0}}, {MOST_COMPARED})"',
        '"{0}"',
        "one row with a long text takes gigabytes, outside the memory that the engine counts",
        f"{_WORK}::test_distances_are_of_the_first_letters",
    ),
    Fault(
        "work-is-of-one-call",
        "dpsql.analysis.text_bounds:_Expressions._call",
        "work += part.work + part.work if place in expr.function.doubled else part.work",
        "pass",
        "many costly calls in one statement count as the last one",
        f"{_WORK}::test_what_one_row_could_take_is_refused",
    ),
    Fault(
        "states-of-expressions-are-not-counted",
        "dpsql.functions.regex_size:Pattern.work",
        "_STEPS if size <= _FEW and several <= _AMBIGUOUS else _SLOWLY * size",
        "_STEPS",
        "regular expressions with counts take as little as short ones",
        f"{_WORK}::test_what_one_row_could_take_is_refused",
    ),
    Fault(
        "spark-goes-back",
        "dpsql.backends.spark.patterns:_without_going_back",
        'f"(?>.*?{part})"',
        'f"(?:.*?{part})"',
        "LIKE with three % takes time in proportion to the cube of a text",
        "tests/engines/test_spark_functions.py::test_like_does_not_go_back",
    ),
    Fault(
        "texts-of-subqueries-are-empty",
        "dpsql.analysis.text_bounds:_Expressions._scalar",
        "self.statement is None or expr.type not in _TEXTS",
        "True",
        "what is made of the text of a subquery for each row may be of any length",
        f"{_WORK}::test_texts_of_subqueries_have_a_length",
    ),
    Fault(
        "orders-of-windows-are-no-work",
        "dpsql.analysis.text_bounds:_windows",
        "[*expr.arguments, *expr.partition, *(item.expr for item in expr.order)]",
        "[*expr.arguments, *expr.partition]",
        "rows of a unit are put in an order that takes seconds for one of them",
        f"{_WORK}::test_the_order_of_a_window_is_work",
    ),
    Fault(
        "joins-of-one-unit-unbounded",
        "dpsql.analysis.stability:_joined_rows",
        "total += most * len(list(sources(relation)))",
        "pass",
        "a second row of one person is 2^n rows of n joins, and the statement never ends",
        "tests/attacks/test_a43_work_of_one_row.py::test_joins_that_double_with_a_row_are_refused",
    ),
    Fault(
        "keys-of-joins-sought-again",
        "dpsql.analysis.stability:_Rows.key",
        "place not in self._keyed",
        "True",
        "planning n joins of a table with itself takes 2^n steps",
        "tests/attacks/test_a46_plans_that_explode.py::test_growing_statements_are_planned_in_bounded_work",
    ),
)
