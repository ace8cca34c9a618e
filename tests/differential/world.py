"""Six linked private tables and two public ones, on which nothing is truncated, clamped or hidden.

Every declared bound holds on the data, a unit has at most `rows_per_unit` rows of each table and some have
exactly as many, and the loss is so large that no noise is left. What dpsql answers here is what plain DuckDB
answers on the same rows. `raw` rows that belong to nobody are in dpsql's database alone: it has to drop them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from unittest import mock

import duckdb
from entropy import SeededEntropy
from filling import insert

import dpsql.engine.release.noise
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import UNSOUND, DuckDBBackend
from dpsql.engine.engine import Engine
from dpsql.ledger import Budget, open_ledger
from dpsql.planning.group_selection import OptimalPartitionSelection
from dpsql.policy import load

UNITS_TOTAL = 36
"""Privacy units, whose ids are 1 to UNITS_TOTAL."""
WHO = 17
"""The unit that extreme values are made for; it has as many rows as are declared."""
LOSS = 2**80
"""The ε of a query: geometric noise of that scale is zero but with probability e^-(2^30) or less."""

Row = tuple[Any, ...]
TABLES: Mapping[str, Sequence[tuple[str, str]]] = {
    "people": (
        ("pid", "BIGINT"), ("city", "VARCHAR"), ("age", "INTEGER"), ("score", "DOUBLE"), ("born", "DATE"),
        ("member", "BOOLEAN"), ("note", "VARCHAR"), ("ward", "INTEGER"),
    ),
    "visits": (
        ("vid", "BIGINT"), ("pid", "BIGINT"), ("kind", "VARCHAR"), ("cost", "DOUBLE"), ("lvl", "INTEGER"),
        ("day", "DATE"), ("note", "VARCHAR"),
    ),
    "orders": (
        ("pid", "BIGINT"), ("status", "VARCHAR"), ("qty", "INTEGER"), ("amount", "DOUBLE"), ("placed", "TIMESTAMP"),
        ("open", "BOOLEAN"),
    ),
    "items": (
        ("vid", "BIGINT"), ("sku", "VARCHAR"), ("price", "DECIMAL(6, 2)"), ("units", "INTEGER"), ("flag", "BOOLEAN"),
    ),
    "tags": (("pid", "BIGINT"), ("tag", "VARCHAR"), ("weight", "INTEGER"), ("since", "DATE")),
    "doses": (("vid", "BIGINT"), ("drug", "VARCHAR"), ("dose", "FLOAT"), ("least", "FLOAT"), ("taken", "DATE"), ("form", "INTEGER")),
    "regions": (("city", "VARCHAR"), ("region", "VARCHAR"), ("pop", "INTEGER"), ("founded", "DATE")),
    "steps": (("lvl", "INTEGER"), ("label", "VARCHAR"), ("floor", "DOUBLE")),
}  # fmt: skip
"""The columns of each table with their types in the engine; the last two tables are public."""
PUBLIC = ("regions", "steps")
LINKED = ("items", "doses")
"""Tables whose rows find their unit through a visit."""
DOMAINS: Mapping[str, Sequence[str]] = {
    "city": ("Bonn", "Kiel", "Ulm", ""),
    "kind": ("a", "b", "A"),
    "status": ("new", "paid", "lost"),
    "sku": ("s1", "s2", "s3"),
    "drug": ("d1", "D1", "d2", "none"),
}
"""Values that the policy lists."""
FREE: Mapping[str, Sequence[str]] = {
    "note": ("x", "y", "", "long one"),
    "tag": ("t", "u", "T", ""),
    "region": ("north", "south"),
    "label": ("low", "mid", "high"),
}
"""Values of columns of which it lists none."""
BOUNDS: Mapping[str, tuple[Any, Any]] = {
    "age": (0, 90), "score": (-8, 8), "born": ("1950-01-01", "2009-12-31"), "cost": (0, 64), "lvl": (0, 5),
    "day": ("2024-01-01", "2024-12-31"), "qty": (-3, 4), "amount": (-16, 16), "price": (0, 32), "units": (0, 9),
    "weight": (-2, 6), "since": ("2023-12-01", "2024-02-10"), "dose": (0, 4), "least": (-1, 1), "taken": ("2024-01-01", "2024-03-31"),
    "form": (1, 4),
}  # fmt: skip
DECIMALS = ("price",)
"""Columns of DECIMAL."""
ROWS_PER_UNIT = {"people": 1, "visits": 3, "orders": 2, "items": 4, "tags": 2, "doses": 4}
FLOATS: Mapping[str, Sequence[float]] = {
    "dose": (0.0, 0.1, 0.1, 0.25, 0.3, 0.7, 1.1, 3.0, 4.0),
    "least": (-1.0, -0.0, 0.1, 0.3, 0.7, 1.0),
}
"""Values of columns of FLOAT, most of which no binary fraction is."""


def policy() -> dict[str, Any]:
    """The policy, whose declarations all hold on the data."""
    tables: dict[str, Any] = {}
    for table, most in ROWS_PER_UNIT.items():
        columns: dict[str, Any] = {}
        for name, engine in TABLES[table]:
            kind = {"BIGINT": "integer", "INTEGER": "integer"}.get(engine, engine.lower())
            if name in DOMAINS:
                columns[name] = {"type": kind, "values": list(DOMAINS[name])}
            elif name in BOUNDS:
                columns[name] = {"type": kind, "bounds": list(BOUNDS[name])}
            elif name not in ("pid", "vid"):
                columns[name] = {"type": kind}
        whose: dict[str, Any] = {"unit": "pid"}
        if table in LINKED:
            whose = {"link": {"column": "vid", "references": "visits.vid"}}
            columns["vid"] = {"type": "integer"}
        if table == "visits":
            columns["vid"] = {"type": "integer"}
        tables[table] = {**whose, "rows_per_unit": most, "columns": columns}
    for table in PUBLIC:
        tables[table] = {"public": True}
    budget = {"epsilon": 2**120, "delta": "1/2", "accountant": "basic"}
    return {"version": 1, "privacy_unit": "person", "budget": budget, "tables": tables}


_DAYS = ("2024-01-01", "2024-02-29", "2024-02-01", "2024-06-30", "2024-12-31")
_MOMENTS = ("2024-01-31 23:59:59.5", "2024-02-29 00:00:00", "2024-02-29 12:30:00", "2024-03-01 06:00:00")
_REGIONS = (
    ("Bonn", "north", 3, "1900-01-01"), ("Bonn", "south", 5, None), ("Kiel", "north", 2, "1950-06-01"),
    ("", None, 1, "2000-01-01"), ("Rom", "south", None, "1900-01-01"), (None, "north", 4, "1999-12-31"),
)  # fmt: skip
_STEPS = ((0, "low", 0.5), (1, "low", -0.0), (3, "mid", 2.25), (5, "high", None), (None, "high", 1.0))


@dataclass(frozen=True)
class _Draws:
    """Values of columns, NULLs among them; reals are multiples of a quarter, decimals of 0.05, so that their sums are exact."""

    rng: random.Random

    def of(self, values: Sequence[Any]) -> Any:
        return None if self.rng.random() < 0.15 else self.rng.choice(values)

    def real(self, name: str) -> float | None:
        low, high = BOUNDS[name]
        if name in DECIMALS:
            return self.of((0.0, float(low), float(high), self.rng.randint(low * 20, high * 20) / 20))
        inside = self.rng.randint(low * 4, high * 4) / 4
        return self.of((-0.0, 0.0, float(low), float(high), inside, inside))

    def whole(self, name: str) -> int | None:
        return self.of(range(BOUNDS[name][0], BOUNDS[name][1] + 1))

    def row(self, table: str, pid: int, vid: int = 0) -> Row:
        """A row of a unit; a row of `items` has the id of a visit."""
        flag = (True, False)
        if table == "people":
            born = self.of(("1950-01-01", "1980-02-29", "2009-12-31"))
            note, ward = self.of(FREE["note"]), self.of((0, 1, 2, 7))
            return (
                pid, self.of(DOMAINS["city"]), self.whole("age"), self.real("score"), born, self.of(flag), note, ward,
            )  # fmt: skip
        if table == "visits":
            kind, note = self.of(DOMAINS["kind"]), self.of(FREE["note"])
            return (vid, pid, kind, self.real("cost"), self.whole("lvl"), self.of(_DAYS), note)
        if table == "items":
            return (vid, self.of(DOMAINS["sku"]), self.real("price"), self.whole("units"), self.of(flag))
        if table == "orders":
            status, placed = self.of(DOMAINS["status"]), self.of(_MOMENTS)
            return (pid, status, self.whole("qty"), self.real("amount"), placed, self.of(flag))
        since = self.of(("2023-12-01", "2024-02-10", "2024-01-01"))
        return (pid, self.of(FREE["tag"]), self.whole("weight"), since)

    def some(self, table: str, pid: int) -> list[Row]:
        """So many rows of a unit as count, fewer or none; a third of those behind the first are duplicates."""
        most = ROWS_PER_UNIT[table]
        found: list[Row] = []
        for _ in range(most if pid == WHO or pid % 6 == 0 else self.rng.randint(0, most)):
            again = bool(found) and self.rng.random() < 0.3
            found.append(found[-1] if again else self.row(table, pid))
        return found


def data(seed: int = 1) -> dict[str, list[Row]]:
    """The rows of each table: NULLs in every nullable column, duplicates, full fan-out, units that are absent."""
    draws = _Draws(random.Random(seed))
    rows: dict[str, list[Row]] = {table: [] for table in TABLES}
    for pid in range(1, UNITS_TOTAL + 1):
        full = pid == WHO or pid % 6 == 0
        if pid % 9:
            rows["people"].append(draws.row("people", pid))
        ids = [
            100 * pid + number
            for number in range(ROWS_PER_UNIT["visits"] if full else draws.rng.randint(0, 3))
        ]
        rows["visits"] += [draws.row("visits", pid, vid) for vid in ids]
        if ids:
            held = ROWS_PER_UNIT["items"] if full else draws.rng.randint(0, 3)
            rows["items"] += [draws.row("items", pid, draws.rng.choice(ids)) for _ in range(held)]
        for table in ("orders", "tags"):
            rows[table] += draws.some(table, pid)
    return {**rows, "doses": _doses(seed, rows["visits"]), "regions": list(_REGIONS), "steps": list(_STEPS)}


def _doses(seed: int, visits: Sequence[Row]) -> list[Row]:
    """Rows of `doses`: of each unit with visits so many as count, or fewer; some visits have several, others none."""
    draws = _Draws(random.Random(seed + 1))
    stays: dict[int, list[int]] = {}
    for vid, pid, *_ in visits:
        stays.setdefault(pid, []).append(vid)
    days = ("2024-01-01", "2024-01-31", "2024-02-29", "2024-03-31")
    return [
        (
            draws.rng.choice(ids), draws.of(DOMAINS["drug"][:3]), draws.of(FLOATS["dose"]), draws.of(FLOATS["least"]), draws.of(days),
            draws.of((1, 2, 4)),
        )
        for pid, ids in stays.items()
        for _ in range(ROWS_PER_UNIT["doses"] if pid == WHO else draws.rng.randint(0, 4))
    ]  # fmt: skip


NOBODY: Mapping[str, Sequence[Row]] = {
    "people": ((None, "Bonn", 50, 1.0, "1980-02-29", True, "x", 1),),
    "visits": ((90, None, "a", 3.0, 2, "2024-02-29", "x"), (91, None, None, None, None, None, None)),
    "orders": ((None, "new", 1, 2.0, "2024-02-29 00:00:00", True),),
    "items": ((90, "s1", 1.0, 1, True), (12345, "s2", 2.0, 2, False), (None, "s3", 3.0, 3, None)),
    "tags": ((None, "t", 1, "2024-01-01"),),
    "doses": ((90, "d1", 0.1, 0.1, "2024-01-01", 1), (None, "none", 0.3, 0.1, None, None)),
}
"""Rows without a unit, which are not counted."""


@dataclass(frozen=True)
class World:
    """One database under dpsql, and the same rows in plain DuckDB."""

    connection: Connection
    plain: duckdb.DuckDBPyConnection

    def close(self) -> None:
        """Closes both."""
        backend = self.connection.engine.backend
        assert isinstance(backend, DuckDBBackend)
        backend._runner.connection.close()
        self.connection.close()
        self.plain.close()


def _filled(rows: Mapping[str, Sequence[Row]]) -> duckdb.DuckDBPyConnection:
    # What is compared with must be right, and this optimizer is not.
    database = duckdb.connect(config={"threads": 1, "disabled_optimizers": UNSOUND})
    for table, columns in TABLES.items():
        database.execute(f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in columns)})")
        insert(database, table, rows[table], [f"CAST(? AS {kind})" for _, kind in columns])
    return database


def _shows(_chosen: object, units: int, _components: object) -> bool:
    """Whether anybody is in a group: where this stands for the selection, no group that SQL has is hidden."""
    return units > 0


@contextmanager
def open_world(seed: int = 1, without: Sequence[int] = ()) -> Iterator[World]:
    """Both databases, whose data follow from a seed; units `without` are not there."""
    rows = data(seed)
    gone = {row[0] for row in rows["visits"] if row[1] in without}
    unit = {"people": 0, "visits": 1, "orders": 0, "tags": 0}
    for table, found in rows.items():
        if table in unit:
            rows[table] = [row for row in found if row[unit[table]] not in without]
        elif table in LINKED:
            rows[table] = [row for row in found if row[0] not in gone]
    raw = {table: [*found, *NOBODY.get(table, ())] for table, found in rows.items()}
    rules = load(policy())
    spec = rules.get_budget("people")
    budgets = {
        name: Budget(spec.accountant, spec.epsilon, spec.delta) for name in rules.list_private_tables()
    }
    engine = Engine(
        rules, DuckDBBackend(_filled(raw)), open_ledger(":memory:", budgets), "ana", SeededEntropy(1)
    )
    world = World(Connection(engine, Fraction(LOSS)), _filled(rows))
    with (
        mock.patch.object(dpsql.engine.release.noise, "_is_selected", _shows),
        mock.patch.object(
            OptimalPartitionSelection, "draw_selection", lambda _chosen, units, _entropy: units > 0
        ),
    ):
        try:
            yield world
        finally:
            world.close()
