"""Foreign keys between tables: those that lead to the column with the privacy unit's id, and further ones."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.policy.names import NameMap, is_row, normalize_name
from dpsql.policy.problem import Problem, suggest_choice
from dpsql.policy.tables import Link, Table

_MOST_SHOWN = 10


def find_link_problem(
    name: str, link: Link, tables: NameMap[Table | None], cycles: Mapping[str, str]
) -> Problem | None:
    """Return the problem of a link of table `name`, or None.

    `cycles` is what `describe_link_cycles` gives of links that lead to the unit. Nothing is said of links to a table that
    is None, which is wrong itself.
    """
    if link.table not in tables:
        hint = suggest_choice(link.table, tables)
        return Problem((), "dangling_link", f"the policy declares no table {link.table}", hint)
    target = tables[link.table]
    if target is None:
        return None
    if target.public:
        hint = "link to a private table"
        words = f"{link.table} is public, so its rows do not belong to a privacy unit"
        return Problem((), "public_link", words, hint)
    if is_row(target.unit):
        hint = f"in {link.table} write `unit: {link.keys[0]}` and `rows_per_unit: 1`"
        words = f"{link.table} has `unit: row`, so it has no id of a privacy unit to link to"
        return Problem((), "row_link", words, hint)
    if normalize_name(name) in cycles:
        words = f"the links form a cycle and never reach a unit: {cycles[normalize_name(name)]}"
        return Problem((), "link_cycle", words, "give one of these tables a `unit` instead of a link")
    for key in link.keys:
        if not _has_column(target, key):
            hint = suggest_choice(key, [target.unit or "", *target.columns]) or f"declare it in {link.table}"
            return Problem((), "dangling_link", f"the table {link.table} declares no column {key}", hint)
    return None


def _has_column(table: Table, column: str) -> bool:
    own = {normalize_name(name) for link in table.all_links for name in link.names}
    own |= set() if table.unit is None else {normalize_name(table.unit)}
    return column in table.columns or normalize_name(column) in own


def describe_link_cycles(tables: NameMap[Table | None]) -> dict[str, str]:
    """Return each table (by folded name) on a circle of links, with that circle in words: `a → b → a`."""
    target = {
        normalize_name(name): normalize_name(table.unit_link.table)
        for name, table in tables.items()
        if table is not None and table.unit_link is not None
    }
    spelling = {normalize_name(name): name for name in tables}
    circles: dict[str, str] = {}
    done: set[str] = set()
    for start in target:
        trail: dict[str, None] = {}
        here = start
        while here in target and here not in done and here not in trail:
            trail[here] = None
            here = target[here]
        if here in trail:
            members = [*trail][[*trail].index(here) :]
            listed = [spelling[member] for member in (*members, here)]
            circles |= dict.fromkeys(
                members, " → ".join(listed[:_MOST_SHOWN] + ["…"] * (len(listed) > _MOST_SHOWN))
            )
        done |= trail.keys()
    return circles
