"""Statements that make extreme values of one person's rows, and put them through every function and aggregate.

A value of one person that stops a query tells that this person is there: nothing that can be asked may end in
a failure of the engine, with that person or without. The functions are those of the registry, each over columns
`e0`, `e1`, … of a derived table, which hold an extreme of their type in the rows of unit 17 alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from differential.oracle import Find
from differential.world import LOSS, WHO, World
from plan.functions.pools import SIGNATURES, calls, read_by
from properties.printing import scalar

import dpsql
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine.query_run import QueryRun
from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.stages import answer_query
from dpsql.errors import BackendError, InternalError
from dpsql.plan.expressions import Call
from dpsql.plan.types import Type
from dpsql.policy.request.query import Query

LEAST_LOSS = Fraction(1, 10**6)
"""An ε at which released counts are as large as they can be made."""
EXTREMES: Mapping[Type, Sequence[str]] = {
    Type.INTEGER: (
        "4611686018427387904", "-4611686018427387904", "9223372036854775807", "-9223372036854775807",
        "4000000000000000000", "-3037000500", "0", "-1", "NULL",
    ),
    Type.DOUBLE: ("1e308", "-1e308", "5e-324", "9.3e18", "-9.3e18", "-0.0", "1e0", "NULL"),
    Type.VARCHAR: (
        "''", "'" + "x" * 5000 + "'", "'" + "é" * 700 + "'", "'9223372036854775808'", "'nan'", "'1e400'", "'%'", "'\\'", "'('",
        "'294247-01-10'", "'a" + chr(0x1F926) + chr(0x200D) + "'", "NULL",
    ),
    Type.BOOLEAN: ("TRUE", "FALSE", "NULL"),
    Type.DATE: ("DATE '0001-01-01'", "DATE '9999-12-31'", "DATE '2024-02-29'", "NULL"),
    Type.TIMESTAMP: ("TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59.999999'", "NULL"),
    Type.TIME: ("TIME '00:00:00'", "TIME '23:59:59.999999'", "NULL"),
    Type.UUID: (
        "UUID '00000000-0000-0000-0000-000000000000'", "UUID 'ffffffff-ffff-ffff-ffff-ffffffffffff'",
        "UUID '7fffffff-ffff-ffff-ffff-ffffffffffff'", "UUID '80000000-0000-0000-0000-000000000000'", "NULL",
    ),
    Type.BLOB: ("BLOB ''", "BLOB '\\x00'", "BLOB '\\xFF\\x00'", "BLOB '" + "x" * 5000 + "'", "NULL"),
}  # fmt: skip
"""For each type constants at its ends, and near them, that arithmetic leaves it from."""
BY_TEXT: Mapping[Type, Sequence[str]] = {
    Type.INTEGER: ("-9223372036854775808", "9223372036854775807", "9223372036854775808", "x"),
    Type.DOUBLE: ("nan", "inf", "-inf", "1.7976931348623157e308", "1e400", "-0.0"),
    Type.BOOLEAN: ("true", "maybe"),
    Type.DATE: ("infinity", "-infinity", "5881580-07-10", "5877642-06-25 (BC)", "294247-01-10", "2024-02-30"),
    Type.TIMESTAMP: (
        "infinity",
        "-infinity",
        "294247-01-10 04:00:54.775806",
        "290309-12-22 (BC) 00:00:00",
        "10000-01-01",
    ),
    Type.TIME: ("24:00:00", "23:59:59.9999999", "24:00:01", "-00:00:01", "08:30"),
    Type.UUID: ("f" * 32, "{550E8400-e29b-41d4-a716-446655440000}", "f" * 31, "x"),
    Type.BLOB: ("", "\\x00", "\\x5C", "\\x", "\\xZZ", "é", "x" * 5000),
}
"""For each type further ends, which a cast of text gives."""
PLAIN: Mapping[Type, str] = {
    Type.INTEGER: "1", Type.DOUBLE: "0.5", Type.BOOLEAN: "false", Type.DATE: "2024-02-29", Type.TIMESTAMP: "2024-02-29 12:00:00",
    Type.TIME: "12:00:00", Type.UUID: "00000000-0000-0000-0000-000000000001", Type.BLOB: "a",
}  # fmt: skip
ORDINARY: Mapping[Type, Sequence[str]] = {
    Type.INTEGER: ("lvl", "0", "-lvl", "1"),
    Type.DOUBLE: ("cost", "0.5", "-1e0"),
    Type.VARCHAR: ("kind", "note", "'a'", "''"),
    Type.BOOLEAN: ("lvl > 2", "TRUE"),
    Type.DATE: ("day", "DATE '2024-02-29'"),
    Type.TIMESTAMP: ("CAST(day AS TIMESTAMP)", "TIMESTAMP '2024-02-29 12:00:00'"),
    Type.TIME: ("CAST(CAST(day AS TIMESTAMP) AS TIME)", "TIME '12:00:00'"),
    Type.UUID: ("UUID '00000000-0000-0000-0000-000000000001'", "CAST(note AS UUID)"),
    Type.BLOB: ("CAST(kind AS BLOB)", "BLOB 'a'"),
}
CONSTANTS: Mapping[Type, Sequence[str]] = {
    Type.INTEGER: ("0", "4", "-9223372036854775807", "9223372036854775807"),
    Type.DOUBLE: ("0e0", "1.5e0", "-1e308"),
    Type.VARCHAR: ("''", "'a'"),
    Type.BOOLEAN: ("TRUE", "FALSE"),
    Type.DATE: ("DATE '2024-02-29'", "DATE '9999-12-31'"),
    Type.TIMESTAMP: ("TIMESTAMP '2024-02-29 12:00:00'", "TIMESTAMP '0001-01-01 00:00:00'"),
    Type.TIME: ("TIME '12:00:00'", "TIME '23:59:59.999999'"),
    Type.UUID: ("UUID '00000000-0000-0000-0000-000000000001'", "UUID 'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
    Type.BLOB: ("BLOB ''", "BLOB 'a'"),
}


def every() -> tuple[Call, ...]:
    """A call of each function for each of its signatures."""
    found = (next(iter(calls(function, types, most=1)), None) for function, types in SIGNATURES)
    return tuple(call for call in found if call is not None)


def statements(seed: int, number: int) -> Iterator[str]:
    """As many statements, of which each few go through another function."""
    rng, known = random.Random(seed), every()
    order = rng.sample(range(len(known)), len(known))
    for place in range(number):
        call = known[order[place % len(known)]]
        if place % 4 == 1:
            yield rng.choice((dropped, dropped, spread, factor))(rng)
        else:
            yield (Extreme(rng, call) if place % 4 else Extreme(rng, None)).statement()


def dropped(rng: random.Random) -> str:
    """Arithmetic on values of which a condition over a join keeps the small ones: an engine may compute before it drops."""
    pick = rng.choice
    extreme = pick(("4000000000000000000", "4611686018427387904", "9223372036854775807"))
    sign = pick(("", "-"))
    side, other = pick(
        (
            ("MONTH(c.day)", "visits c ON c.pid = v.pid"),
            ("c.lvl", "visits c ON c.pid = v.pid"),
            ("c.qty", "orders c ON c.pid = v.pid"),
            ("r.lvl", "steps r ON r.lvl = v.lvl"),
        )
    )
    rows = f"SELECT pid, lvl, CASE WHEN pid = {WHO} THEN {sign}{extreme} ELSE {pick(('0', '1', 'lvl'))} END AS e FROM visits"
    narrow = pick((f"v.e < {side}", f"v.e <= {side} AND v.e >= 0", f"v.e BETWEEN 0 AND {side}"))
    narrow = narrow if not sign else pick((f"v.e > -{side}", f"-v.e < {side}"))
    kept = f"SELECT v.pid, v.lvl, v.e FROM ({rows}) v JOIN {other} WHERE {narrow}"
    value = pick(
        ("s.e * s.e", "s.e * s.e", "s.e * s.e * s.lvl", "s.e * 1000", "s.e + s.e + s.e", "s.e * s.lvl * 3")
    )
    asked = pick(
        (
            f"SELECT COUNT(*) AS n FROM ({kept}) s WHERE {value} < {pick((100, 5, 0))}",
            f"SELECT COUNT(*) AS n FROM ({kept}) s WHERE {value} {pick(('<>', '>=', '='))} {pick((100, 4, 0))}",
            f"SELECT SUM(s.lvl) AS n FROM ({kept}) s JOIN orders o ON o.pid = s.pid WHERE {value} < {pick((100, 5))}",
            f"SELECT COUNT(*) AS n FROM people p WHERE EXISTS (SELECT 1 FROM ({kept}) s WHERE s.pid = p.pid AND {value} < 100)",
            f"SELECT SUM(LEAST(GREATEST({value}, -5), 5)) AS n FROM ({kept}) s",
        )
    )
    return str(asked)


def spread(rng: random.Random) -> str:
    """A rank of values of which one person's lies as far from all others as there is room for."""
    pick = rng.choice
    ends = ["9223372036854775807", "4611686018427387904", "4611686018427387903"]
    low, high = f"-{pick(ends)}", pick(ends)
    low, high = pick(((low, high), (high, low)))
    who = f"pid = {WHO}" + pick(("", " AND lvl > 1", " AND cost > 0", " AND cost < 50"))
    value = f"CASE WHEN {who} THEN {high} ELSE {pick((low, low, 'lvl'))} END"
    rank = pick(
        ("MEDIAN({0})", "MIN({0})", "MAX({0})", "QUANTILE_DISC({0}, 0.25)", "QUANTILE_CONT({0}, 0.75)")
    )
    return f"SELECT {rank.format(value)} AS a FROM visits" + pick(
        ("", "", " GROUP BY kind", " WHERE lvl >= 0")
    )


def factor(rng: random.Random) -> str:
    """A person's value times one that is released, divided until it seems to be small."""
    pick = rng.choice
    count = f"SELECT COUNT(*) // {pick((10, 1000, 100000))} AS m FROM {pick(('orders', 'people', 'visits'))}"
    most = pick((100, 1000))
    return str(
        pick(
            (
                f"SELECT COUNT(*) AS n FROM visits v, ({count}) r WHERE v.lvl * r.m * {most} > 5",
                f"SELECT COUNT(*) AS n FROM visits v WHERE v.lvl * ({count}) * {most} > 5",
                f"SELECT SUM(LEAST(GREATEST(v.lvl * r.m, -5), 5)) AS n FROM visits v, ({count}) r",
                f"SELECT COUNT(*) AS n FROM orders v JOIN visits c ON c.pid = v.pid, ({count}) r WHERE v.qty * r.m * c.lvl < 7",
            )
        )
    )


class Extreme:
    """One statement around the value of a call."""

    def __init__(self, rng: random.Random, call: Call | None) -> None:
        self.rng = rng
        if call is None:  # the aggregates alone
            self.type = rng.choice((*[Type.INTEGER] * 6, *[Type.DOUBLE] * 3, *EXTREMES))
            self.value, self.kinds = "s.e0", [self.type]
            return
        self.type = call.type
        text = scalar(call)
        reads = read_by(call)
        for place, column in enumerate(reads):
            text = re.sub(rf'"?{column.source}"?\."?{column.name}"?', f"s.e{place}", text)
        self.kinds = [column.type for column in reads] or [Type.INTEGER]
        self.value = text

    def chance(self, share: float) -> bool:
        """Whether, with that chance."""
        return self.rng.random() < share

    def inner(self) -> str:
        """The rows, of which those of one person are extreme; conditions narrow them, or seem to."""
        pick = self.rng.choice
        items = []
        for place, kind in enumerate(self.kinds):
            who = f"pid = {WHO}" + pick(("", "", " AND lvl > 1", " AND cost >= 0"))
            if kind in BY_TEXT and self.chance(0.25):
                ends = f"CASE WHEN {who} THEN '{pick(BY_TEXT[kind])}' ELSE '{pick((PLAIN[kind], *BY_TEXT[kind]))}' END"
                items.append(f"CAST({ends} AS {kind.value}) AS e{place}")
                continue
            more = f" WHEN pid = {WHO} THEN {pick(EXTREMES[kind])}" * self.chance(0.4)
            other = pick(EXTREMES[kind] if self.chance(0.3) else ORDINARY[kind])
            items.append(f"CASE WHEN {who} THEN {pick(EXTREMES[kind])}{more} ELSE {other} END AS e{place}")
        rows = f"SELECT pid, lvl, day, {', '.join(items)} FROM visits"
        if not self.chance(0.4):
            return rows
        kind = self.kinds[0]
        const, second = pick(CONSTANTS[kind]), pick(CONSTANTS[kind])
        names = ", ".join(f"q.e{place}" for place in range(len(self.kinds)))
        narrow = pick(
            (
                f"q.e0 < {const}",
                f"q.e0 > {const}",
                f"q.e0 BETWEEN {const} AND {second}",
                f"q.e0 IN ({const}, {second})",
            )
        )
        return f"SELECT q.pid, q.lvl, q.day, {names} FROM ({rows}) q WHERE {narrow}"

    def statement(self) -> str:
        """A whole statement."""
        value, kind = self._more(self.value, self.type)
        inner, pick = self.inner(), self.rng.choice
        if self.chance(0.35):
            inner = self._joined(inner)
        condition = self._condition(value, kind)
        source, where = pick((
            (f"({inner}) s", ""), (f"({inner}) s", f" WHERE {condition}"),
            (f"({inner}) s JOIN visits c ON c.pid = s.pid", " WHERE MONTH(c.day) > s.lvl"),
            (f"({inner}) s JOIN orders c ON c.pid = s.pid AND c.qty > 0", f" WHERE {condition}"),
            (f"({inner}) s JOIN steps r ON r.lvl = s.lvl", f" WHERE {condition}"),
            (f"({inner}) s JOIN steps r ON r.lvl = s.lvl AND r.floor > 0", ""),
            (f"people c LEFT JOIN ({inner}) s ON s.pid = c.pid", pick(("", f" WHERE {condition}"))),
            (f"({inner}) s", f" WHERE EXISTS (SELECT 1 FROM orders c WHERE c.pid = s.pid AND c.qty > s.lvl AND {condition})"),
            (f"({inner}) s", f" WHERE (SELECT COUNT(*) FROM visits c WHERE c.pid = s.pid AND c.lvl > 1) >= 1 AND {condition}"),
            (f"({inner}) s, (SELECT COUNT(*) AS m FROM orders) r", f" WHERE r.m > s.lvl AND {condition}"),
        ))  # fmt: skip
        roll = self.rng.random()
        if roll < 0.2:
            within = self._within(value, kind)
            rows = f"SELECT s.pid AS pid, {within} AS a FROM {source}{where} GROUP BY s.pid"
            more = pick((" WHERE a IS NOT NULL", "", " WHERE a = a"))
            return f"SELECT COUNT(*) AS n, COUNT(a) AS c FROM ({rows}) g{more}"
        if roll < 0.32:
            scalar_query = f"(SELECT {self._within(value, kind)} FROM ({inner}) s WHERE s.pid = p.pid)"
            return f"SELECT COUNT(*) AS n FROM people p WHERE {scalar_query} IS NOT NULL"
        if roll < 0.45:
            having = pick(("", " HAVING COUNT(*) > 1"))
            return f"SELECT {value} AS k, COUNT(*) AS n FROM {source}{where} GROUP BY {value}{having}"
        aggregates = ", ".join(self._aggregate(value, kind) for _ in range(pick((1, 2))))
        return f"SELECT {aggregates} FROM {source}{where}"

    def _joined(self, rows: str) -> str:
        """The rows that a condition over a join keeps: an engine may compute what stands above before it drops the others."""
        pick = self.rng.choice
        sides = {
            Type.INTEGER: ("MONTH(c.day)", "c.lvl", "r.lvl"), Type.DOUBLE: ("c.cost", "r.floor"), Type.VARCHAR: ("c.kind", "r.label"),
            Type.BOOLEAN: ("(c.lvl > 2)", "(r.lvl > 2)"), Type.DATE: ("c.day",), Type.TIMESTAMP: ("CAST(c.day AS TIMESTAMP)",),
            Type.TIME: ("CAST(CAST(c.day AS TIMESTAMP) AS TIME)",), Type.BLOB: ("CAST(c.kind AS BLOB)", "CAST(r.label AS BLOB)"),
            Type.UUID: ("CAST(c.note AS UUID)", "CAST(r.label AS UUID)"),
        }  # fmt: skip
        side = pick(sides[self.kinds[0]])
        other = "visits c ON c.pid = s.pid" if "c." in side else "steps r ON r.lvl = s.lvl"
        names = ", ".join(f"s.e{place}" for place in range(len(self.kinds)))
        low = pick(CONSTANTS[self.kinds[0]])
        narrow = pick(
            (
                f"s.e0 < {side}",
                f"s.e0 <= {side} AND s.e0 >= {low}",
                f"s.e0 BETWEEN {low} AND {side}",
                f"s.e0 = {side}",
            )
        )
        return f"SELECT s.pid, s.lvl, s.day, {names} FROM ({rows}) s JOIN {other} WHERE {narrow}"

    def _more(self, value: str, kind: Type) -> tuple[str, Type]:
        if not self.chance(0.45):
            return value, kind
        pick = self.rng.choice
        if kind is Type.INTEGER:
            count = "(SELECT COUNT(*) FROM orders)"
            more = (
                f"({value} * {value})",
                f"({value} * {value})",
                f"({value} + 1)",
                f"(-{value})",
                f"({value} - s.lvl)",
                f"ABS({value})",
            )
            return pick(
                (
                    *more,
                    f"({value} // -1)",
                    f"({value} * {count})",
                    f"({value} % s.lvl)",
                    f"CAST({value} AS INTEGER)",
                )
            ), kind
        if kind is Type.DOUBLE:
            return pick(
                (
                    f"({value} * {value})",
                    f"EXP({value})",
                    f"ROUND({value})",
                    f"FLOOR({value})",
                    f"({value} / 5e-324)",
                )
            ), kind
        if kind is Type.VARCHAR:
            return pick(
                (f"({value} || {value})", f"UPPER({value})", f"SUBSTR({value}, 2, 3)", f"REVERSE({value})")
            ), kind
        if kind.temporal:
            return pick(
                (
                    f"DATE_TRUNC('month', {value})",
                    f"({value} + INTERVAL 1 DAY)",
                    f"({value} - INTERVAL 9 YEAR)",
                )
            ), Type.TIMESTAMP
        return value, kind

    def _condition(self, value: str, kind: Type) -> str:
        if kind is Type.BOOLEAN:
            return value
        const = self.rng.choice(CONSTANTS[kind]) if kind in CONSTANTS else "NULL"
        return self.rng.choice(
            (f"{value} < {const}", f"{value} = {const}", f"{value} IS NOT NULL", f"{value} <> {const}")
        )

    def _within(self, value: str, kind: Type) -> str:
        takes = ["COUNT", "MIN", "MAX", "COUNT(DISTINCT"]
        if kind.numeric:
            takes += ["SUM", "AVG", "SUM"]
        chosen = self.rng.choice(takes)
        return f"{chosen}{' ' if chosen.endswith('DISTINCT') else '('}{value})"

    def _aggregate(self, value: str, kind: Type) -> str:
        pick = self.rng.choice
        bounded = f"LEAST(GREATEST({value}, -5), 5)"
        if not kind.numeric or self.chance(0.25):
            return pick(
                (f"COUNT({value})", f"COUNT(DISTINCT {value})", f"COUNT_IF({self._condition(value, kind)})")
            )
        part = pick((value, value, bounded))
        filtered = f" FILTER (WHERE {self._condition(value, kind)})" * self.chance(0.2)
        return pick((
            f"SUM({part}){filtered}", f"AVG({part}){filtered}", f"VAR_POP({part})", f"MIN({part})", f"MAX({part}){filtered}",
            f"MEDIAN({part})", f"QUANTILE_DISC({part}, 0.25)", f"HISTOGRAM({value}, [0, 5])", f"CORR({part}, s.lvl)",
        ))  # fmt: skip


def failure(worlds: Sequence[World], sql: str, epsilon: Fraction | None = None) -> Find | None:
    """What ends in the failure of the engine or of dpsql itself in one of the worlds; None also where it is refused."""
    engine = worlds[0].connection.engine
    try:
        # What is prepared reads nothing private, and is the same in all worlds.
        prepared = plan_and_match(engine, Query(sql, epsilon=epsilon or Fraction(LOSS)))
        ends = [_end(world, prepared) for world in worlds]
    except BackendError:
        return Find("backend_error", sql, cause(worlds, prepared))
    except InternalError as error:
        return Find("internal_error", sql, str(error))
    except dpsql.Error:
        return None
    except Exception as error:  # whatever is not dpsql's own is a find
        return Find(f"exception {type(error).__name__}", sql, str(error)[:300])
    if len(set(ends)) > 1:
        return Find("differs", sql, f"ends {ends}")
    return None


def _end(world: World, prepared: QueryRun) -> str:
    try:
        answer_query(world.connection.engine, prepared)
    except (BackendError, InternalError):
        raise
    except dpsql.Error as error:
        return error.code
    return ""


def cause(worlds: Sequence[World], prepared: QueryRun) -> str:
    """What the engine says of a statement's SQL, where it holds no released value."""
    for world in worlds:
        backend = world.connection.engine.backend
        assert isinstance(backend, DuckDBBackend)
        for part in prepared.releases:
            try:
                backend._runner.connection.cursor().execute(part.statement.sql).fetchall()
            except Exception as error:
                return f"{type(error).__name__}: {str(error)[:300]}"
    return "unknown"
