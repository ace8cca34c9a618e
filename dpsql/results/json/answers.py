"""Write answers as JSON and read them back, with the intervals of cells, notices and receipt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dpsql.results.explanation import ExplainedQuery, QueryCharge
from dpsql.results.json import cells, records
from dpsql.results.rendering import Ends
from dpsql.results.result import Receipt, Result

IntervalMatrix = tuple[tuple[Ends, ...], ...]
"""The interval of each cell, row by row."""
IntervalSource = Callable[[float], IntervalMatrix]
"""A function that returns the intervals at a confidence that was not written."""


def write_answer(result: Result, confidences: Iterable[float]) -> dict[str, Any]:
    """Return the whole answer as JSON, with the intervals at these confidences."""
    return {
        **write_all_but_rows(result, confidences),
        "rows": [cells.write_value(row) for row in result.rows],
    }


def write_all_but_rows(result: Result, confidences: Iterable[float]) -> dict[str, Any]:
    """Return an answer as JSON without its rows."""
    width = len(result.columns)
    bounded, counts = result.bounded_columns or (False,) * width, result.count_columns or (False,) * width
    return {
        "columns": [
            {"name": name, "type": kind, "has_intervals": ends, "is_count": count}
            for name, kind, ends, count in zip(result.columns, result.types, bounded, counts, strict=True)
        ],
        "scales": [cells.write_value(row) for row in result.scales],
        "intervals": [
            {"confidence": confidence, "ends": write_intervals(result.intervals(confidence))}
            for confidence in confidences
        ],
        "notices": list(result.notices),
        "branches": list(result.branches),
        "receipt": result.receipt.to_dict(),
    }


def write_intervals(found: IntervalMatrix) -> list[Any]:
    """Return the intervals of all cells as JSON; null for a cell without one."""
    return [[None if ends is None else cells.write_value(ends) for ends in row] for row in found]


def read_answer(data: Mapping[str, Any], more: IntervalSource) -> Result:
    """Read an answer from JSON; `more` returns intervals at other confidences."""
    columns = data["columns"]
    kinds = tuple(str(column["type"]) for column in columns)
    receipt = read_receipt(data["receipt"])
    known = {float(each["confidence"]): read_intervals(each["ends"]) for each in data["intervals"]}
    notices = tuple(map(str, data["notices"]))[len(receipt.notices) :]

    def get_interval(row: int, column: int, confidence: float) -> Ends:
        if confidence not in known:
            known[confidence] = more(confidence)
        return known[confidence][row][column]

    return Result(
        columns=tuple(str(column["name"]) for column in columns),
        types=kinds,
        rows=tuple(tuple(map(cells.read_value, row, kinds)) for row in data["rows"]),
        scales=tuple(tuple(cells.read_value(scale, "DOUBLE") for scale in row) for row in data["scales"]),
        receipt=receipt,
        _interval_of=get_interval,
        _bounded=tuple(bool(column["has_intervals"]) for column in columns),
        _counts=tuple(bool(column["is_count"]) for column in columns),
        _branches=tuple(map(int, data["branches"])),
        _compute_notices=lambda _: notices,
    )


def read_intervals(data: Iterable[Iterable[Any]]) -> IntervalMatrix:
    """Read intervals from JSON."""
    return tuple(tuple(None if ends is None else _read_ends(ends) for ends in row) for row in data)


def _read_ends(ends: list[Any]) -> Ends:
    low, high = (cells.read_value(end, "DOUBLE") for end in ends)
    return low, high


def read_receipt(data: Mapping[str, Any]) -> Receipt:
    """Read a receipt that `Receipt.to_dict` wrote."""
    known: dict[str, Any] = {
        name: tuple(each) if isinstance(each, list) else each
        for name, each in data.items()
        if name in Receipt.__dataclass_fields__
    }
    return Receipt(**known)


def write_explanation(explained: ExplainedQuery) -> dict[str, Any]:
    """Return the plan of a query as JSON, line by line, with its receipt and notices."""
    return {
        "plan": list(explained.lines),
        "notices": list(explained.notices),
        "receipt": explained.receipt.to_dict(),
        "price": None if explained.price is None else records.write_record(explained.price),
    }


def read_explanation(data: Mapping[str, Any]) -> ExplainedQuery:
    """Read an explanation from JSON."""
    return ExplainedQuery(
        lines=tuple(map(str, data["plan"])),
        receipt=read_receipt(data["receipt"]),
        notices=tuple(map(str, data["notices"])),
        price=None if data["price"] is None else records.read_record(QueryCharge, data["price"]),
    )
