"""Sessions of chdb, which runs ClickHouse in this process: opened beside the owner's, with settings of their own; their statements."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from dpsql.backends.base import make_failure
from dpsql.backends.clickhouse.native import read_rows
from dpsql.backends.clickhouse.values import emit_constant
from dpsql.errors import BackendError, OperationalError, ProgrammingError
from dpsql.version import write_pip_command

# The settings of a session that decide over values, errors or rows.


PINNED = MappingProxyType(
    {
        # what standard SQL means
        "cast_keep_nullable": "1",  # a cast of NULL is NULL, and fails otherwise
        "join_use_nulls": "1",
        "group_by_use_nulls": "1",
        "aggregate_functions_null_for_empty": "1",
        "transform_null_in": "0",
        "least_greatest_legacy_null_behavior": "0",
        "prefer_column_name_to_alias": "1",  # an alias of SELECT would stand for a column of its name in WHERE
        "count_distinct_implementation": "uniqExact",  # others are estimates
        "union_default_mode": "DISTINCT",
        "intersect_default_mode": "DISTINCT",
        "except_default_mode": "DISTINCT",
        "join_default_strictness": "ALL",
        "any_join_distinct_right_table_keys": "0",
        "join_any_take_last_row": "0",
        "enable_analyzer": "1",
        "allow_experimental_correlated_subqueries": "1",
        "enable_positional_arguments": "1",
        "joined_subquery_requires_alias": "1",
        "data_type_default_nullable": "0",
        "use_variant_as_common_type": "0",
        "dialect": "clickhouse",
        "compatibility": "",
        "implicit_select": "0",
        "session_timezone": "UTC",
        "short_circuit_function_evaluation": "enable",
        # all rows of the tables, and no others
        "final": "0",
        "apply_deleted_mask": "1",
        "use_query_cache": "0",
        "use_query_condition_cache": "0",
        "additional_table_filters": "{}",
        "additional_result_filter": "",
        "limit": "0",
        "offset": "0",
        "extremes": "0",
        "optimize_using_constraints": "0",
        "optimize_append_index": "0",
        "optimize_substitute_columns": "0",
        "optimize_use_projections": "0",
        "optimize_use_implicit_projections": "0",
        "use_skip_indexes": "0",
        "max_parallel_replicas": "1",
        # sums of 128 bits stay such
        "optimize_arithmetic_operations_in_aggregate_functions": "0",
        "optimize_rewrite_sum_if_to_count_if": "0",
        "optimize_rewrite_aggregate_function_with_if": "0",
        "optimize_syntax_fuse_functions": "0",
        # a limit that is passed is a failure, and cuts no result
        **{
            f"{kind}_overflow_mode": "throw"
            for kind in (
                "read",
                "group_by",
                "sort",
                "result",
                "timeout",
                "set",
                "join",
                "transfer",
                "distinct",
            )
        },
        **{
            f"max_{kind}": "0"
            for kind in (
                *("rows_to_read", "bytes_to_read", "rows_to_group_by", "rows_to_sort", "bytes_to_sort"),
                *(
                    "result_rows",
                    "result_bytes",
                    "execution_time",
                    "rows_in_set",
                    "bytes_in_set",
                    "rows_in_join",
                ),
                *(
                    "bytes_in_join",
                    "rows_to_transfer",
                    "bytes_to_transfer",
                    "rows_in_distinct",
                    "bytes_in_distinct",
                ),
            )
        },
        # long statements
        "max_query_size": "67108864",
        "max_ast_depth": "100000",
        "max_ast_elements": "10000000",
        "max_expanded_ast_elements": "10000000",
        "max_parser_depth": "100000",
        "max_subquery_depth": "10000",
        "max_columns_to_read": "0",
        "max_temporary_columns": "0",
        # no trace of a statement, whose text may hold the secret of a sample
        "log_queries": "0",
        "log_query_threads": "0",
        "log_query_views": "0",
        "send_logs_level": "none",
        "allow_introspection_functions": "0",
        "output_format_native_encode_types_in_binary_format": "0",
    }
)
"""What each setting has to be."""

_SPEED = re.compile(
    r"max_(threads|block_size|memory_usage|bytes_before_external_\w+|bytes_ratio_before_external_\w+)|join_algorithm"
    r"|(local|remote)_filesystem_read_method|storage_file_read_method|database|serialize_query_plan"
)
"""Settings that decide over speed and memory, or where tables without a schema lie: these stay."""
REVIEWED = "26.9"
"""The version of ClickHouse that was reviewed; no other is taken."""


def open_session(database: Any) -> tuple[Any, Callable[[], Any], str]:
    """Open a session in which no other statement runs; return it, what opens another one, and the name of its database.

    `database` is a URL, as chdb:///srv/clinic?database=wards, or an owner's connection. Raises OperationalError where chdb is missing
    (`driver_missing`), the folder cannot be opened (`no_database`), or the version was not reviewed (`engine_version`).
    """
    if isinstance(database, str):
        folder, name = parse_url(database)
        if not folder.is_dir():
            raise OperationalError(
                "there is no folder of chdb at this place",
                code="no_database",
                hint="chdb:///path/of/the/folder, which chdb.connect(path) made",
            )
        places = [str(folder)]
    else:
        places, name = _find_places(database)
    chdb = _import_chdb()
    for open_another in (partial(chdb.connect, place) for place in places):
        session = None
        with suppress(Exception):  # the process has a database at another of these places
            session = open_another()
        if session is not None:
            _require_version(session)
            return session, open_another, name
    raise OperationalError(
        "cannot open this database of chdb",
        code="no_database",
        hint="a process can open one folder of chdb; close the other one, or run dpsql in another process",
    )


def _find_places(connection: Any) -> tuple[list[str], str]:
    """Return what an owner's connection may have been opened with, and the name of its database; nothing where it is closed."""
    sql = "SELECT path, currentDatabase() FROM system.disks WHERE name = 'default'"
    with suppress(Exception):
        connection.query("SELECT 1", "Native")  # with which leftovers come: see `SessionRunner`
        ((path, name),) = read_rows(connection.query(sql, "Native").bytes())
        return [path.rstrip("/"), path, ":memory:"], name
    return [], ""


def parse_url(url: str) -> tuple[Path, str]:
    """Return the folder and the name of the database of a URL; raise ProgrammingError (`no_database`) if it has other parts.

    >>> parse_url("chdb:///srv/clinic?database=wards")
    (PosixPath('/srv/clinic'), 'wards')
    """
    parts = urlsplit(url)
    options = parse_qs(parts.query, keep_blank_values=True)
    names = options.pop("database", ["default"])
    if (
        parts.netloc
        or not parts.path.strip("/")
        or options
        or parts.fragment
        or len(names) != 1
        or not names[0]
    ):
        raise ProgrammingError(
            "this is not the URL of a folder of chdb",
            code="no_database",
            hint="chdb:///absolute/path, or chdb:///absolute/path?database=NAME",
        )
    return Path(unquote(parts.path)), names[0]


def _import_chdb() -> Any:
    try:
        import chdb
    except ImportError:
        raise OperationalError(
            "ClickHouse requires chdb, which is not installed",
            code="driver_missing",
            hint=write_pip_command("clickhouse"),
        ) from None
    return chdb


def _require_version(session: Any) -> None:
    version = str(session.query("SELECT version()", "TSV")).strip()
    if not version.startswith(f"{REVIEWED}."):
        raise OperationalError(
            f"ClickHouse {version} is not supported; the supported version is {REVIEWED}",
            code="engine_version",
        )


# Statements of a session. A failure has constant text, and says nothing of ClickHouse's words.


_T = TypeVar("_T")
_TIMES = 3
"""How often leftovers are discarded; once was always enough."""
_MARKED = b"\x01\x01\x04mark\x06String\x10"
"""A block of one row with a text of 16 letters, before the text."""


class SessionRunner:
    """A session of dpsql's own, and the mark of its statements, by which another session can stop them.

    Claim: what is read of a statement are the rows of this statement alone.
    Why: chdb puts rows that a failed statement had computed before those of the next one. After each statement that did not
    end, another one with a constant is run, until it alone is what comes.
    """

    def __init__(self, session: Any, open_another: Callable[[], Any]) -> None:
        self.session, self._open_another, self.is_cancelled = session, open_another, False
        self._mark = f"dpsql-{secrets.token_hex(8)}"
        self._has_leftovers = False

    def pin_settings(self) -> None:
        """Set all settings that decide over values, reset others to their defaults, and allow no change of tables.

        Claim: an emitted statement means the same whatever the owner's configuration sets, and writes to no table but temporary ones.
        Why: each of these settings is set, every other one that is not known to decide over speed alone is taken back to ClickHouse's
        own default, and nobody else has the session. With `readonly` 2 a session reads, sets, and has temporary tables.
        Source: ClickHouse 26 documentation, "Settings", "Permissions for queries" (readonly).
        """
        changed = self.query_rows("SELECT name, default FROM system.settings WHERE changed")
        reset = {
            name: default for name, default in changed if not _SPEED.fullmatch(name) and name not in PINNED
        }
        for name, value in (*reset.items(), *PINNED.items(), ("log_comment", self._mark), ("readonly", "2")):
            self.run_command(f"SET {name} = {emit_constant(value)}")

    def query_rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return self.run_guarded(lambda: read_rows(self.session.query(sql, "Native").bytes()))

    def run_command(self, sql: str) -> None:
        """Run a statement without rows."""
        self.run_guarded(lambda: self.session.query(sql, "Native"))

    def create_table(self, name: str, query: str) -> None:
        """Compute the rows of a query now, and hold them in memory under a name of this session."""
        self.run_command(f"CREATE TEMPORARY TABLE {name} ENGINE = Memory AS {query}")

    def create_empty_table(self, name: str, query: str) -> None:
        """Make a table with the columns of a query, which is analyzed and not run."""
        self.run_command(f"CREATE TEMPORARY TABLE {name} ENGINE = Memory EMPTY AS {query}")

    def drop_table(self, name: str) -> None:
        """Drop a table of this session."""
        with suppress(BackendError):
            self.run_command(f"DROP TEMPORARY TABLE IF EXISTS {name}")

    def run_guarded(self, work: Callable[[], _T]) -> _T:
        """Do something with the session. Raises BackendError, with constant text, for any failure."""
        failed: BaseException | None = None
        try:
            if self._has_leftovers:
                self._discard_leftovers()
            self._has_leftovers = True
            found = work()
        except KeyboardInterrupt:
            raise
        except Exception:  # noqa: BLE001  (whatever an engine raises may quote a private value)
            failed = make_failure(cancelled=self.is_cancelled)
        else:
            self._has_leftovers = False
            return found
        # Raised out here, where no engine error is being handled: even `from None` keeps the context.
        raise failed

    def _discard_leftovers(self) -> None:
        """Run a statement with a new constant until it alone is what comes. Raises RuntimeError if it does not."""
        for _ in range(_TIMES):
            mark = secrets.token_hex(8)
            data = self.session.query(f"SELECT {emit_constant(mark)} AS mark", "Native").bytes()
            if data == _MARKED + mark.encode():
                self._has_leftovers = False
                return
        raise RuntimeError("the results of chdb are not in order")

    def interrupt(self) -> None:
        """Stop the running statement from another thread, by a session that is open for this alone."""
        self.is_cancelled = True
        with suppress(Exception):  # what has ended cannot be stopped
            other = self._open_another()
            try:
                other.query(
                    f"KILL QUERY WHERE Settings['log_comment'] = {emit_constant(self._mark)} ASYNC", "TSV"
                )
            finally:
                other.close()

    def close(self) -> None:
        """End the session; its temporary tables end with it."""
        with suppress(Exception):
            self.session.close()
