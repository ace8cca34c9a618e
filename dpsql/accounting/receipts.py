"""A receipt held against the ledger that is said to have charged it.

What is shown: that the ledger holds each charge which the receipt names, entry for entry, for this query, plan,
analyst, event, version of the data and policy, at this time and cost, and no entry of the charge besides. What is
not: that the rows which came with the receipt are the answer, for the ledger holds nothing that was released; nor
that the rest of the ledger is intact, which `History.verify` shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpsql.accounting.events import to_json
from dpsql.accounting.history import History
from dpsql.accounting.ledger import Entry
from dpsql.accounting.seal import canonical
from dpsql.errors import IntegrityError, ProgrammingError

_DETAILS = ("plan", "data_version", "policy", "mechanisms")
_UNKEPT = ("privacy_unit", "neighbors", "versions", "target")
_OF_A_CLAMP = ("noise", "l1_sensitivity", "l2_sensitivity_squared", "linf_sensitivity")
_NAMED = ("id", "table", "at", "loss", "delta", "digest")


@dataclass(frozen=True, slots=True)
class CheckedReceipt:
    """A receipt that its ledger bears out: the entries, and the fields that the ledger says nothing of."""

    entries: tuple[Entry, ...]
    unsaid: tuple[str, ...]


def check_receipt(receipt: object, history: History) -> CheckedReceipt:
    """Checks the data of `Receipt.to_json` against a ledger.

    Raises ProgrammingError (`receipt_text`) for what is no receipt, IntegrityError (`receipt`) with the reason where
    the ledger does not bear it out.
    """
    data = _read(receipt)
    if not data["entries"]:
        raise _refused("names no charge: its query was free, was answered again, or was only explained")
    entries = tuple(_entry(named, history) for named in data["entries"])
    first = entries[0]
    if sorted(entry.id for entry in history.charge(first.charge)) != sorted(entry.id for entry in entries):
        raise _refused(
            f"does not name all entries of the charge that entry {first.charge} begins, or others too"
        )
    for entry in entries:
        _require(entry.id, "query", data["query"], entry.query)
        _require(entry.id, "analyst", data["analyst"], entry.analyst)
        for name in _DETAILS[:3]:
            if name in entry.details:
                _require(entry.id, name, data[name], entry.details[name])
    unsaid = [name for name in _DETAILS[:3] if name not in first.details]
    unsaid += [*_unsaid_loss(data, entries), *_unsaid_mechanisms(data, first)]
    unsaid += [name for name in _UNKEPT if data.get(name) is not None]
    return CheckedReceipt(entries, tuple(unsaid))


def _read(receipt: object) -> Mapping[str, Any]:
    if not isinstance(receipt, dict):
        raise _no_receipt()
    named = receipt.get("entries")
    texts = ("query", "plan", "analyst", "data_version", "policy")
    if not isinstance(named, list) or not all(isinstance(receipt.get(name), str) for name in texts):
        raise _no_receipt()
    if not isinstance(receipt.get("mechanisms"), list) or "loss" not in receipt:
        raise _no_receipt()
    for entry in named:
        if not isinstance(entry, dict) or not set(_NAMED) <= entry.keys() or type(entry["id"]) is not int:
            raise _no_receipt()
    return receipt


def _entry(named: Mapping[str, Any], history: History) -> Entry:
    number = named["id"]
    entry = history.entry(number) if 0 < number < 2**63 else None
    if entry is None:
        raise _refused(f"names entry {number}, which the ledger does not hold")
    kept: dict[str, object] = {
        "digest": entry.digest,
        "table": entry.table,
        "at": entry.at.isoformat(),
        "loss": str(entry.spend.loss_fraction),
        "delta": str(entry.spend.delta_fraction),
    }
    kept |= {"box": entry.box} if entry.box is not None else {}
    kept |= {"slice": entry.slice} if entry.slice is not None else {}
    kept |= {"account": entry.account_analyst} if entry.account_analyst else {}
    for name, value in kept.items():
        _require(number, name, named.get(name), value)
    return entry


def _unsaid_loss(data: Mapping[str, Any], entries: tuple[Entry, ...]) -> list[str]:
    """The loss is of all tables together: it is the event of a charge to one."""
    kept = {to_json(entry.event) for entry in entries if entry.event is not None}
    if len(entries) > 1 and _text(data["loss"]) not in kept:
        return ["loss"]
    if _text(data["loss"]) not in kept:
        raise _refused(f"says another loss than entry {entries[0].id} of the ledger")
    return []


def _unsaid_mechanisms(data: Mapping[str, Any], entry: Entry) -> list[str]:
    """Clamps that are learnt after the charge, and the noise that follows from them, are in the receipt alone."""
    said, kept = data["mechanisms"], entry.details.get("mechanisms")
    if not isinstance(kept, list) or len(said) != len(kept):
        raise _refused(f"says other mechanisms than entry {entry.id} of the ledger")
    if any(_beforehand(one, then) != then for one, then in zip(said, kept, strict=True)):
        raise _refused(f"says other mechanisms than entry {entry.id} of the ledger")
    return ["clamps that were learnt, and their noise"] if any(map(_is_learnt, kept)) else []


def _beforehand(said: Any, kept: Mapping[str, Any]) -> Any:
    """What is said of a mechanism, with what follows from its clamp as it was before that was learnt."""
    if not _is_learnt(kept) or not isinstance(said, dict) or not isinstance(said.get("clamp"), dict):
        return said
    followed = {name: kept[name] for name in _OF_A_CLAMP if name in said and name in kept}
    return said | followed | {"clamp": said["clamp"] | {"chosen": "learnt"}}


def _is_learnt(mechanism: Mapping[str, Any]) -> bool:
    return bool(mechanism.get("clamp", {}).get("chosen") == "learnt")


def _text(value: object) -> str:
    return canonical({"": value})[4:-1]


def _require(number: int, name: str, said: object, kept: object) -> None:
    if type(said) is not type(kept) or said != kept:
        raise _refused(f"says another {name.replace('_', ' ')} than entry {number} of the ledger")


def _refused(reason: str) -> IntegrityError:
    return IntegrityError(
        f"the receipt {reason}",
        code="receipt",
        hint="the receipt was changed, or is of another ledger, or the ledger was changed: dpsql ledger verify",
    )


def _no_receipt() -> ProgrammingError:
    return ProgrammingError(
        "the text is no receipt of dpsql", code="receipt_text", hint="write it with result.receipt.to_json()"
    )
