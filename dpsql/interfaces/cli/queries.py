"""`dpsql query`, `dpsql explain` and `dpsql shell`, the formats of answers, and files of queries."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from dpsql.api.arguments import is_address
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.cli.connections import (
    connect_to_source,
    find_source_epsilon,
    hide_password,
    parse_location,
    resolve_policy_path,
)
from dpsql.interfaces.cli.options import (
    ConnectionOptions,
    Dialect,
    Fresh,
    QueryTerms,
    Reserve,
    Source,
    Sql,
    make_number_parser,
    read_sql,
    require_loss,
)
from dpsql.interfaces.shell.answers import AnswerFormat

if TYPE_CHECKING:
    from dpsql.api.base_connection import BaseConnection
    from dpsql.interfaces.shell.commands import Listing
    from dpsql.interfaces.shell.settings import SessionState, Settings
    from dpsql.policy.request.loss import Target
    from dpsql.results.result import Result


# Write the answer of `dpsql query` in a format, to a file or to standard output.


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
    from dpsql.interfaces.shell.answers import View, build_arrow_table, format_answer

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
    from dpsql.interfaces.shell.answers import View, format_listing

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


# `dpsql explain`.


def explain(
    database: Source,
    sql: Sql,
    *,
    options: ConnectionOptions,
    terms: QueryTerms,
    dialect: Dialect = "duckdb",
    fresh: Fresh = False,
) -> None:
    """Show the plan of a query and its charge.

    The plan states the bound proved for each step and the expected error. Nothing is charged, and no private data is read.
    """
    asked = AskedQuery.from_options(database, options, read_sql(sql), terms, dialect)
    with connect_to_source(database, options, fresh=fresh, default=asked.default) as connection:
        print(connection.explain(asked.sql, **terms.to_query_options(dialect)))


# Read files with queries.


_WIDTH = 60


@dataclass(frozen=True, slots=True)
class FileQuery:
    """A query of a file; numbers begin with 1."""

    file: Path
    number: int
    sql: str

    @property
    def short_sql(self) -> str:
        """Return the beginning of the query, in one line."""
        line = " ".join(self.sql.split())
        return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def read_queries(file: Path) -> Iterator[FileQuery]:
    """Yield the queries of a file. Raises ProgrammingError (`query_file`) if it cannot be read."""
    from dpsql.interfaces.shell.statements import split_statements
    from dpsql.sql.parse.scanner import is_blank

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


# `dpsql query`.


INTERRUPTED = 130
"""The exit code after Ctrl-C."""


@dataclass(frozen=True, slots=True)
class AskedQuery:
    """A query of the command line; `loss` is its own loss, or else the `default`, and None for a target error."""

    sql: str
    terms: QueryTerms
    dialect: str
    default: Fraction | None
    loss: Fraction | None

    @classmethod
    def from_options(
        cls, source: str, options: ConnectionOptions, sql: str, terms: QueryTerms, dialect: str
    ) -> Self:
        """Find the loss of a query. Raises ProgrammingError (`epsilon_missing`) if there is none."""
        default = find_source_epsilon(source, options.policy)
        server = is_address(source)
        loss = require_loss(terms.epsilon, terms.target_error, sql, dialect, default, server=server)
        return cls(sql, terms, dialect, default, loss)


def query(
    database: Source,
    sql: Sql,
    *,
    options: ConnectionOptions,
    terms: QueryTerms,
    dialect: Dialect = "duckdb",
    fresh: Fresh = False,
    style: StyleOption = None,
    output: Output = None,
) -> None:
    """Answer one SELECT, and charge the budget unless the same query was answered before.

    SHOW TABLES and DESCRIBE t are answered from the policy, at no charge. The answer is written to standard output or to a file,
    with the 95% interval of each noisy value. The charge follows a table; with other formats it is written to standard error.
    """
    from dpsql.interfaces.shell import commands

    text, form = read_sql(sql), resolve_output_format(style, output)
    if (table := commands.parse_describe_statement(text)) is not None:
        with connect_to_source(database, options) as connection:
            found = commands.build_listing(table, connection.describe())
        write_listing(found, form, output)
        return
    asked = AskedQuery.from_options(database, options, text, terms, dialect)
    with connect_to_source(database, options, fresh=fresh, default=asked.default) as connection:
        _answer_query(connection, asked, form, output)


def _answer_query(
    connection: BaseConnection, asked: AskedQuery, form: OutputFormat, output: Path | None
) -> None:
    """Write the answer to a query, or its plan for EXPLAIN, and its charge."""
    from dpsql.interfaces.shell.answers import View, format_remarks, make_dim
    from dpsql.interfaces.shell.session import QueryInterrupted, is_explain, run_query

    terms = asked.terms.to_query_options(asked.dialect)
    if is_explain(asked.sql):
        print(connection.explain(asked.sql, **terms))
        return
    progress = sys.stderr if sys.stderr.isatty() else None
    try:
        result = run_query(connection, asked.sql, terms, progress=progress)
    except QueryInterrupted as stopped:
        print(stopped.text, file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    write_answer(result, form, output)
    stream = sys.stdout if form is OutputFormat.table and output is None else sys.stderr
    when = connection.find_answer_time(result.receipt)
    remarks = format_remarks(result, asked.loss, connection.budget().values(), when)
    print(View.from_stream(stream).render_parts(make_dim(remarks)), file=stream)


# `dpsql shell`.


class ShellFormat(StrEnum):
    """The format of answers."""

    table = "table"
    csv = "csv"
    json = "json"
    markdown = "markdown"


ShellStyle = Annotated[
    ShellFormat | None,
    typer.Option(
        "--format",
        "-f",
        help="The format of answers. [default: the setting `format`, else table]",
        show_default=False,
    ),
]
ShellDialect = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The SQL dialect of queries: duckdb, postgres, spark, snowflake, bigquery or tsql. [default: the setting `dialect`, else duckdb]",
        show_default=False,
    ),
]
AskAbove = Annotated[
    Fraction | None,
    typer.Option(
        parser=make_number_parser("ask_above"),
        metavar="NUMBER",
        help="The ε above which the shell shows the price of a query and asks for confirmation. [default: the setting `ask_above`, else 1]",
        show_default=False,
    ),
]


def shell(
    database: Source,
    *,
    options: ConnectionOptions,
    terms: QueryTerms,
    dialect: ShellDialect = None,
    fresh: Fresh = False,
    style: ShellStyle = None,
    ask_above: AskAbove = None,
    reserve: Reserve = None,
) -> None:
    """Start the interactive shell.

    Statements end with a semicolon. Statements from a pipe are answered one by one, without a prompt. Settings are in
    ~/.config/dpsql/config.toml.
    """
    from dpsql.interfaces.shell.settings import get_config_path, load_settings
    from dpsql.policy.request.dialects import require_dialect_name

    settings = load_settings(get_config_path())
    settings = replace(
        settings,
        ask_above=settings.ask_above if ask_above is None else ask_above,
        dialect=dialect or settings.dialect,
        format=settings.format if style is None else style.value,
    )
    require_dialect_name(settings.dialect)
    target = terms.parse_target()
    default = find_source_epsilon(database, options.policy)
    epsilon = default if terms.epsilon is None and target is None else terms.epsilon
    with connect_to_source(database, options, fresh=fresh, reserve=reserve) as connection:
        state = _build_state(connection, replace(terms, epsilon=epsilon), target, settings)
        _run_session(state, _describe_source(database, options.policy))


def _build_state(
    connection: BaseConnection, terms: QueryTerms, target: Target | None, settings: Settings
) -> SessionState:
    from dpsql.interfaces.shell.answers import View
    from dpsql.interfaces.shell.settings import PLAIN, SessionState

    view = View.from_stream(sys.stdout)
    return SessionState(
        connection,
        replace(view, color=view.color and settings.theme != PLAIN),
        terms.epsilon,
        terms.delta,
        terms.max_groups,
        AnswerFormat(settings.format),
        dialect=settings.dialect,
        target=target,
        settings=settings,
    )


def _run_session(state: SessionState, source: str) -> None:
    """Run the statements of a terminal or a pipe. Raises typer.Exit with 1 if a statement of a pipe failed."""
    from dpsql.interfaces.shell.prompt import get_history_path, run_interactive, run_piped
    from dpsql.interfaces.shell.session import Session

    if sys.stdin.isatty() and sys.stdout.isatty():
        print(_format_banner(state, source))
        run_interactive(Session(state), history=get_history_path() if state.settings.history else None)
    elif not run_piped(Session(state), sys.stdin, _write_flushed, _write_error):
        raise typer.Exit(1)


def _describe_source(database: str, policy: Path | None) -> str:
    place = parse_location(database)
    return (
        database
        if is_address(database)
        else f"{hide_password(place)} under {resolve_policy_path(place, policy)}"
    )


def _format_banner(state: SessionState, what: str) -> str:
    import dpsql

    unit = state.connection.describe().privacy_unit
    loss = "\\epsilon 0.1 sets the privacy loss of a query"
    if state.epsilon is not None:
        loss = f"each query is charged ε {float(state.epsilon):g}"
    elif state.target is not None:
        loss = f"each query has the target {state.target}"
    return (
        f"dpsql {dpsql.__version__}: {what}, which protects each {unit}\n"
        f"{loss}; \\? lists the commands, \\q quits"
    )


def _write_flushed(text: str) -> None:
    print(text, flush=True)


def _write_error(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
