"""Whatever is asked, and however large it is: an answer or a dpsql.Error, in time that follows the text.

Claim: no text and no parameter makes anything but dpsql's own errors come out of `query` and `explain`,
which agree on what is refused; a refusal charges nothing. Work grows in proportion to the text, and the
largest texts are dealt with in bounded time and memory.
"""

from __future__ import annotations

import datetime as dt
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from speeds import examples

import dpsql
from dpsql.api.connection import Connection
from dpsql.errors import BackendError, InternalError
from dpsql.sql.parse.parse import MAX_CHARACTERS, _parse_remembered
from tests.sql.damage import damage, damaged
from tests.sql.mutants import mutant
from tests.sql.sentences import sentences
from tests.sql.shapes import DEEP, LONG, SHAPES, WIDE
from tests.sql.study import study

FAST = settings(phases=[Phase.explicit, Phase.generate], derandomize=True, database=None)
"""The same examples in each run; `pytest --speed deep` tries others each time."""


@dataclass(slots=True)
class Asker:
    """A connection, and how many charges its answers tell of."""

    connection: Connection
    charged: int = 0

    def outcome(self, text: str, parameters: Any = None) -> str | None:
        """The code with which a text is refused by both faces, None where both answer.

        Any error but dpsql.Error escapes, and so does one that says that dpsql contradicts itself or
        that the engine failed: expressions over private rows are total.
        """
        given = parameters_of(text) if parameters is None else parameters
        codes = [code for face in (self.explained, self.answered) for code in face(text, given)]
        assert len(codes) != 1, "one face answers, the other refuses"
        assert len({*codes}) <= 1, codes
        return codes[0] if codes else None

    def explained(self, text: str, parameters: Any) -> Iterator[str]:
        """The code of a refusal to explain a query."""
        try:
            str(self.connection.explain(text, parameters))
        except dpsql.Error as error:
            yield describe_error(error)

    def answered(self, text: str, parameters: Any) -> Iterator[str]:
        """The code of a refusal to answer it."""
        try:
            self.charged += len(self.connection.query(text, parameters).receipt.entries)
        except dpsql.Error as error:
            yield describe_error(error)


def parameters_of(text: str) -> list[int]:
    """A number for each parameter of a text."""
    return [5] * min(text.count("?"), 10_000)


def describe_error(error: dpsql.Error) -> str:
    """The code of an error that an analyst may cause and can read."""
    if isinstance(error, (InternalError, BackendError)):
        raise error
    str(error).encode("utf-8", "surrogatepass")
    return error.code


@pytest.fixture(scope="module")
def asker() -> Iterator[Asker]:
    """What is asked of the clinic; in the end its ledger holds what the answers told, and nothing for refusals."""
    with study() as connection:
        runner = Asker(connection)
        yield runner
        assert len(connection.engine.ledger.list_entries()) == runner.charged


@settings(FAST, max_examples=examples(150))
@given(st.text() | st.binary().map(lambda octets: octets.decode("utf-8", "surrogateescape")))
def test_any_text_is_answered_or_refused(asker: Asker, text: str) -> None:
    """No text at all breaks the reading of queries, alone or within one."""
    asker.outcome(text)
    asker.outcome(f"SELECT COUNT(*) FROM visits WHERE {text}")
    asker.outcome(f"SELECT COUNT(*) FROM visits WHERE note = '{text}'")
    asker.outcome(f'SELECT COUNT(*) AS "{text}" FROM visits')


@settings(FAST, max_examples=examples(1000))
@given(damaged())
def test_any_damaged_fixture_is_answered_or_refused(asker: Asker, text: str) -> None:
    """A fixture with bits flipped, words put in, left out, swapped or repeated, or its end cut off."""
    asker.outcome(text)


@settings(FAST, max_examples=examples(150))
@given(sentences() | st.integers(0, 2**64).map(mutant))
def test_any_sentence_is_answered_or_refused(asker: Asker, text: str) -> None:
    """Sentences of the grammar, and fixtures with a few words changed: answered too, not only read."""
    asker.outcome(text)


@pytest.mark.deep
@settings(max_examples=50_000, database=None)
@given(damaged() | sentences() | st.integers(0, 2**64).map(mutant))
def test_any_text_in_a_long_search_is_answered_or_refused(asker: Asker, text: str) -> None:
    """The same, for long, with examples that differ in each run."""
    asker.outcome(text)


def test_damage_is_of_many_kinds(asker: Asker) -> None:
    """The damaged texts are worth their name: some are still answered, and they fail in many ways."""
    texts = {damage(seed) for seed in range(600)}
    codes = [asker.outcome(text) for text in texts]
    assert len(texts) > 550
    assert codes.count(None) >= 10
    assert len({*codes}) >= 12
    assert not all(text.isascii() for text in texts)


VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary() | st.decimals()
    | st.dates() | st.datetimes(timezones=st.none() | st.just(dt.UTC)) | st.times() | st.timedeltas() | st.complex_numbers()
    | st.fractions() | st.uuids() | st.lists(st.integers(), max_size=2) | st.builds(object)
    | st.sampled_from([10**5000, -(10**400), Decimal("1e999999"), "\ud800", "a\0b", "x" * 100_000, dt.date.min, dt.datetime.max])
)  # fmt: skip


@settings(FAST, max_examples=examples(150))
@given(VALUES, st.sampled_from(["age", "cost", "note", "day", "seen", "urgent", "plan"]))
def test_any_parameter_is_answered_or_refused(asker: Asker, value: Any, column: str) -> None:
    """A value of any type, in the place of a constant: it is one, or it is refused."""
    asker.outcome(f"SELECT COUNT(*) FROM visits WHERE {column} = ?", [value])
    asker.outcome("SELECT COUNT(*) AS n FROM visits LIMIT ?", [value])


def calls(connection: Connection, text: str) -> int:
    """How many functions are called, by Python or within it, to explain a query: the work, whatever the machine."""
    counted = 0

    def count(*_: Any) -> None:
        nonlocal counted
        counted += 1

    _parse_remembered.cache_clear()  # a text that is known is not read again
    before = sys.getprofile()
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        connection.explain(text, [5] * text.count("?"))
    except dpsql.Error:
        pass
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]
    return counted


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", SHAPES)
def test_work_is_linear_in_the_text(asker: Asker, shape: str) -> None:
    """A text twice as large takes at most about twice the work, up to the limits and beyond them."""
    small, large = (SHAPES[shape](size) for size in (150, 300))
    calls(asker.connection, small)
    assert calls(asker.connection, large) <= 2.2 * calls(asker.connection, small)


def seconds(connection: Connection, text: str) -> float:
    """The time of the processor in which a text is refused, the least of three: searches by a pattern call no function."""
    took = []
    for _ in range(3):
        _parse_remembered.cache_clear()
        began = time.process_time()
        with pytest.raises(dpsql.Error):
            connection.explain(text)
        took.append(time.process_time() - began)
    return min(took)


SEARCHED = {"a name before brackets": 20_000, "spaces in brackets": 300, "a pattern of columns": 18}
"""Shapes whose refusal searches the text for what to write instead, at sizes that a careless search takes a second for."""


@pytest.mark.whole
@pytest.mark.parametrize("shape", SEARCHED)
def test_hint_costs_no_more_than_reading_the_text(asker: Asker, shape: str) -> None:
    """Finding what to write instead takes no power of the length of a text."""
    text = SHAPES[shape](SEARCHED[shape])
    plain = f"SELECT COUNT({'a' * len(text)}) FROM visits"
    assert seconds(asker.connection, text) <= 20 * seconds(asker.connection, plain)


LARGEST = {
    **{name: (shape, MAX_CHARACTERS // 3) for name, shape in LONG.items()},
    **{f"{name}, beyond": (shape, 2 * MAX_CHARACTERS) for name, shape in LONG.items()},
    **{name: (shape, 100_000) for name, shape in DEEP.items()},
    **{f"{name}, within": (shape, 8_000) for name, shape in DEEP.items()},
    **{name: (shape, 10_000) for name, shape in WIDE.items()},
}
"""Shapes at their largest: a third of the longest text, beyond it, 100,000 levels, 10,000 parts."""
GIGABYTES, SECONDS = 3, 300
"""What a process may take for all of them; it takes a fraction."""
SHARES = 12
"""So many processes take turns with the shapes."""
PROGRAM = """
import json, sys
from tests.sql.study import study
from tests.sql.test_fuzzing import LARGEST, Asker, parameters_of
with study() as connection:
    asker = Asker(connection)
    for name in sys.argv[1:]:
        shape, size = LARGEST[name]
        text = shape(size)
        print(json.dumps([name, next(asker.answered(text, parameters_of(text)), None)]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.sampled(SHARES)
@pytest.mark.parametrize("share", range(SHARES))
def test_largest_texts_are_bounded(share: int) -> None:
    """Texts of a megabyte, lists of 10,000, 100,000 levels: answered or refused, by a process with limits."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES * 2**30, GIGABYTES * 2**30))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))

    names = list(LARGEST)[share::SHARES]
    root = Path(dpsql.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
        env={"PYTHONPATH": f"{root}:{root / 'tests'}", "PATH": "/usr/bin:/bin"},
    )
    codes = dict(json.loads(line) for line in done.stdout.splitlines())
    missing = {*names} - codes.keys()
    assert done.returncode == 0, f"{len(missing)} are missing; {done.stderr[-2000:]}"
    assert not missing
    assert all(
        codes[name] in {"too_long", "syntax", "constant"}
        for name in names
        if name.endswith(", beyond") and name != "semicolons, beyond"
    )
    assert all(codes[name] in {"too_long", "too_deep", "syntax"} for name in DEEP.keys() & codes.keys())
    assert all(codes.get(name) is None for name in ("a list", "a list of texts", "parameters"))
