"""The OpenAPI description of the HTTP API."""

from __future__ import annotations

from typing import Any

from dpsql.version import VERSION


def _define_text(said: str) -> dict[str, Any]:
    return {"type": "string", "description": said}


def _define_number(said: str) -> dict[str, Any]:
    return {"oneOf": [{"type": "number"}, {"type": "string"}], "description": said}


_PARAMETERS = {
    "description": "Values for `?`, or by name for `:name`; values of types that JSON lacks are written as"
    ' {"type": "DATE", "value": "2024-01-31"}.',
    "oneOf": [{"type": "array"}, {"type": "object"}],
}
_QUERY = {
    "type": "object",
    "required": ["sql"],
    "additionalProperties": False,
    "properties": {
        "sql": _define_text("One SELECT."),
        "parameters": _PARAMETERS,
        "epsilon": _define_number("The privacy loss of the query."),
        "default_epsilon": _define_number("The privacy loss if neither `epsilon` nor the text states one."),
        "delta": _define_number("The δ that is spent on selecting group keys."),
        "target_error": _define_number(
            'The largest error of a value, such as 50 or "5%", instead of a loss.'
        ),
        "confidence": _define_number("The probability that a value meets the target error."),
        "max_groups": {"type": "integer", "minimum": 1},
        "dialect": _define_text("duckdb, postgres, spark, snowflake, bigquery or tsql."),
        "replay": {"type": "boolean", "description": "False draws new noise, at a charge."},
        "confidences": {"type": "array", "items": {"type": "number"}, "maxItems": 8},
        "seconds": {
            "type": "number",
            "description": "The time after which the query is cancelled unless it is already charged.",
        },
    },
}
_COMBINE = {
    **_QUERY,
    "properties": {
        name: _QUERY["properties"][name]  # type: ignore[index]
        for name in ("sql", "parameters", "max_groups", "dialect", "confidences", "seconds")
    },
}
_PRICE = {
    "type": "object",
    "required": ["queries"],
    "additionalProperties": False,
    "properties": {
        "queries": {"type": "array", "items": {"type": "string"}, "maxItems": 100},
        "epsilon": _define_number("The loss of queries that state none."),
        "dialect": _define_text("The SQL dialect of the queries."),
    },
}
_ANSWER = {
    "type": "object",
    "properties": {
        "columns": {"type": "array", "description": "name, type, has_intervals, is_count."},
        "rows": {"type": "array", "items": {"type": "array"}},
        "scales": {"type": "array", "description": "The standard deviation of each cell's noise, or null."},
        "intervals": {
            "type": "array",
            "description": "For each confidence, the interval of each cell, or null.",
        },
        "notices": {"type": "array", "items": {"type": "string"}},
        "branches": {"type": "array", "items": {"type": "integer"}},
        "receipt": {"type": "object"},
        "cost": {"type": "array", "items": {"type": "string"}},
        "answer": {
            "type": ["string", "null"],
            "description": "The id of the answer, for intervals at other confidences.",
        },
    },
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "error": _define_text("The class of the error in Python."),
                "code": _define_text("A stable code for programs."),
                "message": _define_text("The rule."),
                "hint": {"type": ["string", "null"]},
                "line": {"type": ["integer", "null"]},
                "column": {"type": ["integer", "null"]},
                "charged": {"type": ["boolean", "null"], "description": "Whether the query was charged."},
            },
        }
    },
}


def _define_text_fields(*names: str) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(names),
        "additionalProperties": False,
        "properties": {name: {"type": "string"} for name in names},
    }


def _define_request_body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _define_responses(schema: dict[str, Any], *, arrow: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if arrow:
        content["application/vnd.apache.arrow.stream"] = {}
    return {
        "200": {"description": "The answer.", "content": content},
        "default": {"description": "An error.", "content": {"application/json": {"schema": _ERROR}}},
    }


def _define_post(
    summary: str, asked: dict[str, Any], answer: dict[str, Any], *, arrow: bool = False
) -> dict[str, Any]:
    return {
        "post": {
            "summary": summary,
            "requestBody": _define_request_body(asked),
            "responses": _define_responses(answer, arrow=arrow),
        }
    }


def _define_get(summary: str, *parameters: tuple[str, str], public: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {"summary": summary, "responses": _define_responses({"type": "object"})}
    if parameters:
        found["parameters"] = [
            {"name": name, "in": where, "required": where == "path", "schema": {"type": "string"}}
            for name, where in parameters
        ]
    if public:
        found["security"] = []
    return {"get": found}


DOCUMENT: dict[str, Any] = {
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
        }
    },
    "paths": {
        "/v1/query": _define_post("Answer a SELECT privately and charge it.", _QUERY, _ANSWER, arrow=True),
        "/v1/combine": _define_post(
            "Compute the most accurate answer from stored releases, at no charge.",
            _COMBINE,
            _ANSWER,
            arrow=True,
        ),
        "/v1/explain": _define_post(
            "Show the plan, its proofs and its price, at no charge.", _QUERY, {"type": "object"}
        ),
        "/v1/price": _define_post(
            "Compute the joint charge of queries, at no charge.", _PRICE, {"type": "object"}
        ),
        "/v1/budget": _define_get(
            "List the budgets of tables and the caller's own budgets; all budgets for owners and auditors.",
            ("all", "query"),
        ),
        "/v1/history": _define_get("List the caller's charges, newest first.", ("limit", "query")),
        "/v1/receipts/{entry}": _define_get(
            "Return the ledger's entries of one of the caller's charges.", ("entry", "path")
        ),
        "/v1/answers/{answer}/intervals": _define_get(
            "Compute the intervals of a recent answer at another confidence, at no charge.",
            ("answer", "path"),
            ("confidence", "query"),
        ),
        "/v1/catalogue": _define_get("List tables, columns, bounds and public values, from the policy."),
        "/v1/words": _define_get("List keywords and functions, for editors."),
        "/v1/login": {
            "get": {
                "summary": "Return the OpenID Connect issuer, or null.",
                "security": [],
                "responses": _define_responses({"type": "object"}),
            },
            "post": {
                "summary": "Start a login: return the issuer's login address. `binder` is the SHA-256 digest of the client's secret, in base64url.",
                "security": [],
                "requestBody": _define_request_body(_define_text_fields("binder")),
                "responses": _define_responses({"type": "object"}),
            },
        },
        "/v1/login/code": {
            "post": {
                "summary": "Open a session with the issuer's state and code and the client's secret.",
                "security": [],
                "requestBody": _define_request_body(_define_text_fields("state", "code", "secret")),
                "responses": _define_responses({"type": "object"}),
            }
        },
        "/v1/session": {
            **_define_get("Return the caller."),
            "post": {
                "summary": "Open a session with a name and password, as a substitute for a token; it expires after some hours.",
                "security": [{"password": []}],
                "responses": _define_responses({"type": "object"}),
            },
            "delete": {"summary": "End the session.", "responses": _define_responses({"type": "object"})},
        },
        "/v1/entries": _define_get(
            "List the ledger's entries, newest first, for owners and auditors.", ("limit", "query")
        ),
        "/v1/users": _define_get("List users and tokens, without secrets, for owners and auditors."),
        "/v1/statements": _define_get(
            "List statements and connections: the caller's, and all for owners and auditors."
        ),
        "/v1/statements/{pid}": {
            "delete": {
                "summary": "Stop one of the caller's statements, or any statement for owners.",
                "parameters": [{"name": "pid", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": _define_responses({"type": "object"}),
            }
        },
        "/v1/policy": _define_get("Return the server's policy, for owners and auditors."),
        "/v1/reload": {
            "post": {
                "summary": "Reload the policy, the data and the users, for owners.",
                "responses": _define_responses({"type": "object"}),
            }
        },
        "/v1/openapi.json": _define_get("Return this description.", public=True),
        "/health": _define_get("Return whether the server accepts queries.", public=True),
        "/metrics": _define_get("Return metrics for monitoring, for owners and auditors."),
    },
}
