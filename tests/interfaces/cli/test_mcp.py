"""`dpsql mcp` and `dpsql serve --mcp` as commands: what they refuse, how they end, and that they share users and budgets."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from interfaces.assistants import ask, needs_sdk, over_http, over_streams
from small_study import SECRET

from dpsql.interfaces.server.users import Role, UserStore
from dpsql.ledger.audit_log import iterate_events

from .conftest import Run

pytestmark = needs_sdk

COUNT = "SELECT COUNT(*) AS n FROM visits"
HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}  # fmt: skip


@contextmanager
def started(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process of `dpsql`, until the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dpsql", *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@pytest.mark.parametrize("how", ["end of input", "SIGTERM", "SIGINT"])
def test_the_command_ends_with_its_client_or_a_signal(study: Path, how: str) -> None:
    """A client that stops a server closes its input, and sends a signal if that does not end it."""
    with started("mcp", study, "--analyst", "ana") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(HELLO) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "dpsql"
        if how == "end of input":
            process.stdin.close()
        else:
            process.send_signal(getattr(signal, how))
        assert process.wait(60) == 0
        assert process.stdout.read() == ""


def test_standard_output_has_the_protocol_only(study: Path) -> None:
    """The announcement of a new ledger and the log are on standard error."""
    with started("mcp", study) as process:
        out, _ = process.communicate(json.dumps(HELLO) + "\n", timeout=60)
    assert [json.loads(line)["id"] for line in out.splitlines()] == [1]
    assert study.with_suffix(".ledger").exists()


def test_what_cannot_be_served_is_refused_with_the_way_out(
    run: Run, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, code in (
        (["https://dp.example.org:8439"], "argument"),
        ([study.with_name("none.duckdb")], "no_database"),
        ([study, "--analyst", "x" * 64], "user_name"),
    ):
        ran = run("mcp", *arguments)
        assert ran.code == 1
        assert f"error[{code}]" in ran.err
    assert "https://dp.example.org:8439/mcp" in run("mcp", "https://dp.example.org:8439").err
    assert run("mcp", study, "--max-epsilon", "0").code == 2
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "pip install '.[mcp]'" in run("mcp", study).err


def test_a_mistyped_ledger_is_no_second_budget(run: Run, study: Path) -> None:
    ask(over_streams([study]), "budget")
    ran = run("mcp", study, "--ledger", study.with_name("other.ledger"))
    assert "error[new_ledger]" in ran.err


def test_the_budget_survives_the_process_and_is_an_account_s(study: Path) -> None:
    """Another conversation starts another process; another analyst has another budget, and the file can be named."""
    limits = ["--epsilon", "0.1", "--budget", "0.15", "--audit", study.with_suffix(".audit")]
    ana = over_streams([study, "--analyst", "ana", *limits])
    assert ask(ana, "query", sql=COUNT).data["limits"]["remaining"] == 0.05
    refused = ask(ana, "query", sql=f"{COUNT} WHERE region = 1")
    assert refused.code == "assistant_budget"
    assert study.with_suffix(".assistants").exists()
    spelled = over_streams([study, "--analyst", "ANA", *limits])
    assert ask(spelled, "query", sql=f"{COUNT} WHERE region = 1").code == "assistant_budget"
    bob = over_streams([study, "--analyst", "bob", *limits])
    assert ask(bob, "query", sql=f"{COUNT} WHERE region = 1").data["charged"]
    events = [each.name for each in iterate_events(study.with_suffix(".audit"))]
    assert events.count("asked") == 4
    assert SECRET not in study.with_suffix(".audit").read_text(encoding="utf-8")


@pytest.mark.parametrize("source", ["source: visits.csv, ", ""])
def test_files_are_served(tmp_path: Path, source: str) -> None:
    """A policy that names its files, or a file with its policy beside it."""
    file, policy = tmp_path / "visits.csv", tmp_path / "visits.yaml"
    file.write_text("patient,cost\n1,5\n2,7\n", encoding="utf-8")
    policy.write_text(
        "version: 1\nprivacy_unit: patient\nbudget: {epsilon: 5, delta: 1e-6}\ndatabase: files\n"
        f"tables: {{visits: {{{source}unit: patient, rows_per_unit: 1,"
        " columns: {cost: {type: integer, bounds: [0, 10]}}}}\n",
        encoding="utf-8",
    )
    said = ask(over_streams([policy if source else file]), "query", sql=COUNT, epsilon=0.5)
    assert not said.is_error, said.text
    assert said.data["charged"]


def test_serve_answers_assistants_of_its_users(study: Path) -> None:
    """With --mcp; both interfaces of one user share account, replays and history."""
    users = study.with_suffix(".users")
    store = UserStore.open(users, create=True)
    store.add_user("ana", Role.analyst, "correct horse battery staple")
    token = store.add_token("ana", "", 1).to_text()
    store.close()
    policy = study.with_suffix(".yaml")
    arguments = ["serve", policy, "--database", study, "--users", users, "--port", 0, "--http-port", 0]
    with started(*arguments, "--mcp", "--mcp-max-epsilon", "0.2", "--mcp-budget", "0.3") as process:
        assert process.stdout is not None
        said = ""
        while "Ctrl-C" not in said:
            said += process.stdout.readline()
        (port,) = re.findall(r"HTTP: listening on \S+?:(\d+)", said)
        connect = over_http(_served(port), token=token)
        assert ask(connect, "query", sql=COUNT, epsilon=0.3).code == "epsilon_cap"
        assert ask(connect, "query", sql=COUNT, epsilon=0.2).data["limits"]["remaining"] == 0.1
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert study.with_suffix(".assistants").exists()


def _served(port: str) -> Any:
    """A server of another process, for `over_http` with a token."""
    return SimpleNamespace(http=port)
