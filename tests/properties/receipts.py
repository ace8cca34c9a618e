"""Answers of every kind with their receipts, and every change of one place of a receipt."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clinic import POLICY, database

import dpsql
from dpsql.api.connection import Connection
from dpsql.ledger.protocol import Entry
from dpsql.ledger.reader import LedgerReader
from dpsql.ledger.receipts import parse_receipt
from dpsql.results.result import Receipt

COUNT = "SELECT COUNT(*) AS n FROM visits"
PLANS = "SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan"
BOTH = f"{COUNT} UNION ALL SELECT SUM(days) FROM visits WHERE plan = 'A'"
SUM = "SELECT SUM(cost) AS total FROM visits"
CHAINED = f"{COUNT} WHERE days > (SELECT AVG(days) FROM visits)"

RELEASED = frozenset({"data_version", "entries", "loss", "refined"})
"""What the ledger says of an answer that was not charged."""
_NOTHING = frozenset({"entries", "loss", "refined"})
_STEPS = frozenset({"target.met", "notices"})
_MERGED = _STEPS | {"mechanisms", "replayed"}


def opened(ledger: Path, accountant: str, **changed: Any) -> Connection:
    """The clinic under an accountant, two tables of it private, parts of one charged for themselves."""
    tables = POLICY["tables"]
    visits = tables["visits"] | {"partition": "plan"}
    policy = POLICY | {
        "budget": {"epsilon": 400, "delta": 1e-6, "accountant": accountant},
        "per_analyst": {"epsilon": 300},
        "max_epsilon": 40,
        "data_version": "1",
        "tables": tables | {"visits": visits},
    }
    policy = {name: value for name, value in (policy | changed).items() if value is not None}
    return dpsql.connect(database(), policy=policy, ledger=ledger, analyst="ana")


def _asked(sql: str, **terms: Any) -> Callable[[Connection], dpsql.Result]:
    return lambda connection: connection.query(sql, **terms)


def _after(
    first: Callable[[Connection], object], second: Callable[[Connection], dpsql.Result]
) -> Callable[[Connection], dpsql.Result]:
    def answered(connection: Connection) -> dpsql.Result:
        first(connection)
        return second(connection)

    return answered


def _reserved(connection: Connection) -> dpsql.Result:
    with connection.reserve(epsilon=2):
        return connection.query(COUNT, epsilon=1)


ANSWERS: Mapping[str, Callable[[Connection], dpsql.Result]] = {
    "plain": _asked(COUNT, epsilon=1),
    "by accuracy": _asked(COUNT, target_error=100),
    "a part of a table": _asked(f"{COUNT} WHERE plan = 'A'", epsilon=1),
    "several parts": _asked(
        "SELECT (SELECT COUNT(*) FROM visits WHERE plan = 'A') AS a, (SELECT COUNT(*) FROM visits) AS b",
        epsilon=1,
    ),
    "several releases": _asked(BOTH, epsilon=1),
    "a released value in another": _asked(CHAINED, epsilon=1),
    "a slice": _reserved,
    "keys that are not public": _asked("SELECT ward, COUNT(*) FROM visits GROUP BY ward", epsilon=5),
    "a median": _asked("SELECT MEDIAN(cost) FROM visits", epsilon=1),
    "a learnt clamp": _asked("SELECT plan, SUM(days) FROM visits GROUP BY plan", epsilon=5),
    "in percent": _asked(PLANS, target_error="20%"),
    "in percent, not met": _asked(f"{COUNT} WHERE cost > 990", target_error="1%"),
    "refined": _after(_asked(COUNT, epsilon=0.1), _asked(COUNT, epsilon=0.3)),
    "one part refined": _after(_asked(COUNT, epsilon=0.1), _asked(BOTH, epsilon=0.6)),
    "replayed": _after(_asked(COUNT, epsilon=1), _asked(COUNT, epsilon=1)),
    "replayed after a refinement": _after(
        _after(_asked(COUNT, epsilon=0.1), _asked(COUNT, epsilon=0.3)), _asked(COUNT, epsilon=0.3)
    ),
    "in percent, from what there was": _after(
        _after(_asked(PLANS, epsilon=1, replay=False), _asked(PLANS, epsilon=1, replay=False)),
        _asked(PLANS, target_error="1%"),
    ),
    "combined": _after(
        _after(_asked(COUNT, epsilon=1), _asked(COUNT, epsilon=1, replay=False)),
        lambda connection: connection.combine(COUNT),
    ),
    "public": _asked("SELECT name, beds FROM wards", epsilon=1),
    "explained": _asked(f"EXPLAIN {COUNT}", epsilon=1),
}
"""Answers of each kind, the last of what is asked of a fresh ledger."""

SAID: Mapping[str, frozenset[str]] = {
    "replayed": RELEASED,
    "replayed after a refinement": RELEASED,
    "combined": RELEASED,
    "public": _NOTHING,
    "explained": frozenset({"entries", "notices", "explained"}),
}
"""The fields that are shown of answers which were not charged; of others all are, but for these."""

UNSAID: Mapping[str, frozenset[str]] = {
    "a learnt clamp": frozenset({"selected clamps, and their noise"}),
    "in percent": _STEPS,
    "in percent, not met": _MERGED,
    "in percent, from what there was": _MERGED,
}


class Remembered(LedgerReader):
    """A history that reads each entry once: nothing changes it here."""

    def find_entry(self, number: int) -> Entry | None:
        """As `LedgerReader.find_entry`."""
        return self._once(number, super().find_entry)

    def list_charge_entries(self, number: int) -> list[Entry]:
        """As `LedgerReader.list_charge_entries`."""
        return self._once(-number, super().list_charge_entries)

    def _once(self, key: int, read: Callable[[int], Any]) -> Any:
        found: dict[int, Any] = self.__dict__.setdefault("found", {})
        if key not in found:
            found[key] = read(abs(key))
        return found[key]


def data_of(receipt: Receipt) -> dict[str, Any]:
    """A receipt as whoever gets it reads it."""
    found = parse_receipt(receipt.to_json())
    assert isinstance(found, dict)
    return found


def changes(receipt: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every change of one place: another value, another type, left out, and one more; with the place's path."""
    for path in list(_paths(receipt)):
        for value in _others(_at(receipt, path)):
            changed = copy.deepcopy(receipt)
            _at(changed, path[:-1])[path[-1]] = value
            yield path, changed
        changed = copy.deepcopy(receipt)
        del _at(changed, path[:-1])[path[-1]]
        yield path, changed
    for path in [(), *_paths(receipt)]:
        changed = copy.deepcopy(receipt)
        place = _at(changed, path)
        if isinstance(place, dict):
            place["more"] = "1"
            yield (*path, "more"), changed
        elif isinstance(place, list):
            place.append(copy.deepcopy(place[0]) if place else "more")
            yield path, changed
            place.pop()
            place.reverse()
            if changed != receipt:
                yield path, changed


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places within a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in items:
        yield (*path, name)
        yield from _paths(each, (*path, name))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _others(value: Any) -> Iterator[Any]:
    """Values other than this one, of its type and of others."""
    match value:
        case str():
            yield from (value + "0", "", 1)
        case int():
            yield from (value + 1, float(value), str(value))
        case None:
            yield from ("", {"epsilon": "1"}, [])
        case list() | dict():
            yield from (None, {} if isinstance(value, list) else [])
            if value:
                yield type(value)()
