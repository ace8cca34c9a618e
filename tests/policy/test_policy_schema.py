"""The generated JSON schema is up to date and describes every key."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dpsql.policy import build_json_schema

ROOT = Path(__file__).parents[2]
FILE = ROOT / "grammars" / "policy.schema.json"


def test_schema_file_matches_the_models() -> None:
    """grammars/policy.schema.json is the output of `python -m dpsql.policy`."""
    done = subprocess.run(
        [sys.executable, "-m", "dpsql.policy"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout == FILE.read_text(encoding="utf-8"), (
        "run python -m dpsql.policy > grammars/policy.schema.json"
    )
    assert json.loads(done.stdout) == build_json_schema()


def test_every_key_is_described_and_no_other_allowed() -> None:
    """Each object lists its keys with a description and refuses further ones."""
    schema = build_json_schema()
    objects: list[dict[str, Any]] = [schema, *schema["$defs"].values()]
    assert len(objects) == 8
    for found in objects:
        assert found["additionalProperties"] is False
        assert all(key.get("description") for key in found["properties"].values())
