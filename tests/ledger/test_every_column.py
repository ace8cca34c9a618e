"""The law of the chain: an edit of any one value, or the removal of any one row, of any table of a ledger is noticed by `verify`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpsql.errors import Error
from dpsql.ledger import Budget, open_ledger
from dpsql.ledger.budget_state import AccountKey
from dpsql.ledger.protocol import NewRelease, TableCharge
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.schema import METADATA
from dpsql.privacy.accounting import Pure
from dpsql.privacy.accounting.partitions.boxes import Box

KEY = b"the owner's secret of thirty-two"
EIGHTH = Pure(Fraction(1, 8))
BUDGETS: dict[str | AccountKey, Budget] = {
    "calls": Budget("pure", Fraction(1), Fraction(0), renewal="weekly"),
    "visits": Budget("pure", Fraction(1), Fraction(0)),
    AccountKey("visits", "ana"): Budget("pure", Fraction(1), Fraction(0)),
    "others": Budget("pure", Fraction(1), Fraction(0)),
}
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
NEWEST = 14
UNSEEN = {
    (
        "entries",
        "",
        NEWEST,
    ): "a head or an anchor that is kept elsewhere shows that the newest entry was taken away",
}
UNSEEN_WITHOUT_A_KEY = UNSEEN | {
    (
        "meta",
        column,
        "digests",
    ): "a ledger that says nothing of its digests is one without a key, as this one is"
    for column in ("key", "value", "")
}
"""Edits that `verify` does not see, with the reason: the table, the column, empty for the whole row, and the row's first value."""


def days(low: int, high: int) -> Box:
    """The box of some days."""
    return Box.from_sides({"day": ((low, high),)})


def filled(path: Path, key: bytes | None) -> None:
    """A small ledger with a row of every kind in every table."""
    clock = SimpleNamespace(now=NOON)
    with closing(open_ledger(path, BUDGETS, key=key, clock=lambda: clock.now, database="clinic")) as ledger:
        parts = [TableCharge("calls", EIGHTH, days(0, 9)), TableCharge("visits", EIGHTH, days(5, 6))]
        ledger.charge(parts, analyst="ana", query="q", details={"versions": {"dpsql": "1"}})
        clock.now += timedelta(days=9)
        (first, *_) = ledger.charge(parts, analyst="ana", query="q")
        ledger.store_releases([NewRelease("s", "a", "{}"), NewRelease("s", "b", "{1}")], first)
        number = ledger.reserve({"visits": EIGHTH}, analyst="ana")[0].id
        ledger.charge(
            [TableCharge("visits", Pure(Fraction(1, 16)), days(1, 2))],
            analyst="ana",
            query="q",
            reservation=number,
        )
        ledger.reserve({"others": EIGHTH}, analyst="bob")
        ledger.charge({"others": EIGHTH}, analyst="bob", query="q", refines=[1])
        ledger.store_releases([NewRelease("s", "c", "{2}", refines=1)], ledger.list_entries(limit=1)[0])
        ledger.record_failure(["others"], first, analyst="ana", query="q", code="backend")
        ledger.unlock("others", by="olga", reason="mended")
        assert ledger.verify().entries == NEWEST


def noticed(path: Path, key: bytes | None) -> bool:
    """Whether the check of the whole ledger refuses it."""
    try:
        with closing(LedgerReader.open(str(path), key)) as reader:
            reader.verify()
    except Error:
        return True
    return False


def others(value: Any, column: list[Any]) -> Iterator[Any]:
    """Values to put in place of one: near it, none, and that of another row."""
    if isinstance(value, int):
        yield value + 1
    else:
        yield "x" if value is None else f"{value}x"
    if value is not None:
        yield None
    yield from [other for other in dict.fromkeys(column) if other != value][:1]


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, KEY], ids=["without a key", "with a key"])
def test_every_value_of_every_table_is_under_the_chain(tmp_path: Path, key: bytes | None) -> None:
    path = tmp_path / "a.ledger"
    filled(path, key)
    assert not noticed(path, key)
    missed, edits = list[tuple[str, str, Any]](), 0
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for table in METADATA.tables.values():
            name = table.name
            rows = file.execute(f"SELECT rowid, * FROM {name}").fetchall()
            assert rows, f"the ledger has no row in {name}"
            columns = [column.name for column in table.columns]
            for rowid, *values in rows:
                for place, (column, value) in enumerate(zip(columns, values, strict=True)):
                    for other in others(value, [row[place + 1] for row in rows]):
                        set_one = f"UPDATE {name} SET {column} = ? WHERE rowid = ?"
                        try:
                            file.execute(set_one, [other, rowid])
                        except sqlite3.IntegrityError:
                            continue  # the table itself refuses it
                        # A primary key that is a whole number is the row's own number.
                        moved = (
                            other if table.columns[column].primary_key and column in ("id", "base") else rowid
                        )
                        if name == "releases" and column == "number":
                            moved = other
                        edits += 1
                        if not noticed(path, key):
                            missed.append((name, column, values[0]))
                        file.execute(set_one, [value, moved])
                file.execute(f"DELETE FROM {name} WHERE rowid = ?", [rowid])
                edits += 1
                if not noticed(path, key):
                    missed.append((name, "", values[0]))
                marks = ", ".join("?" * len(values))
                file.execute(
                    f"INSERT INTO {name} (rowid, {', '.join(columns)}) VALUES (?, {marks})", [rowid, *values]
                )
    assert not noticed(path, key)
    assert edits > 700
    assert set(missed) == (UNSEEN_WITHOUT_A_KEY if key is None else UNSEEN).keys()


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE parts SET box_digest = box_digest || 'x' WHERE box <> '{}'",
        "UPDATE parts SET period = 'x'",
        "DELETE FROM parts WHERE box = '{}'",
        "UPDATE parts SET account_analyst = 'bob' WHERE box = '{}' AND account_analyst = 'ana'",
        "INSERT INTO slices VALUES ('others', 'eve', 3, 'a body')",
    ],
)
@pytest.mark.parametrize("key", [None, KEY], ids=["without a key", "with a key"])
def test_tables_derived_from_entries_are_checked_on_opening(
    tmp_path: Path, edit: str, key: bytes | None
) -> None:
    path = tmp_path / "a.ledger"
    filled(path, key)
    with closing(sqlite3.connect(path)) as file, file:
        assert file.execute(edit).rowcount
    assert noticed(path, key)
    with pytest.raises(Error) as refused:
        open_ledger(path, BUDGETS, key=key, database="clinic")
    assert refused.value.code == "ledger_tampered"
