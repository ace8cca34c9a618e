"""Print the JSON schema of a policy: `python -m dpsql.policy > grammars/policy.schema.json`."""

from __future__ import annotations

import json
import sys

from dpsql.policy.models import build_json_schema

sys.stdout.write(json.dumps(build_json_schema(), indent=2, sort_keys=True) + "\n")
