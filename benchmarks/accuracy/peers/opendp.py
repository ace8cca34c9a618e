"""opendp[polars]: a measurement is made once for each question and ε, and invoked for each answer.

Units keep to their bounds, so these are declared as contributions and nothing is sampled away.
"""

from __future__ import annotations

import warnings

import opendp.prelude as dp
import polars as pl

from benchmarks.accuracy.peers.job import Ask, Question, Refused, Rows, serve

CANDIDATES = 200
"""How many values a median is chosen among, at equal steps between the bounds, where values are not whole."""
MOST_GROUPS = 1_000
"""A public bound on how many groups there are, where nobody knows which."""
_kept: dict[str, pl.DataFrame] = {}


def prepare(question: Question, epsilon: float, delta: float) -> Ask:
    """Builds the measurement; the search for its scale and threshold is the package's own."""
    frame = _frame(question)
    names = question.key_names
    public = question.public_keys
    groups = len(public) if public is not None else MOST_GROUPS
    context = dp.StatementContext.compositor(
        data=frame.lazy(),
        privacy_unit=dp.unit_of(contributions=_contributions(question)),
        privacy_loss=dp.loss_of(epsilon=epsilon, delta=delta),
        split_evenly_over=1,
        margins=[
            dp.polars.Margin(by=[], max_length=question.public_size),
            *(
                [dp.polars.Margin(by=names, max_length=question.public_size, max_groups=groups)]
                if names
                else []
            ),
        ],
    )
    outputs = [_expression(question, *output) for output in question.outputs]
    if public is None and all(column for _, _, column in question.outputs):
        outputs.append(dp.len(signed=True).alias("rows"))
    query = context.query().group_by(names).agg(*outputs) if names else context.query().select(*outputs)
    if names and public is not None:
        keys = [pl.Series(name, [key[at] for key in public]) for at, name in enumerate(names)]
        query = query.with_keys(pl.LazyFrame(keys))
    measurement = query.resolve()
    columns = [*names, *(name for name, _, _ in question.outputs)]

    def ask() -> Rows:
        return measurement(frame.lazy()).collect().select(columns).rows()

    return ask


def _contributions(question: Question) -> int | list[dp.polars.Bound]:
    """At most so many rows of a unit; where keys have to be found out, in at most so many groups."""
    if question.public_keys is not None or question.rows_per_unit == 1:
        return question.rows_per_unit
    return [
        dp.polars.Bound(by=[], per_group=question.rows_per_unit),
        dp.polars.Bound(
            by=question.key_names, per_group=question.rows_per_unit, num_groups=question.groups_per_unit
        ),
    ]


def _expression(question: Question, name: str, function: str, column: str | None) -> pl.Expr:
    if column is None:
        return dp.len(signed=True).alias(name)
    low, high = question.bounds[column]
    whole = column in question.whole
    values = pl.col(column).fill_null(int(low)) if whole else pl.col(column).fill_nan(low).fill_null(low)
    ends = (int(low), int(high)) if whole else (low, high)
    if function == "SUM":
        return values.dp.sum(ends).alias(name)
    if function == "AVG":
        return values.dp.mean(ends).alias(name)
    if function == "MEDIAN":
        steps = int(high - low) if whole else CANDIDATES
        places = [low + (high - low) * place / steps for place in range(steps + 1)]
        return values.dp.median([int(place) for place in places] if whole else places).alias(name)
    raise Refused(f"no {function}")


def _frame(question: Question) -> pl.DataFrame:
    if question.table not in _kept:
        _kept.clear()
        _kept[question.table] = pl.read_parquet(question.table)
    return _kept[question.table]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    dp.enable_features("contrib")
    serve(prepare)
