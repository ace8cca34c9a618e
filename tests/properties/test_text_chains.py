"""No chain of constructs makes a text longer than the plan says, and none that is accepted fails on a long text.

Claim: for every chain of derived tables, CTEs, aggregates within units, windows and set operations over texts that grow,
either the statement is refused before its charge, or each text is within the bound that the plan has of it.
Why: a row decides whether an engine fails whose limit a text can pass, whatever columns carried it there.
Source: none but the definitions. The chains run on plain DuckDB, as they are written.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from unittest import mock

import duckdb
import pytest
from speeds import examples
from worlds import Declared, close_all, engine_of, prepared, world

import dpsql
from dpsql.analysis import text_bounds
from dpsql.analysis.text_bounds import TextBound, _StatementBounds
from dpsql.api.connection import Connection
from dpsql.errors import QueryRejected
from dpsql.plan.interval import MOST_STORED, NO_TEXT
from dpsql.plan.nodes import Release

COLUMNS: Declared = {
    "id": ("INTEGER", {"type": "integer"}),
    "note": ("VARCHAR", {"type": "varchar"}),
    "kind": ("VARCHAR", {"type": "varchar", "values": ["a", "xx"]}),
}
SHORT = ("ax", "x a", "", "aaaaaaa", "é-ax")
GROWTHS = (
    "REPEAT(s, 3)",
    "REPEAT(s, 100)",
    "s || s",
    "CONCAT(s, '-', s)",
    "CONCAT_WS('+', s, s, 'a')",
    "REPLACE(s, 'a', 'xyzaaaa')",
    "REPLACE(s, 'a', '" + "ax" * 200 + "')",
    "REGEXP_REPLACE(s, '[a-x]', 'ax-ax', 'g')",
    "REGEXP_REPLACE(s, '(a)', '\\1\\1\\1', 'g')",
    "LPAD(s, 60, 'ax')",
    "RPAD(s, 9, 'ax')",
    "TRANSLATE(s, 'ax-', '😀é€')",
    "UPPER(s)",
    "SUBSTRING(s, 2, 40)",
    "LEFT(s, 100)",
    "CASE WHEN s > 'b' THEN s || 'tail' ELSE REPEAT(s, 2) END",
    "COALESCE(NULLIF(s, 'ax'), 'none')",
    "CAST(STRLEN(s) AS VARCHAR)",
    "OVERLAY(s, 'axaxax', 2)",
    "STRIP_ACCENTS(s)",
)
CARRIERS: tuple[Callable[[str, str], str], ...] = (
    lambda before, grown: f"SELECT id, {grown} AS s FROM {before}",
    lambda before, grown: f"SELECT id, {grown} AS s FROM (SELECT id, s FROM {before} WHERE s <> 'q') AS d",
    lambda before, grown: f"SELECT id, MAX({grown}) AS s FROM {before} GROUP BY id",
    lambda before, grown: f"SELECT id, ARG_MAX(s, STRLEN({grown})) AS s FROM {before} GROUP BY id",
    lambda before, grown: f"SELECT id, LAG({grown}) OVER (PARTITION BY id ORDER BY s) AS s FROM {before}",
    lambda before, grown: (
        f"SELECT id, FIRST_VALUE({grown}) OVER (PARTITION BY id ORDER BY s) AS s FROM {before}"
    ),
    lambda before, grown: f"SELECT id, s FROM {before} UNION ALL SELECT id, {grown} FROM {before}",
    lambda before, grown: f"SELECT id, {grown} AS s FROM {before} UNION SELECT id, s FROM {before}",
    lambda before, grown: f"SELECT DISTINCT id, {grown} AS s FROM {before}",
    lambda before, grown: (
        f"SELECT a.id, {grown.replace('s', 'a.s') if grown == 's || s' else 'a.s || b.s'} AS s "
        f"FROM {before} AS a JOIN {before} AS b ON a.id = b.id"
    ),
)
STARTS = (
    "note",
    "LEFT(note, 9)",
    "CASE WHEN id = 2 THEN note ELSE '' END",
    "kind",
    "COALESCE(note, kind)",
    "'a' || id",
)


def chain(seed: int) -> str:
    """The CTEs of a chain, whose last one is `last`."""
    drawn = random.Random(seed)
    parts = [f"t0 AS (SELECT id, {drawn.choice(STARTS)} AS s FROM people)"]
    for place in range(drawn.randint(1, 5)):
        made = drawn.choice(CARRIERS)(f"t{place}", drawn.choice(GROWTHS))
        parts.append(f"t{place + 1} AS ({made})")
    parts.append(f"last(id, s) AS (SELECT * FROM t{len(parts) - 1})")
    return f"WITH {', '.join(parts)}"


def people(*notes: str) -> Connection:
    """Units of one row each, with these texts."""
    rows = (
        {"id": place, "note": note, "kind": ("a", "xx", "q")[place % 3]} for place, note in enumerate(notes)
    )
    return world(*rows, columns=COLUMNS)


@pytest.fixture(scope="module")
def short() -> Iterator[Connection]:
    """Units with short texts, on which plain DuckDB shows how long the texts of a chain are."""
    yield people(*SHORT)
    close_all()


@pytest.fixture(scope="module")
def long() -> Iterator[Connection]:
    """Units with texts as long as an engine reads, one of them of letters that grow, and one that is longer."""
    yield people(
        "a" * MOST_STORED, "ax" * (MOST_STORED // 2), "é" * (MOST_STORED // 2), "a" * (MOST_STORED + 1)
    )
    close_all()


def release_of(connection: Connection, sql: str) -> Release | None:
    """The release of a statement, None where it is refused as its texts could be too long."""
    try:
        (part,) = prepared(connection, sql).releases
    except QueryRejected as refused:
        if refused.code == "too_long":
            return None
        raise
    return part.plan.analysis.release


def bounded(connection: Connection, seed: int) -> bool | None:
    """Whether the texts of a chain are within its bounds; None where it is refused."""
    release = release_of(connection, f"{chain(seed)} SELECT s, COUNT(*) FROM last GROUP BY s")
    if release is None:
        return None
    (key,) = release.keys
    size = _StatementBounds({}).bound_released_columns(release)["", key.name].size
    rows = engine_of(connection).execute(f"{chain(seed)} SELECT MAX(STRLEN(s)) FROM last").fetchall()
    longest = max(len(note.encode()) for note in SHORT)
    return (rows[0][0] or 0) <= min(size.max_bytes, size.share * longest + size.extra_bytes)


def test_texts_of_chains_stay_within_their_bounds(short: Connection) -> None:
    """Chains of up to five constructs; a good part of them is accepted, and of them each text is within the bound."""
    found = [bounded(short, seed) for seed in range(examples(60))]
    assert False not in found, found.index(False)
    assert found.count(True) >= len(found) // 4


def test_stored_texts_are_read_bounded(long: Connection) -> None:
    """A longer text is NULL: it equals nothing, and is in no group."""
    engine, found = engine_of(long), []
    for sql in (
        "SELECT note, COUNT(*) FROM people GROUP BY note",
        "SELECT COUNT(*) FROM people WHERE note > 'a'",
    ):
        (part,) = prepared(long, sql).releases
        text = part.statement.sql
        found.append(text.count(str(MOST_STORED)))
        engine.execute(text).fetchall()
    assert min(found) >= 1
    rows = long.query("SELECT COUNT(*) FROM people WHERE note IS NULL", epsilon=40).rows
    assert list(rows) == [(1,)]


def test_accepted_chains_fail_on_no_long_text(long: Connection) -> None:
    """The statement of the engine runs on rows with texts as long as they can be."""
    engine = engine_of(long)
    for seed in range(100, 100 + examples(12)):
        sql = f"{chain(seed)} SELECT COUNT(*) FROM last WHERE s > 'a'"
        if release_of(long, sql) is None:
            continue
        for part in prepared(long, sql).releases:
            try:
                engine.execute(part.statement.sql).fetchall()
            except duckdb.Error as error:
                pytest.fail(f"{str(error)[:120]}\n{sql}")


def test_unbounded_columns_let_texts_grow(short: Connection) -> None:
    """Some chain makes a text longer than its bound where columns of derived tables count as nothing."""
    forgotten = mock.patch.object(
        text_bounds,
        "_build_scope",
        lambda columns, _: dict.fromkeys(((c.source, c.name) for c in columns), TextBound(NO_TEXT)),
    )
    with forgotten:
        assert False in [bounded(short, seed) for seed in range(20)]


@pytest.mark.parametrize(
    "step",
    [
        "REPEAT(s, 100)",
        "REPLACE(s, 'x', '" + "x" * 900 + "')",
        "REGEXP_REPLACE(s, 'x', '" + "x" * 500 + "', 'g')",
    ],
)
@pytest.mark.parametrize("carrier", [0, 1, 2, 4, 5, 6, 7, 8])
def test_growth_in_every_carrier_is_refused_before_its_charge(
    short: Connection, step: str, carrier: int
) -> None:
    """Five growing levels are refused, whatever carries the text from one to the next."""
    parts = ["t0 AS (SELECT id, CASE WHEN id = 1 THEN 'x' ELSE '' END AS s FROM people)"]
    parts += [f"t{place + 1}(id, s) AS ({CARRIERS[carrier](f't{place}', step)})" for place in range(5)]
    with pytest.raises(dpsql.QueryRejected) as caught:
        short.query(f"WITH {', '.join(parts)} SELECT COUNT(*) FROM t5 WHERE s > 'a'", epsilon=1)
    assert caught.value.code == "too_long"
    assert "LEFT(" in str(caught.value.hint)
    assert not short.budget()["people"].queries
