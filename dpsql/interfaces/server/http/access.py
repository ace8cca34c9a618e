"""Authenticate the caller of a request: by token, by session, or by name and password.

There are no cookies: each request carries its credentials, which a browser does not send by itself. So no page of another site
can send requests for a user (CSRF), and no CORS header lets one read an answer.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NoReturn, TypeVar

from starlette.requests import Request

from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.interfaces.server.limits import PasswordCheckLimiter
from dpsql.interfaces.server.protocol.scram import MOST_CHARACTERS as MOST_PASSWORD
from dpsql.interfaces.server.protocol.scram import Verifier
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.sockets import Log, get_network
from dpsql.interfaces.server.users import MOST_NAME_CHARACTERS as MOST_NAME
from dpsql.interfaces.server.users import Role, TokenSecret, User

if TYPE_CHECKING:
    from dpsql.interfaces.server.http.oidc import OidcProvider


# Sessions of the web page: a browser exchanges the password for one, so that it need not keep the password.


LoginProof = tuple[Verifier, str | None]
"""The proof of a login: the password verifier, and the subject at the OpenID Connect issuer, if there is one."""
PREFIX = "dpsql-session_"
LONGEST = 8 * 3_600.0
"""Seconds after which a session ends."""
IDLE = 1_800.0
"""Seconds without a request after which a session ends."""
MOST_OF_ONE = 16
"""The largest number of sessions of one user: a further one ends the oldest."""


@dataclass(slots=True)
class _WebSession:
    user: str
    proof: LoginProof
    begun_at: float
    used_at: float


class WebSessions:
    """The open sessions, by the digests of their secrets; they belong to one event loop.

    Claim: a session ends when its user is removed, when the user's password or subject changes, eight hours after it began, half an
    hour after its last request, when its user ends it, and with the server. The server's memory contains no session's secret.
    Why: each request is compared with the verifier and the subject that the user had when the session began; the secret is 256
    random bits, of which the server keeps only the SHA-256 digest. It is sent in the Authorization header, never as a cookie, so
    that a browser does not send it for a page of another site (CSRF).
    Source: NIST SP 800-63B, section 7.1 (session secrets) and 4.2.3 (reauthentication); RFC 6750.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions = OrderedDict[bytes, _WebSession]()

    def begin_session(self, user: str, proof: LoginProof) -> str:
        """Begin a session of a user who logged in by `proof`, and return its secret."""
        now = self._clock()
        self._sessions = OrderedDict(
            (key, each) for key, each in self._sessions.items() if not _is_over(each, now)
        )
        own = [key for key, each in self._sessions.items() if each.user == user]
        for key in own[: max(0, len(own) + 1 - MOST_OF_ONE)]:
            del self._sessions[key]
        secret = PREFIX + secrets.token_hex(32)
        self._sessions[_compute_digest(secret)] = _WebSession(user, proof, now, now)
        return secret

    def find_session(self, secret: str) -> tuple[str, LoginProof] | None:
        """Return the user of a session and the proof that it began with, or None if there is no such session or it has ended."""
        found, now = self._sessions.get(_compute_digest(secret)), self._clock()
        if found is None or _is_over(found, now):
            return None
        found.used_at = now
        return found.user, found.proof

    def end_session(self, secret: str) -> None:
        """End a session, if there is one."""
        self._sessions.pop(_compute_digest(secret), None)


def _is_over(session: _WebSession, now: float) -> bool:
    return now - session.begun_at > LONGEST or now - session.used_at > IDLE


def _compute_digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


# The caller of a request, and what each role may do.


_T = TypeVar("_T")
_WAITING = 16
"""The largest number of passwords that wait to be checked: each check takes some hundredths of a second."""


class Authenticator:
    """Authenticate requests. Failures are slowed down and logged by name or token id, as in the PostgreSQL protocol."""

    def __init__(self, service: Service, log: Log, provider: OidcProvider | None = None) -> None:
        self._service, self._log, self.provider = service, log, provider
        self._secret = service.users.get_server_secret()
        # Lookups wait for no query, and those of tokens for no check of a password.
        self._token_pool = ThreadPoolExecutor(1, "dpsql token")
        self._password_pool = ThreadPoolExecutor(1, "dpsql password")
        self._issuer_pool = ThreadPoolExecutor(4, "dpsql issuer")
        self._login_limiter = PasswordCheckLimiter()
        self._waiting = 0
        self.sessions = WebSessions()
        self.failures = 0

    async def authenticate_request(self, authorization: list[str], peer: str) -> User:
        """Return the user of a request's Authorization header. Raises OperationalError (`unauthenticated`)."""
        scheme, _, given = authorization[0].partition(" ") if len(authorization) == 1 else ("", "", "")
        match scheme.lower():
            case "bearer":
                secret = given.strip()
                if secret.startswith(PREFIX):
                    return await self._authenticate_session(secret, peer)
                of = self._authenticate_access_token if secret.count(".") == 2 else self._authenticate_token
                return await of(secret, peer)
            case "basic":
                return (await self._authenticate_password(given.strip(), peer))[0]
            case _:
                await self._refuse_login("", peer)

    async def begin_session(self, authorization: list[str], peer: str) -> tuple[User, str]:
        """Begin a session for the name and password of the Authorization header. Raises OperationalError (`unauthenticated`)."""
        scheme, _, given = authorization[0].partition(" ") if len(authorization) == 1 else ("", "", "")
        if scheme.lower() != "basic":
            await self._refuse_login("", peer)
        user, verifier = await self._authenticate_password(given.strip(), peer)
        return user, await self._open_session(user, verifier, "password", peer)

    async def _open_session(self, user: User, verifier: Verifier, method: str, peer: str) -> str:
        facts = {"user": user.name, "role": user.role.value, "door": "http", "peer": peer}
        await self._run_in_pool(
            self._token_pool, lambda: self._service.audit.note_event("login", method=method, **facts) and None
        )
        self._log("login", **facts)
        return self.sessions.begin_session(user.name, (verifier, user.subject))

    async def begin_issuer_login(self, binder: str, peer: str) -> str:
        """Return the issuer's login address; the browser returns with a code for `begin_session_by_code`.

        Raises OperationalError, with code `busy` if too many logins are under way.
        """
        provider = self._require_provider()
        if not self._login_limiter.allow_check(get_network(peer)):
            raise OperationalError(
                "too many logins were started recently", code="busy", hint="try again later"
            )
        return await self._run_in_pool(self._issuer_pool, lambda: provider.begin_login(binder))

    async def begin_session_by_code(self, state: str, code: str, secret: str, peer: str) -> tuple[User, str]:
        """Begin a session for a user who logged in at the issuer. Raises OperationalError (`unauthenticated`)."""
        provider = self._require_provider()
        subject = await self._run_in_pool(
            self._issuer_pool, lambda: provider.find_subject_by_code(state, code, secret)
        )
        found = None if subject is None else await self._find_user_by_subject(subject)
        if found is None:
            await self._refuse_login("issuer", peer)
        self._service.failed_logins.reset_failures("issuer")
        return found[0], await self._open_session(*found, "oidc", peer)

    async def _authenticate_access_token(self, text: str, peer: str) -> User:
        provider = self.provider
        subject = None
        if provider is not None:
            issuer = provider
            subject = await self._run_in_pool(self._issuer_pool, lambda: issuer.find_subject_by_token(text))
        found = None if subject is None else await self._find_user_by_subject(subject)
        if found is None:
            await self._refuse_login("issuer", peer)
        self._service.failed_logins.reset_failures("issuer")
        return found[0]

    async def _find_user_by_subject(self, subject: str) -> tuple[User, Verifier] | None:
        return await self._run_in_pool(self._token_pool, lambda: self._service.users.find_by_subject(subject))

    def _require_provider(self) -> OidcProvider:
        if self.provider is None:
            raise ProgrammingError("this server does not use OpenID Connect", code="not_found")
        return self.provider

    def end_session(self, authorization: list[str]) -> None:
        """End the session of the Authorization header, if it has one."""
        self.sessions.end_session(authorization[0].partition(" ")[2].strip())

    async def _authenticate_session(self, secret: str, peer: str) -> User:
        begun = self.sessions.find_session(secret)
        if begun is None:
            await self._refuse_login("session", peer)
        name, proof = begun
        found = await self._run_in_pool(self._token_pool, lambda: self._service.find_user(name))
        if (
            found is None or (found[1], found[0].subject) != proof
        ):  # removed, or what proves the user was changed
            self.sessions.end_session(secret)
            await self._refuse_login("session", peer)
        self._service.failed_logins.reset_failures("session")
        return found[0]

    async def _authenticate_token(self, text: str, peer: str) -> User:
        secret = TokenSecret.from_text(text)
        if secret is None:
            await self._refuse_login("token", peer)
        found = await self._run_in_pool(self._token_pool, lambda: self._service.users.find_by_token(text))
        if found is None:
            await self._refuse_login(f"token {secret.id}", peer)
        self._service.failed_logins.reset_failures(f"token {secret.id}")
        return found

    async def _authenticate_password(self, text: str, peer: str) -> tuple[User, Verifier]:
        try:
            name, _, password = base64.b64decode(text, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            await self._refuse_login("", peer)
        if not 0 < len(name) <= MOST_NAME or len(password) > MOST_PASSWORD:
            await self._refuse_login("", peer)
        origin, checks = get_network(peer), self._service.password_checks
        if self._waiting >= _WAITING or not checks.allow_check(origin):
            self.failures += 1
            raise OperationalError(
                "too many passwords were checked recently",
                code="busy",
                hint="use a token, or try again later",
            )
        self._waiting += 1
        try:
            found = await self._run_in_pool(
                self._password_pool, lambda: self._find_user_by_password(name, password)
            )
        finally:
            self._waiting -= 1
        if found is None:
            await self._refuse_login(name, peer)
        checks.return_check(origin)
        self._service.failed_logins.reset_failures(name)
        return found

    def _find_user_by_password(self, name: str, password: str) -> tuple[User, Verifier] | None:
        found = self._service.find_user(name)
        verifier = Verifier.make_mock(name, self._secret) if found is None else found[1]
        return found if verifier.matches_password(password) else None

    async def _refuse_login(self, who: str, peer: str) -> NoReturn:
        self.failures += 1
        delay = self._service.failed_logins.note_failure(who)
        self._log("login refused", user=who, peer=peer, delay=delay, door="http")
        await self._run_in_pool(self._password_pool, lambda: self._note_refused_login(who, peer))
        await asyncio.sleep(delay)
        raise make_unauthenticated_error()

    def _note_refused_login(self, who: str, peer: str) -> None:
        is_token = who.startswith("token ")
        known = is_token or self._service.find_user(who) is not None
        try:
            self._service.audit.note_refused_login(who if known else None, "http", peer)
        except Error as error:
            self._log("audit failed", code=error.code, message=error.message)

    async def _run_in_pool(self, pool: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def close(self) -> None:
        """Wait for running lookups."""
        self._token_pool.shutdown(wait=True)
        self._password_pool.shutdown(wait=True)
        self._issuer_pool.shutdown(wait=True)


NOBODY = User("", Role.auditor, datetime.min.replace(tzinfo=UTC))
"""The user of a request that needs no login."""


def require_query_role(user: User) -> None:
    """Raise ProgrammingError (`forbidden`) unless the user's role may run queries."""
    if not user.role.can_query:
        raise make_forbidden_error(f"{user.name} has the role {user.role.value}, which may not run queries")


def require_room(request: Request, user: User) -> None:
    """Raise OperationalError (`busy`) if a connection beyond the limits is not an owner's."""
    late = getattr(request.state, "late", None)
    if late is None:
        return
    if not user.role.is_owner:
        raise OperationalError("the server has too many connections", code="busy", hint="try again later")
    late.is_owners = True


def require_auditor_role(user: User) -> None:
    """Raise ProgrammingError (`forbidden`) unless the user is an owner or an auditor."""
    if not user.role.can_view_all:
        raise make_forbidden_error(
            f"{user.name} has the role {user.role.value}; only owners and auditors may do this"
        )


def make_forbidden_error(message: str) -> ProgrammingError:
    """Return the error for a request that the user's role does not allow."""
    return ProgrammingError(message, code="forbidden")


def make_unauthenticated_error() -> Error:
    """Return the one error for all failures of authentication."""
    return OperationalError(
        "no valid token or password given",
        code="unauthenticated",
        hint="send Authorization: Bearer TOKEN; create a token with dpsql users token NAME",
    )
