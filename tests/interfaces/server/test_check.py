"""`dpsql serve --check` reports each problem before the server starts."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.errors import Error, PolicyError, ProgrammingError
from dpsql.interfaces.cli import main
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.users import Role, UserStore

from .conftest import PASSWORD, POLICY, prepared
from .test_attacks import certificate


def checked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str]]:
    """The exit code, and what is said of each thing."""
    with pytest.raises(SystemExit) as ended:
        main(
            ["serve", "clinic.yaml", "-d", "clinic.duckdb", "--users", "clinic.users", "--check", *arguments]
        )
    lines = [line.partition(": ") for line in capsys.readouterr().out.splitlines() if ": " in line]
    return int(ended.value.code or 0), {name: said for name, _, said in lines}


def test_check_reports_that_a_server_would_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is made: no ledger, and no port is taken. Then each thing is wrong in its turn."""
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path)[1].close()
    Path("clinic.yaml").write_text(json.dumps(POLICY, default=str), encoding="utf-8")
    files = sorted(path.name for path in tmp_path.iterdir())
    free = ("--port", "0", "--http-port", "0")
    code, said = checked(capsys, *free)
    assert code == 0
    assert list(said) == [
        "policy",
        "users",
        "database and ledger",
        "audit log",
        "encryption",
        "PostgreSQL port",
        "HTTP port",
    ]
    assert "ana (analyst)" in said["users"]
    assert "will be created" in said["database and ledger"]
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    certificate(tmp_path)
    trusted = ("--host", "0.0.0.0", "--tls-certificate", "server.pem", "--tls-key", "server.key", *free)
    code, said = checked(capsys, *trusted)
    assert code == 0
    assert "valid until" in said["encryption"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, said = checked(capsys, "--host", "127.0.0.1", "--port", port, "--http-port", "0")
    assert code == 1
    assert "cannot listen" in said["PostgreSQL port"]
    assert "is free" in said["HTTP port"]
    code, said = checked(capsys, "--host", "0.0.0.0", *free)
    assert code == 1
    assert "no certificate" in said["encryption"]
    Path("old.anchor").write_text("2 " + "c0" * 32, encoding="utf-8")
    code, said = checked(capsys, "--anchor", "old.anchor", *free)
    assert code == 1
    assert "does not exist" in said["database and ledger"]
    Path("clinic.duckdb").unlink()
    Path("clinic.users").unlink()
    code, said = checked(capsys, *free)
    assert code == 1
    assert "does not exist" in said["users"]
    assert "visits" in said["policy"]


def test_a_policy_with_the_sources_of_its_tables_needs_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are seen from the policy's folder, wherever the server is started; a policy without any asks for a database."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "people.csv").write_text("id,age\n1,30\n2,40\n", encoding="utf-8")
    people = {"unit": "id", "rows_per_unit": 1, "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}
    policy = {"version": 1, "privacy_unit": "person", "database": "people", "budget": {"epsilon": 30}}
    written = policy | {"tables": {"people": people | {"source": "people.csv"}}}
    (folder / "people.yaml").write_text(json.dumps(written), encoding="utf-8")
    (folder / "bare.yaml").write_text(json.dumps(policy | {"tables": {"people": people}}), encoding="utf-8")
    store = UserStore.open(folder / "users", create=True)
    store.add_user("ana", Role.analyst, PASSWORD)
    monkeypatch.chdir(tmp_path)
    with (
        closing(Service(folder / "people.yaml", None, users=store, ledger=folder / "a.ledger")) as service,
        service.connections.acquire_connection("ana") as connection,
    ):
        assert abs(connection.query("SELECT COUNT(*) AS n FROM people", epsilon=10).rows[0][0] - 2) < 5
    with pytest.raises(ProgrammingError) as refused:
        Service(folder / "bare.yaml", None, users=store, ledger=folder / "b.ledger")
    assert refused.value.code == "no_database"
    store.close()


@pytest.mark.parametrize("place", ["policy", "frames", "database"])
def test_a_path_with_nul_is_refused(place: str) -> None:
    """It is an error of dpsql's own, and of the policy where that names it."""
    people = {"unit": "row", **({"source": "a\0.csv"} if place == "policy" else {})}
    policy = {"version": 1, "privacy_unit": "person", "budget": {"epsilon": 1}, "tables": {"people": people}}
    database = {"policy": None, "frames": {"people": "a\0.csv"}, "database": "a\0.parquet"}[place]
    with pytest.raises(Error) as refused:
        dpsql.connect(database, policy=policy, ledger=":memory:")
    assert "NUL" in refused.value.message
    assert isinstance(refused.value, PolicyError) is (place == "policy")


def test_without_starlette_only_the_postgresql_protocol_is_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sentence says what to install, with `--check` and when the server starts."""
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path)[1].close()
    Path("clinic.yaml").write_text(json.dumps(POLICY, default=str), encoding="utf-8")
    for name in ("dpsql.interfaces.server.http.listener", "dpsql.interfaces.server.http.api"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    code, said = checked(capsys, "--port", "0")
    assert code == 0
    assert "pip install '.[server]'" in said["HTTP"]
    assert "HTTP port" not in said

    async def served(doors: Sequence[Any], ready: Callable[[list[list[int]]], None], _: Any) -> None:
        ready([await door.start() for door in doors])
        for door in doors:
            await door.stop()

    monkeypatch.setattr("dpsql.interfaces.server.serving.serve_until_signal", served)
    with pytest.raises(SystemExit):
        main(["serve", "clinic.yaml", "-d", "clinic.duckdb", "--users", "clinic.users", "--port", "0"])
    told = capsys.readouterr().out
    assert "PostgreSQL: listening on localhost" in told
    assert "pip install '.[server]'" in told
