"""Faults of the dataflow and its effects: verify, charge, read, noise, release, and the walls of the engine."""

from __future__ import annotations

from .fault import Fault

_CELLS = "tests/test_release.py::test_every_cell_has_its_own_draw"
_KEPT = "tests/attacks/test_a06_engine_errors.py::test_failure_has_constant_text_and_keeps_its_charge"

FAULTS = (
    Fault(
        "not-verified",
        "dpsql.engine.stages:verify",
        "verify_plan(part.plan)",
        "pass",
        "a plan with too little noise is charged and run",
        "tests/engine/test_query_stages.py::test_plan_with_too_little_noise_is_neither_charged_nor_run",
    ),
    Fault(
        "charged-after-the-answer",
        "dpsql.engine.stages:answer_query",
        "charged = charge(engine, prepared)",
        """
        if processor is None:
            draw_releases(engine, prepared)
        charged = charge(engine, prepared)
        """,
        "a query that fails half-way has read and is not charged",
        _KEPT,
    ),
    Fault(
        "charged-after-the-rows-are-processed",
        "dpsql.engine.stages:answer_query",
        "charged = charge(engine, prepared)",
        """
        if processor is not None:
            draw_releases(engine, prepared, processor)
        charged = charge(engine, prepared)
        """,
        "a query whose rows are sorted is charged only when they have been read",
        "tests/attacks/test_a06_engine_errors.py::test_post_processed_query_is_charged_before_its_read",
    ),
    Fault(
        "earlier-release-passed-by",
        "dpsql.sql.compile.outer_query:find_unchanged_columns",
        "list_steps(outer) != (outer.source,)",
        "not list_steps(outer)",
        "a release is answered without the one that it waits for",
        "tests/engine/test_query_stages.py::test_outer_query_that_changes_rows_is_run_by_an_engine",
    ),
    Fault(
        "statements-told-apart-by-nothing",
        "dpsql.backends.duckdb.statements:_mask_constant",
        "return found[0]",
        'return ""',
        "a statement of names that are not there is charged, because another has bound",
        "tests/backends/test_duckdb.py::test_statements_with_other_names_or_types_have_other_shapes",
    ),
    Fault(
        "spilling-engine-left-open",
        "dpsql.backends.duckdb.connection:lock_down",
        """
        for setting in _CLOSE:
            connection.execute(setting)
        """,
        "pass",
        "an engine that may use the disk reads and writes any file",
        "tests/backends/test_spill.py::test_other_files_stay_closed",
    ),
    Fault(
        "other-files-left-open",
        "dpsql.backends.duckdb.connection:lock_down",
        "not closed and not is_closed(connection)",
        "spills",
        "an engine that reads files reads any other",
        "tests/backends/test_files.py::test_other_files_cannot_be_read",
    ),
    Fault(
        "changed-files-are-read",
        "dpsql.backends.duckdb.connection:DataSources.refuse_changed_files",
        "table.has_changed",
        "False",
        "a file that was replaced is read as it never was looked at",
        "tests/backends/test_files.py::test_changed_file_is_refused_before_a_charge",
    ),
    Fault(
        "texts-of-files-not-looked-at",
        "dpsql.backends.duckdb.files:_make_parquet",
        "not alike or kind not in _WHOLE",
        "not alike",
        "a text that is none makes each statement fail that reads it",
        "tests/backends/test_files.py::test_unreadable_file_is_refused_at_once",
    ),
    Fault(
        "a-value-is-cast-or-fails",
        "dpsql.backends.duckdb.cells:build_typed_query",
        "f'{build_cell(reading.find_cell(column), quote_identifier(column))} AS {quote_identifier(column)}'",
        "f\"{build_cell(reading.find_cell(column), quote_identifier(column)).replace('TRY_CAST', 'CAST')} AS {quote_identifier(column)}\"",
        "one row with a word for a number makes a file unreadable",
        "tests/backends/test_files.py::test_value_changes_no_type_and_raises_no_error",
    ),
    Fault(
        "progress-printed",
        "dpsql.backends.duckdb.connection:_disable_progress",
        "connection.execute('PRAGMA disable_progress_bar')",
        "pass",
        "how far a long query is, which is exact, stands on standard output",
        "tests/backends/test_lockdown.py::test_seal_disables_progress_output",
    ),
    Fault(
        "uncharged-releases-run",
        "dpsql.engine.stages:run",
        "part.event is not None and not charged.entries",
        "False",
        "a driver that forgets the charge reads private rows",
        "tests/engine/test_query_stages.py::test_uncharged_release_is_not_run",
    ),
    Fault(
        "errors-around-the-engine-pass",
        "dpsql.engine.release.exact_release:_read_rows",
        """
        try:
            return backend.run_statement(sql)
        except Error:
            raise
        except Exception:
            pass
        raise BackendError
        """,
        "return backend.run_statement(sql)",
        "a failure on one row is not recorded, and its frames hold rows",
        "tests/attacks/test_a06_engine_errors.py::test_failure_of_the_backend_s_own_code_is_recorded_too",
    ),
    Fault(
        "refunded-on-failure",
        "dpsql.engine.charging:record_release_failures",
        "record_failure(engine, charged, part.tables, error.code)",
        """
        with engine.ledger._journal.open_transaction(write=True) as connection:
            connection.exec_driver_sql("DELETE FROM entries")
        """,
        "whether a query failed shows in the budget",
        _KEPT,
    ),
    Fault(
        "selection-not-charged",
        "dpsql.engine.charging:charge_query",
        """
        entries = engine.ledger.charge(
            prepared.table_charges,
            analyst=engine.analyst,
            query=prepared.query.sql,
            details=build_charge_details(engine, prepared),
            refines=[base.number for base in prepared.refinements],
            reservation=engine.reservation,
        )
        """,
        """
        entries = engine.ledger.charge(
            {b.table: getattr(b.event, "events", [b.event])[0] for b in prepared.table_charges},
            analyst=engine.analyst,
            query=prepared.query.sql,
            details=build_charge_details(engine, prepared),
            refines=[base.number for base in prepared.refinements],
            reservation=engine.reservation,
        )
        """,
        "the ledger hears of the noise and not of delta",
        "tests/attacks/test_a23_options.py::test_delta_of_one_or_more_buys_nothing",
    ),
    Fault(
        "only-the-first-release-charged",
        "dpsql.engine.query_run:QueryRun.table_charges",
        "self.releases",
        "self.releases[:1]",
        "of several releases of a statement one is paid for",
        "tests/api/test_several_releases.py::test_releases_of_a_statement_share_its_loss",
    ),
    Fault(
        "only-the-first-table-charged",
        "dpsql.analysis.partitions.assignment:compute_boxes",
        "read.items()",
        "[*read.items()][:1]",
        "of two private tables that are read one is charged",
        "tests/engine/test_query_stages.py::test_every_table_that_is_read_is_charged",
    ),
    Fault(
        "every-release-at-the-full-price",
        "dpsql.engine.loss_split:split_loss",
        "_compute_weight_share(weight, totals[name])",
        "Fraction(1)",
        "a statement with two releases loses twice what was asked for",
        "tests/api/test_several_releases.py::test_releases_of_a_statement_share_its_loss",
    ),
    Fault(
        "delta-all-at-once",
        "dpsql.engine.loss_split:_compute_delta_share",
        "min(loss / account.limit.loss_fraction, Fraction(1))",
        "1",
        "the first query takes all of the delta",
        "tests/planning/test_choose.py::test_delta_is_spent_in_proportion",
    ),
    Fault(
        "free-answers-read",
        "dpsql.engine.release.exact_release:open_exact_release",
        "rows = _read_rows(backend, statement.sql) if charged else Exact([])",
        "rows = _read_rows(backend, statement.sql)",
        "what is not charged reads private rows, and may fail on one",
        "tests/attacks/test_a14_reading_without_paying.py::test_uncharged_query_reads_nothing",
    ),
    Fault(
        "explain-reads",
        "dpsql.engine.explain:_format_lines",
        'yield from _describe_outer_query(engine, prepared, prepared.outer, "")',
        """
        yield str(len(engine.backend.run_statement(prepared.single_release.statement.sql).reveal()))
        yield from _describe_outer_query(engine, prepared, prepared.outer, "")
        """,
        "EXPLAIN says how many groups there are",
        "tests/api/test_answers.py::test_explain_charges_and_reads_nothing",
    ),
    Fault(
        "data-in-the-ledger",
        "dpsql.engine.charging:charge_query",
        "build_charge_details(engine, prepared)",
        '{"policy": str(engine.backend.run_statement(prepared.single_release.statement.sql).reveal())}',
        "an entry holds an exact value",
        "tests/attacks/test_a14_budget_as_output.py::test_observations_other_than_rows_are_equal[one more]",
    ),
    Fault(
        "cause-of-a-failure-shown",
        "dpsql.engine.release.exact_release:run_without_frames",
        "raise failure",
        "return draw()",
        "an error's frames hold exact values",
        "tests/attacks/test_a22_exact_values.py::test_failure_after_the_read_shows_no_locals",
    ),
    Fault(
        "one-draw-for-all-cells-of-a-group",
        "dpsql.engine.release.noise:_draw_noisy_components",
        "draws[at::width]",
        "draws[::width]",
        "differences of cells are exact",
        _CELLS,
    ),
    Fault(
        "one-draw-for-all-groups",
        "dpsql.engine.release.noise:draw_noise",
        "measurement.mechanism.draw(groups * len(measurement.vector.components), entropy)",
        "measurement.mechanism.draw(len(measurement.vector.components), entropy) * groups",
        "differences of groups are exact",
        _CELLS,
    ),
    Fault(
        "noise-of-another-block",
        "dpsql.engine.release.noise:_draw_noisy_groups",
        "_draw_noisy_components(plan.vectors[index], groups, entropy)",
        '_draw_noisy_components(__import__("dataclasses").replace(plan.vectors[index], mechanism=plan.vectors[0].mechanism), groups, entropy)',
        "all blocks have the noise of the first",
        _CELLS,
    ),
    Fault(
        "empty-groups-not-noised",
        "dpsql.engine.release.noise:_draw_noisy_components",
        """
        [
            value + draw
            for value, draw in zip(component.compute_exact_series(groups.moments), draws[at::width], strict=True)
        ]
        """,
        """
        [
            value + draw * any(group.moments.values())
            for value, draw, group in zip(component.compute_exact_series(groups.moments), draws[at::width], groups, strict=True)
        ]
        """,
        "a zero says that nobody is there",
        _CELLS,
    ),
    Fault(
        "empty-groups-dropped",
        "dpsql.engine.release.exact_rows:read_groups",
        "analysis.selects_keys",
        "analysis.domains",
        "a declared key is shown if somebody has it",
        "tests/attacks/test_a10_presence.py::test_not_null_key_has_no_null_group",
    ),
    Fault(
        "keys-chosen-by-exact-counts",
        "dpsql.engine.release.noise:_is_selected",
        "found >= chosen.threshold",
        "units * chosen.scale >= chosen.threshold",
        "one unit decides whether a key is shown",
        "tests/test_release.py::test_noise_decides_which_keys_are_shown",
    ),
    Fault(
        "threshold-not-applied",
        "dpsql.engine.release.noise:_draw_selected_groups",
        "_is_selected(decided, units, count)",
        "True",
        "every key is shown",
        "tests/attacks/test_a11_secret_keys.py::test_many_rows_of_one_unit_count_as_one_unit",
    ),
    Fault(
        "least-frequency-left-to-the-engine",
        "dpsql.engine.release.noise:_is_selected",
        "units >= chosen.min_frequency and found >= chosen.threshold",
        "found >= chosen.threshold",
        "the release trusts the statement with the least frequency",
        "tests/test_release.py::test_too_few_units_are_never_released",
    ),
    Fault(
        "rows-weighed-against-the-least-frequency",
        "dpsql.engine.release.exact_rows:UnreleasedGroups.get_unit_counts",
        "self.moments[UNITS if plan.analysis.bound.per_unit else ROWS]",
        "self.moments[ROWS]",
        "a few units with many rows are enough",
        "tests/test_release.py::test_too_few_units_are_never_released",
    ),
    Fault(
        "exact-shows-itself",
        "dpsql.backends.base:Exact.__repr__",
        'return "Exact(hidden)"',
        'return f"Exact({self.__rows})"',
        "a log or a traceback holds exact values",
        "tests/attacks/test_a22_exact_values.py::test_exact_value_has_no_text",
    ),
    Fault(
        "unsound-optimizer-runs",
        "dpsql.backends.duckdb.settings:SettingsGuard._disable_unsound_optimizer",
        "dict.fromkeys((*names, UNSOUND))",
        "dict.fromkeys(names)",
        "on an owner's connection subqueries that differ are taken for equal, and a bound is lost",
        "tests/backends/test_duckdb.py::test_unsound_optimizer_never_runs",
    ),
    Fault(
        "locked-optimizer-found-after-the-charge",
        "dpsql.backends.duckdb.settings:SettingsGuard.refuse_changed_meaning",
        "self._disable_unsound_optimizer()",
        "",
        "a query is charged and then refused, for a setting that could be seen before",
        "tests/backends/test_duckdb.py::test_locked_unsound_optimizer_is_refused",
    ),
    Fault(
        "engine-error-passed-on",
        "dpsql.backends.duckdb.statements:StatementRunner._run_guarded",
        "stopped = find_cancellation(error)",
        "raise",
        "the engine's words quote a value",
        "tests/attacks/test_a06_engine_errors.py::test_engine_connection_passes_on_no_words_of_a_failure",
    ),
    Fault(
        "engine-error-as-context",
        "dpsql.backends.duckdb.statements:StatementRunner._run_guarded",
        "stopped = find_cancellation(error)",
        "raise BackendError from None",
        "the engine's words are found behind the error",
        _KEPT,
    ),
    Fault(
        "files-in-reach",
        "dpsql.backends.duckdb.settings",
        """
        {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "allow_persistent_secrets": False,
            "python_enable_replacements": False,
            "memory_limit": "80%",
            "temp_directory": "",
            "explain_output": "all",
            "enable_external_access": False,
            "allowed_configs": ["disabled_filesystems", "disabled_optimizers", "enable_progress_bar"],
            "lock_configuration": True,
        }
        """,
        """
        {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "allow_persistent_secrets": False,
            "python_enable_replacements": False,
            "memory_limit": "80%",
            "temp_directory": "",
            "explain_output": "all",
            "enable_external_access": True,
            "allowed_configs": ["disabled_filesystems", "disabled_optimizers", "enable_progress_bar"],
            "lock_configuration": True,
        }
        """,
        "a statement that got through reads any file",
        "tests/backends/test_lockdown.py::test_each_lock_is_closed[path-enable_external_access]",
    ),
    Fault(
        "settings-left-open",
        "dpsql.backends.duckdb.settings",
        """
        {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "allow_persistent_secrets": False,
            "python_enable_replacements": False,
            "memory_limit": "80%",
            "temp_directory": "",
            "explain_output": "all",
            "enable_external_access": False,
            "allowed_configs": ["disabled_filesystems", "disabled_optimizers", "enable_progress_bar"],
            "lock_configuration": True,
        }
        """,
        """
        {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "allow_community_extensions": False,
            "allow_persistent_secrets": False,
            "python_enable_replacements": False,
            "memory_limit": "80%",
            "temp_directory": "",
            "explain_output": "all",
            "enable_external_access": False,
            "allowed_configs": ["disabled_filesystems", "disabled_optimizers", "enable_progress_bar"],
        }
        """,
        "a statement that got through opens the locks",
        "tests/backends/test_scratch_database.py::test_scratch_connection_reaches_only_its_table",
    ),
    Fault(
        "frames-not-locked",
        "dpsql.backends.duckdb.connection:_open_frames",
        "connect_with(config)",
        'duckdb.connect(config={"explain_output": config["explain_output"]})',
        "an engine that holds frames is open",
        "tests/attacks/test_a09_catalogues_and_files.py::test_locks_stay_closed",
    ),
    Fault(
        "scratch-not-locked",
        "dpsql.backends.scratch_database",
        '{**LOCKED, "memory_limit": "1GB", "threads": 1}',
        '{"memory_limit": "1GB", "threads": 1}',
        "what is done with released values may read files",
        "tests/backends/test_scratch_database.py::test_scratch_connection_reaches_only_its_table",
    ),
    Fault(
        "scratch-shared",
        "dpsql.backends.scratch_database:ScratchDatabase.create_table",
        'f"CREATE TEMP TABLE {quote_identifier(table)} ({declared})"',
        'f"CREATE OR REPLACE TABLE {quote_identifier(table)} ({declared})"',
        "two answers at a time read each other's values",
        "tests/backends/test_scratch_database.py::test_each_answer_has_its_own_tables",
    ),
    Fault(
        "database-opened-to-write",
        "dpsql.backends.duckdb.connection:_open_database_file",
        "connect_with(config, path, read_only=True)",
        "connect_with(config, path)",
        "the owner's file can be changed",
        "tests/backends/test_duckdb.py::test_file_is_opened_read_only",
    ),
    Fault(
        "no-snapshot",
        "dpsql.backends.duckdb.statements:StatementRunner._begin_transaction",
        'return self.execute_quietly("BEGIN TRANSACTION READ ONLY")',
        "return False",
        "a bound is looked up in one database and applied to another",
        "tests/engine/test_query_stages.py::test_all_statements_of_a_query_read_one_snapshot",
    ),
    Fault(
        "staged-without-a-transaction",
        "dpsql.backends.duckdb.connection:DuckDBBackend.stage_tables",
        "self._runner.open_transaction() if self.is_unchanging else nullcontext()",
        "nullcontext()",
        "exact contributions are left in a temporary table where it cannot be dropped",
        "tests/backends/test_duckdb.py::test_temporary_tables_of_a_file_end_with_their_transaction",
    ),
    Fault(
        "shadowed-table-read",
        "dpsql.backends.duckdb.catalog",
        '''
        """
            SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()
            WHERE NOT internal AND current_schema() = 'main' AND NOT starts_with(table_name, '#')
              AND (database_name = current_database() OR (database_name = 'temp' AND schema_name = 'main'))
            -- A name that two databases have is left out: which of them it means could change.
            QUALIFY COUNT(DISTINCT database_name) OVER (PARTITION BY lower(schema_name), lower(table_name)) = 1
            ORDER BY schema_name <> 'main', schema_name, table_name, column_index
        """
        ''',
        '''
        """
            SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()
            WHERE NOT internal AND current_schema() = 'main' AND NOT starts_with(table_name, '#')
              AND (database_name = current_database() OR (database_name = 'temp' AND schema_name = 'main'))
            -- A name that two databases have is left out: which of them it means could change.
            ORDER BY schema_name <> 'main', schema_name, table_name, column_index
        """
        ''',
        "another table of the same name is read than was checked",
        "tests/attacks/test_a08_name_games.py::test_checked_table_is_the_table_read",
    ),
    Fault(
        "types-guessed-from-values",
        "dpsql.backends.duckdb.sources:to_typed_frame",
        'untyped = str(dtype) == "object" or isinstance(dtype, pandas.CategoricalDtype)',
        "untyped = isinstance(dtype, pandas.CategoricalDtype)",
        "one value changes the type of a column",
        "tests/attacks/test_a25_types_from_values.py::test_one_value_does_not_change_a_type",
    ),
    Fault(
        "nan-by-statistics",
        "dpsql.backends.duckdb.files",
        '_HOLDS_NAN = "can_have_nan = true"',
        '_HOLDS_NAN = "can_have_nan = false"',
        "a value of one person decides whether NaN of others passes a condition",
        "tests/backends/test_files.py::test_nan_does_not_change_other_rows[x > 100-1000-1001-double]",
    ),
    Fault(
        "unreviewed-engine-opened",
        "dpsql.api.opening:open_engine",
        "require_verified()",
        "pass",
        "an engine that nobody tried answers queries",
        "tests/verification/test_certificate.py::test_unreviewed_engine_is_refused_at_connect",
    ),
    Fault(
        "certificate-of-anything",
        "dpsql.verification.certificate:require_verified",
        "found == build_certificate()",
        "found is not None",
        "a certificate of another version, platform or other laws lets an engine answer",
        "tests/verification/test_certificate.py::test_certificate_of_anything_else_does_not_count[duckdb]",
    ),
    Fault(
        "damaged-certificate-believed",
        "dpsql.verification.certificate:_parse_certificate",
        "checksum == found.compute_checksum()",
        "checksum is not None",
        "a certificate that was changed lets an engine answer",
        "tests/verification/test_certificate.py::test_damaged_certificate_is_refused[another version]",
    ),
    Fault(
        "certificate-of-others",
        "dpsql.verification.certificate:read_certificate",
        "state.st_mode & 0o022",
        "False",
        "another user of the machine vouches for an engine",
        "tests/verification/test_certificate.py::test_certificate_that_others_can_write_is_refused[438]",
    ),
    Fault(
        "certificate-without-the-laws",
        "dpsql.verification.certificate:build_certificate",
        "compute_laws_digest()",
        '"laws"',
        "a certificate of other laws lets an engine answer",
        "tests/verification/test_certificate.py::test_certificate_states_the_files_of_the_laws",
    ),
    Fault(
        "certificate-after-a-broken-law",
        "dpsql.interfaces.cli.engines:verify",
        "only is None",
        "True",
        "a law tried by itself certifies an engine",
        "tests/interfaces/cli/test_engines.py::test_failed_verification_writes_no_certificate",
    ),
    Fault(
        "broken-law-passes",
        "dpsql.verification.law:require",
        "not condition",
        "False",
        "a law that does not hold certifies an engine",
        "tests/verification/test_laws.py::test_hash_of_a_row_s_place_breaks_the_law",
    ),
    Fault(
        "settings-by-the-list-alone",
        "dpsql.backends.duckdb.settings:SettingsGuard.refuse_changed_settings",
        "dict(self._runner.query_rows(_SETTINGS)) | self._read_meaning()",
        "dict(self._runner.query_rows(_SETTINGS))",
        "a setting that the engine takes and does not list gives SQL another meaning",
        "tests/backends/test_settings.py::test_settings_that_change_sql_are_refused[error_on_division_by_zero]",
    ),
    Fault(
        "publish-beyond-the-budget",
        "dpsql.interfaces.cli.publish:run_publication",
        "require_budget(planned)",
        "",
        "some tables are charged and published, and then the budget is short",
        "tests/interfaces/test_publish.py::test_an_invalid_publication_is_refused_before_any_charge[change0-budget_exhausted-does not fit into the budget of visits]",
    ),
    Fault(
        "publish-with-new-noise",
        "dpsql.interfaces.publish:Publication.build_query_options",
        '{"epsilon": loss, "delta": table.delta, "max_groups": table.max_groups, "dialect": self.dialect, "replay": True}',
        '{"epsilon": loss, "delta": table.delta, "max_groups": table.max_groups, "dialect": self.dialect, "replay": False}',
        "a release that goes on after an interruption is charged twice",
        "tests/interfaces/test_publish.py::test_publishing_again_is_free_and_the_same",
    ),
)
