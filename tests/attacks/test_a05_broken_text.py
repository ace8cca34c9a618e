"""A5, text that is none: bytes of one row that are not UTF-8 change no plan, make no query fail and end nothing.

Arrow does not look at the bytes of its texts, a text of Python may hold half a surrogate pair, and an object
may refuse to be compared. The engine's functions of text fail on such rows, some of them for ever after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow
import pytest
from worlds import connected, observed, spent

BROKEN = [b"\xff\xfe", b"\xc3", b"a\xe2\x82", b"\xed\xa0\x80", b"\xc0\xaf", b"twelve and more \xf0\x9f"]
QUERIES = [
    "SELECT COUNT(x), COUNT(LENGTH(x)) FROM people",
    "SELECT x, COUNT(*) FROM people GROUP BY x",
    "SELECT COUNT(*) FROM people WHERE UPPER(x) = 'OK'",
    "SELECT COUNT(*) FROM people WHERE x ILIKE '%é%' OR LOWER(x) LIKE '_k'",
    "SELECT SUBSTRING(x, 2, 1), COUNT(*) FROM people GROUP BY 1",
    "SELECT COUNT(DISTINCT id) FROM people WHERE x = 'ok'",
]


def arrow(texts: list[bytes], kind: Any = None) -> pyarrow.Table:
    """An Arrow table whose texts are these bytes, as a file reader that does not check them makes it."""
    kind = kind or pyarrow.large_string()
    ends = np.cumsum([0, *map(len, texts)]).astype(np.int64)
    parts = [None, pyarrow.py_buffer(ends.tobytes()), pyarrow.py_buffer(b"".join(texts))]
    column = pyarrow.Array.from_buffers(kind, len(texts), parts)
    return pyarrow.table({"id": list(range(len(texts))), "x": column})


def categorical(texts: list[bytes]) -> pyarrow.Table:
    """The same with a dictionary of texts."""
    table = arrow(texts)
    codes = pyarrow.array(range(len(texts)), pyarrow.int32())
    return table.set_column(1, "x", pyarrow.DictionaryArray.from_arrays(codes, table["x"].combine_chunks()))


FRAMES: dict[str, Callable[[list[bytes]], Any]] = {
    "arrow": arrow,
    "dictionary": categorical,
    "polars": lambda texts: pl.from_arrow(arrow(texts)),
    "pandas": lambda texts: arrow(texts).to_pandas(),
    "pandas of Arrow": lambda texts: arrow(texts).to_pandas(types_mapper=pd.ArrowDtype),
}


def session(frame: Any) -> list[Any]:
    """All that is observed of a frame and of every query, one after the other, but for the values."""
    columns = {"x": {"type": "varchar"}}
    people = {"unit": "id", "rows_per_unit": 1, "columns": columns}
    policy = {"budget": {"epsilon": 99, "delta": 1e-6}, "tables": {"people": people}}
    connection = connected({"people": frame}, policy)
    seen: list[Any] = [observed(connection, sql)[0] for sql in QUERIES]
    return [*seen, spent(connection)]


@pytest.mark.parametrize("kind", FRAMES)
def test_broken_text_of_one_row_is_not_observable(kind: str) -> None:
    """Columns, types, receipts and charges are the same with and without rows of broken text."""
    make, crowd = FRAMES[kind], [b"ok"] * 40
    ours = session(make(crowd))
    assert not any(getattr(outcome, "error", None) for outcome in ours)
    assert session(make([*crowd, *BROKEN])) == ours
    assert session(make([BROKEN[0], *crowd])) == ours


ODD: dict[str, Any] = {
    "half a surrogate pair": "\ud800",
    "pandas.NA": pd.NA,
    "an array": np.array([1, 2]),
    "a frame": pd.DataFrame({"a": [1]}),
    "bytes": b"\xff",
}


def objects(odd: Any) -> pd.DataFrame:
    """A pandas frame of Python objects, one of which is odd."""
    values = ["ok"] * 7 + [odd] + ["ok"] * 32
    return pd.DataFrame({"id": range(40), "x": pd.Series(values, dtype=object)})


@pytest.mark.parametrize("case", ODD)
def test_odd_object_of_one_row_is_not_observable(case: str) -> None:
    """The frame is opened and every query answered, whatever object one row holds."""
    ours, theirs = (session(objects(value)) for value in ("ok", ODD[case]))
    assert ours == theirs


def test_half_a_surrogate_pair_is_not_observable() -> None:
    """A text column may hold Python strings that the engine cannot read; they are not observable either."""
    ours, theirs = (session(objects(value).astype({"x": "string[python]"})) for value in ("ok", "\ud800"))
    assert ours == theirs


def test_engine_fails_on_broken_text() -> None:
    """The attack works on the engine as it comes: one row fails the query, and every later one with it."""
    engine = duckdb.connect()
    engine.register("people", arrow([b"ok", b"\xc3"]))
    with pytest.raises(duckdb.Error):
        engine.execute("SELECT COUNT(*) FROM people WHERE UPPER(x) = 'OK'").fetchall()
    with pytest.raises(duckdb.Error):
        engine.execute("SELECT 42").fetchall()
