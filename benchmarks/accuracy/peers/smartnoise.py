"""smartnoise-sql: each aggregate it makes, hidden ones too, is charged the ε of its privacy object.

The query is rewritten once, with the scales of its noise, and the exact aggregates are found once and handed to
it as `pre_aggregated`, its own way of reusing them. Rows are not sampled, for units keep to their bounds. Values are in tens, thousands, … where it
would otherwise refuse a large scale of noise, as its message advises.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import duckdb
import snsql
from snsql import Privacy

from benchmarks.accuracy.peers.job import Ask, Question, Refused, Rows, serve

MOST_NOISE = 1_000_000
"""The scale above which values are asked for in larger steps; it refuses ten times as much."""
KNOWN = {"COUNT", "SUM", "AVG", "VAR", "STDDEV"}
_kept: dict[str, Any] = {}


def prepare(question: Question, epsilon: float, delta: float) -> Ask:
    """Finds the ε of each aggregate whose total is what was asked for, and the exact aggregates."""
    unknown = [function for _, function, _ in question.outputs if function not in KNOWN]
    if unknown:
        raise Refused(f"no {unknown[0]}")
    sql = question.sql()
    steps = {column: _step(question, column, epsilon) for column in question.bounds}
    metadata = _metadata(question, steps)
    frame = _frame(question, steps)
    asked = _share(frame, metadata, sql, (epsilon, delta))
    reader = snsql.from_df(frame, privacy=asked, metadata=metadata)
    parsed = reader.parse_query_string(sql)
    rewritten = reader._rewrite_ast(parsed)
    reader._rewrite_ast = lambda _: rewritten
    exact = reader._get_reader(rewritten[0])._execute_ast(rewritten[0])
    back = [1.0] * len(question.keys) + [
        _back(function, steps.get(column or "", 1)) for _, function, column in question.outputs
    ]

    def ask() -> Rows:
        _, *rows = reader._execute_ast(parsed, pre_aggregated=exact)
        return [_scaled(row, back) for row in rows]

    return ask


def _share(frame: Any, metadata: Any, sql: str, total: tuple[float, float]) -> Privacy:
    """The ε and δ of each aggregate, so that all together spend the total, as the package itself says."""
    epsilon, delta = total
    one = snsql.from_df(frame, privacy=Privacy(epsilon=epsilon, delta=delta), metadata=metadata)
    number = sum(1 for cost in one._get_mechanism_costs(sql) if cost)
    _, spent_delta = one.get_privacy_cost(sql)
    share = Privacy(epsilon=epsilon / number, delta=delta * min(1.0, delta / spent_delta))
    spent = snsql.from_df(frame, privacy=share, metadata=metadata).get_privacy_cost(sql)
    if not (math.isclose(spent[0], epsilon, rel_tol=1e-6) and spent[1] <= delta * 1.01):
        raise Refused(f"spends {spent} where {total} was asked for")
    return share


def _step(question: Question, column: str, epsilon: float) -> int:
    """The step at which the noise of the column's sum, or of the sum of its squares, is no larger than allowed."""
    functions = {function for _, function, name in question.outputs if name == column}
    power = 2 if functions & {"VAR", "STDDEV"} else 1
    step = 1
    while question.rows_per_unit * _share_of_one(question, column, step, power) * 5 / epsilon > MOST_NOISE:
        step *= 10
    return step


def _share_of_one(question: Question, column: str, step: int, power: int) -> float:
    return (max(map(abs, question.bounds[column])) / step) ** power


def _back(function: str, step: int) -> float:
    return {"COUNT": 1, "VAR": step**2}.get(function, step)


def _scaled(row: Sequence[Any], back: Sequence[float]) -> list[Any]:
    return [
        value if isinstance(value, str) or value is None else value * factor
        for value, factor in zip(row, back, strict=True)
    ]


def _metadata(question: Question, steps: dict[str, int]) -> dict[str, Any]:
    columns: dict[str, Any] = {name: {"type": "string"} for name in question.key_names}
    for name, (low, high) in question.bounds.items():
        kind = "int" if name in question.whole and steps[name] == 1 else "float"
        columns[name] = {"type": kind, "lower": low / steps[name], "upper": high / steps[name]}
    table: dict[str, Any] = {
        "rows": question.public_size,
        "row_privacy": question.row_is_unit,
        "max_ids": question.rows_per_unit,
        "sample_max_ids": False,
        "censor_dims": question.public_keys is None,
        "clamp_counts": False,
        "unit": {"type": "int", "private_id": True},
        **columns,
    }
    if question.row_is_unit:
        del table["unit"]
    return {"": {"": {"t": table}}}


def _frame(question: Question, steps: dict[str, int]) -> Any:
    values = [
        name if step == 1 else f"CAST({name} AS DOUBLE) / {step} AS {name}" for name, step in steps.items()
    ]
    sql = f"SELECT {', '.join(['unit', *question.key_names, *values])} FROM '{question.table}'"
    if sql not in _kept:
        _kept.clear()
        _kept[sql] = duckdb.sql(sql).df()
    return _kept[sql]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    serve(prepare)
