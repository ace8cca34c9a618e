"""Ledgers of the format of version 0.3.0 stay readable: they verify, replay, refine and report, whatever classes are called.

`fixtures/ledger` is made by version 0.3.0, and never again after its release. A failure here means that the digest of an entry,
or the fingerprint of a plan, of a policy or of a stored release has changed: owners would pay again for what was released.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pytest
from entropy import ScriptedEntropy

import dpsql
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine.charging import compute_quotes
from dpsql.engine.replay.replays import plan_and_match
from dpsql.interfaces.cli import main
from dpsql.ledger.protocol import LedgerHead
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.receipts import check_receipt
from dpsql.policy.request.query import Query

FOLDER = Path(__file__).parents[2] / "fixtures" / "ledger"
KEY = b"the key of a ledger of which nothing is secret"
WRITTEN: dict[str, Any] = json.loads(gzip.decompress((FOLDER / "answers.json.gz").read_bytes()))
LEDGERS = ("zcdp", "pure", "gdp", "basic")
FREE = {"SELECT DISTINCT plan FROM visits"}
"""All keys are public."""

each_ledger = pytest.mark.parametrize("name", LEDGERS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The ledgers and the anchor as files of their own, beside the policies and the key."""
    for path in FOLDER.glob("*.gz"):
        (tmp_path / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    for path in FOLDER.glob("*.yaml"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "key").write_bytes(KEY)
    return tmp_path


def opened(folder: Path, name: str, analyst: str = "ana") -> Connection:
    """One of the ledgers, with the data that it was made with."""
    database = duckdb.connect()
    database.execute((FOLDER / "data.sql").read_text(encoding="utf-8"))
    return dpsql.connect(
        database,
        policy=folder / f"{name}.yaml",
        ledger=folder / f"{name}.ledger",
        analyst=analyst,
        anchor=folder / "zcdp.anchor" if name == "zcdp" else None,
        ledger_key=KEY if name == "pure" else None,
    )


def history_of(folder: Path, name: str) -> LedgerReader:
    """One of the ledgers, without its policy."""
    return LedgerReader.open(folder / f"{name}.ledger", KEY if name == "pure" else None)


def answers(name: str) -> Iterator[dict[str, Any]]:
    """What was answered of a ledger, in order."""
    return (answer for answer in WRITTEN["answers"] if answer["ledger"] == name)


def asked_again(connection: Connection, answer: dict[str, Any]) -> dpsql.Result:
    """The same query on the same terms."""
    terms = {key: Fraction(term) if key == "epsilon" else term for key, term in answer["terms"].items()}
    return connection.query(answer["sql"], answer["parameters"], **terms)


def shown(rows: Any) -> list[list[str]]:
    """Rows as they were written."""
    return [[repr(value) for value in row] for row in rows]


def head_of(connection: Connection) -> str:
    """Where the ledger ends."""
    return str(connection.engine.ledger.read_head())


@each_ledger
def test_a_frozen_ledger_verifies_to_its_head(name: str, folder: Path) -> None:
    """Each entry and each stored release is what was written, up to the head that was kept."""
    with closing(history_of(folder, name)) as history:
        chain = history.verify(LedgerHead.parse(WRITTEN["heads"][name]))
        assert str(chain.compute_full_head(chain.stored_head)) == WRITTEN["heads"][name]


@each_ledger
@pytest.mark.parametrize("analyst", ["ana", "bob"])
def test_all_answers_are_replayed_free(
    name: str, analyst: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, columns, types and the digests of plan and policy are equal; nothing is read, drawn or written."""

    def run(*_: object) -> None:
        raise AssertionError("private rows are read")

    changed, receipts = [], []
    with opened(folder, name, analyst) as connection:
        monkeypatch.setattr(DuckDBBackend, "run_statement", run)
        object.__setattr__(connection.engine, "entropy", ScriptedEntropy([]))
        before = connection.budget()
        for answer in answers(name):
            if answer["analyst"] == analyst:
                try:
                    found = asked_again(connection, answer)
                except (AssertionError, dpsql.Error) as error:
                    changed.append((answer["sql"], repr(error)))
                    continue
                receipts.append(json.loads(found.receipt.to_json()))
                kept = answer["receipt"]
                now = (list(found.columns), list(found.types), shown(found.rows), found.receipt.entries)
                if now != (answer["columns"], answer["types"], answer["rows"], ()):
                    changed.append((answer["sql"], f"{now}"))
                assert (found.receipt.plan, found.receipt.policy) == (kept["plan"], kept["policy"])
                paid = {*kept["replayed"], *(entry["id"] for entry in kept["entries"])}
                assert set(found.receipt.replayed) <= paid
                assert found.receipt.replayed or answer["sql"] in FREE
        assert changed == []
        assert (head_of(connection), connection.budget()) == (WRITTEN["heads"][name], before)
    with closing(history_of(folder, name)) as history:
        for receipt in receipts:
            assert [entry.id for entry in check_receipt(receipt, history).paying_entries] == receipt[
                "replayed"
            ]


@each_ledger
def test_combine_finds_all_releases_of_a_statistic(name: str, folder: Path) -> None:
    """`best` finds the releases of a statistic, and those of others that serve it."""
    with opened(folder, name) as connection:
        for answer in WRITTEN["best"]:
            if answer["ledger"] == name:
                assert shown(connection.combine(answer["sql"]).rows) == answer["rows"]
        assert head_of(connection) == WRITTEN["heads"][name]


@each_ledger
def test_a_frozen_release_is_refined_for_the_difference(name: str, folder: Path) -> None:
    """Asked with four times the loss, it costs what is left of that; by another engine it is made anew."""
    sql = WRITTEN["unrefined"]
    (first,) = (answer for answer in answers(name) if answer["sql"] == sql)
    with opened(folder, name) as connection:
        whole = compute_quotes(
            connection.engine,
            plan_and_match(connection.engine, Query(sql, epsilon=Fraction(1), replay=False)),
        )
        receipt = connection.query(sql, epsilon=1).receipt
        again = connection.query(sql, epsilon=1).receipt
    paid = [Fraction(entry["loss"]) for entry in receipt.entries]
    prices = [quote.charge.loss_fraction for quote in whole]
    if receipt.versions["duckdb"] != first["receipt"]["versions"]["duckdb"]:
        assert (receipt.refined, paid) == ((), prices)
        return
    before = [Fraction(entry["loss"]) for entry in first["receipt"]["entries"]]
    assert receipt.refined == (first["receipt"]["entries"][0]["id"],)
    assert (again.entries, again.replayed) == ((), (receipt.entries[0]["id"],))
    assert paid
    for now, old, price in zip(paid, before, prices, strict=True):
        assert 0 < now <= price - old
        assert now == price - old or name in {"zcdp", "gdp"}, "charges are exact where losses are added up"


@each_ledger
def test_frozen_receipts_agree_with_their_ledger(name: str, folder: Path) -> None:
    """Each names the entries that paid for it."""
    with closing(history_of(folder, name)) as history:
        for answer in answers(name):
            receipt = answer["receipt"]
            checked = check_receipt(receipt, history)
            assert [entry.id for entry in checked.entries] == [entry["id"] for entry in receipt["entries"]]


@each_ledger
def test_the_commands_report_a_frozen_ledger(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verified, shown, exported; its budget and one of its receipts."""
    receipt = folder / "receipt.json"
    receipt.write_text(json.dumps(next(answers(name))["receipt"]), encoding="utf-8")
    key = ["--ledger-key", str(folder / "key")] if name == "pure" else []
    ledger = str(folder / f"{name}.ledger")
    told = {}
    for command in (
        ["ledger", "verify", ledger, "--head", WRITTEN["heads"][name]],
        ["ledger", "show", ledger],
        ["ledger", "export", ledger],
        ["ledger", "head", ledger],
        ["budget", "--policy", str(folder / f"{name}.yaml"), "--entries", "5"],
        ["receipt", "verify", str(receipt), "--ledger", ledger],
    ):
        with pytest.raises(SystemExit) as ended:
            main([*command, *key])
        text = capsys.readouterr()
        assert (ended.value.code, text.err) == (0, ""), command
        told[" ".join(command[:2])] = text.out
    assert told["ledger head"].strip() == WRITTEN["heads"][name]
    assert told["ledger verify"].splitlines()[-1] == f"head: {WRITTEN['heads'][name]}"
    assert len(told["ledger export"].splitlines()) == LedgerHead.parse(WRITTEN["heads"][name]).entries
    assert "the ledger has the charge: entr" in told["receipt verify"]
    kinds = {json.loads(line)["kind"] for line in told["ledger export"].splitlines()}
    assert kinds == (
        {"charge", "reset", "reserve", "draw", "return", "failure", "unlock"} if key else {"charge"}
    )
