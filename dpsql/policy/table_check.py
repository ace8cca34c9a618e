"""The constraints between the keys of one table of a policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dpsql.policy.names import find_declared_name, is_row
from dpsql.policy.problem import Problem, suggest_choice

_OF_PRIVATE = (
    "unit",
    "link",
    "links",
    "unique",
    "rows_per_unit",
    "partition",
    "max_groups",
    "max_epsilon",
    "min_frequency",
    "budget",
)
_ROWS_PER_UNIT = "the maximum number of rows per privacy unit, such as 20 (the engine ignores further rows)"


def list_table_problems(given: Mapping[str, object]) -> list[Problem]:
    """Return the problems between the keys of one table; `given` holds its keys as written or as read."""
    public = given.get("public", False)
    if public is True:
        words = "is only valid in a private table, and this table is public"
        return [
            Problem((key,), "public_table", words, "delete this key, or `public`")
            for key in given
            if key in _OF_PRIVATE
        ]
    problems = _list_unit_problems(given) if public is False else []
    columns = given.get("columns", {})
    if isinstance(columns, Mapping):
        problems += _iterate_partition_problems(given.get("partition"), [*map(str, columns)])
        problems += _iterate_unique_problems(given.get("unique"), [*map(str, columns)])
    return problems


def _iterate_partition_problems(partition: object, columns: Sequence[str]) -> Iterator[Problem]:
    listed = isinstance(partition, (list, tuple))
    names: Sequence[object] = partition if isinstance(partition, (list, tuple)) else [partition]
    for place, name in enumerate(names):
        if isinstance(name, str) and find_declared_name(name, columns) is None:
            words = f"no column {name} is declared in this table"
            hint = suggest_choice(name, columns) or "declare it under columns"
            yield Problem(("partition", place) if listed else ("partition",), "unknown_column", words, hint)


def _iterate_unique_problems(unique: object, columns: Sequence[str]) -> Iterator[Problem]:
    keys: Sequence[object] = unique if isinstance(unique, (list, tuple)) else ()
    for place, key in enumerate(keys):
        for name in [key] if isinstance(key, str) else key if isinstance(key, (list, tuple)) else ():
            if isinstance(name, str) and find_declared_name(name, columns) is None:
                words = f"no column {name} is declared in this table"
                hint = suggest_choice(name, columns) or "declare it under columns"
                yield Problem(("unique", place), "unknown_column", words, hint)


def _list_unit_problems(given: Mapping[str, object]) -> list[Problem]:
    unit, rows = given.get("unit"), given.get("rows_per_unit")
    if is_row(unit) and (given.get("link") or given.get("links")):
        key = "link" if given.get("link") else "links"
        words = "is not allowed with `unit: row`: each row is a unit of its own, so a row cannot share a unit"
        hint = "delete the link, or set `unit` to the column with the unit's id"
        return [Problem((key,), "unit_and_link", words, hint)]
    if is_row(unit) and given.get("unique"):
        words = "is not needed with `unit: row`: each row is a unit of its own"
        hint = "delete this key, or set `unit` to the column with the unit's id"
        return [Problem(("unique",), "unit_and_unique", words, hint)]
    if "unit" not in given and "link" not in given:
        hint = (
            "write one of `unit: <column>`, `unit: row`, `link: {column: …, references: …}`, `public: true`"
        )
        return [Problem((), "no_unit", "does not say which privacy unit a row belongs to", hint)]
    if not is_row(unit):
        if "rows_per_unit" in given:
            return []
        return [Problem(("rows_per_unit",), "missing_key", "is missing", f"write {_ROWS_PER_UNIT}")]
    problems = []
    if isinstance(rows, int) and rows != 1:
        hint = "delete the key, or set `unit` to the column with the unit's id"
        words = f"must be 1 with `unit: row`, not {rows}"
        problems.append(Problem(("rows_per_unit",), "rows_of_row", words, hint))
    columns = given.get("columns")
    if isinstance(columns, Mapping) and find_declared_name("row", map(str, columns)):
        words = "`row` means that each row is a unit, but the table also declares a column named row"
        hint = "declare a view that renames the column"
        problems.append(Problem(("unit",), "ambiguous_unit", words, hint))
    return problems
