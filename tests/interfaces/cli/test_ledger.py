"""`dpsql ledger` and `dpsql receipt`: a ledger without its policy."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from interfaces.cli.conftest import Run
from small_study import write_study

import dpsql
from dpsql.ledger.digest import KeyedDigest

COUNT, SUM = "SELECT COUNT(DISTINCT patient_id) AS n FROM visits", "SELECT SUM(cost) AS cost FROM visits"


@pytest.fixture(scope="module")
def charged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of three charges of two analysts, and the receipt of the last beside it."""
    study, _ = write_study(tmp_path_factory.mktemp("charged"))
    for analyst, sql in (("ana", SUM), ("bob", SUM), ("ana", COUNT)):
        with dpsql.connect(
            str(study), policy=study.with_suffix(".yaml"), analyst=analyst, replay=False
        ) as connection:
            answer = connection.query(sql, epsilon=0.5)
    study.with_suffix(".receipt").write_text(answer.receipt.to_json(), encoding="utf-8")
    return study.with_suffix(".ledger")


@pytest.fixture
def ledger(charged: Path, tmp_path: Path) -> Path:
    """A copy of that ledger, with its receipt."""
    for ending in (".ledger", ".receipt"):
        shutil.copy(charged.with_suffix(ending), tmp_path / f"study{ending}")
    return tmp_path / "study.ledger"


def edit(ledger: Path, sql: str) -> None:
    """Changes the file."""
    with closing(sqlite3.connect(ledger)) as file:
        file.executescript(sql)


def test_a_report_is_written(run: Run, ledger: Path, tmp_path: Path) -> None:
    """To a file, or to standard output; not over a file of another kind, nor of an edited ledger."""
    target = tmp_path / "report.html"
    ran = run("report", ledger, "-o", target)
    assert (ran.code, ran.out) == (0, f"wrote {target}\n")
    assert run("report", ledger, "-o", "-").out == target.read_text(encoding="utf-8")
    for output in (ledger, tmp_path / "missing" / "report.html"):
        before = ledger.read_bytes()
        failed = run("report", ledger, "-o", output)
        assert failed.code == 1
        assert failed.err.startswith("error[")
        assert ledger.read_bytes() == before
    assert run("report", tmp_path / "none.ledger", "-o", target).code == 1


def test_a_whole_ledger_is_verified(run: Run, ledger: Path, tmp_path: Path) -> None:
    """Alone, beside a head on the command line, and beside an anchor."""
    head = run("ledger", "head", ledger).out.strip()
    anchor = tmp_path / "anchor"
    anchor.write_text(f"{head}\n")
    alone = run("ledger", "verify", ledger)
    assert alone.out.splitlines()[0] == "the chain is intact: entries 3, accounts 1"
    assert alone.out.splitlines()[-1] == f"head: {head}"
    for option in (("--head", head), ("--anchor", anchor)):
        ran = run("ledger", "verify", ledger, *option)
        assert (ran.code, ran.out.splitlines()[1]) == (0, "the chain contains the recorded head of 3 entries")
        edit(ledger, "CREATE TABLE kept AS SELECT * FROM entries; DELETE FROM entries WHERE id = 3")
        assert "names entry 3, which is missing" in run("ledger", "verify", ledger).err
        edit(ledger, "CREATE TABLE told AS SELECT * FROM releases; DELETE FROM releases WHERE entry = 3")
        assert "error[ledger_rolled_back]" in run("ledger", "verify", ledger, *option).err
        assert run("ledger", "verify", ledger).code == 0
        edit(ledger, "DELETE FROM entries; INSERT INTO entries SELECT * FROM kept; DROP TABLE kept")
        edit(ledger, "DELETE FROM releases; INSERT INTO releases SELECT * FROM told; DROP TABLE told")


def test_an_edited_ledger_is_refused_with_the_place(run: Run, ledger: Path) -> None:
    """By verify, by show and by export, with exit code 1."""
    edit(ledger, "UPDATE entries SET loss = '0' WHERE id = 2")
    for command in ("verify", "show", "export"):
        ran = run("ledger", command, ledger)
        assert ran.code == 1
        assert "error[ledger_tampered]: entry 2 of the ledger was changed" in ran.err


def test_the_entries_are_shown_aligned(run: Run, ledger: Path) -> None:
    """The newest, oldest first; of a table, of an analyst."""
    head, _, *rows = run("ledger", "show", ledger).out.splitlines()
    assert head.split()[:4] == ["entry", "at", "(UTC)", "analyst"]
    assert "part" not in head.split()
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert rows[2].endswith(COUNT)
    assert len({row.index("SELECT") for row in rows}) == 1
    assert [
        row.split()[0] for row in run("ledger", "show", ledger, "--analyst", "ana").out.splitlines()[2:]
    ] == ["1", "3"]
    assert run("ledger", "show", ledger, "--last", "1").out.splitlines()[2].split()[0] == "3"
    assert run("ledger", "show", ledger, "--table", "beds").out == "the ledger has no such entries\n"


def test_the_part_that_was_charged_is_shown(run: Run, tmp_path: Path) -> None:
    """Days as days, listed values by their places; the column is there where some entry has a part."""
    study, _ = write_study(tmp_path)
    policy = study.with_suffix(".yaml")
    text = policy.read_text().replace("    unit: patient_id\n", "    unit: row\n    partition: [plan, day]\n")
    policy.write_text(text.replace("    rows_per_unit: 10\n    max_groups: 3\n", ""))
    with dpsql.connect(str(study), policy=policy) as connection:
        for condition in (
            "",
            " WHERE plan = 'B' AND day BETWEEN '2024-01-01' AND '2024-01-31'",
            " WHERE day < '2021-01-01'",
        ):
            connection.query(f"SELECT COUNT(*) FROM visits{condition}", epsilon=0.5)
    ledger = study.with_suffix(".ledger")
    head, _, *rows = run("ledger", "show", ledger).out.splitlines()
    at = slice(head.index("part"), head.index("kind"))
    assert [row[at].strip() for row in rows] == [
        "all",
        "day 2024-01-01 to 2024-01-31 and plan (listed value) 2",
        "day 2020-01-01 to 2020-12-31",
    ]
    assert len({row.index("charge ") for row in rows}) == 1


def test_the_export_has_every_stored_field(run: Run, ledger: Path) -> None:
    """Digests and links can be recomputed from it; both formats have the same fields."""
    rows = [json.loads(line) for line in run("ledger", "export", ledger).out.splitlines()]
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert all(KeyedDigest().compute_digest(row) == row["digest"] for row in rows)
    assert [row["previous"] for row in rows[1:]] == [row["digest"] for row in rows[:-1]]
    table = list(csv.DictReader(io.StringIO(run("ledger", "export", ledger, "--format", "csv").out)))
    assert table == [
        {name: "" if value is None else str(value) for name, value in row.items()} for row in rows
    ]


def test_reading_creates_no_ledger(run: Run, study: Path, tmp_path: Path) -> None:
    """A command that reads creates no file, and refuses another schema."""
    for command in ("verify", "show", "export", "head"):
        assert "error[ledger_unavailable]: the ledger" in run("ledger", command, tmp_path / "none").err
    assert not (tmp_path / "none").exists()
    old = tmp_path / "old"
    edit(
        old,
        "CREATE TABLE meta (key TEXT, value TEXT); INSERT INTO meta VALUES ('format', 'dpsql ledger'), ('schema', '5')",
    )
    assert "error[ledger_version]" in run("ledger", "verify", old).err
    empty = tmp_path / "empty"
    empty.touch()
    assert "error[not_a_ledger]" in run("ledger", "verify", empty).err
    assert "cannot be combined" in run("ledger", "verify", old, "--head", "x", "--anchor", "y").err
    assert not study.with_suffix(".ledger").exists()


def test_a_key_from_a_file_or_the_environment(
    run: Run, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One key for every command that opens the ledger; without it, none does."""
    key, ledger, policy = tmp_path / "key", study.with_suffix(".ledger"), study.with_suffix(".yaml")
    key.write_text("0123456789abcdef0123456789abcdef\n")
    assert run("query", study, COUNT, "-e", "0.5", "--ledger-key", key).code == 0
    commands: list[tuple[object, ...]] = [
        ("query", study, COUNT, "-e", "0.5", "--fresh"),
        ("explain", study, COUNT, "-e", "0.5"),
        ("shell", study),
        ("budget", "-p", policy),
        *(("ledger", command, ledger) for command in ("verify", "show", "export", "head")),
    ]
    for command in commands:
        assert "error[ledger_key]" in run(*command).err
    monkeypatch.setenv("DPSQL_LEDGER_KEY_FILE", str(key))
    for command in commands:
        assert run(*command).code == 0
    assert "the chain is intact with its key: entries 2," in run("ledger", "verify", ledger).out


def test_a_receipt_is_verified_from_a_file_or_standard_input(run: Run, ledger: Path) -> None:
    """The output lists the fields that are verified and those that are not."""
    file = ledger.with_suffix(".receipt")
    for ran in (
        run("receipt", "verify", file, "--ledger", ledger),
        run("receipt", "verify", "-", "--ledger", ledger, stdin=file.read_text(encoding="utf-8")),
    ):
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.splitlines()[0] == "the ledger has the charge: entry 3 (visits)"
        assert "verified: every field not listed below" in ran.out
        assert "not in the ledger" not in ran.out
        assert "not verified: that rows delivered with the receipt are the answer" in ran.out


def test_receipts_state_a_missing_charge(run: Run, study: Path) -> None:
    """What was answered again names who paid; of an explanation, and of public tables, nothing is in the ledger."""
    ledger = study.with_suffix(".ledger")
    with dpsql.connect(str(study), policy=study.with_suffix(".yaml")) as connection:
        connection.query(COUNT, epsilon=0.5)
        again = connection.query(COUNT, epsilon=0.5).receipt.to_json()
        explained = connection.query(f"EXPLAIN {COUNT}", epsilon=0.5).receipt.to_json()
    ran = run("receipt", "verify", "-", "--ledger", ledger, stdin=again)
    assert (ran.code, ran.err) == (0, "")
    assert "nothing was charged" in ran.out
    assert "the ledger has the entries that paid for it: entr" in ran.out
    ran = run("receipt", "verify", "-", "--ledger", ledger, stdin=explained)
    assert (ran.code, ran.err) == (0, "")
    assert "has no charge" in ran.out


def test_bounds_released_after_the_charge_are_in_the_receipt_only(run: Run, study: Path) -> None:
    """A release selects the bounds of a sum; the ledger records that release, and not the bounds.

    The greatest bound, beyond which is nobody, is chosen six times over in one of 10^7 runs.
    """
    with dpsql.connect(str(study), policy=study.with_suffix(".yaml")) as connection:
        receipts = [connection.query(SUM, epsilon=epsilon).receipt for epsilon in (0.1, 0.2, 0.5, 1, 2, 5)]
    clamps = [receipt.mechanisms[0]["clamp"] for receipt in receipts]
    assert len({str((clamp["chosen"], clamp["beyond"])) for clamp in clamps}) > 1
    for receipt in receipts:
        text = receipt.to_json()
        ran = run("receipt", "verify", "-", "--ledger", study.with_suffix(".ledger"), stdin=text)
        assert (ran.code, "not verified: selected clamps, and their noise\n" in ran.out) == (0, True)
    for said in ('"statistic": "', '"choice": "', '"most": "'):
        mended = text.replace(said, f"{said}no ")
        assert mended != text
        ran = run("receipt", "verify", "-", "--ledger", study.with_suffix(".ledger"), stdin=mended)
        assert (ran.code, "other mechanisms" in ran.err) == (1, True)


def within(*path: str | int, value: object) -> Callable[[dict[str, Any]], None]:
    """A change of one place of a receipt."""

    def change(receipt: Any) -> None:
        for step in path[:-1]:
            receipt = receipt[step]
        receipt[path[-1]] = value

    return change


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "query": (within("query", value=SUM), "another query than entry 3"),
    "plan": (within("plan", value="0" * 64), "another plan"),
    "analyst": (within("analyst", value="bob"), "another analyst"),
    "version": (within("data_version", value="2020"), "another data version"),
    "policy": (within("policy", value="0" * 64), "another policy"),
    "mechanism": (within("mechanisms", 0, "l1_sensitivity", value="9"), "other mechanisms"),
    "mechanisms": (within("mechanisms", value=[]), "other mechanisms"),
    "loss": (within("loss", value={"type": "pure", "epsilon": "1/2", "v": 1}), "another loss"),
    "cost": (within("entries", 0, "loss", value="0"), "another loss"),
    "time": (within("entries", 0, "at", value="2026-01-01T00:00:00+00:00"), "another at"),
    "entry": (within("entries", 0, "id", value=2), "another digest than entry 2"),
    "no such entry": (within("entries", 0, "id", value=9), "names entry 9, which is not in the ledger"),
    "free": (within("entries", value=[]), "states released values but no charge"),
    "too many": (
        lambda receipt: receipt["entries"].append(receipt["entries"][0]),
        "does not list exactly the entries of the charge",
    ),
    "unit": (within("privacy_unit", value="household"), "another privacy unit than entry 3"),
    "versions": (within("versions", "dpsql", value="9"), "another versions"),
    "notice": (within("notices", value=["checked"]), "has notices"),
    "refined": (within("refined", value=[1]), "another refined"),
    "replayed": (within("replayed", value=[1]), "other replayed entries"),
    "unknown": (within("reviewed", value="yes"), "the field reviewed, which dpsql does not write"),
    "explained": (within("explained", value=True), "belongs to an EXPLAIN"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_receipt_that_differs_from_the_ledger_is_refused(run: Run, ledger: Path, name: str) -> None:
    """A difference in any field that the ledger records gives exit code 1 and a reason."""
    file, (change, reason) = ledger.with_suffix(".receipt"), CHANGES[name]
    receipt = json.loads(file.read_text(encoding="utf-8"))
    change(receipt)
    file.write_text(json.dumps(receipt), encoding="utf-8")
    ran = run("receipt", "verify", file, "--ledger", ledger)
    assert (ran.code, ran.out) == (1, "")
    assert "error[receipt]" in ran.err
    assert reason in ran.err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"entries": 1}', "\x00", "null"])
def test_other_texts_and_missing_files_are_no_receipts(run: Run, ledger: Path, text: str) -> None:
    """Other texts and a missing file."""
    ran = run("receipt", "verify", "-", "--ledger", ledger, stdin=text)
    assert (ran.code, "error[receipt_text]" in ran.err) == (1, True)
    assert "error[receipt_unavailable]" in run("receipt", "verify", ledger / "none", "--ledger", ledger).err


def test_a_receipt_of_an_edited_entry_is_refused(run: Run, ledger: Path) -> None:
    """The entry's digest is checked before it is compared."""
    edit(ledger, "UPDATE entries SET analyst = 'eve' WHERE id = 3")
    ran = run("receipt", "verify", ledger.with_suffix(".receipt"), "--ledger", ledger)
    assert "entry 3 of the ledger was changed" in ran.err


@pytest.mark.parametrize("command", ["query", "explain", "shell", "run"])
def test_every_query_command_takes_an_anchor(command: str, run: Run, study: Path, tmp_path: Path) -> None:
    """It is made with the ledger, and beside it a ledger that lost its last entry is refused."""
    anchor, ledger = tmp_path / "study.anchor", study.with_suffix(".ledger")
    sql = "SELECT COUNT(*) AS n FROM visits"
    assert run("query", study, sql, "-e", 0.1, "--anchor", anchor).code == 0
    older = ledger.read_bytes()
    assert run("query", study, sql, "-e", 0.2, "--anchor", anchor).code == 0
    ledger.write_bytes(older)
    (tmp_path / "n.sql").write_text(sql, encoding="utf-8")
    arguments = {
        "shell": ("shell", study),
        "run": ("run", tmp_path / "n.sql", "--database", study, "--check"),
    }.get(command, (command, study, sql))
    ran = run(*arguments, "-e", 0.1, "--anchor", anchor, stdin=f"{sql};\n")
    assert (ran.code, "error[ledger_rolled_back]" in ran.err) == (1, True)
