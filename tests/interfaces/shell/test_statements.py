"""Where statements end."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.interfaces.shell.statements import split_statements
from dpsql.sql.parse.scanner import PieceKind, is_blank, iterate_pieces


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("SELECT 1; SELECT 2", ("SELECT 1",), " SELECT 2"),
        ("a ';' b; c", ("a ';' b",), " c"),
        ("a 'it''s; here'; c", ("a 'it''s; here'",), " c"),
        ('a ";" b; c', ('a ";" b',), " c"),
        ("a -- ; not here\n; c", ("a -- ; not here",), " c"),
        ("a /* ; /* ; */ ; */ b; c", ("a /* ; /* ; */ ; */ b",), " c"),
        ("a $x$ ; $$ ; $x$; c", ("a $x$ ; $$ ; $x$",), " c"),
        (r"a E'b''\'; d'; c", (r"a E'b''\'; d'",), " c"),
        (r"a E'\'; b'; c", (r"a E'\'; b'",), " c"),
        (r"a 'b\'; c", (r"a 'b\'",), " c"),
        ("a 'open ; b", (), "a 'open ; b"),
        ("a /* open ; b", (), "a /* open ; b"),
        (";; ; -- only this\n;", (), ""),
    ],
)
def test_semicolons_in_quotes_and_comments_end_nothing(
    text: str, statements: tuple[str, ...], rest: str
) -> None:
    """A statement ends at a semicolon that stands in plain words, and nowhere else."""
    cut = split_statements(text)
    assert (cut.statements, cut.rest) == (statements, rest)


@given(st.text(alphabet="';-\"/*$ae\n\\ ", max_size=20))
def test_nothing_is_lost(text: str) -> None:
    """Statements and rest are the text again, but for semicolons and what is blank."""
    cut = split_statements(text)
    kept = "".join("".join((*cut.statements, cut.rest)).split())
    marks = [piece.start for piece in iterate_pieces(text) if piece.kind is PieceKind.SEMICOLON]
    bounds = [0, *(mark + 1 for mark in marks), len(text) + 1]
    parts = [text[start : end - 1] for start, end in itertools.pairwise(bounds)]
    wanted = [part for part in parts[:-1] if not is_blank(part)] + parts[-1:]
    assert kept == "".join("".join(wanted).split())
