"""A37, receipts: genuine ones of stepped, refined or replayed answers are borne out, and forged fields are refused.

Whoever gets a receipt from an analyst holds it against the ledger. A checker that refuses genuine ones is soon left
out, and one that passes over the fields that it does not know lets an analyst say anything in them. A careless
checker, which compares what it finds in the first entry, does both. Every change of one place of a receipt of each
kind of answer is in tests/properties/test_receipts.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from properties.receipts import ANSWERS, COUNT, PLANS, data_of, opened

from dpsql.backends import Exact
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.errors import BackendError, IntegrityError, ProgrammingError
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.receipts import check_receipt, parse_receipt

Data = dict[str, Any]
GENUINE = ("in percent", "refined", "one part refined", "replayed", "combined")
FORGED: dict[str, Callable[[Data], object]] = {
    "nothing was refined": lambda receipt: receipt.update(refined=[]),
    "another was refined": lambda receipt: receipt.update(refined=[2]),
    "something was replayed": lambda receipt: receipt.update(replayed=[1]),
    "a notice": lambda receipt: receipt.update(notices=["the owner has checked this answer"]),
    "a target": lambda receipt: receipt.update(target={"error": "1", "confidence": "19/20", "epsilon": "1"}),
    "another unit": lambda receipt: receipt.update(privacy_unit="household"),
    "other neighbours": lambda receipt: receipt.update(neighbors="replace"),
    "other versions": lambda receipt: receipt["versions"].update(dpsql="9.9"),
    "a field of its own": lambda receipt: receipt.update(reviewed_by="the owner"),
    "a field of an entry": lambda receipt: receipt["entries"][0].update(note="free"),
    "less noise": lambda receipt: receipt["mechanisms"][0].update(
        noise="discrete gaussian, standard deviation 1"
    ),
}


def careless(receipt: Data, history: LedgerReader) -> bool:
    """Whether a checker passes that compares the fields of entries, and of the first one's details."""
    entries = [history.find_entry(named["id"]) for named in receipt["entries"]]
    first = entries[0] if entries else None
    return (
        first is not None
        and all(entry is not None and entry.charge == first.charge for entry in entries)
        and receipt["query"] == first.query
        and all(receipt.get(name) == first.details[name] for name in ("plan", "policy", "mechanisms"))
    )


@pytest.fixture(scope="module")
def issued(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[dict[str, Data], dict[str, LedgerReader]]]:
    """Receipts of answers of several kinds, each with the history of its ledger."""
    receipts, histories = {}, {}
    for kind in ("plain", *GENUINE):
        ledger = tmp_path_factory.mktemp("clinic") / "clinic.ledger"
        with opened(ledger, "zcdp") as connection:
            receipts[kind] = data_of(ANSWERS[kind](connection).receipt)
        histories[kind] = LedgerReader.open(ledger)
    yield receipts, histories
    for history in histories.values():
        history.close()


@pytest.mark.parametrize("kind", GENUINE)
def test_genuine_receipts_pass_the_check(
    issued: tuple[dict[str, Data], dict[str, LedgerReader]], kind: str
) -> None:
    """The careless checker knows one charge, and the noise that the entry says was drawn: it refuses them."""
    receipt, history = issued[0][kind], issued[1][kind]
    checked = check_receipt(receipt, history)
    assert checked.entries or checked.paying_entries
    assert not careless(receipt, history)


@pytest.mark.parametrize("forged", FORGED)
def test_forged_fields_are_refused(
    issued: tuple[dict[str, Data], dict[str, LedgerReader]], forged: str
) -> None:
    """The attack works on a careless checker: what it does not compare may say anything."""
    receipt, history = json.loads(json.dumps(issued[0]["refined"])), issued[1]["refined"]
    FORGED[forged](receipt)
    with pytest.raises(IntegrityError) as caught:
        check_receipt(receipt, history)
    assert caught.value.code == "receipt"
    plain = json.loads(json.dumps(issued[0]["plain"]))
    FORGED[forged](plain)
    assert careless(plain, issued[1]["plain"]) == (forged != "less noise")


def test_missing_step_is_refused(tmp_path: Path) -> None:
    """A receipt of a search that names its last steps alone would tell a lower price."""
    ledger = tmp_path / "clinic.ledger"
    with opened(ledger, "pure") as connection:
        receipt = data_of(connection.query(PLANS, target_error="10%").receipt)
    first = receipt["entries"][0]
    later = [entry for entry in receipt["entries"] if entry["at"] != first["at"]]
    assert len({entry["at"] for entry in later}) > 1
    events = receipt["loss"]["events"][1:]
    loss = {"type": "composed", "events": events, "v": 1} if len(events) > 1 else events[0] | {"v": 1}
    shorter = receipt | {"entries": later, "loss": loss, "refined": [first["id"]]}
    with closing(LedgerReader.open(ledger)) as history:
        check_receipt(receipt, history)
        with pytest.raises(IntegrityError, match="names other steps"):
            check_receipt(shorter, history)


def test_entry_of_a_refinement_states_the_drawn_noise(tmp_path: Path) -> None:
    """Refining Gaussian noise has a law of its own; the answer's noise combines both."""
    with opened(tmp_path / "clinic.ledger", "zcdp") as connection:
        first = connection.query(COUNT, epsilon=0.1)
        before = first.scales[0][0]
        refined = connection.query(COUNT, epsilon=0.3)
        details = connection.engine.ledger.list_entries()[-1].details
    (drawn,), (answered,) = details["mechanisms"], details["answered"]
    now = float(drawn["noise"].rpartition(" ")[2])
    assert before is not None
    assert refined.scales[0][0] == pytest.approx((before**-2 + now**-2) ** -0.5, rel=1e-3)
    assert answered["noise"].startswith("merged: ")
    assert drawn["noise"] in answered["noise"]
    assert [answered] == list(refined.receipt.mechanisms)


@pytest.mark.parametrize("text", ['{"query": "a", "query": "b"}', '{"loss": NaN}', "[" * 100_000])
def test_receipt_has_one_reading(text: str) -> None:
    """A name that stands twice may be read as either."""
    with pytest.raises(ProgrammingError) as caught:
        parse_receipt(text)
    assert caught.value.code == "receipt_text"


def test_receipt_of_a_failed_search_passes_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the charges of the answer so far; the charge of the failed step belongs to another answer."""
    ledger, run, ran = tmp_path / "clinic.ledger", DuckDBBackend.run_statement, list[str]()

    def failing(backend: DuckDBBackend, sql: str) -> Exact:
        ran.append(sql)
        if len(ran) == 2:
            raise BackendError
        return run(backend, sql)

    monkeypatch.setattr(DuckDBBackend, "run_statement", failing)
    with opened(ledger, "zcdp") as connection:
        receipt = data_of(connection.query(PLANS, target_error="1%").receipt)
        charged = len(connection.engine.ledger.list_entries())
    assert len(receipt["entries"]) < charged
    assert receipt["target"]["met"] == "no"
    with closing(LedgerReader.open(ledger)) as history:
        assert check_receipt(receipt, history).unverified_fields == ("target.met", "notices")
