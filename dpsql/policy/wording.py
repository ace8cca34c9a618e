"""Translation of pydantic's messages into the words of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from dpsql.policy.models import Policy
from dpsql.policy.problem import KeyPath, Problem, format_value, suggest_choice
from dpsql.policy.tables import BudgetOverride, BudgetSpec, Column, Link, Table

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

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
