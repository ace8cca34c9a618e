"""`python -m differential` in tests/: compares random statements with DuckDB and prints what differs, made small."""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter

from differential.chains import chained, conditioned, empty_groups, of_floats
from differential.extremes import failure, statements
from differential.grammar import about_keys, of_nobody, statement
from differential.search import loss_of, search, small_failure
from differential.world import WHO, open_world

DRAWS = {
    "any": statement,
    "keys": about_keys,
    "nobody": of_nobody,
    "chains": chained,
    "conditions": conditioned,
    "floats": of_floats,
    "empty": empty_groups,
}


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument(
        "--extremes", action="store_true", help="extremes in the rows of one unit, which must not fail"
    )
    parser.add_argument("--draw", choices=DRAWS, default="any", help="what statements are about")
    chosen = parser.parse_args()
    begun = time.process_time()
    print("seed", chosen.seed)
    counts = (
        _extremes(chosen.seed, chosen.count)
        if chosen.extremes
        else _compared(chosen.seed, chosen.count, chosen.draw)
    )
    print(counts, f"{time.process_time() - begun:.0f} s")


def _compared(seed: int, count: int, draw: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    with open_world() as world:
        for number in range(seed, seed + count):
            found, seen = search(world, [number], draw=DRAWS[draw])
            counts += seen
            if found is not None:
                print(f"#{number} {found}\n", flush=True)
    return counts


def _extremes(seed: int, count: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    with open_world() as ours, open_world(without=[WHO]) as other:
        for place, sql in enumerate(statements(seed, count)):
            found = failure((ours, other), sql, loss_of(place))
            counts["failed" if found else "went well or refused"] += 1
            if found is not None:
                print(f"#{place} {small_failure((ours, other), found, loss_of(place))}\n", flush=True)
    return counts


if __name__ == "__main__":
    main()
