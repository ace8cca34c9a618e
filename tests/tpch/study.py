"""The TPC-H benchmark as a private study: its tables, its 22 queries, and two policies over them.

Under `customer` those who buy are protected, with their orders and line items; under `supplier` those who
sell, with their offers and what is sold of them. All other tables are public. Domains and bounds are those
of the specification (TPC Benchmark H, revision 3, section 4.2.3), never looked up in the data.
"""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

QUERIES = {
    int(path.stem[1:]): path.read_text(encoding="utf-8")
    for path in sorted((Path(__file__).parent / "queries").glob("q*.sql"))
}
"""The queries with the validation parameters of the specification, by number."""

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")

DATES = [dt.date(1992, 1, 1), dt.date(1998, 12, 31)]
NATIONS = list(range(25))
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY"]
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
MODES = ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]
INSTRUCTIONS = ["COLLECT COD", "DELIVER IN PERSON", "NONE", "TAKE BACK RETURN"]


def _text(*values: str) -> dict[str, Any]:
    return {"type": "varchar", "nullable": False, **({"values": list(values)} if values else {})}


def _real(low: float, high: float) -> dict[str, Any]:
    return {"type": "double", "bounds": [low, high], "nullable": False}


_KEY: dict[str, Any] = {"type": "integer", "nullable": False}
_DATE: dict[str, Any] = {"type": "date", "bounds": DATES, "nullable": False}

COLUMNS: dict[str, dict[str, Any]] = {
    "customer": {
        "c_custkey": _KEY,
        "c_name": _text(),
        "c_address": _text(),
        "c_nationkey": {**_KEY, "values": NATIONS},
        "c_phone": _text(),
        "c_acctbal": _real(-999.99, 9999.99),
        "c_mktsegment": _text(*SEGMENTS),
        "c_comment": _text(),
    },
    "orders": {
        "o_orderkey": _KEY,
        "o_custkey": _KEY,
        "o_orderstatus": _text("F", "O", "P"),
        "o_totalprice": _real(0, 600_000),
        "o_orderdate": _DATE,
        "o_orderpriority": _text(*PRIORITIES),
        "o_shippriority": {**_KEY, "values": [0]},
        "o_comment": _text(),
    },
    "lineitem": {
        "l_orderkey": _KEY,
        "l_partkey": _KEY,
        "l_suppkey": _KEY,
        "l_quantity": _real(1, 50),
        "l_extendedprice": _real(900, 105_000),
        "l_discount": _real(0, 0.1),
        "l_tax": _real(0, 0.08),
        "l_returnflag": _text("A", "N", "R"),
        "l_linestatus": _text("F", "O"),
        "l_shipdate": _DATE,
        "l_commitdate": _DATE,
        "l_receiptdate": _DATE,
        "l_shipinstruct": _text(*INSTRUCTIONS),
        "l_shipmode": _text(*MODES),
    },
    "supplier": {
        "s_suppkey": _KEY,
        "s_name": _text(),
        "s_address": _text(),
        "s_nationkey": {**_KEY, "values": NATIONS},
        "s_phone": _text(),
        "s_acctbal": _real(-999.99, 9999.99),
        "s_comment": _text(),
    },
    "partsupp": {
        "ps_partkey": _KEY,
        "ps_suppkey": _KEY,
        "ps_availqty": {**_KEY, "bounds": [1, 9999]},
        "ps_supplycost": _real(1, 1000),
    },
}

UNITS: dict[str, dict[str, dict[str, Any]]] = {
    "customer": {
        "customer": {"unit": "c_custkey", "rows_per_unit": 1},
        "orders": {"link": {"column": "o_custkey", "references": "customer.c_custkey"}, "rows_per_unit": 40},
        "lineitem": {
            "link": {"column": "l_orderkey", "references": "orders.o_orderkey"},
            "rows_per_unit": 160,
        },
    },
    "supplier": {
        "supplier": {"unit": "s_suppkey", "rows_per_unit": 1},
        "partsupp": {
            "link": {"column": "ps_suppkey", "references": "supplier.s_suppkey"},
            "rows_per_unit": 80,
        },
        "lineitem": {
            "link": {"column": "l_suppkey", "references": "supplier.s_suppkey"},
            "rows_per_unit": 700,
        },
    },
}


SCALE = "0.1"
"""The scale factor: 15,000 customers, 1,000 suppliers, 600,000 line items."""


@contextmanager
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """TPC-H at that scale factor, the same data each time."""
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as opened:
        beside = Path(sys.executable).with_name("tpchgen-cli")
        generator = str(beside) if beside.exists() else "tpchgen-cli"
        command = [generator, "parquet", "--scale-factor", SCALE, "--output-dir", folder]
        subprocess.run(command, check=True, capture_output=True)
        for table in TABLES:
            opened.execute(f"CREATE TABLE {table} AS SELECT * FROM '{Path(folder) / table}.parquet'")
        yield opened


def policy(unit: str) -> dict[str, Any]:
    """The policy that protects customers, or suppliers, with a budget that is not at issue here."""
    private = {name: {**rules, "columns": COLUMNS[name]} for name, rules in UNITS[unit].items()}
    public = {name: {"public": True} for name in TABLES if name not in private}
    return {
        "version": 1,
        "privacy_unit": unit,
        "budget": {"epsilon": 10**9, "delta": 0.5, "accountant": "zcdp"},
        "tables": private | public,
    }
