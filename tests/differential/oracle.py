"""What dpsql must answer where there is no noise: what plain DuckDB answers."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
from differential.grammar import Statement, partition
from differential.world import World

import dpsql
from dpsql.errors import BackendError, InternalError

Row = Sequence[Any]
_STEP = 1e-5
"""Reals are rounded to a lattice before they are added, and a sum of some hundred rows is off by less than this."""


class Refusal(Exception):  # noqa: N818
    """The statement is not answered, which is no discrepancy."""


@dataclass(frozen=True)
class Find:
    """A discrepancy: `kind` is what is wrong, `sql` the statement."""

    kind: str
    sql: str
    ours: str = ""
    theirs: str = ""

    def __str__(self) -> str:
        return f"[{self.kind}]\n  {self.sql}\n  dpsql:  {self.ours}\n  DuckDB: {self.theirs}"


def differs(world: World, sql: str, *, ordered: bool = False, mild: bool = False) -> Find | None:
    """How dpsql's answer differs from DuckDB's. Refusal where one of them has none.

    A `mild` look forgives what smaller statements may do by right: groups of nobody, and 0 for NULL.
    """
    answered = answer(world, sql)
    if isinstance(answered, Find):
        return answered
    names, ours = answered
    theirs = plainly(world, sql)
    if agree(names, ours, theirs, ordered=ordered, mild=mild, roots="STDDEV" in sql.upper()):
        return None
    return Find("mismatch", sql, shown(ours), shown(theirs))


def answer(world: World, sql: str) -> tuple[tuple[str, ...], list[Row]] | Find:
    """dpsql's columns and rows, or what is wrong without them."""
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
    return result.columns, list(result.rows)


def plainly(world: World, sql: str) -> list[Row]:
    """DuckDB's rows."""
    try:
        return world.plain.execute(sql).fetchall()
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
) -> bool:
    """Whether the rows are the same; ours may have groups that nobody is in, which `n0` counts, or each `…_n` of a PIVOT.

    A value in order of size of no rows, `r…`, may be anything, but NULL where `n0` is 0, and a sum of none, `s…`, 0. With
    `roots`, values may be standard deviations: the variance has a lattice, and its root is as near as their squares are.
    """
    if ordered:
        return len(ours) == len(theirs) and all(map(_same_by(names, roots=roots), ours, theirs))
    same = _same_by(["s"] * len(names) if mild else names, roots=roots)
    left = sorted(ours, key=_order)
    for row in sorted(theirs, key=_order):
        place = next((at for at, mine in enumerate(left) if same(mine, row)), None)
        if place is None:
            return False
        del left[place]
    counts = [place for place, name in enumerate(names) if name == "n0" or name.endswith("_n")]
    values = [place for place, name in enumerate(names) if name[:1] in ("r", "q") or name.startswith("v")]
    return mild or all(
        counts and not any(row[place] for place in counts) and all(row[place] is None for place in values)
        for row in left
    )


def _same_by(names: Sequence[str], *, roots: bool = False) -> Callable[[Row, Row], bool]:
    letters = [name[:1] for name in names]
    (*_, counted) = [None, *(place for place, name in enumerate(names) if name == "n0")]

    def same(ours: Row, theirs: Row) -> bool:
        nobody = counted is not None and ours[counted] == 0
        return all(
            _same(a, b)
            or (roots and _same_squares(a, b))
            or (b is None and ((letter == "r" and not nobody) or (letter == "s" and a == 0)))
            or (letter == "q" and (a is None) == (b is None))
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
        found.append(answered[1][0])
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
    theirs = plainly(world, statement.sql)
    if agree(ours[0], ours[1], theirs, ordered=statement.ordered):
        return None
    return Find("inlined", statement.sql, shown(ours[1]), shown(theirs))


def priced(world: World, sql: str) -> Find | None:
    """Whether the charge is what `explain` said."""
    con = world.connection
    try:
        explained = con.explain(sql).prepared
        told = {
            quote.table: (quote.spend.loss_fraction, quote.spend.delta_fraction)
            for quote in con.engine.quote(explained)
        }
        entries = con.query(sql).receipt.entries
    except dpsql.Error as error:
        raise Refusal(f"{type(error).__name__} {error.code}") from None
    charged = {entry["table"]: (entry["loss"], entry["delta"]) for entry in entries}
    if charged == {table: tuple(map(str, price)) for table, price in told.items()}:
        return None
    return Find("price", sql, f"charged {charged}", f"explained {told}")


__all__ = ["Find", "Refusal", "agree", "answer", "differs", "inlined", "partition", "partitioned", "priced"]
