"""The dialect of PostgreSQL, and what it cannot do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NoReturn

from dpsql.backends.dialect import TABLES, fits
from dpsql.backends.postgres import columns, values
from dpsql.backends.postgres.functions import SPELLINGS, WORK
from dpsql.backends.quoting import identifier
from dpsql.backends.spellings import APPROXIMATE, written
from dpsql.errors import QueryRejected
from dpsql.plan.expr import Call, Column, WorkRule
from dpsql.plan.nodes import (
    Filter,
    Join,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SemiJoin,
    SetOperation,
    Values,
    inputs,
    is_private,
)
from dpsql.plan.tables import Elements, Scan
from dpsql.plan.types import Pairs, Type, Value
from dpsql.policy import table_parts

NAME_BYTES = 63
"""PostgreSQL cuts longer names, so that two of them may be one."""
SCHEMA = "public"
"""The schema of a table that the policy names without one."""
_NAME = re.compile(r'"((?:[^"]|"")*)"|\'(?:[^\']|\'\')*\'')
_OPERATORS = (
    *(Scan, Filter, Join, SemiJoin, Project, PerUnitGroupBy),
    *(PerUnitWindows, SetOperation, PublicSubquery, Values),
)
_BY_PLACE = frozenset({"quantile_cont", "quantile_disc", "median", "arg_min", "arg_max"})

_EXTREMES = MappingProxyType(
    {
        Type.BOOLEAN: {"min": "BOOL_AND({0})", "max": "BOOL_OR({0})"},
        Type.UUID: {
            name: f'CAST({name.upper()}(CAST({{0}} AS TEXT) COLLATE "C") AS UUID)' for name in ("min", "max")
        },
        Type.BLOB: {
            name: f"DECODE({name.upper()}(ENCODE({{0}}, 'hex') COLLATE \"C\"), 'hex')"
            for name in ("min", "max")
        },
    }
)
"""The extremes of types that MIN and MAX do not take in every version."""

MOST_ELEMENTS = 2**20
"""The most elements of an array of several dimensions."""
CANNOT = (
    "IGNORE NULLS in windows within a unit whose frames have EXCLUDE",
    "quantiles within a unit that lie between two values, but for the median and, of bounded whole numbers, q = k / 2^j as 0.25",
    "quantiles within a unit of more than 6 digits",
    "more than 10,000 groups of public rows that private rows are joined to, and those of released values",
    "fields of composite types, and elements of arrays of these, of enumerated types and of domains",
    "names of more than 63 bytes",
    "views, materialized views, foreign tables and tables with row security",
)
"""What is refused with code `engine`, or, of tables, by the policy's check."""


@dataclass(frozen=True, slots=True)
class PostgresDialect:
    """PostgreSQL's: NUMERIC for wide whole numbers, CASE for what may fail, arrays."""

    nan: str = values.NAN
    stages: bool = False
    holds: bool = False
    ranks_all: bool = False
    lists: bool = False
    places: bool = False
    public_groups: bool = False
    ignores_nulls: bool = False
    frames_of_groups: bool = True
    in_turn: bool = True
    approximate: frozenset[str] = APPROXIMATE
    by_place: frozenset[str] = _BY_PLACE
    work: Mapping[str, WorkRule] = field(default_factory=lambda: WORK)

    def require(self, release: Release) -> None:
        """Refuses what is listed in `CANNOT`, and every operator that is not known here."""
        for part in _relations(release.input):
            if not isinstance(part, _OPERATORS):
                refuse("dpsql does not ask PostgreSQL for this")
            if isinstance(part, PerUnitGroupBy) and not is_private(part):
                refuse(f"dpsql does not ask PostgreSQL for {CANNOT[3]}")

    def require_text(self, sql: str) -> None:
        """Refuses names that would be cut, and a character that no text of PostgreSQL has."""
        if "\x00" in sql:
            refuse("a text of PostgreSQL has no character 0")
        for found in _NAME.finditer(sql):
            if len((found[1] or "").replace('""', '"').encode(errors="replace")) > NAME_BYTES:
                refuse(
                    f"dpsql does not ask PostgreSQL for {CANNOT[5]}", "give tables and columns shorter names"
                )

    def table_name(self, name: str) -> str:
        """A declared table's name in quotes, always with its schema: nothing depends on the search path."""
        schema, table = table_parts(name)
        return f"{identifier(schema or SCHEMA)}.{identifier(table)}"

    def constant(self, value: Value | Pairs) -> str:
        """As `values.constant`."""
        return values.constant(value)

    def cast(self, text: str, kind: Type) -> str:
        """As `values.cast`."""
        return values.cast(text, kind)

    def call(self, expr: Call) -> str:
        """As `functions.SPELLINGS` say."""
        return written(SPELLINGS, expr, "PostgreSQL")

    def clean(self, column: Column) -> str:
        """As `columns.clean`."""
        return columns.clean(column)

    def widened(self, column: Column) -> str:
        """As `columns.widened`."""
        return columns.widened(column)

    def stored(self, column: Column) -> str:
        """As `columns.stored`."""
        return columns.stored(column)

    def unit_id(self, unit: Column) -> str:
        """As it is read elsewhere: whole numbers of all sizes are BIGINT."""
        return columns.widened(unit)

    def elements(self, table: str, listed: Elements) -> str:
        """The first elements by their places, as an array may number them from anywhere; of several dimensions, row by row.

        An array of one dimension is cut before it is unnested, as PostgreSQL stores all elements of one that is unnested: one row
        could fill the disk, or take all the time that a statement has. One of more dimensions and `MOST_ELEMENTS` is as NULL.
        """
        (column,) = listed.stored
        read = identifier(column)
        last = f"CAST(LEAST(ARRAY_UPPER({read}, 1), CAST(ARRAY_LOWER({read}, 1) AS BIGINT) + {listed.most - 1}) AS INTEGER)"
        whole = f"WHEN CARDINALITY({read}) <= {MOST_ELEMENTS} THEN {read}"
        few = f"CASE WHEN ARRAY_NDIMS({read}) = 1 THEN ({read})[ARRAY_LOWER({read}, 1):{last}] {whole} END"
        items = f"UNNEST({few}) WITH ORDINALITY AS e (v, place)"
        cut = f"WHERE place <= {listed.most}"
        first = f"SELECT v AS {identifier(listed.column.name)} FROM {items} {cut}"
        join = "LEFT JOIN" if listed.outer else "JOIN"
        return f'SELECT * FROM {table} {join} LATERAL ({first}) AS "#elements" ON TRUE'

    def sampled(self, unit: str, secret: str, below: int) -> str:
        """Digests are bytes, and so compared. A connection requires a database in UTF-8, to which no text fails to convert."""
        digest = f"SHA256(CONVERT_TO({values.constant(secret)} || CAST({unit} AS TEXT), 'UTF8'))"
        return f"{digest} < DECODE('{below:064x}', 'hex')"

    def by_bytes(self, text: str) -> str:
        """A text under the collation that compares bytes."""
        return f'({text} COLLATE "C")'

    def row_id(self, values: Sequence[str], table: int = 0) -> str:
        """A hash of the values that are read, each hashed for itself, as all of them together may be too long a text."""
        hashed = self.shuffled([f"HASHTEXTEXTENDED(CAST({value} AS TEXT), 0)" for value in values])
        unique = f"CAST({hashed} & {2**63 - 1} AS NUMERIC) * {2**63} + ROW_NUMBER() OVER ()"
        return f"{unique} + {table * TABLES}" if table else unique

    def row_hash(self, unit: str) -> str:
        """What is above 2^63."""
        return f"DIV({unit}, {2**63})"

    def shuffled(self, values: Sequence[str]) -> str:
        """A hash of the hash of a row of them.

        The hash of a row adds those of its values up, so that the groups of all units would follow one another alike.
        """
        return f"HASHINT8EXTENDED(HASH_RECORD_EXTENDED(ROW({', '.join(values)}), 0), 0)"

    def point(self, number: str, factor: float) -> str:
        """Cast within 64 bits alone; what would be too small for a DOUBLE is 0.

        A factor of at least 1 needs the number once, which may be long: the ends, which stand for NULL and for what is beyond
        them, become NULL.
        """
        far = values.constant(min(2.0**62 / factor, 1.7e308))
        if factor < 1:
            near = values.constant(2.0**-1022 / factor)
            product = f"{number} * {values.constant(factor)}"
            tiny = f"WHEN {number} BETWEEN -{near} AND {near} THEN 0 "
            return f"CASE {tiny}WHEN {number} BETWEEN -{far} AND {far} THEN CAST({product} AS BIGINT) END"
        within = f"NULLIF(NULLIF(LEAST(GREATEST({number}, -{far}), {far}), -{far}), {far})"
        return f"CAST({within} * {values.constant(factor)} AS BIGINT)"

    def added(self, points: str, most: int) -> str:  # noqa: ARG002
        """A sum of BIGINT is a NUMERIC."""
        return f"SUM({points})"

    def days(self, day: str) -> str:
        """A difference of days."""
        return f"({day} - DATE '0001-01-01' + 1)"

    def microseconds(self, moment: str) -> str:
        """EXTRACT gives a NUMERIC, which is exact."""
        return f"CAST(EXTRACT(EPOCH FROM {moment}) * 1000000 AS BIGINT)"

    def decimal_point(self, stored: str, low: str, high: str, factor: int) -> None:  # noqa: ARG002
        """DOUBLE is as fast."""
        return

    def binned(self, number: str, ends: Sequence[int], places: Sequence[int]) -> None:  # noqa: ARG002
        """Rows are grouped by interval."""
        return

    def shifted(self, number: str, bits: int) -> str:
        """An operator."""
        return f"({number} >> {bits})"

    def wide(self, number: str, most: int | None = None) -> str:
        """NUMERIC has as many digits as it takes; BIGINT, where that suffices, is several times as quick."""
        return number if fits(most) else f"CAST({number} AS NUMERIC)"

    def narrow(self, number: str, low: int, high: int) -> str:
        """Cast within the ends, so that no number fails; of NULL, LEAST and GREATEST would make an end."""
        if not fits(low) or not fits(high):
            return number
        return f"CAST(LEAST(GREATEST({number}, {low}), {high}) AS BIGINT)"

    def real(self, number: str) -> str:
        """A cast, of at most 2^190."""
        return f"CAST({number} AS {values.REAL})"

    def whole_of(self, number: str, most: int) -> str:
        """A cast within the ends. The number is written once, as it is computed each time; NaN is above all numbers."""
        low, high = values.constant(0.0), values.constant(float(most))
        return f"CAST(LEAST(GREATEST({number}, {low}), {high}) AS BIGINT)"

    def wide_point(self, number: str, factors: tuple[float, float]) -> str:
        """In two parts of 64 bits, where one does not suffice: NUMERIC takes 15 digits of a DOUBLE.

        Beyond 2^62 a DOUBLE is whole, and so is what is left of it after a multiple of 2^40, which is exact.
        """
        first, second = factors
        near = values.constant(min(2.0**-1021 / min(first, 1.0) / min(second, 1.0), 2.0**1000))
        far, part, times = (values.constant(2.0**exponent) for exponent in (62, -40, 40))
        high, low = f"FLOOR(b * {part})", f"b - FLOOR(b * {part}) * {times}"
        product = f"a * {values.constant(first)} * {values.constant(second)}"
        held = f'(SELECT CASE WHEN ABS(a) < {near} THEN 0 ELSE {product} END AS b FROM (SELECT {number} AS a OFFSET 0) AS "#held" OFFSET 0)'
        return (
            f"(SELECT CASE WHEN ABS(b) < {far} THEN CAST(CAST(b AS BIGINT) AS NUMERIC) WHEN ABS(b) < {values.constant(2.0**90)} "
            f'THEN CAST(CAST({high} AS BIGINT) AS NUMERIC) * {2**40} + CAST({low} AS BIGINT) END FROM {held} AS "#point")'
        )

    def scaled(self, number: str, factors: tuple[float, float]) -> str:
        """Where the product is beyond all DOUBLE, it is infinite."""
        first, second = map(values.constant, factors)
        most = values.constant(min(1.7e308 / max(factors[0], 1.0) / max(factors[1], 1.0), 1.7e308))
        real = f"CAST({number} AS {values.REAL})"
        return (
            f"CASE WHEN {real} > {most} THEN {values.INFINITY} WHEN {real} < -{most} THEN -{values.INFINITY} "
            f"ELSE {real} * {first} * {second} END"
        )

    def narrowed(self, number: str, kind: Type) -> str:
        """Within 64 bits, compared as NUMERIC: the greatest BIGINT is no DOUBLE. All other types have every value."""
        if kind is not Type.INTEGER:
            return values.cast(number, kind)
        return f"CASE WHEN CAST({number} AS NUMERIC) BETWEEN -{2**63} AND {2**63 - 1} THEN CAST({number} AS BIGINT) END"

    def per_unit(self, function: str, template: str, kind: Type | None) -> str:
        """A mean is the quotient of two DOUBLE, as in DuckDB; NULL, of no value, divided by 0 is NULL.

        UUID and BLOB are in the order of their digits; of BOOLEAN, the least says whether all are true.
        """
        if kind is not None and kind in _EXTREMES and function in ("min", "max"):
            return _EXTREMES[kind][function]
        if function not in ("avg", "avg_distinct"):
            return template
        each = "DISTINCT {0}" if function == "avg_distinct" else "{0}"
        return f"CAST(SUM({each}) AS {values.REAL}) / CAST(COUNT({each}) AS {values.REAL})"

    def window(self, function: str, arguments: Sequence[str], over: str, *, ignore_nulls: bool) -> str:  # noqa: ARG002
        """NULLs are not ignored. A count that is no INTEGER, or below 1, would fail; no row is so far away."""
        *values, last = arguments or ("",)
        if function == "nth_value":
            last = f"CAST(CASE WHEN {last} BETWEEN 1 AND {2**31 - 1} THEN {last} END AS INTEGER)"
        return f"{function}({', '.join([*values, last])}){over}"

    def quotient(self, dividend: str, divisor: str, most: int | None = None) -> str:
        """DIV of NUMERIC; the operator of BIGINT cuts digits off, too."""
        return f"{dividend} / {divisor}" if fits(most) else f"DIV({dividend}, {divisor})"

    def derived(self, query: str, name: str = '"#rows"', *, once: bool = False) -> str:
        """A query in FROM has a name; one with OFFSET is not merged into the query around it."""
        return f"({query}{' OFFSET 0' * once}) AS {name}"

    def gathered(self, query: str) -> str:
        """As it is."""
        return query

    def semi_join(self, left: str, right: str, *, anti: bool = False) -> str:
        """EXISTS."""
        chosen = "NOT EXISTS" if anti else "EXISTS"
        return f'{left} WHERE {chosen} (SELECT 1 FROM {right} AS "#of" WHERE "#of".u = {left}.u)'

    def outer_join(self, query: str, name: str, on: Sequence[tuple[str, str]]) -> str:
        """Equal arrays of texts: NULL equals NULL there, and a full join needs an equality that can be hashed."""
        ours, theirs = (", ".join(f"CAST({pair[side]} AS TEXT)" for pair in on) for side in (0, 1))
        return f"FULL JOIN ({query}) AS {name} ON ARRAY[{ours}] = ARRAY[{theirs}]"

    def collected(self, items: Sequence[str], order: str) -> str:
        """An array of arrays."""
        return f"ARRAY_AGG(ARRAY[{', '.join(items)}] ORDER BY {order}) FILTER (WHERE {order} IS NOT NULL)"

    def unpivoted(
        self, query: str, keys: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
    ) -> str:
        """A lateral join with VALUES, which are prepared anew for each row: so they are columns and constants."""
        values = ", ".join(f"({', '.join(row)})" for row in rows)
        lateral = f'LATERAL (VALUES {values}) AS "#each" ({", ".join(names)})'
        return (
            f"SELECT {', '.join([*keys, *names])} FROM {self.derived(query, once=True)} CROSS JOIN {lateral}"
        )

    def packed_window(self, keys: Sequence[str], rows: str, by: str, name: str) -> str:
        """An array of pairs, whose elements UNNEST gives in their order."""
        pair = "ARRAY[CAST(p AS NUMERIC), CAST(n AS NUMERIC)]"
        first = "ARRAY[ARRAY[CAST(MIN(total) AS NUMERIC), CAST(MIN(before) AS NUMERIC)]]"
        pairs = ", ".join([*keys, f"{first} || ARRAY_AGG({pair} ORDER BY p) AS pairs"])
        flat = "(SELECT ARRAY_AGG(e ORDER BY o) FROM UNNEST(pairs) WITH ORDINALITY AS f(e, o))"
        inner = f"SELECT {pairs} FROM {self.derived(rows)}{by} HAVING COUNT(*) > 0"
        return f"SELECT {', '.join([*keys, f'{flat} AS {name}'])} FROM {self.derived(inner)}"

    def spread(self, values: str, most: str) -> str:
        """Elements by their places, which a series gives."""
        length = f"CARDINALITY({values})"
        place = f"DIV(CAST(2 * i + 1 AS NUMERIC) * {length}, 2 * GREATEST({most}, 1)) + 1"
        series = f"GENERATE_SERIES(0, CAST({most} AS BIGINT) - 1) AS g(i)"
        some = f"ARRAY(SELECT ({values})[CAST({place} AS INTEGER)] FROM {series})"
        return f"UNNEST(CASE WHEN {length} <= {most} THEN {values} ELSE {some} END)"

    def collected_values(self, value: str) -> str:
        """An array."""
        return f"ARRAY_AGG({value} ORDER BY {value}) FILTER (WHERE {value} IS NOT NULL)"


POSTGRES = PostgresDialect()


def refuse(rule: str, hint: str | None = None) -> NoReturn:
    """Refuses a query that another engine could be asked."""
    raise QueryRejected(rule, code="engine", hint=hint or "the reference of engines lists what each can do")


def _relations(relation: Relation) -> Iterator[Relation]:
    yield relation
    for part in inputs(relation):
        yield from _relations(part)
