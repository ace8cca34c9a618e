"""The options that commands share, in groups: a command takes a group as one frozen object.

A group is a frozen dataclass whose fields are options. `with_option_groups` gives a command to Typer with the fields of its groups as
options of their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from fractions import Fraction
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from dpsql.errors import LossError, ProgrammingError
from dpsql.policy.request.loss import CONFIDENCE, Target, parse_amount, parse_confidence, parse_target_error
from dpsql.policy.request.query import QueryOptions

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


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """The policy, the ledger and the analyst of a connection to a database."""

    policy: PolicyFile = None
    ledger: LedgerFile = None
    ledger_key: LedgerKey = None
    anchor: AnchorPath = None
    new_ledger: NewLedger = False
    analyst: Analyst = None


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """The loss or the target error of a query, and its share among groups."""

    epsilon: Epsilon = None
    delta: Delta = None
    max_groups: MaxGroups = None
    target_error: TargetError = None
    confidence: Confidence = None

    def to_query_options(self, dialect: str) -> QueryOptions:
        """Return the keyword arguments of `Connection.query`."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "max_groups": self.max_groups,
            "target_error": self.target_error,
            "confidence": self.confidence,
            "dialect": dialect,
        }

    def parse_target(self) -> Target | None:
        """Return the target error, or None. Raises ProgrammingError (`ambiguous`) if a loss is given too."""
        if self.target_error is None and self.confidence is None:
            return None
        if self.epsilon is not None or self.target_error is None:
            raise ProgrammingError(
                "--epsilon and --target-error cannot be combined, and --confidence requires --target-error",
                code="ambiguous",
                hint="--epsilon 0.1, or --target-error 50 --confidence 0.95",
            )
        confidence = CONFIDENCE if self.confidence is None else self.confidence
        return Target(parse_target_error(self.target_error), confidence)


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose parameters that are dataclasses are replaced by their fields, for Typer."""
    kinds = get_type_hints(command, include_extras=True)
    groups, parameters = dict[str, type[Any]](), list[inspect.Parameter]()
    for each in inspect.signature(command).parameters.values():
        kind = kinds[each.name]
        if is_dataclass(kind) and isinstance(kind, type):
            groups[each.name] = kind
            parameters += _list_options(kind)
        else:
            parameters.append(each.replace(annotation=kind))

    @wraps(command)
    def run_command(**given: Any) -> None:
        made = {
            name: kind(**{option.name: given.pop(option.name) for option in fields(kind)})
            for name, kind in groups.items()
        }
        command(**given, **made)

    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run_command


def _list_options(group: type[Any]) -> list[inspect.Parameter]:
    """Return a keyword parameter for each field of a group."""
    kinds = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if option.default is MISSING else option.default,
            annotation=kinds[option.name],
        )
        for option in fields(group)
    ]


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
    from dpsql.sql.parse.session_statement import parse_stated_options

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


def read_sql(sql: str) -> str:
    """Return the query, read from standard input if it is `-`."""
    return typer.get_text_stream("stdin").read() if sql == "-" else sql
