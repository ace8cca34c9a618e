"""What the shell offers at the cursor."""

from __future__ import annotations

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from dpsql.interfaces.shell.completion import (
    KEYWORDS,
    SqlCompleter,
    Vocabulary,
    list_candidates,
    list_functions,
)
from dpsql.interfaces.shell.session import Session

WORDS = Vocabulary(
    {"visits": ["patient_id", "plan", "cost"], "regions": ["id", "name", "Full name"]}, list_functions()
)


def offered(text: str, words: Vocabulary = WORDS) -> list[str]:
    """The completions at the place of `|`."""
    before, _, after = text.partition("|")
    return [candidate.text for candidate in list_candidates(before, after, words)[1]]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("SELECT COUNT(*) FROM v|", ["visits"]),
        ("SELECT COUNT(*) FROM |", ["visits", "regions"]),
        ("SELECT COUNT(*) FROM visits JOIN |", ["visits", "regions"]),
        ("SELECT AVG(co| FROM visits", ["cost"]),
        ("SELECT AVG(v.| FROM visits v", ["patient_id", "plan", "cost"]),
        ("SELECT r.n| FROM visits AS v JOIN regions AS r ON v.id = r.id", ["name"]),
        ("SELECT visits.pl| FROM visits", ["plan"]),
        ('SELECT "VISITS".pl| FROM visits', ["plan"]),
        ("SELECT x.| FROM visits v", []),
        ("SEL|", ["SELECT"]),
        ("sel|", ["select"]),
        ("SELECT COUNT(*) FROM visits GR|", ["GROUP_CONCAT(", "GREATEST(", "GROUP BY"]),
        ("SELECT 'pl| FROM visits", []),
        ("SELECT 1 -- pl|", []),
        ("SELECT 1 /* FROM visits */ + AVG(na| FROM regions", ["name"]),
        ("\\bu|", ["\\budget"]),
        ("\\d vi|", ["visits"]),
        ("\\format m|", ["markdown"]),
        ("\\explain SELECT AVG(co| FROM visits", ["cost"]),
        ("\\epsilon |", []),
    ],
)
def test_tables_and_columns_are_offered_in_their_places(text: str, wanted: list[str]) -> None:
    """Tables after FROM and JOIN, a table's columns after its name or alias, nothing within quotes."""
    found = offered(text)
    assert found[: len(wanted)] == wanted
    assert wanted or not found


def test_columns_in_scope_come_first() -> None:
    """The columns of the tables in FROM, wherever the cursor stands; of all tables before there is one."""
    assert offered("SELECT p| FROM visits")[:2] == ["patient_id", "plan"]
    assert "name" not in offered("SELECT n| FROM visits")
    assert "name" in offered("SELECT n|")


def test_names_with_spaces_are_quoted() -> None:
    """A name with a space is inserted in quotes."""
    assert '"Full name"' in offered("SELECT f| FROM regions")


def test_nothing_undeclared_is_offered(session: Session) -> None:
    """The words come from the policy's catalogue, so completion reveals nothing else, and charges nothing."""
    words = Vocabulary.from_description(session.state.connection.describe())
    assert sorted(words.tables) == ["regions", "visits"]
    assert "undeclared" not in offered("SELECT un| FROM visits", words)
    assert "AVG(" in offered("SELECT AV|", words)


def test_safe_functions_are_offered() -> None:
    """Every function of the registries can be completed, and each keyword."""
    assert {"COUNT(*)", "SUM(", "AVG(", "ROUND(", "COALESCE(", "CORR(", "ROW_NUMBER(", "REGR_R2("} <= set(
        list_functions()
    )
    assert offered("SELECT ROU|") == ["ROUND(", "ROUND_EVEN("]
    assert offered("SELECT COUNT(*) FROM visits WH|") == ["WHERE", "WHEN"]
    assert len(KEYWORDS) == len(set(KEYWORDS))


def test_while_one_types_a_space_offers_nothing() -> None:
    """Only a begun word, a dot or FROM opens the menu by itself; Tab always does."""
    completer = SqlCompleter(WORDS)

    def count(text: str, *, asked: bool) -> int:
        event = CompleteEvent(text_inserted=not asked, completion_requested=asked)
        return len(list(completer.get_completions(Document(text), event)))

    assert count("SELECT ", asked=False) == 0
    assert count("SELECT ", asked=True) > 5
    assert count("SELECT COUNT(*) FROM ", asked=False) == 2
    (only,) = completer.get_completions(Document("SEL"), CompleteEvent(text_inserted=True))
    assert (only.text, only.start_position) == ("SELECT", -3)


def test_tables_of_the_session_are_offered() -> None:
    """Those that there are at the moment, with their columns."""
    made: dict[str, list[str]] = {}
    completer = SqlCompleter(WORDS, lambda: made)
    asked = Document("SELECT * FROM syn"), CompleteEvent(completion_requested=True)
    assert not list(completer.get_completions(*asked))
    made["synth"] = ["plan"]
    assert [each.text for each in completer.get_completions(*asked)] == ["synth"]
