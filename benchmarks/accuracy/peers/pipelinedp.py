"""pipeline-dp on its local backend: what units contribute is accumulated once, noise is added for each answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import duckdb
import pipeline_dp
from pipeline_dp import Metrics

from benchmarks.accuracy.peers.job import Ask, Question, Refused, Rows, serve

METRICS = {
    "COUNT": (Metrics.COUNT, "count"),
    "SUM": (Metrics.SUM, "sum"),
    "AVG": (Metrics.MEAN, "mean"),
    "VAR": (Metrics.VARIANCE, "variance"),
    "MEDIAN": (Metrics.PERCENTILE(50), "percentile_50"),
}
_kept: dict[str, tuple[list[Any], Accumulating]] = {}


class Accumulating(pipeline_dp.LocalBackend):
    """The local backend, which accumulates once for each kind of accumulator and then reuses it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[Any]] = {}

    def combine_accumulators_per_key(self, col: Iterable[Any], combiner: Any, stage_name: Any = None) -> Any:
        """The accumulators of each group."""
        key = f"{stage_name} {combiner.metrics_names()}"
        if key not in self.found:
            self.found[key] = list(super().combine_accumulators_per_key(col, combiner, stage_name))
        return list(self.found[key])


def prepare(question: Question, epsilon: float, delta: float) -> Ask:
    """Says the aggregates and bounds in the package's terms."""
    functions = {function for _, function, _ in question.outputs}
    unknown = functions - METRICS.keys()
    if unknown:
        raise Refused(f"no {min(unknown)}")
    columns = {column for _, _, column in question.outputs if column}
    if len(columns) > 1:
        raise Refused("aggregates one column")
    public = question.public_keys if question.keys else [()]
    params = pipeline_dp.AggregateParams(
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        metrics=[METRICS[function][0] for function in sorted(functions)],
        **_bounds(question, functions, public is not None),
        **{
            f"{end}_value": question.bounds[next(iter(columns))][at]
            for at, end in enumerate(("min", "max"))
            if columns
        },
    )
    rows, backend = _rows(question, next(iter(columns), None))
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: row[2],
    )

    def ask() -> Rows:
        accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=delta)
        engine = pipeline_dp.DPEngine(accountant, backend)
        found = engine.aggregate(rows, params, extractors, public_partitions=public)
        accountant.compute_budgets()
        return [
            [*key, *(getattr(values, METRICS[function][1]) for _, function, _ in question.outputs)]
            for key, values in found
        ]

    return ask


def _bounds(question: Question, functions: set[str], keys_are_known: bool) -> dict[str, int]:
    """The bound on all rows of a unit where the package takes it, which is the tighter one, or else by group."""
    if keys_are_known and functions <= {"COUNT", "SUM", "AVG"}:
        return {"max_contributions": question.rows_per_unit}
    return {
        "max_partitions_contributed": question.groups_per_unit,
        "max_contributions_per_partition": question.rows_per_unit,
    }


def _rows(question: Question, column: str | None) -> tuple[list[Any], Accumulating]:
    name = f"{question.name} {column}"
    if name not in _kept:
        _kept.clear()
        keys = ", ".join(question.key_names)
        found = duckdb.sql(f"SELECT unit, {column or 0}, {keys} FROM '{question.table}'").fetchall()
        _kept[name] = [(unit, tuple(key), float(value)) for unit, value, *key in found], Accumulating()
    return _kept[name]


if __name__ == "__main__":
    serve(prepare)
