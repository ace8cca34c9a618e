"""The state that all sessions share: the policy, one ledger, engine connections by analyst, the catalog emulator, turns and threads.

Nothing here belongs to one protocol, so that an analyst has the same limits over both together.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from dpsql.api.opening import SharedLedger
from dpsql.engine.engine import record_lost_charges
from dpsql.errors import Error, InternalError, OperationalError, PolicyError
from dpsql.interfaces.server.connections import ConnectionPool, ProcessSetup, open_connection
from dpsql.interfaces.server.limits import FailedLogins, Lane, Limits, PasswordCheckLimiter, Turns, UserMemory
from dpsql.interfaces.server.metrics import Metrics
from dpsql.interfaces.server.oversight import ActiveClient, Activity, ServerAudit
from dpsql.interfaces.server.pg_catalog import PgCatalog
from dpsql.interfaces.server.processes import ProcessPool
from dpsql.interfaces.server.users import User, UserStore
from dpsql.ledger.digest import read_ledger_key
from dpsql.ledger.open import MEMORY
from dpsql.ledger.workers import mark_as_worker
from dpsql.policy import Policy, load, normalize_name, split_table_name
from dpsql.sql.parse.session_statement import parse_stated_options
from dpsql.version import VERSION


class Service:
    """One policy over one database with one ledger, and its users.

    `turns`, `activity`, `failed_logins` and `password_checks` belong to one event loop. Statements run in `threads`.
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
        audit: ServerAudit | None = None,
        processes: int = 1,
    ) -> None:
        self.limits = limits or Limits()
        self._process_count = processes
        self.processes: ProcessPool | None = None
        """Where questions are answered; in this process where there are none."""
        self.audit = audit or ServerAudit()
        self.users, self.epsilon = users, epsilon
        self.ledger, self.ledger_key = str(ledger), read_ledger_key(ledger_key)
        self._policy_source, self._database = policy, None if database is None else str(database)
        self._anchor, self._given_key = anchor, ledger_key
        self.turns, self.failed_logins = Turns(self.limits), FailedLogins()
        self.password_checks = PasswordCheckLimiter()
        self.activity, self.memory = Activity(), UserMemory(self.limits.held_bytes)
        self.metrics = Metrics()
        self.threads: Mapping[Lane, Executor] = {
            lane: ThreadPoolExecutor(count + self.limits.owner_workers, f"dpsql {lane.value}", mark_as_worker)
            for lane, count in ((Lane.query, self.limits.workers), (Lane.lookup, self.limits.lookup_workers))
        }
        self._pg_catalog: PgCatalog | None = None
        self._pg_catalog_lock, self._user_changes_lock = threading.Lock(), threading.Lock()
        self.reload_count = 0
        """How often the policy or the data has changed since the start."""
        self._open_policy(load(policy))
        try:
            self.audit.note_event("start", dpsql=VERSION, **self.describe_state())
            self.note_user_changes()
        except BaseException:
            self.close()
            raise

    def note_user_changes(self) -> None:
        """Append the changes of users to the audit log; `dpsql users`, which makes them, has no such log.

        A change may be recorded twice, with the same number, if the process is killed. Raises as `ServerAudit.note_event`.
        """
        with self._user_changes_lock:
            for each in self.users.list_changes():
                self.audit.note_event(
                    each.what,
                    user=each.user,
                    by=each.by,
                    change=each.number,
                    done=each.at,
                    **({"detail": each.detail} if each.detail else {}),
                )
                self.users.mark_noted(each)

    def describe_state(self) -> dict[str, Any]:
        """Return the state of the service for the audit log: policy, data, the number of users of each role, the ledger's head."""
        return {
            "policy": self.policy.compute_digest(),
            "data_version": self.policy.data_version,
            "users": Counter(user.role.value for user in self.users.list_users()),
            "ledger": f"{self._head.entries} {self._head.digest}",
        }

    def _open_policy(self, policy: Policy) -> None:
        """Open the ledger and the first engine connection: the policy is checked against the database, and the ledger against both.

        If that fails, the service is unchanged.
        """
        names = [user.name for user in self.users.list_users() if user.role.can_query]
        if not names:
            raise OperationalError(
                "the user store has no user who may run queries",
                code="no_users",
                hint="add one: dpsql users add NAME --role analyst",
            )
        # Before the files are opened, so that a change meanwhile counts as a change.
        files = list_file_stamps(self._list_data_places(policy))
        ledger = SharedLedger(
            self.ledger, policy=policy, analysts=names, ledger_key=self._given_key, anchor=self._anchor
        )
        opened = partial(open_connection, self._select_data(policy), policy, ledger)
        connections = ConnectionPool(opened, self.limits.workers * 4)
        try:
            with connections.acquire_connection(names[0]) as first:
                found, catalog = first.engine.policy, first.engine.catalog
                head = first.engine.ledger.read_head()
            processes = None if self._process_count == 1 else self._start_processes(policy, names)
        except BaseException:
            connections.close()
            ledger.close()
            raise
        self.policy, self._schema, self._ledger, self._head = found, catalog, ledger, head
        self.declared_tables = tuple({split_table_name(normalize_name(name))[1] for name in found.tables})
        self.processes = processes
        self.connections, self._file_stamps = connections, files

    def _start_processes(self, policy: Policy, names: Sequence[str]) -> ProcessPool:
        """Start the processes that answer queries, each with the data and the ledger open."""
        if self.ledger == MEMORY:
            raise OperationalError(
                "a ledger in memory cannot be shared by several processes",
                code="processes",
                hint="keep the ledger in a file, or omit --processes",
            )
        workers = self.limits.workers + self.limits.owner_workers
        return ProcessPool(
            ProcessSetup(
                self._select_data(policy),
                policy,
                tuple(names),
                self.ledger,
                self._given_key,
                self._anchor,
                self._process_count,
                workers,
            ),
            self._record_lost_query,
        )

    def _record_lost_query(self, analyst: str, sql: str, since: datetime) -> None:
        """Record the failure of a query whose process has ended, if it was charged and its answer was not stored."""
        with self.connections.acquire_connection(analyst) as connection:
            record_lost_charges(connection.engine.ledger, analyst, sql, since)

    def _list_data_places(self, policy: Policy) -> list[str]:
        """List the paths of the database and of the files that the policy names."""
        return [
            *([] if self._database is None else [self._database]),
            *self._resolve_sources(policy).values(),
        ]

    def _resolve_sources(self, policy: Policy) -> dict[str, str]:
        """Return the paths of the files that the policy names, by table."""
        beside = Path(self._policy_source).parent if isinstance(self._policy_source, (str, Path)) else Path()
        return {name: str(place.absolute()) for name, place in policy.resolve_source_paths(beside).items()}

    def _select_data(self, policy: Policy) -> str | dict[str, str] | None:
        """Return the data that `connect` opens: the database, or the files that the policy names, relative to its folder."""
        return (self._resolve_sources(policy) or None) if self._database is None else self._database

    async def reload(self, policy: Any = None) -> None:
        """Reload the policy (or take another one), the data and the ledger, for all present users.

        Sessions stay, except those of `disconnect_outdated_logins`. Running statements end under the former policy, or are
        cancelled after `Limits.drain_seconds`; new ones wait, and run under the new policy.

        Raises:
            Error: The new policy is invalid, does not fit the database or the ledger, files have changed while
                `data_version` has not, or a cancelled statement does not end. The former policy stays.
        """
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._load_new_policy, policy)
        async with self.turns.pause_turns(self.limits.drain_seconds, self.activity.stop_running_statements):
            await loop.run_in_executor(None, self._replace_policy, policy)
        await self.disconnect_outdated_logins()

    async def disconnect_outdated_logins(self) -> None:
        """End the sessions of users who were removed, or whose password or role changed, since they logged in."""
        members = self.activity.list_clients()
        loop = asyncio.get_running_loop()
        self.activity.disconnect_clients(
            await loop.run_in_executor(None, self._list_outdated_logins, members)
        )

    def _list_outdated_logins(self, members: Iterable[ActiveClient]) -> list[ActiveClient]:
        """Return the clients whose logins are no longer valid."""
        found = {name: self.find_user(name) for name in {each.user.name for each in members}}
        return [each for each in members if not _is_login_current(each, found[each.user.name])]

    def _load_new_policy(self, policy: Any) -> Policy:
        """Load the new policy. Raises if a reload with it is known to fail."""
        found = load(self._policy_source if policy is None else policy)
        if self.ledger == MEMORY:
            raise OperationalError(
                "a server needs a durable ledger; charges in a ledger in memory would be lost",
                code="reload",
            )
        if (
            list_file_stamps(self._list_data_places(found)) != self._file_stamps
            and found.data_version == self.policy.data_version
        ):
            raise PolicyError(
                f"the data has changed but data_version is still {found.data_version!r}, so stored answers of the former data would be reused",
                code="data_version",
                hint="change data_version in the policy",
            )
        return found

    def _replace_policy(self, policy: Any) -> None:
        found, former = self._load_new_policy(policy), self.policy
        # The engine opens a file once in a process: all connections to the former file have to be closed first.
        if self.processes is not None:
            self.processes.close()
        self.connections.close()
        self._ledger.close()
        try:
            self._open_policy(found)
        except Error:
            self._restore_policy(former)
            raise
        if policy is not None:
            self._policy_source = policy
        self.reload_count += 1
        with self._pg_catalog_lock:
            former_twin, self._pg_catalog = self._pg_catalog, None
        if former_twin is not None:
            former_twin.close()

    def _restore_policy(self, former: Policy) -> None:
        """Continue with the former policy after a failed reload. If the files have changed, no query is answered until a reload succeeds."""
        if list_file_stamps(self._list_data_places(former)) == self._file_stamps:
            with suppress(Error):
                self._open_policy(former)

    @property
    def pg_catalog(self) -> PgCatalog:
        """Return the catalog emulator, which is created once."""
        with self._pg_catalog_lock:
            if self._pg_catalog is None:
                self._pg_catalog = PgCatalog(
                    self.policy,
                    self._schema,
                    self.limits.pg_catalog_seconds,
                    self.limits.lookup_workers + self.limits.owner_workers,
                )
            return self._pg_catalog

    @property
    def default_loss(self) -> Fraction | None:
        """Return the loss of a query that states none, exactly, or None if the server has no such default."""
        return None if self.epsilon is None else Fraction(self.epsilon)

    def resolve_loss(self, sql: str, dialect: str, given: Any) -> Any:
        """Return the ε of a query: that of its text, else the given one, else the policy's, else None."""
        said = parse_stated_options(sql, dialect).epsilon if "epsilon" in sql.lower() else None
        stated = (each for each in (said, given, self.policy.default_epsilon) if each not in (None, ""))
        found = next(stated, None)
        return Fraction(found) if isinstance(found, str) else found  # a text may be a fraction, such as 1/3

    def find_user(self, name: str) -> tuple[User, Any] | None:
        """Return the user of a name with the password verifier, or None."""
        return self.users.find_user(name)

    def stop_client(self, member: ActiveClient, by: User, *, session: bool) -> None:
        """Record and end the statement of a client, or its session, in a worker thread. Raises as `ServerAudit.note_event`.

        A user who is not an owner cancels it like its client: after its charge a statement goes on.
        """
        what = "session ended" if session else "statement ended"
        self.audit.note_event(what, by=by.name, user=member.user.name, door=member.door, peer=member.peer)
        running, stop = member.statement, by.role.is_owner
        self.activity.call_in_loop(running.stop if stop else running.cancel)
        if session:
            self.activity.call_in_loop(member.disconnect)

    def close(self) -> None:
        """Wait for running statements, and close the engine connections and the ledger."""
        for each in self.threads.values():
            each.shutdown(wait=True)
        if self.processes is not None:
            self.processes.close()
        self.connections.close()
        if self._pg_catalog is not None:
            self._pg_catalog.close()
        self._ledger.close()
        with suppress(Error):  # everything else is closed
            self.note_user_changes()
            self.audit.note_event("stop")
        self.audit.close()


def _is_login_current(member: ActiveClient, found: tuple[User, Any] | None) -> bool:
    """Return whether a client's user still has the role, the creation time and the password of the login."""
    if found is None:
        return False
    user, verifier = found
    is_same = (user.role, user.created) == (member.user.role, member.user.created)
    return is_same and member.verifier in (None, verifier)


async def reload_service(service: Service, log: Callable[..., None], by: str) -> None:
    """Reload a service, and log who requested it and the outcome. Raises as `Service.reload`."""
    failed = ""
    await _note_event(service, "reload asked", by=by)
    try:
        await service.reload()
    except Error as error:
        log("reload refused", by=by, code=error.code, message=error.message)
        await _note_event(service, "reload refused", by=by, code=error.code)
        raise
    except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
        failed = type(error).__name__
    if failed:
        log("reload refused", by=by, code=InternalError.code, message=failed)
        await _note_event(service, "reload refused", by=by, code=InternalError.code)
        raise InternalError("the reload failed", hint="the owner's log has the reason")
    log("reload", by=by, policy=service.policy.compute_digest(), data_version=service.policy.data_version)
    await _note_event(service, "reload", by=by, **service.describe_state())


async def _note_event(service: Service, event: str, **facts: Any) -> None:
    """Append an event to the audit log without blocking the event loop."""
    await asyncio.get_running_loop().run_in_executor(None, partial(service.audit.note_event, event, **facts))


def list_file_stamps(places: Iterable[str]) -> tuple[tuple[object, ...], ...]:
    """Return stamps that change with the files at paths, in folders or of patterns; a path without a file has none."""
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


def describe_service(service: Service) -> str:
    """Return a line that describes the service."""
    private = ", ".join(service.policy.list_private_tables())
    public = ", ".join(name for name, table in service.policy.tables.items() if table.public)
    return f"private: {private}" + (f"; public: {public}" if public else "")
