"""Table metadata of other tools as decisions of a policy: dbt's `schema.yml`, and the metadata of SmartNoise SQL.

What they do not say stays undecided, so nothing is taken for granted that its owner has not written. From dbt: `meta.dpsql` of
a model or column, with the keys of a policy, and the tests `not_null`, `accepted_values` and `relationships`. From SmartNoise:
`private_id`, `row_privacy`, `max_ids`, `lower`, `upper` and `nullable`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from dpsql.errors import PolicyError
from dpsql.policy.names import normalize_name
from dpsql.policy.skeleton import ColumnDecision, Decisions, ForeignKey, TableDecision, TableKeys

_DBT = ("models", "sources", "seeds", "snapshots")
_TABLE_KEYS = frozenset({"unit", "rows_per_unit", "public", "link"})
_COLUMN_KEYS = frozenset({"bounds", "values", "nullable", "omit"})
_NOT_COLUMNS = frozenset(
    [
        "rows",
        "rows_exact",
        "row_privacy",
        "max_ids",
        "sample_max_ids",
        "clamp_counts",
        "clamp_columns",
        "use_dpsu",
        "censor_dims",
    ]
)
_REFERENCE = re.compile(r"(?:ref|source)\(\s*(?:['\"][^'\"]*['\"]\s*,\s*)*['\"]([^'\"]+)['\"]\s*\)")
_DEFAULT_SCHEMAS = frozenset({"", "main", "public", "dbo"})


def parse_metadata(text: str, name: str) -> tuple[Decisions, Mapping[str, TableKeys]]:
    """Return the decisions in the YAML `text` of a file of this name, and the foreign keys in dbt's relationship tests.

    Raises PolicyError (`metadata`) for a file of neither dbt nor SmartNoise.
    """
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        raise PolicyError(f"the metadata file {name} is not valid YAML", code="metadata") from None
    if not isinstance(found, Mapping):
        raise _make_metadata_error(name, "its top level must be a mapping of keys")
    if any(key in found for key in _DBT):
        return _parse_dbt(found, name)
    return _parse_smartnoise(found, name), {}


def _make_metadata_error(name: str, why: str) -> PolicyError:
    return PolicyError(
        f"the metadata file {name} cannot be used: {why}",
        code="metadata",
        hint="pass a dbt schema.yml with models or sources, or SmartNoise SQL metadata (collection, schema, table, columns)",
    )


def _parse_dbt(found: Mapping[str, Any], name: str) -> tuple[Decisions, Mapping[str, TableKeys]]:
    tables: dict[str, TableDecision] = {}
    keys: dict[str, TableKeys] = {}
    for node in _iterate_dbt_nodes(found):
        table = str(node.get("identifier") or node.get("alias") or node.get("name", ""))
        own = _get_dpsql_meta(node, name, table, _TABLE_KEYS)
        columns, foreign = {}, []
        for column in _list_mappings(node.get("columns")):
            title = str(column.get("name", ""))
            columns[normalize_name(title)], references = _parse_dbt_column(column, name, f"{table}.{title}")
            foreign += [ForeignKey((title,), *reference) for reference in references]
        unit, rows, link = own.get("unit"), own.get("rows_per_unit"), own.get("link")
        tables[normalize_name(table)] = TableDecision(
            unit=None if unit is None else str(unit),
            link=None if link is None else _parse_link(link, name, table),
            public=own.get("public") is True,
            rows_per_unit=_parse_rows_per_unit(rows, name, table),
            columns=columns,
        )
        keys[normalize_name(table)] = TableKeys(foreign=tuple(foreign))
    return Decisions(tables=tables), keys


def _iterate_dbt_nodes(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for kind in _DBT:
        for node in _list_mappings(found.get(kind)):
            yield from _list_mappings(node.get("tables")) if kind == "sources" else [node]


def _list_mappings(items: Any) -> list[Mapping[str, Any]]:
    return [item for item in items or () if isinstance(item, Mapping)] if isinstance(items, list) else []


def _get_dpsql_meta(
    node: Mapping[str, Any], name: str, whose: str, known: frozenset[str]
) -> Mapping[str, Any]:
    """Return `meta.dpsql`, which newer versions of dbt put below `config`."""
    config = node.get("config")
    for place in (node.get("meta"), config.get("meta") if isinstance(config, Mapping) else None):
        if isinstance(place, Mapping) and (own := place.get("dpsql")) is not None:
            if not isinstance(own, Mapping) or set(own) - known:
                raise _make_metadata_error(
                    name, f"meta.dpsql of {whose} may only have the keys {', '.join(sorted(known))}"
                )
            return own
    return {}


def _parse_dbt_column(
    column: Mapping[str, Any], name: str, whose: str
) -> tuple[ColumnDecision, list[tuple[str, tuple[str, ...]]]]:
    own = _get_dpsql_meta(column, name, whose, _COLUMN_KEYS)
    values, nullable = own.get("values"), own.get("nullable")
    references: list[tuple[str, tuple[str, ...]]] = []
    for test in [*(column.get("data_tests") or ()), *(column.get("tests") or ())]:
        if test == "not_null" and nullable is None:
            nullable = False
        for title, given in test.items() if isinstance(test, Mapping) else ():
            said = given.get("arguments", given) if isinstance(given, Mapping) else {}
            if title == "not_null" and nullable is None and not _is_partial(given):
                nullable = False
            if title == "accepted_values" and values is None and not _is_partial(given):
                values = said.get("values")
            if title == "relationships" and (to := _REFERENCE.fullmatch(str(said.get("to", "")).strip())):
                references.append((to[1], (str(said.get("field", "")),)))
    if values is not None and not isinstance(values, list):
        raise _make_metadata_error(name, f"the values of {whose} must be a list")
    decided = ColumnDecision(
        bounds=_parse_bounds(own.get("bounds"), name, whose),
        values=None if values is None else tuple(values),
        nullable=nullable if isinstance(nullable, bool) else None,
        omitted=own.get("omit") is True,
    )
    return decided, references


def _is_partial(given: Any) -> bool:
    """Return whether a test is of some rows only, or warns alone."""
    config = given.get("config") if isinstance(given, Mapping) else None
    places = [given, config if isinstance(config, Mapping) else {}]
    return any(
        isinstance(place, Mapping) and ("where" in place or str(place.get("severity", "")).lower() == "warn")
        for place in places
    )


def _parse_link(link: Any, name: str, table: str) -> ForeignKey:
    words = link if isinstance(link, Mapping) else {}
    to, _dot, column = str(words.get("references", "")).rpartition(".")
    if not to or not column or not words.get("column"):
        raise _make_metadata_error(
            name, f"the link of {table} must be {{column: …, references: table.column}}"
        )
    return ForeignKey((str(words["column"]),), to, (column,))


def _parse_bounds(bounds: Any, name: str, whose: str) -> tuple[Any, Any] | None:
    if bounds is None:
        return None
    if not isinstance(bounds, list) or len(bounds) != 2:
        raise _make_metadata_error(name, f"the bounds of {whose} must be [lower, upper]")
    return bounds[0], bounds[1]


def _parse_rows_per_unit(rows: Any, name: str, table: str) -> int | None:
    if rows is not None and (not isinstance(rows, int) or isinstance(rows, bool) or rows < 1):
        raise _make_metadata_error(name, f"the rows per unit of {table} must be a whole number of at least 1")
    return rows


def _parse_smartnoise(found: Mapping[str, Any], name: str) -> Decisions:
    collections = [value for key, value in found.items() if key != "engine"]
    if len(collections) != 1 or not isinstance(collections[0], Mapping):
        raise _make_metadata_error(name, "it must hold exactly one collection of schemas")
    tables: dict[str, TableDecision] = {}
    for schema, members in collections[0].items():
        if not isinstance(members, Mapping) or not all(isinstance(own, Mapping) for own in members.values()):
            raise _make_metadata_error(name, f"the schema {schema} must be a mapping of tables")
        for table, own in members.items():
            decided = _parse_smartnoise_table(own, name, str(table))
            tables[normalize_name(f"{schema}.{table}")] = decided
            if str(schema).lower() in _DEFAULT_SCHEMAS or str(schema).lower() == str(table).lower():
                tables[normalize_name(str(table))] = decided
    return Decisions(tables=tables)


def _parse_smartnoise_table(own: Mapping[str, Any], name: str, table: str) -> TableDecision:
    columns, unit = {}, None
    for column, spec in own.items():
        if column in _NOT_COLUMNS:
            continue
        if not isinstance(spec, Mapping):
            raise _make_metadata_error(name, f"the column {table}.{column} must be a mapping of keys")
        if spec.get("private_id") is True:
            unit = str(column)
        low, high = spec.get("lower"), spec.get("upper")
        columns[normalize_name(str(column))] = ColumnDecision(
            bounds=None if low is None or high is None else (low, high),
            nullable=False if spec.get("nullable") is False else None,
        )
    if own.get("row_privacy") is True:
        unit = "row"
    return TableDecision(
        unit=unit, rows_per_unit=_parse_rows_per_unit(own.get("max_ids"), name, table), columns=columns
    )
