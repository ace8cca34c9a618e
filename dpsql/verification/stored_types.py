"""Laws of stored columns: what the engine holds of any type is read infallibly as the type that the policy declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import duckdb
import numpy as np

from dpsql.backends.duckdb.dialect import DUCKDB
from dpsql.plan.expressions import Column, ColumnInfo
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type
from dpsql.policy.engine_types import POLICY_TYPES, can_declare_type
from dpsql.verification.law import Law, Part

EXTREMES: Mapping[str, tuple[str, ...]] = {
    "UBIGINT": ("0", "1", "9223372036854775807", "9223372036854775808", "18446744073709551615"),
    "HUGEINT": ("0", "-1", "9223372036854775808", "170141183460469231731687303715884105727",
                "-170141183460469231731687303715884105728"),
    "UHUGEINT": ("0", "9223372036854775808", "340282366920938463463374607431768211455",
                 "340282366920938463463374607431768211454"),
    "DECIMAL(2,2)": ("0", "-0.01", "0.99", "-0.99"),
    "DECIMAL(15,2)": ("0", "0.01", "-9999999999999.99", "9999999999999.99"),
    "DECIMAL(18,0)": ("0", "999999999999999999", "999999999999999998", "-999999999999999999"),
    "DECIMAL(38,0)": ("0", "9" * 38, "9" * 37 + "8", "-" + "9" * 38, "9223372036854775808"),
    "DECIMAL(38,10)": ("0", "9" * 28 + ".9999999999", "9" * 28 + ".9999999998", "-0.0000000001"),
    "DECIMAL(18,18)": ("0", "0.5", "-0.000000000000000001", "0.999999999999999999"),
    "DECIMAL(38,38)": ("0", "0." + "9" * 38, "-0." + "9" * 37 + "8"),
    "FLOAT": ("0", "1.5", "3.4028235e38", "1e-45", "inf", "-inf"),
    "DOUBLE": ("0", "1.5", "1.7976931348623157e308", "5e-324", "inf", "-inf"),
    "DATE": ("2024-02-29", "0001-01-01", "9999-12-31", "5877642-06-25 (BC)", "5881580-07-10", "infinity", "-infinity"),
    "TIMESTAMP": ("2024-02-29 12:00:00", "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806", "infinity"),
    "TIMESTAMP_S": ("2024-02-29 12:00:00", "1970-01-01"),
    "TIMESTAMP_MS": ("2024-02-29 12:00:00.123", "1970-01-01"),
    "TIMESTAMP WITH TIME ZONE": (
        "2024-03-10 06:30:00+00", "2024-03-10 06:30:00.000001+00", "2024-11-03 05:30:00+00", "2024-11-03 06:30:00+00",
        "290309-12-22 (BC) 00:00:00+00", "294247-01-10 04:00:54.775806+00", "infinity", "-infinity",
    ),
    "TIME": ("00:00:00", "00:00:00.000001", "23:59:59.999999", "24:00:00"),
    "UUID": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
             "80000000-0000-0000-0000-000000000000", "7fffffff-ffff-ffff-ffff-ffffffffffff"),
    "BLOB": ("", "a", "\\x00", "\\x00\\x00", "\\xFF\\xC3", "\\x5Cx00"),
    "VARCHAR": ("", "a", "A", "a ", "\x01", "é", "e\u0301"),
    "ENUM('a', 'b', '', 'it''s')": ("a", "b", "", "it's"),
    "JSON": ("1", "1.0", '"a"', '{"a": 1}', '{"a":1}', "null"),
    "BOOLEAN": ("true", "false"),
}  # fmt: skip
"""For each type values at its ends and beside each other; all differ, as the type compares them."""

MOMENTS = {"TIMESTAMP_S": "s", "TIMESTAMP_MS": "ms", "TIMESTAMP": "us", "TIMESTAMP_NS": "ns"}
"""Types of moments with their unit in arrays, whose values may be beyond any calendar."""
NUMBERS = (0, 1, -1, 2**60, -(2**60), 2**62, 2**63 - 1, 1 - 2**63)
READABLE = [
    (physical, kind.name)
    for physical in EXTREMES
    for kind in POLICY_TYPES
    if can_declare_type(kind.name, physical)
]
"""Each type of the engine with the types of a policy that may be declared for it."""
_FORMS = (
    "SELECT {0} FROM t",
    "SELECT MIN({0}), MAX({0}), COUNT({0}), COUNT(DISTINCT {0}) FROM t",
    "SELECT {0} AS k, COUNT(*) FROM t GROUP BY k ORDER BY k",
    "SELECT COUNT(*) FROM t WHERE {0} IS NULL OR {0} = {0}",
    "SELECT COUNT(*) FROM (SELECT {0} AS k FROM t) AS a JOIN (SELECT {0} AS k FROM t) AS b ON a.k = b.k",
)
_OPTIMIZERS = ("", "statistics_propagation,common_subexpressions", "filter_pushdown,expression_rewriter")


def check_reads(physical: str, kind: str) -> None:
    """Check that no value of an engine type makes a read fail, with the optimizer's passes and without some."""
    with duckdb.connect(config={"threads": 1}) as engine:
        engine.execute(f"CREATE TABLE t (v {physical})")
        for value in (*EXTREMES[physical], None):
            engine.execute(f"INSERT INTO t SELECT CAST($1 AS {physical})", [value])
        _read_columns(engine, physical, kind)


def check_moments(physical: str) -> None:
    """Check reads of moments from an array, and of a table that holds them."""
    with duckdb.connect(config={"threads": 1}) as engine:
        engine.register("given", {"v": np.array(NUMBERS, dtype=f"datetime64[{MOMENTS[physical]}]")})
        engine.execute("CREATE TABLE t AS SELECT v FROM given")
        _read_columns(engine, physical, "timestamp")


def _read_columns(engine: duckdb.DuckDBPyConnection, physical: str, kind: str) -> None:
    declared = Type[kind.upper()]
    bounds = [Interval(-5, 5), Interval()] if declared.numeric else [Interval()]
    for interval in bounds:
        read = Column("t", "v", ColumnInfo(declared, physical, interval))
        for emit in (
            DUCKDB.columns.emit_bounded_column,
            DUCKDB.columns.emit_widened_column,
            DUCKDB.columns.emit_unit_id,
        ):
            for names in _OPTIMIZERS:
                engine.execute(f"SET disabled_optimizers = '{names}'")
                for form in _FORMS:
                    engine.execute(form.format(emit(read))).fetchall()


def _list_parts() -> Iterator[Part]:
    for physical, kind in READABLE:
        yield f"{physical} as {kind}", partial(check_reads, physical, kind)
    for physical in MOMENTS:
        yield f"moments of {physical}", partial(check_moments, physical)


LAWS = (Law("duckdb", "stored columns", "no stored value makes the read of its column fail", _list_parts),)
