"""Settings of an owner's connection: those that give SQL another meaning, and those that do not.

Claim: with the settings that pass, an emitted statement means what it means on a connection as DuckDB
opens it.
Why: each setting was reviewed, and one that was not has to be as it is on a new connection. Extensions'
own settings concern functions that no statement calls.
Source: DuckDB's documentation, "Configuration" and "Pragmas".
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import duckdb

from dpsql.backends.duckdb.statements import StatementRunner
from dpsql.backends.duckdb.versions import supports
from dpsql.errors import BackendError, OperationalError, ProgrammingError
from dpsql.policy.names import quote_literal

UNSOUND = "common_subplan" if supports("common_subplan") else ""
"""An optimizer that returns wrong rows: it treats different subqueries as equal, as some of DuckDB's issues report and the
differential search finds. No contribution bound may depend on it, so no statement runs with it.
"""

MEANING: dict[str, str | None] = {
    "integer_division": "false",
    "error_on_division_by_zero": "true",
    "ieee_floating_point_ops": "true",
    "default_collation": "",
    "default_null_order": "NULLS_LAST",
    "null_order": "NULLS_LAST",
    "default_order": "ASCENDING",
    "scalar_subquery_error_on_multiple_rows": "true",
    "order_by_non_integer_literal": "false",
    "regex_match_operator_semantics": "partial",
    "dialect_compatibility_mode": "NONE",
    "current_dialect": None,
    "active_grammar_extensions": "[]",
    "allow_parser_override_extension": "DEFAULT",
    "disable_timestamptz_casts": "false",
    "legacy_disable_null_type": "false",
    "preserve_identifier_case": "preserve_case" if supports("identifier_cases") else "true",
    "table_function_identifier_conversion": "DEFAULT",
    "max_execution_time": "0",
    "warnings_as_errors": "false",
    "Calendar": "gregorian",
    "old_implicit_casting": "false",
    "lambda_syntax": "DEFAULT",
    "deprecated_using_key_syntax": "DEFAULT",
    "delim_join_as_cte": "true",
    "debug_asof_iejoin": "false",
    "debug_checkpoint_abort": "NONE",
    "debug_checkpoint_sleep_ms": "0",
    "debug_eviction_queue_sleep_micro_seconds": "0",
    "debug_force_external": "false",
    "debug_force_no_cross_product": "false",
    "debug_physical_table_scan_execution_strategy": "DEFAULT",
    "debug_skip_checkpoint_on_commit": "false",
    "debug_verify_blocks": "false",
    "debug_verify_vector": "NONE",
    "debug_window_mode": "WINDOW",
}
"""What decides over values, errors or the grammar, with what it has to be.

A time limit is among them: whether a statement ends before it depends on the rows. So are settings that send a statement through
code which exists for DuckDB's own tests. The engine's list of settings leaves
out some that it takes nevertheless, so each of these that it knows is asked for by its name.
"""
_HARMLESS = """
    __delta_only_variant_encoding_enabled access_mode allocator_background_threads
    allocator_bulk_deallocation_flush_threshold allocator_flush_threshold allow_community_extensions
    allow_extension_repositories allow_extensions_metadata_mismatch allow_persistent_secrets
    allow_unredacted_secrets allow_unsigned_extensions allowed_configs allowed_directories allowed_paths
    approximate_join_order_threshold arrow_large_buffer_size arrow_lossless_conversion
    arrow_output_list_view arrow_output_version asof_loop_join_threshold async_threads
    auto_checkpoint_skip_wal_threshold autoinstall_extension_repository autoinstall_known_extensions
    autoload_known_extensions binary_as_string block_allocator_memory cache_local_files
    catalog_error_max_schemas checkpoint_on_detach checkpoint_threshold
    current_transaction_invalidation_policy custom_extension_repository custom_profiling_settings
    custom_user_agent debug_checkpoint_scan_sleep_ms default_block_size default_secret_storage
    default_transaction_invalidation_policy disable_database_invalidation disable_parquet_prefetching
    disabled_compression_methods disabled_filesystems disabled_log_types disabled_optimizers duckdb_api
    dynamic_or_filter_threshold enable_caching_operators enable_external_access
    enable_external_file_cache enable_fsst_vectors enable_geoparquet_conversion enable_http_logging
    enable_http_metadata_cache enable_logging enable_macro_dependencies enable_object_cache
    enable_optimistic_write enable_optimizer enable_profiling enable_progress_bar
    enable_progress_bar_print enable_view_dependencies enabled_log_types errors_as_json
    experimental_metadata_reuse explain_output extension_directories extension_directory
    extension_repository_directory external_file_cache_local_max_block_size
    external_file_cache_remote_max_block_size external_file_cache_remote_min_block_size
    external_file_cache_request_sizing external_file_cache_spill external_threads file_search_path
    force_bitpacking_mode force_column_metadata_reuse force_compression force_mbedtls_unsafe
    force_variant_shredding fsync_mode geometry_minimum_shredding_size home_directory
    http_client_pool_capacity http_logging_output http_proxy http_proxy_password http_proxy_username
    http_retry_quota_throttled http_retry_throttled_wait_ms ignore_unknown_crs
    immediate_transaction_mode index_scan_max_count index_scan_percentage initial_column_segment_size
    json_geometry_format late_materialization_max_rows lock_configuration log_query_path logging_level
    logging_mode logging_sink logging_storage max_expression_depth max_memory max_streaming_buffer_size
    max_temp_directory_size max_vacuum_tasks memory_limit merge_join_threshold
    nested_loop_join_threshold operator_memory_limit ordered_aggregate_threshold pandas_analyze_sample
    parquet_can_have_nan parquet_metadata_cache parquet_prefetch_column_gap parquet_use_page_index
    partitioned_write_flush_threshold partitioned_write_max_open_files password perfect_ht_threshold
    pin_threads pivot_filter_threshold pivot_limit prefer_range_joins prefetch_all_parquet_files
    preserve_insertion_order produce_arrow_string_view profile_output profiling_coverage profiling_mode
    profiling_output profiling_renderer_settings progress_bar_time python_enable_replacements
    python_scan_all_frames read_ahead_depth redact_http_logs scheduler_process_partial schema
    search_path secret_directory show_behavior standard_vector_size storage_block_prefetch
    storage_compatibility_version streaming_buffer_size temp_directory temp_file_encryption threads
    TimeZone tracked_metrics user username vacuum_rebuild_indexes validate_external_file_cache
    variant_legacy_encoding variant_minimum_shredding_size wal_autocheckpoint wal_autocheckpoint_entries
    worker_threads write_buffer_row_group_count write_buffer_row_group_memory_limit
    zstd_min_string_length
"""
HARMLESS = frozenset(_HARMLESS.split())
"""Speed, memory, files, secrets, logs, and where names are looked up, which the schema is read by too.

The time zone is the machine's: no type with a time zone is read, and what a view makes of one is the owner's
to say.
"""


def require_unchanged(settings: Mapping[str, str | None]) -> None:
    """Raise OperationalError for settings that may change the meaning of SQL."""
    if found := find_changed_settings(settings):
        listed = ", ".join(f"{name} = {value}" for name, value in found.items())
        raise OperationalError(
            f"settings of the connection change the meaning of SQL: {listed}",
            code="setting",
            hint="run " + "; ".join(f"RESET {name}" for name in found),
        )


def find_changed_settings(settings: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return those of the settings that may change the meaning of SQL.

    >>> find_changed_settings({"integer_division": "true", "threads": "4", "default_order": "ascending"})
    {'integer_division': 'true'}
    """
    return {name: value for name, value in settings.items() if not _has_expected_value(name, value)}


def _has_expected_value(name: str, value: str | None) -> bool:
    if name in HARMLESS:
        return True
    expected = MEANING[name] if name in MEANING else _read_default_settings().get(name, value)
    return _normalize_value(expected) == _normalize_value(value)


def _normalize_value(value: str | None) -> str:
    return "" if value is None else value.casefold()


@cache
def _read_default_settings() -> dict[str, str | None]:
    """Read the settings of a new connection."""
    with duckdb.connect() as plain:
        return dict(plain.execute("SELECT name, value FROM duckdb_settings()").fetchall())


# Check the settings of an owner's connection, and set those that do not change the meaning of SQL.


_SETTINGS = "SELECT name, value FROM duckdb_settings()"
_EXPLAINED = "SELECT value, scope FROM duckdb_settings() WHERE name = 'explain_output'"
_PROGRESS = "SELECT current_setting('enable_progress_bar')"
_OPTIMIZERS = "SELECT current_setting('disabled_optimizers')"


@cache
def list_known_meaning() -> tuple[str, ...]:
    """List the settings of `MEANING` that the installed DuckDB knows; nobody can change another one."""
    known = []
    with duckdb.connect() as plain:
        for name in MEANING:
            with suppress(duckdb.CatalogException):
                plain.execute(f"SELECT current_setting('{name}')")
                known.append(name)
    return tuple(known)


class SettingsGuard:
    """The settings of a connection: an owner's is checked and restored; one that dpsql opened is locked, and not looked at."""

    def __init__(self, runner: StatementRunner) -> None:
        self._runner = runner
        self._lookup_stack: ExitStack | None = None
        self._has_begun_lookups = False

    def refuse_changed_settings(self) -> None:
        """Raise OperationalError if any setting changes the meaning of SQL."""
        if not self._runner.owned:
            require_unchanged(dict(self._runner.query_rows(_SETTINGS)) | self._read_meaning())
            self._disable_unsound_optimizer()

    def refuse_changed_meaning(self) -> None:
        """Check the few settings that change the meaning of SQL, before each charge."""
        if self._runner.owned:
            return
        try:
            found = self._read_meaning()
        except BackendError:
            return  # the statement cannot be bound either
        require_unchanged(found)
        self._disable_unsound_optimizer()

    def _read_meaning(self) -> dict[str, str | None]:
        names = list_known_meaning()
        values = ", ".join(f"CAST(current_setting('{name}') AS VARCHAR)" for name in names)
        ((*found,),) = self._runner.query_rows(f"SELECT {values}")
        return dict(zip(names, found, strict=True))

    @contextmanager
    def show_bound_plans(self) -> Iterator[None]:
        """Make EXPLAIN show the bound plan, and restore the setting of an owner's connection."""
        before = [] if self._runner.owned else self._runner.query_rows(_EXPLAINED)
        explains = bool(before) and self._runner.execute_quietly("SET explain_output = 'all'")
        try:
            yield
        finally:
            for value, scope in before if explains else ():
                self._runner.execute_quietly(
                    f"SET explain_output = '{value}'" if scope == "LOCAL" else "RESET SESSION explain_output"
                )

    @contextmanager
    def apply_safe_settings(self) -> Iterator[None]:
        """Disable the unsound optimizer and progress output, and restore progress output of an owner's connection."""
        if self._runner.owned:
            yield
            return
        self._disable_unsound_optimizer()
        ((progress,),) = self._runner.query_rows(_PROGRESS)
        if progress:
            self._runner.execute_quietly("SET enable_progress_bar = false")
        try:
            yield
        finally:
            if progress:
                self._runner.execute_quietly("SET enable_progress_bar = true")

    @contextmanager
    def share_lookup_settings(self) -> Iterator[None]:
        """Let all public lookups of the enclosed work apply the safe settings once, since a query has many."""
        before = (self._lookup_stack, self._has_begun_lookups)
        try:
            with ExitStack() as self._lookup_stack:
                self._has_begun_lookups = False
                yield
        finally:
            self._lookup_stack, self._has_begun_lookups = before

    @contextmanager
    def apply_lookup_settings(self) -> Iterator[None]:
        """Apply the safe settings for a public lookup; once within `share_lookup_settings`."""
        if self._lookup_stack is None:
            with self.apply_safe_settings():
                yield
            return
        if not self._has_begun_lookups:
            self._lookup_stack.enter_context(self.apply_safe_settings())
            self._has_begun_lookups = True
        yield

    def _disable_unsound_optimizer(self) -> None:
        """Disable the unsound optimizer in an owner's database, for good.

        The setting applies to the whole database. If it were enabled again after a statement, a statement of another connection
        could run with it. Raises OperationalError if it is enabled and the configuration is locked.
        """
        if not UNSOUND:
            return
        ((disabled,),) = self._runner.query_rows(_OPTIMIZERS)
        names = [name.strip() for name in str(disabled).split(",") if name.strip()]
        wanted = ",".join(dict.fromkeys((*names, UNSOUND)))
        if (
            not self._runner.execute_quietly(f"SET GLOBAL disabled_optimizers = {quote_literal(wanted)}")
            and UNSOUND not in names
        ):
            raise OperationalError(
                f"DuckDB's optimizer {UNSOUND} returns wrong rows, and the locked configuration does not allow disabling it",
                code="setting",
                hint=f"before locking the configuration, run SET disabled_optimizers = '{UNSOUND}'",
            )


# The configuration that engines are opened with and cannot leave, and the part of the machine that a process has.


Config: TypeAlias = dict[str, bool | str | int | float | list[str]]
LOCKED: Config = {
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
"""The second wall behind the whitelist: no file, extension, variable of the program or setting.

Memory is bounded by a share of the machine's, and nothing is written to disk but into a folder of the owner's choice: a
statement that needs more fails. The settings left open are those that `lock_down` closes.
"""

_PARTS = [1]


def use_part(processes: int) -> None:
    """Limit the next engines of this process to its share of the machine, as one of several processes."""
    _PARTS[0] = processes


def build_locked_config() -> Config:
    """Return `LOCKED`, for this process's part of the machine."""
    if _PARTS[0] == 1:
        return LOCKED
    threads = max(1, (os.cpu_count() or 1) // _PARTS[0])
    return {**LOCKED, "memory_limit": f"{80 / _PARTS[0]:.2f}%", "threads": threads}


# Folders into which an engine may write what does not fit into memory.


_LIMIT = re.compile(r"[0-9]{1,12}(\.[0-9]{1,3})? ?([KMGT]i?B)", re.IGNORECASE)
_MEBIBYTE = 2**20
_LOCK = threading.Lock()


@dataclass(eq=False, slots=True)
class SpillFolder:
    """A folder of this process, with the most that it may hold; `users` are the connections that share it.

    Each is private to the user (mode 0700), bounded, and removed when the last connection on its database closes; what a process
    that was killed has left is removed when the next folder beside it is made.
    """

    path: Path
    request: tuple[Path, str | None]
    limit: str
    key: str | None
    process: int
    users: int = 0

    @property
    def config(self) -> dict[str, str]:
        """Return the engine's settings. They come before the one that closes the file system."""
        return {"temp_directory": str(self.path), "max_temp_directory_size": self.limit}

    def drop_user(self) -> None:
        """Count one connection less; the last one removes the folder."""
        with _LOCK:
            self.users -= 1
            if self.users > 0 or self.process != os.getpid():
                return
            if self.key is not None:
                _SHARED.pop(self.key, None)
        shutil.rmtree(self.path, ignore_errors=True)


_SHARED: dict[str, SpillFolder] = {}


def open_spill_folder(parent: str | Path, limit: str | None, database: str | None) -> SpillFolder:
    """Return a folder within `parent` for an engine on the file `database`; the same for all its connections in this process.

    `limit` is the most that it may hold, as "20GB"; half of what is free now unless stated. Raises OperationalError
    (`temp_directory`) where no folder can be made, ProgrammingError (`temp_limit`) for another text.
    """
    if limit is not None and not _LIMIT.fullmatch(limit):
        raise ProgrammingError(
            f"{limit!r} is not an amount of disk space",
            code="temp_limit",
            hint='write temp_limit="20GB", for example',
        )
    where, key = Path(parent), None if database is None else os.path.realpath(database)
    with _LOCK:
        found = None if key is None else _SHARED.get(key)
        if found is None or found.process != os.getpid() or found.request != (where, limit):
            found = _make_folder(where, limit, key)
            if key is not None:
                _SHARED[key] = found
        found.users += 1
        return found


def _make_folder(where: Path, limit: str | None, key: str | None) -> SpillFolder:
    prefix = f".dpsql-{re.sub(r'[^0-9A-Za-z]', '', platform.node())}-"
    try:
        _remove_stale_folders(where, prefix)
        path = Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-", dir=where))
        free = shutil.disk_usage(path).free
    except OSError:
        path = None
    if path is None:
        raise OperationalError(
            f"cannot create a folder for temporary files in {where}",
            code="temp_directory",
            hint="choose a writable directory on a local disk",
        )
    most = limit or f"{max(1, free // 2 // _MEBIBYTE)}MiB"
    return SpillFolder(path, (where, limit), most, key, os.getpid())


def _remove_stale_folders(where: Path, prefix: str) -> None:
    """Remove the folders of this machine's processes that have ended."""
    for path in where.glob(f"{prefix}*-*"):
        process = path.name.removeprefix(prefix).partition("-")[0]
        if process.isdecimal() and int(process) != os.getpid() and not _is_running(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
