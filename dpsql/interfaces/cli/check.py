"""`dpsql check`: validate a policy, compare it with the data, and compute the charges of planned queries."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeAlias

import typer

from dpsql.errors import Error, ProgrammingError
from dpsql.interfaces.cli.connections import (
    find_default_epsilon,
    get_default_ledger,
    hide_password,
    parse_location,
)
from dpsql.interfaces.cli.options import Analyst, Dialect, Epsilon, LedgerFile, LedgerKey, require_loss
from dpsql.interfaces.cli.queries import FileQuery, read_queries
from dpsql.interfaces.cli.unread import describe_unread_rows
from dpsql.policy.names import normalize_name

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dpsql.api.connection import Connection
    from dpsql.backends.analyst_schema import DatabaseSchema
    from dpsql.backends.duckdb import DuckDBBackend
    from dpsql.policy import Column, Policy


# Check whether the data still match their `data_version`, by fingerprints of tables stored beside the policy.


ENDING: Final = ".fingerprints"


def compare_fingerprints(
    rules: Policy, policy: Path, backend: DuckDBBackend, schema: DatabaseSchema, answered: datetime | None
) -> tuple[list[str], bool]:
    """Return remarks on whether the data match their version, and whether they changed; record a new version or table.

    `answered` is when the ledger last answered with this version, or None.

    A stored release answers a query again while the policy's `data_version` is the same, so an owner who changes the data but not
    the version gets answers of the former data. The file `hie.fingerprints` for `hie.yaml` holds, for each version, the time and a
    fingerprint of each declared table, with a salt that is drawn once. The file reveals exactly whether data changed, so only its
    owner can read it.
    """
    path, this = policy.with_suffix(ENDING), str(rules.data_version)
    try:
        record = _read_record(path)
    except OSError as error:  # do not replace another user's file
        return [f"cannot read {path} ({error.strerror}), so changes of the data go unnoticed"], False
    engine = f"duckdb {version('duckdb')}"
    if record.get("engine") != engine:  # another engine hashes otherwise
        record = {"engine": engine, "salt": secrets.token_hex(32), "versions": {}}
    now = backend.compute_fingerprints(_list_answer_columns(rules, schema), bytes.fromhex(record["salt"]))
    known = record["versions"].setdefault(
        this, {"at": datetime.now(UTC).isoformat(timespec="seconds"), "tables": {}}
    )
    when = _format_time(datetime.fromisoformat(known["at"]))
    changed = [table for table, found in now.items() if known["tables"].get(table, found) != found]
    fresh = {table: found for table, found in now.items() if table not in known["tables"]}
    remarks = list[str]()
    if changed:
        last = "" if answered is None else f", its last answer from {_format_time(answered)}"
        remarks.append(
            f"{', '.join(changed)} changed: the fingerprint of data_version {this} is from {when}{last}."
            " Change data_version in the policy; until then, stored answers of the former data are reused"
        )
    elif not fresh:
        remarks.append(f"the data match data_version {this}, recorded on {when}")
    if fresh:
        known["tables"] |= fresh
        if _write_record(path, record):
            remarks.append(
                f"recorded the fingerprint of data_version {this} in {path.name} for the next check"
            )
        else:
            remarks.append(f"cannot write {path}, so changes of the data will go unnoticed")
    return remarks, bool(changed)


def find_last_answer_time(ledger: str, key: Path | None, this: str) -> datetime | None:
    """Return when a ledger last charged an answer of this data version, or None."""
    from contextlib import closing

    from dpsql.ledger.digest import read_ledger_key
    from dpsql.ledger.reader import LedgerReader

    with closing(LedgerReader.open(ledger, read_ledger_key(key))) as history:
        times = [
            entry.at for entry in history.iterate_entries() if str(entry.details.get("data_version")) == this
        ]
    return max(times, default=None)


def _list_answer_columns(rules: Policy, schema: DatabaseSchema) -> dict[str, list[str]]:
    """Return the columns of each declared table that answers may depend on."""
    found: dict[str, list[str]] = {}
    for name, columns in schema.items():
        declared = rules.find_table(name)
        if declared is None:
            continue
        names = {normalize_name(column) for column in declared.columns}
        names |= {
            normalize_name(column.partition(".")[0]) for column in declared.columns
        }  # fields of a STRUCT
        names |= {normalize_name(column) for link in declared.all_links for column in link.names}
        names.add(normalize_name(declared.unit or ""))
        every = declared.public and not declared.columns
        found[name] = [column for column, _ in columns if every or normalize_name(column) in names]
    return found


def _format_time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _read_record(path: Path) -> dict[str, Any]:
    """Return the stored record, empty if it is missing or malformed. Raises OSError if it cannot be read."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        found = json.loads(text)
        bytes.fromhex(found["salt"])
        for each in found["versions"].values():
            datetime.fromisoformat(each["at"])
            dict(each["tables"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_record(path: Path, record: Mapping[str, Any]) -> bool:
    """Write the record, readable by its owner only; return whether that succeeded."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
        beside.replace(path)
    except OSError:
        return False
    return True


# The command.


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


@dataclass(frozen=True, slots=True)
class BudgetOptions:
    """The policy, and the ledger and analyst whose budgets are compared with it."""

    policy: PolicyFile = None
    ledger: LedgerFile = None
    ledger_key: LedgerKey = None
    analyst: Analyst = None


def check(
    files: Files, *, options: BudgetOptions, epsilon: Epsilon = None, dialect: Dialect = "duckdb"
) -> None:
    """Check a policy, and summarize what it allows; or compute what planned queries would cost.

    With a database, every declared table and column must exist with the declared type; rows and texts that no answer reads
    are counted, for the owner alone. The charges of queries are computed one by one and together, against the ledger's
    remaining budget; nothing is charged. Queries need the database only if they read public tables. The exit code is 1 if a
    query would be refused, if the budget does not suffice for all of them, or if the data changed under one `data_version`.
    """
    task, queries = _CheckedPolicy.from_files(files, options)
    if not queries:
        changed = _show_policy_summary(task)
        if task.has_ledger:
            _show_failures(task)
        if changed:
            raise typer.Exit(1)
        return
    found = [planned for file in queries for planned in read_queries(file)]
    if not _forecast_queries(task, found, epsilon, dialect):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _CheckedPolicy:
    """A policy with its file, the data to compare it with, and the ledger of its budgets, which need not exist."""

    file: Path
    rules: Policy
    database: Database | None
    ledger: str
    ledger_key: Path | None
    analyst: str | None

    @classmethod
    def from_files(cls, files: Sequence[str], options: BudgetOptions) -> tuple[Self, list[Path]]:
        """Return the policy among the files, and the files of queries. Raises ProgrammingError (`argument`) if they do not fit."""
        from dpsql.policy import load

        places, policy = [parse_location(file) for file in files], options.policy
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
        database = next(iter(others), None) or rules.resolve_source_paths(policy.parent) or None
        ledger = options.ledger or get_default_ledger(policy)
        return cls(policy, rules, database, ledger, options.ledger_key, options.analyst), queries

    @property
    def has_ledger(self) -> bool:
        """Return whether the ledger exists, or is in a database."""
        from dpsql.ledger.open import is_url

        return is_url(self.ledger) or Path(self.ledger).is_file()

    @property
    def planning_ledger(self) -> str:
        """Return the ledger, or one in memory if it does not exist, since planning must not create it."""
        return self.ledger if self.has_ledger else ":memory:"


def _forecast_queries(
    task: _CheckedPolicy, found: list[FileQuery], epsilon: Fraction | None, dialect: str
) -> bool:
    """Print the charges of queries, and return whether all would be answered and fit into the budget."""
    from dpsql.interfaces.shell.answers import describe_failures

    default = find_default_epsilon(task.rules)
    with _connect_for_planning(task, dialect, default) as connection:
        good = [query for query in found if _is_answered(connection, query, epsilon, dialect, default)]
        forecast = connection.budget([query.sql for query in good], epsilon=epsilon)
        states = list(connection.budget().values())
    if good:
        print(forecast)
    for line in describe_failures(states, task.ledger):
        print(line)
    if len(good) < len(found):
        print(f"{len(good)} of {len(found)} queries would be answered", file=sys.stderr)
        if task.database is None and len(task.rules.list_private_tables()) < len(task.rules.tables):
            print(
                "queries that read public tables need the database: name it as another argument",
                file=sys.stderr,
            )
    return len(good) == len(found) and forecast.fits


def _is_answered(
    connection: Connection,
    query: FileQuery,
    epsilon: Fraction | None,
    dialect: str,
    default: Fraction | None,
) -> bool:
    """Return whether a query would be answered, and print its error to standard error."""
    from dpsql.interfaces.shell.answers import format_error, print_error

    try:
        require_loss(epsilon, None, query.sql, dialect, default)
        connection.budget([query.sql], epsilon=epsilon)
    except Error as error:
        print(f"{query.file}, query {query.number}:", file=sys.stderr)
        print_error(format_error(error))
        return False
    return True


def _connect_for_planning(task: _CheckedPolicy, dialect: str, default: Fraction | None) -> Connection:
    """Connect to the database, or to empty tables as the policy declares them; `default` is the loss of a query."""
    import dpsql
    from dpsql.backends.scratch_database import EmptyBackend
    from dpsql.policy.names import NameMap

    database: Any = task.database
    rules = task.rules
    if database is None:
        private = {name: rules.tables[name] for name in rules.list_private_tables()}
        rules = rules.model_copy(update={"tables": NameMap(private)})
        database = EmptyBackend(rules)
    return dpsql.connect(
        database,
        policy=rules,
        ledger=task.planning_ledger,
        ledger_key=task.ledger_key,
        analyst=task.analyst,
        epsilon=default,
        dialect=dialect,
    )


def _show_policy_summary(task: _CheckedPolicy) -> bool:
    """Print what a policy allows, and return whether the data changed under one version."""
    from dpsql.interfaces.shell.answers import View

    rules, database = task.rules, task.database
    schema, versions, changed = None, list[str](), False
    if database is not None:
        schema, versions, changed = _compare_with_database(task, database)
    view = View.from_stream(sys.stdout)
    print(f"{task.file} is a valid policy")
    print(view.render_parts(*_render_policy_summary(rules)))
    if database is not None and schema is not None:
        data = _describe_database(database)
        print(f"\n{data} has every declared table and column")
        for line in versions:
            print(line)
        hidden = list(_iterate_undeclared_names(rules, schema))
        if hidden:
            print(f"not declared, so hidden from analysts: {', '.join(hidden)}")
    return changed


def _describe_database(database: Database) -> str:
    """Return a printable name of the data; a URL loses its password."""
    if isinstance(database, Mapping):
        return "the sources of its tables"
    return hide_password(database)


def _show_failures(task: _CheckedPolicy) -> None:
    """Print the failed queries that the policy's ledger records."""
    from dpsql.engine.budgets import collect_budgets
    from dpsql.interfaces.shell.answers import describe_failures
    from dpsql.ledger import open_ledger

    budgets, limits = collect_budgets(task.rules), task.rules.get_failure_limits()
    try:
        with closing(open_ledger(task.ledger, budgets, key=task.ledger_key, max_failures=limits)) as book:
            lines = list(describe_failures(book.list_states(), task.ledger))
    except Error as error:
        lines = [f"its ledger was not checked: {error.message}"]
    for line in lines:
        print(line)


def _compare_with_database(
    task: _CheckedPolicy, database: Database
) -> tuple[DatabaseSchema, list[str], bool]:
    """Compare the policy with the database; return its schema, remarks on data and version, and whether the data changed."""
    from dpsql.api.opening import open_server
    from dpsql.backends import analyst_schema
    from dpsql.backends.duckdb import DuckDBBackend

    rules = task.rules
    if isinstance(database, str):
        with closing(open_server(database, rules, task.file, spills=False)) as elsewhere:
            schema = elsewhere.read_schema()
            analyst_schema.build_analyst_schema(rules, schema, elsewhere.find_origin)
            return schema, [], False  # fingerprints of the data would read all rows
    backend = DuckDBBackend(database, readings=rules.get_readings())
    with closing(backend):
        schema = backend.read_schema()
        declared = analyst_schema.build_analyst_schema(rules, schema, backend.find_origin)
        answered = _find_last_answer_time(task)
        found, changed = compare_fingerprints(rules, task.file, backend, schema, answered)
        return schema, [*found, *describe_unread_rows(rules, declared, backend, database)], changed


def _find_last_answer_time(task: _CheckedPolicy) -> datetime | None:
    if task.has_ledger:
        with suppress(Error):  # _show_failures reports a problem with the ledger
            return find_last_answer_time(task.ledger, task.ledger_key, str(task.rules.data_version))
    return None


def _render_policy_summary(rules: Policy) -> Iterator[RenderableType]:
    from dpsql.engine.budgets import describe_capacities, iterate_policy_warnings
    from dpsql.interfaces.shell.answers import build_table
    from dpsql.interfaces.shell.commands import format_domain
    from dpsql.policy.request.loss import format_rounded

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
        limit = (
            f"ε {format_rounded(budget.epsilon, 6)}, δ {format_rounded(budget.delta, 6)}, {budget.accountant}"
            + (", shared" if budget.shared else "")
        )
        rows.append((name, "private", rules.describe_unit(name), f"{found.rows_per_unit:,}", limit))
    yield build_table(("table", "kind", "unit", "rows per unit", "budget"), rows, right=(3,))
    yield ""
    columns = [
        (f"{name}.{column}", spec.type, format_domain(spec), "" if spec.nullable else "never NULL")
        for name, found in rules.tables.items()
        for column, spec in found.columns.items()
    ]
    yield build_table(("column", "type", "bounds or values", "notes"), columns)
    yield ""
    yield from describe_capacities(rules)


def _iterate_warnings(rules: Policy) -> Iterator[str]:
    """Yield warnings about budgets that protect less than an owner may expect."""
    renewing = {
        rules.get_account_name(name): rules.get_budget(name)
        for name in rules.list_private_tables()
        if rules.get_budget(name).renew is not None
    }
    for name, spec in renewing.items():
        yield (
            f"{name}: the budget renews ({spec.renew}), so the guarantee is ε {float(spec.epsilon):g} for each"
            " period, and n times that over n periods"
        )
    for name in rules.list_private_tables():
        table = rules.tables[name]
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
