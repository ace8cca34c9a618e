"""Parallel engine processes share one ledger, one audit log and one set of limits."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import clinic
import duckdb
import psycopg
import pytest

import dpsql
from dpsql.interfaces.server.limits import Limits
from dpsql.interfaces.server.processes import ProcessPool
from dpsql.ledger.audit_log import verify_log

from .conftest import POLICY, Serve, Served, prepared, serving
from .test_attacks import PURE, asking, charges

LONG_WARDS = "DROP TABLE wards; CREATE TABLE wards AS SELECT 'w' || i AS name, i % 50 AS beds FROM range(1500000) AS r(i)"
LONG_JOIN = "SELECT COUNT(*) FROM visits v JOIN wards w ON w.beds > v.days AND w.name > v.ward"
GROUPED = "SELECT plan, COUNT(*) AS n, AVG(cost) AS cost FROM visits GROUP BY plan ORDER BY plan"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with two processes."""
    with serving(tmp_path_factory.mktemp("processes"), processes=2) as served:
        yield served


def processes(served: Served) -> ProcessPool:
    found = served.service.processes
    assert found is not None
    return found


def pids(served: Served) -> list[int]:
    return [each._process.pid or 0 for each in processes(served)._processes]


@contextmanager
def connected(served: Served, user: str = "ana", **settings: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(served.dsn(user), autocommit=True) as connection:
        for name, value in {"dpsql.epsilon": "0.1", **settings}.items():
            connection.execute(f"SET {name} = {value}")
        yield connection


def test_both_protocols_answer_as_with_one_process(pair: Served) -> None:
    """Answer, price and ±; the other process, and the other door, answer the question again, free."""
    told = list[str]()
    with connected(pair) as connection:
        connection.add_notice_handler(lambda diagnostic: told.append(str(diagnostic.message_primary)))
        rows = connection.execute(GROUPED).fetchall()
        assert [row[0] for row in rows] == ["A", "B"]
        assert any("±95%" in text for text in told)
        assert any("charged to visits for ana: ε 0.1" in text for text in told)
        ends = connection.execute("SHOW dpsql.intervals").fetchall()
        assert ends[0][2] <= rows[0][1] <= ends[0][3]
        before = len(charges(pair.ledger, account="ana"))
        for _ in range(4):
            assert connection.execute(GROUPED).fetchall() == rows
    with dpsql.connect(f"http://127.0.0.1:{pair.http}", token=pair.token(), epsilon="0.1") as remote:
        result = remote.query(GROUPED)
        assert result.rows == tuple(rows)
        (_, (low, high), _), _ = result.intervals(0.5)
        assert ends[0][2] <= low <= rows[0][1] <= high <= ends[0][3]
    assert len(charges(pair.ledger, account="ana")) == before == 1


def test_all_processes_answer_queries(pair: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has answered something when many ask."""
    asked = set[Any]()
    idlest = ProcessPool.select_idlest_process

    def noted(self: ProcessPool) -> Any:
        found = idlest(self)
        asked.add(found)
        return found

    monkeypatch.setattr(ProcessPool, "select_idlest_process", noted)
    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(lambda number: asking(pair, "bob", number, "0.01"), range(200, 230))) == {None}
    assert asked == set(processes(pair)._processes)


def test_errors_of_a_process_keep_their_place_and_charge(pair: Served) -> None:
    plain = {"dpsql.dialect": "duckdb"}
    with connected(pair, **plain) as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute("SELECT AVG(csot) FROM visits")
    assert refused.value.sqlstate == "42703"
    assert refused.value.diag.statement_position == "12"
    assert "did you mean cost?" in (refused.value.diag.message_hint or "")
    with connected(pair, **plain) as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute("SELECT AVG(csot) FROM visits WHERE days > %s", (1,))
    assert refused.value.diag.statement_position == "12"


def test_unreferenced_results_are_dropped(pair: Served) -> None:
    """The process keeps an answer for intervals at other confidences as long as somebody here has it."""
    result = processes(pair).create_query_runner("ana").query(GROUPED, epsilon="0.1", dialect="postgres")
    kept: Any = result._interval_of
    process, number = kept._process, kept._number

    def intervals(confidence: float) -> Any:
        _, future = process.send_call("intervals", "ana", (number, confidence))
        return future.result()

    assert intervals(0.8) == result.intervals(0.8)
    _, future = process.send_call("intervals", "bob", (number, 0.8))
    assert future.result() is None
    del result, kept
    gc.collect()
    assert intervals(0.8) is None


def test_a_plan_is_answered_only_for_its_analyst(pair: Served) -> None:
    """Under another analyst's number, and under one that is gone, the question itself is asked."""
    planned = (
        processes(pair).create_query_runner("ana").plan("SELECT COUNT(*) AS a FROM visits", epsilon="0.2")
    )
    bob = processes(pair).create_query_runner("bob")
    before = len(charges(pair.ledger, account="bob"))
    _, future = planned.process.send_call(
        "answer", "bob", (planned.number, "SELECT COUNT(*) AS b FROM visits", (), {"epsilon": "0.3"})
    )
    assert future.result().columns == ("b",)
    assert len(charges(pair.ledger, account="bob")) == before + 1
    assert bob.answer(planned).columns == ("a",)


def test_processes_ignore_signals_and_a_killed_one_is_restarted(tmp_path: Path, serve: Serve) -> None:
    """A question that was under way says that nobody knows whether it was charged; the next ones are answered."""
    with serve(tmp_path, processes=2) as served:
        first = pids(served)
        for pid in first:
            for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(pid, name)
        assert asking(served, "ana", 1) is None
        assert pids(served) == first
        with connected(served) as connection, ThreadPoolExecutor(1) as pool:
            for pid in first:
                os.kill(pid, signal.SIGSTOP)
            told = pool.submit(connection.execute, "SELECT COUNT(*) FROM visits WHERE days > 2")
            while not any(each.call_count for each in processes(served)._processes):
                time.sleep(0.01)
            for pid in first:
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(psycopg.Error, match="any charge stands"):
                told.result(30)
        assert asking(served, "ana", 2) is None
        assert not set(pids(served)) & set(first)
        assert len(charges(served.ledger, account="ana")) == 2
        last = [event.facts for event in served.audit if event.name == "refused"][-1]
        assert (last["code"], last["charged"]) == ("process_ended", None)
        ours = pids(served)
    assert not any(map(_is_alive, ours))
    verify_log(tmp_path / "clinic.audit")


def test_a_process_that_ends_during_a_charged_query_is_a_failure(tmp_path: Path, serve: Serve) -> None:
    """As where one row takes more memory than there is, and the system kills what needs it: it counts toward the lock."""
    file, store = prepared(tmp_path)
    store.close()
    with duckdb.connect(str(file)) as made:
        made.execute(LONG_WARDS)
    with (
        serve(tmp_path, processes=2) as served,
        connected(served) as connection,
        ThreadPoolExecutor(1) as pool,
    ):
        told = pool.submit(connection.execute, LONG_JOIN)
        while not len(charges(served.ledger, account="ana")):
            assert not told.done()
            time.sleep(0.05)
        for pid in pids(served):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(psycopg.Error, match="any charge stands"):
            told.result(30)
        with served.service.connections.acquire_connection("ana") as opened:
            (failure,) = [entry for entry in opened.engine.ledger.list_entries() if entry.kind == "failure"]
        assert (failure.table, failure.details) == ("visits", {"failure": "process_ended"})


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_race_for_the_last_epsilon_over_processes(tmp_path: Path, serve: Serve) -> None:
    """Ten of twenty questions are answered, as by one process; each event is in the audit log's chain."""
    with serve(tmp_path, policy=PURE, limits=Limits(logins=50), processes=2) as served:
        with ThreadPoolExecutor(20) as pool:
            told = list(pool.map(lambda number: asking(served, "ana", number), range(1, 21)))
        assert told.count(None) == 10
        assert set(told) == {None, "53400"}
        assert sum(charges(served.ledger, account="ana")) == 1
        answered = [event for event in served.audit if event.name == "answered"]
        assert len(answered) == 10
    verify_log(tmp_path / "clinic.audit")


@pytest.mark.deep
def test_a_reload_changes_the_policy_of_all_processes(tmp_path: Path, serve: Serve) -> None:
    """A statement that was described before it is not answered under the former one."""
    first = {**POLICY, "data_version": "1"}
    with serve(tmp_path, policy=first, processes=2) as served:
        before = pids(served)
        found = {**first, "data_version": "2", "max_epsilon": 1}
        asyncio.run_coroutine_threadsafe(served.service.reload(found), served.loop).result(60)
        assert not set(pids(served)) & set(before)
        with connected(served, **{"dpsql.epsilon": "1.5"}) as connection, pytest.raises(psycopg.Error):
            connection.execute("SELECT COUNT(*) FROM visits")
        assert asking(served, "ana", 3, "0.5") is None
        told = served.ask("/v1/query", {"sql": GROUPED, "epsilon": 0.1}, token=served.token())
        assert told.json["receipt"]["data_version"] == "2"


@pytest.mark.deep
def test_an_owner_stops_a_query_in_a_process(tmp_path: Path, serve: Serve) -> None:
    """By `statement_seconds`, and not by statement_timeout: the engine stops, and the failure is in the ledger."""
    file, store = prepared(tmp_path)
    store.close()
    with duckdb.connect(str(file)) as made:
        made.execute(LONG_WARDS)
    with serve(tmp_path, processes=2, limits=Limits(statement_seconds=2.0)) as served:
        with connected(served, statement_timeout="700") as connection:
            connection.execute("SELECT 1")
            with pytest.raises(psycopg.Error) as stopped:
                connection.execute(LONG_JOIN)
        assert stopped.value.sqlstate == "57014"
        assert "stopped at the owner's limit" in str(stopped.value)
        with served.service.connections.acquire_connection("ana") as opened:
            assert [
                entry.details for entry in opened.engine.ledger.list_entries() if entry.kind == "failure"
            ] == [{"failure": "stopped"}]
        assert asking(served, "ana", 2) is None
        assert len(charges(served.ledger, account="ana")) == 2


def test_a_ledger_in_memory_cannot_be_shared_by_processes(tmp_path: Path) -> None:
    from dpsql.interfaces.server.service import Service
    from dpsql.policy import load

    file, store = prepared(tmp_path)
    with pytest.raises(dpsql.OperationalError) as refused:
        Service(load(POLICY), file, users=store, ledger=":memory:", processes=2)
    assert refused.value.code == "processes"
    store.close()


def test_processes_divide_the_machine() -> None:
    """Each process has its share of memory and processors; alone it has what it always had."""
    from dpsql.backends.duckdb import settings

    assert settings.build_locked_config() is settings.LOCKED
    settings.use_part(4)
    try:
        with dpsql.connect(clinic_frames(), policy=clinic.POLICY, ledger=":memory:") as part:
            backend: Any = part.engine.backend
            ((threads,),) = backend._runner.query_rows("SELECT current_setting('threads')")
        assert threads == max(1, (os.cpu_count() or 1) // 4)
        assert settings.build_locked_config()["memory_limit"] == "20.00%"
    finally:
        settings.use_part(1)


def clinic_frames() -> dict[str, Any]:
    made = clinic.database()
    return {name: made.sql(f"FROM {name}").to_arrow_table() for name in ("visits", "wards")}
