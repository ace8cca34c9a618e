"""The README can be followed: its Python runs, its commands work, its figures are right."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

import dpsql
from dpsql import errors
from dpsql.accounting.events import Pure
from dpsql.cli import main
from dpsql.errors import Error
from dpsql.ledger import Budget
from dpsql.ledger.protocol import Account

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?ms)^```(\w+)\n(.*?)^```$", README)


def blocks(language: str) -> list[str]:
    """The code blocks of a language, in order."""
    return [text for kind, text in BLOCKS if kind == language]


def commands() -> list[str]:
    """The lines that a reader would type at a console."""
    return [line[2:] for text in blocks("console") for line in text.splitlines() if line.startswith("$ ")]


@pytest.fixture
def exit_code(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs `dpsql …` and gives its exit code and all that it wrote."""

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        written = capsys.readouterr()
        return int(ended.value.code or 0), written.out + written.err

    return run


def test_a_newcomer_can_follow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_code: Callable[..., tuple[int, str]]
) -> None:
    """Top to bottom in an empty directory: every Python block runs, and every command does what is shown."""
    monkeypatch.chdir(tmp_path)
    database, *rest = blocks("python")
    (policy,) = blocks("yaml")
    exec(compile(database, "README.md", "exec"), {})
    Path("hie.yaml").write_text(policy, encoding="utf-8")
    for command in commands():
        program, *arguments = shlex.split(command)
        assert program == "dpsql"
        if arguments[0] == "shell":
            continue
        # Each in a ledger of its own, for here all examples together would spend more than there is.
        Path("hie.ledger").unlink(missing_ok=True)
        code, text = exit_code(*arguments)
        refused = re.search(
            re.escape(f"$ {command}") + r"\nerror\[(\w+)\].*\n((?:  .*\n)*)hint: (.*)\n", README
        )
        assert code == (0 if refused is None else 1), text
        if refused is not None:
            assert text == refused[0].partition("\n")[2]
    Path("hie.ledger").unlink(missing_ok=True)
    names: dict[str, object] = {}
    for text in rest:
        exec(compile(text, "README.md", "exec"), names)


def test_the_skeleton_is_where_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_code: Callable[..., tuple[int, str]]
) -> None:
    """`dpsql init hie.duckdb` writes hie.yaml."""
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("python")[0], "README.md", "exec"), {})
    assert exit_code("init", "hie.duckdb")[0] == 0
    assert "visits:" in Path("hie.yaml").read_text(encoding="utf-8")


def test_named_commands_exist(exit_code: Callable[..., tuple[int, str]]) -> None:
    """Each `dpsql …` in the text is a command, with the options that are named with it."""
    helped = {
        name: exit_code(name, "--help")[1] for name in re.findall(r"(?m)^  (\w+)  ", exit_code("-h")[1])
    }
    inline = re.findall(r"`(dpsql [^`]+)`", README)
    named = re.findall(r"\bdpsql (\w+)(.*)", "\n".join(commands() + blocks("sh") + inline))
    assert {name for name, _ in named} >= {"query", "explain", "check", "init", "budget", "demo", "shell"}
    for name, arguments in named:
        assert name in helped, f"dpsql {name}"
        for option in re.findall(r"(?<=\s)--?[a-z][a-z-]*", arguments.partition("#")[0]):
            assert option in helped[name], f"dpsql {name} {option}"


def test_two_commands() -> None:
    """The two commands that install and show, install and test; the scripts they name exist."""
    (text,) = blocks("sh")
    assert [line.split("  ")[0] for line in text.splitlines()] == [
        "pip install . && dpsql demo",
        "pip install -e '.[test]' && .ci/check",
    ]
    assert (ROOT / ".ci" / "check").is_file()
    assert (ROOT / ".ci" / "run").is_file()


def test_how_many_queries_a_budget_buys() -> None:
    """The figures under "What a query costs" follow from the accountant."""
    account = Account.of(Budget("zcdp", Fraction(3), Fraction(1, 10**7)))
    claimed = re.search(r"(\d+) queries at\s+ε 0.2, (\d+) at ε 0.1 or (\d+) at ε 0.05", README)
    assert claimed is not None
    for claim, epsilon in zip(claimed.groups(), ("0.2", "0.1", "0.05"), strict=True):
        assert int(claim) == account.limit.loss // account.accountant.cost(Pure(Fraction(epsilon))).loss


def test_every_exception_is_in_the_table() -> None:
    """The table has a row for each class that dpsql raises; parents in brackets do not count."""
    rows = README.split("| exception |")[1].split("\n\n")[0].splitlines()
    shown = {
        name for row in rows for name in re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", row.split("|")[1]))
    }
    raised = {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Error)
    }
    assert shown == raised - {"Error", "DatabaseError", "VerificationError"}


@pytest.mark.parametrize("link", re.findall(r"\]\((?!http)([^)]+)\)", README))
def test_links_lead_somewhere(link: str) -> None:
    """Each file that is linked to exists."""
    assert (ROOT / link).is_file()


def test_the_layout_is_the_package() -> None:
    """Every folder of the package is in the layout, and everything in the layout is in the package."""
    (text,) = blocks("text")
    named = re.findall(r"(?m)^(\S+)(?: (\S+/?))?  ", text)
    listed = {name.rstrip("/") for pair in named for name in pair if name}
    package = {
        path.name for path in (ROOT / "dpsql").iterdir() if path.is_dir() and path.name != "__pycache__"
    }
    assert package <= listed
    for name in listed:
        assert (ROOT / "dpsql" / name).exists(), name


def test_answered_and_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the README says is not answered yet is refused, at no charge."""
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks("python")[0], "README.md", "exec"), {})
    with dpsql.connect("hie.duckdb", policy=blocks("yaml")[0], ledger=":memory:", epsilon=1) as con:
        for sql in (
            "SELECT plan, (SELECT AVG(v.cost) FROM visits v WHERE v.plan = w.plan) FROM visits w GROUP BY plan",
            *(f"SELECT {name}(cost) FROM visits" for name in ("MODE", "HISTOGRAM")),
        ):
            with pytest.raises(dpsql.QueryRejected):
                con.query(sql)
        assert con.budget()["visits"].queries == 0
