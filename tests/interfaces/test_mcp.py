"""Assistants over both transports: what they are told of tools, schemas, prices, answers, budgets and histories."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interfaces.assistants import (
    BY_PLAN,
    COUNT,
    Assistant,
    Connect,
    ask,
    needs_sdk,
    over_http,
    over_streams,
    run,
    serving_assistants,
)
from interfaces.server.conftest import Served
from small_study import write_study

import dpsql

pytestmark = needs_sdk


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server over the clinic for all tests of this module."""
    with serving_assistants(tmp_path_factory.mktemp("assistants")) as found:
        yield found


@pytest.fixture(params=["auto", "legacy"])
def ana(served: Served, request: pytest.FixtureRequest) -> Connect:
    """A client with a token of ana's, by the newest protocol and by the one with a handshake."""
    return over_http(served, mode=request.param)


def test_tools_have_schemas_and_say_which_of_them_charge(ana: Connect) -> None:
    """Clients ask a person before `query`, and before no other tool; the words say what to call first."""

    async def read(assistant: Assistant) -> Any:
        tools = (await assistant.client.list_tools()).tools
        return tools, assistant.client.instructions

    tools, instructions = run(ana, read)
    assert [each.name for each in tools] == ["describe", "explain", "query", "budget", "history"]
    for each in tools:
        assert each.input_schema["type"] == each.output_schema["type"] == "object"
        assert each.annotations.read_only_hint == (each.name != "query")
        assert each.annotations.destructive_hint == (each.name == "query")
    assert "explain first" in next(each for each in tools if each.name == "query").description
    for word in ("ε", "±", "budget", "explain", "instructions"):
        assert word in instructions


def test_describe_shows_what_the_policy_declares_and_nothing_else(ana: Connect) -> None:
    """Neither the undeclared table nor a value of an undeclared domain is there."""
    said = ask(ana, "describe")
    tables = {each["name"]: each for each in said.data["tables"]}
    assert list(tables) == ["visits", "wards"]
    assert said.data["privacy_unit"] == "patient"
    columns = {each["name"]: each for each in tables["visits"]["columns"]}
    assert columns["plan"]["values"] == ["A", "B"]
    assert columns["cost"]["bounds"] == ["0", "1000"]
    assert columns["ward"]["values"] == []
    for word in ("secrets", "north"):
        assert word not in said.text + json.dumps(said.data)
    assert "plan varchar  A, B" in said.text
    assert ask(ana, "describe", table="VISITS").data["tables"] == [tables["visits"]]
    assert ask(ana, "describe", table="secrets").code == "table"


def test_explain_is_free_and_tells_the_price_and_the_expected_error(served: Served, ana: Connect) -> None:
    before = served.spent()
    said = ask(ana, "explain", sql=BY_PLAN, epsilon=0.5)
    assert (said.data["free"], said.data["epsilon"], said.data["fits"]) == (False, 0.5, True)
    assert said.data["accounts"] == ["visits", "visits for ana"]
    assert any(each.startswith("COUNT(*): expected 95% half-width") for each in said.data["expected"])
    assert "SQL sent to the engine" not in json.dumps(said.data)
    target = ask(ana, "explain", sql=COUNT, target_error=20).data
    assert 0 < target["epsilon"] < 2
    assert ask(ana, "explain", sql=COUNT, epsilon=0.5, target_error=20).code == "ambiguous"
    assert ask(ana, "explain", sql="SELECT beds FROM wards", epsilon=1).data["free"] is True
    assert served.spent() == before


def test_answers_carry_errors_charge_and_what_is_left(served: Served) -> None:
    """The same question again is free, by the other protocol, too."""
    for number, mode in enumerate(("auto", "legacy")):
        sql = f"{BY_PLAN} HAVING {number} < 2"
        said = ask(over_http(served, mode=mode), "query", sql=sql, epsilon=0.25)
        assert said.data["charged"] is (number == 0)
        assert said.data["epsilon"] == (0.25 if number == 0 else None)
        assert [each["noisy"] for each in said.data["columns"]] == [False, True, True]
        for row, intervals in zip(said.data["rows"], said.data["intervals"], strict=True):
            assert intervals[0] is None
            assert intervals[1][0] < row[1] < intervals[1][1]
        assert "±95%" in said.text
        if not number:
            assert [each["name"] for each in said.data["remaining"]] == ["visits", "visits for ana"]
            assert "charged to visits for ana: ε 0.25" in said.text
    history = ask(over_http(served), "history", limit=1).data["history"]
    assert [each["query"] for each in history] == [f"{BY_PLAN} HAVING 0 < 2"]


def test_a_refusal_has_code_place_hint_and_no_charge(served: Served, ana: Connect) -> None:
    before = served.spent()
    for arguments, code in (
        ({"sql": "SELECT cost FROM visits"}, "group_by"),
        ({"sql": "SELECT COUNT(*) FROM secrets"}, "table"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilon": -1}, "loss"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilon": "NaN"}, "loss"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilon": 3}, "epsilon_cap"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilon": True}, "argument"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilon": "0." + "1" * 100}, "argument"),
        ({"sql": "SELECT COUNT(*) FROM visits", "dialect": "cobol"}, "dialect"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilom": 1}, "argument"),
        ({"epsilon": 1}, "argument"),
        ({"sql": ["SELECT 1"]}, "argument"),
        ({"sql": "SELECT COUNT(*) FROM visits", "seconds": 0}, "argument"),
        ({"sql": "x" * 100_001}, "argument"),
        ({"sql": "DROP TABLE visits"}, None),
        ({"sql": "CREATE SYNTHETIC TABLE t AS SELECT plan FROM visits"}, None),
    ):
        said = ask(ana, "query", **{"epsilon": 0.1, **arguments})
        assert said.is_error
        assert code in (None, said.code)
        error = said.data["error"]
        assert error["charged"] is False
        assert said.text.startswith(f"error[{error['code']}]: ")
        assert said.text.endswith("nothing was charged")
        assert "Traceback" not in said.text
    assert ask(ana, "query", sql=COUNT).code == "epsilon_missing"
    assert ask(ana, "query", sql=f"EXPLAIN {COUNT}", epsilon=0.1).data["charged"] is False
    assert ask(ana, "drop").code == "not_found"
    assert ask(ana, "query", sql="SELECT cst FROM visits", epsilon=1).data["error"]["column"] == 8
    assert served.spent() == before


def test_many_rows_are_left_out_with_a_notice(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.interfaces.mcp.answers.MOST_ROWS", 1)
    said = ask(over_http(served), "query", sql="SELECT beds FROM wards ORDER BY beds", epsilon=0.1).data
    assert (said["rows"], said["row_count"], len(said["intervals"])) == ([[10]], 2, 1)
    assert any("1 more rows are left out" in each for each in said["notices"])


def test_long_queries_of_a_history_are_cut(served: Served) -> None:
    sql = f"{COUNT} WHERE days IN ({', '.join(map(str, range(900)))})"
    assert ask(over_http(served), "query", sql=sql, epsilon=0.1).data["charged"]
    (last,) = ask(over_http(served), "history", limit=1).data["history"]
    assert (len(last["query"]), last["query"][-1]) == (2_001, "…")


def test_budgets_and_history_are_the_caller_s_own(served: Served) -> None:
    """Bob sees his account and the tables, and none of ana's questions; an auditor may not ask."""
    ana, bob, eve = (over_http(served, user) for user in ("ana", "bob", "eve"))
    assert ask(ana, "query", sql=f"{COUNT} WHERE days = 2", epsilon=0.1).data["charged"]
    names = [each["name"] for each in ask(bob, "budget").data["budgets"]]
    assert names == ["visits", "visits for bob"]
    assert ask(bob, "history").data["history"] == []
    assert ask(ana, "history", limit=1).data["history"][0]["query"].endswith("days = 2")
    assert ask(eve, "query", sql=COUNT, epsilon=0.1).code == "forbidden"
    assert ask(eve, "explain", sql=COUNT, epsilon=0.1).code == "forbidden"
    assert [each["name"] for each in ask(eve, "budget").data["budgets"]] == ["visits"]


def test_calls_are_events_of_the_audit_log(served: Served) -> None:
    """Who asked by which door, before the engine is reached; and what came of it."""
    before = len(served.audit)
    ask(over_http(served), "query", sql=f"{COUNT} WHERE days = 1", epsilon=0.1)
    ask(over_http(served), "query", sql="SELECT cost FROM visits", epsilon=0.1)
    ask(over_http(served), "explain", sql=COUNT, epsilon=0.1)
    events = served.audit[before:]
    assert [each.name for each in events] == ["asked", "answered", "asked", "refused", "asked", "answered"]
    assert [events[number].facts["charged"] for number in (1, 3, 5)] == [True, False, False]
    assert {each.facts["user"] for each in events} == {"ana"}
    assert {each.facts["door"] for each in events if each.name == "asked"} == {"mcp"}
    said = str(served.logged)
    for word in ("days = 1", "SELECT"):
        assert word not in said


def test_several_processes_answer_assistants(tmp_path: Path) -> None:
    """Limits, replays and remaining budgets are those of one process."""
    with serving_assistants(tmp_path, budget="0.2", processes=2) as served:
        ana = over_http(served)
        first, again = (ask(ana, "query", sql=COUNT, epsilon=0.2).data for _ in range(2))
        assert (first["charged"], again["charged"]) == (True, False)
        assert first["rows"] == again["rows"]
        assert [each["name"] for each in first["remaining"]] == ["visits", "visits for ana"]
        assert ask(ana, "query", sql=BY_PLAN, epsilon=0.1).code == "assistant_budget"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_starts_the_command_and_asks_over_standard_streams(tmp_path: Path, mode: str) -> None:
    """The analyst is charged in the ledger beside the policy, from which the next client reads."""
    database, policy = write_study(tmp_path)
    arguments = [database, "--analyst", "ana", "--epsilon", "0.2"]

    async def work(assistant: Assistant) -> Any:
        tables = (await assistant.call("describe")).data["tables"]
        sql = f"SELECT COUNT(*) AS n FROM {tables[0]['name']}"
        return [sql, *await asyncio.gather(assistant.call("explain", sql=sql), assistant.query(sql))]

    sql, explained, answered = run(over_streams(arguments, mode), work)
    assert explained.data["epsilon"] == 0.2
    assert answered.data["charged"] is True
    again = ask(over_streams(arguments, mode), "query", sql=sql)
    assert again.data["rows"] == answered.data["rows"]
    assert again.data["charged"] is False
    with dpsql.connect(database, policy=policy, analyst="bob") as con:
        assert con.query(sql, epsilon=0.2).rows == tuple(map(tuple, answered.data["rows"]))
