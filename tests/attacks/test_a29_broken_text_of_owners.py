"""A29, broken text on what the owner opened: bytes of one row make no query fail on an open connection either.

A frame that the owner has registered is scanned as it is. What its views read of files is read by readers that
end on such bytes before anything could repair them, so that these are refused at connect.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow
import pyarrow.parquet
import pytest
from attacks.test_a05_broken_text import BROKEN, QUERIES, arrow
from worlds import cells, connected, observed, prepared, spent

import dpsql
from dpsql.api.connection import Connection

LONG = b"x" * 300_000
NUL = b"o\x00k"
PUBLIC = [
    "SELECT UPPER(word), COUNT(*) FROM words GROUP BY 1",
    "SELECT COUNT(*) FROM people JOIN words ON x = word WHERE LENGTH(UPPER(word)) > 1",
]


def policy(unit: str = "id") -> dict[str, Any]:
    """People with texts, and public words."""
    rules = {"unit": unit, "rows_per_unit": 1, "columns": {"x": {"type": "varchar"}}}
    tables = {"people": rules, "words": {"public": True}}
    return {"budget": {"epsilon": 99, "delta": 1e-6}, "tables": tables}


@pytest.fixture
def owner() -> Iterator[duckdb.DuckDBPyConnection]:
    """An open connection of the owner's."""
    with duckdb.connect() as opened:
        yield opened


def opened(owner: duckdb.DuckDBPyConnection, texts: list[bytes], unit: str = "id") -> Connection:
    """A connection to people with these texts, and to as many public words."""
    owner.register("people", arrow(texts))
    owner.register("words", pyarrow.table({"word": arrow(texts)["x"]}))
    return connected(owner, policy(unit))


def session(connection: Connection) -> list[Any]:
    """All that is observed of every query, but for the values."""
    return [*(observed(connection, sql)[0] for sql in (*QUERIES, *PUBLIC)), spent(connection)]


def test_broken_text_of_a_registered_frame_is_not_observable(owner: duckdb.DuckDBPyConnection) -> None:
    """Outcomes are the same with and without rows of broken text in a private and a public table."""
    crowd = [b"ok"] * 40
    ours = session(opened(owner, crowd))
    assert not [outcome for outcome in ours if getattr(outcome, "error", None)]
    assert session(opened(owner, [*crowd, *BROKEN])) == ours
    assert session(opened(owner, [BROKEN[0], *crowd, NUL, LONG])) == ours


def test_broken_id_belongs_to_no_unit(owner: duckdb.DuckDBPyConnection) -> None:
    """A row with a broken id belongs to nobody; text with NUL and long text are whole."""
    connection = opened(owner, [b"ok", NUL, LONG, *BROKEN], unit="x")
    plan = prepared(
        connection, "SELECT COUNT(DISTINCT x) FROM people WHERE LENGTH(UPPER(x)) IN (2, 3, 300000)"
    )
    assert cells(connection, plan) == {(): ((3,),)}


NESTED = {
    "a field": ({"s.city": {"type": "varchar"}}, "FROM people WHERE UPPER(s.city) = 'OK'"),
    "a list": (
        {"texts": {"type": "varchar", "max_elements": 2}},
        "FROM people, UNNEST(texts) AS u(x) WHERE UPPER(x) = 'OK'",
    ),
    "a field of a list's row": (
        {"s.more": {"type": "varchar", "max_elements": 2}},
        "FROM people, UNNEST(s.more) AS u(x) WHERE UPPER(x) = 'OK'",
    ),
    "JSON": ({"json": {"type": "varchar"}}, "FROM people WHERE UPPER(json) = 'OK'"),
}


@pytest.mark.parametrize("name", NESTED)
def test_broken_text_within_a_column_is_not_observable(owner: duckdb.DuckDBPyConnection, name: str) -> None:
    """The bytes of fields, elements and JSON are not observable either."""
    columns, rest = NESTED[name]
    texts = arrow([b"ok", *BROKEN])["x"].combine_chunks().cast(pyarrow.string())
    listed = pyarrow.ListArray.from_arrays(list(range(len(texts) + 1)), texts)
    fields = pyarrow.StructArray.from_arrays([texts, listed], ["city", "more"])
    json = pyarrow.ExtensionArray.from_storage(pyarrow.json_(), texts)
    frame = pyarrow.table(
        {"id": list(range(len(texts))), "s": fields, "texts": listed, "json": json, "word": texts}
    )
    owner.register("people", frame)
    people = {"unit": "id", "rows_per_unit": 1, "columns": columns}
    connection = connected(owner, {"budget": {"epsilon": 99, "delta": 1e-6}, "tables": {"people": people}})
    plan = prepared(connection, f"SELECT COUNT(*) {rest}")
    assert cells(connection, plan) == {(): ((1,),)}


def zoned(unit: str) -> pyarrow.Table:
    """Moments with a zone, some of which are too great for the engine in a smaller unit."""
    kind = pyarrow.timestamp(unit, "Europe/Berlin")
    return pyarrow.table({"id": [1, 2, 3], "x": pyarrow.array([0, 2**60, -(2**60)], kind)})


MOMENTS = {"unit": "id", "rows_per_unit": 1, "columns": {"x": {"type": "timestamp"}}}


@pytest.mark.parametrize(
    ("frame", "unit"),
    [(frame, unit) for frame in ("arrow", "pandas") for unit in ("s", "ms", "us", "ns")] + [("polars", "ms")],
)
def test_moment_beyond_the_calendar_makes_no_query_fail(frame: str, unit: str) -> None:
    """Moments with a zone in a frame that is passed: in UTC, and NULL beyond the calendar."""
    table = zoned(unit)
    given = {"arrow": table, "polars": pl.from_arrow(table), "pandas": table.to_pandas()}[frame]
    connection = connected(
        {"people": given}, {"budget": {"epsilon": 99, "delta": 1e-6}, "tables": {"people": MOMENTS}}
    )
    plan = prepared(connection, "SELECT COUNT(*) FROM people WHERE x > '0001-01-02'")
    count = 3 if unit == "ns" else 1
    assert cells(connection, plan) == {(): ((count,),)}


def test_moments_with_a_zone_in_a_registered_frame_are_refused(owner: duckdb.DuckDBPyConnection) -> None:
    """The engine does not say in which unit they are; in seconds it fails on some."""
    owner.register("people", zoned("s"))
    with pytest.raises(dpsql.PolicyError) as caught:
        connected(owner, {"budget": {"epsilon": 99, "delta": 1e-6}, "tables": {"people": MOMENTS}})
    assert caught.value.code == "column_type"
    with pytest.raises(duckdb.Error):
        owner.execute("SELECT COUNT(x) FROM people WHERE x IS NOT NULL").fetchall()


def test_owner_s_engine_fails_on_broken_text(owner: duckdb.DuckDBPyConnection) -> None:
    """The attack works where the frame is read as it is: by one row the query fails, and every later one."""
    owner.register("people", arrow([b"ok", BROKEN[0]]))
    with pytest.raises(duckdb.Error):
        owner.execute("SELECT COUNT(*) FROM people WHERE UPPER(x) = 'OK'").fetchall()
    with pytest.raises(duckdb.Error):
        owner.execute("SELECT 42").fetchall()


VIEWS = {
    "Parquet": "CREATE VIEW people AS FROM '{folder}/people.parquet'",
    "Parquet in a view of a view": "CREATE VIEW v AS FROM '{folder}/people.parquet'; CREATE VIEW people AS FROM v",
    "CSV": "CREATE VIEW people AS FROM read_csv('{folder}/people.csv')",
    "CSV in a macro": "CREATE MACRO m() AS TABLE FROM read_csv('{folder}/people.csv'); CREATE VIEW people AS FROM m()",
    "a frame below a view": "CREATE TEMP VIEW people AS SELECT id, UPPER(x) AS x FROM frame",
    "pandas objects": "CREATE TEMP VIEW people AS FROM objects",
}


@pytest.mark.parametrize("case", VIEWS)
@pytest.mark.parametrize("public", [False, True], ids=["private", "public"])
def test_irreparable_sources_are_refused(
    case: str, public: bool, owner: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """Files, frames below a view of the owner's, and frames of Python objects: refused at connect, by name."""
    table = arrow([b"ok"] * 3)
    pyarrow.parquet.write_table(table, tmp_path / "people.parquet")
    (tmp_path / "people.csv").write_text("id,x\n1,ok\n", encoding="utf-8")
    owner.register("frame", table)
    owner.register("objects", pd.DataFrame({"id": [1], "x": pd.Series(["ok"], dtype=object)}))
    owner.execute(VIEWS[case].format(folder=tmp_path))
    rules = policy()
    tables = {"people": {"public": True} if public else rules["tables"]["people"]}
    with pytest.raises(dpsql.PolicyError) as caught:
        connected(owner, {**rules, "tables": tables})
    assert caught.value.code == "view_source"
    assert "people" in str(caught.value)
    owner.execute("DROP VIEW people; CREATE TABLE people AS SELECT 1 AS id, 'ok' AS x")
    connected(owner, {**rules, "tables": tables})


def test_file_reader_fails_on_one_row(owner: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """The attack works on a view over Parquet, though each text is repaired where it is read."""
    pyarrow.parquet.write_table(arrow([b"ok", BROKEN[0]]), tmp_path / "people.parquet")
    owner.execute(f"CREATE VIEW people AS FROM '{tmp_path}/people.parquet'")
    assert owner.execute("SELECT COUNT(*) FROM people").fetchone() == (2,)
    with pytest.raises(duckdb.Error):
        owner.execute("SELECT COUNT(TRY(decode(encode(x)))) FROM people").fetchone()
