"""A receipt held against the ledger that is said to have charged it.

Claim: a field of a receipt that is checked and not named in `unsaid` is what dpsql wrote; a receipt that dpsql wrote
passes.
Why: fields are compared with the entries that the receipt names, whose digests are checked first. An entry holds all
that was known before the charge: the query, the plan, the policy, who asked, what was drawn, the noise of the answer,
what it was made from and the steps before it. A field that no entry decides is named in `unsaid`, one that dpsql does
not write is refused.

What is not shown: that the rows which came with the receipt are the answer; nor that the rest of the ledger is
intact, which `History.verify` shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from dpsql.accounting.events import Composed, Event, from_json, to_json
from dpsql.errors import IntegrityError, ProgrammingError
from dpsql.ledger.digest import canonical
from dpsql.ledger.protocol import Entry
from dpsql.ledger.reader import History

_TEXTS = ("query", "plan", "analyst", "privacy_unit", "neighbors", "data_version", "policy")
_DETAILS = ("plan", "data_version", "policy", "privacy_unit", "neighbors", "versions")
_LISTS: Mapping[str, type] = {
    "mechanisms": dict,
    "entries": dict,
    "replayed": int,
    "refined": int,
    "notices": str,
}
_ABSENT: Mapping[str, object] = {"target": None, "replayed": [], "refined": [], "notices": []}
"""Fields that the first receipts lack, with what they would have had."""
_FIELDS = frozenset({*_TEXTS, *_LISTS, *_ABSENT, "loss", "versions", "explained"})
_OF_A_CLAMP = ("noise", "l1_sensitivity", "l2_sensitivity_squared", "linf_sensitivity")
_OF_A_STEP = ("epsilon", "met")
_MERGED = "merged: "
_CHARGES = ("charge", "draw")
_LEARNT = "clamps that were learnt, and their noise"


@dataclass(frozen=True, slots=True)
class CheckedReceipt:
    """A receipt that its ledger bears out.

    `entries` are what was charged for it, `paid` those that paid earlier for what was answered again; `unsaid` are the
    fields of which the ledger does not say what they must be.
    """

    entries: tuple[Entry, ...]
    paid: tuple[Entry, ...]
    unsaid: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Charge:
    """The entries of one charge, with their common details."""

    entries: tuple[Entry, ...]

    @property
    def id(self) -> int:
        return self.entries[0].charge

    @property
    def details(self) -> Mapping[str, Any]:
        return self.entries[0].details

    @property
    def complete(self) -> bool:
        """Whether the entries hold all that receipts say; those of older versions do not."""
        return "versions" in self.details

    @property
    def answered(self) -> Any:
        """The noise of the answer as it was known before the charge; None where an older entry does not say it."""
        if not self.complete and "refines" in self.details:
            return None
        return self.details.get("answered", self.details.get("mechanisms"))

    @property
    def event(self) -> Event | None:
        """All that was released, None where the entries do not say it."""
        if "loss" in self.details:
            return from_json(_text(self.details["loss"]))
        events = {entry.event for entry in self.entries}
        return self.entries[0].event if len(events) == 1 else None


def check_receipt(receipt: object, history: History) -> CheckedReceipt:
    """Checks the data of `Receipt.to_json` against a ledger.

    Raises ProgrammingError (`receipt_text`) for what is no receipt, IntegrityError (`receipt`) with the reason where
    the ledger does not bear it out.
    """
    data = _read(receipt)
    charges = _charges(data, history)
    # The first receipts lack fields, as the entries of their charges do.
    if not _ABSENT.keys() <= data.keys() and (not charges or charges[0].complete):
        raise _no_receipt()
    data = {**_ABSENT, **data}
    _require_notices(data)
    if "explained" in data:
        return _explained(data)
    paid = tuple(_paid(number, history) for number in data["replayed"])
    if not charges:
        return _free(data, paid, history)
    unsaid: list[str] = []
    for charge in charges:
        unsaid += _unsaid_common(data, charge)
    unsaid += _unsaid_loss(data, charges)
    unsaid += _unsaid_target(data, charges)
    unsaid += _unsaid_sources(data, charges, paid, history)
    entries = tuple(entry for charge in charges for entry in charge.entries)
    return CheckedReceipt(entries, paid, tuple(dict.fromkeys(unsaid)))


def _read(receipt: object) -> Mapping[str, Any]:
    if not isinstance(receipt, dict):
        raise _no_receipt()
    unknown = receipt.keys() - _FIELDS
    needed = {*_TEXTS, "mechanisms", "entries", "loss", "versions"}
    if not needed <= receipt.keys() or not all(isinstance(receipt[name], str) for name in _TEXTS):
        raise _no_receipt()
    if unknown:
        raise _refused(f"has a field that dpsql does not write: {min(unknown)}")
    for name, kind in _LISTS.items():
        values = receipt.get(name, [])
        if not isinstance(values, list) or not all(type(value) is kind for value in values):
            raise _no_receipt()
    if not isinstance(receipt["loss"], dict | None) or not isinstance(receipt["versions"], dict):
        raise _no_receipt()
    if not isinstance(receipt.get("target"), dict | None) or receipt.get("explained", True) is not True:
        raise _no_receipt()
    if not all(type(entry.get("id")) is int for entry in receipt["entries"]):
        raise _no_receipt()
    return receipt


def _charges(data: Mapping[str, Any], history: History) -> tuple[_Charge, ...]:
    """The charges that a receipt names, oldest first, each with all of its entries."""
    entries = [_entry(named, history) for named in data["entries"]]
    charges = tuple(_Charge(tuple(group)) for _, group in groupby(entries, key=lambda entry: entry.charge))
    if any(later.id <= earlier.id for earlier, later in pairwise(charges)):
        raise _refused("names its charges in another order than they were made")
    for charge in charges:
        if [entry.id for entry in history.charge(charge.id)] != [entry.id for entry in charge.entries]:
            raise _refused(
                f"does not name all entries of the charge that entry {charge.id} begins, or others too"
            )
    return charges


def _entry(named: Mapping[str, Any], history: History) -> Entry:
    """The entry that a receipt names, which is as it says."""
    number = named["id"]
    entry = _held(number, history)
    kept: dict[str, object] = {
        "id": number,
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
    if unknown := named.keys() - kept.keys():
        raise _refused(f"says of entry {number} what the ledger does not: {min(unknown)}")
    return entry


def _held(number: int, history: History) -> Entry:
    """The charge of that number."""
    entry = history.entry(number) if 0 < number < 2**63 else None
    if entry is None:
        raise _refused(f"names entry {number}, which the ledger does not hold")
    if entry.kind not in _CHARGES:
        raise _refused(f"names entry {number}, which charges nothing")
    return entry


def _paid(number: int, history: History) -> Entry:
    """The entry that paid at an earlier time: the first of its charge."""
    entry = _held(number, history)
    if entry.charge != number:
        raise _refused(f"names entry {number}, which begins no charge")
    return entry


def _require_notices(data: Mapping[str, Any]) -> None:
    """A search that ends before its target is met says so, and nothing else has notices."""
    met = (data["target"] or {}).get("met")
    if met not in (None, "yes", "no") or (met == "no") != bool(data["notices"]):
        raise _refused("has notices that do not go with whether its target was met")


def _explained(data: Mapping[str, Any]) -> CheckedReceipt:
    """The receipt of an explanation, which names no charge; nothing of it is in the ledger."""
    if data["entries"] or data["notices"]:
        raise _refused("is of an explanation, and names what was charged")
    return CheckedReceipt((), (), tuple(sorted(_FIELDS - {"entries", "notices", "explained"})))


def _free(data: Mapping[str, Any], paid: Sequence[Entry], history: History) -> CheckedReceipt:
    """The receipt of what was not charged: it follows from public tables, and what was charged earlier."""
    if data["loss"] is not None or data["refined"] or (data["mechanisms"] and not paid):
        raise _refused("names no charge for what it says was released")
    if len({entry.id for entry in paid}) != len(paid):
        raise _refused("names an entry twice")
    unsaid = [*_TEXTS, "versions", "target", "notices", "replayed", "mechanisms"]
    if paid and all("data_version" in entry.details for entry in paid):
        for entry in paid:
            _require(entry.id, "data_version", data["data_version"], entry.details["data_version"])
        unsaid.remove("data_version")
    unsaid += _unsaid_noise(data, paid, history)
    return CheckedReceipt((), tuple(paid), tuple(dict.fromkeys(unsaid)))


def _unsaid_common(data: Mapping[str, Any], charge: _Charge) -> list[str]:
    for entry in charge.entries:
        _require(entry.id, "query", data["query"], entry.query)
        _require(entry.id, "analyst", data["analyst"], entry.analyst)
        for name in _DETAILS:
            if name in entry.details:
                _require(entry.id, name, data[name], entry.details[name])
    return [name for name in _DETAILS if name not in charge.details]


def _unsaid_loss(data: Mapping[str, Any], charges: Sequence[_Charge]) -> list[str]:
    """The loss is of all releases together, in all steps."""
    events = tuple(event for charge in charges if (event := charge.event) is not None)
    if len(events) < len(charges):
        return ["loss"]
    loss = Composed(events) if len(events) > 1 else events[0]
    if data["loss"] is None or _text(data["loss"]) != to_json(loss):
        raise _refused(f"says another loss than entry {charges[0].id} of the ledger")
    return []


def _unsaid_target(data: Mapping[str, Any], charges: Sequence[_Charge]) -> list[str]:
    """Each step has the target, the last one the loss that was found; whether it was met is said by the receipt alone."""
    said, last = data["target"], charges[-1]
    if not all(charge.complete for charge in charges):
        return ["target", "notices"] if said is not None else []
    kept = last.details.get("target")
    in_steps = kept is not None and kept["error"].endswith("%")
    if (said is not None and "met" in said) != in_steps:
        raise _refused(f"says another target than entry {last.id} of the ledger")
    _require(last.id, "target", said and {name: said[name] for name in said if name != "met"}, kept)
    for charge in charges[:-1]:
        _require(charge.id, "target", _aim(charge.details.get("target")), _aim(said))
    if [charge.id for charge in charges[:-1]] != last.details.get("steps", []):
        raise _refused(f"names other steps than entry {last.id} of the ledger")
    return ["target.met", "notices"] if in_steps else []


def _aim(target: Mapping[str, Any] | None) -> dict[str, Any]:
    """What is the same in all steps to a target."""
    return {name: value for name, value in (target or {}).items() if name not in _OF_A_STEP}


def _unsaid_sources(
    data: Mapping[str, Any], charges: Sequence[_Charge], paid: Sequence[Entry], history: History
) -> list[str]:
    """What was refined or answered again, and the noise of the answer.

    After several steps, or where other releases were there, the answer is all of it put together: then the entries
    say which noise was drawn, and not with which weights.
    """
    own, last = {entry.id for charge in charges for entry in charge.entries}, charges[-1]
    bases = (base for charge in charges for base in charge.details.get("refines", []))
    refined = [base for base in dict.fromkeys(bases) if base not in own]
    _require(last.id, "refined", data["refined"], refined)
    replayed = [id_ for id_ in last.details.get("replayed", []) if id_ not in own and id_ not in refined]
    kept = last.answered
    if kept is not None and _same(data["mechanisms"], kept) and data["replayed"] == replayed:
        return [_LEARNT] if any(map(_is_learnt, kept)) else []
    if not last.complete and (kept is None or data["replayed"]):
        return ["mechanisms", "replayed"]
    if last.complete and "met" in (data["target"] or {}):
        named = [*(charge.entries[0] for charge in charges), *paid, *(_held(id_, history) for id_ in refined)]
        return ["mechanisms", "replayed", *_unsaid_noise(data, named, history)]
    if data["replayed"] != replayed:
        raise _refused(f"says that other entries paid than entry {last.id} of the ledger")
    raise _refused(f"says other mechanisms than entry {last.id} of the ledger")


def _same(said: Sequence[Any], kept: Sequence[Mapping[str, Any]]) -> bool:
    """Whether mechanisms are as they were said to be; what follows from a learnt clamp is not known beforehand."""
    return len(said) == len(kept) and all(map(_is_of, said, kept))


def _is_of(said: Any, kept: Mapping[str, Any]) -> bool:
    return _text(_beforehand(said, kept)) == _text(kept)


def _unsaid_noise(data: Mapping[str, Any], named: Sequence[Entry], history: History) -> list[str]:
    """Requires that each mechanism was drawn for one of the charges, or is put together of what was."""
    sources = list(_sources(named, history))
    known = [item for entry in sources for item in _mechanisms(entry)]
    if not all("versions" in entry.details for entry in sources):
        return []  # older entries do not say what was drawn for a refinement
    drawn = {item["noise"] for item in known}
    learnt = False
    for said in data["mechanisms"]:
        of = [item for item in known if _is_of(said, item)]
        if not of and not _put_together(said, drawn):
            raise _refused("says a mechanism that was drawn for none of the entries that it names")
        learnt = learnt or any(map(_is_learnt, of))
    return [_LEARNT] if learnt else []


def _put_together(said: Mapping[str, Any], drawn: Iterable[str]) -> bool:
    noise = said.get("noise")
    if not isinstance(noise, str) or not noise.startswith(_MERGED):
        return False
    parts = noise.removeprefix(_MERGED).split("; ")
    return all(part.partition(" of ")[2] in drawn for part in parts)


def _sources(named: Iterable[Entry], history: History) -> Iterator[Entry]:
    """Entries, and those that paid for what they refine or answer again."""
    waiting, known = list(named), set[int]()
    while waiting:
        entry = waiting.pop()
        if entry.id not in known:
            known.add(entry.id)
            yield entry
            before = (*entry.details.get("refines", []), *entry.details.get("replayed", []))
            waiting += [_held(number, history) for number in before]


def _mechanisms(entry: Entry) -> list[Mapping[str, Any]]:
    return [*entry.details.get("mechanisms", []), *entry.details.get("answered", [])]


def _beforehand(said: Any, kept: Mapping[str, Any]) -> Any:
    """What is said of a mechanism, with what follows from its clamp as it was before that was learnt."""
    if not _is_learnt(kept) or not isinstance(said, dict) or not isinstance(said.get("clamp"), dict):
        return said
    followed = {name: kept[name] for name in _OF_A_CLAMP if name in said and name in kept}
    chosen = {"chosen": "learnt"} if "chosen" in said["clamp"] else {}
    return said | followed | {"clamp": said["clamp"] | chosen}


def _is_learnt(mechanism: Mapping[str, Any]) -> bool:
    return bool(mechanism.get("clamp", {}).get("chosen") == "learnt")


def _text(value: object) -> str:
    return canonical({"": value})[4:-1]


def _require(number: int, name: str, said: object, kept: object) -> None:
    if _text(said) != _text(kept):
        raise _refused(f"says another {name.replace('_', ' ')} than entry {number} of the ledger")


def read_receipt(text: str) -> object:
    """The JSON data of a receipt's text, to be checked by `check_receipt`.

    Raises ProgrammingError (`receipt_text`) for other text, and where a name stands twice in one object: of those a
    reader may see either.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise _no_receipt() from None


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _no_constant(text: str) -> object:
    raise ValueError(text)


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
