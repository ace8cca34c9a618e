"""`dpsql users` and `dpsql audit`: who may log in to `dpsql serve`, and what its log says."""

from __future__ import annotations

import json
import secrets
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.errors import Error
from dpsql.interfaces.cli.ledger import AnchoredHead, open_reader, read_anchored_head
from dpsql.interfaces.cli.options import AnchorPath, LedgerKey

if TYPE_CHECKING:
    from dpsql.interfaces.server.users import UserStore
    from dpsql.ledger.audit_log import AuditEvent


users = typer.Typer(help="Manage the users who may log in to `dpsql serve`.", no_args_is_help=True)

USERS = "dpsql.users"
Store = Annotated[
    str,
    typer.Option(
        "--users",
        envvar="DPSQL_USERS",
        metavar="FILE|URL",
        help="The user store: a file, or postgresql://user@host/name.",
    ),
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="The user's name, which is also the analyst's name.", show_default=False
    ),
]


class RoleName(StrEnum):
    """The role of a user, as an option."""

    owner = "owner"
    analyst = "analyst"
    auditor = "auditor"


Role = Annotated[
    RoleName,
    typer.Option(
        "--role",
        help="An analyst runs queries; an auditor sees all budgets and runs no queries; an owner does both.",
        show_default=False,
    ),
]
Days = Annotated[
    int,
    typer.Option(
        "--expires", min=1, max=3_650, metavar="DAYS", help="The number of days for which the token is valid."
    ),
]
Label = Annotated[
    str, typer.Option("--name", metavar="LABEL", help="The token's label in the list of tokens.")
]
TokenId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The token's id, as `dpsql users tokens` lists it.", show_default=False
    ),
]
Whose = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]", help="The user whose tokens are listed. [default: all users]", show_default=False
    ),
]
Generate = Annotated[bool, typer.Option("--generate", help="Generate a password and show it once.")]


Subject = Annotated[
    str | None,
    typer.Option(
        "--subject",
        metavar="SUBJECT",
        help="The user's subject at the OpenID Connect issuer (the claim sub). The user then has no password unless --generate is given.",
        show_default=False,
    ),
]
NewSubject = Annotated[
    str | None,
    typer.Argument(metavar="[SUBJECT]", help="The claim sub of the user's ID tokens.", show_default=False),
]
NoSubject = Annotated[
    bool, typer.Option("--none", help="Remove the subject: the user no longer logs in with OpenID Connect.")
]


@users.command()
def add(
    name: Name, role: Role, generate: Generate = False, subject: Subject = None, store: Store = USERS
) -> None:
    """Add a user. The password is prompted for, or read from standard input if that is not a terminal."""
    from dpsql.interfaces.server.users import Role as Kind

    password = _read_password(generate or subject is not None)
    with _open_store(store, create=True) as known:
        known.add_user(name, Kind(role.value), password)
        if subject is not None:
            try:
                known.set_subject(name, subject)
            except Error:
                known.remove_user(name)
                raise
    print(f"{name} may log in as {role.value}" + " with OpenID Connect" * (subject is not None))
    if generate:
        print(f"password: {password}")


@users.command("password")
def change(name: Name, generate: Generate = False, store: Store = USERS) -> None:
    """Change a user's password, and revoke all tokens of the user. Open sessions stay open."""
    password = _read_password(generate)
    with _open_store(store) as known:
        known.change_password(name, password)
    print(f"changed the password of {name}")
    if generate:
        print(f"password: {password}")


@users.command("subject")
def set_subject(
    name: Name, subject: NewSubject = None, none: NoSubject = False, store: Store = USERS
) -> None:
    """Set a user's subject at the OpenID Connect issuer. Open sessions of the web page end."""
    if (subject is None) is not none:
        raise typer.BadParameter("give a subject, or --none")
    with _open_store(store) as known:
        known.set_subject(name, subject)
    print(f"{name} no longer logs in with OpenID Connect" if none else f"{name} logs in with OpenID Connect")


@users.command()
def remove(name: Name, store: Store = USERS) -> None:
    """Remove a user: passwords and tokens stop working. Charges to the name remain."""
    with _open_store(store) as known:
        known.remove_user(name)
    print(f"{name} may no longer log in")


@users.command("list")
def list_(store: Store = USERS) -> None:
    """List the users who may log in."""
    from dpsql.interfaces.shell.answers import View, build_table

    with _open_store(store) as known:
        found = known.list_users()
    heads, named = ["user", "role", "since"], any(user.subject for user in found)
    rows = [
        (user.name, user.role.value, f"{user.created:%Y-%m-%d}", *([user.subject or ""] if named else []))
        for user in found
    ]
    print(
        View.from_stream(sys.stdout).render_parts(
            build_table((*heads, *(["subject"] if named else [])), rows, right=())
        )
    )


@users.command()
def token(name: Name, expires: Days = 90, label: Label = "", store: Store = USERS) -> None:
    """Create a token for a user's programs and show it once; the user store keeps only its digest.

    The HTTP API accepts the token, and so do `dpsql.connect` and the commands that take a server's address. The PostgreSQL
    protocol accepts passwords only.
    """
    with _open_store(store) as known:
        secret = known.add_token(name, label, expires)
    print(f"token {secret.id} of {name}, valid for {expires} day{'s' * (expires > 1)}")
    print(f"token: {secret.to_text()}")


@users.command()
def tokens(name: Whose = None, store: Store = USERS) -> None:
    """List the tokens, without their secrets."""
    from datetime import UTC, datetime

    from dpsql.interfaces.shell.answers import View, build_table

    now = datetime.now(UTC)
    with _open_store(store) as known:
        rows = [
            (
                each.id,
                each.user,
                each.label,
                f"{each.created:%Y-%m-%d}",
                f"{each.expires:%Y-%m-%d}" + " (expired)" * (each.expires <= now),
            )
            for each in known.list_tokens(name)
        ]
    print(
        View.from_stream(sys.stdout).render_parts(
            build_table(("token", "user", "name", "since", "until"), rows, right=())
        )
    )


@users.command()
def revoke(token: TokenId, store: Store = USERS) -> None:
    """Revoke a token: requests that use it are refused from now on."""
    with _open_store(store) as known:
        known.revoke_token(token)
    print(f"revoked token {token}")


@contextmanager
def _open_store(target: str, *, create: bool = False) -> Iterator[UserStore]:
    from dpsql.interfaces.server.users import UserStore

    store = UserStore.open(target, create=create)
    try:
        yield store
    finally:
        store.close()


def _read_password(generate: bool) -> str:
    if generate:
        return secrets.token_urlsafe(18)
    if sys.stdin.isatty():
        return str(typer.prompt("password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\r\n")


# `dpsql audit verify`, `show` and `head`: a server's log of logins, queries and changes.


audit = typer.Typer(help="Verify and show the audit log of `dpsql serve`.", no_args_is_help=True)

Log = Annotated[Path, typer.Argument(metavar="LOG", help="The audit log, a file.", show_default=False)]
Beside = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        "-l",
        metavar="FILE|URL",
        help="The ledger of the same server: the log's charges are compared with it.",
        show_default=False,
    ),
]
User = Annotated[str | None, typer.Option("--user", help="Show only this user's events.", show_default=False)]
EventName = Annotated[
    str | None,
    typer.Option(
        "--event",
        help="Show only events of this name: start, stop, login, 'login refused', asked, answered, refused, failed, 'reload asked', reload or "
        "'reload refused'.",
        show_default=False,
    ),
]
Last = Annotated[int, typer.Option("--last", min=1, help="Show at most this number of the newest events.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one event per line, as JSON.")]


@audit.command()
def verify(
    log: Log,
    *,
    ledger: Beside = None,
    anchor: AnchorPath = None,
    head: AnchoredHead = None,
    ledger_key: LedgerKey = None,
) -> None:
    """Verify every event, from the first to the last, with the ledger's key.

    The audit log has its own anchor: the file beside the ledger's anchor with the ending .audit.
    """
    from dpsql.ledger.audit_log import require_ledger_entries, verify_log
    from dpsql.ledger.digest import read_ledger_key
    from dpsql.ledger.protocol import START

    expected = read_anchored_head(anchor, head)
    found = verify_log(log, read_ledger_key(ledger_key), expected or START)
    under = " with the ledger's key" if ledger_key else ""
    print(f"the chain is intact{under}: events {found.head.entries:,}")
    for name, count in sorted(found.counts.items()):
        print(f"  {name}: {count:,}")
    if ledger is not None:
        with open_reader(ledger, ledger_key) as history:
            history.verify()
            require_ledger_entries(found, history.iterate_rows())
        print(f"the ledger has every charge of the log: charges {len(found.charge_events):,}")
    if expected is None:
        print("to detect events missing at the end, compare with a recorded head: --anchor FILE or --head")
    else:
        print(f"the chain contains the recorded head of {expected.entries:,} events")
    print(f"head: {found.head}")


@audit.command()
def show(
    log: Log,
    *,
    user: User = None,
    event: EventName = None,
    last: Last = 20,
    as_json: AsJson = False,
    ledger_key: LedgerKey = None,
) -> None:
    """Show the newest events, oldest first; each event is verified as it is read."""
    from dpsql.interfaces.shell.answers import View, build_table
    from dpsql.ledger.audit_log import iterate_events
    from dpsql.ledger.digest import read_ledger_key

    found: deque[AuditEvent] = deque(maxlen=last)
    for each in iterate_events(log, read_ledger_key(ledger_key)):
        if (user is None or user in (each.facts.get("user"), each.facts.get("by"))) and event in (
            None,
            each.name,
        ):
            found.append(each)
    if as_json:
        for each in found:
            facts = {"number": each.number, "at": each.at.isoformat(), "event": each.name, **each.facts}
            print(json.dumps(facts, ensure_ascii=False))
    elif not found:
        print("the audit log has no such events")
    else:
        rows = [
            (
                f"{each.number}",
                f"{each.at:%Y-%m-%d %H:%M:%S}",
                str(each.facts.get("user") or each.facts.get("by") or ""),
                each.name,
                _describe_event(each),
            )
            for each in found
        ]
        print(
            View.from_stream(sys.stdout).render_parts(
                build_table(("event", "at (UTC)", "user", "what", "facts"), rows, right=(0,))
            )
        )


@audit.command()
def head(log: Log, ledger_key: LedgerKey = None) -> None:
    """Print the log's head. Record it where nobody who can write the log can change it."""
    from dpsql.ledger.audit_log import verify_log
    from dpsql.ledger.digest import read_ledger_key

    print(verify_log(log, read_ledger_key(ledger_key)).head)


def _describe_event(event: AuditEvent) -> str:
    """Return the facts of an event, without the user who caused it."""
    return ", ".join(
        f"{name} {_format_fact(value)}"
        for name, value in event.facts.items()
        if name not in ("user", "by", "ledger", "analyst")
    )


def _format_fact(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}: {_format_fact(each)}" for name, each in value.items())
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "unknown"}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)
