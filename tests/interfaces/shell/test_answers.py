"""Answers as tables and as data."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.interfaces.shell.answers import AnswerFormat, View, flatten_result, format_answer
from dpsql.results.rendering import Ends
from dpsql.results.result import Receipt, Result

RECEIPT = Receipt("q", "p", "a", "u", "n", "1", "d", (), None, (), {})


def result(
    columns: dict[str, str], rows: list[tuple[Any, ...]], noise: dict[int, tuple[float, float]] | None = None
) -> Result:
    """A result whose noisy columns, by index, have one scale and one half-width."""
    noisy = noise or {}

    def interval(row: int, column: int, _: float) -> Ends:
        value = rows[row][column]
        if column not in noisy:
            return None
        return (0.0, 1000.0) if value is None else (value - noisy[column][1], value + noisy[column][1])

    scales = tuple(tuple(noisy[i][0] if i in noisy else None for i in range(len(columns))) for _ in rows)
    return Result(tuple(columns), tuple(columns.values()), tuple(rows), scales, RECEIPT, interval)


TWO = result(
    {"plan": "VARCHAR", "avg_cost": "DOUBLE", "n": "BIGINT"},
    [("A", 512.34, 1703), ("B", None, -19)],
    {1: (12.0, 24.51), 2: (50.0, 99.2)},
)


def test_a_table_shows_value_and_half_width() -> None:
    """Each noisy column is followed by ±95%; a NULL is followed by its interval."""
    assert format_answer(TWO, AnswerFormat.TABLE, View()).splitlines() == [
        "plan  avg_cost        ±95%      n  ±95%",
        "───────────────────────────────────────",
        "A          512          25  1,703   100",
        "B         NULL  [0, 1,000]    -19   100",
    ]


def test_a_count_below_zero_is_shown_as_zero() -> None:
    """Tables show no count below zero, with an interval about what is shown; data has it as it is, as all else."""
    counted = replace(TWO, _counts=(False, False, True))
    assert (
        format_answer(counted, AnswerFormat.TABLE, View()).splitlines()[-1]
        == "B         NULL  [0, 1,000]      0   119"
    )
    assert str(counted).splitlines()[-1].split() == ["B", "NULL", "[0,", "1,000]", "0", "119"]
    assert counted.rows == TWO.rows
    assert format_answer(counted, AnswerFormat.CSV, View()) == format_answer(TWO, AnswerFormat.CSV, View())
    assert counted.df().equals(TWO.df())


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e6), st.floats(1e-7, 1e7), st.floats(1e-7, 1e7), st.booleans())
def test_displayed_half_widths_enclose_the_interval(
    value: float, scale: float, below: float, above: float, whole: bool
) -> None:
    """Rounding value and half-width never makes an interval narrower than it is."""
    centre: float = round(value) if whole else value
    ends = (centre - below, centre + above)
    answer = Result(("x",), ("DOUBLE",), ((centre,),), ((scale,),), RECEIPT, lambda *_: ends)
    (column,) = answer.render_columns()
    assert column.half_widths is not None
    middle, half = (float(text.replace(",", "")) for text in (column.cells[0], column.half_widths[0]))
    slack = 1e-9 * max(abs(centre), half)
    assert middle - half <= ends[0] + slack
    assert middle + half >= ends[1] - slack


def test_years_have_no_separators() -> None:
    """Keys of at most four digits are shown as they are written; counts and larger keys are easier to read in threes."""
    answer = result(
        {"year": "BIGINT", "n": "BIGINT", "miles": "BIGINT"},
        [(1990, 1990, 1990), (None, 2000, 10_000)],
        {1: (1.0, 2.0)},
    )
    assert answer.texts() == [["1990", "1,990", "1,990"], ["NULL", "2,000", "10,000"]]


def test_decimal_points_are_in_line() -> None:
    """Numbers with different noise keep their points in one column."""
    answer = Result(
        ("x",), ("DOUBLE",), ((1.25,), (10.0,), (None,)), ((0.01,), (5.0,), (None,)), RECEIPT, lambda *_: None
    )
    (column,) = answer.render_columns()
    assert column.cells == ["1.250", "10.0  ", "NULL    "]


def test_control_characters_do_not_reach_the_terminal() -> None:
    """A group key is data: what could steer a terminal is shown as an escape."""
    answer = result({"key": "VARCHAR"}, [("a\x1b[2Jb\nc",)])
    table = format_answer(answer, AnswerFormat.TABLE, View())
    assert "\x1b" not in table
    assert r"a\x1b[2Jb\nc" in table
    assert r"a\x1b[2Jb\nc" in format_answer(answer, AnswerFormat.MARKDOWN, View())


def test_csv_has_the_interval_as_columns() -> None:
    """CSV is for programs: full precision, low and high beside the value, NULL as nothing."""
    rows = list(csv.reader(io.StringIO(format_answer(TWO, AnswerFormat.CSV, View()))))
    assert rows[0] == ["plan", "avg_cost", "avg_cost_low", "avg_cost_high", "n", "n_low", "n_high"]
    assert rows[1] == ["A", "512.34", str(512.34 - 24.51), str(512.34 + 24.51), "1703", "1603.8", "1802.2"]
    assert rows[2][1] == ""


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("a\x1b[2J\x07\x9b1m\r", r"a\x1b[2J\x07\x9b1m\r"),
        ('two\nlines, "quoted"\t', 'two\nlines, "quoted"\t'),
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("-2+3", "'-2+3"),
        ("-2.5e3", "-2.5e3"),
        ("é\u202fß", "é\u202fß"),
    ],
)
def test_csv_steers_no_terminal_and_computes_nothing(value: str, cell: str) -> None:
    """Control characters are escapes, a formula is text; lines and quotes stay as RFC 4180 has them."""
    text = format_answer(
        result({"key": "VARCHAR", value: "VARCHAR"}, [("b", value)]), AnswerFormat.CSV, View()
    )
    assert not any(ord(char) < 32 and char not in "\n\t" for char in text)
    assert list(csv.reader(io.StringIO(text))) == [["key", cell], ["b", cell]]


def test_json_holds_rows_and_receipt() -> None:
    """JSON is for programs too: rows by name, dates as text, nothing that is no JSON."""
    answer = result({"d": "DATE", "x": "DOUBLE", "ok": "BOOLEAN"}, [(dt.date(2024, 1, 2), math.nan, True)])
    data = json.loads(format_answer(answer, AnswerFormat.JSON, View()))
    assert data["rows"] == [{"d": "2024-01-02", "x": None, "ok": True}]
    assert data["receipt"]["query"] == "q"


def test_a_map_is_written_with_its_keys_as_texts() -> None:
    """A table shows no count below zero; JSON, and a cell of CSV, hold an object with the counts as they are."""
    answer = result({"h": "MAP(DATE, BIGINT)"}, [({dt.date(2024, 1, 2): 1234, dt.date.max: -3},)])
    assert (
        format_answer(answer, AnswerFormat.TABLE, View()).splitlines()[-1]
        == "{2024-01-02: 1,234, 9999-12-31: 0}"
    )
    counts = {"2024-01-02": 1234, "9999-12-31": -3}
    assert json.loads(format_answer(answer, AnswerFormat.JSON, View()))["rows"] == [{"h": counts}]
    _, (cell,) = csv.reader(io.StringIO(format_answer(answer, AnswerFormat.CSV, View())))
    assert json.loads(cell) == counts


def test_equal_names_are_numbered() -> None:
    """No column is lost to another of its name."""
    answer = Result(
        ("n", "n", "n_2"), ("BIGINT",) * 3, ((1, 2, 3),), ((None,) * 3,), RECEIPT, lambda *_: None
    )
    names, rows = flatten_result(answer)
    assert len(set(names)) == 3
    assert rows == [[1, 2, 3]]


def test_markdown_escapes_its_own_marks() -> None:
    """A bar in a name or value does not end the cell."""
    lines = format_answer(result({"a|b": "VARCHAR"}, [("c|d",)]), AnswerFormat.MARKDOWN, View()).splitlines()
    assert lines == [r"| a\|b |", "| --- |", r"| c\|d |"]


@pytest.mark.parametrize("style", list(AnswerFormat))
def test_an_empty_answer_is_written(style: AnswerFormat) -> None:
    """No row passes: the names are shown all the same."""
    text = format_answer(result({"ward": "VARCHAR", "n": "BIGINT"}, []), style, View())
    assert "ward" in text
