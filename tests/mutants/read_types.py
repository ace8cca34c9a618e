"""Faults of types: how columns, ids and elements of the engine's types are read."""

from __future__ import annotations

from .fault import Fault

_FLOATS = "tests/sql/test_floats.py::test_values_are_those_of_duckdb"

_TYPES = "tests/properties/test_physical_types.py"
_ELEMENTS = "tests/properties/test_elements.py"

FAULTS = (
    Fault(
        "constants-beside-floats-are-doubles",
        "dpsql.sql.lower.number_types:_to_float",
        "nearest is None or nearest == argument.value",
        "True",
        "a FLOAT equals no constant with a point",
        f"{_FLOATS}[SELECT COUNT(*) FROM t WHERE f = 0.1]",
    ),
    Fault(
        "computed-floats-are-not-rounded",
        "dpsql.sql.lower.number_types:round_float_call",
        '(build_function_call("cast_float", built) or built) if name in ROUNDED else built',
        "built",
        "what is computed of a FLOAT equals no constant with a point",
        f"{_FLOATS}[SELECT COUNT(*) FROM t WHERE f * 3 = 0.3]",
    ),
    Fault(
        "floats-beside-doubles-are-floats",
        "dpsql.analysis.number_types:is_exact",
        "isinstance(expr, Literal) or find_scale(expr) is not None",
        "True",
        "a DOUBLE beside a FLOAT is rounded",
        f"{_FLOATS}[SELECT COUNT(*) FROM t WHERE CAST(d AS FLOAT) = d]",
    ),
    Fault(
        "texts-of-floats-are-those-of-doubles",
        "dpsql.sql.lower.number_types:build_float_text",
        "build_function_call('cast_varchar float', value) if is_float(value) else None",
        "None",
        "the text of a FLOAT has digits that it does not have in DuckDB",
        f"{_FLOATS}[SELECT CAST(CAST(COUNT(*) / 811.0 AS REAL) AS VARCHAR) FROM t]",
    ),
    Fault(
        "bounds-of-floats-are-doubles",
        "dpsql.backends.catalog_columns:build_declared_column",
        "facts = _round_to_float32(facts)",
        "pass",
        "a FLOAT at its bound, or a listed one, is another value than in DuckDB",
        f"{_FLOATS}[SELECT COUNT(*) FROM t WHERE k = 0.3]",
    ),
    Fault(
        "rounded-beyond-its-interval",
        "dpsql.plan.functions.casts:_is_float",
        "power and abs(digits) < 2**24 and end.denominator <= 2**126 and abs(end) < 2**127",
        "True",
        "a value that is rounded to FLOAT leaves its interval",
        "tests/sql/test_floats.py::test_interval_holds_the_rounded_value",
    ),
    Fault(
        "names-of-two-meanings-pass",
        "dpsql.backends.analyst_schema:_build_table",
        "_refuse_two_meanings(name, declared, engine)",
        "pass",
        "addr.zip reads a column, where DuckDB reads a field of a STRUCT",
        "tests/sql/test_column_types.py::test_name_of_a_column_and_of_a_field_is_refused[a column]",
    ),
    Fault(
        "moments-are-in-the-session-s-zone",
        "dpsql.backends.duckdb.dialect:_emit_widened_value",
        """raw = f"TRY({raw} AT TIME ZONE 'UTC')" """,
        'raw = f"TRY_CAST({raw} AS TIMESTAMP)"',
        "a moment with a time zone is another one in another session",
        f"{_TYPES}::test_moment_with_a_time_zone_is_in_utc[America/New_York]",
    ),
    Fault(
        "times-beyond-the-day-are-read",
        "dpsql.backends.dialect:ColumnSyntax.emit_clamped_value",
        """
        match facts.type:
            case Type.INTEGER:
                return self._emit_bounded_integer(raw, read, facts)
            case Type.DOUBLE:
                return self._emit_bounded_double(read, facts)
            case Type.DATE | Type.TIMESTAMP | Type.TIME:
                return self._emit_bounded_temporal(read, facts)
            case _:
                return read
        """,
        """
        match facts.type:
            case Type.INTEGER:
                return self._emit_bounded_integer(raw, read, facts)
            case Type.DOUBLE:
                return self._emit_bounded_double(read, facts)
            case Type.DATE | Type.TIMESTAMP:
                return self._emit_bounded_temporal(read, facts)
            case _:
                return read
        """,
        "a time of day that Python cannot hold is a key",
        f"{_TYPES}::test_invalid_moments_and_times_make_no_query_fail",
    ),
    Fault(
        "ids-of-any-type-are-texts",
        "dpsql.backends.catalog_columns:build_undeclared_id",
        "found is None and kind not in _TEXTS",
        "False",
        "an interval of 30 days and one of a month are equal, and two units",
        f"{_TYPES}::test_inexactly_compared_type_is_no_id",
    ),
    Fault(
        "long-decimals-are-exact",
        "dpsql.backends.catalog_columns:is_read_exactly",
        "return engine not in (UNTYPED, UNLIMITED) and not whole and (digits or 0) <= MOST_DIGITS",
        "return engine not in (UNTYPED, UNLIMITED) and not whole",
        "ids of 38 digits are read as the same floating-point number",
        f"{_TYPES}::test_distinct_ids_are_distinct_units[DECIMAL(38,10)]",
    ),
    Fault(
        "long-whole-decimals-are-exact",
        "dpsql.backends.catalog_columns:is_read_exactly",
        "return engine not in _WIDE and (digits or 0) <= _BIGINT_DIGITS",
        "return engine not in _WIDE",
        "an id of 38 digits that is declared integer is nobody's",
        f"{_TYPES}::test_declared_id_is_exact_or_refused",
    ),
    Fault(
        "lists-are-not-cut",
        "dpsql.backends.duckdb.dialect:DuckDBLists.emit_list_elements",
        'cut = f"list_slice({self.columns.emit_column_path(listed.stored)}, 1, {listed.max_elements})"',
        "cut = self.columns.emit_column_path(listed.stored)",
        "more elements of a row count than are declared",
        f"{_ELEMENTS}::test_declared_number_of_elements_counts",
    ),
    Fault(
        "elements-do-not-multiply-rows",
        "dpsql.sql.lower.from_sources:_repeat_scan",
        "rows = scanned.contribution.rows * most",
        "rows = scanned.contribution.rows",
        "rows of a unit are lost that are declared to count",
        f"{_ELEMENTS}::test_declared_number_of_elements_counts",
    ),
    Fault(
        "two-lists-are-crossed",
        "dpsql.sql.lower.from_sources:_check_selected",
        "[node for node in found if node != found[0]]",
        "[]",
        "of two lists in SELECT one is read in the other's place",
        f"{_ELEMENTS}::test_unnest_in_select_with_another_meaning_is_refused",
    ),
    Fault(
        "windows-see-elements",
        "dpsql.sql.lower.from_sources:_check_selected",
        "window is not None",
        "False",
        "a window beside UNNEST in SELECT counts elements, where DuckDB counts rows",
        f"{_ELEMENTS}::test_unnest_in_select_with_another_meaning_is_refused",
    ),
    Fault(
        "partitions-go-by-elements",
        "dpsql.sql.compile.relations:_SelectBlock._emit_scan",
        "conditions = [*emit_partition_conditions(self.compiler, scan, unit, source), *stored]",
        "conditions = [*emit_partition_conditions(self.compiler, scan, unit, rows), *stored]",
        "a unit is in another partition for each list that is unnested, and pays for one of them",
        f"{_ELEMENTS}::test_partition_of_a_unit_does_not_depend_on_its_lists",
    ),
    Fault(
        "rows-that-are-units-are-repeated",
        "dpsql.sql.lower.from_sources:_check_unnested",
        "unit.kind is not UnitKind.COLUMN",
        "unit.kind is UnitKind.PUBLIC",
        "each element of a row is a unit of its own",
        f"{_ELEMENTS}::test_lists_of_rows_without_an_id_are_refused",
    ),
    Fault(
        "numbers-beside-ids-are-written-as-they-are",
        "dpsql.sql.lower.number_types:StoredNumberFormat.format_number",
        """format(_LONG.add(value, 0), "f")""",
        "number",
        "an id is found only by one way to write its number",
        f"{_TYPES}::test_number_compared_with_a_text_id_is_compared_as_text",
    ),
    Fault(
        "computed-decimals-are-compared-as-doubles",
        "dpsql.sql.lower.function_calls:resolve_call",
        "round_before_comparison(name, round_before_cast(name, arguments))",
        "round_before_cast(name, arguments)",
        "0.1 + 0.2 is not 0.3",
        f"{_TYPES}::test_decimals_are_equal_as_in_duckdb[a + b = 0.3]",
    ),
    Fault(
        "fields-in-brackets-are-read-backwards",
        "dpsql.sql.lower.dotted_names:resolve_field",
        "names.insert(0, name)",
        "names.append(name)",
        "s['z']['n'] is s.n.z",
        "tests/sql/test_column_types.py::test_values_are_those_of_duckdb[SELECT s['city'] AS k, SUM(s['z']['n']) FROM t GROUP BY k]",
    ),
    Fault(
        "any-prefix-is-a-struct",
        "dpsql.sql.lower.dotted_names:check_field",
        'normalize_name(column).startswith(f"{normalize_name(struct)}.")',
        "True",
        "s.y.n is told as a field of s.y, which is none",
        "tests/sql/test_column_types.py::test_unknown_field_names_the_struct[s.y.n-s has no field y.n]",
    ),
    Fault(
        "elements-have-the-name-inside",
        "dpsql.sql.lower.scope:Scope.list_column_names",
        "self.get_column_name(column)",
        "column.name",
        "a hint names the column #l, which no query can",
        "tests/sql/test_column_types.py::test_refused_forms_have_an_accepted_rewrite[a name that is no element's]",
    ),
    Fault(
        "lateral-forgets-its-name",
        "dpsql.sql.lower.from_clause:_unwrap_lateral",
        "None if alias is None else alias.copy()",
        "None",
        "the columns of a derived table for LATERAL are not found",
        "tests/sql/test_column_types.py::test_values_are_those_of_duckdb"
        "[SELECT SUM(v.f) FROM people p JOIN LATERAL (SELECT id, f FROM t) v ON v.id = p.id]",
    ),
    Fault(
        "texts-of-decimals-are-of-doubles",
        "dpsql.sql.lower.function_calls:_finish_call",
        "build_decimal_text(built.arguments[0])",
        "None",
        "the text of 0.50 is 0.5",
        "tests/sql/test_decimals.py::test_values_are_those_of_duckdb[SELECT COUNT(*) FROM t WHERE CAST(d AS VARCHAR) LIKE '%.50']",
    ),
    Fault(
        "remainders-of-decimals-are-of-doubles",
        "dpsql.sql.lower.number_types:round_decimal_call",
        "name == 'remainder'",
        "False",
        "0.3 % 0.1 is not 0",
        "tests/sql/test_decimals.py::test_values_are_those_of_duckdb[SELECT COUNT(*) FROM t WHERE d % 0.1 = 0 AND (e * 3) % 0.2 = 0.1]",
    ),
    Fault(
        "aliases-come-before-columns",
        "dpsql.sql.lower.scope:Scope._find_alias_value",
        "name not in self.aliases or self.list_column_owners(name, None)",
        "name not in self.aliases",
        "WHERE filters by another value than SQL would",
        "tests/sql/test_phrases.py::test_rows_are_those_of_duckdb[10 a column comes before an alias]",
    ),
    Fault(
        "aliases-of-where-are-forgotten",
        "dpsql.sql.lower.semi_joins:split_where",
        "collect_aliased_items(select)",
        "{}",
        "the name of a SELECT item is no name in WHERE",
        "tests/sql/test_phrases.py::test_rows_are_those_of_duckdb[10 an alias in WHERE]",
    ),
    Fault(
        "quoted-fractions-next-to-whole-numbers",
        "dpsql.sql.lower.quoted_constants:read_quoted_constants",
        "0 if whole else _find_digits(others)",
        "None",
        "a quoted fraction is compared with whole numbers as it stands, where DuckDB rounds it first",
        "tests/sql/test_quoted_constants.py::test_other_texts_are_refused_without_a_charge",
    ),
    Fault(
        "local-times-as-instants",
        "dpsql.sql.lower.time_zones:lower_time_zone",
        "not is_instant(operand, value)",
        "False",
        "a local time is converted as if it were in UTC, by twice the offset",
        "tests/sql/test_time_zones.py::test_other_conversions_are_refused",
    ),
    Fault(
        "clocks-change-a-day-late",
        "dpsql.sql.lower.time_zones:list_transitions",
        "_find_change(zone, at, after)",
        "after",
        "local times are wrong on the days on which clocks change",
        "tests/sql/test_time_zones.py::test_local_times_are_those_of_duckdb",
    ),
)
