"""Files of planned queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dpsql.errors import ProgrammingError

_WIDTH = 60


@dataclass(frozen=True, slots=True)
class FileQuery:
    """A query of a file, `number` from 1."""

    file: Path
    number: int
    sql: str

    @property
    def short_sql(self) -> str:
        """Its beginning, in one line."""
        line = " ".join(self.sql.split())
        return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def read_queries(file: Path) -> Iterator[FileQuery]:
    """The queries of a file. Raises ProgrammingError (`query_file`) where it cannot be read."""
    from dpsql.shell.statements import is_blank, split_statements

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ProgrammingError(
            f"{file} cannot be read as text", code="query_file", hint="check that it is there, in UTF-8"
        ) from None
    cut = split_statements(text)
    statements = [*cut.statements, *([] if is_blank(cut.rest) else [cut.rest.strip()])]
    for number, sql in enumerate(statements, 1):
        yield FileQuery(file, number, sql)
