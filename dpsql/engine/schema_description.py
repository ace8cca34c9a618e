"""Describe an analyst's schema: tables, columns, bounds, public values and rules, from the policy and the schema alone."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from dpsql.backends.analyst_schema import AnalystSchema, AnalystTable
from dpsql.plan.expressions import ColumnInfo
from dpsql.policy import Column, Policy, normalize_name
from dpsql.results.description import ColumnDescription, Description, TableDescription


def describe_schema(policy: Policy, schema: AnalystSchema) -> Description:
    """Return the description of an analyst's schema. Nothing in it depends on private rows."""
    tables = tuple(_describe_table(found, policy) for found in schema.tables.values())
    return Description(policy.privacy_unit, tables)


def format_bounds(column: Column | None) -> tuple[str, ...]:
    """Return the ends of a column's bounds, as texts."""
    return () if column is None or column.bounds is None else tuple(map(_format_bound, column.bounds))


def format_values(column: Column | None) -> tuple[str, ...]:
    """Return the public values of a column, as texts."""
    known = () if column is None or column.bounds is not None or column.values is None else column.values
    return tuple(map(str, known))


def _describe_table(found: AnalystTable, policy: Policy) -> TableDescription:
    declared = policy.tables[found.name].columns
    columns = tuple(
        ColumnDescription(
            spelt,
            facts.type.name.lower(),
            format_bounds(declared.get(spelt)),
            format_values(declared.get(spelt)),
            tuple(_describe_column(spelt, facts, found)),
        )
        for spelt, facts in found.columns.values()
    )
    return TableDescription(
        found.name,
        found.is_private,
        _describe_unit(found, policy),
        columns,
        tuple(_describe_rules(found, policy)),
    )


def describe_protection(policy: Policy, found: AnalystTable) -> str:
    """Return whom a table protects and where the unit of a row is found: the comment of the table in a database's catalog."""
    if not found.is_private:
        return "public"
    unit, place = policy.privacy_unit, policy.describe_unit(found.name)
    match policy.get_unit(found.name).kind:
        case "row":
            return f"private: it protects each {unit}; each row is one"
        case "column":
            return f"private: it protects each {unit}; the unit column is {place}"
        case "indirect":
            return f"private: it protects each {unit}, found {place}"


def _describe_unit(found: AnalystTable, policy: Policy) -> str:
    """Return the privacy unit of a table's rows, in the policy's words."""
    if not found.is_private:
        return ""
    return f"{policy.privacy_unit}: {policy.describe_unit(found.name)}"


def _format_bound(bound: object) -> str:
    if isinstance(bound, Fraction):
        return str(bound.numerator) if bound.denominator == 1 else f"{float(bound):.6g}"
    return str(bound)


def _describe_column(name: str, facts: ColumnInfo, found: AnalystTable) -> Iterator[str]:
    if facts.is_unit:
        yield "privacy unit"
    if found.contribution is not None and normalize_name(name) in found.contribution.constant:
        yield "one value per unit"
    if found.is_private and not facts.nullable:
        yield "never NULL"


def _describe_rules(found: AnalystTable, policy: Policy) -> Iterator[str]:
    """Return the rules of a table: its bounds on the contribution of one unit, and its budget."""
    if not found.is_private or found.contribution is None:
        return
    declared, budget = policy.tables[found.name], policy.get_budget(found.name)
    if found.unit_column is not None:
        yield f"at most {declared.rows_per_unit:,} rows per {policy.privacy_unit} are counted"
        if all(
            facts.nullable
            for name, facts in found.columns.values()
            if normalize_name(name) == normalize_name(found.unit_column)
        ):
            yield f"rows whose {found.unit_column} is NULL belong to no privacy unit and are not read"
    if declared.max_groups is not None:
        yield f"in at most {declared.max_groups:,} groups per query"
    if declared.min_frequency > 1:
        yield f"a group or a value is shown only if at least {declared.min_frequency:,} units are behind it, by noisy counts"
    yield (
        f"budget{' of all tables together' if budget.shared else ''}: ε {float(budget.epsilon):g}, δ {float(budget.delta):g}, accountant {budget.accountant}; "
        f"neighbors: {policy.neighbors}"
    )
