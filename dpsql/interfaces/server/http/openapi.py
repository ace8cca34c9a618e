"""The routes of the HTTP API in one table, and the OpenAPI description that follows from it."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from dpsql.interfaces.server.http import queries, resources
from dpsql.interfaces.server.http.bodies import (
    AddressBody,
    AnswerBody,
    BudgetsBody,
    CallerBody,
    CellIntervals,
    CodeBody,
    CombineBody,
    EndedBody,
    EntriesBody,
    ErrorBody,
    ExplanationBody,
    HealthBody,
    HistoryBody,
    IssuerBody,
    LoginBody,
    PolicyBody,
    QueryBody,
    QuoteBody,
    ReceiptBody,
    SessionBody,
    StatementsBody,
    UsersBody,
    WordsBody,
)
from dpsql.interfaces.server.http.calls import Access, ApiCall, ApiRoute
from dpsql.interfaces.server.http.requests import ARROW
from dpsql.interfaces.server.http.responses import to_json_response
from dpsql.version import VERSION


async def get_openapi(_: ApiCall[None]) -> Response:
    """Return this description."""
    return to_json_response(DOCUMENT)


ROUTES = (
    ApiRoute("POST", "/v1/query", queries.answer_query, "Answer a SELECT privately and charge it.",
             QueryBody, AnswerBody, has_arrow=True),
    ApiRoute("POST", "/v1/combine", queries.combine_releases,
             "Compute the most accurate answer from stored releases, at no charge.",
             CombineBody, AnswerBody, has_arrow=True),
    ApiRoute("POST", "/v1/explain", queries.explain_query, "Show the plan, its proofs and its price, at no charge.",
             QueryBody, ExplanationBody),
    ApiRoute("POST", "/v1/price", queries.compute_quote, "Compute the joint charge of queries, at no charge.",
             QuoteBody),
    ApiRoute("GET", "/v1/answers/{answer}/intervals", queries.compute_intervals,
             "Compute the intervals of a recent answer at another confidence, at no charge.",
             answer=CellIntervals, query=("confidence",)),
    ApiRoute("GET", "/v1/budget", resources.list_budgets,
             "List the budgets of tables and the caller's own budgets; all budgets for owners and auditors.",
             answer=BudgetsBody, query=("all",)),
    ApiRoute("GET", "/v1/history", resources.list_history, "List the caller's charges, newest first.",
             answer=HistoryBody, query=("limit",)),
    ApiRoute("GET", "/v1/receipts/{entry}", resources.get_receipt,
             "Return the ledger's entries of one of the caller's charges.", answer=ReceiptBody),
    ApiRoute("GET", "/v1/entries", resources.list_entries,
             "List the ledger's entries, newest first, for owners and auditors.",
             answer=EntriesBody, query=("limit",)),
    ApiRoute("GET", "/v1/catalogue", resources.describe_schema,
             "List tables, columns, bounds and public values, from the policy."),
    ApiRoute("GET", "/v1/words", resources.list_words, "List keywords and functions, for editors.",
             answer=WordsBody),
    ApiRoute("GET", "/v1/login", resources.get_issuer, "Return the OpenID Connect issuer, or null.",
             answer=IssuerBody, access=Access.logins),
    ApiRoute("POST", "/v1/login", resources.begin_issuer_login,
             "Start a login: return the issuer's login address. `binder` is the SHA-256 digest of the client's"
             " secret, in base64url.", LoginBody, AddressBody, access=Access.logins),
    ApiRoute("POST", "/v1/login/code", resources.begin_session_by_code,
             "Open a session with the issuer's state and code and the client's secret.",
             CodeBody, SessionBody, access=Access.logins),
    ApiRoute("POST", "/v1/session", resources.begin_session,
             "Open a session with a name and password, as a substitute for a token; it expires after some hours.",
             answer=SessionBody, access=Access.passwords),
    ApiRoute("GET", "/v1/session", resources.get_session, "Return the caller.", answer=CallerBody),
    ApiRoute("DELETE", "/v1/session", resources.end_session, "End the session.", answer=CallerBody),
    ApiRoute("GET", "/v1/users", resources.list_users,
             "List users and tokens, without secrets, for owners and auditors.", answer=UsersBody),
    ApiRoute("GET", "/v1/statements", resources.list_statements,
             "List statements and connections: the caller's, and all for owners and auditors.",
             answer=StatementsBody),
    ApiRoute("DELETE", "/v1/statements/{pid}", resources.stop_statement,
             "Stop one of the caller's statements, or any statement for owners.", answer=EndedBody),
    ApiRoute("GET", "/v1/policy", resources.get_policy, "Return the server's policy, for owners and auditors.",
             answer=PolicyBody),
    ApiRoute("POST", "/v1/reload", resources.reload_policy, "Reload the policy, the data and the users, for owners.",
             answer=PolicyBody),
    ApiRoute("GET", "/metrics", resources.render_metrics, "Return metrics for monitoring, for owners and auditors.",
             answer=None),
    ApiRoute("GET", "/health", resources.get_health, "Return whether the server accepts queries.",
             answer=HealthBody, access=Access.everybody),
    ApiRoute("GET", "/v1/openapi.json", get_openapi, "Return this description.", access=Access.everybody),
)  # fmt: skip
"""Every request that programs send; the web page has its own files besides."""


def build_document() -> dict[str, Any]:
    """Return the OpenAPI description of the routes, with the JSON schemas of their bodies."""
    models: set[type[BaseModel]] = {ErrorBody}
    models |= {route.body for route in ROUTES if route.body is not None}
    models |= {route.answer for route in ROUTES if route.answer is not None}
    _, definitions = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_route(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dpsql",
            "version": VERSION,
            "description": "SQL over private data, answered with differential privacy. Exact numbers are strings, such as 1/10.",
        },
        "security": [{"token": []}, {"password": []}],
        "components": {
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
            "schemas": definitions["$defs"],
        },
        "paths": paths,
    }


def _describe_route(route: ApiRoute) -> dict[str, Any]:
    names = [
        *((name, "path") for name in re.findall(r"{(\w+)}", route.path)),
        *((name, "query") for name in route.query),
    ]
    found: dict[str, Any] = {"summary": route.summary}
    if names:
        found["parameters"] = [
            {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
            for name, place in names
        ]
    if route.access in (Access.everybody, Access.logins):
        found["security"] = []
    elif route.access is Access.passwords:
        found["security"] = [{"password": []}]
    if route.body is not None:
        found["requestBody"] = {"required": True, "content": _describe_json(route.body)}
    content = {"text/plain": {}} if route.answer is None else _describe_json(route.answer)
    if route.has_arrow:
        content[ARROW] = {}
    return {
        **found,
        "responses": {
            "200": {"description": "The answer.", "content": content},
            "default": {"description": "An error.", "content": _describe_json(ErrorBody)},
        },
    }


def _describe_json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


DOCUMENT = build_document()
