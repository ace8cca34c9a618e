"""Sessions of Spark: opened by URL, or made beside an owner's, so that its settings and views are not met; their statements."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from dpsql.backends.base import make_failure
from dpsql.errors import BackendError, OperationalError
from dpsql.version import write_pip_command

# The settings of a Spark session that decide over values, errors or rows.


PINNED = MappingProxyType(
    {
        "spark.sql.ansi.enabled": "true",  # what fails says so, and is written with functions that try
        "spark.sql.ansi.doubleQuotedIdentifiers": "true",
        "spark.sql.ansi.enforceReservedKeywords": "false",
        "spark.sql.ansi.relationPrecedence": "false",
        "spark.sql.caseSensitive": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
        "spark.sql.variable.substitute": "false",  # ${…} is text
        "spark.sql.parser.escapedStringLiterals": "false",
        "spark.sql.parser.quotedRegexColumnNames": "false",
        "spark.sql.groupByOrdinal": "true",
        "spark.sql.orderByOrdinal": "true",
        "spark.sql.groupByAliases": "true",
        "spark.sql.decimalOperations.allowPrecisionLoss": "true",
        "spark.sql.readSideCharPadding": "true",
        "spark.sql.files.ignoreCorruptFiles": "false",
        "spark.sql.files.ignoreMissingFiles": "false",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # EXCEPTION fails on old days
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.binaryAsString": "false",
        "spark.sql.parquet.int96AsTimestamp": "true",
        "spark.sql.parquet.inferTimestampNTZ.enabled": "true",
        "spark.sql.execution.sortBeforeRepartition": "true",  # a task that is tried again sends the same rows
        "spark.sql.crossJoin.enabled": "true",
        "spark.sql.execution.arrow.useLargeVarTypes": "false",
        "spark.sql.runSQLOnFiles": "false",
    }
)
"""What each setting has to be."""

QUICK = MappingProxyType({"spark.sql.codegen.hugeMethodLimit": "8000"})
"""Settings for speed only: Java does not compile a larger method, and Spark splits one only by this setting. The intervals of three clamps make such a method."""

_SPEED = re.compile(
    r"""spark\.sql\.(
        (adaptive|shuffle|autoBroadcastJoinThreshold|broadcastTimeout|inMemoryColumnarStorage|cbo|statistics|sources
            |streaming|ui|redaction|warehouse|catalogImplementation|extensions|hive|maven|artifact|session\.localRelation
            |thriftServer|eventLog|queryExecutionListeners|debug|maxMetadataStringLength|event|pyspark)\b.*
        |catalog\.[^.]+(\..*)?|defaultCatalog
        |files\.(maxPartitionBytes|openCostInBytes|minPartitionNum|maxPartitionNum)
        |codegen\.(?!factoryMode).*|join\.preferSortMergeJoin|execution\.arrow\.maxRecordsPerBatch
        |parquet\.(enableVectorizedReader|filterPushdown.*|columnarReaderBatchSize|aggregatePushdown)
    )""",
    re.VERBOSE,
)
"""Settings that decide over speed, or where data lies: these stay."""


def needs_reset(name: str) -> bool:
    """Return whether a setting that somebody set is taken back to Spark's default.

    >>> needs_reset("spark.sql.legacy.sizeOfNull"), needs_reset("spark.sql.shuffle.partitions"), needs_reset("spark.executor.memory")
    (True, False, False)
    """
    return name.startswith("spark.sql.") and name not in PINNED and _SPEED.fullmatch(name) is None


REVIEWED = ((4, 0), (4, 0))
"""The oldest and the newest version that was reviewed; no other is taken."""
_LOG = "SQLQueryContextLogger"
"""Where pyspark writes an error with the query and the value that it is about."""
_PATIENCE = 20
"""For how many seconds a server of Spark Connect may take to be reached."""


def is_remote(session: Any) -> bool:
    """Return whether a session is one of Spark Connect."""
    return ".connect." in type(session).__module__


def open_session(database: Any) -> tuple[Any, bool]:
    """Open a session in which no other statement runs, and return whether its application ends with it, too.

    `database` is a URL, as spark://host:7077 or sc://host:15002, or an owner's session. Raises OperationalError where pyspark
    or Java is missing (`driver_missing`), nothing answers (`no_database`), or the version was not reviewed.
    """
    if not isinstance(database, str):
        require_version(str(database.version))
        return _open_sibling_session(database), False
    session_class = _import_session_class()
    if database.startswith("sc://"):
        return _open_reviewed_session(lambda: _open_remote_session(database)), True
    if session_class.getActiveSession() is not None:
        raise OperationalError(
            "this process already has a Spark session",
            code="argument",
            hint="use it with dpsql.connect(session, policy=…)",
        )
    _require_java()
    builder = session_class.builder.master(database).appName("dpsql")
    # Neither how far a query has come nor the words of a failure are shown.
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "OFF")
    return _open_reviewed_session(builder.getOrCreate), True


def _open_sibling_session(session: Any) -> Any:
    """Open a session of the same application, with its tables, and without its settings and temporary views."""
    if not is_remote(session):
        return _open_reviewed_session(session.newSession)
    builder = session.client._builder  # noqa: SLF001  (Connect has no newSession)
    return _open_reviewed_session(lambda: type(session)(connection=builder))


def _open_remote_session(url: str) -> Any:
    """Open a session of Spark Connect that is not the process's active one, which may be its owner's.

    Its client tries again for minutes where nothing answers: that a server is there is seen before.
    """
    import grpc
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    session = ConnectSession(connection=url)
    grpc.channel_ready_future(session.client._channel).result(timeout=_PATIENCE)  # noqa: SLF001
    return session


def close_session(session: Any, owned: bool) -> None:
    """End the application if it was begun for dpsql, and of Spark Connect the session alone.

    A Connect session's own `stop` would end the server, too, where the same process began it (`remote("local")`). Its client is closed
    for good: the session closes it once more when Python collects it, and in the middle of another session's statement that
    would wait for a lock which this statement holds.
    """
    with suppress(Exception), disable_error_log():
        if is_remote(session):
            session.client.release_session()
            session.client.close()
            session.client.close = _do_nothing
        elif owned:
            session.stop()


def _do_nothing() -> None:
    return None


def _import_session_class() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise OperationalError(
            "Spark requires pyspark, which is not installed",
            code="driver_missing",
            hint=write_pip_command("spark"),
        ) from None
    return SparkSession


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java") or (home and shutil.which("java", path=str(Path(home) / "bin")))
    if not found:
        raise OperationalError(
            "Spark requires Java 17 or 21, which was not found",
            code="driver_missing",
            hint="install a JRE, such as Debian's default-jre-headless, or set JAVA_HOME; sc://… needs no Java on this machine",
        )


def _open_reviewed_session(connect: Any) -> Any:
    """Open a session of a reviewed version; one clear sentence if that fails."""
    reason = ""
    try:
        with disable_error_log():
            session = connect()
            version = str(session.version)
    except Exception as error:  # noqa: BLE001  (its words may hold the URL's token)
        reason = type(error).__name__
        if isinstance(error, ImportError):
            reason = "a package of pyspark[connect] is missing"
    if reason:
        raise OperationalError(
            f"cannot connect to Spark ({reason})",
            code="no_database",
            hint="check whether a SparkSession connects to the same URL; Spark Connect requires "
            + write_pip_command("spark"),
        )
    require_version(version)
    return session


def require_version(version: str) -> None:
    """Refuse a version that was not reviewed."""
    found = re.match(r"(\d+)\.(\d+)", version)
    oldest, newest = REVIEWED
    if found is None or not oldest <= (int(found[1]), int(found[2])) <= newest:
        words = " to ".join(dict.fromkeys(".".join(map(str, ends)) for ends in REVIEWED))
        raise OperationalError(
            f"Spark {version} is not supported; supported versions are {words}",
            code="engine_version",
        )


def pin_settings(session: Any) -> None:
    """Set all settings that decide over values, reset others to Spark's defaults, and set those that make statements quick.

    Claim: an emitted statement means the same whatever the cluster, the application or the owner's session sets.
    Why: statements run in a session of their own, in which each of these settings is set, and every other setting of Spark's SQL
    that is not known to decide over speed alone is taken back to Spark's own default.
    Source: Spark 4.0 documentation, "Configuration", "ANSI compliance" and "SQL migration guide"; its SQLConf.
    """
    known = {str(row[0]) for row in session.sql("SET").collect()}
    for name in filter(needs_reset, sorted(known)):
        if session.conf.isModifiable(name):
            session.conf.unset(name)
    for name, value in (*PINNED.items(), *QUICK.items()):
        session.conf.set(name, value)


@contextmanager
def disable_error_log() -> Iterator[None]:
    """Keep pyspark from writing errors to its log, which would quote the value that they are about."""
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger(_LOG)  # of its own class, with which pyspark writes
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


# Statements of a session. A failure has constant text, and says nothing of Spark's words.


_T = TypeVar("_T")


class SessionRunner:
    """A session, and the tag of its jobs, by which another thread can stop them."""

    def __init__(self, session: Any) -> None:
        self.session, self.is_cancelled = session, False
        self._tag = f"dpsql-{secrets.token_hex(8)}"

    def query_rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, which come as Arrow."""

        def fetch_rows() -> list[tuple[Any, ...]]:
            table = self.session.sql(sql).toArrow()
            return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

        return self.run_guarded(fetch_rows)

    def run_command(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a command, which the driver has: fetched without a job, they come in a third of the time."""
        return self.run_guarded(lambda: [tuple(row) for row in self.session.sql(sql).collect()])

    def create_query_view(self, name: str, query: str) -> None:
        """Name a query in the session; its rows are not computed."""
        self.run_guarded(lambda: self.session.sql(query).createOrReplaceTempView(_get_view_name(name)))

    def create_frame_view(self, name: str, frame: Any) -> None:
        """Name a frame in the session."""
        self.run_guarded(lambda: frame.createOrReplaceTempView(_get_view_name(name)))

    def drop_view(self, name: str) -> None:
        """Drop a name of the session."""
        with suppress(BackendError):
            self.run_guarded(lambda: self.session.catalog.dropTempView(_get_view_name(name)))

    def checkpoint_query(self, query: str) -> Any:
        """Return the rows of a query, computed now and kept by the executors."""
        return self.run_guarded(lambda: self._checkpoint_query(query))

    def _checkpoint_query(self, query: str) -> Any:
        frame = self.session.sql(query).localCheckpoint(eager=True)
        if is_remote(self.session):
            # Connect takes the process's active session, which is the owner's, for that of the frame, and would release it there.
            frame._plan._spark_session = self.session  # noqa: SLF001
            frame = type(frame)(frame._plan, self.session)  # noqa: SLF001
        return frame

    def unpersist_frame(self, frame: Any) -> None:
        """Let the executors drop rows at once; those of Connect go with the frame."""
        if not is_remote(self.session):
            with suppress(Exception):  # they go when the frame does
                frame._jdf.logicalPlan().rdd().unpersist(False)  # noqa: SLF001

    def run_guarded(self, work: Callable[[], _T]) -> _T:
        """Do something with the session. Raises BackendError, with constant text, for any failure."""
        failed: BaseException | None = None
        try:
            with disable_error_log():
                # By the tag of its jobs another thread can stop them; tags of a classic session are of one thread alone.
                tags = self.session if is_remote(self.session) else self.session.sparkContext
                add, remove = (
                    (tags.addTag, tags.removeTag)
                    if tags is self.session
                    else (tags.addJobTag, tags.removeJobTag)
                )
                add(self._tag)
                try:
                    return work()
                finally:
                    remove(self._tag)
        except KeyboardInterrupt:
            raise
        except Exception:  # noqa: BLE001  (whatever an engine raises may quote a private value)
            failed = make_failure(cancelled=self.is_cancelled)
        # Raised out here, where no engine error is being handled: even `from None` keeps the context.
        raise failed

    def interrupt(self) -> None:
        """Stop the running jobs from another thread."""
        self.is_cancelled = True
        with suppress(Exception):  # what has ended cannot be stopped
            if is_remote(self.session):
                self.session.interruptTag(self._tag)
            else:
                self.session.sparkContext.cancelJobsWithTag(self._tag)


def _get_view_name(name: str) -> str:
    """Return the name of a temporary view, as emitted SQL has it in double quotes."""
    return f"`{name[1:-1]}`"
