"""The constraints between tables of a policy, and between a table and the policy's budget.

The functions take what could be read, even of a policy that is wrong elsewhere, so that one error can
list every problem of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

from dpsql.policy.fields import CONVERTING
from dpsql.policy.links import describe_link_cycles, find_link_problem
from dpsql.policy.names import NameMap
from dpsql.policy.problem import KeyPath, Problem
from dpsql.policy.tables import BudgetSpec, Link, Table


def list_policy_problems(budget: BudgetSpec | None, tables: Mapping[str, Table | None]) -> list[Problem]:
    """Return the problems between tables, and between a table and the policy's budget.

    None stands for a budget or table that is wrong itself: nothing is said about it.
    """
    known = NameMap(tables)
    circles = describe_link_cycles(known)
    problems: list[Problem] = []
    for name, table in tables.items():
        if table is None:
            continue
        if budget is not None and not table.public:
            problems += [
                found.with_parents("tables", name) for found in _iterate_budget_problems(budget, table)
            ]
        for place, link in _iterate_links(table):
            found = find_link_problem(name, link, known, circles if link is table.unit_link else {})
            problems += [found.with_parents("tables", name, *place, "references")] if found else []
    return problems


def _iterate_links(table: Table) -> Iterator[tuple[KeyPath, Link]]:
    """Yield each link with the key at which it is written."""
    if table.link is not None:
        yield ("link",), table.link
    for place, link in enumerate(table.links):
        yield ("links", place), link


def list_cap_problems(least: Fraction, most: Fraction | None, default: Fraction | None) -> list[Problem]:
    """Return the problems between the least, the most and the default epsilon of one query."""
    if most is not None and least > most:
        words = f"max_epsilon {float(most):g} is below min_epsilon {float(least):g}"
        return [Problem(("max_epsilon",), "epsilon_order", words, "raise max_epsilon or lower min_epsilon")]
    if default is None or (least <= default and (most is None or default <= most)):
        return []
    allowed = f"at least {float(least):g}" + (f" and at most {float(most):g}" if most is not None else "")
    words = f"must be {allowed}, not {float(default):g}"
    hint = "choose a value between min_epsilon and max_epsilon"
    return [Problem(("default_epsilon",), "epsilon_order", words, hint)]


def _iterate_budget_problems(default: BudgetSpec, table: Table) -> Iterator[Problem]:
    own = table.budget
    delta = default.delta if own is None or own.delta is None else own.delta
    accountant = default.accountant if own is None or own.accountant is None else own.accountant
    if accountant in CONVERTING and not delta:
        hint = "write a small delta such as 1e-7, or `accountant: pure`"
        yield Problem(("budget",), "delta_required", f"accountant {accountant} needs a delta above 0", hint)
    if table.min_frequency > 1 and not delta:
        hint = "give the table's budget a small delta such as 1e-7, or delete min_frequency"
        words = "needs a budget with a delta above 0: with delta 0 no group with an unknown key is ever shown"
        yield Problem(("min_frequency",), "delta_required", words, hint)
