"""The owner's policy: the privacy unit, the privacy budget, and the columns and functions of analysts."""

from dpsql.policy.domain import Bound, ColumnType, Value
from dpsql.policy.load import load
from dpsql.policy.models import Policy
from dpsql.policy.names import fold, table_parts
from dpsql.policy.schema import json_schema
from dpsql.policy.skeleton import skeleton
from dpsql.policy.tables import BudgetOverride, BudgetSpec, Column, Link, Table, Unit

__all__ = [
    "Bound",
    "BudgetOverride",
    "BudgetSpec",
    "Column",
    "ColumnType",
    "Link",
    "Policy",
    "Table",
    "Unit",
    "Value",
    "fold",
    "json_schema",
    "load",
    "skeleton",
    "table_parts",
]
