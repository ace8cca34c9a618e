"""Reloads of policy and data while the server runs: queries before, during and after them, and refused reloads."""

from __future__ import annotations

import asyncio
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import clinic
import psycopg
import pytest
import yaml

from dpsql.errors import Error
from dpsql.interfaces.server.limits import Limits, Turns
from dpsql.interfaces.server.serving import Lifecycle, serve_until_signal
from dpsql.interfaces.server.users import Role

from .conftest import PASSWORD, POLICY, Serve, Served

COUNT = "SELECT COUNT(*) AS n FROM visits"


def policy(**changes: Any) -> dict[str, Any]:
    """The clinic's policy with a version of the data, and these changes."""
    return {**POLICY, "data_version": "1", "privacy_unit": "inpatient", "max_epsilon": 6, **changes}


def reload(served: Served, found: dict[str, Any] | None = None) -> str:
    """The code of the error of a reload, empty where there is none."""

    async def work() -> str:
        try:
            await served.service.reload(found)
        except Error as error:
            return error.code
        return ""

    return asyncio.run_coroutine_threadsafe(work(), served.loop).result(60)


def replaced(file: Path, rows: int) -> None:
    """Puts other data in the place of a database."""
    made = clinic.database()
    made.execute(f"DELETE FROM visits WHERE patient_id >= {rows}")
    other = file.with_suffix(".new")
    made.execute(f"ATTACH '{other}' AS file; COPY FROM DATABASE memory TO file; DETACH file")
    made.close()
    other.replace(file)


def counted(served: Served, token: str, epsilon: float = 1) -> Any:
    told = served.ask("/v1/query", {"sql": COUNT, "epsilon": epsilon}, token=token)
    assert told.status == 200, told.json
    return told.json


def test_a_reload_takes_policy_and_data_and_keeps_sessions(tmp_path: Path, serve: Serve) -> None:
    """The receipt names the policy and the data that answered; old answers are not given for new data; users are let in."""
    with (
        serve(tmp_path, policy=policy(per_analyst={"epsilon": 1})) as served,
        psycopg.connect(served.dsn(), autocommit=True) as session,
    ):
        token, file = served.token(), tmp_path / "clinic.duckdb"
        before = counted(served, token, 5)
        assert before["receipt"]["policy"] == served.service.policy.compute_digest()
        served.service.users.add_user("carl", Role.analyst, PASSWORD)
        assert served.ask("/v1/query", {"sql": COUNT, "epsilon": 1}, token=served.token("carl")).status == 503
        replaced(file, 3)
        assert reload(served, policy(per_analyst={"epsilon": 1})) == "data_version"
        assert counted(served, token, 5)["rows"] == before["rows"]
        changed = policy(data_version="2", per_analyst={"epsilon": 1})
        assert reload(served, changed) == ""
        after = counted(served, token, 5)
        assert after["receipt"]["data_version"] == "2"
        assert (
            after["receipt"]["policy"]
            == served.service.policy.compute_digest()
            != before["receipt"]["policy"]
        )
        assert after["receipt"]["entries"]
        assert before["rows"][0][0] - after["rows"][0][0] > 100  # the data is the new one
        session.execute("SET dpsql.epsilon = 5")
        (first,) = session.execute(COUNT).fetchall()
        assert first[0] == after["rows"][0][0]
        assert counted(served, served.token("carl"))["rows"]
        assert served.spent() == 10  # what was spent stays spent


def test_an_invalid_policy_changes_nothing(tmp_path: Path, serve: Serve) -> None:
    """Unknown columns, other budgets than the ledger's, no users who ask: the former policy answers on."""
    with serve(tmp_path, policy=policy()) as served:
        token = served.token()
        before = counted(served, token)
        tables = {**POLICY["tables"], "nowhere": {"unit": "row"}}
        for wrong in (
            policy(tables=tables),
            policy(budget={"epsilon": 31}),
            {"version": 1},
        ):
            assert reload(served, wrong)
            assert served.service.reload_count == 0
            again = counted(served, token)
            assert (again["rows"], again["receipt"]["entries"]) == (before["rows"], [])
        assert counted(served, token, 2)["receipt"]["policy"] == before["receipt"]["policy"]


def test_queries_during_reloads_are_answered(tmp_path: Path, serve: Serve) -> None:
    """Each answer is by one policy or the other, and each charge is there once."""
    with serve(tmp_path, policy=policy()) as served, ThreadPoolExecutor(2) as pool:
        token, digests = served.token(), {served.service.policy.compute_digest()}

        def ask(worker: int) -> list[str]:
            found = []
            for number in range(4):
                body = {
                    "sql": f"{COUNT} WHERE cost < ?",
                    "parameters": [10 * number + worker],
                    "epsilon": 0.1,
                }
                told = served.ask("/v1/query", body, token=token)
                assert told.status == 200, told.json
                found.append(told.json["receipt"]["policy"])
            return found

        asked = [pool.submit(ask, worker) for worker in range(2)]
        for turn in range(3):
            assert reload(served, policy(min_epsilon=f"0.00{turn + 1}")) == ""
            digests.add(served.service.policy.compute_digest())
        assert {digest for each in asked for digest in each.result()} <= digests
        assert served.spent() * 10 == 8


def test_changed_data_is_not_read_under_the_former_policy(tmp_path: Path, serve: Serve) -> None:
    """Where the new data does not fit and the former is gone, nobody is answered until a reload succeeds."""
    with serve(tmp_path, policy=policy()) as served:
        token, file = served.token(), tmp_path / "clinic.duckdb"
        counted(served, token)
        file.write_bytes(b"this is no database")
        assert reload(served, policy(data_version="2"))
        told = served.ask("/v1/query", {"sql": COUNT, "epsilon": 1}, token=token)
        assert (told.status, told.code, told.json["error"]["charged"]) == (503, "reload", False)
        file.unlink()
        replaced(file, 3)
        assert reload(served, policy()) == "data_version"
        assert reload(served, policy(data_version="2")) == ""
        assert counted(served, token)["receipt"]["entries"]


def test_data_that_does_not_fit_the_policy_is_not_read(tmp_path: Path, serve: Serve) -> None:
    """The former policy would open the new data, too, and give the answers of the former for it."""
    with serve(tmp_path, policy=policy()) as served:
        token = served.token()
        counted(served, token)
        replaced(tmp_path / "clinic.duckdb", 3)
        assert reload(
            served, policy(data_version="2", tables={**POLICY["tables"], "nowhere": {"unit": "row"}})
        )
        assert served.ask("/v1/query", {"sql": COUNT, "epsilon": 1}, token=token).code == "reload"
        assert reload(served, policy(data_version="2")) == ""
        assert counted(served, token)["receipt"]["entries"]


def test_a_server_without_its_data_stops_normally(tmp_path: Path, serve: Serve) -> None:
    """And a failure that nobody foresaw says nothing of its words."""
    with serve(tmp_path, policy=policy()) as served:
        (tmp_path / "clinic.duckdb").write_bytes(b"this is no database")
        assert reload(served, policy(data_version="2"))
        served.service.users.add_user("olga", Role.owner, PASSWORD)

        async def failing() -> None:
            raise RuntimeError("of alice")

        served.service.reload = failing  # type: ignore[method-assign]
        told = served.ask("/v1/reload", method="POST", token=served.token("olga"))
        assert (told.status, told.code) == (500, "internal")
        assert "alice" not in f"{told.body!r}{served.logged}"


def test_only_owners_reload_over_http(tmp_path: Path, serve: Serve) -> None:
    """From the policy's file; nobody else may, and what is wrong with it is said and logged."""
    path = tmp_path / "clinic.yaml"
    with serve(tmp_path, policy=policy()) as served:
        served.service._policy_source = path
        served.service.users.add_user("olga", Role.owner, PASSWORD)
        olga = served.token("olga")
        for name in ("ana", "eve"):
            assert served.ask("/v1/reload", method="POST", token=served.token(name)).code == "forbidden"
        path.write_text(yaml.safe_dump(policy(tables={})))
        assert served.ask("/v1/reload", method="POST", token=olga).status == 500
        path.write_text(yaml.safe_dump(policy(min_epsilon="0.005")))
        told = served.ask("/v1/reload", method="POST", token=olga)
        assert (told.status, told.json["digest"]) == (200, served.service.policy.compute_digest())
        assert told.json["policy"]["min_epsilon"] == "1/200"
        assert [event for event, _ in served.logged if "reload" in event] == ["reload refused", "reload"]


def test_sighup_reloads_and_the_server_goes_on() -> None:
    """Twice, as a failure of the first is in the log; SIGTERM waits for a reload that is under way."""
    found = list[str]()

    async def again() -> None:
        found.append("begun")
        os.kill(os.getpid(), signal.SIGHUP if len(found) == 1 else signal.SIGTERM)
        await asyncio.sleep(0.1)
        found.append("done")

    async def start() -> list[int]:
        return [1]

    async def stop() -> None:
        found.append("stopped")

    asyncio.run(
        serve_until_signal([Lifecycle(start, stop)], lambda _: os.kill(os.getpid(), signal.SIGHUP), again)
    )
    assert found.count("begun") == found.count("done") == 2
    assert found.count("stopped") == 1


def test_no_statement_runs_in_a_pause() -> None:
    """Not what waited for the one before, either; and where something runs too long, there is none."""

    async def work() -> None:
        turns, inside, seen = Turns(Limits(workers=2)), [0], list[int]()

        async def one() -> None:
            for _ in range(20):
                async with turns.wait_for_turn("ana"):
                    inside[0] += 1
                    await asyncio.sleep(0)
                    inside[0] -= 1

        async def pause() -> None:
            for _ in range(20):
                async with turns.pause_turns(10):
                    seen.append(inside[0])
                    await asyncio.sleep(0)
                    seen.append(inside[0])

        await asyncio.gather(*(one() for _ in range(4)), pause(), pause())
        assert seen == [0] * 80
        async with turns.wait_for_turn("ana"):
            with pytest.raises(Error, match="still running"):
                async with turns.pause_turns(0.01):
                    pass
        async with turns.wait_for_turn("ana"):
            assert turns.count_statements() == (1, 1)

    asyncio.run(work())
