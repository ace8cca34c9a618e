"""Writes how TPC-H fares: `python -m tests.tpch.report > docs/measurements/tpch.md`."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence

import duckdb

import dpsql
from dpsql.api.connection import Connection

from .accuracy import Comparison, compare
from .study import QUERIES, UNITS, database, policy
from .verdicts import CASES, DELTA, LOSSES, PUBLIC, REFUSED, REWRITES, SPARSE, keys, rewritten_keys

RUNS = 9
"""How often each query is asked at each loss."""

_HEAD = f"""\
# TPC-H
The 22 queries of the benchmark as published, with the validation parameters of the specification, at scale factor 0.1
(15,000 customers, 1,000 suppliers, 600,000 line items). Once each customer is protected, with all orders and line items;
once each supplier, with all offers and what is sold of them. The policies are in `tests/tpch/study.py`: bounds
and values from the specification, none from the data. This page is written by `python -m tests.tpch.report`; the tests in
`tests/tpch` hold its verdicts, that each number is exact but for its noise, and that the noise falls as ε grows.

- *Verdict*: answered; public, which is exact and free; or the code of the refusal. Below what is refused, or withholds
  its groups because each holds few customers or suppliers, is what to ask instead.
- *Groups*: how many of the exact answer's rows are in the noisy one, whatever their numbers; + is how many more it has:
  groups that nobody is in, since hiding them would tell so.
- *Error*: |noisy − exact| / |exact|, the median over all numbers in these rows; everything is the median of {RUNS} answers.
  Each answer spends ε under `zcdp`, and δ = {DELTA:.0e} where groups have to be found out.
"""
_COLUMNS = (
    "query",
    "verdict",
    *(f"{what}, ε = {loss}" for loss in LOSSES for what in ("groups", "error")),
)


def verdict(unit: str, number: int) -> str:
    """What becomes of a query, as the table says it."""
    if number in PUBLIC[unit]:
        return "public"
    code = REFUSED[unit].get(number)
    if code is not None:
        return f"refused: `{code}`"
    return "answered, groups withheld" if number in SPARSE[unit] else "answered"


def title(number: int) -> str:
    """A query as the table names it."""
    return f"[Q{number}](../../tests/tpch/queries/q{number:02}.sql)"


def rewrite_title(unit: str, number: int) -> str:
    """What is asked instead, as the table names it."""
    return f"[Q{number}, rewritten](../../tests/tpch/rewrites/q{number:02}_{unit}.sql)"


def lead(unit: str, number: int) -> list[str]:
    """The beginnings of a query's lines, which no noise changes."""
    lines = [_line([title(number), verdict(unit, number)])]
    if (unit, number) in REWRITES:
        lines.append(_line([rewrite_title(unit, number), "answered"]))
    return lines


def markdown() -> Iterator[str]:
    """The page, line by line."""
    yield _HEAD
    with database() as exact:
        for unit in UNITS:
            yield f"\n## Privacy unit: {unit}\n"
            yield f"{_line(_COLUMNS)} |"
            yield "|---" * len(_COLUMNS) + "|"
            study = dpsql.connect(exact, policy=policy(unit), ledger=":memory:", epsilon=1, replay=False)
            for number in (number for of, number in CASES if of == unit):
                yield from _rows(study, exact, unit, number)
    yield _FOOT.rstrip()


def _rows(study: Connection, exact: duckdb.DuckDBPyConnection, unit: str, number: int) -> Iterator[str]:
    first, *rewritten = lead(unit, number)
    if number in REFUSED[unit]:
        yield f"{first} |{' |' * 2 * len(LOSSES)}"
    else:
        yield f"{first} | {_measured(study, exact, QUERIES[number], keys(number))} |"
    for line in rewritten:
        cells = _measured(study, exact, REWRITES[unit, number], rewritten_keys(unit, number))
        yield f"{line} | {cells} |"


def _measured(study: Connection, exact: duckdb.DuckDBPyConnection, sql: str, names: Sequence[int]) -> str:
    rows = exact.execute(sql).fetchall()
    cells: list[str] = []
    for loss in LOSSES:
        answers = [study.query(sql, epsilon=loss, delta=DELTA) for _ in range(RUNS)]
        cells += _cells([compare(answer, rows, names) for answer in answers])
    return " | ".join(cells)


def _cells(answers: Sequence[Comparison]) -> list[str]:
    both = round(statistics.median(answer.both for answer in answers))
    more = round(statistics.median(answer.released - answer.both for answer in answers))
    errors = [answer.error for answer in answers if answer.error is not None]
    error = f"{statistics.median(errors):.2%}" if errors and both else "–"
    return [f"{both:,} of {answers[0].exact:,}" + f" + {more:,}" * (more > 0), error]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)}"


_FOOT = """
## What the errors come from
Nobody may be seen in an answer, so the noise must hide the largest customer or supplier that counts. The policy allows 160
line items of up to 105,000 each, or 700; what counts of one in a group is learnt, for a part of the loss, and is far less.

- **Totals of few rows** (Q5, Q7, Q8, Q9, Q19, Q20, Q21) are the sums of a few large units, of which noise must hide each.
  Larger groups, or COUNT(DISTINCT unit) for COUNT(*), are what helps.
- **Q9 of suppliers**: nothing tells that a supplier offers a part once, so 700 items by 80 offers may count, as 56,000
  rows; but a supplier has one nation, so that it is in seven groups at most, one for each year.
- **Q17** compares each item with the noisy average of its part, for which few items are there: where the average of a
  part is not released, its items are left out. An error of 100% is that of no items at all.
- **Averages, shares and counts of units** (Q1, Q4, Q13, Q22, most rewrites) are good at ε = 1.
- **What is withheld** is by order, part or supplier: too few units are in one group to be shown. At any ε, a group of one
  customer is shown with a probability of at most δ; larger groups are, once the noise of a count is below their size.
- **Q15** would name the largest of noisy totals, which is another supplier's. A group by nation is large enough.
"""


def main() -> None:
    """Prints the page as it is made."""
    for line in markdown():
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
