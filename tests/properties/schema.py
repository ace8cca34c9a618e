"""The schema that the laws draw databases for, as data: a further table is one entry more.

Values are texts that the engine casts to the column's type. The ordinary ones come first, because that
is where shrinking ends; then those at and beyond bounds, and every special one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Text = str | None
UNIT = "u"
"""The column of each private table that holds the unit's id."""
NEWCOMER = 4
"""The unit that may come in the place of another; the others are numbered before it."""


@dataclass(frozen=True)
class Column:
    """A column's type in the engine, the values that it may hold, and its declaration in the policy.

    `key` says that each row has a value of its own instead.
    """

    engine: str
    values: tuple[Text, ...] = ()
    declared: Mapping[str, Any] | None = None
    key: bool = False


@dataclass(frozen=True)
class Link:
    """The column of a table that holds another table's key, and with it the unit of its rows."""

    column: str
    table: str
    key: str


@dataclass(frozen=True)
class Table:
    """A table: `ids` has, for each unit, the ways to write its id; a public table has neither ids nor a link."""

    columns: Mapping[str, Column]
    ids: Mapping[int, tuple[str, ...]] | None = None
    link: Link | None = None

    @property
    def public(self) -> bool:
        """Whether nobody is to be protected."""
        return self.ids is None and self.link is None

    @property
    def owner(self) -> str | None:
        """The column that says whose a row is."""
        return UNIT if self.ids is not None else None if self.link is None else self.link.column


_REALS = ("nan", "inf", "-inf", "1e308", "-1e308", "-0.0", None)
_INTEGERS = ("9223372036854775807", "-9223372036854775808", None)
_DAYS = ("0001-01-01", "9999-12-31", "infinity", "-infinity", "0044-03-15 (BC)", "5877642-06-25 (BC)", None)
_MOMENTS = (
    "2024-02-29 12:00:00",
    "2024-02-29 23:59:59.999999",
    "infinity",
    "-infinity",
    "0044-03-15 (BC) 01:00:00",
    "294247-01-10 04:00:54.775806",
    None,
)
_TEXTS = (
    "a",
    "A",
    "b",
    "",
    " a",
    "ä",
    "a\u0308",
    "ß",
    "ſ",
    "1",
    "nan",
    "1e400",
    "true",
    "2024-02-29",
    "'",
    None,
)

SCHEMA: Mapping[str, Table] = {
    "t": Table(
        {
            "u": Column("INTEGER"),
            "id": Column("BIGINT", declared={"type": "integer"}, key=True),
            "k": Column("VARCHAR", ("A", "B", "Z", None), {"type": "varchar", "values": ["A", "B"]}),
            "g": Column(
                "INTEGER", ("1", "2", "3", None), {"type": "integer", "values": [1, 2], "nullable": False}
            ),
            "x": Column(
                "DOUBLE", ("1.5", "4", "-1", "-7.25", *_REALS), {"type": "double", "bounds": [-1, 4]}
            ),
            "i": Column("BIGINT", ("1", "0", "5", "7", *_INTEGERS), {"type": "integer", "bounds": [0, 5]}),
            "z": Column("DOUBLE", ("0.5", "2.5", "9007199254740992", *_REALS), {"type": "double"}),
            "n": Column("BIGINT", ("1", "0", "-7", "36028797018963968", *_INTEGERS), {"type": "integer"}),
            "s": Column("VARCHAR COLLATE NOCASE", _TEXTS, {"type": "varchar"}),
            "d": Column(
                "DATE",
                ("2024-02-29", "2024-02-27", "2024-03-02", *_DAYS),
                {"type": "date", "bounds": [dt.date(2024, 2, 27), dt.date(2024, 3, 2)]},
            ),
            "e": Column("TIMESTAMP", _MOMENTS, {"type": "timestamp"}),
            "b": Column("BOOLEAN", ("true", "false", None), {"type": "boolean"}),
        },
        {1: ("1",), 2: ("2",), 3: ("3",), NEWCOMER: ("4",)},
    ),
    "v": Table(
        {
            "u": Column("HUGEINT"),
            "k": Column("ENUM('A', 'B', 'Z')", ("A", "B", "Z", None), {"type": "varchar", "values": ["A", "B"]}),
            "h": Column(
                "HUGEINT",
                ("1", "-3", "10", "-4", "9" * 38, "-" + "9" * 38, None),
                {"type": "integer", "bounds": [-3, 10]},
            ),
            "o": Column("UBIGINT", ("1", "0", "18446744073709551615", None), {"type": "integer"}),
            "q": Column(
                "DECIMAL(38, 10)",
                ("0.5", "2.5", "-2.5", "9" * 28, "-" + "9" * 28, None),
                {"type": "double", "bounds": [-2.5, 2.5]},
            ),
            "f": Column(
                "FLOAT", ("0.5", "1.5", "0", "-0.0", "nan", "inf", None), {"type": "double", "values": [0, 0.5, 1.5]}
            ),
            "d": Column(
                "DATE", ("2024-02-29", *_DAYS), {"type": "date", "values": [dt.date(2024, 2, 29), dt.date(1, 1, 1)]}
            ),
            "e": Column(
                "TIMESTAMP_S",
                ("2024-02-29 12:00:00", "2024-02-29 10:00:00", "2024-02-29 15:30:00", "0001-01-01 00:00:00", "infinity", None),
                {"type": "timestamp", "bounds": [dt.datetime(2024, 2, 29, 10), dt.datetime(2024, 2, 29, 14)], "nullable": False},
            ),
            "b": Column("BOOLEAN", ("true", "false", None), {"type": "boolean", "nullable": False}),
            "c": Column("TIME", ("12:34:56.789012", "00:00:00", "23:59:59.999999", "24:00:00", None), {"type": "time"}),
        },
        {1: ("1",), 2: ("2",), 3: ("3",), NEWCOMER: ("4",)},
    ),
    "y": Table(
        {
            "u": Column("VARCHAR"),
            "k": Column("VARCHAR COLLATE NOACCENT", ("a", "ä", "A", None), {"type": "varchar", "values": ["a", "ä"]}),
            "x": Column("FLOAT", ("0.5", "1", "0", *_REALS[:3], None), {"type": "double", "bounds": [0, 1]}),
            "m": Column("TINYINT", ("1", "-128", "127", None), {"type": "integer", "bounds": [-128, 127]}),
            "s": Column("UUID", ("00000000-0000-0000-0000-000000000000", "f" * 32, None), {"type": "varchar"}),
        },
        {1: ("a",), 2: ("A",), 3: ("",), NEWCOMER: ("ä",)},
    ),
    "l": Table(
        {
            "ref": Column("BIGINT"),
            "id": Column("VARCHAR", declared={"type": "varchar"}, key=True),
            "k": Column("VARCHAR", ("A", "B", None), {"type": "varchar"}),
            "x": Column("DOUBLE", ("1.5", "4", "-1", *_REALS), {"type": "double", "bounds": [-1, 4]}),
        },
        link=Link("ref", "t", "id"),
    ),
    "m": Table(
        {
            "ref": Column("VARCHAR"),
            "k": Column("VARCHAR", ("A", "B", "Z", None), {"type": "varchar", "values": ["A", "B"]}),
            "i": Column("BIGINT", ("1", "0", "5", "7", *_INTEGERS), {"type": "integer", "bounds": [0, 5]}),
        },
        link=Link("ref", "l", "id"),
    ),
    "p": Table(
        {
            "k": Column("VARCHAR", ("A", "B", "a", "Z", None)),
            "i": Column("BIGINT", ("1", "0", "5", *_INTEGERS)),
            "w": Column("DOUBLE", ("0.5", "3", "-1", *_REALS), {"type": "double", "bounds": [-1, 3]}),
            "d": Column("DATE", ("2024-02-29", *_DAYS)),
            "c": Column("VARCHAR", ("X", "Y", None), {"type": "varchar", "values": ["X", "Y"]}),
        }
    ),
    "r": Table(
        {
            "x": Column("DOUBLE", ("1", "1.5", *_REALS)),
            "g": Column("INTEGER", ("1", "2", None), {"type": "integer", "nullable": False}),
            "e": Column("TIMESTAMP", ("2024-02-29 00:00:00", *_MOMENTS)),
            "b": Column("BOOLEAN", ("true", "false", None)),
        }
    ),
}  # fmt: skip
"""Every table of the tiny databases."""

PRIVATE = tuple(name for name, table in SCHEMA.items() if not table.public)
UNLINKED = tuple(name for name in PRIVATE if SCHEMA[name].link is None)
PUBLIC = tuple(name for name, table in SCHEMA.items() if table.public)


@dataclass(frozen=True)
class Rules:
    """What a policy says of the private tables, besides their columns."""

    unit: str = UNIT
    neighbors: str = "add_remove"
    accountant: str = "zcdp"
    rows: int = 2
    groups: int | None = None
    partition: bool = False
    min_frequency: int = 1

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {value}" for name, value in vars(self).items() if value != vars(Rules())[name]
        )

    @property
    def by_row(self) -> bool:
        """Whether each row is a unit."""
        return self.unit == "row"


def ids_of(name: str) -> Mapping[int, tuple[str, ...]] | None:
    """How the ids of a private table's units are written, or of the table that its link leads to."""
    table = SCHEMA[name]
    return table.ids if table.link is None else ids_of(table.link.table)


def policy(rules: Rules) -> dict[str, Any]:
    """The policy of the schema under these rules."""
    private = {
        "max_groups": rules.groups,
        "min_frequency": rules.min_frequency,
        **({} if rules.by_row else {"rows_per_unit": rules.rows}),
        **({"partition": "k"} if rules.partition else {}),
    }
    tables = {}
    for name, table in SCHEMA.items():
        if table.link is not None and rules.by_row:
            continue  # the unit of a linked table cannot be a row
        declared = {column: dict(given.declared) for column, given in table.columns.items() if given.declared}
        tables[name] = {**_owned(table, rules), **({} if table.public else private), "columns": declared}
    return {
        "version": 1,
        "privacy_unit": "person",
        "neighbors": rules.neighbors,
        "budget": {"epsilon": 10, "delta": 1e-6, "accountant": rules.accountant},
        "tables": tables,
    }


def _owned(table: Table, rules: Rules) -> dict[str, Any]:
    if table.public:
        return {"public": True}
    if table.link is None:
        return {"unit": rules.unit}
    return {"link": {"column": table.link.column, "references": f"{table.link.table}.{table.link.key}"}}


def create() -> str:
    """The SQL that makes the tables, empty."""
    return ";\n".join(f"CREATE TABLE {name} ({_types(table)})" for name, table in SCHEMA.items())


def _types(table: Table) -> str:
    return ", ".join(f"{name} {column.engine}" for name, column in table.columns.items())
