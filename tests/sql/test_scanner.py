"""Pieces of SQL text, where statements end, and what is left without comments."""

from __future__ import annotations

import time

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from dpsql.sql.parse.parse import MAX_CHARACTERS, parse_statement, strip_explain
from dpsql.sql.parse.scanner import (
    PieceKind,
    collapse_space,
    find_explain_end,
    find_open_kind,
    is_blank,
    iterate_pieces,
    iterate_statements,
    mask_literals,
    remove_comments,
)

PARTS = ("'", '"', ";", "--", "\n", "\r", " /*", "*/ ", "$$", "E", "e", "a", " ", "\\", ",", "-", "x1")
BODY = st.text(alphabet=";'\"`$-/*\\a é\n", max_size=8)
DUCKDB = duckdb.connect()


def _quote(mark: str, body: str) -> str:
    return f"{mark}{body.replace(mark, mark * 2)}{mark}"


def _nest(body: str) -> str:
    """A comment with a comment in it."""
    inner = body.replace("*", "x").replace("/", "y")
    return f"1 /* ; /* {inner} */ ; */"


LITERALS = st.one_of(
    BODY.map(lambda body: _quote("'", body)),
    BODY.map(lambda body: f"1 AS {_quote(chr(34), 'a' + body)}"),
    BODY.map(lambda body: f"1 AS {_quote('`', 'a' + body)}"),
    BODY.map(lambda body: "E" + _quote("'", body.replace("\\", "\\\\")).replace(";", "\\';")),
    BODY.map(lambda body: "$$" + body.replace("$", "") + "$$"),
    BODY.map(lambda body: "$aé1$ ; " + body.replace("$", "$$") + "$aé1$"),
    BODY.map(lambda body: "U&" + _quote("'", body.replace("\\", ""))),
    BODY.map(_nest),
    BODY.map(lambda body: "1 -- ; " + body.replace("\n", "") + "\n"),
    BODY.map(lambda body: "1 -- ; " + body.replace("\n", "") + "\r"),
    st.sampled_from(["a$$", "1", "a😀e", "'a'\n'b;'", "1/2", "1 - - 2"]).map(lambda part: f"({part})"),
)
"""Values in the lexical forms of DuckDB."""


@given(st.lists(st.lists(LITERALS, min_size=1, max_size=4).map(", ".join), min_size=1, max_size=4))
def test_statements_end_where_duckdb_ends_them(values: list[str]) -> None:
    """DuckDB's own parser splits a text with any quotes and comments into the same statements."""
    statements = [f"SELECT {value}" for value in values]
    text = ";".join(statements)
    assert len(DUCKDB.extract_statements(text)) == len(statements)
    assert [text[span.start : span.end] for span in iterate_statements(text)] == statements


@given(
    st.text(alphabet=st.sampled_from("';-\"/*$`aeE1 é\u00a0😀\n\r\\:[]"), max_size=30) | st.text(max_size=20)
)
def test_pieces_add_up_to_the_text(text: str) -> None:
    """Nothing is left out or read twice, and only the last piece has no end."""
    pieces = list(iterate_pieces(text))
    assert "".join(text[piece.start : piece.end] for piece in pieces) == text
    assert all(piece.start < piece.end for piece in pieces)
    assert not any(piece.is_open for piece in pieces[:-1])
    assert len(mask_literals(text)) == len(text)
    spans = list(iterate_statements(text))
    assert [span.has_end for span in spans] == [True] * (len(spans) - 1) + [False]
    assert [text[span.end] for span in spans[:-1]] == [";"] * (len(spans) - 1)
    assert is_blank(text) == all(span.is_blank for span in spans) * (len(spans) == 1)


@given(st.lists(st.sampled_from(PARTS), max_size=14).map("".join))
def test_pieces_agree_with_the_parser(text: str) -> None:
    """The parser's tokenizer finds the same semicolons, and the same texts unfinished."""
    found = list(iterate_pieces(text))
    unfinished = any(piece.is_open and piece.kind is not PieceKind.LINE_COMMENT for piece in found)
    try:
        tokens = DuckDB().tokenize(text)
    except TokenError:
        assert unfinished
        return
    assert not unfinished
    ours = [piece.start for piece in found if piece.kind is PieceKind.SEMICOLON]
    assert ours == [token.start for token in tokens if token.token_type is TokenType.SEMICOLON]


def test_open_kind_is_that_of_the_last_piece() -> None:
    """An open quote or comment is named, and the shell completes nothing there."""
    assert find_open_kind("SELECT 'a") is PieceKind.STRING
    assert find_open_kind("SELECT E'a\\'") is PieceKind.STRING
    assert find_open_kind("SELECT $a$ $$") is PieceKind.STRING
    assert find_open_kind('SELECT "a') is PieceKind.NAME
    assert find_open_kind("SELECT `a") is PieceKind.NAME
    assert find_open_kind("SELECT -- a") is PieceKind.LINE_COMMENT
    assert find_open_kind("SELECT /* a /* */") is PieceKind.BLOCK_COMMENT
    assert find_open_kind("SELECT 'a' -- b\n") is None


def test_comments_leave_a_space() -> None:
    """Words on the two sides of a comment stay apart, and quotes keep what looks like a comment."""
    assert remove_comments("a/* b */c -- d\n'-- e'") == "a c  \n'-- e'"
    assert remove_comments("a /* open") == "a /* open"
    assert collapse_space(" a/* b */ c -- d\n'--  e' ") == "a c '--  e'"


@pytest.mark.parametrize(
    ("text", "explain"),
    [
        ("EXPLAIN SELECT 1", True),
        (" -- a\n/* b */explain/* c */SELECT 1", True),
        ("-- a\rEXPLAIN SELECT 1", True),
        ("/* a /* b */ c */ EXPLAIN SELECT 1", True),
        ("/* a /* b */ EXPLAIN SELECT 1", False),  # the comment does not end
        ("EXPLAINED SELECT 1", False),
        ('"EXPLAIN" SELECT 1', False),
        ("'EXPLAIN' SELECT 1", False),
        ("SELECT 1 -- EXPLAIN", False),
        ("", False),
    ],
)
def test_explain_is_the_first_word(text: str, explain: bool) -> None:
    """EXPLAIN and the text before it are blanked out, which keeps all positions."""
    found, rest = strip_explain(text)
    assert (found, find_explain_end(text) is not None) == (explain, explain)
    assert len(rest) == len(text)
    assert rest.strip() == (text[find_explain_end(text) or 0 :].strip() if explain else text.strip())
    if explain:
        assert parse_statement(text).explain


@pytest.mark.parametrize(
    "part",
    ["(", ";", "1,", "- ", "/", "/*", "/**/", "--\n", "$", "$a ", "$a", "$a$ ", "'", "'a' ", "E'\\'", '"', "`", "e", ":", "é", "😀", "\\", "\x00"],
)  # fmt: skip
def test_time_is_linear(part: str) -> None:
    """A million letters take a second or two on a busy machine."""
    text = part * (2 * MAX_CHARACTERS // len(part))
    began = time.process_time()
    assert sum(1 for _ in iterate_statements(text)) >= 1
    assert time.process_time() - began < 8
