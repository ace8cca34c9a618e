"""How often 95% intervals hold the truth: `python -m benchmarks.coverage`.

Each statement of each data set is asked over and over, at each ε, under each accountant, with public and with
secret keys, and each number is compared with what DuckDB answers to the same statement. How to read the table:
benchmarks/README.md. What happens meanwhile goes to the standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from benchmarks.coverage import table
from benchmarks.coverage.asking import Grid, ask
from benchmarks.coverage.studies import STUDIES, Study


def main(arguments: Sequence[str] | None = None) -> None:
    """Asks, and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument(
        "--data", type=_studies, default=list(STUDIES), help=", ".join(one.name for one in STUDIES)
    )
    parser.add_argument(
        "--epsilon", type=_words, default=["0.1", "0.2", "1", "4"], help="losses, with commas between"
    )
    parser.add_argument("--accountant", type=_words, default=["pure", "zcdp"], help="pure, zcdp, …")
    parser.add_argument("--keys", type=_words, default=["known", "secret"], help="known, secret")
    parser.add_argument("--runs", type=int, default=5, help="answers to each statement in each setting")
    parser.add_argument(
        "--only", type=_words, default=[], help="statements whose title holds one of these words"
    )
    parser.add_argument("--scale", default="0.1", help="the scale factor of TPC-H")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--statements", action="store_true", help="a line for each statement too")
    parser.add_argument(
        "--json", action="store_true", help="a JSON object for each statement and setting instead"
    )
    options = parser.parse_args(arguments)
    if set(options.keys) - {"known", "secret"}:
        parser.error("keys are known, secret")
    grid = Grid(
        options.data,
        options.epsilon,
        options.accountant,
        options.keys,
        options.runs,
        options.only,
        options.scale,
    )
    begun = time.perf_counter()
    asked = ask(grid, options.processes, lambda words: print(words, file=sys.stderr, flush=True))
    if options.json:
        for fact in table.data(asked):
            print(json.dumps(fact, ensure_ascii=False))
        return
    for line in table.lines(asked):
        print(line)
    print()
    for line in table.kinds(asked):
        print(line)
    for line in table.refusals(asked):
        print(line)
    if options.statements:
        print()
        for line in table.statements(asked):
            print(line)
    print(f"\n{options.runs} answers each, {time.perf_counter() - begun:,.0f} s")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _studies(text: str) -> list[Study]:
    """The studies whose names begin with one of the words."""
    words = _words(text)
    unknown = [word for word in words if not any(study.name.startswith(word) for study in STUDIES)]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"there is no {unknown[0]}; there are {', '.join(s.name for s in STUDIES)}"
        )
    return [study for study in STUDIES if any(study.name.startswith(word) for word in words)]


if __name__ == "__main__":
    main()
