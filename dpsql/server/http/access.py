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
from typing import NoReturn, TypeVar

from dpsql.errors import Error, OperationalError
from dpsql.server.http.statuses import unauthenticated
from dpsql.server.http.web_sessions import PREFIX, WebSessions
from dpsql.server.protocol.scram import MOST_CHARACTERS as MOST_PASSWORD
from dpsql.server.protocol.scram import Verifier
from dpsql.server.service import Service
from dpsql.server.sockets import Log, network
from dpsql.server.tokens import Secret
from dpsql.server.users import MOST_CHARACTERS as MOST_NAME
from dpsql.server.users import User

_T = TypeVar("_T")
_WAITING = 16
"""Passwords that wait to be checked: each takes the processor for some hundredths of a second."""


class Access:
    """Finds the user of a request. Failures are slowed and logged as at the other door, by the name or token's id."""

    def __init__(self, service: Service, log: Log) -> None:
        self._service, self._log = service, log
        self._secret = service.users.secret()
        # Look-ups wait for nobody's query, and those of tokens for no password.
        self._tokens = ThreadPoolExecutor(1, "dpsql token")
        self._passwords = ThreadPoolExecutor(1, "dpsql password")
        self._waiting = 0
        self.sessions = WebSessions()
        self.failures = 0

    async def user(self, authorization: list[str], peer: str) -> User:
        """The user of the Authorization headers of a request. Raises OperationalError (`unauthenticated`)."""
        scheme, _, given = authorization[0].partition(" ") if len(authorization) == 1 else ("", "", "")
        match scheme.lower():
            case "bearer":
                secret = given.strip()
                of = self._of_session if secret.startswith(PREFIX) else self._of_token
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
        facts = {"user": user.name, "role": user.role.value, "door": "http", "peer": peer}
        await self._in(
            self._tokens, lambda: self._service.audit.note("login", method="password", **facts) and None
        )
        self._log("login", **facts)
        return user, self.sessions.begin(user.name, verifier)

    def end(self, authorization: list[str]) -> None:
        """Ends the session of the Authorization header, if it is one."""
        self.sessions.end(authorization[0].partition(" ")[2].strip())

    async def _of_session(self, secret: str, peer: str) -> User:
        begun = self.sessions.find(secret)
        if begun is None:
            await self._refused("session", peer)
        name, verifier = begun
        found = await self._in(self._tokens, lambda: self._service.find(name))
        if found is None or found[1] != verifier:  # removed, or the password was changed
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
