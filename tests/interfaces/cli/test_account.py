"""`dpsql account` prints what each accountant charges, and draws it."""

from __future__ import annotations

import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from interfaces.cli.conftest import Run

from dpsql.privacy.accounting import ACCOUNTANTS, Composed, Pure, Selection
from dpsql.privacy.accounting.events import to_json

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "privacy-accounting.md").read_text(encoding="utf-8")


def rows(text: str) -> dict[str, list[str]]:
    """The cells of each accountant's line."""
    table, _, _ = text.partition("\n\n")
    return {line.split()[0]: line.split()[1:] for line in table.splitlines()[2:]}


def test_the_documented_example_prints_the_documented_output(run: Run) -> None:
    """The example in docs/how-to/privacy-accounting.md, to the letter."""
    shown = re.search(r"(?m)^\$ dpsql account (.*)\n((?:.*\n)+?)```", PAGE)
    assert shown is not None
    ran = run("account", *shown[1].split())
    assert (ran.code, ran.err) == (0, "")
    assert [line.rstrip() for line in ran.out.splitlines()] == shown[2].splitlines()


def test_every_accountant_has_a_line(run: Run) -> None:
    """16 releases at 0.1 are 1.6 under pure; the order is the registry's, and a refusal says why."""
    found = rows(run("account", "--pure", "0.1x16").out)
    assert list(found) == list(ACCOUNTANTS)
    assert found["pure"] == ["1.6", "ε", "0", "1.6"]
    assert [found[name][1] for name in found] == ["ε", "ε", "ρ", "μ²"]
    refused = run("account", "--gaussian", "10x3").out
    assert "the accountant pure cannot charge a Gaussian release" in refused
    assert rows(refused)["zcdp"][:2] == ["0.015", "ρ"]


def test_every_kind_of_release_adds_up(run: Run) -> None:
    """Options may be repeated and mixed; δ is charged where releases have one."""
    ran = run(
        "account", "--pure", "0.1", "--pure", "0.2x2", "--range", "0.5", "--select", "1e-9x3",
        "--approximate", "0.25,1e-9", "--delta", "1e-5",
    )  # fmt: skip
    assert rows(ran.out)["basic"] == ["1.25", "ε", "4e-9", "1.25"]


def test_events_are_read_from_a_file(run: Run, tmp_path: Path) -> None:
    """A file of events as ledgers keep them counts like the options; other texts are refused."""
    path = tmp_path / "events.txt"
    event = Composed((Pure(Fraction(1, 4)), Selection(Fraction(1, 10**8))))
    path.write_text(f"{to_json(event)}\n\n{to_json(Pure(Fraction(1, 2)))}\n", encoding="utf-8")
    assert rows(run("account", "--events", path).out)["pure"] == ["0.75", "ε", "1e-8", "0.75"]
    path.write_text("0.5\n", encoding="utf-8")
    ran = run("account", "--events", path)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error[event_text]")
    ran = run("account", "--events", tmp_path / "none")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error[events_unavailable]")


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--pure", "0"),
        ("--pure", "-1"),
        ("--pure", "many"),
        ("--pure", "nan"),
        ("--pure", "0.1x"),
        ("--pure", "0.1x0"),
        ("--pure", "0.1x-3"),
        ("--pure", "0.1x1000000000000"),
        ("--select", "1"),
        ("--approximate", "0.1"),
        ("--approximate", "0.1,2"),
        ("--pure", "0.1", "--delta", "0"),
        ("--pure", "0.1", "--delta", "1"),
    ],
)
def test_invalid_releases_exit_with_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    """Invalid losses, invalid counts and an empty list end with exit code 2 and print no table."""
    ran = run("account", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "Error: Invalid value" in ran.err


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_a_picture_is_drawn(run: Run, tmp_path: Path, name: str, start: bytes) -> None:
    """The ending says which format; what is drawn is said."""
    ran = run("account", "--pure", "0.1x100", "--gaussian", "20", "--plot", tmp_path / name)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith(f"wrote the plot to {tmp_path / name}\n")
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_picture_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    """An unknown ending, and a directory that is not there, are errors with a way out."""
    for path in (tmp_path / "a.docx", tmp_path / "none" / "a.png"):
        ran = run("account", "--pure", "0.1", "--plot", path)
        assert ran.code == 1
        assert ran.err.startswith("error[plot_unwritten]")


def test_without_matplotlib_a_picture_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the extra to install, and nothing is written."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    ran = run("account", "--pure", "0.1", "--plot", tmp_path / "a.png")
    assert ran.code == 1
    assert ran.err.startswith("error[plot_unavailable]")
    assert "pip install '.[plot]'" in ran.err
    assert not list(tmp_path.iterdir())
