"""Show the differencing attack: two exact totals reveal one person's income, and two private totals do not.

Run it with `python examples/differencing.py`, and with `--picture figure.png` to draw it (which needs matplotlib).
The story is that of Hu and Zhou 2017, "Differential privacy: a survey", section 2.1: the total income of an area is published before
and after Mr. White moves away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
from shared.pictures import draw, picture_of

import dpsql

INCOMES = {"Richard": 500_000, "White": 1_000_000, "Brown": 2_000_000, "Lee": 350_000, "Jean": 600_000}
OTHERS = 195
POLICY = """
version: 1
privacy_unit: person
budget: {epsilon: 2}
tables:
  residents:
    unit: name
    rows_per_unit: 1
    columns:
      name: {type: varchar}
      income: {type: integer, bounds: [0, 3000000]}
"""
QUESTION = "SELECT SUM(income) AS total FROM residents"


def area(moved_away: bool = False) -> duckdb.DuckDBPyConnection:
    """Make a database of two hundred residents, with Mr. White or without."""
    people = {**INCOMES, **{f"Resident {k}": 40_000 + 1_500 * k for k in range(OTHERS)}}
    if moved_away:
        del people["White"]
    database = duckdb.connect()
    database.execute("CREATE TABLE residents (name VARCHAR, income INTEGER)")
    database.executemany("INSERT INTO residents VALUES (?, ?)", list(people.items()))
    return database


def exact_total(database: duckdb.DuckDBPyConnection) -> int:
    """Return the answer of a database without privacy."""
    (total,) = database.execute(QUESTION).fetchone() or (0,)
    return int(total)


def private_total(database: duckdb.DuckDBPyConnection, epsilon: float) -> tuple[float, float]:
    """Return the answer of dpsql, and the half-width of its 95% interval."""
    with dpsql.connect(database, policy=POLICY, ledger=":memory:", epsilon=epsilon) as con:
        answer = con.query(QUESTION)
    ((total,),), (((low, high),),) = answer.rows, answer.intervals()
    return total, (high - low) / 2


def guesses(runs: int, epsilon: float) -> list[float]:
    """Return `runs` guesses of Mr. White's income, each from two new private totals."""
    policy = POLICY.replace("budget: {epsilon: 2}", f"budget: {{epsilon: {runs * epsilon}}}")
    totals = []
    for database in (area(), area(moved_away=True)):
        with dpsql.connect(database, policy=policy, ledger=":memory:", epsilon=epsilon, replay=False) as con:
            totals.append([con.query(QUESTION).rows[0][0] for _ in range(runs)])
    return [before - after for before, after in zip(*totals, strict=True)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the attack on exact and on private totals."""
    path = picture_of(__doc__, arguments)
    before, after = exact_total(area()), exact_total(area(moved_away=True))
    print(f"total income before the move  {before:>12,}")
    print(f"total income after the move   {after:>12,}")
    print(f"so Mr. White has              {before - after:>12,}   (he has {INCOMES['White']:,})")
    print("\nwith dpsql, at ε = 1 each:")
    (first, off), (second, _) = private_total(area(), 1), private_total(area(moved_away=True), 1)
    print(f"total income before the move  {first:>12,.0f} ± {off:,.0f}")
    print(f"total income after the move   {second:>12,.0f} ± {off:,.0f}")
    print(
        f"so Mr. White has              {first - second:>12,.0f} ± {2**0.5 * off:,.0f}: any income is possible"
    )
    print(
        f"the error of the total is {100 * off / before:.0f}% for 200 people; for 200,000 it would be 1,000 times less"
    )

    def onto(axes: Sequence[Any]) -> None:
        found = guesses(10, 1)
        axes[0].hist(
            [guess / 1e6 for guess in found], bins=10, color="tab:gray", label="from two private totals"
        )
        axes[0].axvline(INCOMES["White"] / 1e6, color="tab:red", label="from two exact totals")
        axes[0].set(xlabel="guess of Mr. White's income, in millions", ylabel="attacks")

    draw(path, 1, onto)


if __name__ == "__main__":
    main()
