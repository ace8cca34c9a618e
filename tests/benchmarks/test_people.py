"""SQL that people write: a sample of the statements is answered right or refused, and the judge notices what is not."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace

import postgres
import pytest

from benchmarks.people.judge import (
    DOCUMENTED,
    INVALID,
    LEAKED,
    RIGHT,
    RIGHTLY_REFUSED,
    WRONG,
    Verdict,
    find_difference,
    judge,
)
from benchmarks.people.statements import (
    DIALECTS,
    Family,
    Statement,
    expand,
    list_families,
    list_statements,
)
from benchmarks.people.studies import STUDIES, fill, list_tables, make_policy
from benchmarks.people.table import find_cause, write_page
from benchmarks.people.worlds import Worlds, open_worlds
from dpsql.policy import load

STATEMENTS = list_statements()
EVERY = 29
"""The tests ask one statement in so many; `python -m benchmarks.people` asks all."""
SERVERS = ("postgres", "spark")
"""Dialects whose engine alone says what their texts mean."""
KNOWN = frozenset({"virtual table"})
"""Titles of shapes that are answered wrong today, as the page says."""


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    with open_worlds(["postgres"] if postgres.binaries() else []) as opened:
        yield opened


def test_sources_and_shapes_are_many() -> None:
    """There are at least 1,500 statements from at least eight sources, in each dialect, none of them twice."""
    assert len({(each.dialect, each.sql) for each in STATEMENTS}) == len(STATEMENTS) >= 1500
    sources = {each.family.source for each in STATEMENTS}
    assert len(sources) >= 8
    assert all(each.name and each.address.startswith("https://") and each.seen for each in sources)
    assert {each.dialect for each in STATEMENTS} == set(DIALECTS)


def test_titles_are_unique_and_holes_are_filled() -> None:
    """Each shape has a title of its own, and each name and macro in it is known in its dialects, on all studies."""
    families = list_families()
    assert len({(each.source.key, each.title) for each in families}) == len(families)
    for family in families:
        assert set(family.dialects) <= set(DIALECTS)
        for study in STUDIES:
            for dialect in family.dialects:
                assert "{" not in expand(family.text, dialect, study).replace("'{", "")


def test_bounds_hold_on_the_data() -> None:
    """No bound of a policy cuts anything, nobody has more rows than count, and each policy is one."""
    for study in STUDIES:
        policy = make_policy(study)
        load(policy)
        with fill(study) as database:
            for table, rules in policy["tables"].items():
                assert {name for name, _ in list_tables(study)[table]} >= set(rules.get("columns", ()))
                if "unit" in rules:
                    most = f"SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM {table} GROUP BY {rules['unit']})"
                    assert database.execute(most).fetchall()[0][0] <= rules["rows_per_unit"]
                for name, column in rules.get("columns", {}).items():
                    ends = database.execute(f"SELECT MIN({name}), MAX({name}) FROM {table}").fetchall()[0]
                    if "bounds" in column:
                        low, high = column["bounds"]
                        assert low <= ends[0] <= ends[1] <= high


def test_sample_is_not_answered_wrong(worlds: Worlds) -> None:
    """One statement in EVERY is answered as its engine answers it, or refused, and what each means is SQL."""
    asked = [each for each in STATEMENTS if each.dialect in worlds.references or each.dialect not in SERVERS]
    found = [judge(statement, worlds) for statement in asked[::EVERY]]
    bad = [each for each in found if each.kind in (WRONG, LEAKED, INVALID)]
    assert [
        f"{each.statement}: {each.detail}" for each in bad if each.statement.family.title not in KNOWN
    ] == []
    assert sum(each.kind == RIGHT for each in found) > len(found) / 3


def _vary(text: str, means: str | None = None, refused: str | None = None) -> Statement:
    """Return a statement on the first study that may mean something else than it says; Snowflake does not run here."""
    family: Family = replace(list_families()[0], text=text, means=means, refused=refused)
    study = STUDIES[0]
    return Statement(
        family, "snowflake", study, expand(text, "snowflake", study), expand(means or text, "duckdb", study)
    )


def test_judge_notices_what_is_wrong(worlds: Worlds) -> None:
    """An answer beside its meaning is wrong; so is one that must be refused; a meaning that is no SQL is not counted."""
    count = "SELECT COUNT(*) AS n FROM {facts}"
    assert judge(_vary(count), worlds).kind == RIGHT
    assert judge(_vary(count, count + " WHERE {qty} > 1"), worlds).kind == WRONG
    assert judge(_vary(count, refused="it is a test"), worlds).kind == LEAKED
    assert judge(_vary(count, "SELECT nothing"), worlds).kind == INVALID
    assert judge(_vary("SELECT * FROM {facts}", refused="individual rows"), worlds).kind == RIGHTLY_REFUSED
    rare = "SELECT {kind}, COUNT(*) AS n FROM {facts} WHERE {day} = '2024-01-01' GROUP BY 1"
    assert judge(_vary(rare), worlds).kind == DOCUMENTED


def test_comparison_sees_rows_values_and_order() -> None:
    """A missing row, another number, another text, NULL for a value and another order are differences; names of types are not."""
    statement = replace(
        _vary("SELECT {kind} AS k, COUNT(*) AS n FROM {facts} GROUP BY 1 ORDER BY n"), dialect="duckdb"
    )
    names, known = ("k", "n"), [("a", 1), ("b", 2), (None, 3)]
    assert find_difference(statement, names, [("a", 1.0), ("b", 2), (None, 3)], known) == ""
    for ours in (
        known[:2],
        [("a", 1), ("b", 2.1), (None, 3)],
        [("a", 1), ("c", 2), (None, 3)],
        [("a", 1), ("b", None), (None, 3)],
        [("b", 2), ("a", 1), (None, 3)],
    ):
        assert find_difference(statement, names, ours, known)
    day = dt.date(2024, 5, 1)
    assert find_difference(statement, names, [(dt.datetime(2024, 5, 1), 1)], [(day, 1)]) == ""


def test_page_counts_equal_reasons_together() -> None:
    """The page has a line for each dialect and source, and one for each reason, whatever the names in the statement."""
    refused = [
        Verdict(statement, "wrongly refused", "function", f"MAD is not supported (line 1, column {place})\n…")
        for place, statement in enumerate(STATEMENTS[:2], 8)
    ]
    page = "\n".join(write_page([*refused, Verdict(STATEMENTS[2], RIGHT)], 1, ()))
    assert {find_cause(each) for each in refused} == {"MAD is not supported"}
    assert "| 2 | " in page
    assert STATEMENTS[0].family.source.address in page
