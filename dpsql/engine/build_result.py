"""Build the result of a query: its rows with the intervals, the receipt, and the notices that explain them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpsql.analysis.number_types import find_decimal_digits, to_decimal
from dpsql.engine import notices
from dpsql.engine.intervals.cells import RowProvenance
from dpsql.engine.intervals.derived_values import make_interval_function, mark_bounded_columns
from dpsql.engine.post_processor import AnswerRows
from dpsql.engine.query_run import QueryRun
from dpsql.plan.provenance import find_provenance
from dpsql.privacy.mechanisms import Entropy
from dpsql.results.covariance import project_rows
from dpsql.results.result import Receipt, Result


def build_result(prepared: QueryRun, answer: AnswerRows, receipt: Receipt, entropy: Entropy) -> Result:
    """Return the result of a query with these rows; `entropy` selects experts, for a query that asks for them."""
    tables, rows, types, derived = answer.tables, answer.rows, answer.types, answer.derived
    outer, width = prepared.outer, len(prepared.outer.outputs)
    origins: RowProvenance | None = None
    if (found := find_provenance(outer)) is not None:
        places = [part.release for part in prepared.releases]
        read = [tables[places.index(trace.release)] for trace in found]
        parts = [(table.plan, trace, table) for table, trace in zip(read, found, strict=True)]
        origins = RowProvenance.from_branches(parts, [(int(row[width]), int(row[width + 1])) for row in rows])
    digits = [find_decimal_digits(output.expr) for output in outer.outputs]
    bounded = mark_bounded_columns(origins, derived, width)
    result = Result(
        columns=tuple(output.name for output in prepared.outer.outputs),
        types=tuple(
            kind if of is None else f"DECIMAL({of[0]},{of[1]})"
            for kind, of in zip(types, digits, strict=False)
        ),
        rows=project_rows(_build_answer_rows(rows, digits), prepared.matrix_columns),
        scales=((None,) * width,) * len(rows) if origins is None else origins.compute_scales(),
        receipt=receipt,
        _interval_of=make_interval_function(origins, derived),
        _bounded=bounded,
        _counts=() if origins is None else origins.count_columns,
        _branches=() if origins is None else tuple(int(row[width + 1]) for row in rows),
        _compute_notices=notices.make_answer_notices(prepared, tables, origins, bounded),
    )
    return (
        result if prepared.expert_losses is None else prepared.expert_losses.choose_experts(result, entropy)
    )


def _build_answer_rows(
    rows: Sequence[tuple[Any, ...]], digits: Sequence[tuple[int, int] | None]
) -> tuple[tuple[Any, ...], ...]:
    """Return the outputs of each row, without the provenance that follows them."""
    if not any(digits):
        return tuple(tuple(row[: len(digits)]) for row in rows)
    return tuple(tuple(map(_convert_value, row, digits)) for row in rows)


def _convert_value(value: Any, digits: tuple[int, int] | None) -> Any:
    """Return a value of the answer, as a DECIMAL if its expression is one in the engine."""
    return value if digits is None or not isinstance(value, (int, float)) else to_decimal(value, digits)
