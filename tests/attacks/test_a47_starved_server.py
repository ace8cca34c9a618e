"""A47: two analysts take all workers, all connections and the catalogue of a server for as long as they like.

The owner could neither ask nor look, neither end their statements nor read another policy. Limits are a person's, and the
owner always gets in.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from interfaces.server.conftest import PASSWORD, POLICY, Served, prepared, serving
from interfaces.server.raw_client import (
    DESCRIBE_PORTAL,
    SYNC,
    RawClient,
    bind,
    execute,
    parse,
    rows_of,
    state_of,
)
from interfaces.server.test_attacks import Stuck

from dpsql.errors import Error
from dpsql.interfaces.server import statements
from dpsql.interfaces.server.limits import Lane, Limits
from dpsql.interfaces.server.oversight import ActiveClient
from dpsql.interfaces.server.statements import MOST_CHARACTERS
from dpsql.interfaces.server.users import Role
from dpsql.sql.parse import scanner

COUNT = "SELECT COUNT(*) FROM visits"


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert true()


def ask(served: Served, user: str, sql: str, **options: str) -> list[Any]:
    with psycopg.connect(served.dsn(user, **options), autocommit=True) as connection:
        connection.execute("SET dpsql.epsilon = 0.1")
        return connection.execute(sql).fetchall()


@contextmanager
def owned(folder: Path, **limits: Any) -> Iterator[Served]:
    """A server whose owner is olga."""
    prepared(folder)[1].add_user("olga", Role.owner, PASSWORD)
    with serving(folder, policy=POLICY | {"data_version": "1"}, limits=Limits(**limits)) as served:
        yield served


@contextmanager
def occupied(served: Served, statements: int) -> Iterator[list[Future[Any]]]:
    """Ana's statements, which end when they are interrupted, on so many workers."""
    plain, begun = served.service.connections._opener, [threading.Event() for _ in range(statements)]
    left = iter(begun)
    served.service.connections._opener = lambda name: (
        cast("Any", Stuck(plain(name), next(left))) if name == "ana" else plain(name)
    )
    served.service.connections._idle.clear()
    with ThreadPoolExecutor(statements) as pool:
        told = [
            pool.submit(ask, served, "ana", f"{COUNT} WHERE cost > {number}") for number in range(statements)
        ]
        try:
            assert all(each.wait(30) for each in begun)
            served.service.connections._opener = plain
            yield told
        finally:
            served.loop.call_soon_threadsafe(served.service.activity.stop_running_statements)


@pytest.mark.timeout(120)
def test_owner_can_query_while_all_workers_are_taken(tmp_path: Path) -> None:
    with owned(tmp_path, workers=2, running_per_user=2) as served, occupied(served, 2) as told:
        token = served.token("olga")
        assert ask(served, "olga", COUNT)
        assert ask(served, "olga", "SHOW dpsql.budget")
        assert ask(served, "olga", "SELECT relname FROM pg_class LIMIT 1")
        assert served.ask("/v1/query", {"sql": COUNT, "epsilon": "0.1"}, token=token).status == 200
        for path in ("/v1/budget?all=1", "/v1/entries", "/v1/history", "/v1/catalogue", "/v1/users"):
            assert served.ask(path, token=token).status == 200
        # Others look as well; only private rows are out of their reach.
        assert ask(served, "bob", "SHOW dpsql.budget")
        assert ask(served, "bob", "SELECT relname FROM pg_class LIMIT 1")
        assert not any(each.done() for each in told)
        running = ask(
            served,
            "olga",
            "SELECT pid, query FROM pg_stat_activity WHERE usename = 'ana' AND state = 'active' ORDER BY query",
        )
        assert [query for _, query in running] == [f"{COUNT} WHERE cost > {number}" for number in (0, 1)]
        first, second = (pid for pid, _ in running)
        for user in ("bob", "eve"):
            assert ask(served, user, f"SELECT pg_cancel_backend({first})") == [(False,)]
        assert ask(served, "bob", "SELECT pid FROM pg_stat_activity WHERE usename = 'ana'") == []
        assert not told[0].done()
        assert ask(served, "olga", f"SELECT pg_cancel_backend({first})") == [(True,)]
        with pytest.raises(psycopg.errors.QueryCanceled):
            told[0].result(30)
        assert not told[1].done()
        assert served.ask(f"/v1/statements/{second}", method="DELETE", token=token).json == {"ended": second}
        with pytest.raises(psycopg.errors.QueryCanceled):
            told[1].result(30)
        ended = [event.facts for event in served.audit if event.name == "statement ended"]
        assert [(facts["by"], facts["user"]) for facts in ended] == [("olga", "ana")] * 2


@pytest.mark.timeout(120)
def test_careless_server_keeps_no_worker_for_its_owner(tmp_path: Path) -> None:
    """The attack works without a reserved worker: the owner waits for as long as two analysts wish."""
    with (
        owned(tmp_path, workers=2, running_per_user=2, owner_workers=0) as served,
        occupied(served, 2),
        pytest.raises(psycopg.errors.QueryCanceled, match="before it began"),
    ):
        ask(served, "olga", COUNT, options="'-c statement_timeout=1s'")


class Recorded:
    """What runs nothing, and records how it was ended."""

    text, state, since = "", "active", datetime.now(UTC)

    def __init__(self) -> None:
        self.ends = list[str]()

    def cancel(self) -> None:
        self.ends.append("cancel")

    def stop(self) -> None:
        self.ends.append("stop")


@pytest.mark.timeout(120)
def test_only_an_owner_stops_a_charged_statement(tmp_path: Path) -> None:
    """Otherwise an analyst could learn of a row by a statement's time, or lock a table for all."""

    async def everything_before() -> None:
        pass

    with owned(tmp_path) as served, RawClient(served.port, "ana", PASSWORD):
        ana, olga = (served.service.users.find_user(name) for name in ("ana", "olga"))
        assert ana is not None
        assert olga is not None
        for (user, _), expected in ((ana, "cancel"), (olga, "stop")):
            for session in (False, True):
                running = Recorded()
                member = ActiveClient(
                    1, ana[0], "http", "", running, lambda ends=running.ends: ends.append("left"), str
                )
                served.service.stop_client(member, user, session=session)
                asyncio.run_coroutine_threadsafe(everything_before(), served.loop).result(30)
                assert running.ends == [expected, *(["left"] * session)]


@pytest.mark.timeout(120)
def test_reload_ends_running_statements(tmp_path: Path) -> None:
    """A reload was refused for as long as one statement ran."""

    async def reload(served: Served) -> str:
        try:
            await served.service.reload(POLICY | {"data_version": "1", "min_epsilon": "0.001"})
        except Error as error:
            return error.code
        return ""

    with owned(tmp_path, workers=2, drain_seconds=0.5) as served, occupied(served, 1) as told:
        assert asyncio.run_coroutine_threadsafe(reload(served), served.loop).result(60) == ""
        with pytest.raises(psycopg.errors.QueryCanceled):
            told[0].result(30)
        assert served.service.reload_count == 1
        assert ask(served, "olga", COUNT)


@pytest.mark.timeout(120)
def test_no_analyst_takes_all_connections(tmp_path: Path) -> None:
    """Ana gets as many as she leaves to others, bob as many as are left to others then, the owner gets in after both."""
    with owned(tmp_path, connections=8, owner_connections=2) as served, ExitStack() as held:
        for user, most in (("ana", 4), ("bob", 2)):
            for _ in range(most):
                held.enter_context(psycopg.connect(served.dsn(user)))
            with pytest.raises(psycopg.OperationalError, match="too many clients"):
                psycopg.connect(served.dsn(user))
        for user in ("eve", "carl"):
            if user == "carl":
                served.service.users.add_user("carl", Role.analyst, PASSWORD)
            held.enter_context(psycopg.connect(served.dsn(user)))
        for _ in range(2):
            held.enter_context(psycopg.connect(served.dsn("olga")))
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            psycopg.connect(served.dsn("olga"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("settings", [{}, {"dpsql.epsilon": "much"}], ids=["crowd", "setting"])
def test_refused_client_gets_one_error(tmp_path: Path, settings: dict[str, str]) -> None:
    """Its connection ends after one error; it was refused, and logged, until it closed."""
    with owned(tmp_path, connections=2) as served, ExitStack() as held:
        if not settings:
            held.enter_context(psycopg.connect(served.dsn("ana")))
        refused = held.enter_context(RawClient(served.port, "ana", PASSWORD, **settings))
        told = [kind for kind, _ in refused.hello]
        assert (told.count("E"), told[-1]) == (1, "")
        assert len(served.logged) < 10


@pytest.mark.timeout(120)
def test_silent_logins_from_the_owner_s_network_block_her_for_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They blocked her for as long as a login may take, again and again."""
    monkeypatch.setattr("dpsql.interfaces.server.listener.SILENT_SECONDS", 1_000.0)
    with owned(tmp_path, logins=8, login_seconds=100) as served, ExitStack() as held:
        for _ in range(20):
            held.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=30))
        until(lambda: len(served.listener.clients) == 4)
        with pytest.raises(psycopg.OperationalError, match="too many logins"):
            psycopg.connect(served.dsn("olga", sslmode="disable"))
        monkeypatch.setattr("dpsql.interfaces.server.listener.SILENT_SECONDS", 0.0)
        with psycopg.connect(served.dsn("olga")) as owner:
            assert owner.execute("SELECT 1").fetchall() == [(1,)]
        assert len(served.listener.clients) <= 4


@pytest.mark.timeout(120)
def test_owner_connects_by_http_when_all_connections_are_taken(tmp_path: Path) -> None:
    """She connects from the crowd's address, which fills the places beyond the limit, too."""
    with owned(tmp_path, connections=4, owner_connections=2) as served, ExitStack() as held:
        token, other = served.token("olga"), served.token("ana")
        for _ in range(10):
            held.enter_context(socket.create_connection(("127.0.0.1", served.http), timeout=30))
        until(lambda: len(served.door.extra_clients) == 2)
        assert served.ask("/v1/statements", token=other).code == "busy"
        assert served.ask("/v1/statements", token=token).status == 200


@pytest.mark.timeout(120)
def test_suspended_portals_are_bounded_per_person(tmp_path: Path) -> None:
    """The bound covers all connections of a person, and a transaction's end frees all portals."""
    crossed = ", ".join(f"pg_type t{number}" for number in range(4))
    rows = f"SELECT t0.typname, t1.typname FROM {crossed} LIMIT 5000"
    with owned(tmp_path, held_bytes=3_000_000) as served, ExitStack() as stack:
        suspended, refused = 0, 0
        sessions = [stack.enter_context(RawClient(served.port, "ana", PASSWORD)) for _ in range(3)]
        for session in sessions:
            session.query("BEGIN")
            for number in range(4):
                state = fetch_one(session, f"p{number}", rows)
                suspended, refused = suspended + (state is None), refused + (state == "53200")
                if state is not None:
                    break
        held = served.service.memory.get_held_bytes("ana")
        assert 1 <= suspended <= 4
        assert refused >= 2
        assert held <= 3_000_000
        with RawClient(served.port, "bob", PASSWORD) as other:
            other.query("BEGIN")
            assert fetch_one(other, "p", rows) is None
        for session in sessions:
            session.query("ROLLBACK")
        assert served.service.memory.get_held_bytes("ana") < held / 10


@pytest.mark.timeout(120)
def test_unfinished_messages_are_bounded_per_person(tmp_path: Path) -> None:
    """Each connection may send 4 MB before anything of them is read; a person's connections had as much each."""
    with owned(tmp_path, held_bytes=400_000) as served, ExitStack() as held:
        clients = [held.enter_context(RawClient(served.port, "ana", PASSWORD)) for _ in range(6)]
        for number, client in enumerate(clients):  # what comes all at once may end more than need be
            with suppress(ConnectionError):
                client.send(b"Q" + struct.pack("!i", 3_000_000) + b"x" * 150_000)
            kept = min(number + 1, 2)
            until(lambda kept=kept: served.service.memory.get_held_bytes("ana") >= kept * 150_000)  # type: ignore[misc]
            until(lambda left=6 - number - 1 + kept: len(served.listener.sessions) == left)  # type: ignore[misc]
        assert served.service.memory.get_held_bytes("ana") <= 400_000
        assert ("refused", "too much unread") in {
            (each, facts.get("reason")) for each, facts in served.logged
        }
        for client in clients:
            client.__exit__()
        until(lambda: not served.service.memory.get_held_bytes("ana"))
        with RawClient(served.port, "ana", PASSWORD) as client:  # what is read is not held any more
            for _ in range(5):
                assert state_of(client.query("SELECT " + "x" * 99_000))
            assert not served.service.memory.get_held_bytes("ana")


def fetch_one(client: RawClient, portal: str, sql: str) -> str | None:
    """Binds a portal and fetches one row of it: the SQLSTATE of an error, None where the rest waits."""
    told = client.ask(parse(sql), bind(portal), execute(portal, 1), SYNC)
    assert state_of(told) or [kind for kind, _ in told][-2:] == ["s", "Z"]
    return state_of(told)


@pytest.mark.timeout(120)
def test_long_texts_are_not_read_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A million letters took a second of everybody's; the event loop reads short texts alone, and few of them at once."""
    read, pieces = list[tuple[bool, int]](), scanner.iterate_pieces

    def counted(text: str) -> Iterator[scanner.Piece]:
        read.append((threading.get_ident() == loop[0], len(text)))
        return pieces(text)

    with owned(tmp_path) as served, RawClient(served.port, "ana", PASSWORD) as client:
        loop = [asyncio.run_coroutine_threadsafe(_thread(), served.loop).result(30)]
        for module in (scanner, statements):
            monkeypatch.setattr(module, "iterate_pieces", counted)
        for text in (
            ";" * (MOST_CHARACTERS - 1),
            "SHOW " + "a " * 40_000,
            "a " * 49_000,
            "--\n" * 30_000,
            "/*" * 49_000,
            "SELECT " + "$1 " * 30_000,
            "BEGIN;" * 16_000,
            "'a' " * 24_000,
        ):
            client.query(text)
            client.ask(parse(text), bind(), DESCRIBE_PORTAL, execute(), SYNC)
        assert state_of(client.query("SELECT 1" + " " * MOST_CHARACTERS)) == "54000"
        assert rows_of(client.query("SELECT 1")) == [["1"]]
    assert {in_loop for in_loop, _ in read} == {True, False}
    assert max(length for in_loop, length in read if in_loop) <= 10_000


async def _thread() -> int:
    return threading.get_ident()


SLOW = (
    f"SELECT count(*) FROM {', '.join(f'pg_type t{number}' for number in range(8))}"
    " WHERE t0.typname || t1.typname || t2.typname || t7.typname = 'x'"
)
"""A catalog query that takes as long as one may."""


def order_of_answers(served: Served, slow: Sequence[str]) -> list[tuple[str, str | None]]:
    """Who is answered when, with the SQLSTATE of an error: those with slow queries, and bob, who begins after them."""
    order = list[tuple[str, str | None]]()

    def ask_slowly(user: str) -> None:
        state = None
        try:
            ask(served, user, SLOW)
        except psycopg.Error as error:
            state = error.sqlstate
        order.append((user, state))

    looking = served.service.turns._queues[Lane.lookup].pending
    with (
        ThreadPoolExecutor(len(slow)) as pool,
        psycopg.connect(served.dsn("bob"), autocommit=True) as bob,
    ):
        asked = [pool.submit(ask_slowly, user) for user in slow]
        until(lambda: all(looking[user] for user in slow))
        assert bob.execute("SELECT relname FROM pg_class LIMIT 1").fetchall()
        order.append(("bob", None))
        for each in asked:
            each.result(60)
    return order


@pytest.mark.timeout(120)
def test_slow_catalogue_queries_delay_only_their_analyst(tmp_path: Path) -> None:
    """Four of ana's run one after the other, and bob's is answered before most of them."""
    with owned(tmp_path, pg_catalog_seconds=3) as served:
        order = order_of_answers(served, ["ana"] * 4)
    assert sorted(order) == [("ana", "57014")] * 4 + [("bob", None)]
    assert ("bob", None) in order[:3]
