"""Who may log in: names, roles and verifiers of passwords, in a store through SQLAlchemy.

A user's name is that of the analyst whose budget is charged. Two names that have one account in the ledger cannot both
be users.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Self

import sqlalchemy as sa

from dpsql.errors import DataError, OperationalError, ProgrammingError
from dpsql.policy.names import account_name
from dpsql.server.protocol.scram import Verifier

MOST_CHARACTERS = 63
"""Characters of a name, as of PostgreSQL's roles: clients cut longer ones off."""

_METADATA = sa.MetaData()
_USERS = sa.Table(
    "dpsql_users",
    _METADATA,
    sa.Column("account", sa.String(300), primary_key=True),
    sa.Column("name", sa.String(300), nullable=False),
    sa.Column("role", sa.String(20), nullable=False),
    sa.Column("verifier", sa.String(300), nullable=False),
    sa.Column("created", sa.String(40), nullable=False),
)
_SECRETS = sa.Table(
    "dpsql_server",
    _METADATA,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("value", sa.String(100), nullable=False),
)


class Role(StrEnum):
    """What a user may do: `analyst` asks; `auditor` sees the budgets of all, and asks nothing; `owner` does both."""

    owner = "owner"
    analyst = "analyst"
    auditor = "auditor"

    @property
    def asks(self) -> bool:
        """Whether private tables may be queried."""
        return self is not Role.auditor

    @property
    def oversees(self) -> bool:
        """Whether the budgets of all analysts are shown."""
        return self is not Role.analyst


@dataclass(frozen=True, slots=True)
class User:
    """One who may log in."""

    name: str
    role: Role
    created: datetime


class UserStore:
    """The users in a database: a path means an SQLite file, which its owner alone may read."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, target: str | Path, *, create: bool = False) -> Self:
        """The store at a path or URL. Raises OperationalError where there is none, unless it is to be made."""
        url = str(target)
        if "://" not in url:
            path = Path(url)
            if not path.is_file():
                if not create:
                    raise OperationalError(
                        f"there is no user store {path}",
                        code="users_missing",
                        hint="dpsql users add NAME --role analyst makes one; --users names another",
                    )
                os.close(_made(path))
            url = f"sqlite:///{path}"
        elif url.startswith("postgresql://"):
            url = url.replace("postgresql://", "postgresql+psycopg://", 1)
        failed = False
        try:
            engine = sa.create_engine(url)
            _METADATA.create_all(engine)
            store = cls(engine)
            store.secret()
        except (sa.exc.SQLAlchemyError, ImportError):  # whose words may hold the URL's password
            failed = True
        if failed:
            raise OperationalError("the user store cannot be opened", code="users_unavailable")
        return store

    def secret(self) -> bytes:
        """The server's own secret, from which what passes for verifiers of unknown users is derived."""
        found = self._value()
        if found is None:
            with self._engine.begin() as connection:
                connection.execute(_SECRETS.insert().values(name="mock", value=secrets.token_hex(32)))
            found = self._value()
        return bytes.fromhex(found or "")

    def _value(self) -> str | None:
        with self._engine.connect() as connection:
            found = connection.execute(sa.select(_SECRETS.c.value).where(_SECRETS.c.name == "mock")).scalar()
        return None if found is None else str(found)

    def add(self, name: str, role: Role, password: str) -> None:
        """Adds a user. Raises ProgrammingError where the name, or one with the same account, is taken."""
        if not name or len(name) > MOST_CHARACTERS or not name.isprintable() or name != name.strip():
            raise DataError(
                f"a user's name has 1 to {MOST_CHARACTERS} printable characters, with no space around them",
                code="user_name",
            )
        row = {
            "account": account_name(name),
            "name": name,
            "role": role.value,
            "verifier": str(Verifier.of(password)),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        taken = False
        try:
            with self._engine.begin() as connection:
                connection.execute(_USERS.insert().values(**row))
        except sa.exc.IntegrityError:
            taken = True
        if taken:
            raise ProgrammingError(
                f"there is a user {name!r} already, or one of a name with the same account",
                code="user_exists",
                hint="dpsql users password NAME changes a password",
            )

    def change(self, name: str, password: str) -> None:
        """Gives a user another password. Raises ProgrammingError where there is no such user."""
        verifier = str(Verifier.of(password))
        with self._engine.begin() as connection:
            changed = connection.execute(
                _USERS.update().where(_USERS.c.name == name).values(verifier=verifier)
            )
        _require(changed.rowcount, name)

    def remove(self, name: str) -> None:
        """Removes a user; what was charged to the name stays charged. Raises ProgrammingError as `change`."""
        with self._engine.begin() as connection:
            removed = connection.execute(_USERS.delete().where(_USERS.c.name == name))
        _require(removed.rowcount, name)

    def list(self) -> tuple[User, ...]:
        """All users, by name."""
        with self._engine.connect() as connection:
            rows = connection.execute(sa.select(_USERS).order_by(_USERS.c.name)).all()
        return tuple(User(row.name, Role(row.role), datetime.fromisoformat(row.created)) for row in rows)

    def find(self, name: str) -> tuple[User, Verifier] | None:
        """The user of exactly this name, and by what a password is proved; None where there is none."""
        with self._engine.connect() as connection:
            row = connection.execute(sa.select(_USERS).where(_USERS.c.name == name)).one_or_none()
        if row is None:
            return None
        user = User(row.name, Role(row.role), datetime.fromisoformat(row.created))
        return user, Verifier.read(row.verifier)

    def close(self) -> None:
        """Closes the store's connections."""
        self._engine.dispose()


def _made(path: Path) -> int:
    try:
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except OSError as error:
        raise OperationalError(
            f"the user store {path} cannot be made: {error.strerror}", code="users_unavailable"
        ) from None


def _require(count: int, name: str) -> None:
    if not count:
        raise ProgrammingError(
            f"there is no user {name!r}", code="no_user", hint="dpsql users list shows them"
        )
