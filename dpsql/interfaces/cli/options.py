"""The options that commands share, and the connections, policies and losses that they name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar
from urllib.parse import urlsplit

import typer

from dpsql.api.remote.address import is_address, is_database_url, is_spark
from dpsql.errors import LossError, OperationalError, ProgrammingError
from dpsql.policy.request.loss import parse_amount
from dpsql.policy.request.target import CONFIDENCE, Target, parse_confidence, parse_target_error

if TYPE_CHECKING:
    from dpsql.api.base_connection import BaseConnection
    from dpsql.api.connection import Connection
    from dpsql.policy import Policy

_Number = TypeVar("_Number")


def _parse_epsilon(text: str) -> Fraction:
    return _parse_amount(text, "epsilon")


def _parse_delta(text: str) -> Fraction:
    return _parse_amount(text, "delta")


def _parse_amount(text: str, name: str) -> Fraction:
    return _parse_option(lambda: parse_amount(text, name))


def make_number_parser(name: str) -> Callable[[str], Fraction]:
    """Return a parser for an option whose value is a finite number above zero."""
    return partial(_parse_amount, name=name)


def _parse_target_error(text: str) -> str:
    _parse_option(lambda: parse_target_error(text))
    return text


def _parse_confidence(text: str) -> Fraction:
    return _parse_option(lambda: parse_confidence(text))


def _parse_option(parse: Callable[[], _Number]) -> _Number:
    try:
        return parse()
    except LossError as error:
        raise typer.BadParameter(error.message) from None


Database = Annotated[
    str,
    typer.Argument(
        metavar="DATABASE|URL",
        help="The data: a DuckDB, Parquet, CSV, JSON, Arrow or SQLite file, a folder of such files, or the URL of a database, such as "
        "postgresql://user@host/name.",
        show_default=False,
    ),
]
Source = Annotated[
    str,
    typer.Argument(
        metavar="DATABASE|URL",
        help="The data: a DuckDB, Parquet, CSV, JSON, Arrow or SQLite file, or a folder of such files; a policy with the sources of its tables; "
        "the URL of a database, such as postgresql://user@host/name; or the address of a server, such as https://host:8439, with "
        "the token in DPSQL_TOKEN.",
        show_default=False,
    ),
]
PolicyFile = Annotated[
    Path | None,
    typer.Option(
        "--policy",
        "-p",
        help="The owner's policy. [default: the file in DPSQL_POLICY, or the database's name with the ending .yaml]",
        show_default=False,
    ),
]
LedgerFile = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        "-l",
        envvar="DPSQL_LEDGER",
        metavar="FILE|URL",
        help="The ledger of all charges: a file, or postgresql://user@host/name. [default: the policy's name with the ending .ledger]",
        show_default=False,
    ),
]
LedgerKey = Annotated[
    Path | None,
    typer.Option(
        "--ledger-key",
        envvar="DPSQL_LEDGER_KEY_FILE",
        help="The file with the ledger's key; a new ledger is created with this key.",
        show_default=False,
    ),
]
AnchorPath = Annotated[
    Path | None,
    typer.Option(
        "--anchor",
        help="The file that records the ledger's newest head; dpsql refuses a ledger that is older. Keep it on another disk.",
        show_default=False,
    ),
]
AuditFile = Annotated[
    Path | None,
    typer.Option(
        "--audit",
        envvar="DPSQL_AUDIT",
        metavar="FILE",
        help="The audit log. [default: the policy's name with the ending .audit]",
        show_default=False,
    ),
]
Analyst = Annotated[
    str | None,
    typer.Option(help="The analyst that the ledger records. [default: the login name]", show_default=False),
]
Epsilon = Annotated[
    Fraction | None,
    typer.Option(
        "--epsilon",
        "-e",
        parser=_parse_epsilon,
        metavar="NUMBER",
        help="The privacy loss of a query. [default: DPSQL_EPSILON, or the policy's default_epsilon]",
        show_default=False,
    ),
]
TargetError = Annotated[
    str | None,
    typer.Option(
        parser=_parse_target_error,
        metavar="NUMBER|PERCENT%",
        help="The largest error of a value, instead of epsilon: dpsql finds the smallest epsilon that meets it. "
        "A percentage, such as 5%, is relative to the value and takes several steps.",
        show_default=False,
    ),
]
Confidence = Annotated[
    Fraction | None,
    typer.Option(
        parser=_parse_confidence,
        metavar="NUMBER",
        help="The probability that a value meets the target error. [default: 0.95]",
        show_default=False,
    ),
]
Delta = Annotated[
    Fraction | None,
    typer.Option(
        parser=_parse_delta,
        metavar="NUMBER",
        help="The δ that a query spends on selecting group keys. [default: in proportion to epsilon]",
        show_default=False,
    ),
]
MaxGroups = Annotated[
    int | None,
    typer.Option(
        min=1, help="The largest number of groups to which one privacy unit contributes.", show_default=False
    ),
]
Dialect = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The SQL dialect of the query: duckdb, postgres, spark, snowflake, bigquery or tsql.",
    ),
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Draw new noise, at a charge, even if a stored release answers the query."),
]
Reserve = Annotated[
    Fraction | None,
    typer.Option(
        parser=_parse_epsilon,
        metavar="NUMBER",
        help="Reserve this ε of each private table's budget until the session ends.",
        show_default=False,
    ),
]
NewLedger = Annotated[
    bool,
    typer.Option(
        "--new-ledger",
        help="Create the ledger if it is missing, even though the policy was used with another ledger before: their losses add up.",
    ),
]
Sql = Annotated[
    str, typer.Argument(help="The query, or - to read it from standard input.", show_default=False)
]


def parse_location(source: str) -> Path | str:
    """Return the path of the data, or the URL of a database or a cluster unchanged."""
    return source if is_database_url(source) or is_spark(source) else Path(source)


def resolve_location(folder: Path, source: str) -> Path | str:
    """Resolve the data that a file names: a path relative to the file's folder, or a URL."""
    place = parse_location(source)
    return folder / place if isinstance(place, Path) else place


def hide_password(place: Path | str) -> str:
    """Return a printable name of the data; a URL loses its user, password and options.

    >>> hide_password("postgresql://ana:secret@db.example.org:5432/clinic?password=secret")
    'postgresql://db.example.org/clinic'
    """
    if isinstance(place, Path):
        return str(place)
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"


def get_default_policy_path(place: Path) -> Path:
    """Return the path of the policy beside a file or folder, which has its name with the ending .yaml.

    >>> get_default_policy_path(Path("shop/orders.csv")).as_posix()
    'shop/orders.yaml'
    """
    if place.name in ("", ".."):  # the current folder, or one above it
        place = place.resolve()
    return place.with_suffix(".yaml") if place.name else place / "policy.yaml"


def is_policy_path(database: Path | str) -> bool:
    """Return whether the database argument is a policy, which names the sources of its tables."""
    return isinstance(database, Path) and database.suffix.lower() in {".yaml", ".yml"}


def resolve_policy_path(database: Path | str, policy: Path | None) -> Path:
    """Return the policy that is given, or the one beside the database.

    Raises ProgrammingError if there is neither, OperationalError if there is no database.
    """
    if policy is not None:
        return policy
    if is_policy_path(database):
        return Path(database)
    if named := os.environ.get("DPSQL_POLICY"):
        return Path(named)
    if isinstance(database, str):
        raise ProgrammingError(
            "no policy given; a database server has no default policy file",
            code="policy_missing",
            hint="name it with --policy FILE or DPSQL_POLICY",
        )
    beside = get_default_policy_path(database)
    if not beside.is_file():
        if not database.exists() and not set(str(database)) & set("*?["):
            raise OperationalError(f"there is no database file {database}", code="no_database")
        raise ProgrammingError(
            f"no policy given for {database}, and {beside} does not exist",
            code="policy_missing",
            hint=f"name it with --policy FILE or DPSQL_POLICY, or write one with dpsql init {database}",
        )
    return beside


def connect_to_database(
    database: Path | str,
    policy: Path | None,
    ledger: str | None,
    analyst: str | None,
    ledger_key: Path | None,
    *,
    anchor: Path | None = None,
    fresh: bool = False,
    reserve: Fraction | None = None,
    default: Fraction | None = None,
    new_ledger: bool = False,
) -> Connection:
    """Connect to the database under its policy.

    `fresh` draws new noise for every query, `reserve` is reserved of each budget, and `default` is the loss of a query that
    states none. Creating a ledger is announced on standard error. Raises ProgrammingError (`new_ledger`) if the policy was
    used with another ledger before, unless `new_ledger` is set.
    """
    import dpsql
    from dpsql.interfaces.cli import known_ledgers

    rules = resolve_policy_path(database, policy)
    book = ledger or str(rules.with_suffix(".ledger"))
    begins = known_ledgers.is_new_ledger(rules, book, wanted=new_ledger)
    connection = dpsql.connect(
        None if is_policy_path(database) else str(database),
        policy=rules,
        ledger=ledger,
        analyst=analyst,
        epsilon=default,
        ledger_key=ledger_key,
        anchor=anchor,
        replay=not fresh,
        reserve=reserve,
    )
    known_ledgers.remember_ledger(rules, book)
    if begins:
        print(f"created a new ledger: {book}", file=sys.stderr)
    return connection


def connect_to_source(
    source: str,
    policy: Path | None,
    ledger: str | None,
    analyst: str | None,
    ledger_key: Path | None,
    *,
    anchor: Path | None = None,
    new_ledger: bool = False,
    fresh: bool = False,
    reserve: Fraction | None = None,
    default: Fraction | None = None,
) -> BaseConnection:
    """Connect to a database, as `connect_to_database` does, or to a server with the token in DPSQL_TOKEN.

    Raises ProgrammingError if an option that the server decides is given with a server's address.
    """
    import dpsql

    if not is_address(source):
        return connect_to_database(
            parse_location(source),
            policy,
            ledger,
            analyst,
            ledger_key,
            anchor=anchor,
            new_ledger=new_ledger,
            fresh=fresh,
            reserve=reserve,
            default=default,
        )
    require_no_ledger(ledger, ledger_key)
    ours: dict[str, object] = {
        "--policy": policy,
        "--analyst": analyst,
        "--anchor": anchor,
        "--reserve": reserve,
        "--new-ledger": new_ledger or None,
    }
    for name, given in ours.items():
        if given is not None:
            raise ProgrammingError(
                f"{name} is not valid with a server address; the server decides it",
                code="argument",
                hint=f"leave out {name}",
            )
    return dpsql.connect(source, epsilon=default, replay=not fresh)


def require_no_ledger(ledger: str | None, ledger_key: Path | None) -> None:
    """Raise ProgrammingError (`argument`) if a ledger or its key is given with the address of a server.

    Environment variables that name an owner's files apply to databases only and are ignored with an address.
    """
    for name, variable, given in (
        ("--ledger", "DPSQL_LEDGER", ledger),
        ("--ledger-key", "DPSQL_LEDGER_KEY_FILE", ledger_key),
    ):
        if given is not None and str(given) != os.environ.get(variable):
            raise ProgrammingError(
                f"{name} is not valid with a server address; the server keeps the ledger",
                code="argument",
                hint=f"leave out {name}",
            )


def find_source_epsilon(source: str, policy: Path | None) -> Fraction | None:
    """Return the default loss of a query, as `find_default_epsilon` does; for a server, DPSQL_EPSILON only."""
    from dpsql.policy import load

    if is_address(source):
        found = os.environ.get("DPSQL_EPSILON")
        return parse_amount(found, "DPSQL_EPSILON") if found else None
    return find_default_epsilon(load(resolve_policy_path(parse_location(source), policy)))


def find_default_epsilon(rules: Policy) -> Fraction | None:
    """Return the default loss of a query: DPSQL_EPSILON, else the policy's.

    Raises LossError if the variable holds no valid loss.
    """
    found = os.environ.get("DPSQL_EPSILON")
    return parse_amount(found, "DPSQL_EPSILON") if found else rules.default_epsilon


def require_loss(
    epsilon: Fraction | None,
    target_error: str | None,
    sql: str,
    dialect: str,
    default: Fraction | None = None,
    *,
    server: bool = False,
) -> Fraction | None:
    """Return the loss of the option, of the query itself, or the default; None for a target error.

    Raises ProgrammingError if there is none, unless a `server` may have a default.
    """
    from dpsql.sql.parse.stated_options import parse_stated_options

    said = parse_stated_options(sql, dialect)
    if target_error is None and said.target_error is None:
        for loss in (epsilon, said.epsilon, default):
            if loss is not None:
                return loss
        if server:
            return None
        raise ProgrammingError(
            "no privacy loss given: pass --epsilon",
            code="epsilon_missing",
            hint="add --epsilon 0.1, or state an accuracy: --target-error 50",
        )
    return said.epsilon if epsilon is None else epsilon


def parse_target(
    epsilon: Fraction | None, target_error: str | None, confidence: Fraction | None
) -> Target | None:
    """Return the target error that the options give, or None. Raises ProgrammingError if they also give a loss."""
    if target_error is None and confidence is None:
        return None
    if epsilon is not None or target_error is None:
        raise ProgrammingError(
            "--epsilon and --target-error cannot be combined, and --confidence requires --target-error",
            code="ambiguous",
            hint="--epsilon 0.1, or --target-error 50 --confidence 0.95",
        )
    return Target(parse_target_error(target_error), CONFIDENCE if confidence is None else confidence)


def read_sql(sql: str) -> str:
    """Return the query, read from standard input if it is `-`."""
    return typer.get_text_stream("stdin").read() if sql == "-" else sql
