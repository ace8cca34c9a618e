"""The commands, one after another, as a shell script would call them."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import pytest
from interfaces.cli.conftest import Run
from small_study import SECRET

import dpsql
from dpsql.policy import load

COUNT = "SELECT COUNT(*) AS n FROM visits"
COMMANDS = (
    *(
        "shell",
        "query",
        "explain",
        "check",
        "init",
        "suggest",
        "budget",
        "account",
        "ledger",
        "receipt",
        "demo",
    ),
)


def test_help_names_every_command(run: Run) -> None:
    """`dpsql --help` lists the commands, and each has its own help."""
    listed = run("--help")
    assert listed.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in listed.out
        assert run(command, "--help").out.startswith(f"Usage: dpsql {command}")


def test_without_a_command_there_is_help(run: Run) -> None:
    """Nothing asked is a misuse: exit code 2, and the help."""
    ran = run()
    assert ran.code == 2
    assert "Commands:" in ran.out + ran.err


def test_version(run: Run) -> None:
    """The version is that of the package."""
    assert re.fullmatch(
        rf"dpsql {re.escape(dpsql.__version__)} \(duckdb [\d.]+, sqlglot [\d.]+; Python 3[\d.]+\)\n",
        run("--version").out,
    )


def new_ledger(study: Path) -> str:
    """What the first command says of the ledger beside the database."""
    return f"created a new ledger: {study.with_suffix('.ledger')}"


def test_query_answers_and_charges(run: Run, study: Path) -> None:
    """Policy and ledger are found beside the database; a table, then what it cost."""
    ran = run("query", study, COUNT, "-e", "1")
    assert (ran.code, ran.err) == (0, f"{new_ledger(study)}\n")
    head, _, row, cost = ran.out.splitlines()
    assert head.split() == ["n", "±95%"]
    assert abs(int(row.split()[0].replace(",", "")) - 1500) < 500
    assert cost.startswith("charged to visits: ε 1 (ρ 0.463); ")
    assert study.with_suffix(".ledger").is_file()


def test_notices_stand_before_the_price(run: Run, study: Path) -> None:
    """A constant that the policy excludes is told by explain, and with the answer; in data on standard error."""
    sql = f"{COUNT} WHERE plan = 'Z'"
    told = "'Z' is not among the values that the policy lists for plan: A, B, C"
    assert told in run("explain", study, sql, "-e", "1").out
    # A head, a rule and a row; what follows the first notice depends on noise.
    _, _, _, notice, *_, price = run("query", study, sql, "-e", "1").out.splitlines()
    assert notice.startswith(told)
    assert price.startswith("charged to visits: ")
    data = run("query", study, sql, "-e", "1", "-f", "json")
    assert json.loads(data.out)["notices"][0].startswith(told)
    assert told in data.err


def test_the_clause_of_a_query_replaces_the_option(run: Run, study: Path) -> None:
    """The clause needs no option; an option with a different value is refused."""
    sql = COUNT.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1)")
    assert "as for ε = 1;" in run("explain", study, sql).out
    assert "as for ε = 1;" in run("query", study, f"EXPLAIN {sql}", "-e", "1").out
    assert run("query", study, sql).out.splitlines()[-1].startswith("charged to visits: ε 1 (ρ 0.463); ")
    ran = run("query", study, sql, "-e", "2")
    assert (ran.code, ran.out) == (3, "")
    assert "error[ambiguous]" in ran.err


def test_a_query_may_be_in_another_dialect(run: Run, study: Path) -> None:
    """`--dialect` says how a text is read, in each command that takes one."""
    sql = "SELECT TOP 1 COUNT(*) AS n FROM [visits]"
    assert run("query", study, sql, "-e", "1", "--dialect", "tsql").code == 0
    assert "Scan visits" in run("explain", study, sql, "-e", "1", "--dialect", "tsql").out
    assert run("shell", study, "-e", "1", "--dialect", "tsql", stdin=f"{sql};\n").code == 0
    for command in (("query", study, sql), ("explain", study, sql), ("shell", study)):
        ran = run(*command, "-e", "1", "--dialect", "mysql")
        assert ran.code == 1
        assert "error[dialect]" in ran.err


def test_query_reads_standard_input(run: Run, study: Path) -> None:
    """A dash stands for the text on standard input."""
    assert run("query", study, "-", "-e", "1", stdin=f"{COUNT};\n").code == 0


def test_query_as_data_leaves_the_price_to_stderr(run: Run, study: Path) -> None:
    """CSV, JSON and Markdown stand alone on standard output."""
    sql = "SELECT plan, AVG(cost) AS cost FROM visits GROUP BY plan"
    ran = run("query", study, sql, "-e", "1", "--format", "csv")
    rows = list(csv.reader(io.StringIO(ran.out)))
    assert rows[0] == ["plan", "cost", "cost_low", "cost_high"]
    assert [row[0] for row in rows[1:]] == ["A", "B", "C"]
    begun, cost = ran.err.splitlines()
    assert begun == new_ledger(study)
    assert cost.startswith("charged to visits")
    data = json.loads(run("query", study, sql, "-e", "1", "-f", "json").out)
    assert [row["plan"] for row in data["rows"]] == ["A", "B", "C"]
    assert run("query", study, sql, "-e", "1", "-f", "markdown").out.startswith("| plan | cost | ±95% |")


def test_the_analyst_is_in_the_ledger(run: Run, study: Path) -> None:
    """`--analyst` says who asked; `budget --entries` shows it to the owner."""
    run("query", study, COUNT, "-e", "1", "--analyst", "ana", "--ledger", study.parent / "other.ledger")
    policy = study.with_suffix(".yaml")
    shown = run("budget", "-p", policy, "-l", study.parent / "other.ledger", "--entries", "5").out
    assert "ana" in shown
    assert COUNT in shown
    assert not study.with_suffix(".ledger").exists()


def test_explain_charges_nothing(run: Run, study: Path) -> None:
    """The plan with its price, from the command and from EXPLAIN, even behind a comment."""
    plan = run("explain", study, COUNT, "-e", "1")
    assert (plan.code, "Price" in plan.out) == (0, True)
    assert run("query", study, f"/* the plan */ EXPLAIN {COUNT}", "-e", "1").out == plan.out
    budget = run("budget", "-p", study.with_suffix(".yaml")).out.splitlines()
    assert budget[2].split()[3] == "0"


def test_budget_before_any_question_makes_no_ledger(run: Run, study: Path) -> None:
    """Looking at a budget that nobody has touched leaves no file behind."""
    ran = run("budget", "--policy", study.with_suffix(".yaml"))
    assert "no query was answered yet" in ran.out
    assert " 0% " in ran.out
    assert not study.with_suffix(".ledger").exists()


def test_init_writes_a_skeleton_from_the_schema(run: Run, study: Path) -> None:
    """Every table and column, no value; it is refused until filled in, and never overwrites a file."""
    target = study.parent / "new.yaml"
    assert run("init", study, "-o", target).code == 0
    text = target.read_text(encoding="utf-8")
    assert "visits:" in text
    assert "undeclared: {type: integer}" in text
    assert SECRET not in text
    unfilled = run("check", target)
    assert (unfilled.code, "TODO" in unfilled.err) == (1, True)
    assert "error[file_exists]" in run("init", study, "-o", target).err
    assert target.read_text(encoding="utf-8") == text
    assert run("init", study, "-o", "-").out == text
    assert "error[file_exists]" in run("init", study).err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["query", "{db}", COUNT], 1, "error[epsilon_missing]"),
        (["query", "{db}", COUNT, "-e", "nan"], 2, "Invalid value for '--epsilon'"),
        (["query", "{db}", COUNT, "-e", "0"], 2, "Invalid value for '--epsilon'"),
        (["query", "{db}", COUNT, "-e", "1", "--max-groups", "0"], 2, "Invalid value for '--max-groups'"),
        (["query", "{db}", COUNT, "-e", "1", "--format", "xml"], 2, "Invalid value for '--format'"),
        (["query", "{db}", COUNT, "-e", "99"], 4, "error[budget_exhausted]"),
        (["query", "{db}", "SELECT note FROM visits", "-e", "1"], 3, "error[group_by]"),
        (["query", "{db}", "COPY visits TO 'x'", "-e", "1"], 3, "error[not_a_select]"),
        (
            ["query", "/no/such.duckdb", COUNT, "-e", "1"],
            1,
            "error[no_database]: there is no database file /no/such",
        ),
        (["query", "/no/such.duckdb", COUNT, "-e", "1", "-p", "{policy}"], 1, "error[no_database]"),
        (["query", "{db}", COUNT, "-e", "1", "-p", "/no/such.yaml"], 1, "error[policy_missing]"),
        (["init", "{policy}"], 1, "error[no_database]"),
        (["brew"], 2, "No such command"),
    ],
)
def test_errors_are_messages(run: Run, study: Path, arguments: list[str], code: int, text: str) -> None:
    """Refusals exit with 1, misuse with 2; a message on stderr, no traceback, nothing on stdout."""
    filled = [part.format(db=study, policy=study.with_suffix(".yaml")) for part in arguments]
    ran = run(*filled)
    assert (ran.code, ran.out) == (code, "")
    assert text in ran.err
    assert "Traceback" not in ran.err


def test_a_refusal_shows_a_caret(run: Run, study: Path) -> None:
    """The place in the query is drawn."""
    _, *lines = run("query", study, "SELECT AVG(csot) FROM visits", "-e", "1").err.splitlines()
    assert lines[1].index("csot") == lines[2].index("^")
    assert lines[3] == "hint: did you mean cost?"


def test_an_unforeseen_error_shows_its_place_and_no_message(
    run: Run, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message of an unknown exception may quote a value; its type and place suffice for a report."""

    def broken(*_: Any, **__: Any) -> NoReturn:
        raise ValueError(f"could not convert {SECRET}")

    monkeypatch.setattr("dpsql.api.connection.Connection.query", broken)
    ran = run("query", study, COUNT, "-e", "1")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[1].startswith("error[internal]")
    assert SECRET not in ran.err
    assert "ValueError at" in ran.err


def test_an_earlier_answer_is_free_and_new_noise_is_not(run: Run, study: Path) -> None:
    """Another process gets the answer that was given; `--fresh` asks for another one, and is charged."""
    first = run("query", study, COUNT, "-e", "1", "--format", "csv")
    again = run("query", study, COUNT, "-e", "1", "--format", "csv")
    assert (again.code, again.out) == (0, first.out)
    assert re.fullmatch(
        r"nothing was charged: an earlier answer of 20\d\d-\d\d-\d\d \d\d:\d\d UTC to the same question, ledger entry 1\n",
        again.err,
    )
    assert "replayed free" in run("explain", study, COUNT, "-e", "1").out
    assert "replayed free" not in run("explain", study, COUNT, "-e", "1", "--fresh").out
    assert (
        run("query", study, COUNT, "-e", "1", "--fresh").out.splitlines()[-1].startswith("charged to visits")
    )


def test_environment_variables_are_defaults_of_options(
    run: Run, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They name policy, ledger and ε; options and a query's own ε take precedence, and a target error uses no default."""
    policy = study.with_suffix(".yaml").rename(tmp_path / "elsewhere.yaml")
    monkeypatch.setenv("DPSQL_POLICY", str(policy))
    monkeypatch.setenv("DPSQL_LEDGER", str(tmp_path / "its.ledger"))
    monkeypatch.setenv("DPSQL_EPSILON", "0.25")
    ran = run("explain", study, COUNT)
    assert (ran.code, ran.err) == (0, f"created a new ledger: {tmp_path / 'its.ledger'}\n")
    assert "ε = 0.25;" in ran.out
    assert "ε = 0.5;" in run("explain", study, COUNT, "-e", "0.5").out
    assert "requested ±50" in run("explain", study, COUNT, "--target-error", "50").out
    assert "ε 0.25 (" in run("query", study, COUNT).out
    assert "ε 0.25" in run("shell", study, stdin="\\epsilon\n").out
    monkeypatch.setenv("DPSQL_EPSILON", "much")
    failed = run("query", study, COUNT)
    assert failed.code == 1
    assert "DPSQL_EPSILON" in failed.err


def test_the_policy_s_default_epsilon(run: Run, study: Path, tmp_path: Path) -> None:
    """It serves `query`, `explain`, `check` and the shell where nothing else says it."""
    policy = study.with_suffix(".yaml")
    policy.write_text(f"{policy.read_text()}\ndefault_epsilon: 0.25\n")
    assert "ε = 0.25;" in run("explain", study, COUNT).out
    assert run("query", study, COUNT).code == 0
    assert "ε 0.25" in run("shell", study, stdin="\\epsilon\n").out
    queries = tmp_path / "count.sql"
    queries.write_text(COUNT)
    assert run("check", queries, "--policy", policy).code == 0
    queries.write_text(COUNT.replace("SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.5)"))
    assert run("check", queries, "--policy", policy).code == 0


def test_a_second_ledger_needs_new_ledger(run: Run, study: Path) -> None:
    """After the policy was used with a ledger, another or a lost one is only created with --new-ledger."""
    assert run("query", study, COUNT, "-e", "1").code == 0
    ledger, slip = study.with_suffix(".ledger"), study.with_suffix(".ledgr")
    for command in ("query", "explain"):
        ran = run(command, study, COUNT, "-e", "1", "-l", slip)
        assert (ran.code, "error[new_ledger]" in ran.err, str(ledger) in ran.err) == (1, True, True)
    assert "error[new_ledger]" in run("shell", study, "-l", slip, stdin=f"{COUNT};\n").err
    assert not slip.exists()
    ran = run("query", study, COUNT, "-e", "1", "-l", slip, "--new-ledger")
    assert (ran.code, ran.err) == (0, f"created a new ledger: {slip}\n")
    assert run("query", study, COUNT, "-e", "1", "-l", slip).err == ""
    marker = study.with_suffix(".ledgers").read_text(encoding="utf-8").splitlines()
    assert marker[1:] == [str(ledger.resolve()), str(slip.resolve())]
    ledger.unlink()
    lost = run("query", study, COUNT, "-e", "1")
    assert "no longer exists" in lost.err
    assert not ledger.exists()
    assert run("explain", study, COUNT, "-e", "1", "-l", ":memory:").code == 0


def test_a_piped_shell(run: Run, study: Path) -> None:
    """Statements from a pipe are answered without prompt or banner; a refusal makes the exit code 1."""
    ran = run("shell", study, "-e", "1", stdin=f"{COUNT};\n\\budget\n")
    assert (ran.code, ran.err) == (0, f"{new_ledger(study)}\n")
    assert ran.out.split()[:2] == ["n", "±95%"]
    assert "dpsql(" not in ran.out
    failed = run("shell", study, "--fresh", stdin=f"{COUNT};\n\\epsilon 1\n{COUNT}\n")
    assert failed.code == 1
    assert "error[epsilon_missing]" in failed.err
    assert "charged to visits" in failed.out


def test_a_target_error_replaces_epsilon(run: Run, study: Path) -> None:
    """`--target-error` and `--confidence` determine the ε, which is shown and charged; with `--epsilon` they are refused."""
    options = ("--target-error", "50", "--confidence", "0.9")
    price, asked, _, *_ = run("explain", study, COUNT, *options).out.splitlines()
    assert (price, asked.partition(": ")[0]) == ("Price", "  requested ±50 in 90% of answers")
    epsilon = asked.partition("ε = ")[2].split()[0]
    ran = run("query", study, COUNT, *options)
    assert ran.code == 0
    assert ran.out.splitlines()[-1].startswith(f"charged to visits: ε {epsilon} ")
    told = run("shell", study, "--fresh", *options, stdin=f"{COUNT};\n")
    assert told.code == 0
    assert f"charged to visits: ε {epsilon} " in told.out
    sql = COUNT.replace(
        "SELECT", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(target_error = 50, confidence = 0.9)"
    )
    assert f"charged to visits: ε {epsilon} " in run("query", study, sql, "--fresh").out
    for code, *command in ((3, "query", study, COUNT), (3, "explain", study, COUNT), (1, "shell", study)):
        ran = run(*command, "-e", "1", "--target-error", "50")
        assert (ran.code, "error[ambiguous]" in ran.err) == (code, True)
        assert run(*command, "--target-error", "51%").code == 2
        assert run(*command, "--target-error", "5", "--confidence", "95").code == 2
    assert "error[ambiguous]" in run("shell", study, "--confidence", "0.9").err


KEYS = """
CREATE TABLE patients (id INTEGER PRIMARY KEY, age INTEGER CHECK (age BETWEEN 0 AND 110));
CREATE SCHEMA emr;
CREATE TABLE emr.patients (id INTEGER PRIMARY KEY);
CREATE TABLE emr.visits (patient INTEGER REFERENCES emr.patients (id), cost DOUBLE, ward VARCHAR);
"""


def test_init_interactive_writes_the_owners_decisions(run: Run, tmp_path: Path) -> None:
    """It asks for each decision in order, again after an invalid answer; keys are proposed, and the policy is valid."""
    database = tmp_path / "clinic.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(KEYS)
    text = run("init", database, "-o", "-").out
    assert "the unit may be the primary key id, with rows_per_unit 1" in text
    assert 'link: {column: patient, references: "emr.patients.id"}' in text
    answers = ["patient", "none", "", "", "nobody", "link", "0", "20", "5, 1", "0, 500", "a, b", "x", "2", ""]
    ran = run("init", database, "--interactive", stdin="\n".join(answers) + "\n")
    assert ran.code == 0, ran.err
    assert "the budget that emr.patients and emr.visits share holds 14 questions at ε 0.1" in ran.out
    policy = load(database.with_suffix(".yaml"))
    assert policy.budget.shared
    assert list(policy.tables) == ["emr.patients", "emr.visits"]
    visits = policy.tables["emr.visits"]
    assert (policy.get_unit("emr.visits").column, visits.rows_per_unit) == ("patient", 20)
    assert (visits.columns["cost"].bounds, visits.columns["ward"].values) == ((0, 500), ("a", "b"))
    assert run("check", database.with_suffix(".yaml"), database).code == 0
    assert "error[file_exists]" in run("init", database, "-i").err


_VISITS = "".join(
    f"{number % 300};{('Köln', 'Bonn')[number % 2]};{1 + number % 28:02}.01.2025;{number % 1000},50 €;0{number % 9}1;{number % 7}\r\n"
    for number in range(1200)
)


def test_init_proposes_how_a_file_is_written(run: Run, tmp_path: Path) -> None:
    """Encoding, line of names, decimal sign and format, where some rows leave no doubt; else a remark."""
    place = tmp_path / "visits.csv"
    place.write_bytes(f"Visits of 2025;;;;;\r\nid;town;day;cost;zip;n\r\n{_VISITS}".encode("cp1252"))
    text = run("init", place, "-o", "-").out
    for line in (
        "    file: {encoding: cp1252, header: 2}",
        "      town: {type: varchar}",
        '      day: {type: date, format: "%d.%m.%Y"}',
        '      cost: {type: double, decimal: ","}',
        "      zip: {type: varchar}",
        '      "n": {type: integer}',
    ):
        assert line in text, line
    place.write_text('a,b,c\n01/02/2025,"1,234",NA\n03/04/2025,"5,678",x\n', encoding="utf-8")
    text = run("init", place, "-o", "-").out
    assert 'a: {type: date}  # format: "%d/%m/%Y" or format: "%m/%d/%Y"' in text
    assert 'b: {type: double}  # decimal: "," if 1,234 is about one' in text
    assert "c: {type: varchar}  # null_values: ['NA'] if these are missing" in text
    place.write_text(
        "a,b\n2025-10-08T12:00:00Z,2025-10-08\n2025-10-09 00:00:00,2025-10-09\n", encoding="utf-8"
    )
    text = run("init", place, "-o", "-").out
    assert "a: {type: timestamp}" in text
    assert "b: {type: date}" in text
    place.write_text("1,2,x\n3,4,y\n", encoding="utf-8")
    assert 'file: {separator: ",", names: [column1, column2, column3]}' in run("init", place, "-o", "-").out


def test_init_interactive_asks_for_types_of_files(run: Run, tmp_path: Path) -> None:
    """Guessed types are asked for; two numbers are bounds, and days are understood as people write them."""
    place = tmp_path / "visits.csv"
    place.write_bytes(f"id;town;day;cost;zip;n\r\n{_VISITS}".encode())
    answers = ["patient", "id", "5"]
    answers += ["", "Köln, Bonn", "text or so", "", "1.1.2025, 31.12.2025", "", "0, 1000", "", '"001", "011"']
    answers += ["varchar", "0, 10", "1", "1e-7"]
    ran = run("init", place, "--interactive", stdin="\n".join(answers) + "\n")
    assert ran.code == 0, ran.err
    assert "enter one of integer, double" in ran.out
    assert "read as bounds of numbers, so the type is integer" in ran.out
    columns = load(place.with_suffix(".yaml")).tables["visits"].columns
    assert columns["town"].values == ("Köln", "Bonn")
    assert columns["day"].bounds == (dt.date(2025, 1, 1), dt.date(2025, 12, 31))
    assert (columns["day"].format, columns["cost"].decimal) == (("%d.%m.%Y",), ",")
    assert columns["cost"].bounds == (0, 1000)
    assert columns["zip"].values == ("001", "011")
    assert (columns["n"].type, columns["n"].bounds) == ("integer", (0, 10))
    checked = run("check", place.with_suffix(".yaml"), place)
    assert (checked.code, "read as NULL" in checked.out.replace("visits.zip", "")) == (0, True)


@pytest.mark.parametrize("command", [["query", "SELECT 1"], ["explain", "SELECT 1"], ["shell"], ["budget"]])
@pytest.mark.parametrize("option", ["--ledger", "--ledger-key"])
def test_a_ledger_with_a_server_address_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: list[str], option: str
) -> None:
    """The server is not contacted; environment variables that name a ledger apply to databases only."""
    name, *rest = command
    # Port 9 of this machine answers nobody.
    arguments = [name, "http://localhost:9", *rest, *(["-e", "1"] if rest else [])]
    monkeypatch.setenv("DPSQL_TOKEN", "dpsql_" + "0" * 16 + "_" + "f" * 64)
    refused = run(*arguments, option, "other.ledger")
    assert (refused.code, f"{option} is not valid with a server address" in refused.err) == (1, True)
    monkeypatch.setenv("DPSQL_LEDGER" if option == "--ledger" else "DPSQL_LEDGER_KEY_FILE", "other.ledger")
    assert "not valid with a server address" not in run(*arguments).err
