"""The types of single policy keys: how each is read, written back and described to editors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from dpsql.policy.domain import (
    COLUMN_TYPES,
    MOST_VALUES,
    Bound,
    ColumnType,
    Value,
    parse_bounds,
    parse_number,
    parse_values,
)
from dpsql.policy.engine_types import POLICY_TYPES, VIEW, describe_unread_type, find_policy_type
from dpsql.policy.names import find_name_problem, normalize_name
from dpsql.policy.problem import format_value, make_problem_error, suggest_choice

Accountant = Literal["pure", "basic", "zcdp", "gdp"]
CONVERTING = ("zcdp", "gdp")
"""The accountants whose losses are turned into (ε, δ), for which they need some δ."""
Neighbors = Literal["add_remove", "replace"]
Renewal = Literal["daily", "weekly", "monthly", "yearly"]
Json = dict[str, Any]


class Model(BaseModel):
    """The base of all models of a policy: frozen, without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, revalidate_instances="always")


@dataclass(frozen=True, slots=True, eq=False)
class KeyCodec:
    """A key that `read` alone takes from its raw value, and `write` turns into JSON.

    pydantic's own annotations would keep the type's built-in handling beside ours.
    """

    read: Callable[[object, ValidationInfo], object]
    write: Callable[[Any], object]
    schema: Json

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        writer = core_schema.plain_serializer_function_ser_schema(self.write, when_used="json-unless-none")
        return core_schema.with_info_plain_validator_function(self.read, serialization=writer)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> Json:
        return dict(self.schema)


def _parse_epsilon(value: object, _: ValidationInfo) -> Fraction:
    number = parse_number(value)
    if number <= 0:
        raise make_problem_error("epsilon_range", "must be above 0")
    return number


def _parse_delta(value: object, _: ValidationInfo) -> Fraction:
    number = parse_number(value)
    if not 0 <= number < 1:
        raise make_problem_error("delta_range", "must be at least 0 and below 1")
    return number


def _require_column_name(name: str) -> str:
    wrong = find_name_problem(name, "column", dots=True)
    if wrong:
        raise make_problem_error("bad_name", wrong)
    return name


def _parse_unique_keys(value: object, info: ValidationInfo) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, (list, tuple)):
        raise make_problem_error(
            "unique_shape", "must be a list of keys: column names, or lists of column names"
        )
    keys = [_parse_link_columns([key] if isinstance(key, str) else key, info) for key in value]
    found = tuple(key for key in keys if key is not None)
    if len({frozenset(map(normalize_name, key)) for key in found}) < len(keys):
        raise make_problem_error("unique_shape", "holds a repeated or empty key", hint="delete that key")
    return found


def _to_key_list(value: Any) -> list[Any]:
    return [key[0] if len(key) == 1 else list(key) for key in value]


def _parse_partition(value: object, _: ValidationInfo) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        raise make_problem_error("partition_shape", "must be a column name or a list of column names")
    columns = tuple(map(_require_column_name, names))
    if len(set(map(normalize_name, columns))) < len(columns):
        raise make_problem_error("partition_repeated", "names a column twice", hint="keep one of them")
    return columns


def _to_name_or_list(columns: tuple[str, ...]) -> object:
    return columns[0] if len(columns) == 1 else list(columns)


def _parse_link_columns(value: object, _: ValidationInfo) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(name, str) for name in value):
        raise make_problem_error("link_shape", "must be a list of column names")
    columns = tuple(map(_require_column_name, value))
    if len(set(map(normalize_name, columns))) < len(columns):
        raise make_problem_error("link_shape", "names a column twice", hint="keep one of them")
    return columns


def _parse_reference(value: object, _: ValidationInfo) -> str:
    """Parse `table.column`, `table.[a, b]` for several columns, or a list of single references with the same meaning."""
    if isinstance(value, (list, tuple)):
        return _combine_references(value)
    listed = isinstance(value, str) and ".[" in value  # a schema may stand before the table
    table, _dot, column = (
        (value.rpartition if listed else value.partition)(".[" if listed else ".")
        if isinstance(value, str)
        else ("", "", "")
    )
    column = f"[{column}" if listed else column
    if not isinstance(value, str) or not table.strip() or not column.strip():
        raise make_problem_error("bad_reference", f"must be <table>.<column>, not {value!r}")
    if column.startswith("["):
        names = [name.strip() for name in column[1:].removesuffix("]").split(",")]
        if not column.endswith("]") or not all(names) or any("[" in name or "]" in name for name in names):
            raise make_problem_error("bad_reference", f"must be <table>.[<column>, <column>], not {value!r}")
        return _combine_references([f"{table}.{name}" for name in names])
    return value


def _combine_references(parts: Sequence[object]) -> str:
    """Combine several references to one table into one text."""
    named = [part.partition(".") if isinstance(part, str) else ("", "", "") for part in parts]
    tables, columns = {normalize_name(table) for table, _, _ in named}, [column for _, _, column in named]
    if not named or not all(column.strip() and not set(column) & set("[],") for column in columns):
        raise make_problem_error("bad_reference", "must be a list of references of the form <table>.<column>")
    if len(tables) > 1 or not all(tables):
        raise make_problem_error("bad_reference", "must name columns of a single table")
    if len(set(map(normalize_name, columns))) < len(columns):
        raise make_problem_error("bad_reference", "names a column twice", hint="keep one of them")
    table = named[0][0]
    return f"{table}.{columns[0]}" if len(columns) == 1 else f"{table}.[{', '.join(columns)}]"


def _parse_type_name(value: object, _: ValidationInfo) -> ColumnType:
    """Return the policy's own name for a type, whichever of the engine's names it is given by."""
    if not isinstance(value, str):
        raise make_problem_error(
            "unknown_choice", f"must be one of {', '.join(COLUMN_TYPES)}, not {format_value(value)}"
        )
    found = find_policy_type(value)
    if found is None:
        raise make_problem_error(
            "unknown_choice",
            f"must be one of {', '.join(COLUMN_TYPES)}, not {format_value(value)}",
            hint=_suggest_type(value),
        )
    return found.name


def _suggest_type(value: str) -> str:
    """Return what to write instead of an unknown type name."""
    names = [name for kind in POLICY_TYPES for name in kind.names]
    name = value.partition("(")[0].strip()
    if normalize_name(name) == "enum":
        return "write varchar, and list the members as values"
    if normalize_name(name) in names and "(" in value and ")" not in value:
        return f'put the type in quotes: "{name}(12,2)"; between {{ and }} a comma starts the next key'
    if normalize_name(name) in names and "(" in value:
        return f"write {name}, or give precision and scale as in numeric(12,2)"
    hint = describe_unread_type(value)
    return hint if hint != VIEW else suggest_choice(name, names) or hint


def _parse_bounds(pair: object, info: ValidationInfo) -> tuple[Bound, Bound] | None:
    kind = info.data.get("type")  # absent when the type itself is wrong, which is reported on its own
    return None if pair is None or kind is None else parse_bounds(pair, kind)


def _parse_values(values: object, info: ValidationInfo) -> tuple[Value, ...] | None:
    kind = info.data.get("type")
    return None if values is None or kind is None else parse_values(values, kind)


def _to_json_list(items: tuple[object, ...]) -> list[object]:
    return [item if isinstance(item, (bool, int, float)) else str(item) for item in items]


def to_dict(entries: object) -> object:
    """Return a mapping as the dict that pydantic's strict mode wants; nothing at all is an empty one."""
    return dict(entries) if isinstance(entries, Mapping) else {} if entries is None else entries


_NUMBER_TEXT: Json = {
    "type": "string",
    "pattern": r"^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$|^[0-9]+/[0-9]+$",
}
_POSITIVE: Json = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, _NUMBER_TEXT]}
_BELOW_ONE: Json = {"anyOf": [{"type": "number", "minimum": 0, "exclusiveMaximum": 1}, _NUMBER_TEXT]}
_PAIR: Json = {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": ["number", "string"]}}
_DOMAIN: Json = {
    "type": "array",
    "minItems": 1,
    "maxItems": MOST_VALUES,
    "uniqueItems": True,
    "items": {"type": ["number", "string", "boolean"]},
}
_NAME: Json = {"type": "string", "minLength": 1}

AS_DICT = PlainSerializer(dict)
Epsilon = Annotated[Fraction, KeyCodec(_parse_epsilon, str, _POSITIVE)]
Delta = Annotated[Fraction, KeyCodec(_parse_delta, str, _BELOW_ONE)]
Partition = Annotated[
    tuple[str, ...] | None,
    KeyCodec(
        _parse_partition,
        _to_name_or_list,
        {"anyOf": [_NAME, {"type": "array", "minItems": 1, "items": _NAME}]},
    ),
]
UniqueKeys = Annotated[
    tuple[tuple[str, ...], ...],
    KeyCodec(
        _parse_unique_keys,
        _to_key_list,
        {
            "type": "array",
            "items": {
                "anyOf": [_NAME, {"type": "array", "minItems": 1, "uniqueItems": True, "items": _NAME}]
            },
        },
    ),
]
ColumnName = Annotated[str, AfterValidator(_require_column_name), WithJsonSchema(_NAME)]
_ONE_REFERENCE: Json = {**_NAME, "pattern": r"^[^.]+\..+$"}
Reference = Annotated[
    str,
    KeyCodec(
        _parse_reference,
        str,
        {"anyOf": [_ONE_REFERENCE, {"type": "array", "minItems": 1, "items": _ONE_REFERENCE}]},
    ),
]
LinkColumns = Annotated[
    tuple[str, ...] | None,
    KeyCodec(_parse_link_columns, list, {"type": "array", "minItems": 1, "items": _NAME}),
]
_TYPE_NAMES: Json = {
    "anyOf": [
        {"enum": list(COLUMN_TYPES)},
        {"type": "string", "pattern": r"^[A-Za-z][A-Za-z0-9_ ]*(\([0-9]+( *, *[0-9]+)?\))?$"},
    ]
}
TypeName = Annotated[ColumnType, KeyCodec(_parse_type_name, str, _TYPE_NAMES)]
Bounds = Annotated[tuple[Bound, Bound] | None, KeyCodec(_parse_bounds, _to_json_list, _PAIR)]
Values = Annotated[tuple[Value, ...] | None, KeyCodec(_parse_values, _to_json_list, _DOMAIN)]
Version = Annotated[str, WithJsonSchema({"type": ["string", "number"]})]
