"""Faults of what is read of the owner's database: frames, files, views, settings, ids."""

from __future__ import annotations

from .fault import Fault

_CELLS = "tests/attacks/test_a44_one_cell_of_a_file.py"
_BROKEN = "tests/attacks/test_a29_broken_text_of_owners.py"
_VIEWS = "tests/attacks/test_a30_public_views.py"
_IDS = "tests/attacks/test_a39_ids_beyond_their_type.py"
_SETTINGS = "tests/backends/test_settings.py"
_LOOKUPS = "tests/engine/test_lookups.py"

FAULTS = (
    Fault(
        "casts-pushed-into-readers",
        "dpsql.backends.duckdb.files:_typed",
        """f'WITH "#texts" AS MATERIALIZED (SELECT * FROM {rows}) SELECT {columns} FROM "#texts"'""",
        "f'SELECT {columns} FROM {rows}'",
        "a CSV file with one text in a column of numbers does not open",
        f"{_CELLS}::test_no_optimizer_decides_whether_a_file_opens[csv]",
    ),
    Fault(
        "lines-quoted-in-errors",
        "dpsql.backends.duckdb.files:_unreadable",
        """f", at line {found['csv']}\"""",
        """f", at line {message}\"""",
        "the error of a file that cannot be read quotes somebody's row",
        f"{_CELLS}::test_what_cannot_be_read_names_its_line[too wide]",
    ),
    Fault(
        "views-of-sqlite-are-tables",
        "dpsql.backends.duckdb.sqlite_files:_columns",
        "not names or table.lower() not in (name.lower() for (name,) in connection.execute(_TABLES))",
        "not names",
        "a view of a SQLite file is read as a table",
        "tests/backends/test_files.py::test_views_of_other_databases_are_no_tables",
    ),
    Fault(
        "records-decide-over-columns",
        "dpsql.backends.duckdb.files:_make_json",
        "[column for column in types if '.' not in column] or [str(column) for column, *_ in _described_json(files)]",
        "[str(column) for column, *_ in _described_json(files)]",
        "the names in somebody's record decide over the columns of a JSON table",
        "tests/backends/test_files.py::test_a_value_of_json_or_sqlite_decides_over_no_type_and_no_error",
    ),
    Fault(
        "frame-text-not-repaired",
        "dpsql.backends.duckdb.columns:_raw",
        'return f"TRY(decode(encode({raw})))"',
        "return raw",
        "one row of broken text in a registered frame ends a query, and all later ones",
        f"{_BROKEN}::test_broken_text_of_a_registered_frame_is_not_seen",
    ),
    Fault(
        "frame-text-within-columns-not-repaired",
        "dpsql.policy.engine_types:called",
        "inner is None",
        "True",
        "one row of broken text in a field or a list of a registered frame ends a query",
        f"{_BROKEN}::test_broken_text_within_a_column_is_not_seen[a field]",
    ),
    Fault(
        "zoned-moments-of-frames-are-read-as-they-are",
        "dpsql.backends.catalog",
        '{"VARCHAR": UNCHECKED, "JSON": UNCHECKED, "TIMESTAMP WITH TIME ZONE": ZONED}',
        '{"VARCHAR": UNCHECKED, "JSON": UNCHECKED}',
        "one moment in seconds that is too great ends a query",
        f"{_BROKEN}::test_moments_with_a_zone_in_a_registered_frame_are_refused",
    ),
    Fault(
        "readers-of-files-allowed",
        "dpsql.backends.duckdb.origins:origin",
        "name != STORED",
        "name == STORED",
        "a view over Parquet files fails by one row",
        f"{_BROKEN}::test_what_no_expression_can_repair_is_refused[private-Parquet]",
    ),
    Fault(
        "public-view-of-private-rows",
        "dpsql.backends.catalog:_refuse_public_views",
        "read.tables - shared",
        "{theirs}",
        "a public view of a private table is released exactly",
        f"{_VIEWS}::test_a_public_view_of_a_private_table_is_refused[directly]",
    ),
    Fault(
        "plan-after-the-optimiser",
        "dpsql.backends.duckdb.connection:DuckDBBackend.origin",
        'dict(explained).get("logical_plan")',
        'dict(explained).get("logical_opt")',
        "a scan that the optimiser leaves out today is not seen",
        f"{_VIEWS}::test_a_public_view_of_a_private_table_is_refused[where nothing is left of it]",
    ),
    Fault(
        "settings-not-looked-at",
        "dpsql.backends.duckdb.connection:DuckDBBackend._refuse_settings",
        "require_unchanged(dict(self._query(_SETTINGS)) | dict(zip(MEANING, values, strict=True)))",
        "pass",
        "a unit's average is 0 where the owner divides whole numbers",
        f"{_SETTINGS}::test_what_gives_sql_another_meaning_is_refused[integer_division]",
    ),
    Fault(
        "settings-looked-at-once",
        "dpsql.backends.duckdb.connection:DuckDBBackend.binds",
        "self._refuse_settings_now()",
        "pass",
        "a setting is changed while the connection is open",
        f"{_SETTINGS}::test_what_gives_sql_another_meaning_is_refused[integer_division]",
    ),
    Fault(
        "look-ups-of-an-owner-kept",
        "dpsql.backends.duckdb.connection:DuckDBBackend.unchanging",
        "not self._owned or self._path is None or self._path == MEMORY_PATH or self._files",
        "False",
        "an owner adds rows to a public table, and a unit has more rows than its noise is for",
        f"{_LOOKUPS}::test_an_owner_may_change_what_is_looked_up",
    ),
    Fault(
        "look-ups-of-a-clock-kept",
        "dpsql.backends.duckdb.connection:DuckDBBackend.unchanging",
        "return not computed",
        "return True",
        "a view of the last days has more rows to a key than when it was first looked up",
        f"{_LOOKUPS}::test_what_may_read_the_clock_is_looked_up_again",
    ),
    Fault(
        "charged-without-being-bound",
        "dpsql.engine.pipeline:Engine._charge",
        "self.require_bound(prepared)",
        "",
        "a query that the database cannot read is charged and never answered",
        f"{_SETTINGS}::test_what_cannot_be_bound_is_not_charged[DROP TABLE people]",
    ),
    Fault(
        "wide-ids-as-numbers",
        "dpsql.backends.catalog:_exact",
        "return engine not in _WIDE and (digits or 0) <= _BIGINT_DIGITS",
        "return True",
        "people whose ids are beyond 2^63 are lost in joins",
        f"{_IDS}::test_an_id_that_its_declared_type_does_not_hold_is_refused[UBIGINT-integer]",
    ),
    Fault(
        "texts-as-one-number",
        "dpsql.backends.duckdb.columns:_raw",
        'return f"CASE WHEN CAST({number} AS VARCHAR) = {raw} THEN {number} END"',
        "return number",
        "the ids '1' and '01' are one person",
        f"{_IDS}::test_texts_that_read_as_one_number_are_no_one_person[as numbers]",
    ),
    Fault(
        "rows-choose-the-same-group",
        "dpsql.sql.emit.bounding:group_order",
        '["u" if by_column else dialect().row_hash("u"), *keys]',
        '["u", *keys] if by_column else keys',
        "all rows of a public fan-out count in one group",
        f"{_IDS}::test_rows_that_are_units_do_not_all_choose_the_same_group",
    ),
    Fault(
        "private-tables-copied",
        "dpsql.backends.simulated:_copied",
        "name is not None and policy.tables[name].public",
        "name is not None",
        "a database of invented rows holds private ones",
        "tests/backends/test_simulated.py::test_only_public_tables_are_copied",
    ),
    Fault(
        "public-views-copied",
        "dpsql.backends.simulated:_copied",
        "\"SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'owners'\"",
        "\"SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = 'owners'\"",
        "a view that reads private rows is copied",
        "tests/backends/test_simulated.py::test_only_public_tables_are_copied",
    ),
)
