"""Tiny databases, their neighbours, and the exact statistics that a plan reads from each."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import duckdb

from dpsql.backends import Exact
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine.budgets import get_table_budget
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import PreparedRelease, QueryRun
from dpsql.engine.release.exact_rows import read_groups
from dpsql.engine.replay.replays import plan_and_match
from dpsql.ledger import open_ledger
from dpsql.plan.types import Value
from dpsql.planning.clamp_histogram import compute_clamped_moments, count_units_beyond, list_clamp_targets
from dpsql.planning.group_selection import OptimalPartitionSelection
from dpsql.planning.measurement import MeasurementPlan, VectorMeasurement
from dpsql.planning.quantiles import RankWindow
from dpsql.planning.statistics import ROWS, UNITS
from dpsql.policy import load
from dpsql.policy.request.query import Query


class Row(NamedTuple):
    """A row of the private table."""

    u: int | None
    k: str | None
    x: float | None = 1.0
    i: int | None = 1
    s: str | None = "a"
    d: dt.date | None = dt.date(2024, 2, 29)


Database = tuple[Row, ...]
Statistics = dict[tuple[Value, ...], tuple[Any, ...]]
"""By group, the exact cells of each block, the window of each value that is chosen by its rank, and ladders.

Where a clamp is learnt the cells are those at the points that are expected, as the plan's noise is.
"""

INFINITY = float("inf")
X = (-1.0, 1.5, 4.0, None, math.nan, INFINITY, -INFINITY, 1e308, -7.25)
"""Values for x, bounded to [-1, 4]: at, between and beyond the bounds, and every special one."""
I = (0, 5, -(2**31), 2**31 - 1, None)  # noqa: E741
"""Values for i, bounded to [0, 5]: at and far beyond the bounds."""
S = ("a", "B", "", "zzz", None)
D = (dt.date(2024, 1, 1), dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(9999, 12, 31), None)
KEYS = ("A", "B", "Z", None)
"""Values for k: both of its domain, one outside, NULL."""
DEFAULT = Row(1, "A")

_TYPES = "u INTEGER, k VARCHAR, x DOUBLE, i INTEGER, s VARCHAR, d DATE"
_PUBLIC = (
    "CREATE TABLE p AS SELECT * FROM (VALUES ('A', 1.5), ('A', 2.5), ('B', -1.0), ('Z', 0.0)) AS p(k, w)"
)


def policy(
    *,
    unit: str = "u",
    rows: int = 2,
    groups: int | None = None,
    neighbors: str = "add_remove",
    domain: bool = True,
    accountant: str = "zcdp",
    partition: bool = False,
    min_frequency: int = 1,
) -> dict[str, Any]:
    """A policy over the tiny schema."""
    table: dict[str, Any] = {
        "unit": unit,
        "columns": {
            "k": {"type": "varchar", **({"values": ["A", "B"]} if domain else {})},
            "x": {"type": "double", "bounds": [-1, 4]},
            "i": {"type": "integer", "bounds": [0, 5]},
            "s": {"type": "varchar"},
            "d": {"type": "date", "bounds": [dt.date(2024, 1, 1), dt.date(2024, 12, 31)]},
        },
    }
    if unit != "row":
        table["rows_per_unit"] = rows
    if groups is not None:
        table["max_groups"] = groups
    if min_frequency > 1:
        table["min_frequency"] = min_frequency
    if partition:
        table["partition"] = "k"
    weights = {"k": {"type": "varchar"}, "w": {"type": "double", "bounds": [-1, 3]}}
    return {
        "version": 1,
        "privacy_unit": "person",
        "neighbors": neighbors,
        "budget": {"epsilon": 10, "delta": 1e-6, "accountant": accountant},
        "tables": {"t": table, "p": {"public": True, "columns": weights}},
    }


@dataclass
class World:
    """One policy, one plan at a time, many databases."""

    rules: dict[str, Any]
    extra: str = ""
    connection: duckdb.DuckDBPyConnection = field(init=False)
    engine: Engine = field(init=False)
    _seen: dict[tuple[str, Database], Statistics] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.connection = duckdb.connect(config={"threads": 1})
        columns = ", ".join(filter(None, (_TYPES, self.extra)))
        self.connection.execute(f"CREATE TABLE t ({columns}); {_PUBLIC}")
        rules = load(self.rules)
        ledger = open_ledger(":memory:", {"t": get_table_budget(rules, "t")})
        self.engine = Engine(rules, DuckDBBackend(self.connection), ledger, "tester")

    def prepare(self, sql: str, max_groups: int | None = None) -> QueryRun:
        """The plan of a query at ε = 1."""
        return plan_and_match(self.engine, Query(sql, epsilon=Fraction(1), max_groups=max_groups))

    def hold(self, rows: Iterable[Row]) -> None:
        """Makes these the rows of the private table."""
        values = ", ".join(f"({', '.join(map(_sql, row))})" for row in rows)
        self.connection.execute("DELETE FROM t" + (f"; INSERT INTO t VALUES {values}" if values else ""))

    def statistics(self, prepared: QueryRun, rows: Database) -> Statistics:
        """The exact cells of each group that a plan would noise."""
        key = (prepared.statement.sql, tuple(sorted(rows, key=repr)))
        if key not in self._seen:
            self.hold(rows)
            self._seen[key] = cells_of(prepared, self.engine.backend.run_statement(prepared.statement.sql))
        return self._seen[key]


def cells_of(prepared: QueryRun | PreparedRelease, exact: Exact) -> Statistics:
    """The exact cells of each group, from what the engine gave for a plan's statement.

    Where groups are tossed for, the units that the toss depends on stand in place of cells.
    """
    plan = prepared.plan
    blocks = [measured.vector for measured in plan.vectors]
    tossed = isinstance(plan.selection, OptimalPartitionSelection)
    units = UNITS if plan.analysis.bound.per_unit else ROWS
    clamps = tuple(replace(clamp, chosen=(clamp.default_index,) * len(clamp.sides)) for clamp in plan.clamps)
    found = {}
    for group in read_groups(plan, prepared.statement, exact):
        moments = {**group.moments, **compute_clamped_moments(clamps, group.clamp_histograms)}
        cells = (tuple(cell.compute_exact(moments) for cell in block.components) for block in blocks)
        toss = [(moments[units],)] if tossed else []
        found[group.keys] = (*cells, *toss, *group.windows, *group.clamp_histograms)
    return found


def _sql(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"CAST('{value}' AS DOUBLE)"
    return f"'{value}'" if isinstance(value, (str, dt.date)) else str(value)


def databases(rows: Sequence[Row], most: int) -> Iterator[Database]:
    """Every database of at most `most` of the given rows, repeats among them."""
    for size in range(most + 1):
        yield from itertools.combinations_with_replacement(rows, size)


def change(before: Statistics, after: Statistics, block: int) -> tuple[int, int, int]:
    """The l1 norm and the squared l2 norm of the change of one block, and the sum over groups of l∞ norms."""
    l1 = l2_squared = linf = 0
    for group in {*before, *after}:
        old, new = before.get(group), after.get(group)
        width = len((old or new or ((),))[block])
        nothing = (0,) * width
        pairs = zip(old[block] if old else nothing, new[block] if new else nothing, strict=True)
        moved = [abs(a - b) for a, b in pairs]
        l1 += sum(moved)
        l2_squared += sum(part**2 for part in moved)
        linf += max(moved, default=0)
    return l1, l2_squared, linf


def stairs(before: Statistics, after: Statistics, block: int, width: int) -> int:
    """How many stairs of that width all cells of one block move by, each by whole stairs."""
    total = 0
    for group in {*before, *after}:
        old, new = (known.get(group) for known in (before, after))
        nothing = (0,) * len((old or new or ((),))[block])
        pairs = zip(old[block] if old else nothing, new[block] if new else nothing, strict=True)
        total += sum(-(-abs(a - b) // width) for a, b in pairs)
    return total


def moved(before: Statistics, after: Statistics, plan: MeasurementPlan, place: int) -> int:
    """How far apart one choice's penalties of any two points move, added up over all groups."""
    ranked, index = plan.quantiles[place], len(plan.vectors) + place
    total = 0
    for group in {*before, *after}:
        old, new = (known[group][index] if group in known else RankWindow() for known in (before, after))
        ours, theirs = ranked.list_regions(old), ranked.list_regions(new)
        points = sorted({start for start, size, _ in (*ours, *theirs) if size})
        moves = [_penalty(theirs, point) - _penalty(ours, point) for point in points]
        total += max(moves) - min(moves)
    return total


def apart(before: Statistics, after: Statistics, plan: MeasurementPlan, place: int) -> int:
    """How far apart the penalties of any two points of a clamp move, added up over its sides."""
    clamp, first = plan.clamps[place], len(plan.vectors) + len(plan.quantiles)
    sides = [at for at, ladder in enumerate(list_clamp_targets(plan.clamps), first) if ladder.clamp == place]
    total = 0
    for side in sides[: len(clamp.sides)]:
        old, new = (
            clamp.compute_penalties(count_units_beyond(clamp, [found[side] for found in known.values()]))
            for known in (before, after)
        )
        moves = [b - a for a, b in zip(old, new, strict=True)]
        total += max(moves) - min(moves)
    return total


def _penalty(regions: Sequence[tuple[int, int, int]], point: int) -> int:
    (penalty,) = (penalty for start, size, penalty in regions if start <= point < start + size)
    return penalty


def largest(
    world: World, prepared: QueryRun, pairs: Iterable[tuple[Database, Database]]
) -> list[tuple[int, int, int]]:
    """The largest change of each block over pairs of neighbours."""
    worst = [(0, 0, 0)] * len(prepared.plan.vectors)
    for before, after in pairs:
        old, new = world.statistics(prepared, before), world.statistics(prepared, after)
        for index, known in enumerate(worst):
            l1, l2_squared, linf = map(max, known, change(old, new, index))
            worst[index] = (l1, l2_squared, linf)
    return worst


def derived(blocks: Sequence[VectorMeasurement]) -> list[tuple[Fraction, Fraction, Fraction]]:
    """The sensitivities that the planner derived."""
    known = (block.sensitivity for block in blocks)
    return [(each.l1, each.l2_squared, each.linf) for each in known]
