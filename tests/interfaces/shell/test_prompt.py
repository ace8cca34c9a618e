"""The terminal around the session, with keys from a pipe; and the pipe without a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from dpsql.interfaces.shell.prompt import get_history_path, iterate_entries, run_interactive, run_piped
from dpsql.interfaces.shell.session import Session

COUNT = "SELECT COUNT(*) FROM visits"
CTRL_C, CTRL_D, ENTER = "\x03", "\x04", "\r"


def typed(session: Session, keys: str, history: Path | None = None) -> list[str]:
    """What the shell writes for these keys, to which Ctrl-D is added."""
    out: list[str] = []
    with create_pipe_input() as source:
        source.send_text(keys + CTRL_D)
        run_interactive(session, out.append, history=history, source=source, screen=DummyOutput())
    return out


def test_a_statement_runs_over_lines_until_its_semicolon(session: Session) -> None:
    """Enter goes on to the next line until the statement ends."""
    (text,) = typed(session, f"SELECT COUNT(*){ENTER}FROM visits{ENTER};{ENTER}")
    assert text.startswith("count_star()")


def test_a_command_ends_with_its_line(session: Session) -> None:
    """A backslash command needs no semicolon."""
    (text,) = typed(session, f"\\budget{ENTER}")
    assert text.startswith("table")


def test_ctrl_c_discards_the_typed_statement(session: Session) -> None:
    """Nothing of a cancelled statement is run; the shell goes on."""
    (text,) = typed(session, f"SELECT COUNT(*) FROM vis{CTRL_C}\\epsilon{ENTER}")
    assert text == "each query is charged ε 1"
    assert session.state.connection.budget()["visits"].queries == 0


def test_quit_leaves_at_once(session: Session) -> None:
    """What follows the command that leaves is not read."""
    assert typed(session, f"\\q{ENTER}\\budget{ENTER}") == []


def test_an_interrupted_query_leaves_the_shell_alive(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a query is prepared ends it, and says that nothing was charged."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session.state.connection, "query", interrupted)
    first, second = typed(session, f"{COUNT};{ENTER}\\epsilon{ENTER}")
    assert first == "interrupted; nothing was charged"
    assert second.startswith("each query")


def test_an_interrupted_query_reports_its_charge(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the engine works: the charge stays, and the message names its entry."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(session.state.connection.engine.backend), "run_statement", interrupted)
    first, second = typed(session, f"{COUNT};{ENTER}\\budget{ENTER}")
    assert (
        first
        == "interrupted after the charge, which stays: ledger entry 1; it counts as a failure of its tables"
    )
    assert second.splitlines()[2].split()[3] == "2"  # the charge and the failure


def test_commands_within_a_statement(session: Session) -> None:
    r"""A command on a further line is answered, and the statement goes on; \r drops it, \g sends it."""
    keys = f"SELECT COUNT(*) AS n{ENTER}\\d{ENTER}FROM visits \\g{ENTER}SELECT{ENTER}\\r{ENTER}\\p{ENTER}"
    tables, answer, dropped, printed = typed(session, keys)
    assert tables.split()[0] == "table"
    assert answer.split()[0] == "n"
    assert dropped == "discarded the typed statement"
    assert printed.split() == ["SELECT", "COUNT(*)", "AS", "n", "FROM", "visits"]


def test_a_price_above_the_threshold_needs_confirmation(session: Session) -> None:
    """Above the threshold the price is shown, and the query runs only after a yes; free queries need no confirmation."""
    keys = f"\\ask 0.5{ENTER}{COUNT};{ENTER}n{ENTER}\\budget{ENTER}{COUNT};{ENTER}y{ENTER}{COUNT};{ENTER}"
    _, declined, budget, asked, again = typed(session, keys)
    assert declined == "not run; nothing was charged"
    assert budget.splitlines()[2].split()[4] == "0"
    assert "charged to visits: ε 1 " in asked
    assert "nothing was charged" in again


def test_a_statement_is_edited(session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The editor's text is what the next entry begins with: Enter sends it, nothing else does."""
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/nothing/cost/' \"$1\"\n")
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    failed, answer = typed(session, f"SELECT AVG(nothing) FROM visits;{ENTER}\\e{ENTER};{ENTER}")
    assert "error[column]" in failed
    assert answer.startswith("avg(cost)")
    monkeypatch.setenv("VISUAL", "false")
    (failed,) = typed(session, f"\\e{ENTER}")
    assert "error[editor]" in failed


def test_standard_output_of_a_pipe_has_answers_only(session: Session) -> None:
    """Charges and confirmations are written to standard error if answers are data."""
    out: list[str] = []
    beside: list[str] = []
    lines = ["\\format csv\n", "\\timing\n", "SELECT COUNT(*) AS n FROM visits;\n"]
    assert run_piped(session, lines, out.append, beside.append)
    (csv,) = out
    assert csv.splitlines()[0] == "n,n_low,n_high"
    assert len(csv.splitlines()) == 2
    *settings, cost = beside
    assert [text.split()[0] for text in settings] == ["the", "running"]
    # What was charged and how long it took, and what a learnt clamp may cut, which not each answer has to say.
    assert [line.split()[0] for line in cost.splitlines() if not line.startswith("Up to")] == [
        "charged",
        "in",
    ]


def test_the_history_has_statements_only_and_is_private(session: Session, tmp_path: Path) -> None:
    """The file has the typed statements, without answers and commands, and only its user may read it."""
    path = tmp_path / "state" / "dpsql" / "history"
    out = typed(session, f"{COUNT};{ENTER}\\budget{ENTER}", path)
    kept = path.read_text(encoding="utf-8")
    assert f"+{COUNT};" in kept
    assert "budget" not in kept
    assert not any(line and line in kept for text in out for line in text.splitlines())
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_history_of_another_day_is_there(session: Session, tmp_path: Path) -> None:
    """The arrow brings back what was typed in an earlier session."""
    path = tmp_path / "history"
    typed(session, f"{COUNT};{ENTER}", path)
    (text,) = typed(session, f"\x1b[A{ENTER}", path)
    assert text.startswith("count_star()")


def test_an_unwritable_history_stays_in_memory(session: Session, tmp_path: Path) -> None:
    """The shell works without a writable history file."""
    (tmp_path / "file").write_text("")
    assert len(typed(session, f"\\epsilon{ENTER}", tmp_path / "file" / "history")) == 1


def test_the_history_is_in_the_xdg_state_directory() -> None:
    """The XDG directory for state if it is absolute, else the one under the home directory."""
    assert get_history_path({"XDG_STATE_HOME": "/s"}) == Path("/s/dpsql/history")
    home = Path.home() / ".local" / "state" / "dpsql" / "history"
    assert get_history_path({"XDG_STATE_HOME": "relative"}) == get_history_path({}) == home


def test_a_pipe_is_answered_statement_by_statement(session: Session) -> None:
    """Statements may share lines or run over them; refusals go elsewhere, and the rest is answered."""
    out: list[str] = []
    errors: list[str] = []
    lines = [f"{COUNT}; SELECT\n", "AVG(cost) FROM visits;\n", "SELECT nothing FROM visits;\n", "\\epsilon\n"]
    assert not run_piped(session, lines, out.append, errors.append)
    assert [text.split()[0] for text in out] == ["count_star()", "avg(cost)", "each"]
    assert len(errors) == 1


def test_a_pipe_without_errors_is_fine(session: Session) -> None:
    """The last statement may lack its semicolon; what follows a quit is not read."""
    out: list[str] = []
    assert run_piped(session, ["-- hello\n", "\n", COUNT], out.append)
    assert len(out) == 1
    assert run_piped(session, ["quit\n", "SELECT nothing"], out.append)
    assert len(out) == 1


def test_entries_of_a_pipe() -> None:
    """Commands end with their line, wherever they begin, also amid a statement; statements at their semicolon."""
    lines = ["a;\\d x\n", "b\n", "\\c; -- d\n", "c;\n", "d '\\x' \\g out.csv\n", "e\n", "\\r\n", "\\q\n"]
    assert list(iterate_entries(lines)) == [
        *("a;", "\\d x", "\\c; -- d", "b\nc;", "d '\\x' \\g out.csv", "e \\r", "\\q"),
    ]
