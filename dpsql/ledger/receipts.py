"""Verification of a receipt against the ledger that recorded its charge.

Claim: a field of a receipt that is checked and not named in `unverified_fields` is what dpsql wrote; a receipt that dpsql wrote
passes.
Why: fields are compared with the entries that the receipt names, whose digests are checked first. An entry holds all
that was known before the charge: the query, the plan, the policy, the analyst, the drawn noise, the noise of the answer,
the releases that it uses and the steps before it. A field that no entry determines is named in `unverified_fields`; a field that
dpsql does not write is refused.

Not proved: that the rows which came with the receipt are the answer; that the rest of the ledger is intact, which
`LedgerReader.verify` checks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

from dpsql.errors import IntegrityError, ProgrammingError
from dpsql.ledger.digest import to_canonical_json
from dpsql.ledger.protocol import Entry
from dpsql.ledger.reader import LedgerReader
from dpsql.privacy.accounting.events import Composed, Event, from_json, to_json

_TEXTS = ("query", "plan", "analyst", "privacy_unit", "neighbors", "data_version", "policy")
_DETAILS = ("plan", "data_version", "policy", "privacy_unit", "neighbors", "versions")
_LISTS: Mapping[str, type] = {
    "mechanisms": dict,
    "entries": dict,
    "replayed": int,
    "refined": int,
    "notices": str,
}
_OPTIONAL = ("explained", "constants")
"""Fields that are only written when they are not empty."""
_REQUIRED = frozenset({*_TEXTS, *_LISTS, "target", "loss", "versions"})
_FIELDS = _REQUIRED.union(_OPTIONAL)
_OF_A_CLAMP = ("noise", "l1_sensitivity", "l2_sensitivity_squared", "linf_sensitivity")
_OF_A_STEP = ("epsilon", "met")
_MERGED = "merged: "
_CHARGES = ("charge", "draw")
_LEARNT = "selected clamps, and their noise"


@dataclass(frozen=True, slots=True)
class CheckedReceipt:
    """A receipt that agrees with its ledger.

    `entries` are those of its charge, `paying_entries` those of earlier charges for what it replays; `unverified_fields` are the fields
    that the ledger does not determine.
    """

    entries: tuple[Entry, ...]
    paying_entries: tuple[Entry, ...]
    unverified_fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _RecordedCharge:
    """The entries of one charge, with their common details."""

    entries: tuple[Entry, ...]

    @property
    def id(self) -> int:
        return self.entries[0].charge

    @property
    def details(self) -> Mapping[str, Any]:
        return self.entries[0].details

    @property
    def answer_mechanisms(self) -> Any:
        """Return the noise of the answer as known before the charge."""
        return self.details.get("answered", self.details["mechanisms"])

    @property
    def event(self) -> Event | None:
        """Return the event of the whole charge; None where the entries do not hold it."""
        if "loss" in self.details:
            return from_json(_to_canonical_text(self.details["loss"]))
        events = {entry.event for entry in self.entries}
        return self.entries[0].event if len(events) == 1 else None


def check_receipt(receipt: object, reader: LedgerReader) -> CheckedReceipt:
    """Check the data of `Receipt.to_json` against a ledger.

    Raises ProgrammingError (`receipt_text`) for data that is no receipt, IntegrityError (`receipt`) with the reason where
    it disagrees with the ledger.
    """
    data = _require_receipt_fields(receipt)
    charges = _list_charges(data, reader)
    _require_notices(data)
    checked = _check_against_ledger(data, charges, reader)
    return replace(
        checked, unverified_fields=(*checked.unverified_fields, *(["constants"] * ("constants" in data)))
    )


def _check_against_ledger(
    data: Mapping[str, Any], charges: tuple[_RecordedCharge, ...], reader: LedgerReader
) -> CheckedReceipt:
    """Check the receipt against the ledger, except for the constants that the statement took from the time."""
    if "explained" in data:
        return _check_explanation(data)
    paid = tuple(_get_paying_entry(number, reader) for number in data["replayed"])
    if not charges:
        return _check_uncharged(data, paid, reader)
    for charge in charges:
        _verify_common_fields(data, charge)
    unverified = [*_verify_loss(data, charges), *_verify_target(data, charges)]
    unverified += _verify_sources(data, charges, paid, reader)
    entries = tuple(entry for charge in charges for entry in charge.entries)
    return CheckedReceipt(entries, paid, tuple(dict.fromkeys(unverified)))


def _require_receipt_fields(receipt: object) -> Mapping[str, Any]:
    if not isinstance(receipt, dict):
        raise _make_format_error()
    unknown = receipt.keys() - _FIELDS
    if not receipt.keys() >= _REQUIRED or not all(isinstance(receipt[name], str) for name in _TEXTS):
        raise _make_format_error()
    if unknown:
        raise _make_receipt_error(f"has the field {min(unknown)}, which dpsql does not write")
    for name, kind in _LISTS.items():
        values = receipt[name]
        if not isinstance(values, list) or not all(type(value) is kind for value in values):
            raise _make_format_error()
    if not isinstance(receipt["loss"], dict | None) or not isinstance(receipt["versions"], dict):
        raise _make_format_error()
    if not isinstance(receipt["target"], dict | None) or receipt.get("explained", True) is not True:
        raise _make_format_error()
    if not _is_named_texts(receipt.get("constants", {"": ""})):
        raise _make_format_error()
    if not all(type(entry.get("id")) is int for entry in receipt["entries"]):
        raise _make_format_error()
    return receipt


def _is_named_texts(value: object) -> bool:
    """Return whether this is a dict of texts by name, and not empty."""
    return isinstance(value, dict) and bool(value) and all(isinstance(text, str) for text in value.values())


def _list_charges(data: Mapping[str, Any], reader: LedgerReader) -> tuple[_RecordedCharge, ...]:
    """Return the charges that a receipt names, oldest first, each with all of its entries."""
    entries = [_get_named_entry(named, reader) for named in data["entries"]]
    charges = tuple(
        _RecordedCharge(tuple(group)) for _, group in groupby(entries, key=lambda entry: entry.charge)
    )
    if any(later.id <= earlier.id for earlier, later in pairwise(charges)):
        raise _make_receipt_error("does not list its charges in the order of the ledger")
    for charge in charges:
        if [entry.id for entry in reader.list_charge_entries(charge.id)] != [
            entry.id for entry in charge.entries
        ]:
            raise _make_receipt_error(
                f"does not list exactly the entries of the charge that begins with entry {charge.id}"
            )
    return charges


def _get_named_entry(named: Mapping[str, Any], reader: LedgerReader) -> Entry:
    """Return the entry that a receipt names; raise IntegrityError where it differs from what the receipt states."""
    number = named["id"]
    entry = _get_charge_entry(number, reader)
    recorded: dict[str, object] = {
        "id": number,
        "digest": entry.digest,
        "table": entry.table,
        "at": entry.at.isoformat(),
        "loss": str(entry.spend.loss_fraction),
        "delta": str(entry.spend.delta_fraction),
    }
    recorded |= {"box": entry.box} if entry.box is not None else {}
    recorded |= {"slice": entry.reservation} if entry.reservation is not None else {}
    recorded |= {"account": entry.account_analyst} if entry.account_analyst else {}
    recorded |= {"tables": entry.details["tables"]} if "tables" in entry.details else {}
    for name, value in recorded.items():
        _require_equal(number, name, named.get(name), value)
    if unknown := named.keys() - recorded.keys():
        raise _make_receipt_error(f"states {min(unknown)} of entry {number}, which the ledger does not")
    return entry


def _get_charge_entry(number: int, reader: LedgerReader) -> Entry:
    """Return the charge of that number."""
    entry = reader.find_entry(number) if 0 < number < 2**63 else None
    if entry is None:
        raise _make_receipt_error(f"names entry {number}, which is not in the ledger")
    if entry.kind not in _CHARGES:
        raise _make_receipt_error(f"names entry {number}, which is not a charge")
    if not entry.details.keys() >= {*_DETAILS, "mechanisms"}:
        raise _make_receipt_error(f"names entry {number}, which is not the charge of a query")
    return entry


def _get_paying_entry(number: int, reader: LedgerReader) -> Entry:
    """Return the entry of an earlier charge that paid for a replay: the first of that charge."""
    entry = _get_charge_entry(number, reader)
    if entry.charge != number:
        raise _make_receipt_error(f"names entry {number}, which is not the first entry of a charge")
    return entry


def _require_notices(data: Mapping[str, Any]) -> None:
    """Require a notice of a search that ended before its target was met, and none in any other receipt."""
    met = (data["target"] or {}).get("met")
    if met not in (None, "yes", "no") or (met == "no") != bool(data["notices"]):
        raise _make_receipt_error("has notices that contradict whether its target was met")


def _check_explanation(data: Mapping[str, Any]) -> CheckedReceipt:
    """Check the receipt of an EXPLAIN, which names no charge; the ledger holds nothing of it."""
    if data["entries"] or data["notices"]:
        raise _make_receipt_error("belongs to an EXPLAIN, which charges nothing, but names charges")
    return CheckedReceipt((), (), tuple(sorted(_FIELDS - {"entries", "notices", *_OPTIONAL})))


def _check_uncharged(data: Mapping[str, Any], paid: Sequence[Entry], reader: LedgerReader) -> CheckedReceipt:
    """Check the receipt of an answer without a charge, which follows from public tables and replayed releases."""
    if data["loss"] is not None or data["refined"] or (data["mechanisms"] and not paid):
        raise _make_receipt_error("states released values but no charge for them")
    if len({entry.id for entry in paid}) != len(paid):
        raise _make_receipt_error("names an entry twice")
    unverified = [*_TEXTS, "versions", "target", "notices", "replayed", "mechanisms"]
    if paid:
        for entry in paid:
            _require_equal(entry.id, "data_version", data["data_version"], entry.details["data_version"])
        unverified.remove("data_version")
    unverified += _verify_mechanisms(data, paid, reader)
    return CheckedReceipt((), tuple(paid), tuple(dict.fromkeys(unverified)))


def _verify_common_fields(data: Mapping[str, Any], charge: _RecordedCharge) -> None:
    """Require the fields that all entries of a query's charges hold."""
    for entry in charge.entries:
        _require_equal(entry.id, "query", data["query"], entry.query)
        _require_equal(entry.id, "analyst", data["analyst"], entry.analyst)
        for name in _DETAILS:
            _require_equal(entry.id, name, data[name], entry.details[name])


def _verify_loss(data: Mapping[str, Any], charges: Sequence[_RecordedCharge]) -> list[str]:
    """Require the loss of all releases together, in all steps; return the fields that no entry determines."""
    events = tuple(event for charge in charges if (event := charge.event) is not None)
    if len(events) < len(charges):
        return ["loss"]
    loss = Composed(events) if len(events) > 1 else events[0]
    if data["loss"] is None or _to_canonical_text(data["loss"]) != to_json(loss):
        raise _make_receipt_error(f"states another loss than entry {charges[0].id} of the ledger")
    return []


def _verify_target(data: Mapping[str, Any], charges: Sequence[_RecordedCharge]) -> list[str]:
    """Require that each step has the target, and the last one the loss that was found; only the receipt states whether it was met."""
    stated, last = data["target"], charges[-1]
    recorded = last.details.get("target")
    in_steps = recorded is not None and recorded["error"].endswith("%")
    if (stated is not None and "met" in stated) != in_steps:
        raise _make_receipt_error(f"states another target than entry {last.id} of the ledger")
    _require_equal(
        last.id, "target", stated and {name: stated[name] for name in stated if name != "met"}, recorded
    )
    for charge in charges[:-1]:
        _require_equal(
            charge.id, "target", _get_common_target(charge.details.get("target")), _get_common_target(stated)
        )
    if [charge.id for charge in charges[:-1]] != last.details.get("steps", []):
        raise _make_receipt_error(f"names other steps than entry {last.id} of the ledger")
    return ["target.met", "notices"] if in_steps else []


def _get_common_target(target: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a target that all steps share."""
    return {name: value for name, value in (target or {}).items() if name not in _OF_A_STEP}


def _verify_sources(
    data: Mapping[str, Any], charges: Sequence[_RecordedCharge], paid: Sequence[Entry], reader: LedgerReader
) -> list[str]:
    """Verify what was refined or replayed, and the noise of the answer.

    After several steps, or with other stored releases, the answer is a combination: then the entries hold the drawn noise,
    but not its weights.
    """
    own, last = {entry.id for charge in charges for entry in charge.entries}, charges[-1]
    bases = (base for charge in charges for base in charge.details.get("refines", []))
    refined = [base for base in dict.fromkeys(bases) if base not in own]
    _require_equal(last.id, "refined", data["refined"], refined)
    replayed = [id_ for id_ in last.details.get("replayed", []) if id_ not in own and id_ not in refined]
    recorded = last.answer_mechanisms
    if _matches_all_records(data["mechanisms"], recorded) and data["replayed"] == replayed:
        return [_LEARNT] if any(map(_has_selected_clamp, recorded)) else []
    if "met" in (data["target"] or {}):
        named = [
            *(charge.entries[0] for charge in charges),
            *paid,
            *(_get_charge_entry(id_, reader) for id_ in refined),
        ]
        return ["mechanisms", "replayed", *_verify_mechanisms(data, named, reader)]
    if data["replayed"] != replayed:
        raise _make_receipt_error(f"names other replayed entries than entry {last.id} of the ledger")
    raise _make_receipt_error(f"states other mechanisms than entry {last.id} of the ledger")


def _matches_all_records(stated: Sequence[Any], recorded: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether mechanisms agree with those of the entries; values that depend on a selected clamp are not compared."""
    return len(stated) == len(recorded) and all(map(_matches_record, stated, recorded))


def _matches_record(stated: Any, recorded: Mapping[str, Any]) -> bool:
    return _to_canonical_text(_undo_clamp_selection(stated, recorded)) == _to_canonical_text(recorded)


def _verify_mechanisms(data: Mapping[str, Any], named: Sequence[Entry], reader: LedgerReader) -> list[str]:
    """Require that each mechanism was drawn for one of the charges, or combines such mechanisms."""
    known = [item for entry in _iterate_paying_entries(named, reader) for item in _list_mechanisms(entry)]
    drawn = {item["noise"] for item in known}
    learnt = False
    for stated in data["mechanisms"]:
        of = [item for item in known if _matches_record(stated, item)]
        if not of and not _is_combination(stated, drawn):
            raise _make_receipt_error("states a mechanism that none of its entries used")
        learnt = learnt or any(map(_has_selected_clamp, of))
    return [_LEARNT] if learnt else []


def _is_combination(stated: Mapping[str, Any], drawn: Iterable[str]) -> bool:
    noise = stated.get("noise")
    if not isinstance(noise, str) or not noise.startswith(_MERGED):
        return False
    parts = noise.removeprefix(_MERGED).split("; ")
    return all(part.partition(" of ")[2] in drawn for part in parts)


def _iterate_paying_entries(named: Iterable[Entry], reader: LedgerReader) -> Iterator[Entry]:
    """Yield these entries, and those that paid for what they refine or replay."""
    waiting, known = list(named), set[int]()
    while waiting:
        entry = waiting.pop()
        if entry.id not in known:
            known.add(entry.id)
            yield entry
            before = (*entry.details.get("refines", []), *entry.details.get("replayed", []))
            waiting += [_get_charge_entry(number, reader) for number in before]


def _list_mechanisms(entry: Entry) -> list[Mapping[str, Any]]:
    return [*entry.details.get("mechanisms", []), *entry.details.get("answered", [])]


def _undo_clamp_selection(stated: Any, recorded: Mapping[str, Any]) -> Any:
    """Return a receipt's record of a mechanism, with the values that depend on its clamp as they were before the clamp was selected."""
    if (
        not _has_selected_clamp(recorded)
        or not isinstance(stated, dict)
        or not isinstance(stated.get("clamp"), dict)
    ):
        return stated
    followed = {name: recorded[name] for name in _OF_A_CLAMP if name in stated and name in recorded}
    of_clamp = {
        name: recorded["clamp"][name]
        for name in ("chosen", "beyond")
        if name in stated["clamp"] and name in recorded["clamp"]
    }
    return stated | followed | {"clamp": stated["clamp"] | of_clamp}


def _has_selected_clamp(mechanism: Mapping[str, Any]) -> bool:
    return bool(mechanism.get("clamp", {}).get("chosen") == "learnt")


def _to_canonical_text(value: object) -> str:
    return to_canonical_json({"": value})[4:-1]


def _require_equal(number: int, name: str, stated: object, recorded: object) -> None:
    if _to_canonical_text(stated) != _to_canonical_text(recorded):
        raise _make_receipt_error(
            f"states another {name.replace('_', ' ')} than entry {number} of the ledger"
        )


def parse_receipt(text: str) -> object:
    """Return the JSON data of a receipt's text, to be checked by `check_receipt`.

    Raises ProgrammingError (`receipt_text`) for other text, and where a name stands twice in one object: of those a
    reader may see either.
    """
    try:
        return json.loads(text, object_pairs_hook=_to_unique_dict, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise _make_format_error() from None


def _to_unique_dict(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _refuse_constant(text: str) -> object:
    raise ValueError(text)


def _make_receipt_error(reason: str) -> IntegrityError:
    return IntegrityError(
        f"the receipt {reason}",
        code="receipt",
        hint="the receipt was changed or belongs to another ledger, or the ledger was changed:"
        " check it with `dpsql ledger verify`",
    )


def _make_format_error() -> ProgrammingError:
    return ProgrammingError(
        "the text is not a dpsql receipt",
        code="receipt_text",
        hint="save a receipt with result.receipt.to_json()",
    )
