"""The user store: names, roles, password verifiers and access tokens, in a database through SQLAlchemy."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa

from dpsql.api.opening import get_user_name
from dpsql.errors import DataError, OperationalError, ProgrammingError
from dpsql.interfaces.server.protocol.scram import Verifier
from dpsql.policy.names import normalize_account_name

# Access tokens, which programs send in place of a password: `dpsql_<id>_<secret>`.


_TEXT = re.compile(r"dpsql_([0-9a-f]{16})_([0-9a-f]{64})")
MOST_TOKEN_CHARACTERS = 100
"""The largest number of characters of a token; a longer text is not parsed."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is listed to its user; `label` is chosen by its creator."""

    id: str
    user: str
    label: str
    created: datetime
    expires: datetime


@dataclass(frozen=True, slots=True)
class TokenSecret:
    """The id and the secret of a token; its `repr` hides the secret.

    Claim: the store reveals no token, and a guess succeeds with probability 2^-256.
    Why: the secret is 256 random bits, of which the store has only the SHA-256 digest. A slow hash is needed only for secrets that
    people choose. The id is public: it finds the row, so that one digest is compared with one digest, in constant time.
    Source: RFC 6750 (bearer tokens); NIST SP 800-63B, section 5.1.2 (look-up secrets of 112 bits and more).
    """

    id: str
    _secret: str = field(repr=False)

    @classmethod
    def generate(cls) -> TokenSecret:
        """Return a new token."""
        return cls(secrets.token_hex(8), secrets.token_hex(32))

    @classmethod
    def from_text(cls, text: str) -> TokenSecret | None:
        """Return the token of a text, or None if it is not a token.

        >>> TokenSecret.from_text("dpsql_" + "0" * 16 + "_" + "f" * 64)
        TokenSecret(id='0000000000000000')
        >>> TokenSecret.from_text("dpsql_0_f") is None
        True
        """
        match = _TEXT.fullmatch(text) if len(text) <= MOST_TOKEN_CHARACTERS else None
        return None if match is None else cls(match[1], match[2])

    def to_text(self) -> str:
        """Return the token as text, which only its user may see."""
        return f"dpsql_{self.id}_{self._secret}"

    def compute_digest(self) -> str:
        """Return the digest that the store keeps."""
        return hashlib.sha256(self._secret.encode("ascii")).hexdigest()

    def matches_digest(self, digest: str) -> bool:
        """Return whether this is the token of a digest, compared in constant time."""
        return hmac.compare_digest(self.compute_digest(), digest)


# The user store: names, roles, password verifiers and token digests, in a database through SQLAlchemy.


MOST_NAME_CHARACTERS = 63
"""Characters of a name, as of PostgreSQL's roles: clients cut longer ones off."""

MOST_SUBJECT = 255
"""Characters of a subject, as OpenID Connect has it."""
MOST_DAYS = 3_650
"""Days that a token is valid, at most."""
MOST_TOKENS = 100
"""Tokens of one user, at most."""

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
_SUBJECTS = sa.Table(
    "dpsql_subjects",
    _METADATA,
    sa.Column("subject", sa.String(255), primary_key=True),
    sa.Column("user_name", sa.String(300), nullable=False, unique=True),
)
_CHANGES = sa.Table(
    "dpsql_changes",
    _METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("at", sa.String(40), nullable=False),
    sa.Column("by_whom", sa.String(300), nullable=False),
    sa.Column("what", sa.String(40), nullable=False),
    sa.Column("user_name", sa.String(300), nullable=False),
    sa.Column("detail", sa.String(300), nullable=False),
    sa.Column("noted", sa.Boolean, nullable=False),
)
_TOKENS = sa.Table(
    "dpsql_tokens",
    _METADATA,
    sa.Column("id", sa.String(20), primary_key=True),
    sa.Column("user_name", sa.String(300), nullable=False, index=True),
    sa.Column("label", sa.String(300), nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("created", sa.String(40), nullable=False),
    sa.Column("expires", sa.String(40), nullable=False),
)
_WITH_SUBJECTS = sa.select(_USERS, _SUBJECTS.c.subject).outerjoin(
    _SUBJECTS, _SUBJECTS.c.user_name == _USERS.c.name
)
_ISSUER = "issuer"


class Role(StrEnum):
    """The role of a user: an `analyst` runs queries; an `auditor` sees all budgets and runs no queries; an `owner` does both."""

    owner = "owner"
    analyst = "analyst"
    auditor = "auditor"

    @property
    def can_query(self) -> bool:
        """Return whether the role may run queries."""
        return self is not Role.auditor

    @property
    def is_owner(self) -> bool:
        """Return whether the role may reload the server."""
        return self is Role.owner

    @property
    def can_view_all(self) -> bool:
        """Return whether the role may see the budgets of all analysts."""
        return self is not Role.analyst


@dataclass(frozen=True, slots=True)
class User:
    """A user who may log in."""

    name: str
    role: Role
    created: datetime
    subject: str | None = None
    """What the issuer of logins by OpenID Connect calls the user."""


@dataclass(frozen=True, slots=True)
class UserChange:
    """A change of a user: `detail` is a role or the id of a token, `by` is the operating system's login of who made it."""

    number: int
    at: str
    by: str
    what: str
    user: str
    detail: str


class UserStore:
    """The users in a database: a path means an SQLite file, which only its owner may read.

    Each change is stored beside them until the audit log of a server has it.

    A user's name is that of the analyst whose budget is charged. Two names that have one account in the ledger cannot both be
    users. A token ends with its day of expiry, with its user, with the user's password, or when it is revoked.
    """

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def list_changes(self) -> tuple[UserChange, ...]:
        """Return the changes that no audit log has recorded yet, in order."""
        wanted = sa.select(_CHANGES).where(sa.not_(_CHANGES.c.noted)).order_by(_CHANGES.c.id)
        with self._engine.connect() as connection:
            rows = connection.execute(wanted).all()
        return tuple(
            UserChange(each.id, each.at, each.by_whom, each.what, each.user_name, each.detail)
            for each in rows
        )

    def mark_noted(self, change: UserChange) -> None:
        """Mark a change as recorded in the audit log."""
        with self._engine.begin() as connection:
            connection.execute(_CHANGES.update().where(_CHANGES.c.id == change.number).values(noted=True))

    @classmethod
    def open(cls, target: str | Path, *, create: bool = False) -> Self:
        """Open the store at a path or URL. Raises OperationalError if it does not exist, unless `create` is set."""
        url = str(target)
        if "://" not in url:
            path = Path(url)
            if not path.is_file():
                if not create:
                    raise OperationalError(
                        f"the user store {path} does not exist",
                        code="users_missing",
                        hint="create it with dpsql users add NAME --role analyst, or name another with --users",
                    )
                os.close(_create_file(path))
            url = f"sqlite:///{path}"
        elif url.startswith("postgresql://"):
            url = url.replace("postgresql://", "postgresql+psycopg://", 1)
        failed = False
        try:
            engine = sa.create_engine(url)
            _METADATA.create_all(engine)
            store = cls(engine)
            store.get_server_secret()
        except (sa.exc.SQLAlchemyError, ImportError):  # whose words may hold the URL's password
            failed = True
        if failed:
            raise OperationalError("cannot open the user store", code="users_unavailable")
        return store

    @classmethod
    def make_for(cls, name: str) -> Self:
        """Return a store in memory with one analyst, who has no password that anybody knows: the user of this process."""
        engine = sa.create_engine(
            "sqlite://", poolclass=sa.pool.StaticPool, connect_args={"check_same_thread": False}
        )
        _METADATA.create_all(engine)
        store = cls(engine)
        store.add_user(name, Role.analyst, secrets.token_hex(32))
        for each in store.list_changes():
            store.mark_noted(each)
        return store

    def get_server_secret(self) -> bytes:
        """Return the server's secret, from which the made-up verifiers of unknown users are derived."""
        found = self._find_server_secret()
        if found is None:
            with self._engine.begin() as connection:
                connection.execute(_SECRETS.insert().values(name="mock", value=secrets.token_hex(32)))
            found = self._find_server_secret()
        return bytes.fromhex(found or "")

    def _find_server_secret(self) -> str | None:
        with self._engine.connect() as connection:
            found = connection.execute(sa.select(_SECRETS.c.value).where(_SECRETS.c.name == "mock")).scalar()
        return None if found is None else str(found)

    def add_user(self, name: str, role: Role, password: str) -> None:
        """Add a user. Raises ProgrammingError if the name, or one with the same account, is taken."""
        if not name or len(name) > MOST_NAME_CHARACTERS or not name.isprintable() or name != name.strip():
            raise DataError(
                f"a user's name must have 1 to {MOST_NAME_CHARACTERS} printable characters, without surrounding spaces",
                code="user_name",
            )
        row = {
            "account": normalize_account_name(name),
            "name": name,
            "role": role.value,
            "verifier": str(Verifier.from_password(password)),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        taken = False
        try:
            with self._engine.begin() as connection:
                connection.execute(_USERS.insert().values(**row))
                _record_change(connection, "user added", name, role.value)
        except sa.exc.IntegrityError:
            taken = True
        if taken:
            raise ProgrammingError(
                f"the user {name!r} already exists, or another user's name belongs to the same account",
                code="user_exists",
                hint="to change a password, use dpsql users password NAME",
            )

    def set_subject(self, name: str, subject: str | None) -> None:
        """Set a user's subject at the OpenID Connect issuer; None removes it.

        Raises ProgrammingError if there is no such user (`no_user`), or another one has that subject (`subject_exists`).
        """
        if subject is not None and not (0 < len(subject) <= MOST_SUBJECT and subject.isprintable()):
            raise DataError(f"a subject must have 1 to {MOST_SUBJECT} printable characters", code="subject")
        taken = False
        try:
            with self._engine.begin() as connection:
                # It locks the user's row, as for a token.
                found = connection.execute(_USERS.update().where(_USERS.c.name == name).values(name=name))
                _require_user(found.rowcount, name)
                connection.execute(_SUBJECTS.delete().where(_SUBJECTS.c.user_name == name))
                if subject is not None:
                    connection.execute(_SUBJECTS.insert().values(subject=subject, user_name=name))
                _record_change(connection, "subject removed" if subject is None else "subject set", name)
        except sa.exc.IntegrityError:
            taken = True
        if taken:
            raise ProgrammingError(
                "another user already has this subject",
                code="subject_exists",
                hint="dpsql users list shows the users",
            )

    def find_by_subject(self, subject: str) -> tuple[User, Verifier] | None:
        """Return the user of a subject at the issuer with the password verifier, or None."""
        with self._engine.connect() as connection:
            name = connection.execute(
                sa.select(_SUBJECTS.c.user_name).where(_SUBJECTS.c.subject == subject)
            ).scalar()
        return None if name is None else self.find_user(str(name))

    def require_issuer(self, issuer: str) -> None:
        """Require that the store's subjects are this issuer's, since two issuers may have the same subjects.

        Raises ProgrammingError (`issuer`) if they are another issuer's; a store without an issuer gets this one.
        """
        with self._engine.begin() as connection:
            any_subject = connection.execute(sa.select(_SUBJECTS.c.subject).limit(1)).scalar()
            known = connection.execute(sa.select(_SECRETS.c.value).where(_SECRETS.c.name == _ISSUER)).scalar()
            digest = hashlib.sha256(issuer.encode()).hexdigest()
            if known == digest:
                return
            if known is not None and any_subject is not None:
                raise ProgrammingError(
                    "the subjects in the user store belong to another issuer",
                    code="issuer",
                    hint="for each user, run dpsql users subject NAME --none, then dpsql users subject NAME SUBJECT",
                )
            connection.execute(_SECRETS.delete().where(_SECRETS.c.name == _ISSUER))
            connection.execute(_SECRETS.insert().values(name=_ISSUER, value=digest))

    def change_password(self, name: str, password: str) -> None:
        """Change a user's password and revoke the user's tokens. Raises ProgrammingError for an unknown user."""
        verifier = str(Verifier.from_password(password))
        with self._engine.begin() as connection:
            changed = connection.execute(
                _USERS.update().where(_USERS.c.name == name).values(verifier=verifier)
            )
            _require_user(changed.rowcount, name)
            _revoke_all(connection, name)
            _record_change(connection, "password changed", name)

    def remove_user(self, name: str) -> None:
        """Remove a user with all tokens; charges to the name remain. Raises ProgrammingError as `change_password`."""
        with self._engine.begin() as connection:
            removed = connection.execute(_USERS.delete().where(_USERS.c.name == name))
            _require_user(removed.rowcount, name)
            _revoke_all(connection, name)
            connection.execute(_SUBJECTS.delete().where(_SUBJECTS.c.user_name == name))
            _record_change(connection, "user removed", name)

    def list_users(self) -> tuple[User, ...]:
        """List all users, by name."""
        with self._engine.connect() as connection:
            rows = connection.execute(_WITH_SUBJECTS.order_by(_USERS.c.name)).all()
        return tuple(map(_to_user, rows))

    def find_user(self, name: str) -> tuple[User, Verifier] | None:
        """Return the user of exactly this name with the password verifier, or None."""
        with self._engine.connect() as connection:
            row = connection.execute(_WITH_SUBJECTS.where(_USERS.c.name == name)).one_or_none()
        return None if row is None else (_to_user(row), Verifier.from_text(row.verifier))

    def add_token(self, name: str, label: str, days: int, *, now: datetime | None = None) -> TokenSecret:
        """Create a token of a user that expires after `days` days. Raises ProgrammingError for an unknown user.

        Its secret is only in the returned value.
        """
        if not 1 <= days <= MOST_DAYS:
            raise DataError(f"a token must be valid for 1 to {MOST_DAYS:,} days", code="token_days")
        if len(label) > MOST_NAME_CHARACTERS or not label.isprintable():
            raise DataError(
                f"a token's name may have at most {MOST_NAME_CHARACTERS} printable characters",
                code="token_name",
            )
        secret, created = TokenSecret.generate(), (now or datetime.now(UTC)).replace(microsecond=0)
        row = {
            "id": secret.id,
            "user_name": name,
            "label": label,
            "digest": secret.compute_digest(),
            "created": created.isoformat(),
            "expires": (created + timedelta(days=days)).isoformat(),
        }
        with self._engine.begin() as connection:
            # It locks the user's row: a removal at the same time comes before or after, and finds the token then.
            found = connection.execute(_USERS.update().where(_USERS.c.name == name).values(name=name))
            _require_user(found.rowcount, name)
            count = connection.execute(
                sa.select(sa.func.count()).select_from(_TOKENS).where(_TOKENS.c.user_name == name)
            ).scalar_one()
            if count >= MOST_TOKENS:
                raise ProgrammingError(
                    f"{name} already has {count} tokens",
                    code="token_count",
                    hint="revoke one with dpsql users revoke ID",
                )
            connection.execute(_TOKENS.insert().values(**row))
            _record_change(connection, "token made", name, secret.id)
        return secret

    def list_tokens(self, name: str | None = None) -> tuple[Token, ...]:
        """List the tokens of a user or of all users, by user and age, including expired ones."""
        wanted = sa.select(_TOKENS).order_by(_TOKENS.c.user_name, _TOKENS.c.created, _TOKENS.c.id)
        if name is not None:
            wanted = wanted.where(_TOKENS.c.user_name == name)
        with self._engine.connect() as connection:
            rows = connection.execute(wanted).all()
        return tuple(
            Token(
                row.id,
                row.user_name,
                row.label,
                datetime.fromisoformat(row.created),
                datetime.fromisoformat(row.expires),
            )
            for row in rows
        )

    def revoke_token(self, number: str) -> None:
        """Revoke a token by its id. Raises ProgrammingError for an unknown id."""
        with self._engine.begin() as connection:
            whose = connection.execute(sa.select(_TOKENS.c.user_name).where(_TOKENS.c.id == number)).scalar()
            revoked = connection.execute(_TOKENS.delete().where(_TOKENS.c.id == number))
            if revoked.rowcount:
                _record_change(connection, "token revoked", str(whose), number)
        if not revoked.rowcount:
            raise ProgrammingError(
                f"unknown token {number!r}", code="no_token", hint="dpsql users tokens lists the tokens"
            )

    def find_by_token(self, text: str, *, now: datetime | None = None) -> User | None:
        """Return the user of a token, or None if it is invalid, revoked or expired."""
        secret = TokenSecret.from_text(text)
        if secret is None:
            return None
        wanted = (
            _WITH_SUBJECTS.add_columns(_TOKENS.c.digest, _TOKENS.c.expires)
            .join(_TOKENS, _TOKENS.c.user_name == _USERS.c.name)
            .where(_TOKENS.c.id == secret.id)
        )
        with self._engine.connect() as connection:
            row = connection.execute(wanted).one_or_none()
        if not secret.matches_digest("" if row is None else row.digest) or row is None:
            return None
        if datetime.fromisoformat(row.expires) <= (now or datetime.now(UTC)):
            return None
        return _to_user(row)

    def close(self) -> None:
        """Close the store's connections."""
        self._engine.dispose()


def _record_change(connection: sa.Connection, what: str, name: str, detail: str = "") -> None:
    """Store a change in the transaction that makes it."""
    row = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "by_whom": get_user_name()[:MOST_NAME_CHARACTERS],
        "what": what,
        "user_name": name,
        "detail": detail,
        "noted": False,
    }
    connection.execute(_CHANGES.insert().values(**row))


def _to_user(row: sa.Row[Any]) -> User:
    return User(row.name, Role(row.role), datetime.fromisoformat(row.created), row.subject)


def _create_file(path: Path) -> int:
    try:
        return os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    except OSError as error:
        raise OperationalError(
            f"cannot create the user store {path}: {error.strerror}", code="users_unavailable"
        ) from None


def _revoke_all(connection: sa.Connection, name: str) -> None:
    connection.execute(_TOKENS.delete().where(_TOKENS.c.user_name == name))


def _require_user(count: int, name: str) -> None:
    if not count:
        raise ProgrammingError(
            f"unknown user {name!r}", code="no_user", hint="dpsql users list shows the users"
        )
