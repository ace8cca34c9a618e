"""A policy's text for other data: the same rules, with a database name of their own and without the files of the tables."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import yaml

from dpsql.policy.models import Policy
from dpsql.policy.names import NameMap
from dpsql.policy.tree import parse_yaml


class _Writer(yaml.SafeDumper):
    """Writes decimal numbers digit by digit, as a policy is read."""


def _write_decimal(writer: yaml.SafeDumper, number: Decimal) -> yaml.ScalarNode:
    text = format(number, "f")
    return writer.represent_scalar(f"tag:yaml.org,2002:{'float' if '.' in text else 'int'}", text)


_Writer.add_representer(Decimal, _write_decimal)


def rewrite_policy_text(policy: Path, database: str) -> str:
    """Return the text of a valid policy, for data that a database of this name holds."""
    rules = parse_yaml(policy.read_text(encoding="utf-8-sig"), str(policy)).value
    if not isinstance(rules, dict):
        return ""
    rules["database"] = database
    for table in rules["tables"].values():
        table.pop("source", None)
    return yaml.dump(rules, Dumper=_Writer, sort_keys=False, allow_unicode=True)


def drop_sources(policy: Policy) -> Policy:
    """Return the policy for data that lie elsewhere than in the files of its tables."""
    tables = {name: table.model_copy(update={"source": None}) for name, table in policy.tables.items()}
    return policy.model_copy(update={"tables": NameMap(tables)})
