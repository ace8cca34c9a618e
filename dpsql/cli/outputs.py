"""Where `dpsql query` writes an answer, and as what."""

from __future__ import annotations

import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.errors import OperationalError, ProgrammingError
from dpsql.shell.answers import Format

if TYPE_CHECKING:
    from dpsql.result import Result
    from dpsql.shell.describe import Listing


class Style(StrEnum):
    """How an answer is written: to people, or as data."""

    table = "table"
    csv = "csv"
    json = "json"
    markdown = "markdown"
    parquet = "parquet"


_BY_ENDING = {".csv": Style.csv, ".json": Style.json, ".md": Style.markdown, ".parquet": Style.parquet}
StyleOption = Annotated[
    Style | None,
    typer.Option(
        "--format",
        "-f",
        help="How the answer is written. [default: by the ending of --output, else table]",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="The file to write, in place of standard output.", show_default=False
    ),
]


def style_of(style: Style | None, output: Path | None) -> Style:
    """The format that is named, or that of a file's ending. Raises ProgrammingError for Parquet without a file."""
    found = style or (Style.table if output is None else _BY_ENDING.get(output.suffix.lower(), Style.table))
    if found is Style.parquet:
        if output is None:
            raise ProgrammingError(
                "Parquet goes into a file, and none is named", code="argument", hint="--output answer.parquet"
            )
        if find_spec("pyarrow") is None:
            raise ProgrammingError(
                "Parquet needs pyarrow, which is not installed",
                code="parquet_unavailable",
                hint="pip install pyarrow",
            )
    return found


def deliver(result: Result, style: Style, output: Path | None) -> None:
    """Writes the answer. Raises OperationalError (`not_written`): what was charged is answered again, free."""
    from dpsql.shell.answers import arrow_table, written
    from dpsql.shell.view import View

    if output is None:
        print(written(result, Format(style.value), View.of(sys.stdout)), flush=True)
        return
    try:
        if style is Style.parquet:
            from pyarrow import parquet

            parquet.write_table(arrow_table(result), output)
        else:
            output.write_text(written(result, Format(style.value), View()) + "\n", encoding="utf-8")
    except OSError as error:
        said = error.strerror
    else:
        return
    raise _not_written(output, said)


def list_rows(found: Listing, style: Style, output: Path | None) -> None:
    """Writes rows of the catalogue. Raises OperationalError (`not_written`), ProgrammingError for Parquet."""
    from dpsql.shell.answers import listed
    from dpsql.shell.view import View

    if style is Style.parquet:
        raise ProgrammingError(
            "a list of tables or columns is not written as Parquet", code="argument", hint="--format csv"
        )
    view = View.of(sys.stdout) if output is None else View()
    text = listed(
        found.heads, found.rows, Format(style.value), view, numbers=found.numbers, rules=found.rules
    )
    if output is None:
        print(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise _not_written(output, error.strerror) from None


def _not_written(output: Path, said: str | None) -> OperationalError:
    return OperationalError(
        f"{output} cannot be written: {said}",
        code="not_written",
        hint="what was charged is answered again, free: name another file",
    )
