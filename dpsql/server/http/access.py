"""Who asks: the user of a token, of a session, or of a name with its password.

There are no cookies: each request proves who asks, and a browser sends nothing of its own accord. So no page of another
site can ask in a user's name (CSRF), and no CORS header lets one read an answer.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NoReturn, TypeVar

from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.server.http.statuses import unauthenticated
from dpsql.server.http.web_sessions import PREFIX, WebSessions
from dpsql.server.logins import PasswordChecks
from dpsql.server.protocol.scram import MOST_CHARACTERS as MOST_PASSWORD
from dpsql.server.protocol.scram import Verifier
from dpsql.server.service import Service
from dpsql.server.sockets import Log, network
from dpsql.server.tokens import Secret
from dpsql.server.users import MOST_CHARACTERS as MOST_NAME
from dpsql.server.users import User

if TYPE_CHECKING:
    from dpsql.server.http.oidc import Provider

_T = TypeVar("_T")
_WAITING = 16
"""Passwords that wait to be checked: each takes the processor for some hundredths of a second."""


class Access:
    """Finds the user of a request. Failures are slowed and logged as at the other door, by the name or token's id."""

    def __init__(self, service: Service, log: Log, provider: Provider | None = None) -> None:
        self._service, self._log, self.provider = service, log, provider
        self._secret = service.users.secret()
        # Look-ups wait for nobody's query, and those of tokens for no password.
        self._tokens = ThreadPoolExecutor(1, "dpsql token")
        self._passwords = ThreadPoolExecutor(1, "dpsql password")
        self._issuer = ThreadPoolExecutor(4, "dpsql issuer")
        self._begins = PasswordChecks()
        self._waiting = 0
        self.sessions = WebSessions()
        self.failures = 0

    async def user(self, authorization: list[str], peer: str) -> User:
        """The user of the Authorization headers of a request. Raises OperationalError (`unauthenticated`)."""
        scheme, _, given = authorization[0].partition(" ") if len(authorization) == 1 else ("", "", "")
        match scheme.lower():
            case "bearer":
                secret = given.strip()
                if secret.startswith(PREFIX):
                    return await self._of_session(secret, peer)
                of = self._of_access_token if secret.count(".") == 2 else self._of_token
                return await of(secret, peer)
            case "basic":
                return (await self._of_password(given.strip(), peer))[0]
            case _:
                await self._refused("", peer)

    async def begin(self, authorization: list[str], peer: str) -> tuple[User, str]:
        """A session for the name and password of the Authorization header. Raises OperationalError (`unauthenticated`)."""
        scheme, _, given = authorization[0].partition(" ") if len(authorization) == 1 else ("", "", "")
        if scheme.lower() != "basic":
            await self._refused("", peer)
        user, verifier = await self._of_password(given.strip(), peer)
        return user, await self._begun(user, verifier, "password", peer)

    async def _begun(self, user: User, verifier: Verifier, method: str, peer: str) -> str:
        facts = {"user": user.name, "role": user.role.value, "door": "http", "peer": peer}
        await self._in(
            self._tokens, lambda: self._service.audit.note("login", method=method, **facts) and None
        )
        self._log("login", **facts)
        return self.sessions.begin(user.name, (verifier, user.subject))

    async def address(self, binder: str, peer: str) -> str:
        """Where a browser logs in at the issuer, which comes back with a code for `begin_by_code`.

        Raises OperationalError, `busy` where too many begin.
        """
        provider = self._require_provider()
        if not self._begins.take(network(peer)):
            raise OperationalError("too many logins were begun of late", code="busy", hint="try again later")
        return await self._in(self._issuer, lambda: provider.begin(binder))

    async def begin_by_code(self, state: str, code: str, secret: str, peer: str) -> tuple[User, str]:
        """A session for who logged in at the issuer. Raises OperationalError (`unauthenticated`)."""
        provider = self._require_provider()
        subject = await self._in(self._issuer, lambda: provider.subject(state, code, secret))
        found = None if subject is None else await self._of_subject(subject)
        if found is None:
            await self._refused("issuer", peer)
        self._service.failed_logins.forgive("issuer")
        return found[0], await self._begun(*found, "oidc", peer)

    async def _of_access_token(self, text: str, peer: str) -> User:
        provider = self.provider
        subject = None
        if provider is not None:
            issuer = provider
            subject = await self._in(self._issuer, lambda: issuer.subject_of(text))
        found = None if subject is None else await self._of_subject(subject)
        if found is None:
            await self._refused("issuer", peer)
        self._service.failed_logins.forgive("issuer")
        return found[0]

    async def _of_subject(self, subject: str) -> tuple[User, Verifier] | None:
        return await self._in(self._tokens, lambda: self._service.users.of_subject(subject))

    def _require_provider(self) -> Provider:
        if self.provider is None:
            raise ProgrammingError("this server has no issuer of logins", code="not_found")
        return self.provider

    def end(self, authorization: list[str]) -> None:
        """Ends the session of the Authorization header, if it is one."""
        self.sessions.end(authorization[0].partition(" ")[2].strip())

    async def _of_session(self, secret: str, peer: str) -> User:
        begun = self.sessions.find(secret)
        if begun is None:
            await self._refused("session", peer)
        name, proof = begun
        found = await self._in(self._tokens, lambda: self._service.find(name))
        if (
            found is None or (found[1], found[0].subject) != proof
        ):  # removed, or what proves the user was changed
            self.sessions.end(secret)
            await self._refused("session", peer)
        self._service.failed_logins.forgive("session")
        return found[0]

    async def _of_token(self, text: str, peer: str) -> User:
        secret = Secret.read(text)
        if secret is None:
            await self._refused("token", peer)
        found = await self._in(self._tokens, lambda: self._service.users.of_token(text))
        if found is None:
            await self._refused(f"token {secret.id}", peer)
        self._service.failed_logins.forgive(f"token {secret.id}")
        return found

    async def _of_password(self, text: str, peer: str) -> tuple[User, Verifier]:
        try:
            name, _, password = base64.b64decode(text, validate=True).decode("utf-8").partition(":")
        except (binascii.Error, UnicodeDecodeError):
            await self._refused("", peer)
        if not 0 < len(name) <= MOST_NAME or len(password) > MOST_PASSWORD:
            await self._refused("", peer)
        origin, checks = network(peer), self._service.password_checks
        if self._waiting >= _WAITING or not checks.take(origin):
            self.failures += 1
            raise OperationalError(
                "too many passwords were to be checked of late",
                code="busy",
                hint="use a token, or try again later",
            )
        self._waiting += 1
        try:
            found = await self._in(self._passwords, lambda: self._checked(name, password))
        finally:
            self._waiting -= 1
        if found is None:
            await self._refused(name, peer)
        checks.give_back(origin)
        self._service.failed_logins.forgive(name)
        return found

    def _checked(self, name: str, password: str) -> tuple[User, Verifier] | None:
        found = self._service.find(name)
        verifier = Verifier.mock(name, self._secret) if found is None else found[1]
        return found if verifier.proves(password) else None

    async def _refused(self, who: str, peer: str) -> NoReturn:
        self.failures += 1
        delay = self._service.failed_logins.delay(who)
        self._log("login refused", user=who, peer=peer, delay=delay, door="http")
        await self._in(self._passwords, lambda: self._note_refused(who, peer))
        await asyncio.sleep(delay)
        raise unauthenticated()

    def _note_refused(self, who: str, peer: str) -> None:
        is_token = who.startswith("token ")
        known = is_token or self._service.find(who) is not None
        try:
            self._service.audit.login_refused(who if known else None, "http", peer)
        except Error as error:
            self._log("audit failed", code=error.code, message=error.message)

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    def close(self) -> None:
        """Waits for look-ups that are under way."""
        self._tokens.shutdown(wait=True)
        self._passwords.shutdown(wait=True)
        self._issuer.shutdown(wait=True)
