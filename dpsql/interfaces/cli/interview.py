"""`dpsql init --interactive`: ask the owner for each decision in order, and explain it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import typer
from pydantic_core import PydanticCustomError

from dpsql.errors import Error
from dpsql.interfaces.shell.view import escape_unprintable
from dpsql.policy.decisions import ColumnDecision, Decisions, TableDecision, TableKeys
from dpsql.policy.domain import ColumnType, parse_bounds, parse_values
from dpsql.policy.names import find_name_problem, normalize_name
from dpsql.policy.request.loss import parse_amount
from dpsql.policy.skeleton import Schema, find_declarable_type, iterate_declarable_columns

T = TypeVar("T")
_UNIT = """
1. The privacy unit. Answers hide whether any one unit is in the data, with all of its rows in all tables.
   Usually a person: patient, customer, household, employee. A visit or an order protects far less."""
_TABLES = """
2. The tables. For each table: to which unit does a row belong? Analysts cannot see a table that you leave out.
   A column's name   the column holds the unit's id
   row               each row is a unit of its own
   public            nobody in the table needs protection, as in a list of regions
   link              a row belongs to the unit of the row that a foreign key references
   none              leave the table out"""
_ROWS = """   How many rows may one unit contribute at most? Noise grows with this number, and further rows are left out of
   answers. Choose what nearly all units stay below, not the largest number that ever occurred."""
_COLUMNS = """
3. The columns. Values outside the bounds are clamped to them, and a column without bounds cannot be summed. A list of
   values is public, so that groups by the column are known in advance. Take both from public knowledge, never from the
   data; dpsql suggest proposes them from the data, at a charge.
   0, 100   bounds, or values separated by commas     empty   neither     none   leave the column out"""
_EPSILON = """
4. The budget: the privacy loss of all answers together, for each table. ε of about 1 is strong, above 10 weak: all answers
   together change the odds of any guess about one unit by a factor of at most e^ε."""
_DELTA = """   δ bounds the probability that this fails. Choose it far below 1 / (number of units), such as 1e-7. 0 is strict, and
   requires that groups are listed."""


def ask_decisions(
    schema: Schema,
    keys: Mapping[str, TableKeys],
    stated: Decisions,
    constrained: Mapping[str, Mapping[str, object]],
) -> Decisions:
    """Ask for the owner's decisions about the tables of a schema; `stated` decisions are the defaults.

    Columns in `constrained` have bounds or values from constraints, and are not asked for.
    """
    typer.echo(_UNIT)
    unit = _ask_until_valid("privacy unit", stated.privacy_unit, _parse_unit)
    typer.echo(_TABLES)
    tables: dict[str, TableDecision] = {}
    for name, columns in schema.items():
        before = stated.tables.get(normalize_name(name), TableDecision())
        tables[normalize_name(name)] = _ask_table(name, columns, keys.get(name, TableKeys()), before)
    typer.echo(_COLUMNS)
    for name, columns in schema.items():
        own = tables[normalize_name(name)]
        if own.public or own.omitted or find_name_problem(name, "table", dots=False):
            continue
        asked = dict(own.columns)
        for column, kind in iterate_declarable_columns(columns):
            known = find_declarable_type(kind)
            place = normalize_name(column)
            if (
                known is None
                or place in constrained.get(name, {})
                or place == normalize_name(own.unit or "")
                or _is_key(own, place)
            ):
                continue
            if known in ("boolean", "blob", "time", "uuid"):
                continue
            asked[place] = _ask_column(f"{name}.{column}", known, asked.get(place, ColumnDecision()))
        tables[normalize_name(name)] = replace(own, columns=asked)
    typer.echo(_EPSILON)
    epsilon = _ask_until_valid("epsilon", stated.epsilon or "1", _parse_epsilon)
    typer.echo(_DELTA)
    delta = _ask_until_valid("delta", stated.delta or "1e-7", _parse_delta)
    return Decisions(unit, epsilon, delta, tables)


def _ask_table(
    name: str, columns: Sequence[tuple[str, str]], keys: TableKeys, before: TableDecision
) -> TableDecision:
    if find_name_problem(name, "table", dots=False):
        return before  # the skeleton leaves it out, and says why
    typer.echo(
        f"\n   {escape_unprintable(name)}: {escape_unprintable(', '.join(column for column, _ in columns))}"
    )
    for key in keys.foreign:
        typer.echo(f"   foreign key: {escape_unprintable(str(key))}")
    if keys.primary:
        typer.echo(f"   primary key: {escape_unprintable(', '.join(keys.primary))}")
    names = {normalize_name(column): column for column, _ in columns}
    proposed = "link" if before.link else before.unit or ("public" if before.public else None)
    if proposed is None and len(keys.primary) == 1:
        proposed = keys.primary[0]
    found = _ask_until_valid(
        f"{name}: unit of a row",
        proposed,
        lambda text: _parse_row_owner(normalize_name(text), names, keys, before),
    )
    if found.public or found.omitted or found.unit == "row":
        return found
    typer.echo(_ROWS)
    alone = found.unit is not None and keys.primary == (found.unit,)
    default = found.rows_per_unit or (1 if alone else None)
    rows = _ask_until_valid(
        f"{name}: rows per unit", None if default is None else str(default), _parse_row_count
    )
    return replace(found, rows_per_unit=rows)


def _parse_row_owner(
    word: str, names: Mapping[str, str], keys: TableKeys, before: TableDecision
) -> TableDecision:
    """Return the table's decision with the unit of its rows. Raises ValueError for an invalid answer."""
    if word in names:
        return replace(before, unit=names[word], link=None, public=False)
    match word:
        case "row":
            return replace(before, unit="row", link=None, public=False, rows_per_unit=None)
        case "public":
            return replace(before, public=True)
        case "none":
            return replace(before, omitted=True)
        case "link" if before.link is not None or keys.foreign:
            return replace(before, unit=None, link=before.link or keys.foreign[0])
    raise ValueError(
        "enter a column of the table, row, public, link (if the table has a foreign key) or none"
    )


def _is_key(table: TableDecision, column: str) -> bool:
    return table.link is not None and column in map(normalize_name, table.link.columns)


def _ask_column(name: str, kind: ColumnType, before: ColumnDecision) -> ColumnDecision:
    def parse_domain(text: str) -> ColumnDecision:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            return replace(before, bounds=None, values=None)
        if parts == ["none"]:
            return replace(before, omitted=True)
        try:
            if kind == "varchar":
                return replace(before, values=parse_values(parts, kind))
            parse_bounds(values := [_parse_number(part) for part in parts], kind)
        except PydanticCustomError as error:
            raise ValueError(error.message()) from None
        return replace(before, bounds=(values[0], values[1]))

    proposed = before.values or before.bounds or ()
    return _ask_until_valid(f"{name} ({kind})", ", ".join(map(str, proposed)), parse_domain)


def _parse_number(text: str) -> object:
    try:
        return int(text)
    except ValueError:
        return text


def _ask_until_valid(what: str, default: str | None, read: Callable[[str], T]) -> T:
    """Ask until the answer is valid, and print what is wrong with an invalid one."""
    while True:
        text = typer.prompt(
            f"   {escape_unprintable(what)}", default=default, show_default=bool(default)
        ).strip()
        try:
            return read(text)
        except (ValueError, Error) as error:
            typer.echo(f"   {error}")


def _parse_unit(text: str) -> str:
    if not text or "TODO" in text:
        raise ValueError("enter one word for the privacy unit, such as patient")
    return text


def _parse_row_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**9:
        raise ValueError("enter a whole number of at least 1")
    return int(text)


def _parse_epsilon(text: str) -> str:
    parse_amount(text, "epsilon")
    return text


def _parse_delta(text: str) -> str:
    if text == "0":
        return text
    if parse_amount(text, "delta") >= Fraction(1):
        raise ValueError("delta must be below 1")
    return text
