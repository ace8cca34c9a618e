"""What is asked: the same question for dpsql in SQL, and for its peers as one table and some aggregates of it.

Peers that join nothing are given what the joins and conditions leave as one table, made without any privacy,
as somebody who uses them would have to. `flat` makes it: the column `unit`, keys as texts, and values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

HIE_BOUNDS = {"mdvis": (0, 100), "disea": (0, 60)}
"""Bounds that nobody reaches: errors are then those of the noise, which is what systems differ in."""
MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
PLANS = ("free care", "individual deductible", "pays 25%", "pays 50%", "pays 95%")

_PLAN = """CASE WHEN idp = 1 THEN 'individual deductible' WHEN lncoins = 0 THEN 'free care'
    WHEN lncoins < 3.5 THEN 'pays 25%' WHEN lncoins < 4.2 THEN 'pays 50%' ELSE 'pays 95%' END"""
_REVENUE = "l_extendedprice * (1 - l_discount)"
_ITEMS = "customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON o_orderkey = l_orderkey"
_MOST_ORDERS = 40
_MOST_ITEMS = 160


@dataclass(frozen=True, slots=True)
class Output:
    """An aggregate: COUNT, SUM, AVG, VAR, STDDEV or MEDIAN of a column of the flat table, COUNT of none."""

    name: str
    function: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question to all systems.

    `data` names the data and whom it protects. `sql` is for dpsql: the keys, then the outputs, in order.
    `keys` are the flat table's key columns with their public values, None where nobody knows them.
    `bounds` are those of the value columns. A unit has at most `rows_per_unit` rows that count,
    in at most `groups_per_unit` groups. `undeclared` are columns of which the policy must say neither values nor bounds.
    """

    name: str
    data: str
    sql: str
    flat: str
    outputs: tuple[Output, ...]
    keys: tuple[tuple[str, tuple[str, ...] | None], ...] = ()
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    rows_per_unit: int = 1
    groups_per_unit: int = 1
    undeclared: tuple[tuple[str, str], ...] = ()

    @property
    def seeks_keys(self) -> bool:
        """Whether the groups have to be found out."""
        return any(values is None for _, values in self.keys)


def _hie(
    name: str,
    select: str,
    outputs: tuple[Output, ...],
    *,
    key: str = "",
    values: tuple[str, ...] | None = None,
    column: str = "mdvis",
) -> Question:
    """A question about visits to doctors, where each row is a unit."""
    return Question(
        f"HIE {name}",
        "hie",
        f"SELECT {f'{key} AS k, ' if key else ''}{select} FROM rand_hie{' GROUP BY k' if key else ''}",
        f"SELECT row_number() OVER () AS unit, {column}"
        f"{f', CAST({key} AS VARCHAR) AS k' if key else ''} FROM rand_hie",
        outputs,
        keys=(("k", values),) if key else (),
        bounds={column: HIE_BOUNDS[column]},
        undeclared=(("rand_hie", key),) if key and not values else (),
    )


def _orders(
    name: str,
    select: str,
    outputs: tuple[Output, ...],
    *,
    key: str = "",
    values: tuple[str, ...] | None = None,
    source: str = "orders",
    undeclared: tuple[tuple[str, str], ...] = (),
) -> Question:
    """A question about orders, of which a customer has up to 40."""
    return Question(
        f"TPC-H {name}",
        "customer",
        f"SELECT {f'{key} AS k, ' if key else ''}{select} FROM {source}{' GROUP BY k' if key else ''}",
        "SELECT o_custkey AS unit, CAST(o_totalprice AS DOUBLE) AS price"
        f"{f', CAST({key} AS VARCHAR) AS k' if key else ''} FROM {source}",
        outputs,
        keys=(("k", values),) if key else (),
        bounds={"price": (0, 600_000)},
        rows_per_unit=_MOST_ORDERS,
        groups_per_unit=len(values) if values else 1,
        undeclared=undeclared,
    )


def _revenue(name: str, condition: str) -> Question:
    """A joined sum of revenue, of up to 160 items of a customer."""
    return Question(
        f"TPC-H {name}",
        "customer",
        f"SELECT SUM({_REVENUE}) AS revenue FROM {_ITEMS} WHERE {condition}",
        f"SELECT c_custkey AS unit, CAST({_REVENUE} AS DOUBLE) AS revenue FROM {_ITEMS} WHERE {condition}",
        (Output("revenue", "SUM", "revenue"),),
        bounds={"revenue": (0, 105_000)},
        rows_per_unit=_MOST_ITEMS,
    )


_N = Output("n", "COUNT")
_VISITS = (_N, Output("visits", "SUM", "mdvis"), Output("mean", "AVG", "mdvis"))
_PRICES = (_N, Output("total", "SUM", "price"), Output("mean", "AVG", "price"))

QUESTIONS = (
    _hie("count", "COUNT(*) AS n", (_N,)),
    _hie("sum", "SUM(mdvis) AS visits", _VISITS[1:2]),
    _hie("average", "AVG(mdvis) AS mean", _VISITS[2:]),
    _hie("three at once", "COUNT(*) AS n, SUM(mdvis) AS visits, AVG(mdvis) AS mean", _VISITS),
    _hie("count by plan", "COUNT(*) AS n", (_N,), key=_PLAN, values=PLANS),
    _hie("sum by plan", "SUM(mdvis) AS visits", _VISITS[1:2], key=_PLAN, values=PLANS),
    _hie("average by plan", "AVG(mdvis) AS mean", _VISITS[2:], key=_PLAN, values=PLANS),
    _hie("count by visits, keys unknown", "COUNT(*) AS n", (_N,), key="mdvis"),
    _hie(
        "average by visits, keys unknown",
        "AVG(disea) AS mean",
        (Output("mean", "AVG", "disea"),),
        key="mdvis",
        column="disea",
    ),
    _hie("variance", "VAR_SAMP(mdvis) AS spread", (Output("spread", "VAR", "mdvis"),)),
    _hie("standard deviation", "STDDEV_SAMP(mdvis) AS sd", (Output("sd", "STDDEV", "mdvis"),)),
    _hie("median", "MEDIAN(mdvis) AS median", (Output("median", "MEDIAN", "mdvis"),)),
    _orders("count", "COUNT(*) AS n", (_N,)),
    _orders("sum", "SUM(o_totalprice) AS total", _PRICES[1:2]),
    _orders("average", "AVG(o_totalprice) AS mean", _PRICES[2:]),
    _orders("three at once", "COUNT(*) AS n, SUM(o_totalprice) AS total, AVG(o_totalprice) AS mean", _PRICES),
    _orders("count by priority", "COUNT(*) AS n", (_N,), key="o_orderpriority", values=PRIORITIES),
    _orders(
        "average by priority",
        "AVG(o_totalprice) AS mean",
        _PRICES[2:],
        key="o_orderpriority",
        values=PRIORITIES,
    ),
    _orders(
        "count and sum by nation, keys unknown",
        "COUNT(*) AS n, SUM(o_totalprice) AS total",
        _PRICES[:2],
        key="c_nationkey",
        source="customer JOIN orders ON c_custkey = o_custkey",
        undeclared=(("customer", "c_nationkey"),),
    ),
    _orders("standard deviation", "STDDEV_SAMP(o_totalprice) AS sd", (Output("sd", "STDDEV", "price"),)),
    _orders("median", "MEDIAN(o_totalprice) AS median", (Output("median", "MEDIAN", "price"),)),
    Question(
        "TPC-H customers by nation, keys unknown",
        "customer",
        "SELECT c_nationkey AS k, COUNT(*) AS n FROM customer GROUP BY k",
        "SELECT c_custkey AS unit, CAST(c_nationkey AS VARCHAR) AS k FROM customer",
        (_N,),
        keys=(("k", None),),
        undeclared=(("customer", "c_nationkey"),),
    ),
    Question(
        "TPC-H balance by segment",
        "customer",
        "SELECT c_mktsegment AS k, AVG(c_acctbal) AS mean FROM customer GROUP BY k",
        "SELECT c_custkey AS unit, CAST(c_acctbal AS DOUBLE) AS balance, c_mktsegment AS k FROM customer",
        (Output("mean", "AVG", "balance"),),
        keys=(("k", SEGMENTS),),
        bounds={"balance": (-999.99, 9999.99)},
    ),
    Question(
        "TPC-H Q1-like",
        "customer",
        "SELECT l_returnflag, l_linestatus, COUNT(*) AS n, SUM(l_quantity) AS quantity, "
        "AVG(l_extendedprice) AS price FROM lineitem GROUP BY l_returnflag, l_linestatus",
        "SELECT o_custkey AS unit, l_returnflag AS flag, l_linestatus AS status, CAST(l_quantity AS DOUBLE)"
        " AS quantity, CAST(l_extendedprice AS DOUBLE) AS price"
        " FROM lineitem JOIN orders ON l_orderkey = o_orderkey",
        (_N, Output("quantity", "SUM", "quantity"), Output("price", "AVG", "price")),
        keys=(("flag", ("A", "N", "R")), ("status", ("F", "O"))),
        bounds={"quantity": (1, 50), "price": (900, 105_000)},
        rows_per_unit=_MOST_ITEMS,
        groups_per_unit=6,
    ),
    Question(
        "TPC-H items by ship mode",
        "customer",
        "SELECT l_shipmode AS k, SUM(l_quantity) AS quantity FROM lineitem GROUP BY k",
        "SELECT o_custkey AS unit, l_shipmode AS k, CAST(l_quantity AS DOUBLE) AS quantity"
        " FROM lineitem JOIN orders ON l_orderkey = o_orderkey",
        (Output("quantity", "SUM", "quantity"),),
        keys=(("k", MODES),),
        bounds={"quantity": (1, 50)},
        rows_per_unit=_MOST_ITEMS,
        groups_per_unit=len(MODES),
    ),
    _revenue("Q3-like", "o_orderdate < DATE '1995-03-15'"),
    _revenue("Q10-like", "l_returnflag = 'R'"),
    Question(
        "TPC-H Q12-like",
        "customer",
        "SELECT COUNT(*) AS n FROM orders JOIN lineitem ON o_orderkey = l_orderkey",
        "SELECT o_custkey AS unit FROM orders JOIN lineitem ON o_orderkey = l_orderkey",
        (_N,),
        rows_per_unit=_MOST_ITEMS,
    ),
    Question(
        "TPC-H Q12-like, unit: order",
        "order",
        "SELECT COUNT(*) AS n FROM orders JOIN lineitem ON o_orderkey = l_orderkey",
        "SELECT o_orderkey AS unit FROM orders JOIN lineitem ON o_orderkey = l_orderkey",
        (_N,),
        rows_per_unit=7,
    ),
    Question(
        "TPC-H Q10-like, clamped by hand",
        "customer",
        "SELECT SUM(LEAST(revenue, 2000000)) AS revenue FROM (SELECT c_custkey, "
        f"SUM({_REVENUE}) AS revenue FROM {_ITEMS} WHERE l_returnflag = 'R' GROUP BY c_custkey) AS returned",
        f"SELECT c_custkey AS unit, LEAST(SUM(CAST({_REVENUE} AS DOUBLE)), 2000000) AS revenue FROM {_ITEMS} "
        "WHERE l_returnflag = 'R' GROUP BY c_custkey",
        (Output("revenue", "SUM", "revenue"),),
        bounds={"revenue": (0, 2_000_000)},
    ),
)
