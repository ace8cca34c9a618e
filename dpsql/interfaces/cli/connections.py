"""Open what the options of a command name: the data, its policy, its ledger and the default loss; guard against mistyped ledgers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from dpsql.api.arguments import is_address
from dpsql.api.opening import is_server
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.cli.options import ConnectionOptions
from dpsql.policy.request.loss import parse_amount

if TYPE_CHECKING:
    from dpsql.api.base_connection import BaseConnection
    from dpsql.api.connection import Connection
    from dpsql.policy import Policy


# Record the ledgers that a policy was used with, so that a mistyped path does not create another ledger silently.


ENDING: Final = ".ledgers"
_HEAD: Final = (
    "# The ledgers that this policy was used with, for dpsql. Only --new-ledger creates another one.\n"
)
_MOST_BYTES: Final = 100_000


def is_new_ledger(rules: Path, ledger: str, *, wanted: bool = False) -> bool:
    """Return whether opening a ledger would create it; False for a ledger in memory.

    Raises ProgrammingError (`new_ledger`) if it would be created although the policy was used with a ledger before, unless
    that is `wanted`.
    """
    from dpsql.ledger.open import MEMORY

    if ledger == MEMORY or _is_existing_ledger(ledger):
        return False
    met = next(_iterate_known_ledgers(rules, ledger), None)
    if met is not None and not wanted:
        gone = met == _normalize_ledger_name(ledger)
        said = "no longer exists" if gone else f"does not exist, and {rules.name} was used with {met} before"
        raise ProgrammingError(
            f"the ledger {_normalize_ledger_name(ledger)} {said}; a new ledger would be a second budget for the same data",
            code="new_ledger",
            hint=f"{'restore it' if gone else 'correct the path'},"
            " or create a ledger with --new-ledger; the losses of both add up",
        )
    return True


def remember_ledger(rules: Path, ledger: str) -> None:
    """Record once that the policy was used with a ledger, if the file can be written.

    Two ledgers over the same data are two budgets, which a user who types `--ledger hie.ledgr` does not intend. The ledgers of
    `hie.yaml` are listed in a file beside it, `hie.ledgers`, with one path or URL per line: there all users of the policy share the
    list, and it moves with the policy. It holds no password and no data. The database's file is no place for it, since it is opened
    read-only; nor is a file in the user's home, since colleagues share a budget; nor the policy itself, whose digest is in
    receipts. If the folder cannot be written, the ledger beside the policy is still known. This guards against mistakes only:
    anybody who can remove the file can create a ledger, as they can with `--new-ledger` or from Python.
    """
    from dpsql.ledger.open import MEMORY

    name, path = _normalize_ledger_name(ledger), rules.with_suffix(ENDING)
    if ledger == MEMORY or name in _read_listed_ledgers(path):
        return
    with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(f"{'' if file.tell() else _HEAD}{name}\n")


def _iterate_known_ledgers(rules: Path, ledger: str) -> Iterator[str]:
    """Yield the ledgers that the policy was used with: the listed ones, and the one beside the policy."""
    yield from _read_listed_ledgers(rules.with_suffix(ENDING))
    beside = rules.with_suffix(".ledger")
    if beside.is_file() and _normalize_ledger_name(str(beside)) != _normalize_ledger_name(ledger):
        yield _normalize_ledger_name(str(beside))


def _read_listed_ledgers(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except OSError:
        return []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _is_existing_ledger(ledger: str) -> bool:
    from dpsql.ledger.open import is_url, open_existing_store

    if not is_url(ledger):
        return Path(ledger).exists()
    try:
        store = open_existing_store(ledger)
    except OperationalError:
        return True  # opening it raises the error
    with contextlib.closing(store), store.open_connection() as connection:
        return not store.is_empty(connection)


def _normalize_ledger_name(ledger: str) -> str:
    """Return a ledger's name for the list: an absolute path, or a URL without user, password and options.

    >>> _normalize_ledger_name("postgresql://ana:secret@host:5432/ledgers?sslmode=require")
    'postgresql://host:5432/ledgers'
    """
    from dpsql.ledger.open import is_url

    if not is_url(ledger):
        return os.path.realpath(ledger)
    parts = urlsplit(ledger)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


# Open what the options of a command name: the data, its policy and ledger, and the default loss of a query.


def parse_location(source: str) -> Path | str:
    """Return the path of the data, or the URL of another engine's database unchanged."""
    return source if is_server(source) else Path(source)


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
    options: ConnectionOptions,
    *,
    fresh: bool = False,
    reserve: Fraction | None = None,
    default: Fraction | None = None,
) -> Connection:
    """Connect to the database under its policy.

    `fresh` draws new noise for every query, `reserve` is reserved of each budget, and `default` is the loss of a query that
    states none. Creating a ledger is announced on standard error. Raises ProgrammingError (`new_ledger`) if the policy was
    used with another ledger before, unless the option --new-ledger is set.
    """
    import dpsql

    rules = resolve_policy_path(database, options.policy)
    book = options.ledger or get_default_ledger(rules)
    begins = is_new_ledger(rules, book, wanted=options.new_ledger)
    connection = dpsql.connect(
        None if is_policy_path(database) else str(database),
        policy=rules,
        ledger=options.ledger,
        analyst=options.analyst,
        epsilon=default,
        ledger_key=options.ledger_key,
        anchor=options.anchor,
        replay=not fresh,
        reserve=reserve,
    )
    remember_ledger(rules, book)
    if begins:
        print(f"created a new ledger: {book}", file=sys.stderr)
    return connection


def connect_to_source(
    source: str,
    options: ConnectionOptions,
    *,
    fresh: bool = False,
    reserve: Fraction | None = None,
    default: Fraction | None = None,
) -> BaseConnection:
    """Connect to a database, as `connect_to_database` does, or to a server with the token in DPSQL_TOKEN.

    Raises ProgrammingError (`argument`) if an option that the server decides is given with a server's address.
    """
    import dpsql

    if not is_address(source):
        return connect_to_database(
            parse_location(source), options, fresh=fresh, reserve=reserve, default=default
        )
    require_no_ledger(options.ledger, options.ledger_key)
    decided: dict[str, object] = {
        "--policy": options.policy,
        "--analyst": options.analyst,
        "--anchor": options.anchor,
        "--reserve": reserve,
        "--new-ledger": options.new_ledger or None,
    }
    for name, given in decided.items():
        if given is not None:
            raise ProgrammingError(
                f"{name} is not valid with a server address; the server decides it",
                code="argument",
                hint=f"leave out {name}",
            )
    return dpsql.connect(source, epsilon=default, replay=not fresh)


def get_default_ledger(policy: Path) -> str:
    """Return the path of the ledger beside a policy."""
    return str(policy.with_suffix(".ledger"))


def with_ledger(options: ConnectionOptions, policy: Path, *, check: bool) -> ConnectionOptions:
    """Return the options with their policy and ledger named; a `check` that would create a ledger uses one in memory."""
    from dpsql.ledger.open import MEMORY, is_url

    ledger = options.ledger or get_default_ledger(policy)
    if check and not is_url(ledger) and not Path(ledger).is_file():
        return replace(options, policy=policy, ledger=MEMORY, anchor=None)
    return replace(options, policy=policy, ledger=ledger)


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
