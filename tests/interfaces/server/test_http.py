"""The HTTP API: its answers, their formats, and its errors."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import psycopg
import pyarrow
import pytest

from dpsql.interfaces.server.http.api import DOCUMENT, ROUTES
from dpsql.interfaces.server.http.bodies import QueryBody, RecordBody, parse_body
from dpsql.interfaces.server.http.messages import ARROW, parse_json
from dpsql.interfaces.server.limits import Limits

from .conftest import PASSWORD, Serve, Served

GROUPED = "SELECT plan, COUNT(*) AS n, AVG(cost) AS c FROM visits GROUP BY plan ORDER BY plan"


@pytest.fixture(scope="module")
def token(shared: Served) -> str:
    """A token of ana's."""
    return shared.token()


def test_an_answer_has_rows_intervals_cost_and_receipt(shared: Served, token: str) -> None:
    """The same query again returns the same answer at no charge."""
    body = {"sql": GROUPED, "epsilon": 0.5, "confidences": [0.5, 0.95]}
    told = shared.ask("/v1/query", body, token=token)
    assert told.status == 200
    answer = told.json
    assert [column["name"] for column in answer["columns"]] == ["plan", "n", "c"]
    assert [row[0] for row in answer["rows"]] == ["A", "B"]
    narrow, wide = answer["intervals"]
    assert (narrow["confidence"], wide["confidence"]) == (0.5, 0.95)
    for row, inner, outer in zip(answer["rows"], narrow["ends"], wide["ends"], strict=True):
        assert inner[0] is outer[0] is None
        assert outer[1][0] < inner[1][0] <= row[1] <= inner[1][1] < outer[1][1]
    assert answer["receipt"]["entries"]
    assert "charged to visits" in answer["cost"][0]
    again = shared.ask("/v1/query", body, token=token).json
    assert again["rows"] == answer["rows"]
    assert again["receipt"]["entries"] == []
    assert "nothing was charged" in again["cost"][0]
    later = shared.ask(f"/v1/answers/{answer['answer']}/intervals?confidence=0.5", token=token).json
    assert later["ends"] == narrow["ends"]


def test_arrow_stream_has_the_rows_and_metadata(shared: Served, token: str) -> None:
    body = {"sql": GROUPED, "epsilon": 0.5}
    told = shared.ask("/v1/query", body, token=token, headers={"Accept": f"{ARROW}, application/json;q=0.5"})
    assert (told.status, told.headers["content-type"]) == (200, ARROW)
    table = pyarrow.ipc.open_stream(told.body).read_all()
    plain = shared.ask("/v1/query", body, token=token).json
    assert [list(row.values()) for row in table.to_pylist()] == plain["rows"]
    beside = json.loads(table.schema.metadata[b"dpsql"])
    assert beside["intervals"] == plain["intervals"]
    assert beside["columns"] == plain["columns"]


def test_parameters_of_every_type_are_accepted(shared: Served, token: str) -> None:
    """Types that JSON lacks are named beside the value; by position, by name, and in a list."""
    text = "SELECT COUNT(*) AS n FROM visits WHERE days > ? AND plan IN ? AND day >= ? AND cost < ?"
    values = [0, ["A"], {"type": "DATE", "value": "2024-02-01"}, 900.5]
    first = shared.ask("/v1/query", {"sql": text, "parameters": values, "epsilon": 0.1}, token=token)
    named = "SELECT COUNT(*) AS n FROM visits WHERE days > :a AND plan IN :b AND day >= :c AND cost < :d"
    told = {"sql": named, "parameters": dict(zip("abcd", values, strict=True)), "epsilon": 0.1}
    assert shared.ask("/v1/query", told, token=token).json["rows"] == first.json["rows"]
    wrong = {"sql": text, "parameters": [0, ["A"], {"type": "DATE", "value": "soon"}, 1], "epsilon": 0.1}
    refused = shared.ask("/v1/query", wrong, token=token)
    assert (refused.status, refused.code) == (400, "parameter")


def test_plans_prices_and_budgets_are_free(shared: Served, token: str) -> None:
    spent = shared.spent()
    body = {"sql": "SELECT SUM(days) FROM visits", "epsilon": 1}
    told = shared.ask("/v1/explain", body, token=token).json
    assert told["plan"][0] == "Price"
    assert told["receipt"]["explained"]
    price = shared.ask("/v1/price", {"queries": [body["sql"]] * 2, "epsilon": 1}, token=token).json
    assert price["fits"]
    assert [each["quote"] is None for each in price["queries"]] == [False, False, True]
    budgets = {each["name"]: each for each in shared.ask("/v1/budget", token=token).json["budgets"]}
    assert set(budgets) == {"visits", "visits for ana"}
    assert Fraction(budgets["visits for ana"]["spent_epsilon"]) == spent
    assert shared.spent() == spent


def test_the_schema_is_the_policy_s(shared: Served, token: str) -> None:
    told = shared.ask("/v1/catalogue", token=token).json
    visits, wards = sorted(told["tables"], key=lambda table: str(table["name"]))
    columns = {column["name"]: column for column in visits["columns"]}
    assert columns["plan"]["values"] == ["A", "B"]
    assert columns["day"]["bounds"] == ["2024-01-01", "2024-12-31"]
    assert (visits["private"], wards["private"]) == (True, False)
    assert b"secrets" not in shared.ask("/v1/catalogue", token=token).body


def test_history_and_receipts_are_the_caller_s_own(shared: Served, token: str) -> None:
    """Another user's entry gets the same answer as a missing one; auditors see all entries."""
    text = "SELECT COUNT(*) AS only_ana FROM visits WHERE days = 3"
    answer = shared.ask("/v1/query", {"sql": text, "epsilon": 0.1}, token=token).json
    number = min(entry["id"] for entry in answer["receipt"]["entries"])
    own = shared.ask("/v1/history?limit=5", token=token).json["history"]
    assert number in [entry["id"] for entry in own]
    assert own[0]["query"] == text
    receipt = shared.ask(f"/v1/receipts/{number}", token=token).json
    assert [each["digest"] for each in receipt["entries"]] == [
        each["digest"] for each in answer["receipt"]["entries"]
    ]
    bob = shared.token("bob")
    missing = shared.ask("/v1/receipts/999999", token=bob)
    hidden = shared.ask(f"/v1/receipts/{number}", token=bob)
    assert (hidden.status, hidden.body) == (404, missing.body)
    assert b"only_ana" not in shared.ask("/v1/history", token=bob).body
    assert shared.ask(f"/v1/receipts/{number}", token=shared.token("eve")).status == 200
    kept = f"/v1/answers/{answer['answer']}/intervals?confidence=0.9"
    assert shared.ask(kept, token=token).status == 200
    assert shared.ask(kept, token=bob).code == "not_found"


def test_an_auditor_sees_all_budgets_and_runs_no_queries(shared: Served, token: str) -> None:
    eve = shared.token("eve")
    names = {each["name"] for each in shared.ask("/v1/budget?all=1", token=eve).json["budgets"]}
    assert {"visits for ana", "visits for bob"} <= names
    for path, body in (
        ("/v1/query", {"sql": GROUPED, "epsilon": 0.5}),
        ("/v1/combine", {"sql": GROUPED}),
        ("/v1/explain", {"sql": GROUPED, "epsilon": 0.5}),
        ("/v1/price", {"queries": [GROUPED], "epsilon": 0.5}),
    ):
        assert shared.ask(path, body, token=eve).status == 403
    assert shared.ask("/v1/budget?all=1", token=token).status == 403


def test_metrics_have_no_names_or_texts(shared: Served, token: str) -> None:
    """Metrics are for owners and auditors, and have neither names of users nor texts of clients."""
    shared.ask("/v1/query", {"sql": "SELECT nothing_here FROM visits", "epsilon": 1}, token=token)
    shared.ask("/a_path_of_a_client", token=token)
    assert shared.ask("/metrics", token=token).status == 403
    told = shared.ask("/metrics", token=shared.token("eve"))
    text = told.body.decode()
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'dpsql_http_requests_total{route="/v1/query",status="422"}' in text
    assert "dpsql_statements_running 0\n" in text
    for word in ("ana", "nothing_here", "a_path_of_a_client"):
        assert word not in text


def test_metrics_tell_budgets_locks_and_outcomes(shared: Served, token: str) -> None:
    """What an owner sets alerts on: the used share of each budget, locked tables, and statements of both protocols."""
    eve = shared.token("eve")

    def read(name: str) -> float:
        lines = shared.ask("/metrics", token=eve).body.decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " ")), 0.0)

    names = (
        'dpsql_budget_used_ratio{table="visits"}',
        'dpsql_statements_total{door="http",outcome="answered"}',
        'dpsql_statements_total{door="http",outcome="refused"}',
        'dpsql_statement_seconds_bucket{door="http",le="+Inf"}',
        'dpsql_statement_seconds_count{door="http"}',
    )
    before = list(map(read, names))
    shared.ask(
        "/v1/query", {"sql": "SELECT COUNT(*) FROM visits WHERE cost < 12.345", "epsilon": 0.01}, token=token
    )
    shared.ask("/v1/query", {"sql": "SELECT nothing_here FROM visits", "epsilon": 1}, token=token)
    used, answered, refused, every, count = (
        now - then for now, then in zip(map(read, names), before, strict=True)
    )
    assert 0 < used < 0.1
    assert (answered, refused, every, count) == (1, 1, 2, 2)
    assert read('dpsql_table_locked{table="visits"}') == 0


@pytest.fixture
def unslowed(shared: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed logins are answered at once."""
    monkeypatch.setattr(shared.service.failed_logins, "note_failure", lambda _: 0.0)


@pytest.mark.usefixtures("unslowed")
def test_only_health_description_and_logins_need_no_user(shared: Served) -> None:
    assert shared.ask("/health").json == {"status": "ok"}
    assert shared.ask("/v1/openapi.json").json == DOCUMENT
    routes = {route.path for route in shared.door.api.app.routes}  # type: ignore[attr-defined]
    routes -= {"/", "/page/{name}"}  # the page's files, which the API's description leaves out
    assert set(DOCUMENT["paths"]) == routes
    assert shared.ask("/v1/login").json == {"issuer": None}  # what logs in elsewhere is in test_oidc.py
    for path in routes - {"/health", "/v1/openapi.json", "/v1/login", "/v1/login/code"}:
        methods = DOCUMENT["paths"][path]
        method = next(each for each in ("get", "post", "delete") if each in methods).upper()
        assert shared.ask(path, method=method).status == 401


@pytest.mark.usefixtures("unslowed")
def test_a_password_is_accepted_in_place_of_a_token(shared: Served) -> None:
    def basic(text: str) -> dict[str, str]:
        return {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}

    assert shared.ask("/v1/budget", headers=basic(f"ana:{PASSWORD}")).status == 200
    for wrong in (f"ana:{PASSWORD}x", f"nobody:{PASSWORD}", f"Ana:{PASSWORD}", "ana", f":{PASSWORD}"):
        assert shared.ask("/v1/budget", headers=basic(wrong)).status == 401


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"sql": "SELECT COUNT(*)\nFROM visits WHERE cots > 5", "epsilon": 1}, 422, "column"),
        ({"sql": "SELECT COUNT(*) FROM visits"}, 400, "epsilon_missing"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilon": 2.5}, 422, "epsilon_cap"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilon": -1}, 400, "loss"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilon": "1e999999999"}, 400, "loss"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilon": True}, 400, "body"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilon": 1, "seed": 7}, 400, "body"),
        ({"sql": ["SELECT 1"], "epsilon": 1}, 400, "body"),
        ({"sql": "SELECT 1", "confidences": [2]}, 400, "argument"),
        ({"sql": "SELECT 1", "parameters": "x"}, 400, "body"),
        ({"sql": "SELECT COUNT(*) FROM visits", "max_groups": 1.5}, 400, "body"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilon": 1, "dialect": "klingon"}, 400, "dialect"),
        ({"sql": "SELECT COUNT(*) FROM visits", "epsilon": 1, "seconds": 0}, 400, "body"),
        ([], 400, "body"),
    ],
)
def test_an_error_has_code_place_and_charge(
    shared: Served, token: str, body: Any, status: int, code: str
) -> None:
    told = shared.ask("/v1/query", body, token=token)
    error = told.json["error"]
    assert (told.status, error["code"], error["charged"]) == (status, code, False)
    assert error["message"]
    if code == "column":
        assert (error["line"], error["column"], error["hint"]) == (2, 19, "did you mean cost?")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        (lambda ask: ask("/v1/query", b"sql", headers={"Content-Type": "text/plain"}), 415, "media_type"),
        (lambda ask: ask("/v1/query", b"{", headers={}), 400, "body"),
        (
            lambda ask: ask("/v1/query", {"sql": GROUPED}, headers={"Accept": "text/html"}),
            406,
            "not_acceptable",
        ),
        (lambda ask: ask("/v1/query", method="GET"), 405, "method"),
        (lambda ask: ask("/v2/query", {"sql": GROUPED}), 404, "not_found"),
        (lambda ask: ask("/v1/history?limit=0"), 400, "argument"),
        (lambda ask: ask("/v1/history?limit=9999999999999999"), 400, "argument"),
        (lambda ask: ask("/v1/history?limit=000000100999999"), 400, "argument"),
        (lambda ask: ask(f"/v1/history?limit={'9' * 5000}"), 400, "argument"),
        (lambda ask: ask("/v1/receipts/1x"), 404, "not_found"),
        (lambda ask: ask("/v1/answers/x/intervals?confidence=nan"), 400, "argument"),
        (lambda ask: ask("/v1/answers/x/intervals?confidence=0.9"), 404, "not_found"),
    ],
)
def test_invalid_requests_have_their_status(
    shared: Served, token: str, change: Callable[..., Any], status: int, code: str
) -> None:
    def ask(path: str, body: Any = None, **options: Any) -> Any:
        return shared.ask(path, body, token=token, **options)

    told = change(ask)
    assert (told.status, told.code) == (status, code)


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("query", {"sql": 1}, "needs `sql` to be a text of at most 100,000 characters"),
        ("query", {}, "needs `sql` to be a text of at most 100,000 characters"),
        ("query", {"sql": None}, "needs `sql` to be a text of at most 100,000 characters"),
        ("query", {"sql": "x" * 100_001}, "needs `sql` to be a text of at most 100,000 characters"),
        ("query", {"sql": "", "epsilon": [1]}, "needs `epsilon` to be a number or its text"),
        ("query", {"sql": "", "max_groups": True}, "needs `max_groups` to be a whole number"),
        ("query", {"sql": "", "replay": 1}, "needs `replay` to be true or false"),
        ("query", {"sql": "", "dialect": 1}, "needs `dialect` to be a text"),
        ("query", {"sql": "", "seconds": True}, "needs `seconds` to be a number above 0, up to 86,400"),
        ("query", {"sql": "", "seconds": 10**400}, "needs `seconds` to be a number above 0, up to 86,400"),
        ("query", {"sql": "", "confidences": [0.5] * 9}, "needs `confidences` to be a list of at most 8 numbers"),
        ("query", {"sql": "", "parameters": [0] * 1_001}, "needs `parameters` to be a list or object of at most 1,000 values"),
        ("query", {"sql": "", "sqll": None}, "has an unknown name 'sqll'"),
        ("price", {"queries": ["", 5]}, "; `queries[1]` is invalid"),
        ("price", {"queries": ["x" * 60_000] * 2}, "with at most 100,000 characters together"),
        ("price", {"queries": [""] * 101}, "needs `queries` to be a list of at most 100 texts"),
        ("login", {"binder": "x" * 44}, "needs `binder` to be a SHA-256 digest in base64url"),
        ("login", {"binder": "x" * 43 + "\n"}, "needs `binder` to be a SHA-256 digest in base64url"),
        ("login/code", {"state": "", "code": "x", "secret": "x"}, "needs `state` to be a text of 1 to 4,096 characters"),
    ],
)  # fmt: skip
def test_an_invalid_body_is_refused_by_the_name_of_its_key(
    shared: Served, token: str, path: str, body: Any, words: str
) -> None:
    """With dpsql's words: no trace of the library that validates the body."""
    told = shared.ask(f"/v1/{path}", json.dumps(body).encode(), token=token)
    error = told.json["error"]
    assert (told.status, error["code"], error["charged"]) == (400, "body", False)
    assert error["message"].startswith("the body of the request ")
    assert words in error["message"]
    for word in ("pydantic", "validation", "Input should", "Traceback", "xxx"):
        assert word not in str(error)


def test_every_answer_has_the_keys_of_its_description(shared: Served, token: str) -> None:
    """Bodies in the OpenAPI description have the keys of real answers, and their types."""
    shared.ask("/v1/query", {"sql": GROUPED, "epsilon": 0.5}, token=token)
    bodies: dict[str, Any] = {
        "/v1/query": {"sql": GROUPED, "epsilon": 0.5},
        "/v1/combine": {"sql": GROUPED},
        "/v1/explain": {"sql": GROUPED, "epsilon": 0.5},
    }
    answer = shared.ask("/v1/query", bodies["/v1/query"], token=token).json["answer"]
    entry = shared.ask("/v1/history", token=token).json["history"][0]["charge"]
    owner, seen = shared.token("eve"), 0
    for route in ROUTES:
        model = route.answer
        if model in (None, RecordBody) or (route.method != "GET" and route.path not in bodies):
            continue
        path = route.path.replace("{answer}", str(answer)).replace("{entry}", str(entry))
        told = shared.ask(path, bodies.get(route.path), token=token).json
        if "error" in told:
            told = shared.ask(path, bodies.get(route.path), token=owner).json
        assert model is not None
        assert set(told) == set(model.model_fields)
        assert model.model_validate(told, strict=True).model_dump() == told
        seen += 1
    assert seen == 15


def test_the_loss_in_the_text_precedes_the_default(shared: Served, token: str) -> None:
    text = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.125) COUNT(*) FROM visits"
    told = shared.ask("/v1/query", {"sql": text, "default_epsilon": 1}, token=token).json
    assert told["receipt"]["entries"][0]["loss"] == "1/8"
    plain = {"sql": "SELECT COUNT(*) FROM visits", "default_epsilon": "0.25"}
    assert shared.ask("/v1/query", plain, token=token).json["receipt"]["entries"][0]["loss"] == "1/4"


def test_stored_releases_are_combined_free(shared: Served, token: str) -> None:
    for _ in range(2):
        body = {"sql": "SELECT SUM(cost) AS s FROM visits", "epsilon": 0.2, "replay": False}
        shared.ask("/v1/query", body, token=token)
    spent = shared.spent()
    told = shared.ask("/v1/combine", {"sql": "SELECT SUM(cost) AS s FROM visits"}, token=token).json
    assert len(told["receipt"]["replayed"]) >= 2
    assert shared.spent() == spent
    wrong = {"sql": "SELECT SUM(cost) AS s FROM visits", "epsilon": 1}
    assert shared.ask("/v1/combine", wrong, token=token).code == "argument"
    absent = {"sql": "SELECT SUM(cost) AS s FROM visits", "epsilon": None, "replay": None}
    assert shared.ask("/v1/combine", absent, token=token).status == 200


@pytest.mark.parametrize("path", ["query", "combine", "explain", "price"])
def test_half_a_surrogate_pair_in_a_query_is_named(shared: Served, token: str, path: str) -> None:
    sql = "SELECT COUNT(*) AS n FROM visits -- \ud800"
    body: dict[str, Any] = {"queries": [sql]} if path == "price" else {"sql": sql}
    told = shared.ask(f"/v1/{path}", body, token=token)
    assert (told.status, told.code) == (422, "syntax")
    assert "half a surrogate pair" in told.json["error"]["message"]


def test_the_default_loss_of_the_server_may_be_a_fraction(
    shared: Served, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dpsql serve --epsilon 0.01` keeps the loss exactly, as 1/100."""
    monkeypatch.setattr(shared.service, "epsilon", "1/100")
    sql = "SELECT COUNT(*) AS n FROM visits WHERE days > 1"
    for path, body in (("query", {"sql": sql}), ("explain", {"sql": sql}), ("price", {"queries": [sql]})):
        assert shared.ask(f"/v1/{path}", body, token=token).status == 200, path
    with psycopg.connect(shared.dsn(), autocommit=True) as session:
        assert len(session.execute("SELECT COUNT(*) AS n FROM visits WHERE days > 2").fetchall()) == 1


def test_timed_out_query_states_whether_it_was_charged(tmp_path: Path, serve: Serve) -> None:
    """After `seconds` it ends before its charge, or goes on to its answer."""
    with serve(tmp_path, limits=Limits(workers=1)) as served:
        token = served.token()
        body = {"sql": "SELECT COUNT(*) FROM visits", "epsilon": 0.1, "seconds": 0.001}
        told = served.ask("/v1/query", body, token=token)
        assert told.status in (200, 504)
        if told.status == 504:
            assert told.json["error"]["charged"] is False
            assert served.spent() == 0
        assert served.ask("/v1/query", {**body, "seconds": 60}, token=token).status == 200
        assert served.spent() == Fraction(1, 10)


def test_ambiguous_or_deep_json_is_refused() -> None:
    for text in (
        b'{"a": 1, "a": 2}',
        b"NaN",
        b"[-Infinity]",
        b"\xff",
        b"[" * 5_000,
        b"[[[[[[[[[[1]]]]]]]]]]",
    ):
        with pytest.raises(Exception, match="body of the request"):
            parse_json(text)
    assert parse_json(b"[[[[[[1]]]]]]") == [[[[[[1]]]]]]
    with pytest.raises(Exception, match="body of the request"):
        parse_json(b"9" * 10_000)


def test_date_parameters_are_parsed() -> None:
    asked = parse_body(QueryBody, {"sql": "", "parameters": [{"type": "DATE", "value": "2024-01-31"}]})
    assert asked.parameters == [dt.date(2024, 1, 31)]
