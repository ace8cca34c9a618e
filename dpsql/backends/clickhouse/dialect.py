"""The dialect of ClickHouse: Int128 for wide whole numbers, casts that give NULL, arrays, rows held in temporary tables."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpsql.backends.clickhouse.functions import SPELLINGS, WORK
from dpsql.backends.clickhouse.values import (
    DAY,
    MOMENT,
    NAN,
    VALUES,
    bind_arguments,
    count_microseconds,
    emit_constant,
    emit_wide_double,
)
from dpsql.backends.dialect import (
    INTERPOLATED_QUANTILES,
    JOINS_TO_PUBLIC_GROUPS,
    QUANTILES_OF_MANY_DIGITS,
    Capabilities,
    ColumnSyntax,
    Dialect,
    FunctionSyntax,
    HashSyntax,
    IntegerSyntax,
    ListSyntax,
    PointSyntax,
    QuerySupport,
    QuerySyntax,
    fits_int64,
    iterate_relations,
    refuse_query,
)
from dpsql.backends.function_spellings import APPROXIMATE
from dpsql.plan.aggregates.windows import OVER
from dpsql.plan.expressions import Call, Column, ColumnInfo, Expr, Literal, WindowCall, walk
from dpsql.plan.interval import MOST_STORED
from dpsql.plan.nodes import Join, PerUnitWindows, Relation, Release, SemiJoin
from dpsql.plan.tables import UnnestedList
from dpsql.plan.types import Type
from dpsql.policy import split_table_name
from dpsql.policy.names import quote_identifier

# Sanitized columns of ClickHouse's tables: widened, clamped to declared bounds, NULL outside a declared domain.


_NARROW = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"})
"""Engine types of whole numbers that 64 bits hold."""
_DIGITS = re.compile(r"DECIMAL\(\d+,(\d+)\)")
_MEMBER = re.compile(r"'([^']*)' = (-?\d+)")


@dataclass(frozen=True)
class ClickHouseColumns(ColumnSyntax):
    """Columns of ClickHouse's tables.

    Claim: every value that is read is in the column's interval or domain, or is NULL. It is never NaN; each day and moment is of
    the years 1 to 9999; each text is UTF-8 and has at most `MOST_STORED` bytes. No stored value makes the reading fail.
    Why: whole numbers of up to 64 bits, DOUBLE and DECIMAL have a cast that is defined for every value, and wider numbers one that
    gives NULL. A day is stored as a number, which is compared before it is multiplied, and a moment as a number of ticks, of
    which 128 bits hold the microseconds; neither passes through a function of the calendar, and both may be any number. So may a member
    of an ENUM, which is looked up by it, as ClickHouse fails on one that has no name. No comparison is true of NaN.
    Source: ClickHouse 26 documentation, "Type conversion functions" (accurateCastOrNull, reinterpret), "Date32", "DateTime64".
    """

    def emit_widened_column(self, column: Column) -> str:
        """Cast to the type of values, and check the bytes and the length of texts."""
        raw, facts = self.emit_stored_column(column), column.facts
        match facts.type:
            case Type.VARCHAR:
                return _emit_text(raw, facts.engine_type)
            case Type.BOOLEAN:
                return f"CAST({raw} <> 0 AS Bool)"  # other numbers than 0 and 1 may be stored
            case Type.DATE:
                number = f"CAST({raw} AS Int64)"
                fits = f"{number} BETWEEN {_FIRST // _TICKS_OF_DAY} AND {_LAST // _TICKS_OF_DAY}"
                return f"reinterpret(CASE WHEN {fits} THEN {number} * {_TICKS_OF_DAY} END, '{DAY}')"
            case Type.TIMESTAMP:
                return f"reinterpret({_emit_stored_microseconds(raw, facts.engine_type)}, '{MOMENT}')"
            case Type.INTEGER if facts.engine_type in _NARROW:
                return f"CAST({raw} AS Int64)"
            case Type.INTEGER if facts.engine_type.startswith("DECIMAL("):
                # A cast of a DECIMAL fails beyond 64 bits, also one that gives NULL elsewhere: its digits are a number of 128 bits.
                return f"accurateCastOrNull(reinterpretAsInt128(CAST({raw} AS Decimal(38, 0))), 'Int64')"
            case kind:
                return self.values.emit_cast(raw, kind)

    def emit_unit_id(self, unit: Column) -> str:
        """Give each DOUBLE one form: GROUP BY and joins compare its bits, by which 0.0 is not -0.0, nor one NaN another."""
        text = self.emit_widened_column(unit)
        return f"if(isNaN({text}), {NAN}, {text} + 0)" if unit.type is Type.DOUBLE else text

    def emit_column_path(self, names: Sequence[str]) -> str:
        """Quote the name; fields are not read."""
        (name,) = names
        return quote_identifier(name)

    def emit_membership(self, read: str, constants: Sequence[str], kind: Type) -> str:
        """Compare numbers with constants one by one: a set tells 0.0 from -0.0, and a DECIMAL from a DOUBLE."""
        if kind is not Type.DOUBLE:
            return ColumnSyntax.emit_membership(self, read, constants, kind)
        equal = " OR ".join(f"{read} = {constant}" for constant in constants)
        return f"({equal or 'FALSE'})"


_TICKS_OF_DAY = 86_400_000_000
_FIRST, _LAST = map(count_microseconds, (dt.date.min, dt.date.max))


def _emit_text(raw: str, engine: str) -> str:
    digits = _DIGITS.fullmatch(engine)
    if digits is not None:
        return f"toDecimalString({raw}, {digits[1]})"
    members = _MEMBER.findall(engine) if engine.startswith("ENUM(") else []
    if members:
        branches = " ".join(f"WHEN {number} THEN {emit_constant(name)}" for name, number in members)
        return f"CASE CAST({raw} AS Int16) {branches} END"
    text = f"CAST({raw} AS String)"
    if engine != "VARCHAR":
        return text
    return f"CASE WHEN length({text}) <= {MOST_STORED} AND isValidUTF8({text}) THEN {text} END"


def _emit_stored_microseconds(raw: str, engine: str) -> str:
    """Emit the microseconds of a stored moment, by the number of its ticks; NULL where 64 bits do not hold them."""
    match engine:
        case "TIMESTAMP":
            return f"reinterpretAsInt64({raw})"
        case "TIMESTAMP_MS":
            return f"accurateCastOrNull(CAST(reinterpretAsInt64({raw}) AS Int128) * 1000, 'Int64')"
        case "TIMESTAMP_NS":
            ticks = f"reinterpretAsInt64({raw})"
            return bind_arguments("intDiv(a, 1000) - CAST(a % 1000 < 0 AS Int64)", ticks)
        case _:  # of 32 bits, in seconds
            return f"(CAST({raw} AS Int64) * 1000000)"


COLUMNS = ClickHouseColumns(VALUES)


def emit_copied_column(column: str, kind: str) -> str:
    """Emit a column of a public table as Python can hold it: texts of UTF-8, days and moments of the calendar alone."""
    raw = quote_identifier(column)
    of = {"VARCHAR": Type.VARCHAR, "ENUM": Type.VARCHAR, "DATE": Type.DATE, "BOOLEAN": Type.BOOLEAN}.get(
        kind.partition("(")[0]
    )
    of = Type.TIMESTAMP if kind.startswith("TIMESTAMP") else of
    if of is not None:
        return COLUMNS.emit_bounded_column(Column("", column, ColumnInfo(of, kind)))
    return f"CAST({raw} AS Float64)" if kind == "FLOAT" else raw


# The other parts of the dialect.


WIDE = "Int128"
"""The type of wide whole numbers, which wrap.

38 digits hold all that a statement adds up and multiplies (see `planning.clamping.NORM_BITS`); 127 bits hold 38 digits.
"""
_SMALL = 17
"""The bits of numbers of which 2^46 are added up in 64 bits, with a sign."""
_NAME = re.compile(r'"((?:[^"]|"")*)"|\'[^\']*\'')
_LONG = re.compile(r"\d{19,}")
_EXCLUDED_ROWS = "frames with EXCLUDE in windows within a unit"
_IGNORED_NULLS = "IGNORE NULLS in windows within a unit"
_ROW_IDS = "row ids of tables whose rows are units, which joins and DISTINCT need"
_ODD_NAMES = 'names that contain " or \\'
_LONG_NUMBERS = (
    "statements with whole numbers beyond 64 bits, as of sums of units with many rows and very wide bounds"
)
_LISTS = "arrays, tuples and maps"
_CORRELATED = "NOT IN (SELECT …), and EXISTS by conditions other than comparisons of columns"
_DOUBLE_KEYS = "joins and subqueries by equal DOUBLE"
_STRICT = frozenset({"eq", "lt", "le", "gt", "ge", "cast_double", "cast_varchar", "cast_timestamp"})
"""Functions that are NULL, or false, if an argument is NULL."""


@dataclass(frozen=True)
class ClickHouseSupport(QuerySupport):
    """The queries that ClickHouse answers: not those with names or numbers that its parser would read differently."""

    def require_supported_release(self, release: Release) -> None:
        """Refuse EXCLUDE and IGNORE NULLS in windows, and subqueries with a condition that may be true of NULL.

        ClickHouse joins the rows of a correlated subquery to its values of the outer columns by equality, which loses NULL. A join
        compares numbers by their bits, by which 0.0 is not -0.0.
        """
        for part in iterate_relations(release.input):
            for window in part.windows if isinstance(part, PerUnitWindows) else ():
                if _has_frame_exclusion(window):
                    self.refuse_feature(_EXCLUDED_ROWS)
                if window.ignore_nulls:
                    self.refuse_feature(_IGNORED_NULLS)
            if isinstance(part, SemiJoin) and not all(map(_is_strict, split_conjuncts(part.on))):
                self.refuse_feature(
                    _CORRELATED, "write NOT EXISTS (SELECT … WHERE a = b), which counts rows with NULL"
                )
            if any(map(_compares_doubles, _iterate_joined(part))):
                self.refuse_feature(_DOUBLE_KEYS, "join by whole numbers, texts or dates")
        QuerySupport.require_supported_release(self, release)

    def require_readable_sql(self, sql: str) -> None:
        """Refuse names that the parser would read differently, and numbers that it would take for DOUBLE."""
        for found in _NAME.finditer(sql):
            if found[1] is not None and ('""' in found[1] or "\\" in found[1]):
                self.refuse_feature(_ODD_NAMES, "use other names for tables and columns")
        if any(int(found[0]) >= 2**64 for found in _LONG.finditer(_NAME.sub("", sql))):
            self.refuse_feature(_LONG_NUMBERS, "declare narrower bounds, or a smaller rows_per_unit")


def _is_strict(expr: Expr) -> bool:
    if isinstance(expr, Call):
        return expr.function.name in _STRICT and all(map(_is_strict, expr.arguments))
    return isinstance(expr, (Column, Literal))


def _iterate_joined(part: Relation) -> Iterator[Expr]:
    """Yield the sides of the equalities by which a relation is joined."""
    conditions: tuple[Expr | None, ...] = ()
    if isinstance(part, Join):
        yield from (side for pair in part.on for side in pair)
        conditions = (part.condition,)
    elif isinstance(part, SemiJoin):
        conditions = (part.on,)
    for condition in conditions:
        for called in () if condition is None else walk(condition):
            if isinstance(called, Call) and called.function.name == "eq":
                yield from called.arguments


def _compares_doubles(side: Expr) -> bool:
    """Return whether a side is DOUBLE; of a stored DECIMAL, there is one zero."""
    decimal = isinstance(side, Column) and side.facts.engine_type.startswith("DECIMAL(")
    return side.type is Type.DOUBLE and not decimal


def split_conjuncts(predicate: Expr) -> Iterator[Expr]:
    """Yield the conditions that a predicate joins by AND."""
    if isinstance(predicate, Call) and predicate.function.name == "and":
        for argument in predicate.arguments:
            yield from split_conjuncts(argument)
    else:
        yield predicate


def _has_frame_exclusion(window: WindowCall) -> bool:
    return OVER[window.function].depends_on_frame and window.frame is not None and window.frame.exclude != ""


@dataclass(frozen=True)
class ClickHouseFunctions(FunctionSyntax):
    """The functions of ClickHouse."""

    def emit_call_template(self, expr: Call) -> str:
        """Give conditions the type of booleans: those of comparisons are whole numbers."""
        template = FunctionSyntax.emit_call_template(self, expr)
        return f"CAST({template} AS Bool)" if expr.type is Type.BOOLEAN else template

    def emit_per_unit_aggregate(self, function: str, template: str, kind: Type | None) -> str:
        """Add whole numbers as wide ones, divide two DOUBLE for a mean, as in DuckDB, and count in a signed type.

        The sum of the points of DOUBLE is scaled as a DOUBLE.
        """
        each = "DISTINCT " * function.endswith("_distinct")
        added = f"SUM({each}CAST({{0}} AS {WIDE}))"
        match function:
            case "sum" | "sum_distinct":
                return emit_wide_double(added) if kind is Type.DOUBLE else added
            case "avg" | "avg_distinct":
                return f"({emit_wide_double(added)} / nullIf(CAST(COUNT({each}{{0}}) AS Float64), 0))"
            case "count" | "count_rows" | "count_distinct":
                return f"CAST({template} AS Int64)"
            case _:
                return template

    def emit_window_call(
        self, function: str, arguments: Sequence[str], over: str, *, ignore_nulls: bool
    ) -> str:
        """Ask for the first and the last value of all rows: by default, rows with NULL are left out."""
        chosen = " RESPECT NULLS" * (function in ("first_value", "last_value"))
        return f"{function}({', '.join(arguments)}){chosen}{over}"


def _emit_wide_constant(digits: str) -> str:
    return f"CAST('{digits}' AS {WIDE})"


@dataclass(frozen=True)
class ClickHouseIntegers(IntegerSyntax):
    """Int64 and Int128, both of which wrap. Counts have no sign, which other numbers have no common type with."""

    def to_wide_int(self, number: str, most: int | None = None) -> str:
        """Cast, also to 64 bits: a product of two small constants has their type, and wraps. A constant is read from its digits."""
        if fits_int64(most):
            return f"CAST({number} AS Int64)"
        known = number.removeprefix("-").isdigit()
        return _emit_wide_constant(number) if known else f"CAST({number} AS {WIDE})"

    def emit_threshold(self, number: int) -> str:
        """Read a constant of more than 64 bits from its digits: as a literal it would be a DOUBLE."""
        return str(number) if fits_int64(number) else _emit_wide_constant(str(number))

    def to_narrow_int(self, number: str, low: int, high: int) -> str:
        """Clamp, and cast what 64 bits hold."""
        if not fits_int64(low) or not fits_int64(high):
            return number
        return f"CAST(LEAST(GREATEST({number}, {low}), {high}) AS Int64)"

    def to_double(self, number: str) -> str:
        """Cast two halves."""
        return emit_wide_double(number)

    def cast_double_to_int(self, number: str, most: int) -> str:
        """Cast with the cast that gives NULL, which no such number is."""
        low, high = emit_constant(0.0), emit_constant(float(most))
        return f"accurateCastOrNull(LEAST(GREATEST({number}, {low}), {high}), 'Int64')"

    def emit_count(self, argument: str = "*") -> str:
        """Cast to a signed type: fewer than 2^63 rows are counted."""
        return f"CAST(COUNT({argument}) AS Int64)"

    def emit_exact_sum(self, points: str, most: int) -> str:
        """Add numbers of 128 bits. Those of 64 are added faster; the sum of 2^46 numbers below 2^17 has 63 bits."""
        if most < 2**_SMALL:
            return f"CAST(SUM(CAST({points} AS Int64)) AS {WIDE})"
        return f"SUM(CAST({points} AS {WIDE}))"

    def emit_integer_quotient(self, dividend: str, divisor: str, most: int | None = None) -> str:
        """Divide rounding toward zero; no divisor is 0, where it is not NULL."""
        return f"intDivOrNull({dividend}, {divisor})"

    def emit_right_shift(self, number: str, bits: int) -> str:
        """Call the function: there is no operator. The sign is kept."""
        return f"bitShiftRight({number}, {bits})"


@dataclass(frozen=True)
class ClickHousePoints(PointSyntax):
    """Lattice points by roundBankers, which rounds half to even, and a cast that gives NULL beyond 64 bits."""

    def emit_lattice_point(self, number: str, factor: float) -> str:
        """Round half to even; a product of DOUBLE cannot fail."""
        product = f"CAST({number} AS Float64) * {emit_constant(factor)}"
        return f"accurateCastOrNull(roundBankers({product}), 'Int64')"

    def emit_wide_lattice_point(self, number: str, factors: tuple[float, float]) -> str:
        """Cast two parts of 64 bits: a cast of a DOUBLE to 128 bits is not exact. The parts are whole and exact."""
        first, second, part, times = map(emit_constant, (*factors, 2.0**-40, 2.0**40))
        high = f"trunc(a * {part})"
        low = f"a - {high} * {times}"
        parts = (f"CAST(accurateCastOrNull({text}, 'Int64') AS {WIDE})" for text in (high, low))
        body = f" * {2**40} + ".join(parts)
        return bind_arguments(body, f"roundBankers({number} * {first} * {second})")

    def emit_scaled_double(self, number: str, factors: tuple[float, float]) -> str:
        """Multiply what `ClickHouseFunctions.emit_per_unit_aggregate` makes of points, which is a DOUBLE."""
        first, second = map(emit_constant, factors)
        return f"({number}) * {first} * {second}"

    def emit_day_number(self, day: str) -> str:
        """Divide microseconds, which are whole days."""
        return f"(intDiv(CAST({day} AS Int64) - {_FIRST}, {_TICKS_OF_DAY}) + 1)"

    def emit_epoch_microseconds(self, moment: str) -> str:
        """Read the number that a moment is."""
        return f"CAST({moment} AS Int64)"


@dataclass(frozen=True)
class ClickHouseHashes(HashSyntax):
    """SipHash and SHA-256, which are defined for every value. Rows have no ids: merges number them anew."""

    def emit_row_id(self, values: Sequence[str], table: int = 0) -> str:
        """Refuse: the number of a row changes when its part is merged with another."""
        refuse_query(
            f"not supported on ClickHouse: {_ROW_IDS}", "declare the column with the unit's id in the policy"
        )

    def emit_row_hash(self, unit: str) -> str:
        """Raise LookupError: rows have no ids, so nobody asks for it."""
        raise LookupError(unit)

    def emit_shuffle_key(self, values: Sequence[str]) -> str:
        """Hash a tuple, in which a NULL is hashed: of several arguments, a NULL would be the hash."""
        return f"sipHash64(tuple({', '.join(values)}))"

    def emit_sample_condition(self, unit: str, secret: str, below: int) -> str:
        """Compare digests, which are texts of 64 hexadecimal digits in lower case."""
        digest = f"lower(hex(SHA256(concat({emit_constant(secret)}, CAST({unit} AS String)))))"
        return f"{digest} < {emit_constant(f'{below:064x}')}"


@dataclass(frozen=True)
class ClickHouseQueries(QuerySyntax):
    """Tables with the database of those that the policy names without a schema."""

    database: str

    def quote_table_name(self, name: str) -> str:
        """Quote a declared table's name, always with its database: no temporary table hides it."""
        schema, table = split_table_name(name)
        return f"{quote_identifier(schema or self.database)}.{quote_identifier(table)}"

    def emit_all_true(self, condition: str) -> str:
        """Take the least: false is less than true."""
        return f"MIN({condition})"

    def emit_semi_join(self, left: str, right: str, *, anti: bool = False) -> str:
        """Look for the unit in a set; no unit is NULL."""
        return f"{left} WHERE unit_id {'NOT ' * anti}IN (SELECT unit_id FROM {right})"

    def emit_unpivot(
        self, query: str, keys: Sequence[str], rows: Sequence[Sequence[str]], names: Sequence[str]
    ) -> str:
        """Raise LookupError: many histograms are read in stages, so nobody asks for it."""
        raise LookupError(query, keys, rows, names)


@dataclass(frozen=True)
class ClickHouseLists(ListSyntax):
    """Arrays, whose elements are found by their places and mapped by lambdas. Columns of arrays are not read."""

    def emit_tuple_list_aggregate(self, items: Sequence[str], order: str) -> str:
        """Collect an array of arrays, which are in the order of their elements."""
        return f"arraySort(groupArray([{', '.join(items)}]) FILTER (WHERE {order} IS NOT NULL))"

    def emit_value_list_aggregate(self, value: str) -> str:
        """Collect an array without NULL; it has no element if there are no values."""
        return f"arraySort(groupArray({value}))"

    def emit_packed_window(self, keys: Sequence[str], rows: str, by: str, name: str) -> str:
        """Concatenate two arrays."""
        pair = f"[CAST(point AS {WIDE}), CAST(point_values AS {WIDE})]"
        first = f"[CAST(MIN(total_values) AS {WIDE}), CAST(MIN(values_before) AS {WIDE})]"
        packed = f"arrayConcat({first}, arrayFlatten(arraySort(groupArray({pair})))) AS {name}"
        return f"SELECT {', '.join([*keys, packed])} FROM {self.queries.emit_derived_table(rows)}{by} HAVING COUNT(*) > 0"

    def emit_evenly_spaced_elements(self, values: str, most: str) -> str:
        """Find elements by their places; `arrayJoin` makes no row of an array without elements."""
        place = f"1 + intDiv((2 * CAST(i AS Int64) + 1) * length({values}), 2 * GREATEST({most}, 1))"
        some = f"arrayMap(i -> {values}[{place}], range(CAST(GREATEST({most}, 1) AS UInt64)))"
        return f"arrayJoin(if(length({values}) <= {most}, {values}, {some}))"

    def emit_list_elements(self, table: str, listed: UnnestedList) -> str:
        """Refuse: no column is read as an array."""
        refuse_query(f"not supported on ClickHouse: {_LISTS}")


UNSUPPORTED = (
    _EXCLUDED_ROWS,
    _IGNORED_NULLS,
    _CORRELATED,
    _DOUBLE_KEYS,
    INTERPOLATED_QUANTILES,
    QUANTILES_OF_MANY_DIGITS,
    JOINS_TO_PUBLIC_GROUPS,
    _ROW_IDS,
    _LISTS,
    _LONG_NUMBERS,
    _ODD_NAMES,
    "times of day, UUID, FixedString, IPv4, IPv6, whole numbers of 256 bits, and DateTime64 of other digits than 3, 6 and 9",
    "columns with a DEFAULT, MATERIALIZED or ALIAS expression, which old rows are read through",
    "tables of other engines than MergeTree: views, dictionaries, Distributed, Merge and Buffer, tables of files and servers, and those whose rows are merged or replaced in the background, such as ReplacingMergeTree; and tables with a TTL",
)


def make_clickhouse_dialect(database: str = "default") -> Dialect:
    """Return the dialect of a session, whose tables without a schema are of this database."""
    queries = ClickHouseQueries(database)
    return Dialect(
        capabilities=Capabilities(
            materializes_ctes=True,
            ranks_all_groups=True,
            supports_ignore_nulls=False,
            supports_groups_frames=False,
        ),
        support=ClickHouseSupport("ClickHouse", UNSUPPORTED),
        values=VALUES,
        columns=COLUMNS,
        functions=ClickHouseFunctions(
            where="ClickHouse as it is in DuckDB",
            spellings=SPELLINGS,
            work_rules=WORK,
            approximate_functions=APPROXIMATE,
            numbered_row_aggregates=frozenset(
                {"quantile_cont", "quantile_disc", "median", "arg_min", "arg_max"}
            ),
        ),
        integers=ClickHouseIntegers(VALUES, wide=WIDE),
        points=ClickHousePoints(VALUES),
        hashes=ClickHouseHashes(VALUES),
        queries=queries,
        lists=ClickHouseLists(COLUMNS, queries),
    )
