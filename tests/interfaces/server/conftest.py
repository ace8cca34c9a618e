"""A server over the clinic, in a thread of this process, and its users."""

from __future__ import annotations

import asyncio
import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import clinic
import pytest

from dpsql.interfaces.server.http.listener import HttpServer
from dpsql.interfaces.server.limits import Limits
from dpsql.interfaces.server.listener import PgServer
from dpsql.interfaces.server.oversight import ServerAudit
from dpsql.interfaces.server.pg_catalog import PgCatalog
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.users import Role, UserStore
from dpsql.ledger.audit_log import AuditEvent, AuditLog, iterate_events
from dpsql.policy import load

PASSWORD = "correct horse battery staple"
POLICY = clinic.POLICY | {
    "database": "clinic",
    "budget": {"epsilon": 30},
    "analysts": {"ana": {"epsilon": 20}, "bob": {"epsilon": 20}},
}


_TWINS = dict[tuple[str, float], PgCatalog]()
"""Catalogue twins, which hold no data, by policy and time limit: to make one takes most of a second."""


@dataclass(frozen=True)
class Told:
    """A response of the HTTP API."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        return str(self.json["error"]["code"])


@dataclass
class Served:
    """A server that runs: where it listens, what it logs, and the files behind it."""

    port: int
    http: int
    folder: Path
    listener: PgServer
    door: HttpServer
    service: Service
    logged: list[tuple[str, dict[str, Any]]]
    loop: asyncio.AbstractEventLoop = field(repr=False)

    def dsn(self, user: str = "ana", password: str = PASSWORD, **options: str) -> str:
        """How libpq's clients reach it."""
        words = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": user,
            "dbname": "clinic",
            "password": f"'{password}'",
        }
        return " ".join(f"{name}={value}" for name, value in {**words, **options}.items())

    def token(self, user: str = "ana") -> str:
        """A new token of a user."""
        return self.service.users.add_token(user, "", 1).to_text()

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        method: str | None = None,
    ) -> Told:
        """A request of the HTTP API in a connection of its own; a body is JSON unless it is bytes."""
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent |= {} if data is None else {"Content-Type": "application/json"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.http, timeout=60)) as connection:
            connection.request(
                method or ("GET" if data is None else "POST"), path, data, {**sent, **(headers or {})}
            )
            answer = connection.getresponse()
            return Told(answer.status, dict(answer.getheaders()), answer.read())

    @property
    def audit(self) -> list[AuditEvent]:
        """The events of the audit log."""
        return list(iterate_events(self.folder / "clinic.audit"))

    @property
    def ledger(self) -> Path:
        """The ledger's file."""
        return self.folder / "clinic.ledger"

    def spent(self, user: str = "ana") -> Any:
        """What an analyst has been charged of the private table, in the ledger's unit."""
        with self.service.connections.acquire_connection(user) as connection:
            return connection.budget()[f"visits for {user}"].spent.loss_fraction


def prepared(folder: Path) -> tuple[Path, UserStore]:
    """The clinic's file and a store with its users."""
    file = folder / "clinic.duckdb"
    made = clinic.database()
    made.execute(f"ATTACH '{file}' AS file; COPY FROM DATABASE memory TO file; DETACH file")
    made.close()
    store = UserStore.open(folder / "clinic.users", create=True)
    for name, role in (("ana", Role.analyst), ("bob", Role.analyst), ("eve", Role.auditor)):
        store.add_user(name, role, PASSWORD)
    for each in store.list_changes():  # as if an earlier server had noted them
        store.mark_noted(each)
    return file, store


@contextmanager
def serving(
    folder: Path,
    *,
    policy: dict[str, Any] | None = None,
    limits: Limits | None = None,
    tls: ssl.SSLContext | None = None,
    encrypted: bool = False,
    processes: int = 1,
    provider: Any = None,
    assistants: Callable[[Service, Any], Any] | None = None,
) -> Iterator[Served]:
    """A server until the end; `assistants` makes the path of assistants."""
    file = folder / "clinic.duckdb"
    store = UserStore.open(folder / "clinic.users") if file.exists() else prepared(folder)[1]
    service = Service(
        load(policy or POLICY),
        file,
        users=store,
        ledger=folder / "clinic.ledger",
        limits=limits or Limits(),
        audit=ServerAudit(AuditLog.open(folder / "clinic.audit")),
        processes=processes,
    )
    key = (service.policy.compute_digest(), service.limits.pg_catalog_seconds)
    service._pg_catalog = _TWINS.get(key)
    shared = _TWINS[key] = service.pg_catalog
    logged: list[tuple[str, dict[str, Any]]] = []
    started: Future[Served] = Future()

    async def run() -> None:
        def log(event: str, **facts: Any) -> None:
            logged.append((event, facts))

        listener = PgServer(service, tls=tls, requires_tls=encrypted, log=log)
        path = None if assistants is None else assistants(service, log)
        door = HttpServer(service, tls=tls, log=log, provider=provider, more_routes=path and path.make_routes)
        try:
            (port,) = await listener.start("127.0.0.1", 0)
            (http_port,) = await door.start("127.0.0.1", 0)
            if path is not None:
                await path.start()
        except BaseException as error:
            started.set_exception(error)
            raise
        ended = asyncio.Event()
        found = Served(port, http_port, folder, listener, door, service, logged, asyncio.get_running_loop())
        found.end = ended.set  # type: ignore[attr-defined]
        found.assistants = path  # type: ignore[attr-defined]
        started.set_result(found)
        await ended.wait()
        await asyncio.gather(listener.stop(), door.stop(), *([] if path is None else [path.stop()]))

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    served = started.result(30)
    try:
        yield served
    finally:
        served.loop.call_soon_threadsafe(served.end)  # type: ignore[attr-defined]
        thread.join(60)
        assert not thread.is_alive()
        if service._pg_catalog is shared:
            service._pg_catalog = None
        else:  # a reload has closed it
            _TWINS.pop(key, None)
        service.close()
        store.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server over the clinic, for one test."""
    with serving(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server over the clinic, for tests of one module that spend little."""
    with serving(tmp_path_factory.mktemp("server")) as found:
        yield found


Serve = Callable[..., AbstractContextManager[Served]]


@pytest.fixture
def serve() -> Serve:
    """What serves a folder with other limits or another policy."""
    return serving
