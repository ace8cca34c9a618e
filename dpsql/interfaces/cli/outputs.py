"""Write the answer of `dpsql query` in a format, to a file or to standard output."""

from __future__ import annotations

import sys
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.shell.answers import AnswerFormat

if TYPE_CHECKING:
    from dpsql.interfaces.shell.describe import Listing
    from dpsql.results.result import Result


class OutputFormat(StrEnum):
    """The format of an answer: for reading, or as data."""

    table = "table"
    csv = "csv"
    json = "json"
    markdown = "markdown"
    parquet = "parquet"


_BY_ENDING = {
    ".csv": OutputFormat.csv,
    ".json": OutputFormat.json,
    ".md": OutputFormat.markdown,
    ".parquet": OutputFormat.parquet,
}
StyleOption = Annotated[
    OutputFormat | None,
    typer.Option(
        "--format",
        "-f",
        help="The format of the answer. [default: from the ending of --output, else table]",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="The file to write, instead of standard output.", show_default=False),
]


def resolve_output_format(style: OutputFormat | None, output: Path | None) -> OutputFormat:
    """Return the given format, or that of the file's ending. Raises ProgrammingError for Parquet without a file."""
    found = style or (
        OutputFormat.table if output is None else _BY_ENDING.get(output.suffix.lower(), OutputFormat.table)
    )
    if found is OutputFormat.parquet:
        if output is None:
            raise ProgrammingError(
                "Parquet requires an output file", code="argument", hint="add --output answer.parquet"
            )
        if find_spec("pyarrow") is None:
            raise ProgrammingError(
                "Parquet needs pyarrow, which is not installed",
                code="parquet_unavailable",
                hint="pip install pyarrow",
            )
    return found


def write_answer(result: Result, style: OutputFormat, output: Path | None) -> None:
    """Write the answer. Raises OperationalError (`not_written`); the same query is then answered again at no charge."""
    from dpsql.interfaces.shell.answers import build_arrow_table, format_answer
    from dpsql.interfaces.shell.view import View

    if output is None:
        print(format_answer(result, AnswerFormat(style.value), View.from_stream(sys.stdout)), flush=True)
        return
    try:
        if style is OutputFormat.parquet:
            from pyarrow import parquet

            parquet.write_table(build_arrow_table(result), output)
        else:
            output.write_text(
                format_answer(result, AnswerFormat(style.value), View()) + "\n", encoding="utf-8"
            )
    except OSError as error:
        said = error.strerror
    else:
        return
    raise _make_write_error(output, said)


def write_listing(found: Listing, style: OutputFormat, output: Path | None) -> None:
    """Write a list of tables or columns. Raises OperationalError (`not_written`), and ProgrammingError for Parquet."""
    from dpsql.interfaces.shell.answers import format_listing
    from dpsql.interfaces.shell.view import View

    if style is OutputFormat.parquet:
        raise ProgrammingError(
            "a list of tables or columns cannot be written as Parquet",
            code="argument",
            hint="use --format csv",
        )
    view = View.from_stream(sys.stdout) if output is None else View()
    text = format_listing(
        found.heads, found.rows, AnswerFormat(style.value), view, numbers=found.numbers, rules=found.rules
    )
    if output is None:
        print(text)
        return
    try:
        output.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise _make_write_error(output, error.strerror) from None


def _make_write_error(output: Path, said: str | None) -> OperationalError:
    return OperationalError(
        f"cannot write {output}: {said}",
        code="not_written",
        hint="run the query again with another file; the stored answer is free",
    )
