"""Cursors: DECLARE asks once and keeps the rows, which FETCH and MOVE read as in PostgreSQL."""

from __future__ import annotations

from typing import Any

import pandas
import psycopg
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.interfaces.server.limits import Limits
from dpsql.interfaces.server.protocol.conversation import Conversation
from dpsql.interfaces.server.protocol.cursors import (
    Cursor,
    Declaration,
    Fetch,
    parse_declaration,
    parse_fetch,
)
from dpsql.interfaces.server.protocol.errors import StatementError
from dpsql.interfaces.server.protocol.tasks import Answer
from dpsql.interfaces.server.protocol.values import INT8, Column
from dpsql.interfaces.server.statements import Statement

from .conftest import PASSWORD, Serve, Served, prepared
from .raw_client import DESCRIBE_PORTAL, SYNC, RawClient, bind, execute, parse, rows_of, state_of
from .test_conversation import ask, kinds, query, ready, said
from .test_conversation import state_of as conversation_state

GROUPED = "SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan ORDER BY plan"


def tags(data: bytes) -> list[str]:
    return [body[:-1].decode() for kind, body in said(data) if kind == "C"]


def numbers(data: bytes) -> list[int]:
    return [int(body[6:]) for kind, body in said(data) if kind == "D"]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["FETCH c", "FETCH NEXT FROM c", "FETCH 5 IN c", "FETCH c"], [[1], [2], [3], []]),
        (["FETCH FORWARD 2 FROM c", "FETCH BACKWARD 1 FROM c", "FETCH PRIOR c"], [[1, 2], [1], []]),
        (["FETCH ALL c", "FETCH BACKWARD ALL IN c", "FETCH FORWARD ALL FROM c"], [[1, 2, 3], [3, 2, 1], [1, 2, 3]]),
        (["FETCH LAST c", "FETCH FIRST c", "FETCH ABSOLUTE 2 c", "FETCH ABSOLUTE -1 c"], [[3], [1], [2], [3]]),
        (["FETCH RELATIVE 2 c", "FETCH RELATIVE -1 c", "FETCH 0 c", "FETCH RELATIVE 9 c"], [[2], [1], [1], []]),
        (["MOVE 2 IN c", "FETCH c", "MOVE BACKWARD ALL c", "FETCH FORWARD c"], [[], [3], [], [1]]),
        (["FETCH ABSOLUTE 0 c", "fetch forward from C", "FETCH -1 c"], [[], [1], []]),
    ],
)  # fmt: skip
def test_cursors_move_as_in_postgresql(steps: list[str], expected: list[list[int]]) -> None:
    conversation = ready()
    ask(conversation, query("BEGIN"))
    assert tags(ask(conversation, query("DECLARE c SCROLL CURSOR FOR SELECT n"))) == ["DECLARE CURSOR"]
    assert [numbers(ask(conversation, query(step))) for step in steps] == expected
    assert tags(ask(conversation, query("CLOSE c"))) == ["CLOSE CURSOR"]
    assert conversation_state(ask(conversation, query("FETCH c"))) == "34000"


def test_tags_tell_the_number_of_rows() -> None:
    conversation = ready()
    ask(conversation, query("BEGIN; DECLARE c CURSOR FOR SELECT n"))
    assert tags(ask(conversation, query("FETCH 2 c; MOVE ALL c; FETCH c"))) == [
        "FETCH 2",
        "MOVE 1",
        "FETCH 0",
    ]


@given(
    st.lists(
        st.tuples(st.sampled_from(["steps", "back", "absolute", "relative"]), st.integers(-5, 5) | st.none())
    )
)
@settings(max_examples=examples(200))
def test_any_series_of_fetches_agrees_with_a_list(steps: list[tuple[str, int | None]]) -> None:
    """The model: positions 0 to 4 over three rows; a fetch walks one position at a time and takes the rows it meets."""
    rows = [(1,), (2,), (3,)]
    cursor = Cursor((Column("n", INT8),), rows, 0, can_scroll=True, is_holdable=False)
    place = 0
    for kind, given_steps in steps:
        if kind in ("absolute", "relative"):
            count = given_steps or 0
            base = place if kind == "relative" else 4 if count < 0 else 0
            place = min(max(base + count, 0), 4)
            expected = [rows[place - 1]] if 1 <= place <= 3 else []
            fetch = Fetch("c", count, is_absolute=kind == "absolute", is_relative=kind == "relative")
        else:
            fetch = Fetch("c", given_steps, is_backward=kind == "back")
            count = 9 if given_steps is None else given_steps
            count = -count if kind == "back" else count
            expected = [rows[place - 1]] if count == 0 and 1 <= place <= 3 else []
            for _ in range(abs(count)):
                place = min(max(place + (1 if count > 0 else -1), 0), 4)
                if 1 <= place <= 3:
                    expected.append(rows[place - 1])
        assert list(cursor.fetch_rows(fetch)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DECLARE c CURSOR FOR SELECT 1", Declaration("c", Statement("SELECT 1", 21, 0, ("select",)))),
        (
            'declare "My ""C" /* x */ BINARY INSENSITIVE NO SCROLL CURSOR WITH HOLD FOR  WITH a AS (SELECT 1) SELECT $1',
            Declaration(
                'My "C', Statement("WITH a AS (SELECT 1) SELECT $1", 76, 1, ("with",)), True, True, False
            ),
        ),
        ("DECLARE C SCROLL CURSOR WITHOUT HOLD FOR VALUES (1)", Declaration("c", Statement("VALUES (1)", 41, 0, ("values",)))),
    ],
)  # fmt: skip
def test_declarations_are_read(text: str, expected: Declaration) -> None:
    assert parse_declaration(Statement.from_text(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "DECLARE", "DECLARE c", "DECLARE c CURSOR", "DECLARE c CURSOR FOR", "DECLARE CURSOR FOR SELECT 1",
        "DECLARE c FOR SELECT 1", "DECLARE c CURSOR FOR DELETE FROM visits", "DECLARE c CURSOR FOR DECLARE d CURSOR FOR SELECT 1",
        "DECLARE c CURSOR FOR FETCH c", "DECLARE c CURSOR WITH FOR SELECT 1", "DECLARE c SCROLL NO CURSOR FOR SELECT 1",
        "DECLARE c BINARY BINARY CURSOR FOR SELECT 1", "DECLARE 'c' CURSOR FOR SELECT 1", 'DECLARE "" CURSOR FOR SELECT 1',
        f"DECLARE {'c' * 64} CURSOR FOR SELECT 1", "DECLARE c CURSOR FOR SET jit = on", "DECLARE c CURSOR FOR EXPLAIN SELECT 1",
    ],
)  # fmt: skip
def test_wrong_declarations_are_refused(text: str) -> None:
    with pytest.raises(StatementError):
        parse_declaration(Statement.from_text(text))


@pytest.mark.parametrize(
    "text",
    ["FETCH", "FETCH 1", "FETCH FROM", "FETCH 1 2 c", "FETCH ABSOLUTE c d", "MOVE 99999999999 c", "FETCH c d", "FETCH ALL", "FETCH x' c"],
)  # fmt: skip
def test_wrong_fetches_are_refused_or_name_no_cursor(text: str) -> None:
    conversation = ready()
    ask(conversation, query("BEGIN; DECLARE c CURSOR FOR SELECT n"))
    told = ask(conversation, query(text))
    assert conversation_state(told) in ("42601", "34000")
    assert kinds(told)[-1] == "Z"
    assert said(told)[-1][1] == b"E"


def test_direction_words_may_be_names() -> None:
    assert parse_fetch(Statement.from_text("FETCH next")) == Fetch("next", 1)
    assert parse_fetch(Statement.from_text("FETCH forward")) == Fetch("forward", 1)
    assert parse_fetch(Statement.from_text('MOVE -2 FROM "Next"')) == Fetch("Next", -2, is_move=True)


def test_cursors_end_with_their_transaction_unless_they_are_held() -> None:
    """An error in the transaction closes the cursors that it declared, held or not, as in PostgreSQL."""
    conversation = ready()
    assert conversation_state(ask(conversation, query("DECLARE c CURSOR FOR SELECT n"))) == "25P01"
    ask(conversation, query("DECLARE early CURSOR WITH HOLD FOR SELECT n"))
    ask(
        conversation,
        query("BEGIN; DECLARE c CURSOR FOR SELECT n; DECLARE h CURSOR WITH HOLD FOR SELECT n; COMMIT"),
    )
    assert conversation_state(ask(conversation, query("FETCH c"))) == "34000"
    ask(conversation, SYNC)
    assert numbers(ask(conversation, query("FETCH h"))) == [1]
    ask(conversation, query("BEGIN; DECLARE g CURSOR WITH HOLD FOR SELECT n"))
    assert conversation_state(ask(conversation, query("FETCH nothing"))) == "34000"
    assert conversation_state(ask(conversation, query("FETCH g"))) == "25P02"
    ask(conversation, query("COMMIT"))
    assert conversation_state(ask(conversation, query("FETCH g"))) == "34000"
    assert numbers(ask(conversation, query("FETCH h"))) == [2]
    assert numbers(ask(conversation, query("FETCH early"))) == [1]
    ask(conversation, query("DISCARD ALL"))
    assert conversation_state(ask(conversation, query("FETCH h"))) == "34000"


def test_a_second_cursor_of_a_name_asks_nothing() -> None:
    conversation = ready()
    ask(conversation, query("BEGIN; DECLARE c CURSOR FOR SELECT n"))
    conversation.receive_bytes(query("DECLARE c CURSOR FOR SELECT n"))
    assert conversation.step() is None
    assert conversation_state(conversation.take_output()) == "42P03"


def test_forward_cursors_do_not_go_back() -> None:
    conversation = ready()
    ask(conversation, query("BEGIN; DECLARE c NO SCROLL CURSOR FOR SELECT n; FETCH 2 c"))
    assert conversation_state(ask(conversation, query("FETCH PRIOR c"))) == "55000"


def test_a_failed_query_leaves_no_cursor() -> None:
    conversation = ready()
    ask(conversation, query("BEGIN"))
    assert conversation_state(ask(conversation, query("DECLARE c CURSOR FOR SELECT bad"))) == "42601"
    ask(conversation, query("ROLLBACK; BEGIN"))
    assert conversation_state(ask(conversation, query("FETCH c"))) == "34000"


def test_cursors_that_a_user_has_no_memory_for_are_refused() -> None:
    """The rows of all cursors of a person count; a refused cursor holds nothing."""
    conversation = ready()
    ask(conversation, query("BEGIN"))
    queries = conversation._queries
    assert queries is not None
    queries._named.keep_cursor(
        Declaration("a", Statement("")), Answer("SELECT 1", (), [(1,)], size=7_000_000), in_transaction=True
    )
    with pytest.raises(StatementError, match="too much memory"):
        queries._named.keep_cursor(
            Declaration("b", Statement("")),
            Answer("SELECT 1", (), [(1,)], size=7_000_000),
            in_transaction=True,
        )
    assert set(queries._named.portals) == {"a"}
    ask(conversation, query("COMMIT; BEGIN"))
    queries._named.keep_cursor(
        Declaration("b", Statement("")), Answer("SELECT 1", (), [(1,)], size=7_000_000), in_transaction=True
    )


def test_a_server_side_cursor_of_psycopg_is_charged_once(shared: Served) -> None:
    with psycopg.connect(shared.dsn()) as connection:
        connection.execute("SET dpsql.epsilon = 0.25")
        rows = connection.execute(GROUPED).fetchall()
        before = shared.spent()
        text = "SELECT plan, COUNT(*) AS n FROM visits WHERE cost > %s GROUP BY plan ORDER BY plan"
        with connection.cursor("My cursor", scrollable=True) as cursor:
            cursor.execute(text, [250.5])
            charged = shared.spent()
            assert charged > before
            assert [column.name for column in cursor.description or ()] == ["plan", "n"]
            first, second = cursor.fetchone(), cursor.fetchone()
            assert cursor.fetchone() is None
            cursor.scroll(0, mode="absolute")
            assert cursor.fetchall() == [first, second]
        assert shared.spent() == charged
        with connection.cursor("other", withhold=True) as cursor:
            cursor.itersize = 1
            cursor.execute(GROUPED)
            connection.commit()
            assert list(cursor) == rows
        assert shared.spent() == charged


def test_binary_cursors_and_catalog_queries(shared: Served) -> None:
    with psycopg.connect(shared.dsn()) as connection, connection.cursor("c", binary=True) as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 2200 AND relkind = %s ORDER BY 1", ["r"]
        )
        assert cursor.fetchmany(1) == [("visits",)]
        assert cursor.fetchall() == [("wards",)]
    with RawClient(shared.port, "ana", PASSWORD) as client:
        client.query("BEGIN")
        client.query("DECLARE b BINARY CURSOR FOR SELECT oid FROM pg_class WHERE relname = 'visits'")
        told = client.query("FETCH b")
        assert next(body for kind, body in told if kind == "D")[6:] == (16384).to_bytes(4, "big")


def test_pandas_reads_chunks(shared: Served) -> None:
    engine = sa.create_engine(
        f"postgresql+psycopg://ana:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{shared.port}/clinic",
        connect_args={"options": "-c dpsql.epsilon=0.25"},
    )
    with engine.connect().execution_options(stream_results=True) as connection:
        chunks = list(pandas.read_sql_query(sa.text(GROUPED), connection, chunksize=1))
    assert [list(chunk["plan"]) for chunk in chunks] == [["A"], ["B"]]
    engine.dispose()


def test_fetch_by_the_extended_protocol(shared: Served) -> None:
    """Described before it runs, and in parts by the row limit of Execute."""
    with RawClient(shared.port, "ana", PASSWORD) as client:
        client.query("BEGIN")
        text = "DECLARE c CURSOR FOR SELECT relname FROM pg_class WHERE relnatts = $1 ORDER BY 1 LIMIT 3"
        told = client.ask(parse(text), bind("", "", "0"), DESCRIBE_PORTAL, execute(), SYNC)
        assert "".join(kind for kind, _ in told) == "12nCZ"
        told = client.ask(parse("FETCH ALL c"), bind(), DESCRIBE_PORTAL, execute("", 2), execute("", 2), SYNC)
        assert "".join(kind for kind, _ in told) == "12TDDsDCZ"
        assert state_of(client.ask(execute("c"), SYNC)) == "0A000"
        client.query("ROLLBACK")
        assert state_of(client.ask(parse("FETCH c"), bind(), DESCRIBE_PORTAL, SYNC)) == "34000"


def test_rows_of_cursors_count_as_memory_of_their_user(tmp_path: Any, serve: Serve) -> None:
    """Cursors of many sessions, held beyond their transactions, do not fill the memory."""
    prepared(tmp_path)
    wide = ", ".join(f"'{'x' * 9_000}' AS c{n}" for n in range(4))
    with (
        serve(tmp_path, limits=Limits(held_bytes=3_000_000)) as served,
        RawClient(served.port, "ana", PASSWORD) as client,
        RawClient(served.port, "ana", PASSWORD) as other,
    ):
        states = [
            state_of(each.query(f"DECLARE c{n} CURSOR WITH HOLD FOR SELECT {wide} FROM pg_class LIMIT 30"))
            for n in range(3)
            for each in (client, other)
        ]
        assert states[:2] == [None, None]
        assert set(states[2:]) == {"53200"}
        client.query("CLOSE ALL")
        assert (
            state_of(other.query(f"DECLARE d CURSOR WITH HOLD FOR SELECT {wide} FROM pg_class LIMIT 30"))
            is None
        )
        assert rows_of(other.query("FETCH ABSOLUTE 30 d"))


def test_an_unfinished_conversation_holds_no_cursor() -> None:
    conversation = ready()
    assert isinstance(conversation, Conversation)
    ask(conversation, query("BEGIN; DECLARE c CURSOR FOR SELECT n; ROLLBACK"))
    assert conversation._queries is not None
    assert not conversation._queries._named.portals
