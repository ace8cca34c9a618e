"""The audit log of a server: logins, queries and changes are durable before they take effect, and no secret is recorded."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from dpsql.errors import Error
from dpsql.interfaces.cli import main
from dpsql.interfaces.server.oversight import Caller, ServerAudit
from dpsql.interfaces.server.service import reload_service
from dpsql.interfaces.server.serving import UserChangeWatcher
from dpsql.interfaces.server.users import Role
from dpsql.ledger.audit_log import iterate_events, require_ledger_entries, verify_log
from dpsql.ledger.reader import LedgerReader

from .conftest import PASSWORD, POLICY, Serve, Served, prepared

COUNT = "SELECT COUNT(*) AS n FROM visits WHERE days >= 0"
HTTP = {"sql": COUNT, "epsilon": 1}


def names(served: Served) -> list[str]:
    return [each.name for each in served.audit]


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def log_in(served: Served, user: str = "ana", password: str = PASSWORD) -> psycopg.Connection[Any]:
    return psycopg.connect(served.dsn(user, password), autocommit=True, options="-c dpsql.epsilon=0.5")


@contextmanager
def unwritable(served: Served) -> Iterator[None]:
    """Move the log's file away for a while."""
    file, aside = served.folder / "clinic.audit", served.folder / "aside"
    file.rename(aside)
    try:
        yield
    finally:
        aside.rename(file)


def test_the_log_records_logins_and_queries_without_texts_or_unknown_names(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = "hunter2-hunter2"
    with log_in(served) as session:
        session.execute(COUNT)
        session.execute(COUNT)
        with pytest.raises(psycopg.Error):
            session.execute("SELECT cost FROM visits")
        session.execute("EXPLAIN " + COUNT)
        session.execute("SHOW dpsql.epsilon")
    token = served.token("bob")
    assert served.ask("/v1/query", HTTP, token=token).status == 200
    assert served.ask("/v1/price", {"queries": [COUNT], "epsilon": 1}, token=token).status == 200
    assert (
        served.ask("/v1/query", {"sql": "SELECT cost FROM visits", "epsilon": 1}, token=token).status == 422
    )
    begun = served.ask("/v1/session", b"", headers=basic("eve", PASSWORD))
    assert begun.status == 200
    with pytest.raises(psycopg.Error):
        log_in(served, "bob", secret)
    with pytest.raises(psycopg.Error):
        log_in(served, secret, "x")
    assert served.ask("/v1/budget", headers=basic(secret, "x")).status == 401
    assert served.ask("/v1/budget", token="dpsql_" + "0" * 16 + "_" + "f" * 64).status == 401
    noted = [
        (each.name, each.facts.get("user"), each.facts.get("door"), each.facts.get("what"))
        for each in served.audit
    ]
    postgres = ("ana", "postgresql")
    assert noted == [
        ("start", None, None, None),
        ("login", *postgres, None),
        *[("asked", *postgres, "query"), ("answered", "ana", None, None)] * 2,
        *[("asked", *postgres, "query"), ("refused", "ana", None, None)],
        *[("asked", *postgres, "explain"), ("answered", "ana", None, None)],
        *[("asked", "bob", "http", "query"), ("answered", "bob", None, None)],
        *[("asked", "bob", "http", "price"), ("answered", "bob", None, None)],
        *[("asked", "bob", "http", "query"), ("refused", "bob", None, None)],
        ("login", "eve", "http", None),
        ("login refused", "bob", "postgresql", None),
        ("login refused", None, "postgresql", None),
        ("login refused", None, "http", None),
        ("login refused", "token " + "0" * 16, "http", None),
    ]
    paid, free, refused = (served.audit[place].facts for place in (3, 5, 7))
    assert (paid["charged"], paid["charge"], paid["of"]) == (True, 1, 3)
    assert paid["price"].keys() == {"visits", "visits for ana"}
    assert (free["charged"], free["replayed"]) == (False, [1])
    assert refused["charged"] is False
    assert refused["code"]
    written = (served.folder / "clinic.audit").read_text(encoding="ascii")
    for each in ("SELECT", "visits WHERE", PASSWORD, secret, "hunter2", token[-64:], begun.json["session"]):
        assert each not in written
    with closing(LedgerReader.open(served.ledger)) as history:
        require_ledger_entries(verify_log(served.folder / "clinic.audit"), history.iterate_rows())
    log, ledger = str(served.folder / "clinic.audit"), str(served.ledger)
    for words in (["verify", log, "--ledger", ledger], ["show", log, "--user", "bob", "--event", "refused"]):
        with pytest.raises(SystemExit) as ended:
            main(["audit", *words])
        assert not ended.value.code
    shown = capsys.readouterr().out
    assert "charges 2" in shown
    assert "charged no" in shown
    assert "ana" not in shown.partition("head:")[2]
    lines = Path(log).read_bytes().splitlines(keepends=True)
    (served.folder / "cut").write_bytes(b"".join(lines[:4] + lines[5:]))
    with pytest.raises(SystemExit):
        main(["audit", "verify", str(served.folder / "cut")])
    assert "event 5 of the audit log is missing" in capsys.readouterr().err


def test_logins_and_charges_fail_if_the_log_cannot_be_written(served: Served) -> None:
    token, before = served.token(), names(served)
    with log_in(served) as session:
        with unwritable(served):
            with pytest.raises(psycopg.OperationalError) as refused:
                log_in(served, "bob")
            assert "audit log" in str(refused.value)
            with pytest.raises(psycopg.Error) as unanswered:
                session.execute(COUNT)
            assert unanswered.value.sqlstate == "58030"
            told = served.ask("/v1/query", HTTP, token=token)
            assert (told.status, told.code, told.json["error"]["charged"]) == (503, "audit", False)
            assert served.ask("/v1/explain", HTTP, token=token).code == "audit"
            assert served.ask("/v1/session", b"", headers=basic("ana", PASSWORD)).code == "audit"
            assert served.spent() == 0
        session.execute(COUNT)
    assert served.spent() > 0
    assert names(served)[len(before) :] == ["login", "asked", "answered"]


def test_an_answer_is_withheld_if_its_outcome_cannot_be_recorded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = served.service.audit._log
    assert log is not None
    token, append = served.token(), log.append

    def failing(name: str, facts: Any) -> int:
        if name == "answered":
            raise Error("full", code="audit_unavailable")
        return append(name, facts)

    with log_in(served) as session:
        with monkeypatch.context() as patched:
            patched.setattr(log, "append", failing)
            with pytest.raises(psycopg.Error, match="this query was charged"):
                session.execute(COUNT)
            spent = served.spent()
            assert spent > 0
            told = served.ask("/v1/query", {"sql": COUNT + " AND cost > 5", "epsilon": 1}, token=token)
            assert (told.status, told.json["error"]["charged"]) == (503, True)
            assert "rows" not in told.json
        more = served.spent()
        assert more > spent
        assert session.execute(COUNT).fetchall()
        assert (
            served.ask("/v1/query", {"sql": COUNT + " AND cost > 5", "epsilon": 1}, token=token).status == 200
        )
        assert served.spent() == more


def test_a_reload_is_recorded_and_fails_if_the_log_cannot_be_written(tmp_path: Path, serve: Serve) -> None:
    # A reload closes the catalogue of its policy, which other tests share.
    with serve(tmp_path, policy={**POLICY, "privacy_unit": "outpatient"}) as served:

        def reloaded() -> str:
            async def work() -> str:
                try:
                    await reload_service(served.service, lambda *_, **__: None, "SIGHUP")
                except Error as error:
                    return error.code
                return ""

            return asyncio.run_coroutine_threadsafe(work(), served.loop).result(60)

        assert reloaded() == ""
        with unwritable(served):
            assert reloaded() == "audit"
        assert served.service.reload_count == 1
        (served.folder / "clinic.duckdb").touch()
        assert reloaded() == "data_version"
        asked, done, again, refused = served.audit[-4:]
        assert [each.name for each in (asked, done, again, refused)] == [
            "reload asked",
            "reload",
            "reload asked",
            "reload refused",
        ]
        assert done.facts["policy"] == served.service.policy.compute_digest()
        assert refused.facts["code"] == "data_version"


def test_a_flood_of_failed_logins_is_counted() -> None:
    """Nobody without a password makes the log grow by more than a few lines a minute."""
    noted, now = list[dict[str, Any]](), [0.0]

    class Kept(ServerAudit):
        def note_event(self, event: str, **facts: Any) -> int:
            noted.append(facts | {"event": event})
            return len(noted)

    audit = Kept(clock=lambda: now[0])
    for _ in range(1_000):
        audit.note_refused_login(None, "http", "192.0.2.1")
    assert len(noted) == 100
    now[0] = 25.0
    for _ in range(1_000):
        audit.note_refused_login("ana", "http", "192.0.2.1")
    assert len(noted) == 102
    assert noted[100]["unlisted"] == 900
    assert "unlisted" not in noted[101]


def test_a_failure_after_a_charge_is_recorded_as_charged() -> None:
    """An answer that is lost on its way is charged, whatever the error says."""
    noted = list[dict[str, Any]]()

    class Kept(ServerAudit):
        def note_event(self, event: str, **facts: Any) -> int:
            noted.append(facts | {"event": event})
            return len(noted)

    audit, caller = Kept(), Caller("ana", "ana", "http", "192.0.2.1")

    def lose(error: Exception, *, charged: bool) -> None:
        with audit.audit_request(caller, "query") as outcome:
            outcome.charged = charged
            raise error

    for error, charged in ((Error("lost"), True), (ValueError("lost"), True), (ValueError("lost"), False)):
        with pytest.raises(type(error)):
            lose(error, charged=charged)
    assert [(each["event"], each["charged"]) for each in noted if "charged" in each] == [
        ("refused", True),
        ("failed", True),
        ("failed", None),
    ]


def test_changes_of_users_are_recorded(tmp_path: Path, serve: Serve) -> None:
    """Changes before the start, while the server runs and at its end are recorded once, without passwords, tokens or subjects."""
    _, store = prepared(tmp_path)
    password, subject = "a password of dan", "the subject of dan"
    store.add_user("dan", Role.analyst, password)
    with serve(tmp_path) as served:
        changes = UserChangeWatcher(served.service, lambda *_, **__: None, every=0.01)
        asyncio.run_coroutine_threadsafe(changes.start(), served.loop).result(10)
        secret = store.add_token("dan", "of dan", 3)
        store.set_subject("dan", subject)
        store.revoke_token(secret.id)
        deadline = time.monotonic() + 20
        while store.list_changes() and time.monotonic() < deadline:
            time.sleep(0.01)
        asyncio.run_coroutine_threadsafe(changes.stop(), served.loop).result(10)
        store.change_password("dan", password + "2")
        store.set_subject("dan", None)
        store.remove_user("dan")
        store.close()
    found = [event for event in iterate_events(tmp_path / "clinic.audit") if event.facts.get("user") == "dan"]
    told = [
        "user added", "token made", "subject set", "token revoked",
        "password changed", "subject removed", "user removed",
    ]  # fmt: skip
    assert [event.name for event in found] == told
    assert [event.facts.get("detail") for event in found[:4]] == ["analyst", secret.id, None, secret.id]
    assert all(event.facts["by"] for event in found)
    verify_log(tmp_path / "clinic.audit")
    text = (tmp_path / "clinic.audit").read_text()
    assert not any(word in text for word in (password, subject, secret.to_text()))


@pytest.mark.parametrize("change", ["removed", "password", "role"])
def test_sessions_end_when_their_user_password_or_role_changes(
    tmp_path: Path, serve: Serve, change: str
) -> None:
    """No reload is needed. A removed user, or a thief of a password that was changed, kept the session until the server's end."""
    with (
        serve(tmp_path) as served,
        closing(psycopg.connect(served.dsn("ana"), autocommit=True)) as session,
        closing(psycopg.connect(served.dsn("bob"), autocommit=True)) as other,
    ):
        changes = UserChangeWatcher(served.service, lambda *_, **__: None, every=0.01)
        asyncio.run_coroutine_threadsafe(changes.start(), served.loop).result(10)
        time.sleep(0.1)
        assert session.execute("SELECT 1").fetchone() == (1,)
        if change == "password":
            served.service.users.change_password("ana", "another password of ana")
        else:
            served.service.users.remove_user("ana")
        if change == "role":
            served.service.users.add_user("ana", Role.auditor, PASSWORD)
        deadline = time.monotonic() + 20
        while len(served.listener.sessions) > 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(psycopg.OperationalError, match=r"administrator command|closed"):
            session.execute("SELECT 1")
        assert other.execute("SELECT 1").fetchone() == (1,)
        asyncio.run_coroutine_threadsafe(changes.stop(), served.loop).result(10)
