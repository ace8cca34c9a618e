"""Lower WITH RECURSIVE over constants and public rows, such as calendars and series, to public rows.

Claim: the rows are public, the same on neighboring databases, and computed within a second before any charge.
Why: the first query reads constants and public tables alone, and the second one only the rows of the step before, of which each
gives at most one row. So the rows and the steps are bounded before the first step, by limits on the rows and on the work of a
statement. Texts are only copied, so that none grows. An engine without data computes the rows, and the emitted SQL holds the values.
Source: ISO/IEC 9075-2, <query expression> (recursion); Dwork, Roth 2014, Proposition 2.1 (post-processing).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NoReturn, cast

from sqlglot import exp

from dpsql.analysis.text_bounds import bound_row_work
from dpsql.backends import scratch_database
from dpsql.errors import BackendError
from dpsql.plan.expressions import Column, ColumnInfo, Expr, Literal, compute_expression_size
from dpsql.plan.interval import ANYWHERE, Interval
from dpsql.plan.nodes import OuterQuery, Output, Release, Values, is_private
from dpsql.plan.steps import list_required_steps
from dpsql.plan.tables import Scan
from dpsql.plan.types import Type, Value
from dpsql.policy import normalize_name
from dpsql.policy.names import quote_identifier
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.sql.lower.joins import lower_condition
from dpsql.sql.lower.scope import Scope, to_named_source
from dpsql.sql.lower.statement_context import CommonTable, StatementContext

MOST_CELLS = 30_000
"""The most values of the rows of one recursive table."""
MOST_ROWS = 10_000
MOST_WORK = 2**29
"""The most work on recursive tables for one statement, in nanoseconds or less: about half a second of DuckDB."""
MOST_SIZE = 500
"""The most operations of the second query."""
LONGEST_TEXT = 100
_WHOLE = Interval(-(2**31), 2**31 - 1)
"""The whole numbers of a recursive table, so that sums of them are whole, too."""
_STEP, _VALUE, _CALL = 20_000, 1_500, 100
"""The work of a step, of a value of it, and of an operation on one."""
_TYPES = frozenset({Type.INTEGER, Type.DATE, Type.TIMESTAMP, Type.BOOLEAN, Type.VARCHAR})
_EXAMPLE = (
    "write WITH RECURSIVE t(d) AS (SELECT DATE '2024-01-01' UNION ALL SELECT d + 1 FROM t WHERE d < DATE '2024-12-31') …; "
    "or FROM generate_series(DATE '2024-01-01', DATE '2024-12-31', INTERVAL 1 DAY) AS t(d)"
)
_FORM = frozenset({"expressions", "from_", "where"})


def names_table(query: exp.Expr, names: frozenset[str]) -> bool:
    """Return whether a query names a table without a schema that has one of these folded names."""
    return any(
        normalize_name(table.name) in names for table in query.find_all(exp.Table) if not table.args.get("db")
    )


@dataclass(frozen=True, slots=True)
class _RecursiveStep:
    """The second query: the values of a row by those of the row before, under a condition; `distinct` for UNION."""

    items: tuple[Expr, ...]
    condition: Expr | None
    distinct: bool


def lower_recursive_table(
    context: StatementContext, common: CommonTable, recursive_name: str, alias: str
) -> Values:
    """Return the rows of a recursive common table expression. Raises QueryRejected for those that may not end soon."""
    node = common.query
    while type(node) is exp.Subquery:
        (node,) = context.source.take_arguments(node, "this")
    if type(node) is not exp.Union:
        _refuse(
            context, node, "a recursive query must be the UNION ALL of its first rows and of the next ones"
        )
    first, next_, distinct = context.source.take_arguments(node, "this", "expression", "distinct")
    names = frozenset((recursive_name,))
    if names_table(first, names):
        _refuse(context, node, "the first query of a recursive query cannot read it")
    rows, columns = _read_first_rows(context, first, common.names, alias)
    box = Values(tuple(rows), alias, columns)
    step = _lower_step(context, next_, recursive_name, box, distinct=bool(distinct))
    return _with_facts(replace(box, rows=_compute_rows(context, node, box, step)))


def _refuse(context: StatementContext, node: exp.Expr, rule: str) -> NoReturn:
    context.source.refuse(node, "constant", rule, _EXAMPLE)


def _with_facts(box: Values) -> Values:
    """Return the rows with the fact which columns hold NULL; nothing else is known of them, as of other rows of constants."""
    columns = (
        replace(
            column, facts=ColumnInfo(column.type, "", nullable=any(row[place] is None for row in box.rows))
        )
        for place, column in enumerate(box.columns)
    )
    return replace(box, columns=tuple(columns))


def _read_first_rows(
    context: StatementContext, node: exp.Expr, names: Sequence[str], alias: str
) -> tuple[Sequence[tuple[Value, ...]], tuple[Column, ...]]:
    """Return the rows of the first query, and their columns."""
    inner = context.enter_subquery(node, context.common_tables, context.enclosing_scope)
    source = context.rename_columns(
        node, inner.lower_derived_query(inner, node, context.allocate_alias(node), ()), names
    )
    required = () if isinstance(source, Scan) else list_required_steps(source)
    if isinstance(source, Scan) or is_private(source) or any(isinstance(each, Release) for each in required):
        _refuse(context, node, "a recursive query may only read constants and public tables")
    for column in source.columns:
        if column.type not in _TYPES:
            _refuse(
                context,
                node,
                f"a recursive query has whole numbers, days, moments, truth values and texts, but no {column.type}",
            )
    if isinstance(source, Values):
        rows: Sequence[tuple[Value, ...]] = source.rows
    else:
        outputs = tuple(Output(column.name, column) for column in source.columns)
        rows = context.facts.read_rows(OuterQuery(source, outputs, limit=MOST_ROWS + 1))
    if len(rows) > MOST_ROWS:
        context.source.refuse(
            node, "too_long", f"a recursive query may have at most {MOST_ROWS:,} rows", "use fewer rows"
        )
    if any(isinstance(value, str) and len(value) > LONGEST_TEXT for row in rows for value in row):
        context.source.refuse(
            node, "too_long", f"texts of a recursive query may have at most {LONGEST_TEXT} characters"
        )
    columns = (
        Column(
            alias,
            column.name,
            ColumnInfo(column.type, "", _WHOLE if column.type is Type.INTEGER else ANYWHERE),
        )
        for column in source.columns
    )
    return rows, tuple(columns)


def _lower_step(
    context: StatementContext, node: exp.Expr, recursive_name: str, box: Values, *, distinct: bool
) -> _RecursiveStep:
    """Lower the second query over the rows of the step before."""
    while type(node) is exp.Subquery:
        (node,) = context.source.take_arguments(node, "this")
    origin = node.args.get("from_")
    table = origin.this if isinstance(origin, exp.From) else None
    plain = type(node) is exp.Select and {key for key, value in node.args.items() if value} <= _FORM
    plain = plain and node.find(exp.AggFunc, exp.Window, exp.Star) is None
    named = type(table) is exp.Table and normalize_name(table.name) == recursive_name
    if not plain or not named or sum(1 for _ in node.find_all(exp.Query)) > 1:
        _refuse(
            context,
            node,
            "the second query of a recursive query may only read the rows before, by SELECT and WHERE",
        )
    identifier, written = context.source.take_arguments(table, "this", "alias")
    context.source.take_arguments(identifier, "this", quoted=(True,))
    context.source.take_arguments(origin, "this")
    known_as = recursive_name
    if written is not None:
        (name,) = context.source.take_arguments(written, "this")
        known_as = normalize_name(str(context.source.take_arguments(name, "this", quoted=(True,))[0]))
    scope = Scope(context, tables={known_as: to_named_source(box)})
    items = tuple(scope.scalars.lower(_strip_alias(context, item)) for item in node.expressions)
    if len(items) != len(box.columns):
        context.source.refuse(
            node,
            "set_operation",
            f"both queries of a recursive query must have the same number of columns: {len(box.columns)} and {len(items)}",
        )
    for column, item, written_item in zip(box.columns, items, node.expressions, strict=True):
        _check_item(context, written_item, column, item)
    where = node.args.get("where")
    condition = (
        None if where is None else lower_condition(scope, *context.source.take_arguments(where, "this"))
    )
    size = sum(map(compute_expression_size, items)) + (
        0 if condition is None else compute_expression_size(condition)
    )
    if size > MOST_SIZE:
        context.source.refuse(
            node, "too_long", f"the second query of a recursive query may have at most {MOST_SIZE} operations"
        )
    return _RecursiveStep(items, condition, distinct)


def _strip_alias(context: StatementContext, item: exp.Expr) -> exp.Expr:
    """Return an item without its name, which the rows do not have."""
    if type(item) is not exp.Alias:
        return item
    value, name = context.source.take_arguments(item, "this", "alias")
    context.source.take_arguments(name, "this", quoted=(True,))
    return cast("exp.Expr", value)


def _check_item(context: StatementContext, node: exp.Expr, column: Column, item: Expr) -> None:
    """Refuse a value of another type than the first query's, and texts other than constants and copies."""
    copied = isinstance(item, Column) or (
        isinstance(item, Literal) and (not isinstance(item.value, str) or len(item.value) <= LONGEST_TEXT)
    )
    if column.type is Type.VARCHAR and not copied:
        _refuse(context, node, "a recursive query may copy texts, but compute none")
    days = (column.type, item.type) == (Type.DATE, Type.TIMESTAMP)
    if item.type is not column.type and item.type is not Type.NULL and not days:
        context.source.refuse(
            node,
            "type",
            f"the column {column.name} of a recursive query is {column.type} in its first rows and {item.type} in the next ones",
            "convert one of them with CAST",
        )


def _compute_rows(
    context: StatementContext, node: exp.Expr, box: Values, step: _RecursiveStep
) -> tuple[tuple[Value, ...], ...]:
    """Compute the rows of all steps."""
    if not box.rows:
        return ()
    exprs = [*step.items, *([] if step.condition is None else [step.condition])]
    size = sum(map(compute_expression_size, exprs))
    each = _VALUE * len(box.columns) + _CALL * size + bound_row_work(exprs, box)
    most_rows = min(MOST_ROWS, MOST_CELLS // len(box.columns))
    work = _STEP + len(box.rows) * each
    steps = min(most_rows // len(box.rows), (MOST_WORK - context.source_counter.recursion_work) // work)
    found: list[tuple[Value, ...]] | None = None
    with suppress(BackendError):  # of arithmetic with numbers that have grown too large
        found = _run_steps(box, step, steps) if steps > 0 else None
    kinds = [column.type for column in box.columns]
    if found is not None and not all(
        _fits(value, kind) for row in found for value, kind in zip(row, kinds, strict=True)
    ):
        found = None
    if found is None:
        context.source.refuse(
            node,
            "too_long",
            f"this recursive query would have more than {most_rows:,} rows, numbers or days out of range, or too many steps",
            "end it sooner by its WHERE: WHERE n < 100",
        )
    context.source_counter.recursion_work += work * (len(found) // len(box.rows) + 1)
    return tuple(found)


def _fits(value: Value, kind: Type) -> bool:
    """Return whether a value is within the limits of whole numbers, or a day that Python's calendar has."""
    low, high = _WHOLE.low, _WHOLE.high
    if value is None or low is None or high is None:
        return value is None
    if kind is Type.INTEGER:
        return isinstance(value, int) and low <= value <= high
    return isinstance(value, dt.date) if kind.temporal else True


def _run_steps(box: Values, step: _RecursiveStep, steps: int) -> list[tuple[Value, ...]] | None:
    """Return the rows of at most `steps` steps after the first rows; None where more steps follow."""
    found = scratch_database.query_constant_rows(_emit_steps(box, step, steps))
    if not step.distinct:
        return None if found and found[-1][-1] == steps else [row[:-1] for row in found]
    unique = dict[tuple[Value, ...], int]()
    for *row, number in found:
        unique.setdefault(tuple(row), number)
    # Rows that were there before give no new ones, so that a last step of such rows ends the recursion.
    return None if any(number == steps for number in unique.values()) else list(unique)


def _emit_steps(box: Values, step: _RecursiveStep, steps: int) -> str:
    """Return the recursive statement, which counts its steps and ends with the last one."""
    emit, name = DUCKDB_COMPILER, quote_identifier(box.alias)
    columns = [quote_identifier(column.name) for column in box.columns]
    rows = ", ".join(
        "("
        + ", ".join(
            emit.emit_cast("NULL" if value is None else emit.emit_constant(value), column.type)
            for value, column in zip(row, box.columns, strict=True)
        )
        + ", 0)"
        for row in box.rows
    )
    items = [
        emit.emit_cast(emit.emit_expression(item), column.type)
        for item, column in zip(step.items, box.columns, strict=True)
    ]
    condition = "TRUE" if step.condition is None else emit.emit_expression(step.condition)
    return (
        f'WITH RECURSIVE "#rows"({", ".join([*columns, chr(34) + "#step" + chr(34)])}) AS (VALUES {rows} UNION ALL '
        f'SELECT {", ".join(items)}, "#step" + 1 FROM "#rows" AS {name} WHERE "#step" < {steps} AND ({condition})) '
        f'SELECT {", ".join(columns)}, "#step" FROM "#rows" ORDER BY "#step"'
    )
