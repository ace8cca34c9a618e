"""Which moments of a table's Parquet files are not in microseconds, by the footers of the files. No row is read.

Claim: no row of a column that is not named here makes Spark fail for its moment.
Why: Spark takes microseconds as they are, and INT96 without a check. Milliseconds it multiplies by 1000, and fails where the
product is beyond 64 bits; the catalogue has the same type for all of them.
Source: Apache Parquet, "Logical types", TIMESTAMP; Spark 4.0, ParquetVectorUpdaterFactory and DateTimeUtils.millisToMicros.
"""

from __future__ import annotations

import re
from typing import Any

from dpsql.backends.spark.session import is_remote

_OTHER = re.compile(r"^\s*\w+ int64 (.+) \(TIMESTAMP\((?!MICROS)", re.MULTILINE)


class ParquetFooters:
    """The footers of files that were looked at: files are not changed in place."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._known: dict[str, frozenset[str]] = {}

    def find_other_timestamp_columns(self, table: str) -> frozenset[str] | None:
        """The columns of a table of which a file has moments in another unit; None where the files cannot be looked at.

        Spark Connect has no way to look at a footer. Raises whatever the session raises.
        """
        if is_remote(self._session):
            return None
        paths = self._session.table(table.replace('"', "`")).inputFiles()
        for path in paths:
            if path not in self._known:
                self._known[path] = frozenset(_OTHER.findall(self._read_schema(path)))
        return frozenset[str]().union(*(self._known[path] for path in paths))

    def _read_schema(self, path: str) -> str:
        """The schema of a file, as Parquet's library writes it out."""
        jvm, settings = self._session._jvm, self._session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001  (pyspark has no door to footers)
        place = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path))
        file = jvm.org.apache.parquet.hadoop.util.HadoopInputFile.fromPath(place, settings)
        reader = jvm.org.apache.parquet.hadoop.ParquetFileReader.open(file)
        try:
            return str(reader.getFooter().getFileMetaData().getSchema().toString())
        finally:
            reader.close()
