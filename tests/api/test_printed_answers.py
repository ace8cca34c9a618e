"""An answer as `print`, a notebook and `plot` show it: each noisy value beside its interval."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import dpsql
from dpsql.api.connection import Connection
from dpsql.results.charts import IntervalPlot, draw_interval_figure
from dpsql.results.result import MOST_PRINTED, Result

pyarrow = pytest.importorskip("pyarrow")
POLICY = {
    "version": 1,
    "privacy_unit": "person",
    "budget": {"epsilon": 100},
    "tables": {
        "people": {
            "unit": "id",
            "rows_per_unit": 1,
            "columns": {
                "age": {"type": "integer", "bounds": [0, 79]},
                "city": {"type": "varchar", "values": ["<b>", "Bern"], "nullable": False},
            },
        }
    },
}


@pytest.fixture(scope="module")
def con() -> Iterator[Connection]:
    """Sixteen hundred people of eighty ages in two cities."""
    rows = range(1_600)
    table = pyarrow.table(
        {
            "id": list(rows),
            "age": [row % 80 for row in rows],
            "city": [["<b>", "Bern"][row % 2] for row in rows],
        }
    )
    with dpsql.connect({"people": table}, policy=POLICY, ledger=":memory:", epsilon=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def cities(con: Connection) -> Result:
    """A count and a mean of each city."""
    return con.query("SELECT city, COUNT(*) AS n, AVG(age) AS age FROM people GROUP BY city ORDER BY city")


def test_noisy_values_are_printed_with_half_widths(cities: Result) -> None:
    """Both in text and in HTML, in which cells are escaped."""
    assert str(cities).splitlines()[0].split() == ["city", "n", "±95%", "age", "±95%"]
    assert cities._repr_html_().count(">±95%</th>") == 2
    assert "&lt;b&gt;" in cities._repr_html_()


def test_long_answers_are_cut_only_in_print(con: Connection) -> None:
    """The printed text has the number of further rows; rows, frames and `texts` have all."""
    found = con.query("SELECT age, COUNT(*) AS n FROM people GROUP BY age ORDER BY age")
    assert len(found) == len(found.texts()) > MOST_PRINTED
    more = f"… and {len(found) - MOST_PRINTED} more rows"
    assert str(found).splitlines()[MOST_PRINTED + 2] == more
    assert f"<p>{more}</p>" in found._repr_html_()
    assert found._repr_html_().count("<tr>") == MOST_PRINTED + 1


def test_no_rows_and_no_noise_print(con: Connection) -> None:
    """A head alone, and constants."""
    assert str(
        con.query("SELECT city, COUNT(*) AS n FROM people GROUP BY city HAVING COUNT(*) > 9999")
    ).startswith("city")
    assert "±" not in str(con.query("SELECT 1 AS one"))


@pytest.mark.parametrize(
    ("x", "labels"), [(None, ["<b>", "Bern"]), ("city", ["<b>", "Bern"]), ((), ["", ""])]
)
def test_plot_draws_each_interval(x: str | None, labels: list[str], cities: Result) -> None:
    """A pane for each noisy column, a bar from end to end of each interval, rows by their keys."""
    figure = cities.plot(x, title="by city")
    assert [axes.get_xlabel() for axes in figure.axes] == ["n, with 95% intervals", "age, with 95% intervals"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == labels
    assert figure.get_suptitle() == "by city"
    for place, axes in enumerate(figure.axes, 1):
        (bars,) = axes.collections
        drawn = [tuple(sorted(end for end, _ in bar.vertices)) for bar in bars.get_paths()]
        assert drawn == [pytest.approx(row[place]) for row in cities.intervals()]


def test_plot_puts_numbers_and_days_on_an_axis(con: Connection) -> None:
    """One key of numbers is the axis."""
    found = con.query("SELECT age, COUNT(*) AS n FROM people WHERE age IS NOT NULL GROUP BY age")
    (axes,) = found.plot().axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("age", "n, with 95% intervals")
    assert list(axes.lines[0].get_xdata()) == [row[0] for row in found.rows if row[0] is not None]


def test_null_has_no_place_on_an_axis() -> None:
    """And that it is left out is said."""
    points = [(2.0, (1.0, 3.0)), (5.0, (4.0, 6.0)), (3.0, (2.0, 4.0))]
    plot = IntervalPlot.from_columns(["age"], [(7,), (None,), (9,)], [("n", points)], 0.95)
    (axes,) = draw_interval_figure(plot).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("age, without NULL", "n, with 95% intervals")
    assert [list(axes.lines[0].get_data()[side]) for side in (0, 1)] == [[7, 9], [2, 3]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x": "town"}, "there is no column town"),
        ({"y": "city"}, "the column city has no intervals"),
        ({"y": []}, "nothing to draw"),
        ({"y": ["n"] * 5}, "5 columns are too many"),
    ],
)
def test_undrawable_columns_are_refused(arguments: dict[str, Any], words: str, cities: Result) -> None:
    """The error lists the columns."""
    with pytest.raises(dpsql.DataError, match=words):
        cities.plot(**arguments)


def test_plot_without_matplotlib_is_refused(cities: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib."""
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(dpsql.ProgrammingError) as caught:
        cities.plot()
    assert caught.value.code == "plot_unavailable"


def test_axes_of_whole_numbers_have_whole_ticks(con: Connection) -> None:
    """Keys 0 and 1 are drawn at 0 and 1, by matplotlib and by Altair."""
    found = con.query(
        "SELECT CASE WHEN age > 40 THEN 1 ELSE 0 END AS older, COUNT(*) AS n FROM people GROUP BY older"
    )
    figure = found.plot(x="older", y="n")
    figure.canvas.draw()
    assert all(float(tick).is_integer() for tick in figure.axes[0].get_xticks())
    drawn = found.chart(x="older", y="n").to_dict()
    assert drawn["layer"][0]["encoding"]["x"]["axis"] == {"format": "d", "values": [0, 1]}


def test_an_explanation_shows_its_lines_in_a_notebook(con: Connection) -> None:
    """As text and as HTML, where an answer shows its table."""
    said = con.explain("SELECT COUNT(*) FROM people WHERE age < 30")
    assert repr(said) == str(said)
    assert said._repr_html_().startswith('<pre style="font-family: monospace">Price\n')
    assert "age &lt; 30" in said._repr_html_()
