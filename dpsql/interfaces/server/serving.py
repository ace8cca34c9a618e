"""Around the servers of `dpsql serve`: the check before the start, start and stop with the process, and the watch of users."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from dpsql.errors import Error, OperationalError
from dpsql.interfaces.server.oversight import get_audit_anchor
from dpsql.interfaces.server.service import Service, describe_service
from dpsql.interfaces.server.sockets import Log, load_tls_context, require_encryption
from dpsql.interfaces.server.users import UserStore
from dpsql.ledger.anchor import AnchorFile
from dpsql.ledger.audit_log import make_unavailable_error, verify_log
from dpsql.ledger.digest import read_ledger_key
from dpsql.ledger.open import MEMORY, is_url
from dpsql.ledger.protocol import START
from dpsql.policy import load

# `dpsql serve --check`: check everything that a server needs, without listening and without creating a ledger.


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, with the error if the server would not start."""

    name: str
    found: str
    error: Error | None = None


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of a server; `ports` are named by protocol."""

    policy: Path
    database: Path | None
    users: str
    ledger: str
    ledger_key: Path | None
    anchor: Path | None
    audit: Path
    host: str
    ports: tuple[tuple[str, int], ...]
    certificate: Path | None
    key: Path | None
    in_the_clear: bool


def iterate_findings(plan: ServerOptions) -> Iterator[Finding]:
    """Yield the results of all checks, in order; a failed check does not stop the others."""
    yield _run_check("policy", lambda: _check_policy(plan))
    yield _run_check("users", lambda: _check_users(plan))
    yield _run_check("database and ledger", lambda: _check_service(plan))
    yield _run_check("audit log", lambda: _check_audit_log(plan))
    yield _run_check("encryption", lambda: _check_encryption(plan))
    for name, port in plan.ports:
        yield _run_check(f"{name} port", partial(_check_port, plan.host, port))


def _run_check(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, check())
    except Error as error:
        return Finding(name, "", error)


def _check_policy(plan: ServerOptions) -> str:
    private = load(plan.policy).list_private_tables()
    return f"{plan.policy}: private tables {', '.join(private)}"


def _check_users(plan: ServerOptions) -> str:
    store = UserStore.open(plan.users)
    try:
        users = store.list_users()
    finally:
        store.close()
    return ", ".join(f"{user.name} ({user.role.value})" for user in users) or "none"


def _check_service(plan: ServerOptions) -> str:
    """Check the policy against the database, and the ledger against both, without creating a ledger."""
    known = is_url(plan.ledger) or Path(plan.ledger).is_file()
    if not known and plan.anchor is not None and plan.anchor.exists():
        raise OperationalError(
            f"the ledger {plan.ledger} of the anchor {plan.anchor} does not exist",
            code="ledger_missing",
            hint="restore the ledger from its backup",
        )
    store = UserStore.open(plan.users)
    try:
        service = Service(
            plan.policy,
            plan.database,
            users=store,
            ledger=plan.ledger if known else MEMORY,
            ledger_key=plan.ledger_key,
            anchor=plan.anchor if known else None,
        )
        try:
            return f"{describe_service(service)}; {plan.ledger}" + ", which will be created" * (not known)
        finally:
            service.close()
    finally:
        store.close()


def _check_audit_log(plan: ServerOptions) -> str:
    """Verify the audit log from the first line to the last, without creating one."""
    anchor = get_audit_anchor(plan.anchor)
    expected = (None if anchor is None else AnchorFile(anchor).read_head()) or START
    if not plan.audit.exists() and expected == START:
        return f"{plan.audit}, which will be created"
    found = verify_log(plan.audit, read_ledger_key(plan.ledger_key), expected)
    if not os.access(plan.audit, os.W_OK):
        raise make_unavailable_error(plan.audit)
    return f"{plan.audit}: the chain of {found.head.entries:,} events is intact"


def _check_encryption(plan: ServerOptions) -> str:
    require_encryption(plan.host, tls=plan.certificate is not None, in_the_clear=plan.in_the_clear)
    if plan.certificate is None:
        return f"none, on {plan.host}"
    context = load_tls_context(plan.certificate, plan.key)
    ends = _find_certificate_expiry(plan.certificate)
    if ends is not None and ends <= datetime.now(UTC):
        raise OperationalError(
            f"the certificate {plan.certificate} expired on {ends:%Y-%m-%d}", code="certificate"
        )
    until = "" if ends is None else f", valid until {ends:%Y-%m-%d}"
    return f"TLS from {context.minimum_version.name} on{until}"


def _find_certificate_expiry(certificate: Path) -> datetime | None:
    """Return when a certificate expires, or None if this Python cannot tell."""
    decode = getattr(getattr(ssl, "_ssl", None), "_test_decode_cert", None)
    if decode is None:
        return None
    found = decode(str(certificate)).get("notAfter")
    return None if found is None else datetime.fromtimestamp(ssl.cert_time_to_seconds(found), UTC)


def _check_port(host: str, port: int) -> str:
    failed: OSError | None = None
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            with socket.socket(family, kind, protocol) as found:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                found.bind(address)
    except OSError as error:
        failed = error
    if failed is not None:
        raise OperationalError(f"cannot listen on {host}:{port}: {failed.strerror}", code="no_port")
    return f"{host}:{port} is free"


# The servers of one process: started together, and stopped together when the process gets a signal.


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The start and stop of a server: `start` listens and returns the ports, `stop` ends all connections."""

    start: Callable[[], Awaitable[list[int]]]
    stop: Callable[[], Awaitable[None]]


async def serve_until_signal(
    servers: Sequence[Lifecycle],
    ready: Callable[[list[list[int]]], None],
    reload: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until the process gets SIGTERM or SIGINT; `ready` gets the ports of each server, `reload` is called on SIGHUP."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        # On Windows Ctrl-C raises KeyboardInterrupt instead.
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(name, ended.set)
    tasks = set[asyncio.Task[None]]()
    if reload is not None and hasattr(signal, "SIGHUP"):
        wanted = reload

        def start_reload() -> None:
            task = asyncio.ensure_future(_await_work(wanted()))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        loop.add_signal_handler(signal.SIGHUP, start_reload)
    try:
        ready([await door.start() for door in servers])
        await ended.wait()
    finally:
        await asyncio.gather(*tasks, *(door.stop() for door in servers))


async def _await_work(work: Awaitable[None]) -> None:
    await work


# Watch changes of users while a server runs: record them in the audit log, and end their sessions.


POLL_SECONDS = 5.0
"""Seconds between two polls of the store."""


class UserChangeWatcher:
    """A task from `start` to `stop` that records changes of users and ends outdated logins.

    Claim: a session ends within `every` seconds after its user was removed, or the user's password or role changed, or with its
    running statement.
    Why: each poll compares all sessions with the store, whether or not a change was recorded.
    """

    def __init__(self, service: Service, log: Log, every: float = POLL_SECONDS) -> None:
        self._service, self._log, self._every = service, log, every
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> list[int]:
        """Start watching; there are no ports."""
        self._task = asyncio.ensure_future(self._check_repeatedly())
        return []

    async def stop(self) -> None:
        """Stop watching; remaining changes are recorded when the service closes."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _check_repeatedly(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._every)
            await loop.run_in_executor(None, self._note_changes)
            with suppress(sa.exc.SQLAlchemyError):  # the next poll tries again
                await self._service.disconnect_outdated_logins()

    def _note_changes(self) -> None:
        """Record changes of users; a failure is logged and tried again."""
        try:
            self._service.note_user_changes()
        except Error as error:
            self._log("audit failed", code=error.code, message=error.message)
        except sa.exc.SQLAlchemyError as error:
            self._log("audit failed", error=type(error).__name__)
