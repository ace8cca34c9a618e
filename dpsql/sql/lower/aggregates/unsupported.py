"""Aggregates that there are not, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from sqlglot import exp

from dpsql.sql.read.rejection import Source

_LISTED = "rows and groups are not put together into one value; they are listed as rows: SELECT x, COUNT(*) … GROUP BY x"
_INSTEAD: Mapping[type[exp.Expr], str] = {
    exp.GroupConcat: _LISTED,
    exp.ArrayAgg: _LISTED,
}


def unsupported(source: Source, node: exp.Expr, signatures: Iterable[str]) -> NoReturn:
    """Refuses an aggregate that is none of those with these signatures, with what to write in its place."""
    name = source.called(node)
    hint = _INSTEAD.get(type(node), f"there are: {', '.join(signatures)}")
    source.refuse(node, "aggregate", f"{name} is not supported yet", hint)
