"""Spark's types, by the names of the engine types that policies and plans know.

A column whose type is not listed here has a name that no policy reads.
"""

from __future__ import annotations

import re
from types import MappingProxyType

_NAMES = MappingProxyType(
    {
        "tinyint": "TINYINT",
        "smallint": "SMALLINT",
        "int": "INTEGER",
        "bigint": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "VARCHAR",
        "boolean": "BOOLEAN",
        "date": "DATE",
        "timestamp_ntz": "TIMESTAMP",
        "timestamp": "TIMESTAMP WITH TIME ZONE",
        "binary": "BLOB",
    }
)
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TEXT = re.compile(r"varchar\(\d+\)|string collate \w+")
_PADDED = re.compile(r"char\(\d+\)")


def engine_type(name: str) -> str:
    """The engine type of a column, by the name that DESCRIBE has for it.

    >>> engine_type("bigint"), engine_type("decimal(12,2)"), engine_type("timestamp"), engine_type("char(5)")
    ('BIGINT', 'DECIMAL(12,2)', 'TIMESTAMP WITH TIME ZONE', 'CHAR')
    >>> engine_type("array<int>"), engine_type("string collate UTF8_LCASE")
    ('ARRAY<INT> (SPARK)', 'VARCHAR')
    """
    found = _DECIMAL.fullmatch(name)
    if found is not None:
        return f"DECIMAL({found[1]},{found[2]})"
    if _PADDED.fullmatch(name):
        return "CHAR"
    return "VARCHAR" if _TEXT.fullmatch(name) else _NAMES.get(name, f"{name.upper()} (SPARK)")
