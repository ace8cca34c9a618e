"""`dpsql check`: validate a policy, and compute the charges of planned queries."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypedDict, Unpack

import typer

from dpsql.engine.policy_advice import iterate_policy_warnings
from dpsql.errors import Error, ProgrammingError
from dpsql.interfaces.cli.data_versions import compare_fingerprints, find_last_answer_time
from dpsql.interfaces.cli.options import (
    Analyst,
    Dialect,
    Epsilon,
    LedgerFile,
    LedgerKey,
    find_default_epsilon,
    hide_password,
    parse_location,
    require_loss,
)
from dpsql.interfaces.cli.query_files import FileQuery, read_queries
from dpsql.interfaces.cli.unread_rows import describe_unread_rows

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dpsql.api.connection import Connection
    from dpsql.backends.analyst_schema import DatabaseSchema
    from dpsql.policy import Column, Policy

Database: TypeAlias = Path | str | Mapping[str, Path]
"""The file or folder with the data, the URL of a database, or the file of each table."""
Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILES...",
        help="The policy to check; optionally the data to compare it with (a file, a folder, or the URL of a database); and"
        " queries to plan, in files that end in .sql.",
        show_default=False,
    ),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option("--policy", "-p", help="The policy, if it is not the first file.", show_default=False),
]


def check(
    files: Files,
    *,
    policy: PolicyFile = None,
    ledger: LedgerFile = None,
    ledger_key: LedgerKey = None,
    analyst: Analyst = None,
    epsilon: Epsilon = None,
    dialect: Dialect = "duckdb",
) -> None:
    """Check a policy, and summarize what it allows; or compute what planned queries would cost.

    With a database, every declared table and column must exist with the declared type; rows and texts that no answer reads
    are counted. The charges of queries are computed one by one and together, against the ledger's remaining budget; nothing is
    charged. Queries need the database only if they read public tables. The exit code is 1 if a query would be refused, or if
    the budget does not suffice for all of them.
    """
    from dpsql.interfaces.shell.costs import describe_failures
    from dpsql.ledger.open import is_url
    from dpsql.policy import load

    places = [parse_location(file) for file in files]
    queries = [place for place in places if isinstance(place, Path) and place.suffix.lower() == ".sql"]
    others = [place for place in places if place not in queries]
    if policy is None:
        policy = next((place for place in others if isinstance(place, Path)), None)
        others = [place for place in others if place is not policy]
    if policy is None or len(others) > 1:
        raise ProgrammingError(
            "no policy given" if policy is None else "a policy is checked against one database",
            code="argument",
            hint="dpsql check queries/*.sql --policy hie.yaml, or dpsql check hie.yaml hie.duckdb",
        )
    rules = load(policy)
    database: Database | None = next(iter(others), None) or rules.resolve_source_paths(policy.parent) or None
    ledger_name = ledger or str(policy.with_suffix(".ledger"))
    # Planning must not create a ledger.
    book = ledger_name if is_url(ledger_name) or Path(ledger_name).is_file() else ":memory:"
    if not queries:
        _show_policy_summary(policy, rules, database, (book, ledger_key))
        if book == ledger_name:
            _show_failures(rules, ledger_name, ledger_key)
        return
    found = [planned for file in queries for planned in read_queries(file)]
    default = find_default_epsilon(rules)
    with _connect_for_planning(
        rules, database, dialect, ledger=book, ledger_key=ledger_key, analyst=analyst, epsilon=default
    ) as connection:
        good = [query for query in found if _is_answered(connection, query, epsilon, dialect, default)]
        forecast = connection.budget([query.sql for query in good], epsilon=epsilon)
        states = list(connection.budget().values())
    if good:
        print(forecast)
    for line in describe_failures(states, ledger_name):
        print(line)
    if len(good) < len(found):
        print(f"{len(good)} of {len(found)} queries would be answered", file=sys.stderr)
        if database is None and len(rules.list_private_tables()) < len(rules.tables):
            print(
                "queries that read public tables need the database: name it as another argument",
                file=sys.stderr,
            )
    if len(good) < len(found) or not forecast.fits:
        raise typer.Exit(1)


class _LedgerOptions(TypedDict):
    """The ledger and analyst whose budget a plan is compared with; `epsilon` is the default loss of a query."""

    ledger: str
    ledger_key: Path | None
    analyst: str | None
    epsilon: Fraction | None


def _is_answered(
    connection: Connection,
    query: FileQuery,
    epsilon: Fraction | None,
    dialect: str,
    default: Fraction | None,
) -> bool:
    """Return whether a query would be answered, and print its error to standard error."""
    from dpsql.interfaces.shell.failures import format_error, highlight_error
    from dpsql.interfaces.shell.view import View

    try:
        require_loss(epsilon, None, query.sql, dialect, default)
        connection.budget([query.sql], epsilon=epsilon)
    except Error as error:
        said = View.from_stream(sys.stderr).render_parts(highlight_error(format_error(error)))
        print(f"{query.file}, query {query.number}:", said, sep="\n", file=sys.stderr)
        return False
    return True


def _connect_for_planning(
    rules: Policy, database: Database | None, dialect: str, **ledger_options: Unpack[_LedgerOptions]
) -> Connection:
    """Connect to the database, or to empty tables as the policy declares them."""
    import dpsql

    if database is not None:
        return dpsql.connect(database, policy=rules, dialect=dialect, **ledger_options)
    from dpsql.backends.empty_database import EmptyBackend
    from dpsql.policy.names import NameMap

    private = {name: rules.tables[name] for name in rules.list_private_tables()}
    rules = rules.model_copy(update={"tables": NameMap(private)})
    return dpsql.connect(EmptyBackend(rules), policy=rules, dialect=dialect, **ledger_options)


def _show_policy_summary(
    policy: Path, rules: Policy, database: Database | None, ledger: tuple[str, Path | None]
) -> None:
    from dpsql.interfaces.shell.view import View

    schema, versions = None, list[str]()
    if database is not None:
        schema, versions = _compare_with_database(rules, database, policy, ledger)
    view = View.from_stream(sys.stdout)
    print(f"{policy} is a valid policy")
    print(view.render_parts(*_render_policy_summary(rules)))
    if database is not None and schema is not None:
        data = _describe_database(database)
        print(f"\n{data} has every declared table and column")
        for line in versions:
            print(line)
        hidden = list(_iterate_undeclared_names(rules, schema))
        if hidden:
            print(f"not declared, so hidden from analysts: {', '.join(hidden)}")


def _describe_database(database: Database) -> str:
    """Return a printable name of the data; a URL loses its password."""
    if isinstance(database, Mapping):
        return "the sources of its tables"
    return hide_password(database)


def _show_failures(rules: Policy, ledger: str, key: Path | None) -> None:
    """Print the failed queries that the policy's ledger records."""
    from dpsql.engine.budgets import collect_budgets
    from dpsql.interfaces.shell.costs import describe_failures
    from dpsql.ledger import open_ledger

    try:
        with closing(
            open_ledger(ledger, collect_budgets(rules), key=key, max_failures=rules.get_failure_limits())
        ) as book:
            lines = list(describe_failures(book.list_states(), ledger))
    except Error as error:
        lines = [f"its ledger was not checked: {error.message}"]
    for line in lines:
        print(line)


def _compare_with_database(
    rules: Policy, database: Database, policy: Path, ledger: tuple[str, Path | None]
) -> tuple[DatabaseSchema, list[str]]:
    """Compare the policy with the database; return its schema and remarks on its data version and unread rows."""
    from dpsql.api.opening import open_server
    from dpsql.backends import analyst_schema
    from dpsql.backends.duckdb import DuckDBBackend

    if isinstance(database, str):
        with closing(open_server(database, rules, policy, spills=False)) as elsewhere:
            schema = elsewhere.read_schema()
            analyst_schema.build_analyst_schema(rules, schema, elsewhere.find_origin)
            return schema, []  # fingerprints of the data would read all rows
    backend = DuckDBBackend(database, types=rules.get_column_types())
    with closing(backend):
        schema = backend.read_schema()
        declared = analyst_schema.build_analyst_schema(rules, schema, backend.find_origin)
        found = [
            *compare_fingerprints(rules, policy, backend, schema, _find_last_answer_time(rules, *ledger))
        ]
        return schema, [*found, *describe_unread_rows(rules, declared, backend, database)]


def _find_last_answer_time(rules: Policy, ledger: str, key: Path | None) -> datetime | None:
    from dpsql.ledger.open import MEMORY

    with suppress(Error):  # _show_failures reports a problem with the ledger
        return None if ledger == MEMORY else find_last_answer_time(ledger, key, str(rules.data_version))
    return None


def _render_policy_summary(rules: Policy) -> Iterator[RenderableType]:
    from dpsql.interfaces.shell.describe import format_domain
    from dpsql.interfaces.shell.view import build_table

    yield f"privacy unit: {rules.privacy_unit}; neighbors: {rules.neighbors}"
    if rules.max_epsilon is not None:
        yield f"a query may cost at most ε {float(rules.max_epsilon):g}"
    yield from _iterate_warnings(rules)
    yield from iterate_policy_warnings(rules)
    yield ""
    rows = []
    for name, found in rules.tables.items():
        if found.public:
            rows.append((name, "public", "", "", ""))
            continue
        budget = rules.get_budget(name)
        limit = f"ε {float(budget.epsilon):g}, δ {float(budget.delta):g}, {budget.accountant}"
        rows.append((name, "private", rules.describe_unit(name), f"{found.rows_per_unit:,}", limit))
    yield build_table(("table", "kind", "unit", "rows per unit", "budget"), rows, right=(3,))
    yield ""
    columns = [
        (f"{name}.{column}", spec.type, format_domain(spec), "" if spec.nullable else "never NULL")
        for name, found in rules.tables.items()
        for column, spec in found.columns.items()
    ]
    yield build_table(("column", "type", "bounds or values", "notes"), columns)


def _iterate_warnings(rules: Policy) -> Iterator[str]:
    """Yield warnings about budgets that protect less than an owner may expect."""
    for name in rules.list_private_tables():
        spec, table = rules.get_budget(name), rules.tables[name]
        if spec.renew is not None:
            yield (
                f"{name}: the budget renews ({spec.renew}), so the guarantee is ε {float(spec.epsilon):g} for each"
                " period, and n times that over n periods"
            )
        if table.partition and rules.neighbors == "replace":
            yield f"{name}: with neighbors: replace, a unit may move between partitions, so partitions are not charged separately"
        for column in table.partition or ():
            declared = table.columns[column]
            if declared.type != "boolean" and declared.values is None and not _has_whole_bounds(declared):
                yield f"{name}.{column}: declare values or bounds of whole numbers, or its partitions are not charged separately"
    if rules.analysts or rules.per_analyst is not None:
        yield "an analyst's budget bounds the loss to that analyst alone; the tables' budgets bound the loss to all analysts together"


def _has_whole_bounds(column: Column) -> bool:
    return column.bounds is not None and column.type in ("integer", "date", "timestamp")


def _iterate_undeclared_names(rules: Policy, schema: DatabaseSchema) -> Iterator[str]:
    """Yield the tables and columns of the database that the policy does not declare."""
    from dpsql.policy import normalize_name

    for name, columns in schema.items():
        declared = rules.find_table(name)
        if declared is None:
            yield name
        elif not declared.public:
            unit = normalize_name(rules.get_unit(name).column or "")
            hidden = (column for column, _ in columns if column not in declared.columns)
            yield from (f"{name}.{column}" for column in hidden if normalize_name(column) != unit)
