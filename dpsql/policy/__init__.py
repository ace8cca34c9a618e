"""The owner's policy: the privacy unit, the privacy budget, and the columns and functions of analysts."""

from dpsql.policy.domain import Bound, ColumnType, Value
from dpsql.policy.load import load
from dpsql.policy.models import Policy, build_json_schema
from dpsql.policy.names import normalize_name, split_table_name
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
    "build_json_schema",
    "load",
    "normalize_name",
    "skeleton",
    "split_table_name",
]
