"""Where statements end."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from dpsql.interfaces.shell.statements import (
    PieceKind,
    find_open_kind,
    is_blank,
    iterate_pieces,
    remove_comments,
    split_statements,
)

PARTS = ("'", '"', ";", "--", "\n", "\r", " /*", "*/ ", "$$", "E", "e", "a", " ", "\\", ",", "-", "x1")


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


@given(st.lists(st.sampled_from(PARTS), max_size=14).map("".join))
def test_the_scan_agrees_with_the_parser(text: str) -> None:
    """The parser's tokenizer finds the same semicolons, and the same texts unfinished."""
    found = list(iterate_pieces(text))
    unfinished = any(piece.open and not text.startswith("--", piece.start) for piece in found)
    try:
        tokens = DuckDB().tokenize(text)
    except TokenError:
        assert unfinished
        return
    assert not unfinished
    ours = [piece.start for piece in found if piece.kind is PieceKind.SEMICOLON]
    assert ours == [token.start for token in tokens if token.token_type is TokenType.SEMICOLON]


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


def test_the_open_quote_or_comment_at_the_cursor_is_found() -> None:
    """Nothing is completed within an open quote or comment."""
    assert find_open_kind("SELECT 'a") is PieceKind.STRING
    assert find_open_kind('SELECT "a') is PieceKind.NAME
    assert find_open_kind("SELECT -- a") is PieceKind.COMMENT
    assert find_open_kind("SELECT /* a") is PieceKind.COMMENT
    assert find_open_kind("SELECT 'a' -- b\n") is None


def test_comments_leave_a_space() -> None:
    """Words on the two sides of a comment stay apart, and quotes keep what looks like a comment."""
    assert remove_comments("a/* b */c -- d\n'-- e'") == "a c  \n'-- e'"
