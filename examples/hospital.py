"""Ask about the visits to a hospital: a policy, four answers, and their cost.

Run it with `python examples/hospital.py`. Everything happens in memory, so you can run it again.
"""

from __future__ import annotations

import duckdb

import dpsql

POLICY = """
version: 1
privacy_unit: patient
budget: {epsilon: 5, delta: 1e-7}
tables:
  visits:
    unit: patient_id
    rows_per_unit: 5
    columns:
      ward: {type: varchar, values: [cardiology, surgery, maternity], nullable: false}
      town: {type: varchar}
      cost: {type: double, bounds: [0, 5000]}
      day:  {type: date, bounds: [2025-01-01, 2025-12-31], nullable: false}
  towns: {public: true}
"""

QUESTIONS = {
    "How many patients, how many visits, at what cost?": """
        SELECT COUNT(DISTINCT patient_id) AS patients, COUNT(*) AS visits, AVG(cost) AS cost
        FROM visits""",
    "Which wards are the most expensive?": """
        SELECT ward, COUNT(*) AS visits, AVG(cost) AS cost
        FROM visits GROUP BY ward ORDER BY cost DESC""",
    "What are the costs of each quarter?": """
        SELECT EXTRACT(quarter FROM day) AS quarter, SUM(cost) AS cost
        FROM visits GROUP BY quarter ORDER BY quarter""",
    "Which regions do they come from? (the region of a town is public, the residents are not)": """
        SELECT region, COUNT(*) AS visits
        FROM visits JOIN towns ON town = name GROUP BY region HAVING COUNT(*) > 500 ORDER BY visits DESC""",
}


def hospital() -> duckdb.DuckDBPyConnection:
    """Make an invented hospital: 5,000 patients with one to five visits each."""
    database = duckdb.connect()
    database.execute(
        """
        CREATE TABLE visits AS
        SELECT p AS patient_id,
               ['cardiology', 'surgery', 'maternity'][1 + (p * 7 + v) % 3] AS ward,
               'town ' || p % 8 AS town,
               400 + 900.0 * ((p * 7 + v) % 3) + (p * 31 + v * 17) % 400 AS cost,
               DATE '2025-01-01' + CAST((p * 13 + v * 71) % 365 AS INTEGER) AS day
        FROM range(5000) AS patient(p), range(5) AS visit(v) WHERE v <= p % 5;
        CREATE TABLE towns AS
        SELECT 'town ' || t AS name, CASE WHEN t < 5 THEN 'valley' ELSE 'coast' END AS region
        FROM range(8) AS town(t);
        """
    )
    return database


def main() -> None:
    """Ask every question at ε = 0.2, and print the answers and the balance."""
    with dpsql.connect(hospital(), policy=POLICY, ledger=":memory:", analyst="ana", epsilon=0.2) as con:
        for question, sql in QUESTIONS.items():
            result = con.query(sql)
            print(f"\n{question}\n{result}")
            print(f"± {_half_widths(result)} (95%)")
        state = con.budget()["visits"]
        print(
            f"\n{state.queries} answers; the budget can still pay for one query of ε = {float(state.remaining_epsilon):.3f}"
        )


def _half_widths(result: dpsql.Result) -> str:
    (first, *_) = result.intervals(0.95)
    widths = [
        (name, (ends[1] - ends[0]) / 2) for name, ends in zip(result.columns, first, strict=True) if ends
    ]
    return ", ".join(f"{width:,.3g} {name}" for name, width in widths)


if __name__ == "__main__":
    main()
