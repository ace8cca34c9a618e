"""What becomes of SQL that people write: `python -m benchmarks.people > docs/measurements/people.md`.

Statements are expanded from families of shapes, asked of dpsql without noise, and compared with the engine of their dialect. What
happens meanwhile goes to the standard error. How to read the page: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence

from benchmarks.people.judge import Verdict, judge
from benchmarks.people.statements import DIALECTS, list_statements
from benchmarks.people.table import write_page
from benchmarks.people.worlds import open_worlds


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge the statements and print the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.people", description=__doc__)
    parser.add_argument("--dialects", default=",".join(DIALECTS), help="dialects, with commas between")
    parser.add_argument(
        "--only", default="", help="statements whose source, title, dialect or study holds this word"
    )
    parser.add_argument("--servers", default="postgres,spark", help="engines to compare with, besides DuckDB")
    parser.add_argument("--every", type=int, default=1, help="ask one statement in so many")
    parser.add_argument(
        "--json", action="store_true", help="a JSON object for each statement instead of the page"
    )
    options = parser.parse_args(arguments)
    dialects = options.dialects.split(",")
    chosen = [
        each
        for each in list_statements()
        if each.dialect in dialects and options.only.lower() in str(each).lower()
    ][:: options.every]
    servers = [each for each in options.servers.split(",") if each in dialects]
    begun = time.perf_counter()

    def report(words: str) -> None:
        print(f"{time.perf_counter() - begun:5.0f} s  {words}", file=sys.stderr, flush=True)

    verdicts: list[Verdict] = []
    with open_worlds(servers, report) as worlds:
        for place, statement in enumerate(chosen, 1):
            verdicts.append(judge(statement, worlds))
            if options.json:
                print(write_json(verdicts[-1]), flush=True)
            if place % 100 == 0 or place == len(chosen):
                report(f"{place} of {len(chosen)}: {dict(Counter(each.kind for each in verdicts))}")
    if not options.json:
        for line in write_page(verdicts, time.perf_counter() - begun, servers):
            print(line)


def write_json(verdict: Verdict) -> str:
    """Write a verdict as a JSON object."""
    facts = {
        "name": str(verdict.statement),
        "kind": verdict.kind,
        "code": verdict.code,
        "detail": verdict.detail,
        "sql": verdict.statement.sql,
        "means": verdict.statement.means,
    }
    return json.dumps(facts, ensure_ascii=False)


if __name__ == "__main__":
    main()
