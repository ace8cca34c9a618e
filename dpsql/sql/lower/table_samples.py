"""Lower `TABLESAMPLE UNITS (10%)`: the probability with which a unit is in the sample."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import NoReturn

from sqlglot import exp

from dpsql.plan.tables import Scan, UnitKind
from dpsql.plan.types import Type
from dpsql.sql.parse.rejection import UNITS_SAMPLED, QueryText

LEAST_RATE = Fraction(1, 10**6)
"""The least probability of a sample: a smaller one would leave almost no noise."""
_PERCENT = re.compile(r"(\d{1,3}(\.\d{0,12})?|\.\d{1,12})")
_IDS = (Type.INTEGER, Type.VARCHAR, Type.UUID)
"""The types whose ids each have one text."""
_WRITTEN = "write FROM t TABLESAMPLE UNITS (10%), or (10 PERCENT)"


def lower_sample(source: QueryText, node: exp.Expr, scan: Scan) -> Scan:
    """Return the scan of a table with the sample of a clause; a sample of all units leaves it unchanged.

    Raises QueryRejected with code "clause" for a sample of rows, with code "sample" for a sample of units that is not known
    to be private.
    """
    method, percent = source.take_arguments(node, "method", "percent", size=(node.args.get("size"),))
    if type(method) is not exp.Var or str(source.take_arguments(method, "this")[0]).upper() != "UNITS":
        source.refuse(percent or node, "clause", "rows cannot be sampled, only privacy units", UNITS_SAMPLED)
    if node.args.get("size") is not None:
        _refuse_sample(source, node, "a sample of units must be given as a percentage", _WRITTEN)
    rate = _parse_rate(source, node, percent)
    if scan.unit.kind is UnitKind.PUBLIC:
        _refuse_sample(
            source,
            node,
            f"{scan.table} is public, so it has no privacy units to sample",
            "leave out the sample",
        )
    if rate == 1:
        return scan
    if scan.unit.kind is UnitKind.ROW:
        _refuse_sample(
            source,
            node,
            f"the rows of {scan.table} have no ids by which units could be sampled",
            "leave out the sample; or let the policy name the column with the unit's id",
        )
    if _find_id_type(scan) not in _IDS:
        _refuse_sample(
            source,
            node,
            f"privacy units with ids of type {_find_id_type(scan)} cannot be sampled",
            "leave out the sample",
        )
    return replace(scan, sample=rate)


def _parse_rate(source: QueryText, node: exp.Expr, percent: exp.Expr | None) -> Fraction:
    text, is_string = (
        source.take_arguments(percent, "this", "is_string") if type(percent) is exp.Literal else ("", True)
    )
    if is_string or not _PERCENT.fullmatch(text):
        _refuse_sample(source, node, "the percentage of sampled units must be a constant", _WRITTEN)
    rate = Fraction(text) / 100
    if not LEAST_RATE <= rate <= 1:
        _refuse_sample(source, node, "a sample must have from 0.0001% to 100% of the units", _WRITTEN)
    return rate


def _find_id_type(scan: Scan) -> Type | None:
    """Find the type of the ids of a table's units."""
    while scan.unit.link is not None:
        scan = scan.unit.link.owner
    return None if scan.unit.column is None else scan.unit.column.type


def _refuse_sample(source: QueryText, node: exp.Expr, rule: str, hint: str) -> NoReturn:
    source.refuse(node, "sample", rule, hint)
