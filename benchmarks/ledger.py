"""How fast the ledger charges, opens and is verified, after short and long histories: `python -m benchmarks.ledger`.

The history is inserted in bulk, of rows that are made as a charge makes them, for charging a million times takes an
hour. A charge is durable when it returns, so that a disk which takes long to write a page durably sets the pace:
beside the charges of each length stand as many bare writes of a page, each with its fsync, on the same disk. Threads
of one process that share a ledger share its commits, so that together they charge more often than the disk syncs.
A charge to a box of many ranges in several dimensions, after others that cut the table in other ways, is the one that
takes most computing: beside the plain ones stands how many of them one such charge takes.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path

from sqlalchemy import insert

from dpsql.interfaces.shell.answers import View, build_table
from dpsql.ledger import Budget, open_ledger
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.digest import compute_text_digest
from dpsql.ledger.protocol import TableCharge
from dpsql.ledger.schema import ENTRIES, get_row_head, make_entry_row, to_charge_columns
from dpsql.ledger.sql_ledger import SqlLedger
from dpsql.privacy.accounting import Pure
from dpsql.privacy.accounting.partitions.boxes import Box

BUDGETS = {"visits": Budget("zcdp", Fraction(10**6), Fraction(1, 10**6))}
VISITS, EVENT = AccountKey("visits"), Pure(Fraction(1, 1000))
QUERY = "SELECT plan, AVG(cost) AS avg_cost FROM visits GROUP BY plan"
PAGE = b"\0" * 4096
BATCH = 10_000
CROWDS = (8, 32)
DIMENSIONS, RANGES, ENDS, BOXES = ("a", "b", "c", "d"), 48, 10_000, 60


def opened(path: Path) -> SqlLedger:
    """The ledger at a path."""
    ledger = open_ledger(path, BUDGETS)
    if not isinstance(ledger, SqlLedger):
        raise TypeError("the ledger is of another kind")
    return ledger


def seconds(work: Callable[[], object]) -> float:
    """How long a piece of work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def charge(ledger: SqlLedger) -> None:
    """Charges once."""
    ledger.charge({"visits": EVENT}, analyst="ana", query=QUERY, details={"mechanism": "geometric"})


def skew(rng: random.Random) -> Box:
    """A box of the most dimensions and ranges that a charge keeps apart, at ends that nobody charged before."""
    sides = {}
    for name in DIMENSIONS:
        ends = sorted(rng.sample(range(ENDS), 2 * RANGES))
        sides[name] = tuple(zip(ends[::2], ends[1::2], strict=True))
    return Box.from_sides(sides)


def boxed(folder: Path) -> float:
    """The processor's seconds of a charge to a skew box, the median of those after the first half."""
    rng, times = random.Random(1), list[float]()
    with closing(opened(folder / "boxes.ledger")) as ledger:
        for _ in range(BOXES):
            bill = TableCharge("visits", EVENT, skew(rng))
            begun = time.process_time()
            ledger.charge([bill], analyst="ana", query=QUERY, details={"mechanism": "geometric"})
            times.append(time.process_time() - begun)
    return statistics.median(times[BOXES // 2 :])


def lengthen(ledger: SqlLedger, length: int) -> None:
    """Adds entries up to this length, each as a charge would write it, many in one transaction."""
    cost = ledger._book.accounts[VISITS].accountant.compute_charge(EVENT)
    limit = to_charge_columns("limit_", ledger._book.accounts[VISITS].limit)
    while (missing := length - ledger.read_head().entries) > 0:
        with ledger._journal.open_transaction(write=True) as connection:
            end, balance = ledger._journal.chain.head, ledger._journal.chain.get_balance(VISITS)
            spent, count = balance.spent, balance.count
            rows = []
            for number in range(count + 1, count + 1 + min(missing, BATCH)):
                spent += cost
                common = {
                    "at": "2026-11-01T12:00:00.000000+00:00",
                    "analyst": "ana",
                    "query": QUERY,
                    "query_digest": compute_text_digest(QUERY),
                    "details": '{"mechanism":"geometric"}',
                    "charge": end.entries + 1,
                    "kind": "charge",
                    "period": "",
                    **dict.fromkeys(("parts", "slices", "failures", "claims", "stored", "database")),
                }
                amounts = to_charge_columns("", cost), to_charge_columns("spent_", spent), limit
                budget = {"budget": ledger._journal.budgets.current[VISITS]}
                rows.append(
                    make_entry_row(
                        common, end, VISITS, number, EVENT, *amounts, budget, digests=ledger._journal.digests
                    )
                )
                end = get_row_head(rows[-1])
            connection.execute(insert(ENTRIES), rows)


def synced(folder: Path) -> float:
    """The seconds of one durable write of a page at the end of a file."""
    with (folder / "bare").open("ab") as file:

        def write() -> None:
            file.write(PAGE)
            file.flush()
            os.fsync(file.fileno())

        return seconds(write)


def crowded(ledger: SqlLedger, threads: int, charges: int) -> float:
    """Charges a second of so many threads together, once they have all begun."""
    each, begun = -(-charges // threads), threading.Barrier(threads + 1)

    def run() -> None:
        begun.wait()
        for _ in range(each):
            charge(ledger)

    crowd = [threading.Thread(target=run) for _ in range(threads)]
    for thread in crowd:
        thread.start()
    begun.wait()
    return threads * each / seconds(lambda: [thread.join() for thread in crowd])


def measured(folder: Path, length: int, charges: int) -> Sequence[str]:
    """One line: charges a second at this length, bare writes beside them, opening and the whole check."""
    path = folder / "bench.ledger"
    with closing(opened(path)) as ledger:
        lengthen(ledger, length)
    opening = statistics.median(seconds(lambda: opened(path).close()) for _ in range(3))
    with closing(opened(path)) as ledger:
        begun = time.process_time()
        times = [seconds(lambda: charge(ledger)) for _ in range(charges)]
        busy = (time.process_time() - begun) / charges
        boxes = boxed(folder) / busy
        bare = [synced(folder) for _ in range(charges)]
        crowds = [crowded(ledger, threads, max(charges, 20 * threads)) for threads in CROWDS]
        whole = seconds(ledger.verify)
    rates = (charges / sum(bare), charges / sum(times), *crowds)
    return (
        f"{length:,}",
        *(f"{rate:,.0f}" for rate in rates),
        f"{busy * 1000:.2f}",
        f"{boxes:.1f}",
        f"{opening * 1000:.0f}",
        f"{whole:.2f}",
    )


HEADS = (
    "entries",
    "bare fsync/s",
    "charges/s",
    *(f"of {threads} threads" for threads in CROWDS),
    "CPU ms/charge",
    "box/plain CPU",
    "opening ms",
    "verify s",
)


def main() -> None:
    """Prints a line for each length of history."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--charges", type=int, default=500, help="charges to time at each length")
    parser.add_argument("--entries", type=int, default=10**6, help="entries of the longest history")
    options = parser.parse_args()
    lengths = [length for length in (0, 10**4, 10**5, 10**6) if length <= options.entries]
    with tempfile.TemporaryDirectory() as name:
        with closing(opened(Path(name) / "bench.ledger")) as ledger:
            for _ in range(20):
                charge(ledger)
        rows = [measured(Path(name), length, options.charges) for length in lengths]
    print(View.from_stream(sys.stdout).render_parts(build_table(HEADS, rows, right=range(len(HEADS)))))


if __name__ == "__main__":
    main()
