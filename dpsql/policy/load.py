"""Loading a policy from a file, a text, a dict or models; every problem is one `PolicyError`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from dpsql.errors import PolicyError
from dpsql.policy.models import Policy, list_policy_problems
from dpsql.policy.names import normalize_name
from dpsql.policy.problem import (
    KeyPath,
    PolicySource,
    Problem,
    format_value,
    list_name_problems,
    make_policy_error,
    suggest_choice,
)
from dpsql.policy.tables import BudgetOverride, BudgetSpec, Column, Link, Table, list_table_problems
from dpsql.policy.tree import DEEPEST, parse_yaml

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


# Translation of pydantic's messages into the words of a policy.


_WANTED = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "dict_type": "a mapping of keys",
    "mapping_type": "a mapping of keys",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
}
_LIMITS = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}
_OTHER_NAMES = {
    "int": "integer", "bigint": "integer", "smallint": "integer", "number": "double", "float": "double",
    "real": "double", "decimal": "double", "numeric": "double", "string": "varchar", "text": "varchar",
    "str": "varchar", "char": "varchar", "bool": "boolean", "datetime": "timestamp", "day": "date",
    "unbounded": "add_remove", "bounded": "replace", "rho": "zcdp", "epsilon": "pure", "mu": "gdp",
}  # fmt: skip
_FOLLOWS = ("default_factory_not_called",)  # follows from an error of another key
_OF_KEY = "[key]"  # pydantic's last step to a key that is wrong itself


def list_validation_problems(error: ValidationError) -> list[Problem]:
    """Return all problems that the validation of a Policy found."""
    return [
        problem for details in error.errors(include_url=False) for problem in _list_detail_problems(details)
    ]


def _list_detail_problems(details: ErrorDetails) -> list[Problem]:
    path, kind, context = details["loc"], details["type"], details.get("ctx", {})
    if kind in _FOLLOWS:
        return []
    if kind == "policy":
        return [problem.with_parents(*path) for problem in context["problems"]]
    if kind == "string_type" and path[-1] == _OF_KEY:
        kind, path = "invalid_key", path[:-1]
    if kind == "invalid_key":
        return [
            Problem(
                (*path[:-1], str(path[-1])), "bad_name", f"a key must be text, not {format_value(path[-1])}"
            )
        ]
    return [_make_problem(kind, path, context, details["input"], details["msg"])]


def _make_problem(
    kind: str, path: KeyPath, context: Mapping[str, object], value: object, words: str
) -> Problem:
    if kind == "missing":
        return Problem(path, "missing_key", "is missing", _find_key_description(path))
    if kind == "extra_forbidden":
        return _make_unknown_key_problem(path)
    if kind in _WANTED:
        return Problem(
            path,
            "wrong_type",
            f"must be {_WANTED[kind]}, not {_describe_value(value)}",
            _find_key_description(path),
        )
    if kind in _LIMITS:
        side, limit = _LIMITS[kind]
        return Problem(
            path,
            "out_of_range",
            f"must be {side} {context[limit]}, not {format_value(value)}",
            _find_key_description(path),
        )
    if kind == "literal_error":
        return _make_choice_problem(path, str(context["expected"]), value)
    return Problem(path, "invalid", words)


def _make_unknown_key_problem(path: KeyPath) -> Problem:
    keys = _get_key_descriptions(path[:-1])
    hint = suggest_choice(str(path[-1]), keys) or f"the valid keys here are {', '.join(keys)}"
    return Problem(path, "unknown_key", "is not a valid key here", hint)


def _make_choice_problem(path: KeyPath, expected: str, value: object) -> Problem:
    choices = expected.replace("'", "").replace(" or ", ", ").split(", ")
    hint = None
    if isinstance(value, str):
        other = _OTHER_NAMES.get(value.lower())
        hint = f"did you mean {other}?" if other in choices else suggest_choice(value, choices)
    words = f"must be one of {', '.join(choices)}, not {format_value(value)}"
    return Problem(path, "unknown_choice", words, hint)


def _describe_value(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, str):
        return f"the text {format_value(value)}"
    if isinstance(value, (int, float, Decimal)):
        return f"the number {format_value(value)}"
    return (
        "a mapping"
        if isinstance(value, Mapping)
        else "a list"
        if isinstance(value, list)
        else format_value(type(value))
    )


def _find_key_description(path: KeyPath) -> str | None:
    """Return the description of the key at `path`, from the models."""
    field = _get_key_descriptions(path[:-1]).get(str(path[-1])) if path else None
    return field or None


def _get_key_descriptions(path: KeyPath) -> dict[str, str]:
    """Return the keys allowed below `path`, each with its description."""
    model = _find_model(path)
    return (
        {} if model is None else {key: field.description or "" for key, field in model.model_fields.items()}
    )


def _find_model(path: KeyPath) -> type[BaseModel] | None:
    match path:
        case ():
            return Policy
        case ("budget",):
            return BudgetSpec
        case ("tables", _):
            return Table
        case ("tables", _, "link") | ("tables", _, "links", _):
            return Link
        case ("tables", _, "budget"):
            return BudgetOverride
        case ("tables", _, "columns", _):
            return Column
    return None


LARGEST_FILE = 1_000_000  # bytes
_PLACEHOLDER = re.compile(r"\bTODO\b")


def load(source: str | PathLike[str] | Mapping[str, object] | Policy) -> Policy:
    """Load a policy.

    Args:
        source: The path of a YAML file, a YAML text (a str with a newline), a dict or a Policy. A Policy is validated
            again, so that the rules also hold for a changed copy.

    Returns:
        The valid policy.

    Raises:
        PolicyError: With every problem of the policy, each with file, line and key; `code` and `position` are those of
            the first one.

    >>> load({"version": 1, "privacy_unit": "person", "budget": {"epsilon": 0.1},
    ...       "tables": {"people": {"unit": "row"}}}).budget.epsilon
    Fraction(1, 10)
    """
    if isinstance(source, Policy):
        return _validate_policy(_dump_policy(source), PolicySource("policy"), ())
    if isinstance(source, Mapping):
        return _validate_policy(_to_plain_dicts(source, 0), PolicySource("policy"), ())
    if isinstance(source, str) and "\n" in source:
        return _parse_policy(source.encode("utf-8", "surrogatepass"), "policy text")
    if isinstance(source, (str, PathLike)):
        name = fspath(source)
        return _parse_policy(_read_file(name), name)
    raise PolicyError(
        f"a policy must be a file path, a YAML text, a dict or a Policy, not {type(source).__name__}",
        code="policy_source",
    )


def _dump_policy(policy: Policy) -> object:
    try:
        return policy.model_dump(warnings=False, exclude_unset=True)
    except (AttributeError, TypeError, ValueError):  # only after model_construct or model_copy
        raise PolicyError(
            "policy: this Policy object was built without validation",
            code="policy_source",
            hint="build it with Policy(…) or dpsql.policy.load, not with model_construct or model_copy",
        ) from None


def _to_plain_dicts(value: object, depth: int) -> object:
    """Convert mappings of any kind to dicts, as deep as a policy goes."""
    if not isinstance(value, Mapping) or depth > DEEPEST:
        return value
    return {key: _to_plain_dicts(part, depth + 1) for key, part in value.items()}


def _read_file(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            return file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        hint = "write one with `dpsql init`, or pass the policy itself as a dict or as a YAML text of several lines"
        raise PolicyError(
            f"the policy file {name} does not exist", code="policy_missing", hint=hint
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise PolicyError(f"{name}: cannot be read: {reason}", code="policy_unreadable") from None


def _parse_policy(data: bytes, name: str) -> Policy:
    if len(data) > LARGEST_FILE:
        raise PolicyError(f"{name}: is larger than {LARGEST_FILE:,} bytes", code="policy_size")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{name}, line {line}: is not UTF-8 text", code="policy_unreadable") from None
    tree = parse_yaml(text, name)
    if tree.value is None:
        raise PolicyError(f"{name}: the policy is empty", code="policy_empty")
    return _validate_policy(tree.value, tree.source, tree.problems)


def _validate_policy(value: object, source: PolicySource, found: tuple[Problem, ...]) -> Policy:
    """Return the policy in `value`; raise all problems, without those that only follow from the problems `found` before."""
    found = (*found, *_iterate_placeholder_problems(value, ()))
    policy: Policy | None = None
    problems: list[Problem] = []
    try:
        policy = Policy.model_validate(value)
    except ValidationError as error:
        problems = [*list_validation_problems(error), *_iterate_cross_key_problems(value)]
    blamed = {problem.path for problem in found}
    holders = {path[:-1] for path in blamed}
    rest = [p for p in problems if p.path not in holders and not _is_within(p.path, blamed)]
    if policy is None or found:
        raise make_policy_error(source, [*found, *rest]) from None
    return policy


def _is_within(path: KeyPath, others: set[KeyPath]) -> bool:
    return any(path[:end] in others for end in range(len(path) + 1))


def _iterate_cross_key_problems(value: object) -> Iterator[Problem]:
    """Yield the problems that `dpsql.policy.models` finds in a policy whose models could not all be built."""
    raw = value.get("tables") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(raw, Mapping):
        return
    for found in list_name_problems(raw, "table", dots=False):
        yield found.with_parents("tables")
    tables: dict[str, Table | None] = {}
    for name, entry in raw.items():
        if not isinstance(name, str) or not isinstance(entry, Mapping):
            continue
        columns = entry.get("columns")
        if isinstance(columns, Mapping):
            yield from (
                found.with_parents("tables", name, "columns")
                for found in list_name_problems(columns, "column", dots=True)
            )
        given = {key: part for key, part in entry.items() if isinstance(key, str) and part is not None}
        yield from (found.with_parents("tables", name) for found in list_table_problems(given))
        tables[name] = _parse_table(entry)
    try:
        tables = {
            name: table and table.resolve_links(frozenset(map(normalize_name, tables)))
            for name, table in tables.items()
        }
    except PydanticCustomError:
        return  # the models report it
    yield from list_policy_problems(_parse_budget(value.get("budget")), tables)


def _parse_table(entry: object) -> Table | None:
    try:
        return Table.model_validate(entry)
    except ValidationError:
        return None


def _parse_budget(entry: object) -> BudgetSpec | None:
    try:
        return BudgetSpec.model_validate(entry)
    except ValidationError:
        return None


def _iterate_placeholder_problems(value: object, path: KeyPath) -> Iterator[Problem]:
    """Yield the keys of a skeleton that still hold TODO, except public values."""
    if isinstance(value, str) and _PLACEHOLDER.search(value):
        yield Problem(path, "todo", "still holds TODO: replace it as the comments in the file explain")
    elif isinstance(value, Mapping) and len(path) <= DEEPEST:
        for key, part in value.items():
            yield from _iterate_placeholder_problems(part, (*path, str(key)))
    elif isinstance(value, (list, tuple)) and path[-1:] != ("values",):
        for place, part in enumerate(value):
            if isinstance(part, str):
                yield from _iterate_placeholder_problems(part, (*path, place))
