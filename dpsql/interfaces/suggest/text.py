"""A policy's text with bounds and values of columns written into it; comments, order and layout stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from fractions import Fraction
from typing import Any

import yaml

from dpsql.errors import PolicyError
from dpsql.policy import Policy, load, normalize_name
from dpsql.policy.domain import format_number
from dpsql.policy.skeleton import quote_yaml

Keys = Mapping[str | None, Mapping[str, Sequence[Any] | int]]
"""The wanted value of each key by column; keys of the table itself are under None."""


def with_keys(text: str, table: str, columns: Keys, remarks: Iterable[str] = ()) -> str:
    """Return the policy's text with these keys of the table's columns, or of the table itself; `remarks` are comments before it.

    Raises PolicyError (`not_edited`) if the layout of the text does not allow to change these keys and nothing else.
    """
    before = load(text + "\n")
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    whole = _get_node(_get_node(root, "tables"), table)
    edits = [
        edit
        for column, keys in columns.items()
        for key, found in keys.items()
        for edit in _iterate_edits(
            text,
            whole if column is None else _get_node(_get_node(whole, "columns"), column),
            key,
            str(found) if isinstance(found, int) else format_yaml_list(found),
        )
    ]
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    text = "".join(f"# {remark}\n" for remark in remarks) + text
    if not _has_only_wanted_changes(load(text), before, table, columns):
        raise PolicyError(
            "the layout of the policy's file cannot be edited automatically",
            code="not_edited",
            hint="write each column on a line of its own: cost: {type: double}",
        )
    return text


def format_yaml_list(values: Sequence[Any]) -> str:
    """Format bounds or values as a list in YAML."""
    return f"[{', '.join(map(_format_yaml_scalar, values))}]"


def _format_yaml_scalar(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Fraction():
            return format_number(value)
        case int():
            return str(value)
        case float():
            return format_number(Fraction(value))
        case datetime():
            return quote_yaml(value.isoformat(" "))
        case date():
            return value.isoformat()
    return quote_yaml(str(value))


def _get_node(node: Any, name: str) -> Any:
    """Return the node of a key, which may be written in another case."""
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    for key, value in pairs:
        if normalize_name(str(key.value)) == normalize_name(name):
            return value
    raise PolicyError(f"the policy's file has no key {name}", code="not_edited")


def _iterate_edits(text: str, node: Any, key: str, new: str) -> Iterable[tuple[int, int, str]]:
    """Yield the start and end of the text to replace, and the new text, for a key of a mapping."""
    for known, value in node.value:
        if known.value == key:
            start, end = value.start_mark.index, value.end_mark.index
            yield start, start + len(text[start:end].rstrip()), new
            return
    if node.flow_style:
        close = node.end_mark.index - 1
        last = node.value[-1][1].end_mark.index if node.value else close
        yield last, last, f"{', ' if node.value else ''}{key}: {new}"
    else:
        first = node.value[0][0].start_mark
        yield first.index, first.index, f"{key}: {new}\n{' ' * first.column}"


def _has_only_wanted_changes(after: Policy, before: Policy, table: str, columns: Keys) -> bool:
    """Return whether two policies differ only in these keys of the columns, and the new ones have the wanted values."""
    old, new = before.find_table(table), after.find_table(table)
    if old is None or new is None or list(old.columns) != list(new.columns):
        return False
    for name, keys in columns.items():
        spec = new if name is None else new.columns[name]
        for key, found in keys.items():
            held = getattr(spec, key)
            if (held if isinstance(found, int) else tuple(held or ())) != (
                found if isinstance(found, int) else tuple(found)
            ):
                return False

    def dump_other_keys(policy: Policy) -> Any:
        dumped = policy.model_dump(mode="json", exclude_unset=True)
        for known, own in dumped["tables"].items():
            if normalize_name(known) == normalize_name(table):
                for name, keys in columns.items():
                    for key in keys:
                        (own if name is None else own["columns"][name]).pop(key, None)
        return dumped

    return bool(dump_other_keys(after) == dump_other_keys(before))
