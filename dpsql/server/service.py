"""What all sessions share: the policy, one ledger, engine connections by analyst, the catalogue twin, turns and threads.

Nothing here is of one protocol, so that an analyst has one set of limits however many doors there are.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from dpsql.engine.stops import record_lost
from dpsql.errors import Error, InternalError, OperationalError, PolicyError
from dpsql.ledger.key import ledger_key as read_key
from dpsql.ledger.open import MEMORY
from dpsql.policy import Policy, load
from dpsql.server.audit import Audit
from dpsql.server.catalogue import Catalogue
from dpsql.server.connections import Connections, connected
from dpsql.server.engine_process import Setup
from dpsql.server.logins import FailedLogins, PasswordChecks
from dpsql.server.processes import Processes
from dpsql.server.users import User, UserStore
from dpsql.shared_ledger import SharedLedger
from dpsql.sql.read.stated import stated
from dpsql.version import VERSION
from dpsql.workers import be_at_work


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is done at a time: `running` and `waiting` are statements of one analyst, `workers` those of all.

    `logins` are connections that have not logged in; one address may have half of them, the next one half of the rest.
    A statement that has run for `longest` seconds is stopped, which is a failure if it was charged; 0 means never.
    Statements are answered at whole multiples of `answer_grid` seconds after their turn began; 0 means at once.
    """

    workers: int = 8
    running: int = 4
    waiting: int = 64
    connections: int = 200
    logins: int = 64
    login_seconds: float = 15.0
    write_seconds: float = 30.0
    drain_seconds: float = 30.0
    catalogue_seconds: float = 3.0
    longest: float = 600.0
    answer_grid: float = 0.0


class Turns:
    """Who may run a statement now: a limited number of one analyst, and of all, in the order of asking.

    An analyst has at most `Limits.running` statements among those that wait for a worker, so nobody's crowd delays
    others by more than that.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all = asyncio.Semaphore(limits.workers)
        self._own = dict[str, asyncio.Semaphore]()
        self._asking = dict[str, int]()
        self._running = 0
        self._pauses = asyncio.Lock()
        self._open, self._idle = asyncio.Event(), asyncio.Event()
        self._open.set()
        self._idle.set()

    def counts(self) -> tuple[int, int]:
        """How many statements run or wait, and how many of them run."""
        return sum(self._asking.values()), self._running

    @asynccontextmanager
    async def turn(self, analyst: str) -> AsyncIterator[None]:
        """Waits for a turn. Raises OperationalError where too many of the analyst's statements wait already."""
        asking = self._asking.get(analyst, 0)
        if asking >= self._limits.running + self._limits.waiting:
            raise OperationalError(
                f"{asking} statements of {analyst} run or wait already; nothing was charged",
                code="too_many_statements",
                hint="wait for their answers",
            )
        self._asking[analyst] = asking + 1
        own = self._own.setdefault(analyst, asyncio.Semaphore(self._limits.running))
        try:
            async with own, self._all:
                while not self._open.is_set():  # also where it is paused again in between
                    await self._open.wait()
                self._running += 1
                self._idle.clear()
                try:
                    yield
                finally:
                    self._running -= 1
                    if not self._running:
                        self._idle.set()
        finally:
            self._asking[analyst] -= 1
            if not self._asking[analyst]:
                del self._asking[analyst], self._own[analyst]

    @asynccontextmanager
    async def paused(self, seconds: float) -> AsyncIterator[None]:
        """A time in which nothing runs, after what runs now has ended; who asks meanwhile waits.

        Raises OperationalError (`reload`) where something still runs after `seconds`; then all go on.
        """
        async with self._pauses:
            self._open.clear()
            try:
                try:
                    await asyncio.wait_for(self._idle.wait(), seconds)
                except TimeoutError:
                    raise OperationalError(
                        f"a statement still runs after {seconds:g} seconds; nothing has changed",
                        code="reload",
                        hint="try again later",
                    ) from None
                yield
            finally:
                self._open.set()


class Service:
    """One policy over one database with one ledger, and the users that may ask.

    `turns`, `failed_logins` and `password_checks` belong to one event loop. `workers` are the threads that statements run in.
    """

    def __init__(
        self,
        policy: Any,
        database: str | Path | None,
        *,
        users: UserStore,
        ledger: str | Path,
        ledger_key: bytes | str | Path | None = None,
        anchor: str | Path | None = None,
        epsilon: str | None = None,
        limits: Limits | None = None,
        audit: Audit | None = None,
        processes: int = 1,
    ) -> None:
        self.limits = limits or Limits()
        self._count = processes
        self.processes: Processes | None = None
        """Where questions are answered; in this process where there are none."""
        self.audit = audit or Audit()
        self.users, self.epsilon = users, epsilon
        self.ledger, self.ledger_key = str(ledger), read_key(ledger_key)
        self._source, self._database = policy, None if database is None else str(database)
        self._anchor, self._given_key = anchor, ledger_key
        self.turns, self.failed_logins = Turns(self.limits), FailedLogins()
        self.password_checks = PasswordChecks()
        self.workers = ThreadPoolExecutor(self.limits.workers, "dpsql query", be_at_work)
        self._catalogue: Catalogue | None = None
        self._making, self._noting = threading.Lock(), threading.Lock()
        self.reloads = 0
        """How often the policy or the data has changed since the start."""
        self._begin(load(policy))
        try:
            self.audit.note("start", dpsql=VERSION, **self.state())
            self.note_changes_of_users()
        except BaseException:
            self.close()
            raise

    def note_changes_of_users(self) -> None:
        """Appends to the audit log what was done to users since: by `dpsql users`, which has no such log.

        One that is noted as the process is killed may be noted twice, with the same number. Raises as `Audit.note`.
        """
        with self._noting:
            for each in self.users.changes():
                self.audit.note(
                    each.what,
                    user=each.user,
                    by=each.by,
                    change=each.number,
                    done=each.at,
                    **({"detail": each.detail} if each.detail else {}),
                )
                self.users.noted(each)

    def state(self) -> dict[str, Any]:
        """What the audit log says of what is served: policy, data, how many users of each role, where the ledger ended then."""
        return {
            "policy": self.policy.digest(),
            "data_version": self.policy.data_version,
            "users": Counter(user.role.value for user in self.users.list()),
            "ledger": f"{self._head.entries} {self._head.digest}",
        }

    def _begin(self, policy: Policy) -> None:
        """Opens the ledger and the first engine connection: the policy is held against the database, and the ledger against both.

        Nothing of the service has changed where that fails.
        """
        names = [user.name for user in self.users.list() if user.role.asks]
        if not names:
            raise OperationalError(
                "no user may ask: nobody could log in and query",
                code="no_users",
                hint="dpsql users add NAME --role analyst",
            )
        # Before they are opened: what changes meanwhile counts as changed.
        files = stamps(self._places(policy))
        ledger = SharedLedger(
            self.ledger, policy=policy, analysts=names, ledger_key=self._given_key, anchor=self._anchor
        )
        opened = partial(connected, self._data(policy), policy, ledger)
        connections = Connections(opened, self.limits.workers * 4)
        try:
            with connections.of(names[0]) as first:
                found, catalog = first.engine.policy, first.engine.catalog
                head = first.engine.ledger.head()
            processes = None if self._count == 1 else self._begun(policy, names)
        except BaseException:
            connections.close()
            ledger.close()
            raise
        self.policy, self._catalog, self._ledger, self._head = found, catalog, ledger, head
        self.processes = processes
        self.connections, self._files = connections, files

    def _begun(self, policy: Policy, names: Sequence[str]) -> Processes:
        """The processes that answer questions, each with the data and the ledger open."""
        if self.ledger == MEMORY:
            raise OperationalError(
                "a ledger in memory is of one process, and several are to answer",
                code="processes",
                hint="keep the ledger in a file, or leave out --processes",
            )
        workers = self.limits.workers
        return Processes(
            Setup(
                self._data(policy),
                policy,
                tuple(names),
                self.ledger,
                self._given_key,
                self._anchor,
                self._count,
                workers,
            ),
            self._record_lost,
        )

    def _record_lost(self, analyst: str, sql: str, since: datetime) -> None:
        """Records the failure of a question whose process has ended, where it was charged and its answer not stored."""
        with self.connections.of(analyst) as connection:
            record_lost(connection.engine.ledger, analyst, sql, since)

    def _places(self, policy: Policy) -> list[str]:
        """Where the data lies: the database, and the files that the policy names."""
        return [*([] if self._database is None else [self._database]), *self._sources(policy).values()]

    def _sources(self, policy: Policy) -> dict[str, str]:
        """Where the files of tables lie that the policy names, by table."""
        beside = Path(self._source).parent if isinstance(self._source, (str, Path)) else Path()
        return {name: str(place.absolute()) for name, place in policy.sources(beside).items()}

    def _data(self, policy: Policy) -> str | dict[str, str] | None:
        """What `connect` is to open: the database, or the files that the policy names, seen from its folder."""
        return (self._sources(policy) or None) if self._database is None else self._database

    async def reload(self, policy: Any = None) -> None:
        """Reads the policy again (or takes another one), and opens the data and the ledger again, for all users that there are now.

        Sessions stay, and statements wait meanwhile: those that run end under the former policy, all others run under the
        new one. Raises an error of dpsql's, and the former policy stays, where the new one is wrong, does not fit the database or
        the ledger, or where files have changed and `data_version` has not; also where a statement does not end in time.
        """
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._reloadable, policy)
        async with self.turns.paused(self.limits.drain_seconds):
            await loop.run_in_executor(None, self._reload, policy)

    def _reloadable(self, policy: Any) -> Policy:
        """The policy that is to come, which asks nothing that is known to be refused."""
        found = load(self._source if policy is None else policy)
        if self.ledger == MEMORY:
            raise OperationalError(
                "a ledger in memory ends with its connections, and its charges would be forgotten",
                code="reload",
            )
        if stamps(self._places(found)) != self._files and found.data_version == self.policy.data_version:
            raise PolicyError(
                f"the data has changed, and data_version is {found.data_version!r} as before: old answers would be given for it",
                code="data_version",
                hint="state another data_version in the policy",
            )
        return found

    def _reload(self, policy: Any) -> None:
        found, former = self._reloadable(policy), self.policy
        # The engine opens a file once in a process: all connections to the former one have to end first.
        if self.processes is not None:
            self.processes.close()
        self.connections.close()
        self._ledger.close()
        try:
            self._begin(found)
        except Error:
            self._begin_again(former)
            raise
        if policy is not None:
            self._source = policy
        self.reloads += 1
        with self._making:
            former_twin, self._catalogue = self._catalogue, None
        if former_twin is not None:
            former_twin.close()

    def _begin_again(self, former: Policy) -> None:
        """Goes on as before a failed reload. Where the files have changed, nobody is answered until a reload succeeds."""
        if stamps(self._places(former)) == self._files:
            with suppress(Error):
                self._begin(former)

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue twin, made once, for the door whose clients look around in it."""
        with self._making:
            if self._catalogue is None:
                self._catalogue = Catalogue(self.policy, self._catalog, self.limits.catalogue_seconds)
            return self._catalogue

    def loss(self, sql: str, dialect: str, given: Any) -> Any:
        """The ε that a query is asked for with: what its text says, else what is given, else the policy's; None without any."""
        said = stated(sql, dialect).epsilon if "epsilon" in sql.lower() else None
        return next(
            (each for each in (said, given, self.policy.default_epsilon) if each not in (None, "")), None
        )

    def find(self, name: str) -> tuple[User, Any] | None:
        """The user of a name with the verifier of the password, None where there is none."""
        return self.users.find(name)

    def close(self) -> None:
        """Waits for statements that still run, and closes the engine connections and the ledger."""
        self.workers.shutdown(wait=True)
        if self.processes is not None:
            self.processes.close()
        self.connections.close()
        if self._catalogue is not None:
            self._catalogue.close()
        self._ledger.close()
        with suppress(Error):  # all else has ended well
            self.note_changes_of_users()
            self.audit.note("stop")
        self.audit.close()


async def reload(service: Service, log: Callable[..., None], by: str) -> None:
    """Reloads a service, and notes in the log who wanted it and what came of it. Raises as `Service.reload`."""
    failed = ""
    await _note(service, "reload asked", by=by)
    try:
        await service.reload()
    except Error as error:
        log("reload refused", by=by, code=error.code, message=error.message)
        await _note(service, "reload refused", by=by, code=error.code)
        raise
    except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
        failed = type(error).__name__
    if failed:
        log("reload refused", by=by, code=InternalError.code, message=failed)
        await _note(service, "reload refused", by=by, code=InternalError.code)
        raise InternalError("the reload has failed", hint="the owner's log says by what")
    log("reload", by=by, policy=service.policy.digest(), data_version=service.policy.data_version)
    await _note(service, "reload", by=by, **service.state())


async def _note(service: Service, event: str, **facts: Any) -> None:
    """Appends an event to the audit log, while others go on."""
    await asyncio.get_running_loop().run_in_executor(None, partial(service.audit.note, event, **facts))


def stamps(places: Iterable[str]) -> tuple[tuple[object, ...], ...]:
    """What tells whether the files at paths, in folders or of patterns are others than they were; nothing of what is no file."""
    found = list[tuple[object, ...]]()
    for place in places:
        path = Path(place)
        root = Path(path.anchor)
        pattern = str(path.relative_to(root))
        files = [path] if path.is_file() else path.rglob("*") if path.is_dir() else root.glob(pattern)
        for file in sorted(files):
            facts = file.stat()
            found.append((str(file), facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns))
    return tuple(found)


def summary(service: Service) -> str:
    """A line that says what is served."""
    private = ", ".join(service.policy.private_tables())
    public = ", ".join(name for name, table in service.policy.tables.items() if table.public)
    return f"private: {private}" + (f"; public: {public}" if public else "")
