"""PostgreSQL's types, by the names of the engine types that policies and plans know.

A column whose type is not listed here has a name that no policy reads: domains and types of extensions (as citext) among
them, whose functions and comparisons anybody may have defined.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType

from dpsql.policy.engine_types import UNLIMITED

_MOST_DIGITS = 38
_NAMES = MappingProxyType(
    {
        "smallint": "SMALLINT",
        "integer": "INTEGER",
        "bigint": "BIGINT",
        "real": "FLOAT",
        "double precision": "DOUBLE",
        "numeric": UNLIMITED,
        "text": "VARCHAR",
        "character varying": "VARCHAR",
        "character": "VARCHAR",
        "bpchar": "VARCHAR",
        "boolean": "BOOLEAN",
        "date": "DATE",
        "timestamp without time zone": "TIMESTAMP",
        "timestamp with time zone": "TIMESTAMP WITH TIME ZONE",
        "time without time zone": "TIME",
        "uuid": "UUID",
        "bytea": "BLOB",
    }
)
_SIZED = re.compile(r"(?P<name>[a-z ]+?)\((?P<digits>\d+)(?:,(?P<scale>-?\d+))?\)(?P<rest>[a-z ]*)")


def parse_engine_type(name: str, kind: str = "b", members: Sequence[str] = ()) -> str:
    """The engine type of a column, by `format_type`'s name for it, the `typtype` of its type, and the members of an enum.

    >>> parse_engine_type("character varying(20)"), parse_engine_type("numeric(12,2)"), parse_engine_type("numeric")
    ('VARCHAR', 'DECIMAL(12,2)', 'NUMERIC')
    >>> parse_engine_type("timestamp(3) with time zone"), parse_engine_type("mood", "e", ["sad", "ok"]), parse_engine_type("citext")
    ('TIMESTAMP WITH TIME ZONE', "ENUM('sad', 'ok')", 'CITEXT (POSTGRESQL)')
    >>> parse_engine_type("numeric(12,2)[]"), parse_engine_type("interval[]")
    ('DECIMAL(12,2)[]', 'INTERVAL (POSTGRESQL)[]')
    """
    if kind == "e":
        listed = ", ".join("'" + member.replace("'", "''") + "'" for member in members)
        return f"ENUM({listed})"
    unread = f"{name.upper()} (POSTGRESQL)"
    if kind != "b":
        return unread
    if name.endswith("[]"):
        return f"{parse_engine_type(name.removesuffix('[]'))}[]"
    found = _SIZED.fullmatch(name)
    if found is None:
        return _NAMES.get(name, unread)
    if found["name"] == "numeric":
        digits, scale = int(found["digits"]), int(found["scale"] or 0)
        return f"DECIMAL({digits},{scale})" if 0 <= scale <= digits <= _MOST_DIGITS else UNLIMITED
    return _NAMES.get(found["name"] + found["rest"], unread)
