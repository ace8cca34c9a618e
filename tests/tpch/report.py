"""Writes how TPC-H fares: `python -m tests.tpch.report > docs/tpch.md`."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence

import duckdb

import dpsql
from dpsql.connection import Connection

from .accuracy import Comparison, compare
from .study import QUERIES, UNITS, database, policy
from .verdicts import CASES, DELTA, PUBLIC, REFUSED, REWRITES, keys, rewritten_keys

LOSSES = (1, 100)
RUNS = 5
"""How often each query is asked at each loss."""

_HEAD = f"""\
# TPC-H
The 22 queries of the benchmark as published, with the validation parameters of the specification, at scale factor 0.1
(15,000 customers, 1,000 suppliers, 600,000 line items). Once each customer is protected, with all orders and line items;
once each supplier, with all offers and what is sold of them. The policies are in `tests/tpch/study.py`: bounds
and values from the specification, none from the data. This page is written by `python -m tests.tpch.report`; the tests in
`tests/tpch` hold its verdicts, that each number is exact but for its noise, and that the noise falls as ε grows.

- *Verdict*: answered; public, which is exact and free; or the code of the refusal, with what to ask instead below it.
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
    return "answered" if code is None else f"refused: `{code}`"


def title(number: int) -> str:
    """A query as the table names it."""
    return f"[Q{number}](../tests/tpch/queries/q{number:02}.sql)"


def rewrite_title(unit: str, number: int) -> str:
    """What is asked instead, as the table names it."""
    return f"[Q{number}, rewritten](../tests/tpch/rewrites/q{number:02}_{unit}.sql)"


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
            study = dpsql.connect(exact, policy=policy(unit), ledger=":memory:", epsilon=1)
            for number in (number for of, number in CASES if of == unit):
                yield from _rows(study, exact, unit, number)


def _rows(study: Connection, exact: duckdb.DuckDBPyConnection, unit: str, number: int) -> Iterator[str]:
    first, *more = lead(unit, number)
    asked = (QUERIES[number], keys(number))
    if more:
        yield f"{first} |{' |' * 2 * len(LOSSES)}"
        (first,) = more
        asked = (REWRITES[unit, number], rewritten_keys(unit, number))
    rows = exact.execute(asked[0]).fetchall()
    cells: list[str] = []
    for loss in LOSSES:
        runs = 1 if number in PUBLIC[unit] else RUNS
        answers = [study.query(asked[0], epsilon=loss, delta=DELTA) for _ in range(runs)]
        cells += _cells([compare(answer, rows, asked[1]) for answer in answers])
    yield f"{first} | {' | '.join(cells)} |"


def _cells(answers: Sequence[Comparison]) -> list[str]:
    both = round(statistics.median(answer.both for answer in answers))
    more = round(statistics.median(answer.released - answer.both for answer in answers))
    errors = [answer.error for answer in answers if answer.error is not None]
    error = f"{statistics.median(errors):.2%}" if errors and both else "–"
    return [f"{both:,} of {answers[0].exact:,}" + f" + {more:,}" * (more > 0), error]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)}"


def main() -> None:
    """Prints the page as it is made."""
    for line in markdown():
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
