"""`dpsql report`: the numbers are the ledger's, and what analysts wrote is text."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import pytest
from small_study import write_study

import dpsql
from dpsql.interfaces.report import LedgerSummary, render_page
from dpsql.ledger.reader import LedgerReader
from dpsql.results.charts import MOST_LINES, render_step_chart

TOTAL = "SELECT SUM(cost) AS cost FROM visits"
SCRIPT = "SELECT COUNT(*) AS n FROM visits WHERE plan <> '</td><script>alert(1)</script>'"
ASKED = (("ana", TOTAL, 0.5), ("<b>bob", SCRIPT, 0.25), ("ana", TOTAL.replace(" AS", "\n  AS"), 0.5))
BEGUN = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Page(HTMLParser):
    """The cells of a page, its elements and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self._open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "td":
            self.cells.append("")
        self._open = tag == "td" or (self._open and tag != "td")

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag != "td"

    def handle_data(self, data: str) -> None:
        if self._open:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of three charges, ten days apart."""
    study, policy = write_study(tmp_path_factory.mktemp("report"))
    for place, (who, sql, epsilon) in enumerate(ASKED):
        with (
            mock.patch(
                "dpsql.ledger.protocol.datetime", **{"now.return_value": BEGUN + timedelta(days=10 * place)}
            ),
            dpsql.connect(str(study), policy=policy, analyst=who, replay=False) as connection,
        ):
            connection.query(sql, epsilon=epsilon)
    return study.with_suffix(".ledger")


def summed_up(ledger: Path) -> LedgerSummary:
    with closing(LedgerReader.open(ledger)) as history:
        return LedgerSummary.from_ledger(history)


def test_the_numbers_are_the_ledger_s(ledger: Path) -> None:
    """What is spent, by whom, on what: as the entries say, whatever the layout of a query's text."""
    summary = summed_up(ledger)
    (state,) = summary.states
    with closing(LedgerReader.open(ledger)) as history:
        losses = [entry.spend.loss for entry in history.iterate_entries()]
    assert state.spent.loss == sum(losses)
    parts = [Fraction(loss, state.limit.loss) for loss in losses]
    ana, bob = summary.analysts
    assert (ana.who, ana.charges, ana.part, ana.last) == (
        "ana",
        2,
        parts[0] + parts[2],
        BEGUN + timedelta(days=20),
    )
    assert (bob.who, bob.charges, bob.part, bob.last) == ("<b>bob", 1, parts[1], BEGUN + timedelta(days=10))
    assert [(each.who, each.charges) for each in summary.queries] == [(TOTAL, 2), (SCRIPT, 1)]
    assert [step.part for step in summary.spending[state.key]] == [sum(parts[: n + 1]) for n in range(3)]
    # All was spent in the last 20 days: what is left lasts as much longer as it is more.
    left = 1 - sum(parts)
    end = summary.exhaustion_dates[state.key]
    assert end is not None
    assert abs(end - BEGUN - timedelta(days=20 + float(20 * left / sum(parts)))) < timedelta(minutes=1)


def test_a_page_escapes_texts_and_loads_nothing(ledger: Path) -> None:
    """Texts of analysts are escaped, and nothing is fetched or run."""
    text = render_page(summed_up(ledger), "study.ledger")
    assert text == render_page(summed_up(ledger), "study.ledger")
    found = Page(text)
    assert {"<b>bob", SCRIPT, TOTAL, "ana"} <= set(found.cells)
    named = {tag for tag, _ in found.elements}
    assert not named & {"script", "b", "img", "link", "iframe", "a", "object"}
    assert not {
        name
        for _, given in found.elements
        for name in given
        if name in {"src", "href", "style"} or name.startswith("on")
    }
    assert ("meta", "default-src 'none'; style-src 'unsafe-inline'") in [
        (tag, given.get("content")) for tag, given in found.elements
    ]
    assert "url(" not in text


def test_a_ledger_without_charges(tmp_path: Path) -> None:
    """Its budgets, and that nothing was charged."""
    study, policy = write_study(tmp_path)
    dpsql.connect(str(study), policy=policy).close()
    text = render_page(summed_up(study.with_suffix(".ledger")), "study.ledger")
    assert "Nothing was charged yet." in text
    assert "<svg" not in text
    assert "visits" in Page(text).cells


@pytest.mark.parametrize(
    ("parts", "heights"),
    [([Fraction(1, 4), Fraction(1)], [176.5, 10.0]), ([Fraction(0)], [232.0]), ([Fraction(5, 4)], [10.0])],
)
def test_steps_are_drawn_to_scale(parts: list[Fraction], heights: list[float]) -> None:
    """From the bottom line to the top one, which nothing passes."""
    steps = [(BEGUN + timedelta(days=day), part) for day, part in enumerate(parts)]
    drawn = render_step_chart({"visits": steps}, "spent")
    (line,) = [part for part in drawn.splitlines() if 'class="line' in part]
    assert [float(part) for part in _after(line, "V")] == heights
    assert (
        len(
            [
                part
                for part in render_step_chart({f"{n}": steps for n in range(9)}, "spent").splitlines()
                if 'class="line' in part
            ]
        )
        == MOST_LINES
    )


def _after(path: str, letter: str) -> list[str]:
    return [part.split("H")[0] for part in path.split('d="')[1].split('"', maxsplit=1)[0].split(letter)[1:]]
