"""Read files with queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dpsql.errors import ProgrammingError

_WIDTH = 60


@dataclass(frozen=True, slots=True)
class FileQuery:
    """A query of a file; numbers begin with 1."""

    file: Path
    number: int
    sql: str

    @property
    def short_sql(self) -> str:
        """The beginning of the query, in one line."""
        line = " ".join(self.sql.split())
        return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def read_queries(file: Path) -> Iterator[FileQuery]:
    """Yield the queries of a file. Raises ProgrammingError (`query_file`) if it cannot be read."""
    from dpsql.interfaces.shell.statements import is_blank, split_statements

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ProgrammingError(
            f"cannot read {file} as UTF-8 text", code="query_file", hint="check the path and the encoding"
        ) from None
    cut = split_statements(text)
    statements = [*cut.statements, *([] if is_blank(cut.rest) else [cut.rest.strip()])]
    for number, sql in enumerate(statements, 1):
        yield FileQuery(file, number, sql)
