"""Attacks over the PostgreSQL protocol: races for the last ε, repeated queries, other users' keys, slow and many connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import psycopg
import pytest

import dpsql
from dpsql.engine.engine import StopRequests
from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.interfaces.server.limits import Limits
from dpsql.interfaces.server.listener import PgServer
from dpsql.interfaces.server.sockets import get_network, is_local, load_tls_context
from dpsql.interfaces.server.users import UserStore
from dpsql.ledger.reader import LedgerReader

from .conftest import PASSWORD, POLICY, Serve, Served, prepared
from .test_messages import startup

PURE = POLICY | {"analysts": {"ana": {"epsilon": 1}, "bob": {"epsilon": 1}}, "budget": {"epsilon": 1.5}}
START = startup(struct.pack("!i", 196608) + b"user\0ana\0\0")


def charges(ledger: Path, table: str = "visits", account: str = "") -> list[Fraction]:
    """Return the charges in the ledger, read anew from its file."""
    with contextlib.closing(LedgerReader.open(str(ledger), None)) as history:
        history.verify(None)
        entries = history.list_last_entries(1_000, kind="charge")
    return [
        each.spend.loss_fraction
        for each in entries
        if each.table == table and each.account_analyst == account
    ]


def asking(served: Served, user: str, number: int, epsilon: str = "0.1") -> str | None:
    """Run a new query in its own connection; return the SQLSTATE of its error, or None for an answer."""
    with psycopg.connect(served.dsn(user), autocommit=True) as connection:
        connection.execute(f"SET dpsql.epsilon = {epsilon}")
        try:
            connection.execute("SELECT COUNT(*) FROM visits WHERE cost < %s", (number,)).fetchall()
        except psycopg.Error as error:
            return error.sqlstate
    return None


def test_twenty_connections_race_for_the_last_epsilon(tmp_path: Path, serve: Serve) -> None:
    """One user: the sum of all charges is the user's budget, and exactly ten of twenty are answered."""
    with serve(tmp_path, policy=PURE, limits=Limits(logins=50)) as served, ThreadPoolExecutor(20) as pool:
        told = list(pool.map(lambda number: asking(served, "ana", number), range(1, 21)))
    assert sorted(map(str, told)) == ["53400"] * 10 + ["None"] * 10
    assert sum(charges(served.ledger, account="ana")) == 1
    assert sum(charges(served.ledger)) == 1


def test_two_users_share_a_table_s_budget(tmp_path: Path, serve: Serve) -> None:
    """Each has ε 1, the table 1.5: together they spend 1.5, and each has an account of its own."""
    with serve(tmp_path, policy=PURE, limits=Limits(logins=50)) as served, ThreadPoolExecutor(20) as pool:
        asked = [("ana" if number % 2 else "bob", number) for number in range(1, 21)]
        told = list(pool.map(lambda one: asking(served, *one), asked))
    assert told.count(None) == 15
    assert sum(charges(served.ledger)) == Fraction(3, 2)
    for user in ("ana", "bob"):
        assert sum(charges(served.ledger, account=user)) <= 1


def test_a_client_that_left_after_the_charge_gets_the_answer_free(served: Served) -> None:
    """The answer was lost with the connection, but it is stored: the same query returns it at no charge."""
    question = "SELECT COUNT(*) AS n, SUM(cost) AS s FROM visits"
    raw = psycopg.connect(served.dsn(), autocommit=True)
    raw.execute("SET dpsql.epsilon = 0.5")
    raw.pgconn.send_query(question.encode())
    raw.pgconn.flush()
    deadline = time.monotonic() + 30
    while not charges(served.ledger) and time.monotonic() < deadline:
        time.sleep(0.005)
    with socket.socket(fileno=os.dup(raw.pgconn.socket)) as ours:
        ours.shutdown(socket.SHUT_RDWR)
    raw.close()
    while (
        not any(facts.get("answer") == "SELECT" for _, facts in served.logged) and time.monotonic() < deadline
    ):
        time.sleep(0.005)
    spent = charges(served.ledger)
    assert spent
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET dpsql.epsilon = 0.5")
        first = connection.execute(question).fetchall()
        assert connection.execute(question).fetchall() == first
    assert charges(served.ledger) == spent


def test_errors_are_the_same_on_neighboring_data(tmp_path: Path, serve: Serve) -> None:
    """All fields of each error are compared, over two databases of different values, in both protocols."""
    import clinic
    import duckdb

    questions = [
        "SELECT COUNT(*) FROM secrets",
        "SELECT COUNT(patient_id) FROM visits GROUP BY patient_id",
        "SELECT SUM(1 / (cost - 103)) FROM visits",
        "SELECT CAST(ward AS BIGINT) FROM visits",
        "SELECT * FROM visits",
        "SELECT COUNT(*) FROM visits WHERE ward = 'nrth' GROUP BY",
        "SELECT MAX(nothing) FROM visits",
    ]
    told = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        prepared(folder)[1].close()
        if name == "two":
            changed = duckdb.connect(folder / "clinic.duckdb")
            changed.execute("UPDATE visits SET cost = 7, ward = 'x', plan = 'Z', patient_id = 1")
            changed.close()
        with serve(folder) as served, psycopg.connect(served.dsn(), autocommit=True) as connection:
            connection.execute("SET dpsql.epsilon = 0.1")
            token = served.token()
            for question in questions:
                with pytest.raises(psycopg.Error) as refused:
                    connection.execute(question)
                diagnostic = refused.value.diag
                told.append(
                    [getattr(diagnostic, each) for each in dir(diagnostic) if not each.startswith("_")]
                )
                refusal = served.ask("/v1/query", {"sql": question, "epsilon": 0.1}, token=token)
                assert 400 <= refusal.status < 500
                told.append([refusal.status, refusal.body])
        assert charges(served.ledger) == []
    half = len(told) // 2
    assert [list(map(str, each)) for each in told[:half]] == [list(map(str, each)) for each in told[half:]]
    assert clinic.PATIENTS == 200


def until(found: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 30
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def opened(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=30)


def read_all(client: socket.socket) -> bytes:
    """Return the server's bytes up to the end of the connection."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def test_connections_beyond_the_limit_are_refused_with_an_error(tmp_path: Path, serve: Serve) -> None:
    with serve(tmp_path, limits=Limits(connections=2)) as served:
        held = [psycopg.connect(served.dsn(user)) for user in ("ana", "bob")]
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            psycopg.connect(served.dsn())
        held[0].close()
        until(lambda: len(served.listener.sessions) == 1)
        with psycopg.connect(served.dsn()) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
        held[1].close()


def test_a_login_that_is_not_sent_in_time_ends_the_connection(tmp_path: Path, serve: Serve) -> None:
    with serve(tmp_path, limits=Limits(login_seconds=0.5)) as served:
        silent, half, bad = opened(served), opened(served), opened(served)
        half.sendall(START[:10])
        bad.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert b"08P01" in read_all(bad)
        assert read_all(silent) == read_all(half) == b""
        for each in (silent, half, bad):
            each.close()


def test_failing_or_silent_logins_from_one_address_leave_room_for_others(
    tmp_path: Path, serve: Serve
) -> None:
    """An address has half of the logins, the next one half of the rest; a user from elsewhere still gets in."""
    with serve(tmp_path, limits=Limits(logins=8)) as served:
        crowd = [opened(served) for _ in range(20)]
        elsewhere = [from_address(served, "127.0.0.2") for _ in range(20)]
        until(lambda: len(served.listener.clients) == 6)
        time.sleep(0.3)
        held = [client.network for client in served.listener.clients]
        assert {name: held.count(name) for name in held} == {"127.0.0.1": 4, "127.0.0.2": 2}
        with from_address(served, "127.0.0.3") as third:
            third.sendall(START)
            assert third.recv(1) == b"R"
        for each in (*crowd, *elsewhere):
            each.close()


def test_connections_are_counted_by_ipv4_address_or_ipv6_network() -> None:
    assert get_network("192.0.2.1") == get_network("::ffff:192.0.2.1") == "192.0.2.1"
    assert get_network("2001:db8::1") == get_network("2001:db8::ffff%eth0") != get_network("2001:db8:0:1::1")
    assert get_network("") == ""


def from_address(served: Served, address: str, port: int = 0) -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", port or served.port), timeout=30, source_address=(address, 0)
    )


def test_a_client_that_does_not_read_is_dropped_and_delays_nobody(tmp_path: Path, serve: Serve) -> None:
    with serve(tmp_path, limits=Limits(write_seconds=0.5)) as served:
        slow = psycopg.connect(served.dsn(), autocommit=True)
        file = socket.socket(fileno=os.dup(slow.pgconn.socket))
        file.setblocking(True)
        file.settimeout(20)
        question = b"Q" + struct.pack("!i", 4 + 9) + b"SHOW ALL\0"
        with pytest.raises((ConnectionError, TimeoutError)):  # noqa: PT012  (one of many fails)
            for _ in range(200_000):
                file.sendall(question * 50)
        with psycopg.connect(served.dsn(), autocommit=True) as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
        file.close()
        slow.close()


def test_many_statements_of_one_analyst_are_refused_and_others_are_answered(
    tmp_path: Path, serve: Serve
) -> None:
    """With room for one statement at a time and one that waits, the rest of a crowd is refused, uncharged."""
    limits = Limits(workers=2, running_per_user=1, waiting_per_user=1, logins=50)
    with serve(tmp_path, limits=limits) as served, ThreadPoolExecutor(13) as pool:
        crowd = [pool.submit(asking, served, "ana", number) for number in range(1, 13)]
        other = pool.submit(asking, served, "bob", 100)
        told = [each.result() for each in crowd]
        assert other.result() is None
    assert set(told) <= {None, "53400"}
    assert len(charges(served.ledger, account="ana")) == told.count(None) >= 2


def test_failed_logins_are_slowed_and_logged_alike_for_all_names(tmp_path: Path, serve: Serve) -> None:
    with serve(tmp_path) as served:
        for user in ("ana", "nobody", "ana", "nobody"):
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(served.dsn(user, "wrong" + PASSWORD))
        refused = [
            (facts["user"], facts["delay"]) for event, facts in served.logged if event == "login refused"
        ]
    assert refused == [("ana", 0.5), ("nobody", 0.5), ("ana", 1.0), ("nobody", 1.0)]
    assert PASSWORD not in str(served.logged)


def test_a_long_utility_statement_is_refused(shared: Served) -> None:
    """It is parsed in the event loop, where a pattern over megabytes would delay all connections."""
    with psycopg.connect(shared.dsn(), autocommit=True) as connection:
        for text in ("SET application_name = x{}y", "SHOW {}TimeZone", "RESET{} ALL"):
            with pytest.raises(psycopg.Error) as refused:
                connection.execute(text.format(" " * 20_000))
            assert refused.value.sqlstate == "54000"
        connection.execute(f"SET application_name  TO{' ' * 5_000}'a b' {' ' * 4_000}")
        assert connection.execute("SHOW application_name").fetchall() == [("a b",)]


def test_the_log_holds_no_query_and_no_value(served: Served) -> None:
    assert asking(served, "ana", 87_654) is None
    assert "visits" not in str(served.logged)
    assert "87654" not in str(served.logged)  # the seconds that are logged have three digits
    assert [facts["answer"] for event, facts in served.logged if "answer" in facts] == ["SET", "SELECT"]


def test_a_cancel_request_without_the_key_cancels_nothing(served: Served) -> None:
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        process = connection.info.backend_pid
        called = threading.Event()
        served.loop.call_soon_threadsafe(
            lambda: setattr(served.listener.sessions[process][1], "cancel", called.set)
        )
        for key in (b"\0\0\0\0", b"\xff" * 4, b"\0" * 32):
            with opened(served) as other:
                other.sendall(startup(struct.pack("!ii", 80877102, process) + key))
                assert read_all(other) == b""
        assert not called.is_set()
        connection.cancel_safe()
        assert called.wait(10)


class Stuck:
    """A connection whose queries, which are not charged, end when they are cancelled or stopped, as an engine's do."""

    def __init__(self, inner: Any, begun: threading.Event) -> None:
        self._inner, self._begun, self._stopped = inner, begun, threading.Event()
        self.engine = self
        self.stops = StopRequests()

    def cancel(self) -> None:
        self._stopped.set()

    def stop(self) -> None:
        self._stopped.set()

    def query(self, *_: Any, **__: Any) -> Any:
        self._begun.set()
        if self._stopped.wait(30):
            raise OperationalError("the query was cancelled", code="cancelled")
        return None

    def close(self) -> None:
        self._inner.close()


@pytest.mark.parametrize("how", ["cancel", "leave", "timeout"])
def test_a_running_query_is_cancelled_and_delays_no_login(served: Served, how: str) -> None:
    """By a cancel request or after statement_timeout; meanwhile others log in and run queries. A lost connection cancels nothing."""
    begun = threading.Event()
    plain = served.service.connections._opener
    stuck = Stuck(plain("ana"), begun)
    served.service.connections._opener = lambda name: stuck if name == "ana" else plain(name)
    served.service.connections._idle.clear()
    connection = psycopg.connect(served.dsn(), autocommit=True)
    connection.execute("SET dpsql.epsilon = 0.1")
    if how == "timeout":
        connection.execute("SET statement_timeout = '700ms'")
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(connection.execute, "SELECT COUNT(*) FROM visits")
        assert begun.wait(20)
        assert asking(served, "bob", 5) is None
        if how == "leave":
            with socket.socket(fileno=os.dup(connection.pgconn.socket)) as ours:
                ours.shutdown(socket.SHUT_RDWR)
            assert not stuck._stopped.wait(1)
            stuck.stop()
        if how == "cancel":
            connection.cancel_safe()
        with pytest.raises(psycopg.Error) as cancelled:
            told.result(30)
    assert how == "leave" or cancelled.value.sqlstate == "57014"
    assert how == "leave" or "nothing was charged" in str(cancelled.value)
    connection.close()


def test_a_server_on_a_network_requires_tls(served: Served) -> None:
    async def start(**options: Any) -> None:
        await PgServer(served.service).start("0.0.0.0", 0, **options)

    with pytest.raises(ProgrammingError) as refused:
        asyncio.run(start())
    assert refused.value.code == "no_tls"
    assert is_local("localhost")
    assert is_local("127.0.0.1")
    assert is_local("::1")
    assert not is_local("0.0.0.0")
    assert not is_local("example.org")


def certificate(folder: Path) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no openssl here")
    pem, key = folder / "server.pem", folder / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", pem, "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return load_tls_context(pem, key)


def test_required_tls_cannot_be_skipped_or_mixed_with_plain_bytes(tmp_path: Path, serve: Serve) -> None:
    context = certificate(tmp_path)
    with serve(tmp_path, tls=context, encrypted=True) as served:
        trusted = {"sslmode": "verify-full", "sslrootcert": str(tmp_path / "server.pem")}
        with psycopg.connect(served.dsn(), autocommit=True, **trusted) as connection:
            assert connection.pgconn.ssl_in_use
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
        with pytest.raises(psycopg.OperationalError, match="TLS"):
            psycopg.connect(served.dsn(), sslmode="disable")
        with opened(served) as client:
            client.sendall(startup(struct.pack("!i", 80877103)) + START)
            assert b"unencrypted data after SSL request" in read_all(client)
        with opened(served) as client:
            client.sendall(startup(struct.pack("!i", 80877103)))
            assert client.recv(1) == b"S"
            client.sendall(START)
            assert b"ana" not in read_all(client)
    with pytest.raises(Error):
        load_tls_context(tmp_path / "nothing.pem", None)


@pytest.mark.parametrize(("moment", "options"), [(0.2, ()), (1.0, ()), (0.5, ("--processes", "2"))])
def test_sigkill_at_any_moment_keeps_all_charges(
    tmp_path: Path, moment: float, options: tuple[str, ...]
) -> None:
    """Each answer that was seen is in the ledger, whose chain is whole; after a restart it is answered again, free."""
    prepared(tmp_path)[1].close()
    (tmp_path / "clinic.yaml").write_text(json.dumps(POLICY, default=str), encoding="utf-8")
    first, port, http = started(tmp_path, *options)
    seen: dict[int, int] = {}
    with closing(UserStore.open(tmp_path / "clinic.users")) as store:
        token = store.add_token("ana", "", 1).to_text()

    def ask(share: int) -> None:
        if share % 2:
            with (
                contextlib.suppress(OperationalError),
                dpsql.connect(f"http://127.0.0.1:{http}", token=token, epsilon="0.01") as remote,
            ):
                for number in range(share, 1_000, 4):
                    ((seen[number],),) = remote.query(COUNTED, [number]).rows  # type: ignore[assignment]
            return
        with (
            contextlib.suppress(psycopg.Error),
            psycopg.connect(address(port), autocommit=True) as connection,
        ):
            connection.execute("SET dpsql.epsilon = 0.01")
            for number in range(share, 1_000, 4):
                seen[number] = count(connection, number)

    threads = [threading.Thread(target=ask, args=(share,)) for share in range(4)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while not seen and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(moment)
    ended(first, signal.SIGKILL)
    for thread in threads:
        thread.join(60)
    second, port, _ = started(tmp_path)
    # Engine processes outlive the killed server by their running calls, whose charges count too.
    kept = charges(tmp_path / "clinic.ledger")
    assert 0 < len(seen) <= len(kept) <= len(seen) + 4
    with psycopg.connect(address(port), autocommit=True) as connection:
        connection.execute("SET dpsql.epsilon = 0.01")
        assert {number: count(connection, number) for number in seen} == seen
    assert ended(second, signal.SIGTERM) == 0
    assert charges(tmp_path / "clinic.ledger") == kept


COUNTED = "SELECT COUNT(*) FROM visits WHERE cost < ?"


def count(connection: psycopg.Connection[Any], number: int) -> int:
    row = connection.execute(COUNTED.replace("?", "%s"), (number,)).fetchone()
    assert row is not None
    return int(row[0])


def ended(process: subprocess.Popen[str], how: signal.Signals) -> int:
    """Stop a server, and return its exit code."""
    process.send_signal(how)
    assert process.stdout is not None
    process.stdout.close()
    return process.wait(60)


def address(port: int) -> str:
    return f"host=127.0.0.1 port={port} user=ana dbname=clinic password='{PASSWORD}'"


def started(folder: Path, *options: str) -> tuple[subprocess.Popen[str], int, int]:
    """Start `dpsql serve` in its own process, and return it with its ports."""
    command = [
        sys.executable, "-m", "dpsql", "serve", "clinic.yaml", "--database", "clinic.duckdb", "--users", "clinic.users",
        "--host", "127.0.0.1", "--port", "0", "--http-port", "0", *options,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert process.stdout is not None
    ports = []
    for line in process.stdout:
        if ": listening on " in line:
            ports.append(int(line.rpartition(":")[2]))
        if len(ports) == 2:
            return process, ports[0], ports[1]
    pytest.fail("the server did not start")


def test_session_tables_are_refused_on_a_server(shared: Served) -> None:
    """Its connections answer one session after another, so CREATE is refused in both protocols, uncharged."""
    before = charges(shared.ledger)
    sql = "CREATE SYNTHETIC TABLE s AS SELECT plan FROM visits WITH (epsilon = 0.1)"
    with psycopg.connect(shared.dsn(), autocommit=True) as connection:
        for statement in (sql, f"EXPLAIN {sql}", "DROP TABLE s"):
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                connection.execute(statement)
            with pytest.raises(psycopg.errors.FeatureNotSupported):
                connection.execute(statement, prepare=True)
    told = shared.ask("/v1/query", {"sql": sql}, token=shared.token())
    assert told.code == "session_table"
    assert charges(shared.ledger) == before
