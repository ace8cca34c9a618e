"""`dpsql users`: who may log in to `dpsql serve`, with passwords and tokens."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.errors import Error

if TYPE_CHECKING:
    from dpsql.server.users import UserStore

users = typer.Typer(help="Say who may log in to `dpsql serve`.", no_args_is_help=True)

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
    typer.Argument(metavar="NAME", help="The user, who is the analyst of that name.", show_default=False),
]


class RoleName(StrEnum):
    """What a user may do."""

    owner = "owner"
    analyst = "analyst"
    auditor = "auditor"


Role = Annotated[
    RoleName,
    typer.Option(
        "--role",
        help="An analyst asks; an auditor sees all budgets and asks nothing; an owner does both.",
        show_default=False,
    ),
]
Days = Annotated[
    int,
    typer.Option("--expires", min=1, max=3_650, metavar="DAYS", help="The days that the token is valid."),
]
Label = Annotated[str, typer.Option("--name", metavar="LABEL", help="What the list of tokens calls it.")]
TokenId = Annotated[
    str, typer.Argument(metavar="ID", help="The token's id, as the list has it.", show_default=False)
]
Whose = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Whose tokens. [default: all]", show_default=False)
]
Generate = Annotated[bool, typer.Option("--generate", help="Make a password and show it, once.")]


Subject = Annotated[
    str | None,
    typer.Option(
        "--subject",
        metavar="SUBJECT",
        help="What the issuer of OpenID Connect calls the user (the claim sub). There is no password then, unless it is generated.",
        show_default=False,
    ),
]
NewSubject = Annotated[
    str | None,
    typer.Argument(metavar="[SUBJECT]", help="The claim sub of the user's ID tokens.", show_default=False),
]
NoSubject = Annotated[bool, typer.Option("--none", help="The user logs in by OpenID Connect no more.")]


@users.command()
def add(
    name: Name, role: Role, generate: Generate = False, subject: Subject = None, store: Store = USERS
) -> None:
    """Let a user log in. The password is asked for, or read from standard input if that is no terminal."""
    from dpsql.server.users import Role as Kind

    password = _read_password(generate or subject is not None)
    with _open_store(store, create=True) as known:
        known.add_user(name, Kind(role.value), password)
        if subject is not None:
            try:
                known.set_subject(name, subject)
            except Error:
                known.remove_user(name)
                raise
    print(f"{name} may log in as {role.value}" + " by OpenID Connect" * (subject is not None))
    if generate:
        print(f"password: {password}")


@users.command("password")
def change(name: Name, generate: Generate = False, store: Store = USERS) -> None:
    """Change a user's password, and revoke all of the user's tokens. Sessions that are open stay open."""
    password = _read_password(generate)
    with _open_store(store) as known:
        known.change_password(name, password)
    print(f"the password of {name} is changed")
    if generate:
        print(f"password: {password}")


@users.command("subject")
def set_subject(
    name: Name, subject: NewSubject = None, none: NoSubject = False, store: Store = USERS
) -> None:
    """Say what the issuer of OpenID Connect calls a user. Sessions of the web page that are open end."""
    if (subject is None) is not none:
        raise typer.BadParameter("give a subject, or --none")
    with _open_store(store) as known:
        known.set_subject(name, subject)
    print(f"{name} logs in by OpenID Connect" + " no more" * none)


@users.command()
def remove(name: Name, store: Store = USERS) -> None:
    """Stop a user from logging in, by password or by token. What was charged to the name stays charged."""
    with _open_store(store) as known:
        known.remove_user(name)
    print(f"{name} may log in no more")


@users.command("list")
def list_(store: Store = USERS) -> None:
    """Show who may log in."""
    from dpsql.shell.view import View, build_table

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
    """Make a token for a user's programs, and show it, once: the store has its digest alone.

    The HTTP API takes it, and so do `dpsql.connect` and the commands that take its address; the PostgreSQL protocol takes
    passwords.
    """
    with _open_store(store) as known:
        secret = known.add_token(name, label, expires)
    print(f"token {secret.id} of {name}, valid for {expires} day{'s' * (expires > 1)}")
    print(f"token: {secret.to_text()}")


@users.command()
def tokens(name: Whose = None, store: Store = USERS) -> None:
    """Show the tokens that there are, without their secrets."""
    from datetime import UTC, datetime

    from dpsql.shell.view import View, build_table

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
    """End a token: what is asked with it from now on is refused."""
    with _open_store(store) as known:
        known.revoke_token(token)
    print(f"token {token} is revoked")


@contextmanager
def _open_store(target: str, *, create: bool = False) -> Iterator[UserStore]:
    from dpsql.server.users import UserStore

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
