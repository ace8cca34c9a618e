"""A policy skeleton for a new user to fill in, written from a database's schema alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml
from pydantic_core import PydanticCustomError

from dpsql.errors import PolicyError
from dpsql.policy.check_constraints import ColumnConstraint, parse_constraints
from dpsql.policy.domain import (
    MOST_VALUES,
    Bound,
    ColumnType,
    Value,
    format_number,
    parse_bounds,
    parse_values,
)
from dpsql.policy.engine_types import (
    find_policy_type,
    parse_element_type,
    parse_enum_members,
    parse_struct_fields,
)
from dpsql.policy.models import Policy
from dpsql.policy.names import NameMap, find_name_problem, is_row, normalize_name
from dpsql.policy.readings import FileReading, ReadingProposal
from dpsql.policy.tree import parse_yaml

# The decisions of an owner, or of another tool's metadata, for a policy that is still to be written.


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """Columns that refer to those of another table, in order."""

    columns: tuple[str, ...]
    table: str
    references: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.columns)} refers to {self.table}.{', '.join(self.references)}"


@dataclass(frozen=True, slots=True)
class TableKeys:
    """The keys that a schema declares for a table."""

    primary: tuple[str, ...] = ()
    foreign: tuple[ForeignKey, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnDecision:
    """The decisions for a column: bounds or values as in YAML, whether NULL may occur (None: undecided), whether it is `omitted`.

    A `type` replaces the one that was guessed from the texts of a file.
    """

    type: ColumnType | None = None
    bounds: tuple[Any, Any] | None = None
    values: tuple[Any, ...] | None = None
    nullable: bool | None = None
    omitted: bool = False


@dataclass(frozen=True, slots=True)
class TableDecision:
    """The decisions for a table: its unit and its rows per unit (None: undecided), and its columns by their folded names."""

    unit: str | None = None
    link: ForeignKey | None = None
    public: bool = False
    omitted: bool = False
    rows_per_unit: int | None = None
    columns: Mapping[str, ColumnDecision] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decisions:
    """The decisions for a policy: the privacy unit in words, the budget, and the tables by their folded names."""

    privacy_unit: str | None = None
    epsilon: str | None = None
    delta: str | None = None
    tables: Mapping[str, TableDecision] = field(default_factory=dict)


# A policy's text for other data: the same rules, with a database name of their own and without the files of the tables.


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


Schema = Mapping[str, Sequence[tuple[str, str]]]

_HEAD = """\
# The policy of {source}: the privacy unit, the privacy budget, and the columns that analysts may use.
# Written from {sources}; {values}. Replace every TODO: until then dpsql refuses the file.
# Take bounds, values and limits from public knowledge about the subject, never from the data.

version: 1

# What one privacy unit is, in words: patient, customer, household.
privacy_unit: {privacy_unit}

# add_remove hides whether a unit is in the data at all; replace hides only the contents of its rows.
neighbors: add_remove

# The budget of all private tables together, or of each, for all answers.
#   epsilon     total privacy loss: about 1 is strong, above 10 is weak
#   delta       0, or far below 1 / (number of units), such as 1e-7; groups with unknown keys need it above 0
#   accountant  how losses add up: zcdp (default when delta is above 0), gdp, basic or pure
#   shared      true: all private tables share one budget, which bounds what a unit with rows in several tables loses. A unit
#               must have the same id in all of them. false: each table has a budget of its own, and they add up
budget:
  epsilon: {epsilon}
  delta: {delta}{shared}

# Change this whenever the data changes: receipts and the ledger record the version that an answer was computed from.
data_version: "1"

# The permanent name of this database, wherever its file is: its ledger works with no other database. Without a name,
# the file's path is used. Never give two databases the same name.
# database: north-2026

# The maximum epsilon of one query.
# max_epsilon: 1

# The minimum epsilon of one query: with less, an answer would be pure noise.
# min_epsilon: 1e-6

# The epsilon of a query that does not set one.
# default_epsilon: 0.1

# How many queries of a table may fail while they run before it is locked. Find the cause, then unlock it.
# max_failures: 3

# The budget of each analyst at each table, and the budgets of single analysts by name.
# per_analyst: {{epsilon: 0.5}}
# analysts: {{ana: {{epsilon: 1}}}}

# Analysts can only use the tables and columns that are listed here: delete those that they do not need.
# Each table has one of
#   unit: <column>   the column with the id of the privacy unit
#   unit: row        each row is a unit of its own; then delete rows_per_unit
#   link: {{column: <column>, references: <table>.<column>}}   a foreign key to a table with a unit
#   public: true     nobody needs protection from it; then delete unit and rows_per_unit
# and, if private, may have
#   rows_per_unit    maximum number of rows per unit; further rows are ignored (required unless unit is row)
#   max_groups       maximum number of GROUP BY groups per unit; further groups are ignored
#   min_frequency    minimum number of distinct units behind a group that is shown (above 1 needs a delta)
#   partition        columns that are constant for a unit, such as a site: a query of one part charges that part alone
#   max_epsilon      maximum epsilon of one query of this table
#   budget           epsilon, delta or accountant of this table alone (not with a shared budget)
# Each column has a type, and may have
#   bounds: [lowest, highest]   for numbers, dates and timestamps; a number without bounds cannot be summed
#   values: [a, b, c]           all values, if they are public: groups are then known in advance
#   nullable: false             NULL cannot occur: rows with NULL, or with a value that is not listed, are dropped
tables:
"""

_GUESSED = (
    "column types were guessed from some rows of the files, and no other value was read: correct wrong types"
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_YAML_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def skeleton(
    schema: Schema,
    source: str,
    required: Mapping[str, AbstractSet[str]] | None = None,
    checks: Mapping[str, Sequence[str]] | None = None,
    *,
    keys: Mapping[str, TableKeys] | None = None,
    decisions: Decisions | None = None,
    sources: str = "the schema alone, its types, keys, NOT NULL and CHECK",
    types_are_guessed: bool = False,
    readings: Mapping[str, ReadingProposal] | None = None,
) -> str:
    """Return a YAML policy with every column's type, and a TODO wherever the owner must decide.

    Bounds and values come from constraints and decisions only; the members of an ENUM are proposed as values. Columns of
    types that dpsql does not read are commented out, and so are lists, whose maximum number of elements is the owner's
    decision.

    Args:
        schema: The (column, DuckDB type) pairs of each table.
        source: The name of the database, for the first line.
        required: The columns of each table that are NOT NULL.
        checks: The CHECK constraints of each table, which may state bounds and values.
        keys: The keys of each table. While the unit is undecided they are proposed as comments: a primary key as the
            unit, a foreign key as a link, primary and unique keys as `unique`.
        decisions: Decisions that replace TODOs and constraints.
        sources: What the skeleton was written from, for the second line.
        readings: What some rows of the files of tables show about how they are written.
        types_are_guessed: Whether the types were guessed from some rows of a file, which the second line says.

    Returns:
        The text of the YAML file.

    Raises:
        PolicyError: `no_tables`, for a schema without tables; `metadata`, for decisions that do not fit a column's type.
    """
    if not schema:
        raise PolicyError(f"{source} has no tables, so no policy can be written for it", code="no_tables")
    decided = decisions or Decisions()
    lines = [
        line
        for table, columns in schema.items()
        for line in _iterate_table_lines(
            table,
            columns,
            (required or {}).get(table, frozenset()),
            parse_constraints((checks or {}).get(table, ())),
            keys=(keys or {}).get(table, TableKeys()),
            decided=decided.tables.get(normalize_name(table), TableDecision()),
            reading=(readings or {}).get(table, ReadingProposal()),
        )
    ]
    if all(line.startswith("  #") for line in lines):
        lines.append("  TODO: TODO  # none of the tables above can be declared")
    head = _HEAD.format(
        source=quote_yaml(source),
        sources=sources,
        values=_GUESSED if types_are_guessed else "no value was read",
        privacy_unit="TODO" if decided.privacy_unit is None else quote_yaml(decided.privacy_unit),
        epsilon=decided.epsilon or "TODO",
        delta=decided.delta or "TODO",
        shared="\n  shared: true" if _can_share_budget(schema, decided) else "",
    )
    return head + "\n".join(lines) + "\n"


def _can_share_budget(schema: Schema, decided: Decisions) -> bool:
    """Return whether several tables may be private, and none of them has a unit for each row."""
    own = [
        decided.tables.get(normalize_name(name), TableDecision())
        for name in schema
        if not find_name_problem(name, "table", dots=False)
    ]
    private = [each for each in own if not each.public and not each.omitted]
    return len(private) > 1 and not any(is_row(each.unit) for each in private)


def find_declarable_type(duckdb_type: str) -> ColumnType | None:
    """Return the policy's type for a DuckDB type, or None when dpsql does not read it.

    >>> find_declarable_type("DECIMAL(10,2)"), find_declarable_type("VARCHAR[]")
    ('double', None)
    """
    text = duckdb_type.strip()
    found = find_policy_type("enum" if parse_enum_members(text) is not None else text)
    return None if found is None else found.name


def iterate_declarable_columns(columns: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the columns that a policy may declare, with their types: of a STRUCT its fields, by dotted names.

    >>> [*iterate_declarable_columns([("n", "INTEGER"), ("s", "STRUCT(city VARCHAR, at STRUCT(floor INTEGER))")])]
    [('n', 'INTEGER'), ('s.city', 'VARCHAR'), ('s.at.floor', 'INTEGER')]
    """
    for column, kind in columns:
        inner = parse_struct_fields(kind.strip())
        if inner is None or any("." in name for name in inner):
            yield column, kind
        else:
            yield from iterate_declarable_columns([(f"{column}.{name}", of) for name, of in inner.items()])


def _iterate_table_lines(
    table: str,
    columns: Sequence[tuple[str, str]],
    required: AbstractSet[str],
    checks: Mapping[str, ColumnConstraint],
    *,
    keys: TableKeys,
    decided: TableDecision,
    reading: ReadingProposal,
) -> Iterator[str]:
    wrong = find_name_problem(table, "table", dots=False)
    if wrong:
        yield f"  # {quote_yaml(table)}: left out, {wrong}"
        return
    if decided.omitted:
        yield f"  # {quote_yaml(table)}: left out"
        return
    yield f"  {_format_name(table)}:"
    yield from _iterate_file_lines(reading.file)
    yield from _iterate_unit_lines(keys, decided)
    yield from _iterate_unique_lines(keys, decided, columns)
    if all(decided.columns.get(normalize_name(column), ColumnDecision()).omitted for column, _ in columns):
        yield "    columns: {}"
        return
    yield "    columns:"
    for column, kind in iterate_declarable_columns(columns):
        known, listed = (
            find_declarable_type(kind),
            find_declarable_type(parse_element_type(kind.strip()) or ""),
        )
        bad_name = find_name_problem(column, "column", dots=True)
        own = decided.columns.get(normalize_name(column), ColumnDecision())
        known = own.type or known
        if listed is not None and not bad_name:
            yield f"      # {_format_name(column)}: {{type: {listed}, max_elements: TODO}}  # a list: set the maximum number of elements per row"
        elif known is None or bad_name:
            yield f"      # {_format_name(column)}: left out, {bad_name or f'the type {_parse_outer_name(kind)} is not supported'}"
        elif own.omitted:
            yield f"      # {_format_name(column)}: left out"
        else:
            said = checks.get(normalize_name(column), ColumnConstraint())
            present = own.nullable is False or (
                own.nullable is None and (column in required or said.not_null)
            )
            rest = ", nullable: false" * present
            found = _format_decision(own, known, f"{table}.{column}")
            note = "" if found else _format_enum_note(said, known, kind)
            read, remark = _format_reading(reading, column, known)
            yield f"      {_format_name(column)}: {{type: {known}{read}{found or _format_domain(said, known, kind)}{rest}}}{note or remark}"


def _iterate_file_lines(file: FileReading) -> Iterator[str]:
    """Yield the line that says how the table's file is written."""
    written = file.model_dump(mode="json")
    if not written:
        return
    keys = ", ".join(f"{key}: {_format_key(value)}" for key, value in written.items())
    note = "  # guessed: look at letters such as ä" if file.encoding else ""
    note = "  # guessed: no line names the columns, so name them here" if file.names else note
    yield f"    file: {{{keys}}}{note}"


def _format_key(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_format_key, value))}]"
    return quote_yaml(value) if isinstance(value, str) and not _PLAIN_NAME.fullmatch(value) else str(value)


def _format_reading(reading: ReadingProposal, column: str, kind: ColumnType) -> tuple[str, str]:
    """Return the keys that say how the texts of a column are read, in YAML, and a remark where the owner must say it."""
    cell, note = reading.cells.get(column), reading.notes.get(column)
    remark = f"  # {note}" if note else ""
    if cell is None or cell.kind.lower() != kind:
        return "", remark
    keys = [f'format: "{each}"' for each in cell.formats[:1]]
    keys += [f'decimal: "{cell.decimal}"'] if cell.decimal else []
    return "".join(f", {each}" for each in keys), remark


def _iterate_unit_lines(keys: TableKeys, decided: TableDecision) -> Iterator[str]:
    """Yield the lines that say whose a row is, and how many of one count."""
    if decided.public:
        yield "    public: true"
        return
    if decided.link is not None:
        yield f"    link: {_format_link(decided.link)}"
    elif decided.unit is not None:
        yield f"    unit: {_format_name(decided.unit)}"
    else:
        for key in keys.foreign:
            yield f"    # if {_format_comment_name(key.table)} has the unit, replace unit by this foreign key: link: {_format_link(key)}"
        if len(keys.primary) == 1:
            yield f"    # if each row is a unit, the unit may be the primary key {_format_name(keys.primary[0])}, with rows_per_unit 1"
        yield "    unit: TODO           # a column, or row; or see link and public above"
    if decided.rows_per_unit is not None:
        yield f"    rows_per_unit: {decided.rows_per_unit}"
    elif decided.unit is None or not is_row(decided.unit):
        yield "    rows_per_unit: TODO  # rows"


def _iterate_unique_lines(
    keys: TableKeys, decided: TableDecision, columns: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield the line of the keys of the rows, except the unit's own; a comment while the unit is undecided."""
    there = {
        normalize_name(column)
        for column, kind in columns
        if find_declarable_type(kind) is not None
        and not find_name_problem(column, "column", dots=True)
        and not decided.columns.get(normalize_name(column), ColumnDecision()).omitted
    }
    alone = decided.unit is not None and is_row(decided.unit)
    found = [
        key
        for key in dict.fromkeys((keys.primary, *keys.unique))
        if key
        and there.issuperset(map(normalize_name, key))
        and [*map(normalize_name, key)] != [normalize_name(decided.unit or "")]
    ]
    if decided.public or alone or not found:
        return
    written = ", ".join(
        _format_name(key[0]) if len(key) == 1 else f"[{', '.join(map(_format_name, key))}]" for key in found
    )
    open_ = decided.unit is None and decided.link is None
    yield (
        f"    # keys of the rows, except the unit's own: unique: [{written}]"
        if open_
        else f"    unique: [{written}]"
    )


def _format_link(key: ForeignKey) -> str:
    """Return a foreign key as a link of a policy."""
    if len(key.columns) == 1:
        return f"{{column: {_format_name(key.columns[0])}, references: {quote_yaml(f'{key.table}.{key.references[0]}')}}}"
    references = ", ".join(quote_yaml(f"{key.table}.{column}") for column in key.references)
    return f"{{columns: [{', '.join(map(_format_name, key.columns))}], references: [{references}]}}"


def _format_comment_name(name: str) -> str:
    """Return a name within a comment, on one line."""
    return name if name.isprintable() else quote_yaml(name)


def _format_decision(own: ColumnDecision, kind: ColumnType, whose: str) -> str:
    """Return the decided bounds or values of a column in YAML. Raises PolicyError (`metadata`) if they do not fit its type."""
    try:
        if own.values is not None:
            return f", values: [{', '.join(map(_format_scalar, parse_values(list(own.values), kind)))}]"
        if own.bounds is not None:
            return f", bounds: [{', '.join(map(_format_scalar, parse_bounds(list(own.bounds), kind)))}]"
    except PydanticCustomError as error:
        raise PolicyError(
            f"the bounds or values given for {whose} do not fit its type {kind}: {error.message()}",
            code="metadata",
        ) from None
    return ""


def _format_domain(said: ColumnConstraint, known: ColumnType, kind: str) -> str:
    """Return the bounds or values that a column's constraints state, in YAML; else the members of an ENUM, which are part of the schema."""
    listed = _list_enum_members(kind)
    return _format_constraint(said, known) or (
        f", values: [{', '.join(map(quote_yaml, listed))}]" if listed else ""
    )


def _format_enum_note(said: ColumnConstraint, known: ColumnType, kind: str) -> str:
    """Return the comment that asks the owner about the members of an ENUM."""
    proposed = _list_enum_members(kind) and not _format_constraint(said, known)
    return "  # the ENUM's members: delete values unless these are public" if proposed else ""


def _list_enum_members(kind: str) -> Sequence[str]:
    """Return the members of an ENUM, if a policy can list them."""
    named = parse_enum_members(kind.strip()) or ()
    return () if len(named) > MOST_VALUES or any("\0" in name for name in named) else named


def _format_constraint(said: ColumnConstraint, kind: ColumnType) -> str:
    """Return the bounds or values that a column's constraints state, in YAML."""
    values, bounds = said.to_values(kind), said.to_bounds(kind)
    if values is not None:
        return f", values: [{', '.join(map(_format_scalar, values))}]"
    return "" if bounds is None else f", bounds: [{', '.join(map(_format_scalar, bounds))}]"


def _format_scalar(value: Value | Bound) -> str:
    """Return a value in YAML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (Fraction, float)):
        return format_number(Fraction(value))
    return str(value) if isinstance(value, int) else quote_yaml(str(value))


def _parse_outer_name(duckdb_type: str) -> str:
    """Return the outer name of a type, without its brackets, which may name members or span lines."""
    word = re.match(r"[A-Za-z_ ]*", duckdb_type.strip())
    name = (word[0] if word else "").strip() or "unknown"
    return f"{name}[]" if duckdb_type.strip().endswith("]") else name


def _format_name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) and name.lower() not in _YAML_WORDS else quote_yaml(name)


def quote_yaml(text: str) -> str:
    """Return a YAML double-quoted scalar, on one line, in printable characters."""
    return '"' + "".join(_escape_letter(letter) for letter in text) + '"'


def _escape_letter(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    return f"\\U{ord(letter):08x}"
