"""The tests of connections in this process, on a connection to a server: the same questions, answers and errors."""

from __future__ import annotations

import asyncio
import importlib
import io
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import clinic
import pytest
from api.test_answers import (  # noqa: F401  (tests, which run here with the `con` of this module)
    test_a_column_in_the_place_of_an_end_is_refused,
    test_a_list_of_public_keys_is_free,
    test_errors_teach,
    test_frames_have_interval_columns_after_noisy_columns,
    test_interval_columns_depend_on_the_query_only,
    test_max_groups_of_a_query,
    test_only_counts_are_displayed_as_at_least_zero,
    test_post_processing_is_free_and_right,
    test_result_has_intervals_scales_and_a_receipt,
    test_the_budget_ends,
    test_the_cap_of_a_query,
    test_unknown_keys_pass_a_threshold,
    test_wider_confidence_gives_wider_intervals,
)
from api.test_forecast import (  # noqa: F401
    test_a_forecast_costs_nothing,
    test_a_forecast_refuses_invalid_queries,
    test_queries_cost_their_forecast,
)
from api.test_pep249 import (  # noqa: F401
    test_a_loss_must_be_a_positive_number,
    test_closed_connection_and_cursor,
    test_cursor_fetches_as_specified,
    test_cursor_iterates,
    test_executemany_is_refused_clearly,
    test_frames,
    test_parameters_are_bound_as_literals,
    test_wrong_parameters_are_refused,
)

import dpsql
from dpsql.api.arguments import Address
from dpsql.api.remote import RemoteConnection
from dpsql.interfaces.cli import main
from dpsql.interfaces.server.http.listener import HttpServer
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.users import Role, UserStore
from dpsql.policy import load


@contextmanager
def opened(service: Service) -> Iterator[int]:
    """The port of an HTTP door over a service, in a thread."""
    started: Future[tuple[int, Any]] = Future()

    async def run() -> None:
        door, ended = HttpServer(service, log=lambda *_, **__: None), asyncio.Event()
        try:
            (port,) = await door.start("127.0.0.1", 0)
        except BaseException as error:
            started.set_exception(error)
            raise
        loop = asyncio.get_running_loop()
        started.set_result((port, lambda: loop.call_soon_threadsafe(ended.set)))
        await ended.wait()
        await door.stop()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    port, end = started.result(60)
    try:
        yield port
    finally:
        end()
        thread.join(60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clinic's file and the users of its server."""
    made = tmp_path_factory.mktemp("remote")
    with closing(clinic.database()) as database:
        database.execute(f"ATTACH '{made / 'clinic.duckdb'}' AS file; COPY FROM DATABASE memory TO file")
    with closing(UserStore.open(made / "users", create=True)) as store:
        store.add_user("ana", Role.analyst, "correct horse battery staple")
    return made


@contextmanager
def connected(folder: Path, ledger: Path, **options: Any) -> Iterator[RemoteConnection]:
    """A connection of ana's to a server with a ledger of its own."""
    with closing(UserStore.open(folder / "users")) as store:
        policy = load({**clinic.POLICY, "database": "clinic"})
        service = Service(policy, folder / "clinic.duckdb", users=store, ledger=ledger)
        secret = store.add_token("ana", "", 1)
        try:
            with (
                opened(service) as port,
                dpsql.connect(f"http://127.0.0.1:{port}", token=secret.to_text(), **options) as found,
            ):
                yield found
        finally:
            service.close()
            store.revoke_token(secret.id)


@pytest.fixture
def con(folder: Path, tmp_path: Path) -> Iterator[RemoteConnection]:
    """A connection over HTTP with a fresh budget."""
    with connected(folder, tmp_path / "clinic.ledger") as found:
        yield found


def test_remote_answers_equal_those_in_this_process(
    con: RemoteConnection, folder: Path, tmp_path: Path
) -> None:
    """Explanations, receipts, descriptions and prices are equal to those of a connection that has the data."""
    sql = "SELECT plan, SUM(cost) AS s FROM visits WHERE day >= ? GROUP BY plan"
    policy = {**clinic.POLICY, "database": "clinic"}
    answered = con.query(sql, [clinic.dt.date(2024, 2, 1)], epsilon=0.5)
    with dpsql.connect(
        folder / "clinic.duckdb", policy=policy, ledger=tmp_path / "clinic.ledger", analyst="ana"
    ) as here:
        again = here.query(sql, [clinic.dt.date(2024, 2, 1)], epsilon=0.5)
        assert (again.rows, again.types, again.scales) == (answered.rows, answered.types, answered.scales)
        assert again.receipt.replayed == (answered.receipt.entries[0]["id"],)
        assert again.intervals(0.8) == answered.intervals(0.8)
        assert again.intervals() == answered.intervals()
        assert str(here.explain(sql, [clinic.dt.date(2024, 3, 1)], epsilon=1)) == str(
            con.explain(sql, [clinic.dt.date(2024, 3, 1)], epsilon=1)
        )
        assert (
            str(con.explain(sql, [clinic.dt.date(2024, 3, 1)], epsilon=1).price) == "ε 1, charged to visits"
        )
        assert here.budget() == con.budget()
        assert str(here.budget()["visits"].remaining_epsilon) == str(con.budget()["visits"].remaining_epsilon)
        assert here.describe() == con.describe()
        plan = ["SELECT COUNT(*) FROM visits", sql.replace("?", "DATE '2024-02-01'")]
        priced = con.budget(plan, epsilon="0.3")
        assert here.budget(plan, epsilon="0.3") == priced
        assert str(here.budget(plan, epsilon="0.3")) == str(priced)
        assert here.combine(sql, [clinic.dt.date(2024, 2, 1)]).rows == answered.rows


def test_regressions_are_the_same_as_in_this_process(
    con: RemoteConnection, folder: Path, tmp_path: Path
) -> None:
    """Coefficients, their intervals and covariances: asked again here they are replayed."""
    fit = con.regress("cost", ["days"], source="visits", by="plan", epsilon=1.5)
    (found,) = con.covariance(["cost", "days"], source="visits", epsilon=1.5)
    with dpsql.connect(
        folder / "clinic.duckdb",
        policy={**clinic.POLICY, "database": "clinic"},
        ledger=tmp_path / "clinic.ledger",
        analyst="ana",
    ) as here:
        again = here.regress("cost", ["days"], source="visits", by="plan", epsilon=1.5)
        assert again.receipt.replayed
        assert (again.columns, again.rows) == (fit.columns, fit.rows)
        assert again.intervals() == fit.intervals()
        (ours,) = here.covariance(["cost", "days"], source="visits", epsilon=1.5)
        assert (ours.names, ours.matrix.tolist()) == (found.names, found.matrix.tolist())
        assert ours.intervals == found.intervals


def test_covariance_without_numpy_is_refused_before_its_charge(
    con: RemoteConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dpsql-client does not install numpy: the analyst pays for no matrix that cannot be computed."""
    monkeypatch.setattr("dpsql.results.optional.find_spec", lambda name: None if name == "numpy" else name)
    before = con.budget()
    with pytest.raises(
        ImportError, match=r"covariance\(\) needs numpy, which is not installed: pip install numpy"
    ):
        con.covariance(["cost", "days"], source="visits", epsilon=1.5)
    assert con.budget() == before


@pytest.mark.parametrize(
    ("library", "export", "requirement"),
    [
        ("pandas", "df", "'.[pandas]' in a checkout of dpsql"),
        ("polars", "pl", "'.[polars]' in a checkout of dpsql"),
        ("pyarrow", "pl", "'.[polars]' in a checkout of dpsql"),
        ("pyarrow", "to_arrow_table", "pyarrow"),
    ],
)
def test_missing_libraries_are_named(
    con: RemoteConnection, monkeypatch: pytest.MonkeyPatch, library: str, export: str, requirement: str
) -> None:
    """Without the library of a data frame the error says what to install."""
    found = con.query("SELECT COUNT(*) FROM visits", epsilon=1)
    importlib.import_module("polars")  # which remembers, when it loads, whether there is pyarrow
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError) as raised:
        getattr(found, export)()
    assert str(raised.value).endswith(f"needs {library}, which is not installed: pip install {requirement}")


def test_values_of_every_type_arrive_unchanged(con: RemoteConnection) -> None:
    text = (
        "SELECT beds, beds / 4.0 AS d, name, beds > 10 AS b, DATE '1969-07-20' AS day, NULL AS nothing,"
        " TIMESTAMP '1999-12-31 23:59:59.5' AS at, 1e308 * beds AS large FROM wards ORDER BY beds"
    )
    found = con.query(text, epsilon=1)
    assert found.rows[0] == (
        10,
        2.5,
        "north",
        False,
        clinic.dt.date(1969, 7, 20),
        None,
        clinic.dt.datetime(1999, 12, 31, 23, 59, 59, 500000),
        float("inf"),
    )


def test_aquery_and_defaults(folder: Path, tmp_path: Path) -> None:
    """What `connect` was told is for queries that say nothing themselves; a clause goes before it."""
    with connected(folder, tmp_path / "l.ledger", epsilon="0.125", dialect="postgres", replay=False) as con:
        both = [
            asyncio.run(con.aquery("SELECT COUNT(*)::integer AS n FROM visits")).receipt.entries for _ in "ab"
        ]
        assert [each[0]["loss"] for each in both] == [both[0][0]["loss"]] * 2
        assert con.budget()["visits"].queries == 2
        clause = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1) COUNT(*) FROM visits"
        dear = con.query(clause, dialect="duckdb").receipt.entries[0]["loss"]
        assert dear != both[0][0]["loss"]


def test_lost_connection_is_reopened_without_repeating_new_noise(
    con: RemoteConnection,
) -> None:
    sql = "SELECT COUNT(*) FROM visits"
    first = con.query(sql, epsilon=0.1)
    kept = con._transport._connection
    assert kept is not None
    kept.sock.shutdown(socket.SHUT_RDWR)
    assert con.query(sql, epsilon=0.1).rows == first.rows
    assert con.budget()["visits"].queries == 1
    asked: list[str] = []
    told = con._transport._send_request

    def lost(method: str, path: str, body: bytes | None, *, lost_is_fatal: bool) -> Any:
        asked.append(path)
        found = told(method, path, body, lost_is_fatal=lost_is_fatal)
        assert found is not None
        con.close()
        raise ConnectionResetError if lost_is_fatal else AssertionError

    con._transport._send_request = lost  # type: ignore[method-assign]
    with pytest.raises(ConnectionResetError):
        con.query(sql, epsilon=0.1, replay=False)
    assert asked == ["/v1/query"]


def test_the_commands_take_an_address(
    con: RemoteConnection, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the token in the environment, never in the address."""

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main([arguments[0], str(con.address), *arguments[1:]])
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out + shown.err

    monkeypatch.setenv("DPSQL_TOKEN", con._transport._token)
    code, told = run("query", "SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan", "-e", "0.5")
    assert code == 0
    assert "±95%" in told
    assert "charged to visits" in told
    assert "Price" in run("explain", "SELECT COUNT(*) FROM visits", "-e", "0.5")[1]
    assert "no privacy loss given" in run("explain", "SELECT COUNT(*) FROM visits")[1]
    assert run("query", "SELECT COUNT(csot) FROM visits", "-e", "0.5")[0] == 3
    assert "visits" in run("budget")[1]
    assert run("query", "SELECT 1", "--policy", "hie.yaml")[0] == 1
    monkeypatch.setattr("sys.stdin", io.StringIO("\\d visits\nSELECT COUNT(*) AS n FROM visits;\n"))
    code, told = run("shell", "-e", "0.25")
    assert code == 0
    assert "[0, 1000]" in told
    assert "charged to visits" in told
    monkeypatch.delenv("DPSQL_TOKEN")
    assert "DPSQL_TOKEN" in run("budget")[1]


@pytest.mark.parametrize(
    "url",
    [
        "http://192.0.2.1:8439",
        "http://example.org",
        "https://ana:secret@localhost",
        "https://localhost/v1",
        "https://localhost?token=x",
        "https://localhost:99999",
        "https://",
        "https://[::1",
        "https://ho\nst",
    ],
)
def test_an_address_hides_tokens_and_requires_encryption(url: str) -> None:
    with pytest.raises(dpsql.ProgrammingError) as refused:
        dpsql.connect(url, token="dpsql_0_0")
    assert refused.value.code == "address"
    assert "secret" not in str(refused.value)


def test_addresses() -> None:
    assert str(Address.parse("HTTPS://dp.example.org/")) == "https://dp.example.org:8439"
    assert str(Address.parse("http://[::1]:80")) == "http://[::1]:80"


def test_options_of_owners_are_refused_for_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPSQL_TOKEN", raising=False)
    for options in ({"policy": "hie.yaml"}, {"ledger": "x"}, {"analyst": "bob"}, {"reserve": 1}):
        with pytest.raises(dpsql.ProgrammingError):
            dpsql.connect("https://localhost", token="x", **options)  # type: ignore[call-overload]
    for token in (None, "", "a b", "a\r\nX-Other: b", "é"):
        with pytest.raises(dpsql.ProgrammingError) as refused:
            dpsql.connect("https://localhost", token=token)
        assert refused.value.code == "token"
    with pytest.raises(dpsql.ProgrammingError):
        dpsql.connect("clinic.duckdb", policy=clinic.POLICY, token="x")  # type: ignore[call-overload]
    with pytest.raises(dpsql.ProgrammingError):
        dpsql.connect("clinic.duckdb")
    monkeypatch.setenv("DPSQL_TOKEN", "dpsql_of_the_environment")
    assert "dpsql_of" not in repr(dpsql.connect("https://localhost")._transport)


def test_no_server_is_an_error_of_dpsql_s() -> None:
    with dpsql.connect("http://127.0.0.1:1", token="x") as con:
        with pytest.raises(dpsql.OperationalError) as lost:
            con.query("SELECT 1")
        assert (lost.value.code, lost.value.charged) == ("server_unavailable", None)
