"""Faults of whose a row is: joins, matching, links, groups and set operations within a privacy unit."""

from __future__ import annotations

from .fault import Fault

_A24 = "tests/attacks/test_a24_released_keys.py"
_APART = "tests/sql/test_units.py::test_units_with_similar_ids_stay_distinct"
_CHANCE = "tests/sql/test_units.py::test_ids_of_different_tables_do_not_match"
_LINKS = "tests/sql/test_declared_links.py"
_ONCE = "tests/sql/test_distinct_rows.py"
_MIXED = "tests/sql/test_boundary.py::test_mixing_rows_of_units_is_refused"
_SMALL = "tests/attacks/test_a21_small_groups.py"

FAULTS = (
    Fault(
        "rows-of-two-tables-are-one-unit",
        "dpsql.sql.compile.relations:_SelectBlock._emit_scan",
        "unit = self.compiler.dialect.hashes.emit_row_id(values, self.before)",
        "unit = self.compiler.dialect.hashes.emit_row_id(values)",
        "equal rows of two tables, repeated by a join, are bounded together",
        "tests/properties/test_row_unions.py::test_all_rows_of_a_union_count_as_in_duckdb",
    ),
    Fault(
        "a-row-on-both-sides",
        "dpsql.plan.nodes:SetOperation.__post_init__",
        "once = len({scan.table for scan in scanned}) == len(scanned)",
        "once = True",
        "a plan whose rows are on both sides of a union is built, and a unit counts as one row",
        "tests/analysis/test_stability.py::test_rows_that_are_units_are_on_one_side",
    ),
    Fault(
        "one-side-bounds-both",
        "dpsql.analysis.stability:_RowBounds._bound_relation_rows",
        "max(sides) if _has_row_units(relation) else sum(sides)",
        "max(sides)",
        "a unit with an id has the rows of one side of a union alone",
        "tests/analysis/test_stability.py::test_bounds_follow_joins_keys_and_limits",
    ),
    Fault(
        "private-tables-join-on-anything",
        "dpsql.sql.lower.joins:_JoinBuilder._resolve_private_join",
        "not (same or covers_declared_link(on)) or UnitKind.ROW in units",
        "not on or UnitKind.ROW in units",
        "two people's rows are joined where some column is equal",
        _CHANCE,
    ),
    Fault(
        "clamped-ids-prove-the-unit",
        "dpsql.sql.lower.joins:_JoinBuilder._resolve_private_join",
        "isinstance(ours, Column) and ours.facts.is_read_verbatim and theirs.facts.is_read_verbatim",
        "isinstance(ours, Column)",
        "people whose ids are clamped to one value are joined",
        _APART,
    ),
    Fault(
        "ids-of-two-types-identify",
        "dpsql.sql.lower.joins:has_same_identity",
        """
        isinstance(ours, Column)
        and ours.facts.identity is not None
        and ours.facts.identity == theirs.facts.identity
        and ours.type is theirs.type
        """,
        """
        isinstance(ours, Column)
        and ours.facts.identity is not None
        and ours.facts.identity == theirs.facts.identity
        """,
        "ids that differ are equal once they are converted",
        "tests/attacks/test_a12_identities.py::test_ids_of_two_types_are_not_matched",
    ),
    Fault(
        "ids-of-two-tables-identify",
        "dpsql.sql.lower.joins:has_same_identity",
        """
        isinstance(ours, Column)
        and ours.facts.identity is not None
        and ours.facts.identity == theirs.facts.identity
        and ours.type is theirs.type
        """,
        "isinstance(ours, Column) and ours.facts.identity is not None and ours.type is theirs.type",
        "the number of a visit is taken for that of a person",
        _CHANCE,
    ),
    Fault(
        "a-part-of-a-link-is-enough",
        "dpsql.sql.lower.joins:covers_declared_link",
        "found == set(keys)",
        "bool(found)",
        "rows are joined on one of the columns of a key, which many units share",
        f"{_LINKS}::test_joins_without_a_declared_link_are_refused",
    ),
    Fault(
        "a-link-of-two-rows",
        "dpsql.sql.lower.joins:covers_declared_link",
        "(ours.source, theirs.source, table, keys)",
        "('', theirs.source, table, keys)",
        "the columns of a key are taken from two rows",
        f"{_LINKS}::test_joins_without_a_declared_link_are_refused",
    ),
    Fault(
        "a-link-of-two-rows-of-a-derived-table",
        "dpsql.sql.lower.derived_tables:_derive_link_keys",
        "sum(map(is_private, iterate_sources(relation))) == 1",
        "sum(map(is_private, iterate_sources(relation))) >= 1",
        "the columns of a key are taken from two rows that a derived table has joined",
        f"{_LINKS}::test_joins_without_a_declared_link_are_refused",
    ),
    Fault(
        "parts-of-a-link-of-two-rows",
        "dpsql.sql.lower.derived_tables:_derive_link_keys",
        "alone or len(part[1]) == 1",
        "alone or len(part[1]) > 0",
        "the columns of a key are taken from two rows that a derived table has joined",
        f"{_LINKS}::test_joins_without_a_declared_link_are_refused",
    ),
    Fault(
        "a-link-proves-the-unit",
        "dpsql.sql.lower.joins:_JoinBuilder._resolve_private_join",
        "return right, False",
        "return right, covers_declared_link(on)",
        "units are not compared where a declared link is, so that a false declaration joins people",
        f"{_LINKS}::test_false_declaration_joins_no_rows_of_different_units",
    ),
    Fault(
        "a-unit-found-by-a-part-of-its-link",
        "dpsql.sql.compile.relations:_emit_owned_table",
        "enumerate(link.pairs)",
        "enumerate(link.pairs[:1])",
        "a row belongs to whoever has the first column of its key",
        "tests/properties/test_linked.py::test_rows_without_an_owner_do_not_count",
    ),
    Fault(
        "joined-rows-of-other-units",
        "dpsql.sql.compile.relations:_SelectBlock.emit_relation",
        "not relation.proven",
        "relation.proven",
        "the engine is not told that joined rows must be of one unit",
        _APART,
    ),
    Fault(
        "matched-rows-of-other-units",
        "dpsql.sql.compile.relations:_SelectBlock._emit_semi_join",
        'on.append(f"{name_unit_column(relation.right)} = {name_unit_column(relation.input)}")',
        'on.append(f"{name_unit_column(relation.right)} IS NOT NULL")',
        "EXISTS and IN look at other people's rows",
        _APART,
    ),
    Fault(
        "ids-clamped-before-they-are-told-apart",
        "dpsql.backends.duckdb.dialect:DuckDBColumns.emit_unit_id",
        "return self.emit_stored_column(unit) if whole else self.emit_widened_column(unit)",
        "return self.emit_bounded_column(unit)",
        "people whose ids are beyond the bounds are one unit",
        _APART,
    ),
    Fault(
        "owner-looked-up-by-the-wrong-column",
        "dpsql.sql.compile.relations:_emit_owner_table",
        'f"{compiler.dialect.columns.emit_widened_column(key)} AS {_name_key_column(place)}"',
        'f"{unit} AS {_name_key_column(place)}"',
        "a linked row belongs to whoever's id equals its link",
        "tests/sql/test_units.py::test_linked_row_belongs_to_the_unit_of_its_link",
    ),
    Fault(
        "matching-other-people",
        "dpsql.sql.lower.semi_joins:_check_same_unit",
        "is_private(relation) and (same or (covers_declared_link(pairs) and not _has_row_units(relation, right)))",
        "is_private(relation)",
        "a row is kept because of anybody's row",
        _CHANCE,
    ),
    Fault(
        "row-units-in-set-operations",
        "dpsql.sql.lower.derived_tables:_check_row_units",
        "len(tables) < len(scans)",
        "False",
        "one row that is read twice is two units",
        _MIXED,
    ),
    Fault(
        "distinct-rows-of-nobody",
        "dpsql.sql.lower.derived_tables:is_identified",
        "any(find_identity(column, source) is not None for column in source.columns)",
        "bool(source.columns)",
        "distinct rows of all people together are each one's own",
        "tests/sql/test_fixtures.py::test_accepted_query_has_its_meaning[subqueries: Distinct rows that do not hold the unit]",
    ),
    Fault(
        "distinct-rows-read-one-by-one",
        "dpsql.sql.lower.distinct_rows:check_counted",
        "context.distinct_nodes and _has_distinct_rows(outer, set())",
        "context.distinct_nodes and outer is None",
        "rows that are to be one are as many as units have them",
        f"{_ONCE}::test_uses_other_than_counts_are_refused",
    ),
    Fault(
        "distinct-rows-added-up",
        "dpsql.sql.lower.release_builder:ReleaseBuilder.add_statistic",
        'source is not None and (function != "count_distinct" or has_side_comparison(source))',
        "source is not None and node is None",
        "a value is added up as often as units have it",
        f"{_ONCE}::test_uses_other_than_counts_are_refused",
    ),
    Fault(
        "values-of-several-sides-counted-as-of-one",
        "dpsql.sql.lower.distinct_rows:_compute_factors",
        "within[some] -= within[some & ~(1 << place)]",
        "within[some] -= 0",
        "what is on two of three sides is added up more often than once",
        f"{_ONCE}::test_distinct_rows_are_counted_as_duckdb_does",
    ),
    Fault(
        "converted-sides-are-compared",
        "dpsql.sql.lower.distinct_rows:_is_nested_comparison",
        "[column.type for column in side.columns] == [column.type for column in whole.columns]",
        "len(side.columns) == len(whole.columns)",
        "sides that are compared as whole numbers are compared as real ones",
        f"{_ONCE}::test_uses_other_than_counts_are_refused",
    ),
    Fault(
        "outer-values-more-than-once",
        "dpsql.sql.lower.correlated_subqueries:OuterValues.build_outer_table",
        "build_projection(holder.relation, alias, items, distinct=True)",
        "build_projection(holder.relation, alias, items)",
        "a row is compared as often as there are others of its values",
        "tests/sql/test_outer_values.py::test_answers_are_those_of_duckdb",
    ),
    Fault(
        "squares-above-the-middle-twice",
        "dpsql.sql.lower.aggregates.variance:VarianceFormula._build_distinct_variance",
        '("ge", "lt")',
        '("ge", "gt")',
        "values below the middle do not count, and those above it twice",
        "tests/sql/test_spread_of_groups.py::test_spread_of_distinct_values_matches_duckdb",
    ),
    Fault(
        "kept-rows-count-all-elements",
        "dpsql.backends.duckdb.dialect:DuckDBLists.emit_list_elements",
        'f"CASE WHEN LEN({cut}) > 0 THEN {cut} ELSE [NULL] END"',
        'f"CASE WHEN LEN({cut}) > 0 THEN {self.columns.emit_column_path(listed.stored)} ELSE [NULL] END"',
        "where a LEFT JOIN keeps rows without elements, lists are not cut",
        "tests/properties/test_elements.py::test_left_join_cuts_long_lists",
    ),
    Fault(
        "rows-of-values-run-together",
        "dpsql.sql.lower.aggregates.count:_build_value_text",
        'scalars.build_call(node, "||", scalars.build_call(node, "||", size, _COLON), text)',
        "text",
        "('a', 'bc') is ('ab', 'c')",
        f"{_ONCE}::test_rows_differ_where_a_value_differs",
    ),
    Fault(
        "two-zeros-are-two-rows",
        "dpsql.sql.lower.aggregates.count:_build_value_text",
        "value.type is Type.DOUBLE",
        "value.type is Type.NULL",
        "0.0 and -0.0 are equal, and are counted as two",
        f"{_ONCE}::test_rows_differ_where_a_value_differs",
    ),
    Fault(
        "ids-of-two-types-put-together",
        "dpsql.sql.lower.derived_tables:_check_unit_types",
        "left is not right",
        "left is None",
        "one person is two units in a set operation",
        "tests/attacks/test_a12_identities.py::test_ids_of_two_types_are_not_matched",
    ),
    Fault(
        "private-rows-limited",
        "dpsql.sql.lower.per_unit_selects:build_derived_table",
        "private and chosen.is_paged",
        "private and chosen.is_paged and not chosen.rows",
        "ORDER BY and LIMIT choose a row",
        _MIXED,
    ),
    Fault(
        "distinct-on-passes",
        "dpsql.sql.lower.per_unit_selects:has_distinct",
        "on is not None",
        "on is False",
        "DISTINCT ON chooses a row",
        _MIXED,
    ),
    Fault(
        "sums-of-a-unit-without-bounds",
        "dpsql.sql.lower.per_unit_selects:DerivedGroupBy.add_exact_aggregate",
        "Type.DOUBLE",
        "Type.INTEGER",
        "floats are added up in the order of the rows",
        "tests/sql/test_boundary.py::test_sums_of_doubles_within_a_unit_need_bounds",
    ),
    Fault(
        "scalar-of-many-rows",
        "dpsql.sql.lower.scope:lower_uncorrelated_subquery",
        "_build_single_value_query(source) if is_single_row(source) else _look_up_single_row(context, node, source)",
        "_build_single_value_query(source)",
        "a subquery with two rows fails, or not, by the data",
        _MIXED,
    ),
    Fault(
        "released-rows-repeat-private-ones",
        "dpsql.sql.lower.joins:_JoinBuilder.join_source",
        "is_unique(right, _list_unconverted_columns((*on, *alike.values())))",
        "on",
        "a join to a release multiplies a unit's rows",
        "tests/api/test_several_releases.py::test_joins_that_repeat_or_show_private_rows_are_refused",
    ),
    Fault(
        "public-rows-looked-up-before-a-release",
        "dpsql.sql.lower.joins:_JoinBuilder._resolve_public_source",
        "any(isinstance(step, Release) for step in list_required_steps(right))",
        "any(isinstance(step, Release) for step in list_required_steps(right)) and is_private(right)",
        "how many public rows join a private one is looked up before a release decides it",
        f"{_A24}::test_subquery_over_public_rows_repeats_no_private_row",
    ),
    Fault(
        "public-rows-looked-up-without-values",
        "dpsql.engine.lookups:PublicLookups.look_up_multiplicity",
        "right = substitute_subqueries(join.right, self._evaluate_subqueries(join.right))",
        "right = join.right",
        "public rows that a subquery decides over are looked up as if its value was NULL",
        f"{_A24}::test_subquery_over_public_rows_repeats_no_private_row",
    ),
    Fault(
        "computed-public-rows-relied-on",
        "dpsql.analysis.stability:derive_contribution_bound",
        """
        rows > 1
        or _reads_subquery_values(release.input)
        or any(scan.unit.kind is UnitKind.COLUMN for scan in tables)
        """,
        "rows > 1 or any(scan.unit.kind is UnitKind.COLUMN for scan in tables)",
        "one row counts as often as a subquery says when it is computed once more",
        f"{_A24}::test_changed_lookup_value_repeats_no_row",
    ),
    Fault(
        "least-frequency-of-one-table",
        "dpsql.analysis.stability:derive_contribution_bound",
        "max(known.min_frequency for known in declared)",
        "declared[0].min_frequency",
        "of two tables' rules the first named holds",
        "tests/sql/test_units.py::test_strictest_rules_of_the_tables_hold",
    ),
    Fault(
        "group-limit-of-one-table",
        "dpsql.analysis.stability:derive_contribution_bound",
        "(*groups, release.max_groups, natural)",
        "(groups[-1], release.max_groups, natural)",
        "of two tables' rules the last named holds",
        "tests/sql/test_units.py::test_strictest_rules_of_the_tables_hold",
    ),
    Fault(
        "ids-not-read-exactly",
        "dpsql.backends.analyst_schema:_check_identities",
        "facts.identity is not None",
        "facts.identity is None",
        "sixty people have one id once it is read",
        "tests/attacks/test_a12_identities.py::test_inexactly_read_id_is_refused",
    ),
    Fault(
        "few-units-shown-without-groups",
        "dpsql.engine.postprocess.empty_groups:withhold_rare_cells",
        "groups[row] or few or _is_below(item, table.rows[row][place], least)",
        "few",
        "a condition that leaves four people shows their values, where the policy asks for more",
        f"{_SMALL}::test_value_below_min_frequency_is_never_shown",
    ),
    Fault(
        "few-values-shown-under-a-condition",
        "dpsql.engine.postprocess.empty_groups:_mark_few_values",
        "not is_conditional(item.argument)",
        "True",
        "FILTER shows the sum of four people among many",
        f"{_SMALL}::test_value_below_min_frequency_is_never_shown",
    ),
    Fault(
        "units-of-cells-not-counted",
        "dpsql.planning.choose:list_needed_statistics",
        "analysis.selects_keys or withholds",
        "analysis.selects_keys",
        "nothing says how many people are behind a value, and large wholes are withheld, too",
        f"{_SMALL}::test_value_from_min_frequency_on_is_shown",
    ),
    Fault(
        "interval-of-a-withheld-cell",
        "dpsql.engine.intervals.cells:compute_intervals",
        "not table.withheld_cells",
        "True",
        "the interval of a value that is withheld says it",
        f"{_SMALL}::test_value_below_min_frequency_is_never_shown",
    ),
)
