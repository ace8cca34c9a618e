"""What dpsql must answer where there is no noise: what plain DuckDB answers."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import duckdb
from differential.documented import (
    COUNT_IF_OF_NOBODY,
    EMPTY_GROUPS,
    EVERY,
    LISTED_KEYS,
    QUANTILES_OF_NOBODY,
    SUMS_OF_NOBODY,
    WIDENED,
    told,
)
from differential.grammar import Statement, partition
from differential.world import World

import dpsql
from dpsql.engine.charging import compute_quotes
from dpsql.errors import BackendError, InternalError

Row = Sequence[Any]
_STEP = 1e-5
"""Reals are rounded to a lattice before they are added, and a sum of some hundred rows is off by less than this."""


class Refusal(Exception):  # noqa: N818
    """The statement is not answered, which is no discrepancy."""


_CONSTANT = re.compile(r"\d\.\d")
"""A constant with a point, which is a DECIMAL in DuckDB."""


@dataclass(frozen=True)
class Find:
    """A discrepancy: `kind` is what is wrong, `sql` the statement."""

    kind: str
    sql: str
    ours: str = ""
    theirs: str = ""

    def __str__(self) -> str:
        return f"[{self.kind}]\n  {self.sql}\n  dpsql:  {self.ours}\n  DuckDB: {self.theirs}"


@dataclass(frozen=True)
class Answer:
    """The columns and rows of an answer, and the documented differences that its notices tell of."""

    names: tuple[str, ...]
    rows: Sequence[Row]
    told: frozenset[str] = frozenset()


def differs(world: World, sql: str, *, ordered: bool = False, mild: bool = False) -> Find | None:
    """How dpsql's answer differs from DuckDB's. Refusal where one of them has none.

    A `mild` look forgives what smaller statements may do by right: groups of nobody, and 0 for NULL.
    """
    ours = answer(world, sql)
    if isinstance(ours, Find):
        return ours
    return compared(sql, ours, plainly(world, sql), ordered=ordered, mild=mild)


def compared(
    sql: str, ours: Answer, theirs: Answer, *, ordered: bool = False, mild: bool = False
) -> Find | None:
    """How an answer differs from another: by the names of its columns, the types of its values, its rows or their order.

    Values `r…` and `v…` may be computed from released whole numbers without bounds, which are real numbers. Constants with a point
    are real numbers, too.
    """
    if ours.names != theirs.names:
        return Find("names", sql, str(ours.names), str(theirs.names))
    roots = "STDDEV" in sql.upper()
    if agree(ours.names, ours.rows, theirs.rows, ordered=ordered, mild=mild, roots=roots, told=ours.told):
        kinds = types_of(ours.rows), types_of(theirs.rows)
        same = all(
            not (mine and other)
            or mine == other
            or ((mine, other) == ({"float"}, {"int"}) and (name[:1] in "rv" or WIDENED in ours.told))
            or ((mine, other) == ({"float"}, {"Decimal"}) and _CONSTANT.search(sql))
            for name, mine, other in zip(ours.names, *kinds, strict=False)
        )
        return None if same or mild else Find("types", sql, str(kinds[0]), str(kinds[1]))
    return Find("mismatch", sql, shown(ours.rows), f"{shown(theirs.rows)}\n  told:   {sorted(ours.told)}")


def types_of(rows: Sequence[Row]) -> list[set[str]]:
    """The names of Python's types of the values of each column that are not NULL."""
    return [
        {type(value).__name__ for value in column if value is not None} for column in zip(*rows, strict=True)
    ]


def answer(world: World, sql: str) -> Answer | Find:
    """dpsql's answer, or what is wrong without one."""
    try:
        result = world.connection.query(sql)
    except BackendError as error:
        return Find("backend_error", sql, str(error))
    except InternalError as error:
        return Find("internal_error", sql, str(error))
    except dpsql.Error as error:
        raise Refusal(f"{type(error).__name__} {error.code}") from None
    except Exception as error:  # whatever is not dpsql's own is a find
        return Find(f"exception {type(error).__name__}", sql, str(error)[:300])
    return Answer(result.columns, list(result.rows), told(result.notices))


def plainly(world: World, sql: str) -> Answer:
    """DuckDB's answer."""
    try:
        found = world.plain.execute(sql)
        return Answer(tuple(column[0] for column in found.description), found.fetchall())
    except duckdb.Error as error:
        raise Refusal(f"DuckDB {type(error).__name__}") from None


def agree(
    names: Sequence[str],
    ours: Sequence[Row],
    theirs: Sequence[Row],
    *,
    ordered: bool = False,
    mild: bool = False,
    roots: bool = False,
    told: AbstractSet[str] = EVERY,
) -> bool:
    """Whether the rows are the same, but for documented differences that the answer has `told` of.

    Ours may have groups that nobody is in, which `n0` counts, or each `…_n` of a PIVOT; and keys alone, `k…`, that are listed.
    A value in order of size of no rows, `r…` or `v…`, may be anything, but NULL where `n0` is 0, and a sum of none, `s…`, 0. With
    `roots`, values may be standard deviations: the variance has a lattice, and its root is as near as their squares are.
    """
    if ordered:
        same = _same_by(names, told, roots=roots, mild=mild)
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    same = _same_by(names, told, roots=roots, mild=mild)
    left = sorted(ours, key=_order)
    for row in sorted(theirs, key=_order):
        place = next((at for at, mine in enumerate(left) if same(mine, row)), None)
        if place is None:
            return False
        del left[place]
    counts = [place for place, name in enumerate(names) if name == "n0" or name.endswith("_n")]
    values = [place for place, name in enumerate(names) if name[:1] in ("r", "q") or name.startswith("v")]
    if LISTED_KEYS in told and all(name[:1] == "k" for name in names):
        return True
    return (
        mild
        or not left
        or (
            EMPTY_GROUPS in told
            and all(
                counts
                and not any(row[place] for place in counts)
                and all(row[place] is None for place in values)
                for row in left
            )
        )
    )


def _same_by(
    names: Sequence[str], told: AbstractSet[str] = EVERY, *, roots: bool = False, mild: bool = False
) -> Callable[[Row, Row], bool]:
    # A smaller statement may have lost the names that say what is in a column.
    letters = [name[:1] + "sr" * mild for name in names]
    (*_, counted) = [None, *(place for place, name in enumerate(names) if name == "n0")]

    def same(ours: Row, theirs: Row) -> bool:
        nobody = counted is not None and ours[counted] == 0
        return all(
            _same(a, b)
            or (roots and _same_squares(a, b))
            or (
                b is None
                and any(each in letter for each in "rv")
                and not nobody
                and QUANTILES_OF_NOBODY in told
            )
            or (
                b is None
                and "s" in letter
                and a == 0
                and (SUMS_OF_NOBODY in told or COUNT_IF_OF_NOBODY in told)
            )
            or ("q" in letter and (a is None) == (b is None))
            for a, b, letter in zip(ours, theirs, letters, strict=True)
        )

    return same


def _same(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None or isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs
    if isinstance(ours, (int, float, Decimal)) and isinstance(theirs, (int, float, Decimal)):
        return ours == theirs or math.isclose(ours, theirs, rel_tol=1e-6, abs_tol=_STEP)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {key: value for key, value in ours.items() if value} == theirs
    if type(ours) is not type(theirs) and {type(ours), type(theirs)} == {dt.date, dt.datetime}:
        return False
    return bool(ours == theirs)


def _same_squares(ours: Any, theirs: Any) -> bool:
    """Whether two numbers are roots of the same, up to the lattice of what they are roots of."""
    real = isinstance(ours, float) and isinstance(theirs, float)
    return real and ours * theirs >= 0 and math.isclose(ours**2, theirs**2, abs_tol=_STEP)


def _order(row: Row) -> str:
    return repr([f"{value:.4g}" if isinstance(value, (int, float, Decimal)) else str(value) for value in row])


def shown(rows: Sequence[Row]) -> str:
    """Rows for people."""
    return "; ".join(str(tuple(row)) for row in sorted(rows, key=_order)[:12]) or "no rows"


def partitioned(world: World, whole: str, parts: Sequence[str]) -> Find | None:
    """Whether the rows where a condition is true, false and NULL are all rows (Rigger, Su 2020)."""
    found = []
    for sql in (whole, *parts):
        answered = answer(world, sql)
        if isinstance(answered, Find):
            return answered
        found.append(answered.rows[0])
    total = [math.fsum(row[column] for row in found[1:]) for column in range(3)]
    if _same_by("abc")(found[0], total):
        return None
    return Find("partition", parts[0], f"whole {found[0]}, parts {found[1:]}", "the sum of its parts")


def inlined(world: World, statement: Statement) -> Find | None:
    """Whether common table expressions mean what they say: in their places, the answer is DuckDB's to the statement."""
    if not statement.ctes:
        raise Refusal("no common table")
    ours = answer(world, statement.inlined)
    if isinstance(ours, Find):
        return ours
    found = compared(statement.sql, ours, plainly(world, statement.sql), ordered=statement.ordered)
    return None if found is None else replace(found, kind="inlined")


def priced(world: World, sql: str) -> Find | None:
    """Whether the charge is what `explain` said."""
    con = world.connection
    try:
        explained = con.explain(sql).prepared
        told = {
            quote.table: (quote.charge.loss_fraction, quote.charge.delta_fraction)
            for quote in compute_quotes(con.engine, explained)
        }
        entries = con.query(sql).receipt.entries
    except dpsql.Error as error:
        raise Refusal(f"{type(error).__name__} {error.code}") from None
    charged = {entry["table"]: (entry["loss"], entry["delta"]) for entry in entries}
    if charged == {table: tuple(map(str, price)) for table, price in told.items()}:
        return None
    return Find("price", sql, f"charged {charged}", f"explained {told}")


__all__ = ["Find", "Refusal", "agree", "answer", "differs", "inlined", "partition", "partitioned", "priced"]
