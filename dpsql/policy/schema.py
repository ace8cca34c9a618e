"""The JSON schema of a policy file, for editors that complete and check YAML."""

from __future__ import annotations

from typing import Any

from dpsql.policy.models import Policy


def build_json_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of a policy.

    It knows keys, types and ranges; what spans keys is checked by `load` alone.
    """
    schema = Policy.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "dpsql policy"}
