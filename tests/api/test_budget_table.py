"""What `con.budget()` prints: a table, and numbers that are read as numbers."""

from __future__ import annotations

import duckdb

import dpsql


def test_budgets_are_a_table() -> None:
    """Printed, in a notebook and by its repr; each figure of a state is a number, and no fraction."""
    policy = {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 1.5, "accountant": "zcdp", "delta": 1e-6},
        "tables": {"people": {"unit": "id", "rows_per_unit": 1}},
    }
    database = duckdb.connect()
    database.execute("CREATE TABLE people AS SELECT range AS id FROM range(9)")
    with dpsql.connect(database, policy=policy, ledger=":memory:") as con:
        con.query("SELECT COUNT(*) FROM people", epsilon=0.1)
        found = con.budget()
    heads, _, line = str(found).splitlines()
    assert heads.split()[:2] == ["table", "used"]
    assert line.split()[0] == "people"
    assert line.split()[-3:] == ["1.5", "1e-6", "zcdp"]
    assert repr(found) == str(found)
    shown = found._repr_html_()
    assert shown.startswith("<table><thead><tr><th>table</th><th style=")
    assert all(f">{cell}</td>" in shown for cell in line.split())
    assert repr(found["people"].epsilon) == "1.5"
    assert "Fraction" not in repr(found["people"])
