"""What ClickHouse answers is what files answer, and the commands open a folder of chdb by its URL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engines import clicks
from engines.test_promise import POLICY as SHOP
from engines.test_promise import SYNTHETIC, mean_the_same, numbers_of, shop

import dpsql

__all__ = ["shop"]


def test_five_queries_agree_with_parquet_files(clickhouse: Any, shop: Any, tmp_path: Path) -> None:
    """Parquet files and ClickHouse give the same answers; a synthetic table has nearly the exact numbers of rows."""
    source, folder = shop
    clicks.load(source, clickhouse, tmp_path, "shop")
    mean_the_same(folder, {"clickhouse": clickhouse})
    with dpsql.connect(clickhouse, policy=SHOP, ledger=":memory:", epsilon=10**6) as con:
        exact = numbers_of(source)
        found = {tuple(key): number for *key, number in con.synthetic(SYNTHETIC, method="mst").cells}
        assert sum(abs(found.get(key, 0) - number) for key, number in exact.items()) <= 20


@pytest.mark.slow
def test_commands_take_a_folder(tmp_path: Path) -> None:
    """`dpsql init`, `check` and `query` open a folder by its URL, each in a process of its own."""
    clicks.require()
    folder, policy = tmp_path / "shop", tmp_path / "shop.yaml"
    make = (
        f"import chdb; c = chdb.connect({str(folder)!r}); "
        "c.query('CREATE TABLE visits (person Int64, cost Float64) ENGINE = MergeTree ORDER BY person'); "
        "c.query('INSERT INTO visits SELECT number, 5 FROM numbers(100)'); c.close()"
    )
    subprocess.run([sys.executable, "-c", make], check=True, cwd=tmp_path)

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "dpsql", *words], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("init", f"chdb://{folder}", "--output", str(policy))
    assert "visits:" in policy.read_text(encoding="utf-8")
    policy.write_text(
        "version: 1\nprivacy_unit: person\nbudget: {epsilon: 1000000}\n"
        "tables: {visits: {unit: person, rows_per_unit: 1, columns: {cost: {type: double, bounds: [0, 9]}}}}\n",
        encoding="utf-8",
    )
    run("check", str(policy), f"chdb://{folder}")
    sql = "SELECT SUM(cost) AS s FROM visits"
    answer = run("query", f"chdb://{folder}", sql, "-e", "100000", "--policy", str(policy), "--format", "csv")
    assert abs(float(answer.splitlines()[1].partition(",")[0]) - 500) < 0.1
