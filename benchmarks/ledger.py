"""How fast the ledger charges and opens, after short and long histories: `python -m benchmarks.ledger`.

The history is written straight into the file, for charging 100,000 times takes minutes. The ratio of the
median charge after the long history to that after the short one should stay near 1. Opening checks every
entry, so its time grows with the history; a charge checks only what is new.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing
from fractions import Fraction
from pathlib import Path

from dpsql.accounting import Budget, Ledger, Pure, open_ledger
from dpsql.accounting.rows import row_digest

BUDGETS = {"visits": Budget("zcdp", Fraction(1000), Fraction(1, 10**6))}
CHARGE = {"visits": Pure(Fraction(1, 1000))}
QUERY = "SELECT plan, AVG(cost) AS avg_cost FROM visits GROUP BY plan"


def charge_times(ledger: Ledger, count: int) -> list[float]:
    """The seconds that each of `count` charges takes."""
    times = []
    for _ in range(count):
        start = time.perf_counter()
        ledger.charge(CHARGE, analyst="ana", query=QUERY, details={"mechanism": "geometric"})
        times.append(time.perf_counter() - start)
    return times


def lengthen(path: Path, count: int) -> None:
    """Adds `count` entries after the last one, each as it, with its own numbers, total and digest."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    row = dict(connection.execute("SELECT * FROM entries ORDER BY id DESC LIMIT 1").fetchone())
    names = list(row)
    slots = ", ".join("?" * len(names))
    rows = []
    for _ in range(count):
        row |= {"id": row["id"] + 1, "charge": row["id"] + 1, "number": row["number"] + 1}
        row["spent_loss"] = str(int(row["spent_loss"]) + int(row["loss"]))
        row["previous"] = row["digest"]
        row["digest"] = row_digest(row)
        rows.append([row[name] for name in names])
    connection.executemany(f"INSERT INTO entries ({', '.join(names)}) VALUES ({slots})", rows)
    connection.commit()
    connection.close()


def main() -> None:
    """Prints charges per second after each length of history, and the ratio to the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--charges", type=int, default=300, help="charges to time at each length")
    parser.add_argument("--history", type=int, default=100_000, help="entries of the longest history")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "bench.ledger"
        with closing(open_ledger(path, BUDGETS)) as ledger:
            charge_times(ledger, 20)
        print(f"{'history':>9} {'charges/s':>10} {'ratio':>6} {'opens in s':>11}")
        first = None
        length = 20
        for history in (0, options.history // 10, options.history):
            lengthen(path, max(history - length, 0))
            start = time.perf_counter()
            with closing(open_ledger(path, BUDGETS)) as ledger:
                opening = time.perf_counter() - start
                median = statistics.median(charge_times(ledger, options.charges))
                length = ledger.head().entries
            first = first or median
            print(f"{history:>9,} {1 / median:>10,.0f} {median / first:>6.2f} {opening:>11.3f}")


if __name__ == "__main__":
    main()
