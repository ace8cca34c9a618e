"""The settings of a Spark session that decide over values, errors or rows.

Claim: an emitted statement means the same whatever the cluster, the application or the owner's session sets.
Why: statements run in a session of their own, in which each of these settings is set, and every other setting of Spark's SQL
that is not known to decide over speed alone is taken back to Spark's own default.
Source: Spark 4.0 documentation, "Configuration", "ANSI compliance" and "SQL migration guide"; its SQLConf.
"""

from __future__ import annotations

import re
from types import MappingProxyType

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
"""Settings for speed alone. Java compiles no method of more bytes than this, and Spark divides it only if it is told so: the intervals of three clamps are such a method."""

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
    """Whether a setting that somebody set is taken back to Spark's default.

    >>> needs_reset("spark.sql.legacy.sizeOfNull"), needs_reset("spark.sql.shuffle.partitions"), needs_reset("spark.executor.memory")
    (True, False, False)
    """
    return name.startswith("spark.sql.") and name not in PINNED and _SPEED.fullmatch(name) is None
