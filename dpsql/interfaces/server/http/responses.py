"""Responses of the API: JSON, Arrow, and records as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from dpsql.engine.policy_advice import iterate_policy_warnings

if TYPE_CHECKING:
    from dpsql.interfaces.server.tokens import Token
    from dpsql.interfaces.server.users import User
    from dpsql.ledger.protocol import Entry
    from dpsql.policy import Policy
    from dpsql.results.result import Result

JSON = "application/json"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def to_entry_json(entry: Entry) -> dict[str, Any]:
    """Return a charge as its analyst sees it."""
    return {
        "id": entry.id,
        "charge": entry.charge,
        "at": entry.at.isoformat(),
        "table": entry.table,
        "account": entry.account_analyst or None,
        "query": entry.query,
        "loss": str(entry.spend.loss_fraction),
        "delta": str(entry.spend.delta_fraction),
        "box": entry.box,
    }


def to_full_entry_json(entry: Entry) -> dict[str, Any]:
    """Return an entry as owners and auditors see it."""
    return {
        **to_entry_json(entry),
        "kind": entry.kind,
        "analyst": entry.analyst,
        "spent": str(entry.spent.loss_fraction),
        "reason": entry.details.get("reason"),
    }


def write_json(data: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Return data as JSON in ASCII."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode("ascii")


def to_json_response(data: Mapping[str, Any], number: int = 200) -> Response:
    """Return a JSON response."""
    return Response(write_json(data), number, headers=HEADERS, media_type=JSON)


def to_arrow_bytes(result: Result, metadata: Mapping[str, Any]) -> bytes:
    """Return the rows in Arrow's IPC stream format, with everything else as JSON in the schema's metadata, under `dpsql`."""
    import io

    import pyarrow

    table = result.to_arrow_table().replace_schema_metadata({"dpsql": write_json(metadata)})
    out = io.BytesIO()
    with pyarrow.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    return out.getvalue()


def to_statement_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a running statement as JSON."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


def to_user_json(user: User) -> dict[str, Any]:
    """Return a user as owners and auditors see it."""
    return {"name": user.name, "role": user.role.value, "created": user.created.isoformat()}


def to_token_json(token: Token) -> dict[str, Any]:
    """Return an access token as owners and auditors see it, without its secret."""
    return {
        "id": token.id,
        "user": token.user,
        "name": token.label,
        "created": token.created.isoformat(),
        "expires": token.expires.isoformat(),
    }


def to_policy_json(policy: Policy) -> dict[str, Any]:
    """Return a policy as owners and auditors see it, with its digest and the advice on it."""
    return {
        "digest": policy.compute_digest(),
        "advice": list(iterate_policy_warnings(policy)),
        "policy": policy.model_dump(mode="json", exclude_defaults=True),
    }
