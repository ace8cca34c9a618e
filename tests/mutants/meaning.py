"""Faults of what a statement means, which random statements beside DuckDB must notice."""

from __future__ import annotations

from .fault import Fault

_DIFFERENTIAL = "tests/differential/test_differential.py::test_statements_mean_what_duckdb_means"
_EXTREMES = "tests/differential/test_extremes.py::test_nothing_fails"
_NULL_GROUPS = "tests/properties/test_null_groups.py"
_DETERMINED = "tests/properties/test_determined.py"
_OCCUPIED = "tests/properties/test_occupied_groups.py"

FAULTS = (
    Fault(
        "arithmetic-fails-where-rows-are-dropped",
        "dpsql.backends.duckdb.dialect:DuckDBDialect.call",
        "expr.function.whole if expr.function.whole and expr.type is Type.INTEGER else expr.function.sql",
        "expr.function.sql",
        "an interval makes arithmetic legal that fails on rows that a condition drops",
        _EXTREMES,
    ),
    Fault(
        "products-of-64-bits",
        "dpsql.backends.duckdb.dialect:DuckDBDialect.call",
        "expr.function.whole and expr.type is Type.INTEGER",
        "expr.function.whole and expr.type is Type.INTEGER and expr.function.name != 'multiply'",
        "a product leaves 64 bits for one row",
        _EXTREMES,
    ),
    Fault(
        "distances-of-64-bits",
        "dpsql.sql.emit.quantile_windows:_bin",
        'return f"({at} >> {width})"',
        'return f"(({at} + 4611686018427387904) >> {width})"',
        "the distance of two points leaves 64 bits for one row",
        _EXTREMES,
    ),
    Fault(
        "on-loses-a-conjunct",
        "dpsql.sql.lower.from_clause:_attach",
        "conditions = list(conjuncts(condition(scope, on)))",
        "conditions = list(conjuncts(condition(scope, on)))[:1]",
        "a filter beside the equality in ON is dropped",
        _DIFFERENTIAL,
    ),
    Fault(
        "left-is-inner",
        "dpsql.sql.lower.from_clause:_attach",
        "joined = Attached(alias, JoinKind.LEFT if side else JoinKind.INNER, tuple(conditions), table)",
        "joined = Attached(alias, JoinKind.INNER, tuple(conditions), table)",
        "rows of a LEFT JOIN without a partner are dropped",
        _DIFFERENTIAL,
    ),
    Fault(
        "where-loses-a-conjunct",
        "dpsql.sql.lower.semi_joins:split_where",
        "relation = assemble(scope, [*joined, *items], [*(part for part in plain if part not in across), *on])",
        "relation = assemble(scope, [*joined, *items], [part for part in plain if part not in across][:1])",
        "conditions of WHERE behind the first are dropped",
        _DIFFERENTIAL,
    ),
    Fault(
        "not-in-takes-unknown-for-unequal",
        "dpsql.sql.lower.semi_joins:matching",
        'on = _all([*others, scope.scalars.call(node, "coalesce", _all(equal), TRUE)])',
        "on = _all([*others, _all(equal)])",
        "NOT IN keeps rows that are compared with NULL",
        f"{_DIFFERENTIAL}[3]",
    ),
    Fault(
        "groups-of-nobody-are-averaged",
        "dpsql.postprocess.occupied_groups:occupied",
        "return [place not in empty for place in range(len(table.rows))]",
        "return [True for _ in range(len(table.rows))]",
        "a group of NULL that nobody is in enters averages over groups",
        f"{_NULL_GROUPS}::test_a_group_of_nobody_is_in_no_aggregate_over_groups",
    ),
    Fault(
        "small-groups-that-hold-much-left-out",
        "dpsql.postprocess.occupied_groups:occupied",
        "some and _are_of_nobody(plan, table, sorted(found))",
        "some",
        "days with a few rows each are left out, and with them most rows",
        f"{_OCCUPIED}::test_small_groups_that_hold_much_together_are_all_shown",
    ),
    Fault(
        "noise-alone-shown-as-groups",
        "dpsql.postprocess.occupied_groups:occupied",
        "some and _are_of_nobody(plan, table, sorted(found))",
        "_are_of_nobody(plan, table, sorted(found))",
        "of groups that are all noise the greatest alone are shown",
        f"{_OCCUPIED}::test_where_noise_may_be_all_every_group_is_shown",
    ),
    Fault(
        "listed-groups-left-out",
        "dpsql.analysis.listed_keys:_is_listed",
        "isinstance(expr, Literal) or expr.type is Type.BOOLEAN or stated.get(expr) is not None",
        "isinstance(expr, Literal) or expr.type is Type.BOOLEAN",
        "values that a condition lists are taken for values that follow from bounds",
        f"{_OCCUPIED}::test_groups_that_are_listed_are_all_shown",
    ),
    Fault(
        "sums-of-nobody-are-numbers",
        "dpsql.postprocess.occupied_groups:null_sums",
        "2 * count < whole",
        "False",
        "a sum of nobody is its noise",
        f"{_OCCUPIED}::test_a_sum_of_nobody_is_null_where_its_count_says_so",
    ),
    Fault(
        "sums-beside-a-count-of-zero-are-numbers",
        "dpsql.postprocess.occupied_groups:null_sums",
        "2 * count < whole",
        "count <= 0",
        "a sum stands beside a count that is rounded to 0",
        f"{_OCCUPIED}::test_a_sum_is_null_where_the_count_beside_it_is_not_above_zero",
    ),
    Fault(
        "small-groups-leave-sums",
        "dpsql.sql.emit.outer_query:Copies.grouping",
        "omits = leaves_out(source)",
        "omits = True",
        "people in small groups of NULL are lost to sums over groups",
        f"{_NULL_GROUPS}::test_groups_that_are_added_up_are_all_read",
    ),
    Fault(
        "values-of-one-of-many-rows",
        "dpsql.sql.lower.determined:Determined._look_up",
        "facts.multiplicity(Join(source, source, JoinKind.INNER, theirs)) > 1",
        "facts.multiplicity(Join(source, source, JoinKind.INNER, theirs)) > 2",
        "of two public rows with one key, one is shown for the rows of both",
        f"{_DETERMINED}::test_what_is_not_determined_is_refused",
    ),
    Fault(
        "values-of-rows-with-null-keys",
        "dpsql.sql.lower.determined:Determined._look_up",
        "_place(column) not in joined and self._holds_null(source, column)",
        "False",
        "rows with NULL for a key are taken for rows without a partner",
        f"{_DETERMINED}::test_what_is_not_determined_is_refused",
    ),
    Fault(
        "values-of-rows-that-are-not-joined",
        "dpsql.sql.lower.determined:Determined._look_up",
        "join.also is None",
        "True",
        "rows that a further condition leaves without a partner have its values",
        f"{_DETERMINED}::test_what_is_not_determined_is_refused",
    ),
    Fault(
        "values-of-private-columns",
        "dpsql.sql.lower.determined:Determined._follow",
        "not is_private(source)",
        "True",
        "columns of private rows are looked up as if they were public",
        f"{_DETERMINED}::test_what_is_not_determined_is_refused",
    ),
    Fault(
        "origins-through-joins-of-many-rows",
        "dpsql.plan.provenance:_finds_one_row",
        "{column for _, column in join.on} >= set(right.columns[: len(right.keys)])",
        "True",
        "a join that repeats released rows is taken to keep them",
        f"{_DETERMINED}::test_a_row_has_one_origin_where_it_finds_one_row",
    ),
)
