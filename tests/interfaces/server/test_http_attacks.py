"""Attacks over HTTP: other users' tokens and answers, races, lost connections, and malformed requests."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

import dpsql
from dpsql.errors import Error, ProgrammingError
from dpsql.interfaces.server.http.bodies import (
    CodeBody,
    CombineBody,
    LoginBody,
    QueryBody,
    QuoteBody,
    parse_body,
)
from dpsql.interfaces.server.http.calls import MOST_ANSWERS, MOST_CONFIDENCES
from dpsql.interfaces.server.http.listener import HttpServer
from dpsql.interfaces.server.http.messages import MOST_BYTES, get_status, parse_json
from dpsql.interfaces.server.limits import Limits, PasswordCheckLimiter
from dpsql.interfaces.server.protocol.scram import Verifier

from .conftest import PASSWORD, Serve, Served, Told
from .test_attacks import PURE, Stuck, asking, certificate, charges, from_address, read_all

COUNT = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture(scope="module")
def token(shared: Served) -> str:
    """A token of ana's."""
    return shared.token()


@pytest.fixture
def unslowed(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed logins are answered at once."""
    monkeypatch.setattr(shared.service.failed_logins, "note_failure", lambda _: 0.0)


def raw(served: Served, data: bytes) -> bytes:
    """Send bytes, and return the server's bytes up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", served.http), timeout=30) as client:
        client.sendall(data)
        return read_all(client)


def request(token: str, body: bytes, *headers: str, path: str = "/v1/query") -> bytes:
    """Return the bytes of a request."""
    lines = [
        f"POST {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", "Content-Type: application/json",
        f"Content-Length: {len(body)}", *headers, "", "",
    ]  # fmt: skip
    return "\r\n".join(lines).encode() + body


@pytest.mark.usefixtures("unslowed")
def test_each_request_checks_its_token_again(shared: Served) -> None:
    """Revoked and expired tokens, and those of a former password, are refused."""
    store = shared.service.users
    revoked = store.add_token("bob", "", 1)
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", shared.http)) as connection:
        told = []
        for _ in range(2):
            connection.request("GET", "/v1/budget", headers={"Authorization": f"Bearer {revoked.to_text()}"})
            answer = connection.getresponse()
            told.append((answer.status, b"visits" in answer.read()))
            if len(told) == 1:
                store.revoke_token(revoked.id)
    assert told == [(200, True), (401, False)]
    old = store.add_token("bob", "", 1, now=datetime.now(UTC) - timedelta(days=2))
    assert shared.ask("/v1/budget", token=old.to_text()).code == "unauthenticated"
    lost = store.add_token("bob", "", 1)
    store.change_password("bob", PASSWORD + "2")
    assert shared.ask("/v1/budget", token=lost.to_text()).status == 401
    store.change_password("bob", PASSWORD)


@pytest.mark.usefixtures("unslowed")
def test_all_invalid_credentials_get_the_same_answer(shared: Served, token: str) -> None:
    """The body does not say what was wrong; two Authorization headers are invalid."""
    other = token[:-1] + ("0" if token[-1] != "0" else "1")
    told = [
        shared.ask("/v1/budget", headers=headers)
        for headers in (
            {},
            {"Authorization": f"Bearer {other}"},
            {"Authorization": token},
            {"Authorization": f"Token {token}"},
            {"Authorization": "Bearer"},
            {"Authorization": f"Basic {token}"},
            {"Authorization": "Basic ////"},
            {"Authorization": "Negotiate x"},
            {"Cookie": f"token={token}"},
            {"X-Api-Key": token},
        )
    ]
    told.append(shared.ask(f"/v1/budget?token={token}&access_token={token}"))
    assert {each.status for each in told} == {401}
    assert len({each.body for each in told}) == 1
    twice = f"GET /v1/budget HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {other}\r\nAuthorization: Bearer {token}\r\n\r\n"
    assert raw(shared, twice.encode()).startswith(b"HTTP/1.1 401")


def test_failed_tokens_are_slowed_by_their_id(
    shared: Served, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure of a token's id is answered later than the last; the right token is not slowed, and resets the delay."""
    waited: list[float] = []

    async def noted(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("dpsql.interfaces.server.http.access.asyncio.sleep", noted)
    other = token[:-1] + ("0" if token[-1] != "0" else "1")
    for _ in range(3):
        assert shared.ask("/v1/budget", token=other).status == 401
    assert [seconds for seconds in waited if seconds >= 0.5] == [0.5, 1.0, 2.0]
    assert shared.ask("/v1/budget", token=token).status == 200
    waited.clear()
    assert shared.ask("/v1/budget", token=other).status == 401
    assert [seconds for seconds in waited if seconds >= 0.5] == [0.5]
    refused = [
        facts for event, facts in shared.logged if event == "login refused" and facts.get("door") == "http"
    ]
    assert refused
    assert token not in str(shared.logged)
    assert token.rpartition("_")[2] not in str(shared.logged)


def test_password_checks_of_one_network_are_limited(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty of forty passwords are checked; then a correct one is refused, too, until time has passed. Tokens are not affected."""
    checked = list[str]()
    proves = Verifier.matches_password
    monkeypatch.setattr(
        Verifier, "matches_password", lambda self, text: bool(checked.append(text) or proves(self, text))
    )
    monkeypatch.setattr(served.service.failed_logins, "note_failure", lambda _: 0.0)
    now = [0.0]
    served.service.password_checks = PasswordCheckLimiter(clock=lambda: now[0])

    def told(name: str, password: str) -> Told:
        proof = base64.b64encode(f"{name}:{password}".encode()).decode()
        return served.ask("/v1/budget", headers={"Authorization": f"Basic {proof}"})

    assert [told("ana", PASSWORD).status for _ in range(3)] == [200] * 3  # a right one does not count
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: told(f"user {number}", "x").status, range(40)))
    assert (answers.count(401), answers.count(503), len(checked)) == (20, 20, 23)
    assert told("ana", PASSWORD).code == "busy"
    assert len(checked) == 23
    assert served.ask("/v1/budget", token=served.token()).status == 200
    now[0] += 15.0
    assert told("ana", PASSWORD).status == 200


def test_all_networks_together_have_a_limit_of_checks() -> None:
    """Forgetting the oldest networks does not raise the limit."""
    now = [0.0]
    checks = PasswordCheckLimiter(clock=lambda: now[0])
    assert sum(checks.allow_check(f"192.0.{number}.1") for number in range(200)) == 60
    now[0] += 7.0
    assert sum(checks.allow_check(f"198.51.{number % 250}.{number // 250}") for number in range(20_000)) == 7


def test_both_protocols_race_for_the_last_epsilon(tmp_path: Path, serve: Serve) -> None:
    """One user by twenty connections: exactly ten are answered, and all charges are the user's budget."""
    with serve(tmp_path, policy=PURE, limits=Limits(logins=50)) as served, ThreadPoolExecutor(20) as pool:
        token = served.token()

        def ask(number: int) -> bool:
            if number % 2:
                return asking(served, "ana", number) is None
            body = {"sql": f"{COUNT} WHERE cost < ?", "parameters": [number], "epsilon": 0.1}
            told = served.ask("/v1/query", body, token=token)
            assert told.status == 200 or (told.status, told.json["error"]["charged"]) == (402, False)
            return told.status == 200

        answered = list(pool.map(ask, range(1, 21)))
    assert answered.count(True) == 10
    assert sum(charges(served.ledger, account="ana")) == sum(charges(served.ledger)) == 1


def test_a_client_that_left_after_the_charge_gets_the_answer_free(served: Served) -> None:
    """The answer is stored although no client waits for it; the other protocol returns the same answer."""
    token, body = served.token(), {"sql": f"{COUNT}", "epsilon": 0.5}
    with socket.create_connection(("127.0.0.1", served.http), timeout=30) as client:
        client.sendall(request(token, json.dumps(body).encode()))
        until(lambda: charges(served.ledger))
    until(lambda: any(facts.get("status") == 200 for _, facts in served.logged))
    spent = charges(served.ledger)
    first = served.ask("/v1/query", body, token=token).json
    assert first["receipt"]["entries"] == []
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET dpsql.epsilon = 0.5")
        assert [list(row) for row in connection.execute(COUNT).fetchall()] == first["rows"]
    assert charges(served.ledger) == spent == [Fraction(1, 2)]


def until(found: Any) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 30
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("how", ["leave", "timeout", "stop"])
def test_a_running_query_is_cancelled_by_its_time_limit_only(tmp_path: Path, serve: Serve, how: str) -> None:
    """A lost connection cancels nothing. Others are answered meanwhile; a stopping server waits for its limit, then stops statements."""
    with serve(tmp_path, limits=Limits(drain_seconds=0.5)) as served:
        begun = threading.Event()
        plain = served.service.connections._opener
        stuck = Stuck(plain("ana"), begun)
        served.service.connections._opener = lambda name: stuck if name == "ana" else plain(name)
        served.service.connections._idle.clear()
        body: dict[str, Any] = {"sql": COUNT, "epsilon": 0.1}
        body |= {"seconds": 0.7} if how == "timeout" else {}
        with socket.create_connection(("127.0.0.1", served.http), timeout=60) as client:
            client.sendall(request(served.token(), json.dumps(body).encode(), "Connection: close"))
            assert begun.wait(20)
            other = served.ask("/v1/query", {"sql": COUNT, "epsilon": 0.1}, token=served.token("bob"))
            assert other.status == 200
            if how == "timeout":
                told = read_all(client)
                assert told.startswith(b"HTTP/1.1 504")
                assert json.loads(told.partition(b"\r\n\r\n")[2])["error"]["charged"] is False
            if how == "leave":
                client.shutdown(socket.SHUT_RDWR)
                assert not stuck._stopped.wait(1)
                stuck.stop()
    assert stuck._stopped.is_set()


def test_statements_of_one_analyst_are_limited_over_both_protocols(tmp_path: Path, serve: Serve) -> None:
    """With room for one statement and one that waits, the rest is refused, uncharged; another analyst is answered."""
    with (
        serve(tmp_path, limits=Limits(workers=2, running_per_user=1, waiting_per_user=1)) as served,
        ThreadPoolExecutor(11) as pool,
    ):
        token, bob = served.token(), served.token("bob")

        def ask(number: int) -> int:
            body = {"sql": f"{COUNT} WHERE cost < ?", "parameters": [number], "epsilon": 0.1}
            return served.ask("/v1/query", body, token=bob if number == 99 else token).status

        told = list(pool.map(ask, [*range(10), 99]))
    assert told.pop() == 200
    assert set(told) <= {200, 429}
    assert len(charges(served.ledger, account="ana")) == told.count(200) >= 2


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64,
        b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"a" * 40_000,
        b"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/query HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
    ],
)
def test_bytes_that_are_not_http_end_the_connection(shared: Served, data: bytes) -> None:
    """The error is one of HTTP, without a traceback, and the server goes on."""
    told = raw(shared, data)
    assert told == b"" or told.startswith(b"HTTP/1.1 4")
    assert b"Traceback" not in told
    assert shared.ask("/health").status == 200


def test_large_slow_and_incomplete_bodies_are_refused(tmp_path: Path, serve: Serve) -> None:
    with serve(tmp_path, limits=Limits(login_seconds=0.6)) as served:
        token = served.token()
        stated = f"POST /v1/query HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        large = raw(served, f"{stated}Content-Length: {MOST_BYTES + 1}\r\n\r\n".encode())
        assert large.startswith(b"HTTP/1.1 413")
        slow = raw(served, f'{stated}Content-Length: 100\r\n\r\n{{"sql":'.encode())
        assert slow.startswith(b"HTTP/1.1 408")
        begun = time.monotonic()
        assert raw(served, b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: ") == b""
        assert raw(served, b"") == b""
        with socket.create_connection(("127.0.0.1", served.http), timeout=30) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            told = b""
            while not told.endswith(b"}"):
                told += client.recv(65_536)
            assert told.startswith(b"HTTP/1.1 200")
            client.sendall(b"GET /health HTTP/1.1\r\n")  # and no more
            assert read_all(client) == b""
        assert time.monotonic() - begun < 25
        parts = (b"10000\r\n" + b"x" * 0x10000 + b"\r\n") * (MOST_BYTES // 0x10000 + 2)
        with socket.create_connection(("127.0.0.1", served.http), timeout=30) as client:
            client.sendall(f"{stated}Transfer-Encoding: chunked\r\n\r\n".encode())
            with contextlib.suppress(ConnectionError):
                client.sendall(parts)
            told = read_all(client)
        assert told == b"" or told.startswith(b"HTTP/1.1 413")
        assert served.ask("/health").status == 200
    assert charges(served.ledger) == []


def test_one_address_leaves_room_for_others(tmp_path: Path, serve: Serve) -> None:
    """An address has half of the connections, the next one half of the rest, whether they send requests or not."""
    with serve(tmp_path, limits=Limits(connections=8)) as served:
        crowd = [
            from_address(served, address, served.http) for address in ["127.0.0.1"] * 10 + ["127.0.0.2"] * 10
        ]
        until(lambda: len(served.door.clients) == 6)
        time.sleep(0.2)
        held = [client.network for client in served.door.clients]
        assert {name: held.count(name) for name in held} == {"127.0.0.1": 4, "127.0.0.2": 2}
        with from_address(served, "127.0.0.3", served.http) as third:
            third.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            assert third.recv(100).startswith(b"HTTP/1.1 200")
        assert b" 503 " in read_all(crowd[9])
        for each in crowd:
            each.close()
        until(lambda: not served.door.clients)


def test_a_client_that_does_not_read_is_dropped(tmp_path: Path, serve: Serve) -> None:
    with serve(tmp_path, limits=Limits(write_seconds=0.5)) as served:
        one = b"GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
        slow = socket.create_connection(("127.0.0.1", served.http), timeout=20)
        with slow, pytest.raises(ConnectionError):  # noqa: PT012  (one of many fails)
            for _ in range(20_000):
                slow.sendall(one * 50)
        until(lambda: not served.door.clients)
        assert served.ask("/health").status == 200


def test_odd_paths_are_refused_and_headers_carry_no_text_of_a_client(shared: Served, token: str) -> None:
    for path in (
        "/v1/../../etc/passwd",
        "/v1/receipts/..%2f..%2fetc%2fpasswd",
        "/v1/receipts/%2e%2e/budget",
        "/v1/receipts/1%00",
        "/v1/receipts/1;x",
        "/v1/answers/..%2f/intervals",
        "//v1/budget",
        "/v1/budget/",
        "/v1/query%0d%0aX-Injected:%20yes",
        "/v1/answers/x%0d%0aX-Injected:%20yes/intervals?confidence=0.5%0d%0aX-Injected:%20yes",
        "/docs",
        "/static/../pyproject.toml",
    ):
        told = shared.ask(path, token=token)
        assert told.status in (400, 404, 405)
        assert "location" not in told.headers
        assert "X-Injected" not in told.headers
        assert b"root:" not in told.body


def test_pages_of_other_sites_cannot_send_queries(shared: Served, token: str) -> None:
    """There is no cookie, no CORS header and no challenge that a browser answers by itself; bodies of forms are refused."""
    cross = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    told = [
        shared.ask("/v1/query", method="OPTIONS", headers=cross),
        shared.ask("/v1/budget", token=token, headers=cross),
        shared.ask("/health", headers=cross),
        shared.ask("/v1/query", b"{}", headers={**cross, "Content-Type": "text/plain"}, token=token),
        shared.ask(
            "/v1/query",
            b'{"sql":"SELECT COUNT(*) FROM visits","epsilon":1,"x":"=',
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            token=token,
        ),
    ]
    assert [each.status for each in told] == [405, 200, 200, 415, 415]
    for each in told:
        names = {name.lower() for name in each.headers}
        assert not names & {"set-cookie", "server"}
        assert not any(name.startswith("access-control") for name in names)
    challenge = shared.ask("/v1/budget", headers={"Authorization": "Basic x"}).headers["www-authenticate"]
    assert challenge.startswith("Bearer")


def test_the_log_of_requests_holds_no_query_and_no_value(shared: Served, token: str) -> None:
    before = len(shared.logged)
    body = {"sql": f"{COUNT} WHERE ward = 'nobody_s_ward' AND cost < 4321", "epsilon": 0.01}
    assert shared.ask("/v1/query", body, token=token).status == 200
    assert shared.ask("/v1/history?limit=7&nobody_s_ward=1", token=token).status == 200
    said = str(shared.logged[before:])
    assert "'/v1/query'" in said
    for word in ("nobody_s_ward", "4321", "visits", token):
        assert word not in said


def test_kept_answers_and_confidences_are_limited(shared: Served, token: str) -> None:
    """The latest answers of each user are kept, each for a few confidences."""
    numbers = []
    for number in range(MOST_ANSWERS + 1):
        body = {"sql": f"SELECT beds + {number} AS b FROM wards", "epsilon": 1}
        numbers.append(shared.ask("/v1/query", body, token=token).json["answer"])
    assert shared.ask(f"/v1/answers/{numbers[0]}/intervals", token=token).status == 404
    path = f"/v1/answers/{numbers[-1]}/intervals?confidence=0.9"
    told = [shared.ask(f"{path}{number:02}", token=token).status for number in range(MOST_CONFIDENCES + 1)]
    assert told == [200] * MOST_CONFIDENCES + [400]


def test_an_unforeseen_failure_has_no_words(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after the charge, the error has no words of the exception, and says whether it was charged."""
    token = served.token()

    def failing(*_: Any, **__: Any) -> Any:
        raise RuntimeError("Bob Miller has cancer")

    told = []
    for name in (
        "dpsql.interfaces.server.http.handlers.parse_stated_options",
        "dpsql.engine.release.noise.draw_noise",
        "dpsql.interfaces.server.http.handlers.format_charges",
    ):
        with monkeypatch.context() as patched:
            patched.setattr(name, failing)
            body = {"sql": f"{COUNT} WHERE days = {len(told)}", "default_epsilon": 0.1}
            told.append(served.ask("/v1/query", body, token=token))
    assert [each.status for each in told] == [500] * 3
    assert [each.json["error"]["charged"] for each in told] == [None, True, True]
    assert b"Miller" not in b"".join(each.body for each in told)
    assert "Miller" not in str(served.logged)
    assert len(charges(served.ledger)) == 2
    again = served.ask("/v1/query", {"sql": f"{COUNT} WHERE days = 2", "epsilon": 0.1}, token=token).json
    assert again["receipt"]["entries"] == []


def test_http_on_a_network_requires_tls(served: Served) -> None:
    async def start() -> None:
        await HttpServer(served.service).start("0.0.0.0", 0)

    with pytest.raises(ProgrammingError) as refused:
        asyncio.run(start())
    assert refused.value.code == "no_tls"


def test_a_server_with_a_certificate_requires_tls(tmp_path: Path, serve: Serve) -> None:
    """Plain requests are not read, clients refuse an unknown certificate, and a missing handshake ends the connection."""
    context = certificate(tmp_path)
    with serve(tmp_path, tls=context, limits=Limits(login_seconds=1)) as served:
        token = served.token()
        url = f"https://localhost:{served.http}"
        with dpsql.connect(url, token=token, tls_ca=tmp_path / "server.pem") as con:
            assert con.query("SELECT beds FROM wards ORDER BY 1", epsilon=1).rows == ((10,), (20,))
            with (
                dpsql.connect(url, token=token) as untrusting,
                pytest.raises(dpsql.OperationalError) as refused,
            ):
                untrusting.budget()
            assert "certificate" in refused.value.message
        assert b"HTTP" not in raw(served, request(token, b"{}"))
        assert raw(served, b"") == b""
        until(lambda: not served.door.clients)


def bodies() -> st.SearchStrategy[Any]:
    """Return JSON that resembles a request."""
    names = st.sampled_from(
        ["sql", "queries", "parameters", "epsilon", "delta", "replay", "seconds", "confidences", "x"]
    )
    leaves = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8),
        st.sampled_from(["SELECT 1", "1/3", "1/0", "5%", "80/1%", "nan", "0x1"]),
    )  # fmt: skip
    typed = st.fixed_dictionaries({"type": st.sampled_from(["DATE", "BLOB", "UUID", "x"]), "value": leaves})
    inner = st.recursive(
        leaves | typed, lambda each: st.lists(each, max_size=3) | st.dictionaries(names, each, max_size=3)
    )
    return st.dictionaries(names, inner, max_size=5) | inner


@settings(max_examples=examples(160), deadline=None)
@given(st.one_of(st.binary(max_size=40), bodies().map(lambda data: json.dumps(data).encode())))
def test_any_body_is_a_request_or_a_client_error(body: bytes) -> None:
    for model in (QueryBody, CombineBody, QuoteBody, LoginBody, CodeBody):
        found = None
        try:
            parse_body(model, parse_json(body))
        except Error as error:
            found = error
        assert found is None or 400 <= get_status(found) < 500
