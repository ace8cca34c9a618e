"""The description of the API for programs, in OpenAPI."""

from __future__ import annotations

from typing import Any

from dpsql.version import VERSION


def _define_text(said: str) -> dict[str, Any]:
    return {"type": "string", "description": said}


def _define_number(said: str) -> dict[str, Any]:
    return {"oneOf": [{"type": "number"}, {"type": "string"}], "description": said}


_PARAMETERS = {
    "description": "Values for `?`, or by name for `:name`; of a type that JSON lacks as"
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
        "default_epsilon": _define_number(
            "The privacy loss where neither `epsilon` nor the text states one."
        ),
        "delta": _define_number("What is spent on choosing group keys."),
        "target_error": _define_number('Instead of a loss: the largest error, as 50 or "5%".'),
        "confidence": _define_number("How often a value keeps to the target error."),
        "max_groups": {"type": "integer", "minimum": 1},
        "dialect": _define_text("duckdb, postgres, spark, snowflake, bigquery or tsql."),
        "replay": {"type": "boolean", "description": "False asks for new noise, and is charged."},
        "confidences": {"type": "array", "items": {"type": "number"}, "maxItems": 8},
        "seconds": {
            "type": "number",
            "description": "After how long the query is cancelled, unless it is charged by then.",
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
        "dialect": _define_text("The SQL of the queries."),
    },
}
_ANSWER = {
    "type": "object",
    "properties": {
        "columns": {"type": "array", "description": "name, type, has_intervals, is_count."},
        "rows": {"type": "array", "items": {"type": "array"}},
        "scales": {"type": "array", "description": "The standard deviation of each cell's noise, or null."},
        "intervals": {"type": "array", "description": "For each confidence the ends of each cell, or null."},
        "notices": {"type": "array", "items": {"type": "string"}},
        "branches": {"type": "array", "items": {"type": "integer"}},
        "receipt": {"type": "object"},
        "cost": {"type": "array", "items": {"type": "string"}},
        "answer": {"type": ["string", "null"], "description": "For intervals at other confidences."},
    },
}
_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "error": _define_text("The class, as in Python."),
                "code": _define_text("For programs; stable."),
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
        "description": "SQL over private data, answered with differential privacy. Exact numbers are texts, as 1/10.",
    },
    "security": [{"token": []}, {"password": []}],
    "components": {
        "securitySchemes": {
            "token": {"type": "http", "scheme": "bearer"},
            "password": {"type": "http", "scheme": "basic"},
        }
    },
    "paths": {
        "/v1/query": _define_post("The private answer to a SELECT, charged.", _QUERY, _ANSWER, arrow=True),
        "/v1/combine": _define_post(
            "The most accurate answer from stored releases, free.", _COMBINE, _ANSWER, arrow=True
        ),
        "/v1/explain": _define_post("The plan, its proofs and its price, free.", _QUERY, {"type": "object"}),
        "/v1/price": _define_post("What queries would cost together, free.", _PRICE, {"type": "object"}),
        "/v1/budget": _define_get(
            "Budgets of tables, and the own at them; all of everybody for auditors.", ("all", "query")
        ),
        "/v1/history": _define_get("The own charges, the newest first.", ("limit", "query")),
        "/v1/receipts/{entry}": _define_get("What the ledger holds of an own charge.", ("entry", "path")),
        "/v1/answers/{answer}/intervals": _define_get(
            "Intervals of a late answer at another confidence, free.",
            ("answer", "path"),
            ("confidence", "query"),
        ),
        "/v1/catalogue": _define_get("Tables, columns, bounds and public values, from the policy."),
        "/v1/words": _define_get("Keywords and functions, for editors."),
        "/v1/login": {
            "get": {
                "summary": "Where one may log in beside passwords and tokens: the issuer of OpenID Connect, or null.",
                "security": [],
                "responses": _define_responses({"type": "object"}),
            },
            "post": {
                "summary": "The address to log in at, for who keeps the secret of which `binder` is the SHA-256 digest, in base64url.",
                "security": [],
                "requestBody": _define_request_body(_define_text_fields("binder")),
                "responses": _define_responses({"type": "object"}),
            },
        },
        "/v1/login/code": {
            "post": {
                "summary": "A session for the state and code that the issuer has sent a browser back with, and the secret.",
                "security": [],
                "requestBody": _define_request_body(_define_text_fields("state", "code", "secret")),
                "responses": _define_responses({"type": "object"}),
            }
        },
        "/v1/session": {
            **_define_get("Who asks."),
            "post": {
                "summary": "A session for a name and password, in place of a token; it ends after hours.",
                "security": [{"password": []}],
                "responses": _define_responses({"type": "object"}),
            },
            "delete": {"summary": "Ends the session.", "responses": _define_responses({"type": "object"})},
        },
        "/v1/entries": _define_get(
            "The ledger's entries, the newest first, for owners and auditors.", ("limit", "query")
        ),
        "/v1/users": _define_get("Users and tokens, without secrets, for owners and auditors."),
        "/v1/statements": _define_get(
            "What runs and who is connected: the own, and of everybody for owners and auditors."
        ),
        "/v1/statements/{pid}": {
            "delete": {
                "summary": "Ends an own statement, and for owners anybody's.",
                "parameters": [{"name": "pid", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": _define_responses({"type": "object"}),
            }
        },
        "/v1/policy": _define_get("The policy that the server answers by, for owners and auditors."),
        "/v1/reload": {
            "post": {
                "summary": "Reads the policy, the data and the users again, for owners.",
                "responses": _define_responses({"type": "object"}),
            }
        },
        "/v1/openapi.json": _define_get("This description.", public=True),
        "/health": _define_get("Whether the server takes queries.", public=True),
        "/metrics": _define_get("Numbers for monitoring, for owners and auditors."),
    },
}
