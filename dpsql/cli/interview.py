"""`dpsql init --interactive`: the owner's decisions, asked in order, each with what it means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

import typer
from pydantic_core import PydanticCustomError

from dpsql.errors import Error
from dpsql.policy.decisions import ColumnDecision, Decisions, TableDecision, TableKeys
from dpsql.policy.domain import ColumnType, parse_bounds, parse_values
from dpsql.policy.names import find_name_problem, normalize_name
from dpsql.policy.skeleton import Schema, find_declarable_type, iterate_declarable_columns
from dpsql.request.loss import parse_amount
from dpsql.shell.view import escape_unprintable

T = TypeVar("T")
_UNIT = """
1. The privacy unit. Answers hide whether any one of these is in the data, with all of its rows in all tables.
   Mostly a person: patient, customer, household, employee. A visit or an order protects far less."""
_TABLES = """
2. The tables. For each: whose is a row? What you leave out does not exist for analysts.
   A column's name   it holds the unit's id
   row               each row is a unit of its own
   public            nobody in it needs protection, such as a list of regions
   link              its rows belong to the unit of the row that a foreign key leads to
   none              leave the table out"""
_ROWS = """   How many rows of one unit count at most? Noise grows with it; rows beyond it are left out of answers. Take what is
   usual at the most, not the most that ever was."""
_COLUMNS = """
3. The columns. Bounds are the lowest and highest value that counts; values beyond them are clamped, and without bounds a
   column is never summed. Values are a list that everyone knows, by which groups are known in advance. Take both from what
   everyone knows of the subject, never from the data: dpsql suggest asks the data, charged.
   0, 100   bounds, or values with a comma between     empty   neither     none   leave the column out"""
_EPSILON = """
4. The budget: what all answers together may lose of each table. ε of about 1 is strong, above 10 weak: all answers
   together change what anybody would bet on one unit by a factor of e^ε at most."""
_DELTA = """   δ is how likely that fails, far below 1 / (number of units): 1e-7. 0 is strict, and needs groups that are listed."""


def ask_decisions(
    schema: Schema,
    keys: Mapping[str, TableKeys],
    stated: Decisions,
    constrained: Mapping[str, Mapping[str, object]],
) -> Decisions:
    """The owner's decisions about the tables of a schema; what is `stated` already is proposed.

    `constrained` are the columns of which constraints say bounds or values, about which nothing is asked.
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
        f"{name}: whose is a row",
        proposed,
        lambda text: _parse_row_owner(normalize_name(text), names, keys, before),
    )
    if found.public or found.omitted or found.unit == "row":
        return found
    typer.echo(_ROWS)
    alone = found.unit is not None and keys.primary == (found.unit,)
    default = found.rows_per_unit or (1 if alone else None)
    rows = _ask_until_valid(
        f"{name}: rows of one unit", None if default is None else str(default), _parse_row_count
    )
    return replace(found, rows_per_unit=rows)


def _parse_row_owner(
    word: str, names: Mapping[str, str], keys: TableKeys, before: TableDecision
) -> TableDecision:
    """The table's decision with the answer to whose a row is. Raises ValueError for what is no answer."""
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
    raise ValueError("name a column of the table, or row, public, link (with a foreign key) or none")


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
    """An answer that can be read; else it is said what is wrong, and asked again."""
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
        raise ValueError("say in a word what one unit is")
    return text


def _parse_row_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**9:
        raise ValueError("a whole number from 1")
    return int(text)


def _parse_epsilon(text: str) -> str:
    parse_amount(text, "epsilon")
    return text


def _parse_delta(text: str) -> str:
    if text == "0":
        return text
    if parse_amount(text, "delta") >= Fraction(1):
        raise ValueError("delta is below 1")
    return text
