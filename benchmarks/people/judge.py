"""Judge statements: dpsql's answer without noise beside that of the engine whose dialect the statement is in, or its refusal."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from benchmarks.people.statements import Statement
from benchmarks.people.worlds import EMPTY_GROUPS, EQUAL_VALUES, ReferenceFailed, Worlds
from dpsql.errors import BackendError, Error, InternalError

RIGHT, DOCUMENTED, WRONG = "right", "documented difference", "wrong"
RIGHTLY_REFUSED, WRONGLY_REFUSED, INVALID = "rightly refused", "wrongly refused", "not valid there"
LEAKED = "answered, though it asks for what must be refused"
KINDS = (RIGHT, DOCUMENTED, WRONG, RIGHTLY_REFUSED, WRONGLY_REFUSED, LEAKED, INVALID)
"""What may become of a statement."""
_QUANTILES = re.compile(
    r"median|\bmad\b|percentile|quantile|quartile|ntile\b|percent_rank|order_nr", re.IGNORECASE
)
_NEAR = re.compile(f"approx|hll|{_QUANTILES.pattern}", re.IGNORECASE)
_OVER_GROUPS = re.compile(r"\bOVER\b|\bSELECT\b.*\bSELECT\b", re.IGNORECASE | re.DOTALL)
CENT = 0.0101
"""A step of two digits: sums on a lattice may fall on the other side of a half, and are rounded to another last digit."""
_ROUND = re.compile(r"\bROUND\b", re.IGNORECASE)
NEAR, NEIGHBORS = 0.06, 0.3
"""By which part of the largest value of its column a quantile may be off, and by which part it may be where a group has few values."""
TIES = 0.5
"""By which part of its largest value a count may be off where equal values are not divided between parts."""
Row = Sequence[Any]


@dataclass(frozen=True)
class Answer:
    """dpsql's columns and rows, and the documented differences that its notices tell of."""

    names: Sequence[str]
    rows: Sequence[Row]
    told: frozenset[str]


@dataclass(frozen=True)
class Verdict:
    """What became of a statement: a kind, the code of a refusal, and its words or the difference."""

    statement: Statement
    kind: str
    code: str = ""
    detail: str = ""


def judge(statement: Statement, worlds: Worlds) -> Verdict:
    """Ask a statement of dpsql and of the reference, and compare; or judge its refusal."""
    try:
        names, rows, told = worlds.ask(statement)
    except (BackendError, InternalError) as error:
        return Verdict(statement, WRONG, type(error).__name__, str(error))
    except Error as error:
        return _judge_refusal(statement, worlds, error)
    except Exception as error:  # noqa: BLE001 - whatever is not dpsql's own is a defect
        return Verdict(statement, WRONG, type(error).__name__, str(error)[:300])
    try:
        known = worlds.ask_reference(statement)
    except ReferenceFailed as failure:
        return Verdict(statement, INVALID, "", str(failure))
    if statement.family.refused:
        return Verdict(statement, LEAKED, "", statement.family.refused)
    if statement.family.random:
        return Verdict(statement, RIGHT)
    return _judge_answer(statement, Answer(names, rows, told), known)


def _judge_refusal(statement: Statement, worlds: Worlds, error: Error) -> Verdict:
    """Return whether a refusal is right; a statement that the reference does not accept is not counted."""
    if statement.family.refused:
        return Verdict(statement, RIGHTLY_REFUSED, error.code or type(error).__name__, str(error))
    try:
        worlds.ask_reference(statement)
    except ReferenceFailed as failure:
        return Verdict(statement, INVALID, error.code or "", str(failure))
    return Verdict(statement, WRONGLY_REFUSED, error.code or type(error).__name__, str(error))


def _judge_answer(statement: Statement, ours: Answer, known: Sequence[Row]) -> Verdict:
    difference = find_difference(statement, ours.names, ours.rows, known)
    if not difference:
        return Verdict(statement, RIGHT)
    if _QUANTILES.search(statement.sql) and not find_difference(
        statement, ours.names, ours.rows, known, part=NEIGHBORS
    ):
        return Verdict(statement, DOCUMENTED, "A median or quantile", difference)
    if _ROUND.search(statement.sql) and not find_difference(
        statement, ours.names, ours.rows, known, step=CENT
    ):
        return Verdict(statement, DOCUMENTED, "Sums and means, rounded at a half", difference)
    if ours.told and is_documented(statement, ours.rows, known, ours.told):
        return Verdict(statement, DOCUMENTED, min(ours.told), difference)
    return Verdict(statement, WRONG, "answer", difference)


def find_difference(
    statement: Statement,
    names: Sequence[str],
    ours: Sequence[Row],
    theirs: Sequence[Row],
    *,
    part: float = NEAR,
    step: float = 0.0,
) -> str:
    """Return how an answer differs from the reference's: by its rows or by the order that the statement asks for; empty if not."""
    if ours and theirs and len(ours[0]) != len(theirs[0]):
        return f"columns: {len(ours[0])} {tuple(names)} for {len(theirs[0])}"
    scales = [max(scale, step) for scale in find_scales(statement, theirs, part)]
    left = sorted(ours, key=_sort_key)
    if len(ours) != len(theirs):
        return f"rows: {len(ours)} for {len(theirs)}; {show(ours)} for {show(theirs)}"
    order = find_order(statement, names)
    for row in sorted(theirs, key=_sort_key):
        place = next((at for at, mine in enumerate(left) if is_same_row(mine, row, scales)), None)
        if place is None:
            if (
                order
                and re.search(r"\b(LIMIT|TOP|FETCH)\b", statement.sql)
                and _same_order(order, ours, theirs, scales)
            ):
                return ""  # rows of equal rank at the end: either of them is right
            nearest = min(
                left, key=lambda mine: sum(not is_same(a, b, 0) for a, b in zip(mine, row, strict=True))
            )
            return f"no row {show([row])}; nearest {show([nearest])}"
        del left[place]
    if statement.dialect in ("tsql", "bigquery", "snowflake"):
        return ""  # the reference is DuckDB, whose order of NULL is another
    if order and not _same_order(order, ours, theirs, scales):
        return f"order: {show(ours)} for {show(theirs)}"
    return ""


def is_documented(
    statement: Statement, ours: Sequence[Row], theirs: Sequence[Row], told: frozenset[str]
) -> bool:
    """Tell whether all rows of the reference are there, and what is more or NULL is what the notices tell of."""
    if ours and theirs and len(ours[0]) != len(theirs[0]):
        return False
    if EMPTY_GROUPS in told and _OVER_GROUPS.search(statement.sql) and len(ours) >= len(theirs):
        return True  # what is computed from groups has those that nobody is in among them, as the notice says
    scales = find_scales(statement, theirs, TIES if EQUAL_VALUES in told else NEIGHBORS)
    left = list(ours)
    for row in theirs:
        place = next(
            (
                at
                for at, mine in enumerate(left)
                if all(
                    is_same(a, b, scale) or (b is None and not isinstance(a, str))
                    for a, b, scale in zip(mine, row, scales, strict=True)
                )
            ),
            None,
        )
        if place is None:
            return False
        del left[place]
    return True


def find_scales(statement: Statement, rows: Sequence[Row], part: float) -> list[float]:
    """Return by how much each column may be off: a part of its largest number, where quantiles lie between neighbors."""
    if not rows:
        return []
    if not _NEAR.search(statement.sql):
        part = 0.0
    return [part * max(map(_find_size, column)) for column in zip(*rows, strict=True)]


def find_order(statement: Statement, names: Sequence[str]) -> list[int]:
    """Return the places of the output columns that the statement orders by, as far as these are output columns."""
    try:
        ordered = parse_one(statement.sql, read=statement.dialect).args.get("order")
    except SqlglotError:
        return []
    places, lower = [], [name.lower() for name in names]
    for item in ordered.expressions if ordered else []:
        key = item.this if isinstance(item, exp.Ordered) else item
        if isinstance(key, exp.Literal) and not key.is_string and 0 < int(key.this) <= len(names):
            places.append(int(key.this) - 1)
        elif isinstance(key, exp.Column) and not key.table and lower.count(key.name.lower()) == 1:
            places.append(lower.index(key.name.lower()))
        else:
            break
    return places


def _same_order(
    places: Sequence[int], ours: Sequence[Row], theirs: Sequence[Row], scales: Sequence[float]
) -> bool:
    return all(
        is_same(a[place], b[place], scales[place])
        for a, b in zip(ours, theirs, strict=True)
        for place in places[:1]
    )


def is_same_row(ours: Row, theirs: Row, scales: Sequence[float]) -> bool:
    """Tell whether two rows hold the same values."""
    return all(is_same(a, b, scale) for a, b, scale in zip(ours, theirs, scales, strict=True))


def is_same(ours: Any, theirs: Any, scale: float) -> bool:
    """Tell whether two values are the same, whatever their types are called; numbers as near as the lattice of sums is."""
    a, b = normalize(ours), normalize(theirs)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(is_same(x, y, scale) for x, y in zip(a, b, strict=True))
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if _is_number(a) and _is_number(b):
        return math.isclose(a, b, rel_tol=1e-5, abs_tol=max(scale, 2e-3 if abs(a) < 100 else 1e-2)) or (
            math.isnan(a) and math.isnan(b)
        )
    return bool(a == b)


def normalize(value: Any) -> Any:
    """Return a value in one form: numbers as float, midnight as its day, times in UTC without their zone."""
    if isinstance(value, dt.datetime):
        plain = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        return plain.date() if plain.time() == dt.time() else plain
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, Mapping):
        return [item for pair in sorted(value.items(), key=str) for item in pair]
    return list(value) if isinstance(value, (list, tuple)) else value


def _find_size(value: Any) -> float:
    if isinstance(value, (list, tuple)):
        return max(map(_find_size, value), default=0.0)
    return abs(float(value)) if _is_number(value) else 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _sort_key(row: Row) -> str:
    return repr([f"{float(v):.4g}" if _is_number(v) else str(normalize(v)) for v in row])


def show(rows: Sequence[Row]) -> str:
    """Return the first rows for people."""
    words = "; ".join("(" + ", ".join(str(value) for value in row) + ")" for row in rows[:4])
    return words or "no rows"
