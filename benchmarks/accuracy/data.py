"""The data that is asked, the policies over it, and the flat tables that peers are given."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import yaml

from benchmarks.accuracy.errors import Answer
from benchmarks.accuracy.questions import HIE_BOUNDS, Question
from tests.tpch.study import COLUMNS, TABLES, policy

DELTA = 1e-6
"""What each answer may spend of δ."""
_BUDGET = {"epsilon": 10**9, "delta": 0.5, "accountant": "pure"}
"""Not at issue here. What is asked of one answer is its (ε, δ), and the pure accountant takes it at its word."""
_DEMO = Path(__file__).parents[2] / "dpsql" / "interfaces" / "demo"
_FUNCTIONS = {"VAR": "VAR_SAMP", "STDDEV": "STDDEV_SAMP"}
_ORDERS: dict[str, dict[str, Any]] = {
    "orders": {"unit": "o_orderkey", "rows_per_unit": 1},
    "lineitem": {"unit": "l_orderkey", "rows_per_unit": 7},
}
"""Each order is protected, with the up to seven items that the specification gives it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its flat table: the file, how many rows, which of its columns are whole, the exact answer."""

    question: Question
    table: Path
    rows: int
    whole: tuple[str, ...]
    truth: Answer

    def for_peers(self) -> dict[str, Any]:
        """All that a peer is told."""
        question = self.question
        return {
            "name": question.name,
            "table": str(self.table),
            "rows": self.rows,
            "whole": self.whole,
            "keys": question.keys,
            "outputs": [(output.name, output.function, output.column) for output in question.outputs],
            "bounds": dict(question.bounds),
            "row_is_unit": question.rows_per_unit == 1,
            "rows_per_unit": question.rows_per_unit,
            "groups_per_unit": question.groups_per_unit,
        }


@contextmanager
def database(folder: Path, scale: str, needed: set[str]) -> Iterator[Path]:
    """A DuckDB file with the data of those names, at that scale factor of TPC-H: the same each time."""
    path = folder / "data.duckdb"
    with duckdb.connect(str(path)) as opened:
        if "hie" in needed:
            load_hie(opened)
        if needed - {"hie"}:
            generate(folder, scale)
            for table in TABLES:
                opened.execute(f"CREATE TABLE {table} AS SELECT * FROM '{folder / table}.parquet'")
    yield path


def load_hie(database: duckdb.DuckDBPyConnection) -> None:
    """Creates the table of RAND HIE."""
    database.execute(f"CREATE TABLE rand_hie AS SELECT * FROM '{_DEMO / 'rand_hie.parquet'}'")


def generate(folder: Path, scale: str) -> None:
    """Writes TPC-H at a scale factor, a Parquet file for each table."""
    beside = Path(sys.executable).with_name("tpchgen-cli")
    generator = str(beside) if beside.exists() else "tpchgen-cli"
    command = [generator, "parquet", "--scale-factor", scale, "--output-dir", str(folder)]
    subprocess.run(command, check=True, capture_output=True)


def asked(path: Path, folder: Path, questions: Sequence[Question]) -> list[Asked]:
    """Each question with its flat table, written to `folder`, and its exact answer."""
    with duckdb.connect(str(path), read_only=True) as opened:
        return [
            _asked(opened, folder / f"flat{place}.parquet", question)
            for place, question in enumerate(questions)
        ]


def _asked(opened: duckdb.DuckDBPyConnection, table: Path, question: Question) -> Asked:
    opened.execute(f"COPY ({question.flat}) TO '{table}' (FORMAT parquet)")
    described = opened.execute(f"DESCRIBE FROM '{table}'").fetchall()
    whole = tuple(name for name, kind, *_ in described if name in question.bounds and kind.endswith("INT"))
    whole += tuple(name for name, kind, *_ in described if name in question.bounds and kind == "INTEGER")
    ((rows,),) = opened.execute(f"SELECT COUNT(*) FROM '{table}'").fetchall()
    keys = [name for name, _ in question.keys]
    outputs = [
        f"{_FUNCTIONS.get(output.function, output.function)}({output.column or '*'})"
        for output in question.outputs
    ]
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    found = opened.execute(f"SELECT {', '.join([*keys, *outputs])} FROM '{table}'{grouped}").fetchall()
    truth = answer(found, len(keys))
    _agree(truth, answer(opened.execute(question.sql).fetchall(), len(keys)), question)
    return Asked(question, table, rows, whole, truth)


def _agree(flat: Answer, direct: Answer, question: Question) -> None:
    """Whether dpsql and its peers are asked the same."""
    same = flat.keys() == direct.keys() and all(
        abs(float(one or 0) - float(other or 0)) <= 1e-6 * abs(float(one or 0))
        for group, values in flat.items()
        for one, other in zip(values, direct[group], strict=True)
    )
    if not same:
        raise ValueError(f"{question.name}: the flat table and the query have different exact answers")


def answer(rows: Sequence[Sequence[Any]], keys: int) -> Answer:
    """Rows of keys and numbers as an answer: keys as texts, numbers that are none or not finite as None."""
    return {tuple(map(str, row[:keys])): tuple(map(_number, row[keys:])) for row in rows}


def _number(value: Any) -> float | None:
    number = float("nan") if value is None else float(value)
    return number if abs(number) < float("inf") else None


def rules(question: Question) -> Mapping[str, Any]:
    """The policy under which dpsql answers a question."""
    found = hie_rules() if question.data == "hie" else policy("customer")
    if question.data == "order":
        private = {name: {**rule, "columns": COLUMNS[name]} for name, rule in _ORDERS.items()}
        found["tables"] = {**{name: {"public": True} for name in TABLES}, **private}
    for table, column in question.undeclared:
        declared = found["tables"][table]["columns"]
        bare = {name: rule for name, rule in declared[column].items() if name not in ("values", "bounds")}
        found["tables"][table] = {**found["tables"][table], "columns": {**declared, column: bare}}
    return {**found, "budget": _BUDGET, "max_epsilon": None}


def hie_rules() -> dict[str, Any]:
    """The demo's policy over RAND HIE, with bounds that nobody reaches."""
    loaded: dict[str, Any] = yaml.safe_load((_DEMO / "rand_hie.yaml").read_text(encoding="utf-8"))
    for column, bounds in HIE_BOUNDS.items():
        loaded["tables"]["rand_hie"]["columns"][column]["bounds"] = list(bounds)
    return loaded
