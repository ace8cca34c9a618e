"""Where the rows of a table or view come from, by the plan that DuckDB binds for it.

Claim: every stored table that a view reads, through other views, macros, subqueries and names of any
spelling, is in its `TableOrigin`, and so is every operator that may read anything else.
Why: the plan is the engine's own, taken before an optimiser could leave a scan out; an operator that is
not known to read nothing is taken to read something.
Source: DuckDB's documentation, "EXPLAIN" (explain_output).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from dpsql.backends.base import TableOrigin

READS_NOTHING = frozenset(
    {
        *("PROJECTION", "FILTER", "AGGREGATE", "WINDOW", "DISTINCT", "SAMPLE", "LIMIT", "ORDER_BY", "TOP_N"),
        *("COMPARISON_JOIN", "ANY_JOIN", "ASOF_JOIN", "POSITIONAL_JOIN", "CROSS_PRODUCT"),
        *("DELIM_JOIN", "DEPENDENT_JOIN", "DELIM_GET", "UNION", "EXCEPT", "INTERSECT"),
        *("CTE", "REC_CTE", "CTE_SCAN", "EXPRESSION_GET", "DUMMY_SCAN", "EMPTY_RESULT"),
        *("UNNEST", "RANGE", "GENERATE_SERIES", "REPEAT"),
    }
)
"""Operators that pass rows on, or make them of constants."""
STORED = "SEQ_SCAN"
"""The scan of a table in DuckDB's own storage, which looks at the bytes of each text that is put into it."""
ARROW, PANDAS = "PYTHON_ARROW_SCAN", "PANDAS_SCAN"
_FRAME = re.compile(r"SELECT \* FROM (python_arrow_scan|pandas_scan)\(\) AS \w+;?\Z")
_FRAME_PLAN = ("PROJECTION", "PROJECTION")


def parse_origin(table: str, plan: str, definition: str | None, *, frames: frozenset[str]) -> TableOrigin:
    """The origin of `table`, by its plan as JSON and the SQL of its view, if it is one.

    A registered frame is a view of its own; what another view reads of frames has no name, so that it is
    foreign there. `frames` are the scans of frames that are read without failing on any value.
    """
    nodes = list(_iterate_nodes(json.loads(plan)))
    names = [str(node["name"]) for node in nodes]
    if definition is not None and _FRAME.search(definition) and (*names[:-1],) == _FRAME_PLAN:
        foreign: tuple[str, ...] = () if names[-1] in frames else (names[-1],)
        return TableOrigin(frozenset({f"frame {table}"}), foreign, has_checked_texts=False)
    tables = frozenset(node["extra_info"].get("Table", "?") for node in nodes if node["name"] == STORED)
    foreign = tuple(dict.fromkeys(name for name in names if name != STORED and name not in READS_NOTHING))
    return TableOrigin(tables, foreign, is_stored_table=definition is None)


def _iterate_nodes(plan: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for node in plan:
        yield node
        yield from _iterate_nodes(node["children"])
