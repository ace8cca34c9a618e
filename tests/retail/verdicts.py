"""What becomes of the statements that are not simply answered, and in what an answer is unlike DuckDB's own."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from .workload import STATEMENTS, Statement

PUBLIC = frozenset({"stores-28", "stores-29", "stores-30", "stores-31", "channels-31"})
"""What reads nothing private: exact and free."""
GUARANTEED: Mapping[str, str] = {
    "dashboards-64": "star",
    "dashboards-65": "group_by_unit",
    "stores-21": "group_by",
    "stores-39": "group_by_unit",
}
"""What asks for single rows or single customers, with the codes of the refusals."""
OPEN: Mapping[str, str] = {"channels-41": "hidden_groups"}
"""What could be answered, and is refused with a way round it."""
EMPTY = frozenset({"channels-25", "dashboards-16", "dashboards-17", "dashboards-18", "dashboards-46"})
"""Answers with groups, or a sum, of nobody: whether anybody is there stays unknown."""
WITHHELD = frozenset(
    {"channels-7", "channels-16", "channels-28", "channels-32", "channels-34", "dashboards-15"}
)
"""Answers without groups that hold too few customers to be shown."""
DECIDED = frozenset(
    {
        *("channels-1", "channels-11", "channels-15", "stores-32"),
        *("channels-18", "channels-35", "dashboards-11", "dashboards-13", "dashboards-14", "dashboards-21"),
        *("dashboards-25", "dashboards-58", "stores-17", "stores-19", "stores-23", "stores-35"),
        *("channels-26", "channels-45", "stores-15", "stores-37", "dashboards-63", "dashboards-73"),
    }
)
"""Answers in which a noisy value, a tie that DuckDB breaks at random, or LIMIT among groups of nobody decides which rows there are."""


def key(statement: Statement) -> str:
    """The theme and number of a statement."""
    return f"{statement.theme}-{statement.number}"


def verdict(statement: Statement) -> str:
    """What becomes of a statement, in a few words."""
    named = key(statement)
    if named in PUBLIC:
        return "public"
    code = {**GUARANTEED, **OPEN}.get(named)
    if code is not None:
        return f"refused: `{code}`" + ", as it asks for single customers" * (named in GUARANTEED)
    return (
        "answered"
        + ", rare groups withheld" * (named in WITHHELD)
        + ", with groups of nobody" * (named in EMPTY)
    )


def markdown() -> str:
    """The page that lists all of them."""
    kinds = [verdict(statement) for statement in STATEMENTS]
    answered = sum(kind.startswith(("answered", "public")) for kind in kinds)
    lines = [
        "# A retail workload",
        f"{len(kinds)} queries in the manner of decision-support benchmarks and dashboards, over a retailer's {TABLES} tables: sales and",
        "returns of three channels, days, items, stores, promotions, demographics, page views. Each customer is protected. The",
        "tables and the policy are in `tests/retail/study.py`, the queries in `tests/retail/queries`; `tests/retail` holds each",
        "verdict, and that what is answered is DuckDB's answer but for the noise. This page is written by",
        "`python -m tests.retail.verdicts`.",
        "",
        f"Answered or public: {answered}. Refused because they ask for single customers: {len(GUARANTEED)}. Refused, with a way round",
        f"it: {len(OPEN)}.",
        "",
        "| query | verdict |",
        "|---|---|",
        *(
            f"| {statement.theme} {statement.number}: {statement.name.replace('_', ' ')} | {kind} |"
            for statement, kind in zip(STATEMENTS, kinds, strict=True)
        ),
    ]
    return "\n".join(lines) + "\n"


TABLES = 23
"""How many tables there are."""

if __name__ == "__main__":
    sys.stdout.write(markdown())
