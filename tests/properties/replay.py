"""One query on several databases through the whole public path, and all that can be observed of it.

A `Player` plays a query on one database: EXPLAIN, then the query itself through a cursor, with the
clock and the entropy replaced. What an analyst, or whoever watches the engine, can see besides released
values is what was `Observed`: it must be the same on neighbours, byte for byte.

Draws are recorded by group and cell. On a neighbour they are the same again, or such that noisy cells
are the same. With the same draws released cells differ by what the exact ones do, which is no more than was
derived. With the same noisy cells all that is shown is the same to the last digit, for it follows from them.
"""

from __future__ import annotations

import datetime as dt
import io
import itertools
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import duckdb
from entropy import RecordingEntropy, SeededEntropy
from properties.tape import Measurement, Tape, recorded_by
from worlds import NOON, assert_within

import dpsql
from dpsql.api.base_connection import Cursor
from dpsql.api.connection import Connection
from dpsql.backends.duckdb import DuckDBBackend
from dpsql.engine.release.released_table import ReleasedTable
from dpsql.plan.expressions import Function
from dpsql.plan.types import COMPARED_FIELDS, Value
from dpsql.planning.clamping import Clamp
from dpsql.policy.request import query

Failure = tuple[Any, ...]


@dataclass(frozen=True)
class Observed:
    """All that can be observed of a query but for released values; empty where there is nothing.

    `prepared` is the whole plan with mechanisms, scales, thresholds and prices, `plans` those that were
    measured by in spite of it, `sent` every call of the engine, `words` the entropy that the draws took.
    Where keys are secret, `words` and `keys` are None. `frames` are the types in pandas, Arrow and polars.
    """

    explanation: str | Failure = ()
    prepared: str = ""
    sent: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    draws: tuple[tuple[int, ...], ...] = ()
    words: int | None = None
    keys: tuple[tuple[str, ...] | None, ...] = ()
    description: tuple[Any, ...] | None = ()
    types: tuple[tuple[str, str], ...] = ()
    frames: tuple[str | Failure, ...] = ()
    receipt: str = ""
    error: Failure = ()
    entries: tuple[tuple[str, ...], ...] = ()
    budget: str = ""
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replay:
    """What was observed of a query, what was released, and what was shown of it."""

    observed: Observed
    measurements: tuple[Measurement, ...]
    shown: str

    @property
    def tables(self) -> list[ReleasedTable]:
        """The released tables, in the order in which they were."""
        return [measurement.table for measurement in self.measurements]


class Overheard:
    """A DuckDB connection that keeps the text of everything that it is sent."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.sent: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._connection, name)
        if not callable(method):
            return method

        def called(*arguments: Any) -> Any:
            self.sent.append(f"{name}{arguments}")
            return method(*arguments)

        return called


def _whole(part: object) -> str:
    """All that is in a part of a plan, or in what was prepared, as text: tags are for less than this."""
    if isinstance(part, Function):
        return part.name
    kind = type(part)
    if is_dataclass(kind):
        return (
            f"({kind.__name__} {' '.join([_whole(getattr(part, name)) for name in COMPARED_FIELDS[kind]])})"
        )
    if isinstance(part, (tuple, list)):
        return f"({' '.join(map(_whole, part))})"
    return _whole(sorted(part)) if isinstance(part, frozenset) else repr(part)


def _not_kept(*_: object) -> None:
    """Stores no release."""


@dataclass
class Player:
    """A connection that queries are played on; its engine is overheard from now on.

    `counting` adds the state of the budget to what is observed, which takes longer than most queries.
    """

    connection: Connection
    counting: bool = False
    sent: list[str] = field(init=False)

    def __post_init__(self) -> None:
        backend = self.connection.engine.backend
        assert isinstance(backend, DuckDBBackend)
        overheard = Overheard(backend._runner.connection)
        backend._runner.connection = overheard  # type: ignore[assignment]
        self.sent = overheard.sent
        self.connection._queries.defaults = replace(
            self.connection._queries.defaults, replay=False
        )  # each query is played with the draws that the tape has
        # Each entry vouches by a digest for the releases that are stored before it. Those are noisy, and public; nothing is
        # stored here, so that what is observed of the entries holds nothing of what was released.
        self.connection.engine.ledger.store_releases = _not_kept  # type: ignore[method-assign]

    def play(self, tape: Tape, sql: str, parameters: Sequence[Value] = (), **options: Any) -> Replay:
        """Explains and asks a query; what the tape knows is drawn again."""
        engine = self.connection.engine
        assert isinstance(engine.entropy, RecordingEntropy)
        engine.entropy.source = SeededEntropy(1)
        engine.entropy.requests.clear()
        self.sent.clear()
        measurements: list[Measurement] = []
        with _listened() as log, recorded_by(tape, measurements), _at_noon():
            explained, unexplained = _tried(lambda: self.connection.explain(sql, parameters, **options))
            cursor, error = _tried(lambda: self.connection.execute(sql, parameters, **options))
        prepared = explained and explained.prepared
        planned = () if prepared is None else [release.plan for release in prepared.releases]
        observed = Observed(
            explanation=unexplained if explained is None else str(explained),
            prepared=_whole(prepared and (prepared.outer, prepared.releases, prepared.outer_sql)),
            sent=tuple(self.sent),
            plans=tuple(_whole(item.plan) for item in measurements if item.plan not in planned),
            draws=tuple(item.draws for item in measurements),
            words=None if any(item.secret for item in measurements) else engine.entropy.total,
            keys=tuple(_public_keys(item) for item in measurements),
            error=error,
            entries=tuple(_texts(entry) for entry in engine.ledger.list_entries(limit=3)),
            budget=str(self.connection.budget()) if self.counting else "",
            log=tuple(log),
        )
        if cursor is None:
            return Replay(observed, tuple(measurements), "")
        shape, shown = _shape(cursor), (cursor.result.rows, cursor.result.scales, cursor.result.intervals())
        return Replay(replace(observed, **shape), tuple(measurements), repr(shown))


@contextmanager
def _at_noon() -> Iterator[None]:
    """Queries are asked at one moment, which now() is."""
    clock = SimpleNamespace(UTC=dt.UTC, datetime=SimpleNamespace(now=lambda _: NOON))
    with patch.object(query, "dt", clock):
        yield


def played(
    players: Sequence[Player],
    sql: str,
    parameters: Sequence[Value] = (),
    *,
    cells: bool = False,
    clamps: dict[int, tuple[Clamp, ...]] | None = None,
    **options: Any,
) -> list[Replay]:
    """One query on several databases, with the same draws or, if `cells`, with the same noisy cells.

    The same `clamps` are chosen as before.
    """
    tape = Tape(cells, clamps={} if clamps is None else clamps)
    return [player.play(tape, sql, parameters, **options) for player in players]


def differing(ours: Replay, theirs: Replay) -> dict[str, tuple[Any, Any]]:
    """What can be observed to differ, by name, and what is shown where it must not differ either."""
    pairs = {
        part.name: (getattr(ours.observed, part.name), getattr(theirs.observed, part.name))
        for part in fields(Observed)
    }
    if ours.tables == theirs.tables:
        pairs["shown"] = (ours.shown, theirs.shown)
    elif len(ours.tables) > 1:
        # Later statements may hold values that earlier ones have released.
        del pairs["sent"]
    return {name: (first, second) for name, (first, second) in pairs.items() if first != second}


def assert_same(replays: Sequence[Replay]) -> None:
    """Nothing but released values differs between databases, and no error has another behind it."""
    first, *others = replays
    for other in others:
        found = differing(first, other)
        assert not found, "\n".join(f"{name}:\n  {a}\n  {b}" for name, (a, b) in found.items())
    # What the parser says of a text that it cannot read is no engine's word.
    if first.observed.error and first.observed.error[1] != "syntax":
        assert first.observed.error[-2:] == ((), ()), "an error keeps the one that it came from"


def assert_neighbours(ours: Replay, theirs: Replay) -> None:
    """Exact cells differ by no more than was derived, noise is all that is added, and order is the keys'."""
    assert len(ours.measurements) == len(theirs.measurements)
    for before, after in zip(ours.measurements, theirs.measurements, strict=True):
        _assert_noise(before)
        _assert_noise(after)
        if before.plan.vectors:
            assert_within(before, before.exact, after.exact)  # type: ignore[arg-type]
        first, second = before.shown, after.shown
        assert [key for key in first if key in second] == [key for key in second if key in first]
        if (first, before.table.components) != (second, after.table.components):
            return  # what comes after it may ask for something else
        assert before.table == after.table, "equal cells make other values"


def _assert_noise(measurement: Measurement) -> None:
    if measurement.plan.top_k is not None:
        return
    for keys, cells in zip(measurement.shown, measurement.table.components, strict=True):
        exact, added = (list(itertools.chain(*of[keys])) for of in (measurement.exact, measurement.noise))
        noisy = itertools.chain(*cells[: len(measurement.plan.vectors)])
        assert list(noisy) == [sum(pair) for pair in zip(exact, added, strict=True)]


def _public_keys(measurement: Measurement) -> tuple[str, ...] | None:
    """The keys in their order; None where they are secret, but then their order must be their own."""
    keys = measurement.shown
    if not measurement.secret:
        return tuple(map(repr, keys))
    if measurement.plan.analysis.domains is None:
        assert keys == sorted(keys, key=lambda key: [(part is None, part) for part in key])
    return None


def _shape(cursor: Cursor) -> dict[str, Any]:
    """Names, types and receipt of an answer, in each form that it can take."""
    result = cursor.result
    forms = (
        lambda: [*result.df().dtypes.items()],
        lambda: result.to_arrow_table().schema,
        lambda: result.pl().schema,
    )
    return {
        "description": cursor.description,
        "types": tuple(zip(result.columns, result.types, strict=True)),
        "frames": tuple(map(_written, forms)),
        "receipt": result.receipt.to_json(),
    }


def _written(form: Callable[[], object]) -> str | Failure:
    try:
        return str(form())
    except Exception as error:
        return _described(error)


def _tried(ask: Callable[[], Any]) -> tuple[Any, Failure]:
    """The answer, or None and the error of dpsql; any other error is a failure of the test."""
    try:
        return ask(), ()
    except dpsql.Error as error:
        return None, _described(error)


def _described(error: BaseException | None) -> Failure:
    """Everything that an error says, and those that it came from say."""
    if error is None:
        return ()
    said = (getattr(error, name, None) for name in ("code", "position", "hint", "text", "args"))
    behind = (_described(error.__cause__), _described(error.__context__))
    return (type(error).__qualname__, *map(str, said), str(error), *behind)


def _texts(entry: object) -> tuple[str, ...]:
    return tuple(f"{name}: {value}" for name, value in asdict(entry).items())  # type: ignore[call-overload]


@contextmanager
def _listened() -> Iterator[list[str]]:
    """What is logged at the level that is set, warned of and printed meanwhile."""
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.name} {record.levelname} {record.getMessage()}")

    listener, printed = Listener(), io.StringIO()
    logging.getLogger().addHandler(listener)
    try:
        with warnings.catch_warnings(record=True) as warned, redirect_stdout(printed):
            warnings.simplefilter("always")
            with redirect_stderr(printed):
                yield lines
    finally:
        logging.getLogger().removeHandler(listener)
    lines += [f"{warning.category.__name__} {warning.message}" for warning in warned]
    lines += printed.getvalue().splitlines()
