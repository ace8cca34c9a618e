"""The command line with the URL of a PostgreSQL database, from a policy's skeleton to a publication."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from engines.loading import database, grant
from interfaces.assistants import ask, needs_sdk, over_streams
from interfaces.cli.conftest import Run, run  # noqa: F401  (a fixture)
from postgres import Server

from dpsql.backends.postgres.catalog import normalize_condition
from dpsql.policy import load

SCHEMA = """
    CREATE TYPE sex AS ENUM ('F', 'M');
    CREATE TABLE patients (
        id integer PRIMARY KEY, sex sex NOT NULL, age integer CHECK (age >= -1 AND age <= 110),
        plan varchar(9) CHECK (plan IN ('A', 'B')), born date CHECK (born BETWEEN '1900-01-01' AND '2026-12-31')
    );
    CREATE TABLE visits (
        visit integer PRIMARY KEY, patient integer NOT NULL REFERENCES patients (id),
        cost numeric(8,2) CHECK (cost >= 0 AND cost <= 1000.5), day date
    );
    INSERT INTO patients SELECT i, 'F', i % 90, 'A', '1980-01-01' FROM generate_series(1, 500) AS i;
    INSERT INTO visits SELECT i, 1 + i % 500, i % 900, DATE '2025-01-01' + i % 300 FROM generate_series(1, 2000) AS i;
"""
COUNT = "SELECT plan, COUNT(*) AS n FROM patients GROUP BY plan"


@pytest.fixture
def url(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database with declared keys and constraints; what is written lies in a folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with database(server, "commands") as (found, owner), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the role of this test may do everything
        owner.execute(SCHEMA)
        grant(owner)
        yield found


def test_init_uses_the_schema(url: str, run: Run) -> None:  # noqa: F811
    """ENUM, CHECK, NOT NULL, primary and foreign keys are in the skeleton, named after the database; no row is read."""
    made = run("init", url)
    assert (made.code, made.out.split()[1]) == (0, "commands.yaml:")
    assert url not in made.out
    text = Path("commands.yaml").read_text(encoding="utf-8")
    tables = yaml.safe_load(text.replace("TODO", "null"))["tables"]
    columns = tables["patients"]["columns"]
    assert columns["age"]["bounds"] == [-1, 110]
    assert (columns["sex"]["values"], columns["sex"]["nullable"]) == (["F", "M"], False)
    assert columns["plan"]["values"] == ["A", "B"]
    assert list(map(str, columns["born"]["bounds"])) == ["1900-01-01", "2026-12-31"]
    assert tables["visits"]["columns"]["cost"]["bounds"] == [0, 1000.5]
    assert 'link: {column: patient, references: "patients.id"}' in text
    assert "the unit may be the primary key visit" in text


@pytest.mark.parametrize(
    "text",
    ["(a <> '(1)::integer = ANY (ARRAY[2])'::text)", "(a <> '''7'''::text)", "(a = f('x'::citext))", "'"],
)
def test_constants_in_a_text_stay(text: str) -> None:
    """Constants are replaced outside of texts only, and unknown words stay."""
    assert normalize_condition(text) == text.replace("::text", "")


POLICY = """
version: 1
privacy_unit: patient
database: commands
budget: {epsilon: 1000, delta: 1e-6}
tables:
  patients:
    unit: id
    rows_per_unit: 1
    columns: {age: {type: integer}, plan: {type: varchar, values: [A, B]}}
"""


def test_other_commands_take_the_url(url: str, run: Run, tmp_path: Path) -> None:  # noqa: F811
    """check, explain, query, run, publish, suggest and the shell take the URL where others name a file."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(POLICY, encoding="utf-8")
    Path("count.sql").write_text(COUNT, encoding="utf-8")
    release = {
        "title": "t",
        "policy": "rules.yaml",
        "database": url,
        "epsilon": 50,
        "tables": {"n": {"sql": COUNT}},
    }
    Path("release.yaml").write_text(yaml.safe_dump(release), encoding="utf-8")
    under = ("--policy", rules)
    commands = {
        "check": ("check", rules, url),
        "costs": ("check", rules, url, "count.sql", "-e", 1),
        "explain": ("explain", url, COUNT, "-e", 1, *under),
        "query": ("query", url, COUNT, "-e", 50, "-f", "csv", *under),
        "run": ("run", "count.sql", "-d", url, "-e", 50, "-o", "answers", *under),
        "publish": ("publish", "release.yaml", "-o", "published"),
        "suggest": ("suggest", "patients", url, "-e", 50, *under),
    }
    said = {name: run(*arguments) for name, arguments in commands.items()}
    assert {name: (ran.code, url in ran.out) for name, ran in said.items()} == dict.fromkeys(
        commands, (0, False)
    )
    assert [line.split(",")[0] for line in said["query"].out.split()] == ["plan", "A", "B"]
    assert Path("answers/count.csv").read_text(encoding="utf-8") == Path("published/n.csv").read_text(
        encoding="utf-8"
    )
    low, high = load(tmp_path / "rules.suggested.yaml").tables["patients"].columns["age"].bounds or (0, 0)
    assert (0 <= low <= 5, 85 <= high <= 95) == (True, True)
    assert "patients.age: 1% and 99% quantiles: " in said["suggest"].out
    shell = run("shell", url, "-e", 50, *under, stdin=f"{COUNT};\n")
    assert (shell.code, "A " in shell.out) == (0, True)
    gone = run("query", url.replace("/commands?", "/nowhere?"), COUNT, "-e", 1, *under)
    assert (gone.code != 0, "cannot connect" in gone.err, "Traceback" in gone.err) == (True, True, False)


@needs_sdk
def test_an_assistant_asks(url: str) -> None:
    """The engine's URL is the source of `dpsql mcp`; its password and rows are in no text."""
    policy = Path("commands.yaml")
    policy.write_text(
        "version: 1\nprivacy_unit: patient\nbudget: {epsilon: 5, delta: 1e-6}\n"
        "tables: {patients: {unit: id, rows_per_unit: 1, columns: {plan: {type: varchar, values: [A, B]}}}}\n",
        encoding="utf-8",
    )
    said = ask(over_streams([url, "--policy", policy]), "query", sql=COUNT, epsilon=0.5)
    assert not said.is_error, said.text
    assert [row[0] for row in said.data["rows"]] == ["A", "B"]
