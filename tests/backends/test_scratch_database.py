"""The throw-away engine: locked, with tables of its own for each answer, and failures without its words."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from dpsql.backends.scratch_database import ScratchDatabase
from dpsql.errors import OperationalError


@pytest.fixture
def scratch() -> Iterator[ScratchDatabase]:
    """A scratch with two released rows."""
    with ScratchDatabase() as opened:
        opened.create_table("released", [("n", "BIGINT"), ("word", "VARCHAR")])
        opened.fill_table("released", [[1, 2**62], ["a", "b"]])
        yield opened


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM '{file}'",
        "SELECT * FROM read_csv('{file}')",
        "COPY released TO '{file}'",
        "ATTACH '{file}.duckdb' AS other",
        "INSTALL httpfs",
        "SET threads = 8",
        "SET lock_configuration = false",
        "SELECT * FROM python_value",
    ],
)
def test_scratch_connection_reaches_only_its_table(
    statement: str, scratch: ScratchDatabase, tmp_path: Path
) -> None:
    """It reaches no file, extension, setting or variable of the program."""
    file = tmp_path / "x.csv"
    file.write_text("a\n1\n", encoding="utf-8")
    python_value = duckdb.sql("SELECT 1 AS a").to_arrow_table()
    assert python_value.num_rows == 1
    with pytest.raises(OperationalError):
        scratch.run_query(statement.format(file=file))
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


def test_each_answer_has_its_own_tables(scratch: ScratchDatabase) -> None:
    """Two answers at a time, of other shapes under one name: neither sees the other's values, nor their end."""
    with ScratchDatabase() as other:
        other.create_table("released", [("x", "DOUBLE")])
        other.fill_table("released", [[0.5]])
        assert scratch.run_query("SELECT * FROM released") == (
            [(1, "a"), (2**62, "b")],
            ["BIGINT", "VARCHAR"],
        )
        assert other.run_query("SELECT * FROM released") == ([(0.5,)], ["DOUBLE"])
    assert scratch.run_query("SELECT COUNT(*) FROM released")[0] == [(2,)]
    with ScratchDatabase() as later, pytest.raises(OperationalError):
        later.run_query("SELECT * FROM released")


@pytest.mark.parametrize(
    "failing", ["SELECT n * n FROM released", "SELECT CAST(word AS BIGINT) FROM released"]
)
def test_failure_reveals_no_values(failing: str, scratch: ScratchDatabase) -> None:
    """An overflow or a failed cast is dpsql's own error, without the engine's text, cause or context."""
    with pytest.raises(OperationalError) as caught:
        scratch.run_query(failing)
    error = caught.value
    assert error.code == "post_processing"
    assert (error.__cause__, error.__context__) == (None, None)
    assert not any(isinstance(part, duckdb.Error) for part in gc.get_referents(error))
    assert str(2**62) not in str(error)
