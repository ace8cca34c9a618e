"""Constraints between several keys of a policy.

The functions take what could be read, even of a policy that is wrong elsewhere, so that one error can
list every problem of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.policy.fields import CONVERTING
from dpsql.policy.links import is_row, link_circles, link_problem
from dpsql.policy.names import NameMap, declared
from dpsql.policy.problem import Problem, did_you_mean

if TYPE_CHECKING:
    from dpsql.policy.models import BudgetSpec, Table

_OF_PRIVATE = (
    "unit",
    "link",
    "rows_per_unit",
    "partition",
    "max_groups",
    "max_epsilon",
    "min_frequency",
    "budget",
)
_ROWS_PER_UNIT = "the most rows of one privacy unit that count (the engine leaves out the rest), such as 20"


def table_problems(given: Mapping[str, object]) -> list[Problem]:
    """The problems between the keys of one table; `given` holds its keys as written or as read."""
    public = given.get("public", False)
    if public is True:
        words = "has no meaning in a public table, which protects nobody"
        return [
            Problem((key,), "public_table", words, "delete this key, or `public`")
            for key in given
            if key in _OF_PRIVATE
        ]
    problems = _unit_problems(given) if public is False else []
    columns = given.get("columns", {})
    if isinstance(columns, Mapping):
        problems += _partition_problems(given.get("partition"), [*map(str, columns)])
    return problems


def _partition_problems(partition: object, columns: Sequence[str]) -> Iterator[Problem]:
    listed = isinstance(partition, (list, tuple))
    names: Sequence[object] = partition if isinstance(partition, (list, tuple)) else [partition]
    for place, name in enumerate(names):
        if isinstance(name, str) and declared(name, columns) is None:
            words = f"no column {name} is declared in this table"
            hint = did_you_mean(name, columns) or "declare it under columns"
            yield Problem(("partition", place) if listed else ("partition",), "unknown_column", words, hint)


def _unit_problems(given: Mapping[str, object]) -> list[Problem]:
    unit, rows = given.get("unit"), given.get("rows_per_unit")
    if "unit" in given and "link" in given:
        return [
            Problem(
                ("link",), "unit_and_link", "a table has a unit or a link, not both", "delete one of them"
            )
        ]
    if "unit" not in given and "link" not in given:
        hint = (
            "write one of `unit: <column>`, `unit: row`, `link: {column: …, references: …}`, `public: true`"
        )
        return [Problem((), "no_unit", "does not say whom its rows belong to", hint)]
    if not is_row(unit):
        if "rows_per_unit" in given:
            return []
        return [Problem(("rows_per_unit",), "missing_key", "is missing", f"write {_ROWS_PER_UNIT}")]
    problems = []
    if isinstance(rows, int) and rows != 1:
        hint = "delete the key, or name the column that holds the unit's id as `unit`"
        problems.append(
            Problem(("rows_per_unit",), "rows_of_row", f"a unit that is a row has 1 row, not {rows}", hint)
        )
    columns = given.get("columns")
    if isinstance(columns, Mapping) and declared("row", map(str, columns)):
        words = "`row` means that each row is a unit, but the table also declares a column of that name"
        problems.append(Problem(("unit",), "ambiguous_unit", words, "rename the column through a view"))
    return problems


def policy_problems(budget: BudgetSpec | None, tables: Mapping[str, Table | None]) -> list[Problem]:
    """The problems between tables, and between a table and the policy's budget.

    None stands for a budget or table that is wrong itself: nothing is said about it.
    """
    known = NameMap(tables)
    circles = link_circles(known)
    problems: list[Problem] = []
    for name, table in tables.items():
        if table is None:
            continue
        if budget is not None and not table.public:
            problems += [found.below("tables", name) for found in _budget_problems(budget, table)]
        if table.link is not None:
            where = ("tables", name, "link", "references")
            found = link_problem(name, table.link, known, circles)
            problems += [found.below(*where)] if found else []
    return problems


def cap_problems(least: Fraction, most: Fraction | None) -> list[Problem]:
    """The problems between the least and the most epsilon of one query."""
    if most is None or least <= most:
        return []
    words = f"no query can ask for at least {float(least):g} and at most {float(most):g}"
    return [Problem(("max_epsilon",), "epsilon_order", words, "write a smaller min_epsilon")]


def _budget_problems(default: BudgetSpec, table: Table) -> Iterator[Problem]:
    own = table.budget
    delta = default.delta if own is None or own.delta is None else own.delta
    accountant = default.accountant if own is None or own.accountant is None else own.accountant
    if accountant in CONVERTING and not delta:
        hint = "write a small delta such as 1e-7, or `accountant: pure`"
        yield Problem(("budget",), "delta_required", f"accountant {accountant} needs a delta above 0", hint)
    if table.min_frequency > 1 and not delta:
        hint = "give the table's budget a small delta such as 1e-7, or delete min_frequency"
        words = "needs a budget with a delta above 0: with delta 0 no unknown group is ever shown"
        yield Problem(("min_frequency",), "delta_required", words, hint)
