"""The session: entries in, text out."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import pytest
from small_study import SECRET

import dpsql
from dpsql.interfaces.shell.answers import AnswerFormat, View
from dpsql.interfaces.shell.commands import COMMANDS
from dpsql.interfaces.shell.session import Session, is_unfinished, split_entry
from dpsql.interfaces.shell.settings import SessionState
from dpsql.privacy.accounting import Charge

COUNT = "SELECT COUNT(*) FROM visits"


def ask(session: Session, entry: str) -> str:
    """The text of the one reply to an entry, which must not fail."""
    (reply,) = session.iterate_replies(entry)
    assert not reply.failed, reply.text
    return reply.text


def fail(session: Session, entry: str) -> str:
    """The text of the one reply to an entry, which must fail."""
    (reply,) = session.iterate_replies(entry)
    assert reply.failed, reply.text
    return reply.text


def spent(session: Session) -> Charge:
    return session.state.connection.budget()["visits"].spent


def test_an_answer_is_followed_by_its_charge(session: Session) -> None:
    """The answer is a table with its interval, then one line with the charge and what is left."""
    head, rule, row, cost = ask(session, f"{COUNT};").splitlines()
    assert head.split() == ["count_star()", "±95%"]
    assert set(rule) == {"─"}
    assert len(row.split()) == 2
    assert cost.startswith("charged to visits: ε 1 (ρ 0.463); ")
    assert spent(session).loss > 0


def test_an_analyst_s_own_budget_is_shown(study: tuple[Path, Path]) -> None:
    """Where it has less left than the table's, the prompt is about it; prices and the list of budgets name both."""
    database, policy = study
    rules = policy.read_text(encoding="utf-8") + "analysts: {ana: {epsilon: 3}}\n"
    with dpsql.connect(str(database), policy=rules, ledger=":memory:", analyst="ana") as connection:
        session = Session(SessionState(connection, epsilon=Fraction(1, 4)))
        costs = ask(session, f"{COUNT};").splitlines()[-2:]
        assert [line.partition(":")[0] for line in costs] == [
            "charged to visits",
            "charged to visits for ana",
        ]
        assert session.format_prompt().startswith("dpsql(visits for ana ε ")
        assert "visits for ana" in ask(session, "\\budget")


def test_several_statements_are_answered_in_order(session: Session) -> None:
    """Statements of one entry are answered one by one; a refusal does not stop the next."""
    replies = list(session.iterate_replies("SELECT AVG(cost) FROM visits; SELECT cost FROM visits; \\budget"))
    assert [reply.failed for reply in replies] == [False, True, False]


def test_a_refusal_shows_code_place_and_hint(session: Session) -> None:
    """An error is a reply: its stable code, a caret under the place, what to write instead; no charge."""
    text = fail(session, "SELECT plan, COUNT(*)\nFROM vists;")
    assert text.splitlines() == [
        "error[table]: there is no table vists (line 2, column 6)",
        "  FROM vists",
        "       ^",
        "hint: did you mean visits?",
    ]
    assert spent(session) == Charge(0, 0)


def test_a_query_without_epsilon_is_refused(session: Session) -> None:
    """There is no built-in default of ε; the error explains how to set one."""
    session.state.epsilon = None
    for entry in (f"{COUNT};", f"EXPLAIN {COUNT};", f"\\explain {COUNT}"):
        assert "\\epsilon 0.1" in fail(session, entry)
    assert "0.25" in ask(session, "\\epsilon 0.25")
    assert "ε 0.25" in ask(session, f"{COUNT};")


@pytest.mark.parametrize("text", ["nan", "-1", "0", "inf", "1e", "a lot"])
def test_a_senseless_epsilon_changes_nothing(session: Session, text: str) -> None:
    """Only a finite number above zero is a loss."""
    assert "error[loss]" in fail(session, f"\\epsilon {text}")
    assert session.state.epsilon == Fraction(1)


@pytest.mark.parametrize(
    "entry",
    [
        *(
            "\\d",
            "\\d visits",
            '\\d "Visits"',
            "\\budget",
            "\\?",
            "\\epsilon",
            "\\delta",
            "\\groups",
            "\\format",
        ),
        *("\\receipt", f"\\explain {COUNT}", f"EXPLAIN {COUNT};", f"-- why\n/* so */ explain {COUNT};"),
        *("SHOW TABLES;", "show all tables", "DESCRIBE visits;", "desc regions", "help", "-- nothing", ";;"),
    ],
)
def test_looking_is_free(session: Session, entry: str) -> None:
    """Commands, plans and the catalogue come from the policy: nothing is charged for them."""
    for reply in session.iterate_replies(entry):
        assert not reply.failed, reply.text
    assert spent(session) == Charge(0, 0)


def test_the_catalogue_is_the_policys(session: Session) -> None:
    """Tables and columns that the policy leaves out do not exist; bounds and domains are shown."""
    assert [line.split()[0] for line in ask(session, "\\d").splitlines()[2:]] == ["visits", "regions"]
    columns = ask(session, "\\d VISITS")
    assert "A, B, C" in columns
    assert "[0, 1000]" in columns
    assert "[2020-01-01, 2025-12-31]" in columns
    assert "privacy unit" in columns
    assert "at most 10 rows per patient are counted" in columns
    assert "undeclared" not in columns
    assert ask(session, "\\d+ visits") == columns
    assert ask(session, "\\dt+") == ask(session, "\\d")
    assert "there is no table wages" in fail(session, "\\d wages")


def test_settings_reach_the_query(session: Session) -> None:
    """Groups, delta and format hold until they are changed."""
    ask(session, "\\groups 1")
    ask(session, "\\delta 1e-8")
    ask(session, "\\format json")
    data = json.loads(
        ask(session, "SELECT region, COUNT(DISTINCT patient_id) AS n FROM visits GROUP BY region;")
    )
    assert data["receipt"]["entries"][0]["delta"] == str(Fraction(1, 10**8))
    assert data["receipt"]["mechanisms"][0]["l1_sensitivity"] == "1"
    assert session.state.format is AnswerFormat.JSON
    assert "as many groups" in ask(session, "\\groups auto")
    assert "error[max_groups]" in fail(session, "\\groups none")
    assert "error[argument]" in fail(session, "\\format xml")


def test_a_session_has_a_dialect(session: Session) -> None:
    """Queries are read in it until it is changed, plans too; one that there is not changes nothing."""
    assert "dialect is duckdb" in ask(session, "\\dialect")
    assert "dialect is tsql" in ask(session, "\\dialect TSQL")
    assert "error[dialect]" in fail(session, "\\dialect mysql")
    assert "A" in ask(
        session, "SELECT TOP 1 [plan], COUNT(*) AS n FROM visits GROUP BY [plan] ORDER BY [plan];"
    )
    assert "Scan visits" in ask(session, "\\explain SELECT TOP 1 COUNT(*) AS n FROM [visits]")
    ask(session, "\\dialect duckdb")
    assert "error[syntax]" in fail(session, "SELECT TOP 1 COUNT(*) AS n FROM [visits];")


def test_rows_as_lines(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that is wider than the terminal is shown as lines by itself, on request always, and never in a pipe."""
    sql = "SELECT plan, AVG(cost) AS the_average_cost_of_visits, COUNT(*) AS the_number_of_visits FROM visits GROUP BY plan;"
    assert ask(session, sql).split()[0] == "plan"
    session.state.view = View(fit=True)
    for columns, first in ((60, "─ row 1 "), (200, "plan")):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = ask(session, sql)
        assert text.startswith(first)
        assert all(len(line) <= columns for line in text.splitlines())
    ask(session, "\\x on")
    lines = ask(session, sql).splitlines()
    assert lines[0].startswith("─ row 1 ─")
    assert lines[1].split() == ["plan", "A"]
    assert re.fullmatch(r"the_average_cost_of_visits  -?[\d.,]+ ± [\d.,]+", lines[2])
    ask(session, "\\x off")
    assert ask(session, f"{sql[:-1]} \\gx").startswith("─ row 1 ")
    assert ask(session, sql).split()[0] == "plan"
    assert "error[argument]" in fail(session, "\\x perhaps")


def test_narrow_terminals_break_no_word(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets, and the columns of an answer without rows, where they are wider than the terminal."""
    session.state.view = View(fit=True)
    monkeypatch.setenv("COLUMNS", "40")
    said = ask(session, "\\budget")
    assert re.search(r"(?m)^accountant +\w+$", said)
    assert max(map(len, said.splitlines())) <= 40
    none = ask(
        session, "SELECT plan, cost AS what_a_visit_costs_us, day AS the_day_of_it FROM visits LIMIT 0;"
    )
    assert none.splitlines()[:2] == ["no rows; columns: plan,", "what_a_visit_costs_us, the_day_of_it"]
    monkeypatch.setenv("COLUMNS", "200")
    assert ask(session, "\\budget").splitlines()[0].split()[:2] == ["table", "used"]


def test_files_in_and_out(session: Session, tmp_path: Path) -> None:
    r"""\i answers the entries of a file, \o writes answers to one, \g to one for once; what they cost is still told."""
    questions, out, once = tmp_path / "q.sql", tmp_path / "out.csv", tmp_path / "once.json"
    questions.write_text(f"{COUNT};\nSELECT nothing FROM visits;\n\\epsilon\n")
    assert [reply.failed for reply in session.iterate_replies(f"\\i {questions}")] == [False, True, False]
    assert "as csv" in ask(session, f"\\o {out}")
    for _ in range(2):
        (reply,) = session.iterate_replies(f"{COUNT};")
        assert (reply.text, reply.note) == (f"wrote {out}", True)
        assert "nothing was charged" in reply.remarks
    assert out.read_text().splitlines().count("count_star(),count_star()_low,count_star()_high") == 2
    assert ask(session, f"\\g {once}") == f"wrote {once}"
    assert set(json.loads(once.read_text())) == {"columns", "rows", "notices", "receipt"}
    assert "shown here again" in ask(session, "\\o")
    assert ask(session, f"{COUNT};").startswith("count_star()")
    assert ask(session, "SHOW TABLES \\g").split()[0] == "table"
    assert ask(session, f"EXPLAIN {COUNT} \\g").startswith("Price")
    for entry in (f"\\o {tmp_path}", f"\\i {tmp_path}/none.sql", "\\i"):
        assert "error[" in fail(session, entry)
    questions.write_text(f"\\i {questions}\n")
    assert "error[file]" in fail(session, f"\\i {questions}")


def test_settings_by_command(session: Session) -> None:
    r"""Each says what holds from now on; \watch says why it does nothing."""
    assert ask(session, "\\timing").startswith("running times")
    assert re.search(r"\nin \d+\.\d{3} s$", ask(session, f"{COUNT};"))
    assert ask(session, "\\pager off") == "the pager is off"
    assert ask(session, "\\theme none") == "the theme is none"
    assert "error[argument]" in fail(session, "\\theme mud")
    assert ask(session, "\\ask 0.3").startswith("a query that costs more than ε 0.3")
    assert "returns the stored answer" in fail(session, "\\watch 5")
    assert "requires a terminal" in fail(session, "\\e")


def test_unknown_commands_name_the_nearest(session: Session) -> None:
    """A slip is told what was meant; the commands of other shells are told where they are."""
    assert "did you mean \\budget?" in fail(session, "\\bugdet")
    assert "\\d lists the tables" in fail(session, ".tables")


@pytest.mark.parametrize("entry", ["\\q", "quit", "exit;", "EXIT"])
def test_leaving(session: Session, entry: str) -> None:
    """Each way out ends the session, and nothing after it in the entry is answered."""
    assert [reply.quit for reply in session.iterate_replies(entry)] == [True]


def test_the_prompt_shows_the_remaining_epsilon(session: Session) -> None:
    """The ε of the largest query that still fits, rounded down, of the table charged last."""
    before = session.format_prompt()
    assert before.startswith("dpsql(visits ε ")
    assert before.endswith(" left)> ")
    ask(session, f"{COUNT};")
    assert session.format_prompt() < before
    left = Fraction(session.format_prompt().split()[2])
    assert left <= session.state.connection.budget()["visits"].remaining_epsilon


def test_the_prompt_survives_a_lost_ledger(session: Session) -> None:
    """A ledger that cannot be read is told by the next query, not by a crash at the prompt."""
    session.state.connection.close()
    assert session.format_prompt() == "dpsql> "


def test_an_unforeseen_error_quotes_no_value(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of an unknown exception may quote a value, so the reply has only its type and place."""

    def broken(*_: Any, **__: Any) -> NoReturn:
        raise ValueError(f"could not convert {SECRET}")

    monkeypatch.setattr(session.state.connection, "query", broken)
    text = fail(session, f"{COUNT};")
    assert "error[internal]" in text
    assert SECRET not in text
    assert "ValueError at" in text


@pytest.mark.parametrize(
    "entry",
    [
        *(
            "SELECT note FROM visits;",
            "SELECT note, COUNT(*) FROM visits GROUP BY note;",
            "SELECT * FROM visits;",
        ),
        "SELECT SUM(CAST(note AS BIGINT)) FROM visits;",
        "SELECT COUNT(*) FROM visits WHERE CAST(note AS DATE) > '2024-01-01';",
        "SELECT MAX(note) FROM visits;",
        *("SELECT * FROM duckdb_tables();", "COPY visits TO 'x.csv';", "SELECT COUNT(*) FROM wages;"),
        *("\\d visits", "\\receipt", f"\\explain {COUNT}", "\\explain SELECT note FROM visits"),
    ],
)
def test_no_exact_value_is_shown(session: Session, entry: str) -> None:
    """Whatever is typed, no reply holds a value of a private text column."""
    for style in AnswerFormat:
        session.state.format = style
        for reply in session.iterate_replies(entry):
            assert SECRET not in reply.text


def test_colours_are_only_for_terminals(session: Session) -> None:
    """A pipe gets plain text, a terminal the same text with colours."""
    plain = fail(session, "SELECT nothing FROM visits;")
    assert "\x1b" not in plain
    session.state.view = View(color=True)
    assert "\x1b[" in fail(session, "SELECT nothing FROM visits;")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.names[0])
def test_every_command_is_in_the_help(session: Session, command: Any) -> None:
    """The registry is the help."""
    assert f"\\{command.names[0]}" in ask(session, "\\?")


def test_when_an_entry_is_complete() -> None:
    """SQL ends at a semicolon, a command with its line."""
    for entry in (
        "\\d",
        " \\explain SELECT 1",
        ".mode",
        "quit",
        "",
        "SELECT 1;",
        "SELECT 1; -- so",
        "a; \\q",
        "SELECT 1\n\\d",
        "SELECT 1 \\g",
    ):
        assert not is_unfinished(entry), entry
    for entry in ("SELECT 1", "SELECT ';", "SELECT 1; SELECT 2", "SELECT 1 -- ;", "/* ;"):
        assert is_unfinished(entry), entry
    assert list(split_entry("a ; b")) == ["a", "b"]
    assert list(split_entry("\\explain a; b")) == ["\\explain a; b"]


def test_tables_of_the_session(session: Session) -> None:
    """They are made, listed, asked and dropped in the shell, at what the statement says; and asked without any loss set."""
    made = ask(session, "CREATE SYNTHETIC TABLE s AS SELECT plan FROM visits WITH (epsilon = 0.5);")
    assert "charged to visits: ε 0.5" in made
    session.state.epsilon = None
    assert "synthetic" in ask(session, "SHOW TABLES")
    assert "free" in ask(session, "\\d S")
    found = ask(session, "SELECT COUNT(*) AS n FROM s;")
    assert found.endswith("nothing was charged: ledger entry 1 paid for the table")
    assert ask(session, "DROP TABLE s").endswith("nothing was charged")
    assert "no privacy loss given" in fail(session, "SELECT COUNT(*) FROM s")
