"""A43: time and memory of one row.

What is worse than linear in a text lets one person's row take seconds and gigabytes where all others take none, outside
the memory that the engine counts. Whether the query takes long, or ends the engine, then tells of that row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from worlds import Declared, engine_of, person, prepared, spent, world

import dpsql
from dpsql.api.connection import Connection

COLUMNS: Declared = {
    "id": ("INTEGER", {"type": "integer"}),
    "cost": ("DOUBLE", {"type": "double", "bounds": [0, 100]}),
    "note": ("VARCHAR", {"type": "varchar"}),
    "name": ("VARCHAR", {"type": "varchar"}),
}
BIG = "REPEAT(REPEAT(note, 100), 10)"
CUT = "REPEAT(LEFT(note, 100), 100)"
WORDS = [f"{place:03d}" * 330 for place in range(20)]


def people(note: str) -> Connection:
    """Twenty people, of whom one has this note."""
    rows = [
        {"id": place, "cost": 10, "name": note, "note": note if place == 17 else "n"} for place in range(20)
    ]
    return world(*rows, columns=COLUMNS)


def seventeen(expression: str) -> str:
    """A count behind an expression that is computed for one person alone."""
    return f"SELECT COUNT(*) FROM people WHERE CASE WHEN id = 17 THEN {expression} ELSE FALSE END"


def code(connection: Connection, sql: str) -> str | None:
    """The code of a refusal before the charge; None where there is none."""
    found: str | None = None
    try:
        prepared(connection, sql)
    except dpsql.QueryRejected as refused:
        found = refused.code if "LEFT(s, 30)" in str(refused.hint) else str(refused)
    assert not spent(connection)
    return found


def sums(function: str, text: str, words: Sequence[str]) -> str:
    """The sum of distances from many long words."""
    return " + ".join(f"{function}({text}, '{word}')" for word in words) + " > 5"


@pytest.mark.parametrize(
    "expression",
    [
        sums("DAMERAU_LEVENSHTEIN", BIG, WORDS[:1]),
        f"LENGTH({BIG}) > 5",
        sums("DAMERAU_LEVENSHTEIN", CUT, WORDS),
        sums("LEVENSHTEIN", "note", WORDS * 3),
        "NFC_NORMALIZE(note) > 'a'",
        "REGEXP_REPLACE(note, 'a*b|a', '', 'g') > 'a'",
        "REGEXP_MATCHES(note, '((t.{1,15}){1,15}x){2}q')",
        "REGEXP_MATCHES(note, '(a|b)*a(a|b){12}c') OR " * 20 + "FALSE",
        f"note ILIKE '%{'a' * 900}b%' OR note LIKE '%{'a_' * 450}b%'",
        " OR ".join(f"LOWER(note) || '{place}' = name" for place in range(300)),
    ],
    ids=lambda text: text[:40],
)
def test_excessive_work_of_one_row_is_refused(expression: str) -> None:
    """The longest possible text of a row bounds the work of the whole statement."""
    assert code(people("note 77"), seventeen(expression)) == "too_long"


@pytest.mark.parametrize(
    "expression",
    [
        sums("LEVENSHTEIN", "note", ["Schmidt", "Meier"]),
        sums("JARO_WINKLER_SIMILARITY", "note", ["Schmidt"]),
        "NFC_NORMALIZE(LEFT(note, 1000)) > 'a'",
        "REGEXP_MATCHES(LEFT(note, 1000), '((t.{1,15}){1,15}x){2}q')",
        r"REGEXP_MATCHES(note, '[0-9]{3}-[0-9]{4}')",
        "CONTAINS(note, name) OR STRPOS(name, note) > 0",
        " OR ".join(f"LOWER(note) LIKE '%word{place}%'" for place in range(100)),
        " OR ".join(f"note ILIKE '%word{place}%'" for place in range(60)),
        f"note IN ({', '.join(map(repr, WORDS))})",
    ],
    ids=lambda text: text[:40],
)
def test_everyday_text_queries_are_answered(expression: str) -> None:
    """Names that are alike, words in notes, and the rest once the text is cut."""
    assert code(people("note 77"), seventeen(expression)) is None


@pytest.mark.parametrize("function", ["LEVENSHTEIN", "DAMERAU_LEVENSHTEIN", "JARO_SIMILARITY", "JACCARD"])
def test_distances_use_the_first_letters(function: str) -> None:
    """A text of a thousand letters has the distance that it has, a longer one that of its first thousand."""
    connection = people("n")
    engine = engine_of(connection)
    word = "abc" * 20
    for text in ("ab" * 500, "ab" * 500 + "c" * 5_000, "x"):
        ((distance,),) = engine.execute(f"SELECT {function}(LEFT(?, 1000), '{word}')", [text]).fetchall()
        found = people(text).query(seventeen(f"{function}(note, '{word}') = {distance}"), epsilon=40)
        assert list(found.rows) == [(1,)]


def test_long_text_takes_no_longer_than_its_first_letters() -> None:
    """The attack works on a careless distance, of which a text that is a hundred times as long takes as many times as long."""

    def took(text: str, cut: str) -> float:
        engine = engine_of(people("n"))
        engine.execute("CREATE OR REPLACE TABLE row AS SELECT CAST(? AS VARCHAR) AS s", [text])
        began = time.process_time()
        engine.execute(f"SELECT DAMERAU_LEVENSHTEIN({cut}, '{WORDS[3][:200]}') FROM row").fetchall()
        return time.process_time() - began

    connection = people("n")
    (part,) = prepared(connection, seventeen("DAMERAU_LEVENSHTEIN(note, 'abc') > 1")).releases
    assert "LEFT(" in part.statement.sql
    short, long = "ab" * 500, "ab" * 50_000
    careful = min(took(long, "LEFT(s, 1000)") for _ in range(3)) / min(
        took(short, "LEFT(s, 1000)") for _ in range(3)
    )
    assert careful < 10
    assert took(long, "s") > 20 * min(took(short, "s") for _ in range(3))


def visits(rows: int) -> Connection:
    """Twenty people with a row each, of whom one has so many."""
    return world(
        *({"id": place, "cost": 10, "note": "n"} for place in range(20) if place != 17),
        *({"id": 17, "cost": 60, "note": "n"} for _ in range(rows)),
        columns=COLUMNS,
    )


def joined(tables: int, condition: str = "v0.id = v{}.id") -> str:
    """A sum over the rows of one person, joined with themselves so many times."""
    parts = ["people AS v0", *(f"people AS v{n} ON {condition.format(n)}" for n in range(1, tables))]
    costs = " AND ".join(f"v{n}.cost > 50" for n in range(tables))
    return f"SELECT SUM(v0.cost + v{tables - 1}.cost) FROM {' JOIN '.join(parts)} WHERE {costs}"


@pytest.mark.parametrize("tables", [21, 24, 29, 60])
def test_doubling_joins_are_refused(tables: int) -> None:
    """A second row of one person makes 2^n of it in n joins of a table with itself: refused before the charge, and soon."""
    connection = visits(2)
    began = time.process_time()
    with pytest.raises(dpsql.QueryRejected) as refused:
        connection.query(joined(tables), epsilon=1e-3)
    assert refused.value.code == "fanout"
    assert not spent(connection)
    assert time.process_time() - began < 10


def test_joins_of_a_whole_statement_are_bounded() -> None:
    """Several derived tables, each of which joins as much as a statement may, are too much together."""
    connection = visits(2)
    one = joined(18).replace("SUM(v0.cost + v17.cost)", "v0.id AS id")
    assert code(connection, f"SELECT COUNT(*) FROM ({one})") is None
    with pytest.raises(dpsql.QueryRejected) as refused:
        prepared(connection, f"SELECT COUNT(*) FROM ({' UNION ALL '.join([one] * 6)})")
    assert refused.value.code == "fanout"


def test_unit_with_many_rows_may_join_public_rows() -> None:
    """A join on a link or unique key makes no more rows, so a unit may have as many as the policy allows."""
    connection = world(person(1), person(2), table={"rows_per_unit": 2**24})
    sql = "SELECT COUNT(*) FROM people AS p JOIN regions AS r ON p.city = r.name JOIN regions AS s ON p.city = s.name"
    assert code(connection, sql) is None


def test_cheap_joins_are_answered() -> None:
    """Joins of few tables, of rows numbered within a unit, and of one row in each unit are answered."""
    connection = visits(2)
    numbered = "(SELECT id, cost, ROW_NUMBER() OVER (PARTITION BY id ORDER BY cost) AS place FROM people)"
    parts = [f"{numbered} AS v0", *(f"{numbered} AS v{n} ON v0.id = v{n}.id" for n in range(1, 26))]
    firsts = " AND ".join(f"v{n}.place = 1" for n in range(26))
    grouped = "(SELECT id, SUM(cost) AS cost FROM people GROUP BY id)"
    assert code(connection, joined(12)) is None
    for kind in (" JOIN ", " LEFT JOIN "):
        assert code(connection, f"SELECT COUNT(*) FROM {kind.join(parts)} WHERE {firsts}") is None
    assert code(connection, joined(26).replace("people", grouped)) is None


def test_texts_of_subqueries_have_a_length() -> None:
    """Texts of public subqueries, and texts computed from them, are bounded as stored texts are."""
    connection = people("n")
    name = "(SELECT MAX(name) FROM regions)"
    assert code(connection, seventeen(f"note || {name} > 'a'")) is None
    assert code(connection, seventeen(f"REPEAT(note || {name}, 100) > 'a'")) == "too_long"
    assert code(connection, seventeen(f"REPEAT({name}, 100) > note")) == "too_long"


@pytest.mark.parametrize("order", ["ORDER BY {}", "ORDER BY cost, {} DESC"])
def test_order_of_a_window_counts_as_work(order: str) -> None:
    """The values by which a unit's rows are ordered are computed for each of them."""
    costly = sums("LEVENSHTEIN", "note", WORDS * 3).removesuffix(" > 5")
    window = f"ROW_NUMBER() OVER (PARTITION BY id {order.format(costly)}) AS place"
    assert (
        code(people("n"), f"SELECT COUNT(*) FROM (SELECT id, {window} FROM people) WHERE place = 1")
        == "too_long"
    )
