"""Conditions of a scan: the sample of units, partition filters, and conditions on stored columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from dpsql.analysis.number_types import find_decimal_digits
from dpsql.analysis.public_tables import iterate_filter_conditions
from dpsql.plan.expressions import Call, Column, ColumnInfo, Expr, Literal
from dpsql.plan.interval import find_position
from dpsql.plan.nodes import Filter, Join, JoinKind, Relation, SemiJoin
from dpsql.plan.tables import PartitionFilter, Scan, UnitKind
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import Compiler

# The condition that the unit of a row is in the Poisson sample of its release.


def compute_sampling_threshold(rate: Fraction) -> int:
    """Return how many of the 2^256 digests are of units in the sample: the rate, rounded down.

    >>> compute_sampling_threshold(Fraction(1, 4)) == 2**254, compute_sampling_threshold(Fraction(1, 3)) * 3 < 2**256
    (True, True)
    """
    return int(rate * 2**256)


def emit_sample_condition(compiler: Compiler, unit: str, rate: Fraction) -> str:
    """Return the condition that a unit is in the sample.

    Claim: each unit is in the sample with probability at most `rate`, independently of all others, and the same in every query of
    one release; who does not know the secret cannot tell who is.
    Why: a unit is in the sample if SHA-256 of a fresh secret of 128 bits and the unit's id is below floor(rate * 2^256). The secret
    is of one length, so that no two ids are hashed alike. With a secret key, SHA-256 is taken for a pseudo-random function: its
    values at distinct ids are like independent uniform numbers to whoever cannot search through 2^128 secrets. The secret is drawn
    for one release from the operating system, stands in the SQL of that release alone, and is then forgotten.
    Source: Goldreich, Goldwasser, Micali 1986, "How to construct random functions"; FIPS 180-4, section 6.2.
    """
    return compiler.dialect.hashes.emit_sample_condition(
        unit, compiler.secret, compute_sampling_threshold(rate)
    )


# Emit partition filters: the conditions that limit a scan to the partitions that are charged.


def emit_partition_conditions(compiler: Compiler, scan: Scan, unit: str, source: str) -> Iterator[str]:
    """Yield the conditions on the rows of a scan, whose ids are in `unit` of the FROM text `source`.

    Claim: a scan with these conditions reads no row outside its ranges, and no row of a unit whose rows in the table differ in a
    partition column. So each unit is in one partition, or is not read. The same holds for a partition column of another table: a
    unit without rows there, or with several values, is not read.
    Why: the ranges are compared with the sanitized value that all expressions read. The values of a unit are counted over all its
    rows in the column's table, before any condition of the query. Both depend on rows of the unit only, whose identifiers are the
    same in all tables.
    Source: McSherry 2009, "Privacy integrated queries", Theorem 4 (parts are disjoint sets of units).
    """
    own = [item for item in scan.partition_filters if item.source is None]
    for item in own:
        yield _emit_range_condition(compiler, item)
    if own and scan.unit.kind is UnitKind.COLUMN:
        yield f"{unit} IN ({_emit_unit_query(unit, source, (_emit_single_value_condition(compiler, item) for item in own))})"
    for partition_source in dict.fromkeys(
        item.source for item in scan.partition_filters if item.source is not None
    ):
        filters = [item for item in scan.partition_filters if item.source == partition_source]
        conditions = (
            text
            for item in filters
            for text in (
                _emit_single_value_condition(compiler, item),
                compiler.dialect.queries.emit_all_true(_emit_range_condition(compiler, item)),
            )
        )
        yield f"{unit} IN ({_emit_unit_query(compiler.dialect.columns.emit_unit_id(partition_source.unit), compiler.dialect.queries.quote_table_name(partition_source.table), conditions)})"


def _emit_unit_query(unit: str, source: str, conditions: Iterable[str]) -> str:
    """Return the units for which all conditions are true."""
    return f"SELECT {unit} FROM {source} GROUP BY {unit} HAVING {' AND '.join(conditions)}"


def _emit_range_condition(compiler: Compiler, item: PartitionFilter) -> str:
    read = compiler.dialect.columns.emit_bounded_column(item.column)
    ranges = " OR ".join(
        f"{read} BETWEEN {compiler.emit_constant(low)} AND {compiler.emit_constant(high)}"
        for low, high in item.ranges
    )
    return f"({ranges})"


def _emit_single_value_condition(compiler: Compiler, item: PartitionFilter) -> str:
    """Return all rows of a unit have one value, which is not NULL."""
    read = compiler.dialect.columns.emit_bounded_column(item.column)
    return f"COUNT(DISTINCT {read}) = 1 AND COUNT({read}) = COUNT(*)"


# Emit conditions on clamped columns as conditions on stored values, in the scan of the table.


_OPERATORS = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_FLIPPED = {"eq": "eq", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_READ_AS_STORED = {
    Type.INTEGER: ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"),
    Type.DOUBLE: ("FLOAT", "DOUBLE", "DECIMAL("),
    Type.DATE: ("DATE",),
    Type.TIMESTAMP: ("TIMESTAMP",),
}
"""The engine types whose values map to values of the plan type in the same order."""
_MOST_EXACT = 2**53
"""DOUBLE represents every whole number up to here."""
_MOST_DIGITS = 15


@dataclass(frozen=True, slots=True)
class StoredConditions:
    """The conditions on the rows of scans, by alias, and the conditions of the query that they replace."""

    scan_conditions: tuple[tuple[str, str], ...] = ()
    replaced_conditions: frozenset[Expr] = frozenset()


def emit_stored_conditions(compiler: Compiler, relation: Relation, *, units: bool) -> StoredConditions:
    """Return the conditions of a block that are emitted in scans, of which `units` needs ids.

    None is where rows are numbered: what a row's id is made of are the columns that are read, on some engines.

    Claim: the same rows are left as by the conditions on clamped columns, which some of them stand for and others stand before.
    Why: a clamp moves a value from beyond a bound to the bound, and no other. A constant between the bounds is on the same side of
    a bound and of what lies beyond it, and equals neither. NULL fulfils no condition, and NaN none that asks for no value above
    infinity, as neither do clamped. Of two columns with the same bounds, a clamp keeps the order: the lesser one when clamped is
    the lesser one. Rows that a table's scan leaves out are those that the query's WHERE would, where no outer join could bring them
    back. An engine looks such conditions up in indexes, partitions and the statistics of files, which it does not do for a CASE.
    Source: Graefe 1993, "Query evaluation techniques for large databases", section 2 (selection is done with access paths).
    """
    scans = {
        scan.alias for scan in _iterate_kept_scans(relation) if not (units and scan.unit.kind is UnitKind.ROW)
    }
    written, replaced = list[tuple[str, str]](), set[Expr]()
    for condition in dict.fromkeys(iterate_filter_conditions(relation)):
        same, implied = (
            _emit_equivalent_condition(compiler, condition),
            _emit_implied_condition(compiler, condition)
            if compiler.dialect.capabilities.short_circuits
            else None,
        )
        column, text = same or implied or (None, "")
        if column is not None and column.source in scans:
            written.append((column.source, text))
            replaced |= {condition} if same else set()
    return StoredConditions(tuple(written), frozenset(replaced))


def split_conjuncts(predicate: Expr) -> Iterator[Expr]:
    """Yield the conditions that a predicate joins by AND."""
    if isinstance(predicate, Call) and predicate.function.name == "and":
        for argument in predicate.arguments:
            yield from split_conjuncts(argument)
    else:
        yield predicate


def _iterate_kept_scans(relation: Relation) -> Iterator[Scan]:
    """Yield the tables of a block whose rows no outer join pads with NULL."""
    match relation:
        case Scan():
            yield relation
        case Filter() | SemiJoin():
            yield from _iterate_kept_scans(relation.input)
        case Join():
            yield from _iterate_kept_scans(relation.left)
            if relation.kind is JoinKind.INNER and isinstance(relation.right, Scan):
                yield relation.right


def _emit_equivalent_condition(compiler: Compiler, condition: Expr) -> tuple[Column, str] | None:
    """Return the column that a condition compares with constants, and the condition on its stored values."""
    if not isinstance(condition, Call):
        return None
    name, (first, *others) = condition.function.name, condition.arguments
    if name in _FLIPPED and isinstance(first, Literal):
        name, first, others = _FLIPPED[name], others[0], [first]
    if not isinstance(first, Column) or not all(_is_between_bounds(first.facts, other) for other in others):
        return None
    decimals = _emit_decimals(first, others)
    verbatim = decimals is not None or first.type is Type.INTEGER  # an index is of what is stored
    read = (
        compiler.dialect.columns.emit_stored_column(first)
        if verbatim
        else compiler.dialect.columns.emit_widened_column(first)
    )
    constants = decimals or list(map(compiler.emit_expression, others))
    if name == "in":
        return first, compiler.dialect.columns.emit_membership(read, constants, first.type)
    if name not in _OPERATORS:
        return None
    text = f"{read} {_OPERATORS[name]} {constants[0]}"
    if first.type is Type.DOUBLE and decimals is None and name in ("gt", "ge"):  # which are true of NaN
        text += f" AND {read} <= {compiler.dialect.values.emit_constant(math.inf)}"
    return first, text


def _emit_decimals(column: Column, others: Iterable[Expr]) -> list[str] | None:
    """Return the decimals that a DECIMAL can be compared with instead of DOUBLE; None if the result could differ."""
    values = [other.value if isinstance(other, Literal) else None for other in others]
    numbers = [value for value in values if isinstance(value, (int, float))]
    return emit_stored_decimals(column, numbers) if len(numbers) == len(values) else None


def emit_stored_decimals(column: Column, values: Iterable[float]) -> list[str] | None:
    """Return numbers as decimals of the column's type that compare in the same way; None if there are none.

    Of at most 15 digits, each has a DOUBLE of its own, and these are in the same order.
    """
    digits = find_decimal_digits(column)
    if digits is None or digits[0] > _MOST_DIGITS:
        return None
    found = list[str]()
    for value in values:
        units = round(Fraction(value) * 10 ** digits[1])
        near = Decimal(units).scaleb(-digits[1])
        if abs(units) >= 10**_MOST_DIGITS or float(near) != value:
            return None
        found.append(f"({near:f})")
    return found


def _emit_implied_condition(compiler: Compiler, condition: Expr) -> tuple[Column, str] | None:
    """Return a column that is compared with another of its table with the same bounds, and the condition on their stored values."""
    match condition:
        case Call(arguments=(Column() as first, Column() as second)) if condition.function.name in (
            "lt",
            "gt",
        ):
            alike = first.source == second.source and first.type is second.type
            if alike and _find_stored_bounds(first.facts) == _find_stored_bounds(second.facts) is not None:
                read, other = map(compiler.dialect.columns.emit_widened_column, (first, second))
                return first, f"{read} {_OPERATORS[condition.function.name]} {other}"
    return None


def _is_between_bounds(facts: ColumnInfo, other: Expr) -> bool:
    """Return whether an expression is a constant that lies between the bounds that a column's values are clamped to."""
    ends = _find_stored_bounds(facts)
    if ends is None or not isinstance(other, Literal) or isinstance(other.value, bool):
        return False
    at = find_position(other.value)
    alike = other.type is facts.type or (
        (facts.type, other.type) == (Type.DOUBLE, Type.INTEGER) and at is not None and abs(at) <= _MOST_EXACT
    )
    return alike and at is not None and ends[0] < at < ends[1]


def _find_stored_bounds(facts: ColumnInfo) -> list[Fraction] | None:
    """Return the bounds to which a column is clamped, if its stored values are read; None otherwise."""
    known = facts.engine_type.startswith(_READ_AS_STORED.get(facts.type, ()))
    if not known or facts.has_time_zone or facts.domain is not None or not facts.interval.is_bounded:
        return None
    rounded = (lambda end: Fraction(float(end))) if facts.type is Type.DOUBLE else math.floor
    return [Fraction(rounded(end)) for end in facts.interval.ends]
