"""A connection as a state machine: no sockets, no engine; each task is answered by the test."""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.interfaces.server.protocol.conversation import Conversation
from dpsql.interfaces.server.protocol.errors import Failure
from dpsql.interfaces.server.protocol.queries import MOST_VALUES_AT_ONCE, QueryExchange
from dpsql.interfaces.server.protocol.scram import Verifier
from dpsql.interfaces.server.protocol.tasks import (
    Answer,
    CancelStatement,
    DescribeStatement,
    FoundVerifier,
    InferTypes,
    LogIn,
    LoginResult,
    LookUpUser,
    ReadText,
    RejectLogin,
    RunStatement,
    StartTLS,
    StatementDescription,
    Task,
)
from dpsql.interfaces.server.protocol.values import INT8, TEXT, Column
from dpsql.interfaces.server.statements import parse_statements

from .scram_client import ScramClient
from .test_messages import message, startup

PASSWORD = "correct horse battery staple"
SALTED = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), b"salt", 1)  # once, for there are many logins here
VERIFIER = Verifier(
    1,
    b"salt",
    hashlib.sha256(hmac.digest(SALTED, b"Client Key", "sha256")).digest(),
    hmac.digest(SALTED, b"Server Key", "sha256"),
)
START = startup(struct.pack("!i", 196608) + b"user\0ana\0\0")
COLUMNS = (Column("n", INT8),)
ROWS = ((1,), (2,), (3,))


def said(data: bytes) -> list[tuple[str, bytes]]:
    """The server's messages."""
    found = []
    while data:
        (length,) = struct.unpack_from("!i", data, 1)
        found.append((chr(data[0]), data[5 : length + 1]))
        data = data[length + 1 :]
    return found


def kinds(data: bytes) -> str:
    return "".join(kind for kind, _ in said(data))


def fields(body: bytes) -> dict[str, str]:
    return {chr(part[0]): part[1:].decode() for part in body.split(b"\0") if part}


def state_of(data: bytes) -> str:
    return next(fields(body)["C"] for kind, body in said(data) if kind == "E")


def proved(conversation: Conversation, password: str = PASSWORD, *, known: bool = True) -> Task[Any] | None:
    """Log in up to the proof of the password, and return the next task."""
    conversation.receive_bytes(START)
    task = conversation.step()
    assert task == LookUpUser("ana")
    conversation.complete_task(task, FoundVerifier(VERIFIER, known))
    client = ScramClient(password)
    first = client.first().encode()
    conversation.take_output()
    conversation.receive_bytes(message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first))
    assert conversation.step() is None
    ((_, body),) = said(conversation.take_output())
    conversation.receive_bytes(message(b"p", client.final(body[4:].decode()).encode()))
    return conversation.step()


def ready() -> Conversation:
    conversation = Conversation()
    task = proved(conversation)
    assert task == LogIn("ana", {"user": "ana"})
    conversation.complete_task(task, LoginResult({"server_version": "15.0"}, 7, b"keys"))
    assert kinds(conversation.take_output()) == "RRSKZ"
    return conversation


def queries_of(conversation: Conversation) -> QueryExchange:
    assert conversation._queries is not None
    return conversation._queries


def answered(task: RunStatement) -> Answer | Failure:
    """Return a server's answer to a statement."""
    if task.statement.command is not None:
        return Answer(task.statement.command)
    if "bad" in task.text:
        return Failure("42601", "bad")
    if "SET" in task.text:
        return Answer("SET", statuses={"application_name": "x"})
    return Answer("SELECT 3", COLUMNS, ROWS)


def ask(conversation: Conversation, *messages: bytes) -> bytes:
    """Send messages, complete all tasks, and return the output."""
    conversation.receive_bytes(b"".join(messages))
    while (task := conversation.step()) is not None:
        if isinstance(task, RunStatement):
            conversation.complete_task(task, answered(task))
        elif isinstance(task, ReadText):
            conversation.complete_task(task, parse_statements(task.text))
        elif isinstance(task, InferTypes):
            conversation.complete_task(task, tuple(each or TEXT for each in task.types))
        else:
            assert isinstance(task, DescribeStatement)
            found = (
                Failure("42P01", "no")
                if "bad" in task.text
                else StatementDescription(COLUMNS, (TEXT,) * len(task.types))
            )
            conversation.complete_task(task, found)
    return conversation.take_output()


def parse(text: str, name: str = "") -> bytes:
    return message(b"P", f"{name}\0{text}\0".encode() + struct.pack("!h", 0))


def bind(
    portal: str = "", name: str = "", values: tuple[bytes, ...] = (), results: tuple[int, ...] = ()
) -> bytes:
    body = b"".join(struct.pack("!i", len(value)) + value for value in values)
    codes = struct.pack("!h", len(results)) + b"".join(struct.pack("!h", code) for code in results)
    return message(b"B", f"{portal}\0{name}\0".encode() + struct.pack("!hh", 0, len(values)) + body + codes)


def execute(portal: str = "", rows: int = 0) -> bytes:
    return message(b"E", f"{portal}\0".encode() + struct.pack("!i", rows))


def query(text: str) -> bytes:
    return message(b"Q", text.encode() + b"\0")


SYNC = message(b"S")


@pytest.mark.parametrize(
    ("password", "known", "expected"),
    [(PASSWORD, True, LogIn), ("wrong" + PASSWORD, True, RejectLogin), (PASSWORD, False, RejectLogin)],
)
def test_only_the_password_of_a_known_user_logs_in(password: str, known: bool, expected: type) -> None:
    conversation = Conversation()
    task = proved(conversation, password, known=known)
    assert isinstance(task, expected)
    if isinstance(task, RejectLogin):
        conversation.complete_task(task, None)
        assert state_of(conversation.take_output()) == "28P01"
        assert conversation.is_closing


def test_an_unknown_user_gets_the_same_messages_as_a_known_one() -> None:
    """Kinds and lengths of all messages are equal, and the made-up verifier is the same each time."""
    told = []
    for known, verifier in (
        (True, Verifier.from_password(PASSWORD)),
        (False, Verifier.make_mock("ana", b"secret")),
    ):
        conversation = Conversation()
        conversation.receive_bytes(START)
        task = conversation.step()
        assert isinstance(task, LookUpUser)
        conversation.complete_task(task, FoundVerifier(verifier, known))
        first = b"n,,n=,r=abcdefghijklmnop"
        conversation.receive_bytes(message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first))
        conversation.step()
        told.append([(kind, len(body)) for kind, body in said(conversation.take_output())])
    assert told[0] == told[1]
    assert (
        Verifier.make_mock("ana", b"secret")
        == Verifier.make_mock("ana", b"secret")
        != Verifier.make_mock("bob", b"secret")
    )


@pytest.mark.parametrize(
    "data", [query("SELECT 1"), SYNC, message(b"p", b"\0"), message(b"p", b"PLAIN\0\0\0\0\1x")]
)
def test_queries_before_the_login_end_the_connection(data: bytes) -> None:
    conversation = Conversation()
    conversation.receive_bytes(START)
    task = conversation.step()
    assert isinstance(task, LookUpUser)
    conversation.complete_task(task, FoundVerifier(VERIFIER, True))
    conversation.receive_bytes(data)
    assert conversation.step() is None
    assert conversation.is_closing


def test_plain_bytes_after_an_ssl_request_end_the_connection() -> None:
    conversation = Conversation(tls=True)
    conversation.receive_bytes(startup(struct.pack("!i", 80877103)) + START)
    assert conversation.step() is None
    assert conversation.is_closing
    assert state_of(conversation.take_output()) == "08P01"


def test_tls_is_offered_and_can_be_required() -> None:
    asked = startup(struct.pack("!i", 80877103))
    plain = Conversation()
    plain.receive_bytes(asked)
    assert plain.step() is None
    assert plain.take_output() == b"N"
    offered = Conversation(tls=True, requires_tls=True)
    offered.receive_bytes(asked)
    task = offered.step()
    assert isinstance(task, StartTLS)
    assert offered.take_output() == b"S"
    offered.complete_task(task, None)
    offered.receive_bytes(START)
    assert offered.step() == LookUpUser("ana")
    refused = Conversation(tls=True, requires_tls=True)
    refused.receive_bytes(START)
    assert refused.step() is None
    assert state_of(refused.take_output()) == "28000"


def test_a_cancel_request_gets_no_answer() -> None:
    conversation = Conversation()
    conversation.receive_bytes(startup(struct.pack("!ii", 80877102, 9) + b"keys"))
    task = conversation.step()
    assert task == CancelStatement(9, b"keys")
    conversation.complete_task(task, None)
    assert conversation.step() is None
    assert conversation.is_closing
    assert conversation.take_output() == b""


def begun(at: str) -> Conversation:
    """Return a conversation that waits for the user, the login or a statement."""
    if at == "statement":
        conversation = ready()
        conversation.receive_bytes(query("SELECT 1"))
    else:
        conversation = Conversation()
        if at == "login":
            proved(conversation)
        else:
            conversation.receive_bytes(START)
    return conversation


@pytest.mark.parametrize("at", ["user", "login", "statement"])
def test_a_closing_connection_has_no_further_task(at: str) -> None:
    """Once, its task was returned again and again until the client closed its socket."""
    conversation = begun(at)
    assert conversation.step() is not None
    conversation.close_with_failure(Failure("53300", "sorry", severity="FATAL"))
    assert kinds(conversation.take_output())[-1] == "E"
    assert (conversation.step(), conversation.is_waiting, conversation.is_closing) == (None, False, True)
    assert conversation.take_output() == b""


def test_a_simple_query_runs_its_statements_up_to_the_first_error() -> None:
    conversation = ready()
    assert kinds(ask(conversation, query("SELECT 1; SET a = 1; SELECT 2"))) == "TDDDC" + "SC" + "TDDDC" + "Z"
    assert kinds(ask(conversation, query("SELECT 1; bad; SELECT 2"))) == "TDDDCEZ"
    assert kinds(ask(conversation, query(" -- nothing"))) == "IZ"
    assert kinds(ask(conversation, query("SELECT 1"), query("SELECT 1"))) == "TDDDCZ" * 2


def test_portals_return_their_rows_in_parts_until_the_transaction_ends() -> None:
    conversation = ready()
    described = message(b"D", b"P\0")
    assert kinds(ask(conversation, parse("SELECT 1"), bind(), described, execute(), SYNC)) == "12TDDDCZ"
    assert kinds(ask(conversation, query("BEGIN"))) == "CZ"
    told = ask(conversation, parse("SELECT 1"), bind("p"), execute("p", 2), execute("p", 2), SYNC)
    assert kinds(told) == "12DDsDCZ"
    assert said(told)[-2][1] == b"SELECT 1\0"
    assert kinds(ask(conversation, execute("p", 2), SYNC)) == "CZ"
    assert kinds(ask(conversation, query("COMMIT"), SYNC, execute("p"), SYNC)) == "CZZEZ"


def test_after_an_error_everything_up_to_sync_is_skipped() -> None:
    conversation = ready()
    told = ask(conversation, parse("bad"), bind(), execute(), parse("SELECT 1"), bind(), execute(), SYNC)
    assert kinds(told) == "12EZ"
    assert (
        kinds(ask(conversation, bind("", "none"), parse("SELECT 1"), SYNC, query("SELECT 1"))) == "EZTDDDCZ"
    )
    assert kinds(ask(conversation, parse("bad"), message(b"D", b"S\0"), execute(), SYNC)) == "1EZ"


def test_portal_runs_once() -> None:
    """Each run could be a charge."""
    conversation = ready()
    ran = []
    conversation.receive_bytes(query("BEGIN") + parse("SELECT 1") + bind("p") + execute("p", 1) * 3 + SYNC)
    while (task := conversation.step()) is not None:
        assert isinstance(task, RunStatement)
        ran.append(task.text)
        conversation.complete_task(task, answered(task))
    assert ran == ["BEGIN", "SELECT 1"]


def test_the_transaction_status_follows_the_statements() -> None:
    conversation = ready()

    def status(*messages: bytes) -> str:
        return said(ask(conversation, *messages))[-1][1].decode()

    assert [status(query(text)) for text in ("SELECT 1", "BEGIN", "SELECT 1", "COMMIT")] == [
        "I",
        "T",
        "T",
        "I",
    ]
    assert [status(query(text)) for text in ("BEGIN", "bad", "SELECT 1", "ROLLBACK")] == ["T", "E", "E", "I"]
    assert [
        status(query(text)) for text in ("BEGIN", "SAVEPOINT a", "bad", "RELEASE a", "ROLLBACK TO a")
    ] == [*"TTEET"]
    assert status(query("COMMIT")) == "I"
    assert state_of(ask(conversation, query("BEGIN; bad"), query("SELECT 1"))) == "42601"
    assert state_of(ask(conversation, parse("SELECT 1"), SYNC)) == "25P02"
    assert status(parse("ROLLBACK"), bind(), execute(), SYNC) == "I"


def test_parameters_are_counted_and_decoded_by_their_types() -> None:
    conversation = ready()
    assert state_of(ask(conversation, parse("SELECT $2"), bind(values=(b"1",)), SYNC)) == "08P01"
    assert state_of(ask(conversation, parse("SELECT $1; SELECT 2"), SYNC)) == "42601"
    typed = message(b"P", b"\0SELECT $1\0" + struct.pack("!hi", 1, INT8))
    assert state_of(ask(conversation, typed, bind(values=(b"x",)), SYNC)) == "22P02"
    conversation.receive_bytes(typed + bind(values=(b"12",)) + execute())
    task = conversation.step()
    assert isinstance(task, RunStatement)
    assert task.values == (12,)


def test_results_are_binary_on_request() -> None:
    told = ask(ready(), parse("SELECT 1"), bind(results=(1,)), execute(), SYNC)
    assert said(told)[2][1] == struct.pack("!hiq", 1, 8, 1)


def test_many_messages_are_handled_in_parts() -> None:
    """Each part ends, so that its output is sent before more is written, and other connections get a turn."""
    conversation = ready()
    ask(conversation, parse("SELECT 1", "s"), message(b"D", b"Ss\0"), SYNC)
    conversation.receive_bytes(message(b"D", b"Ss\0") * 1_000)
    told = []
    while conversation.step() is None:
        told.append(len(said(conversation.take_output())))
        if not conversation.has_more_messages:
            break
    assert sum(told) == 2_000
    assert max(told) <= 200


@pytest.mark.parametrize("limit", [None, 0, 50_000])
def test_a_large_answer_is_written_in_parts(limit: int | None) -> None:
    """Other connections get a turn between the parts, and the next statement waits for the end of the answer."""
    conversation, rows, wanted = ready(), tuple((number,) for number in range(60_000)), limit or 60_000
    asked = (query("SELECT 1"),) if limit is None else (parse("SELECT 1"), bind(), execute("", limit), SYNC)
    conversation.receive_bytes(b"".join((*asked, query("SELECT 2"))))
    task = conversation.step()
    assert isinstance(task, RunStatement)
    conversation.complete_task(task, Answer("SELECT 60000", COLUMNS, rows))
    parts = [conversation.take_output()]
    while (task := conversation.step()) is None:
        assert conversation.has_more_messages
        assert conversation.is_waiting
        parts.append(conversation.take_output())
    parts.append(conversation.take_output())
    assert isinstance(task, RunStatement)
    assert task.text == "SELECT 2"
    assert max(kinds(part).count("D") for part in parts) <= MOST_VALUES_AT_ONCE
    head = "T" if limit is None else "12"
    end = "s" if limit == 50_000 else "C"
    assert kinds(b"".join(parts)) == head + "D" * wanted + end + "Z"


def test_statements_and_portals_have_bounded_memory() -> None:
    conversation = ready()
    text = "SELECT '" + "x" * 90_000 + "'"
    parsed = kinds(ask(conversation, *(parse(text, f"s{number}") for number in range(60)), SYNC))
    assert parsed == "1" * (len(parsed) - 2) + "EZ"
    assert len(parsed) < 50
    closed = [message(b"C", f"Ss{number}\0".encode()) for number in range(60)]
    assert kinds(ask(conversation, *closed, parse("SELECT $1", "s"), SYNC)) == "3" * 60 + "1Z"
    ask(conversation, query("BEGIN"))
    bound = kinds(
        ask(conversation, *(bind(f"p{number}", "s", (b"x" * 900_000,)) for number in range(20)), SYNC)
    )
    assert bound == "2" * (len(bound) - 2) + "EZ"
    assert len(bound) < 12


def test_a_text_beyond_the_limit_is_refused() -> None:
    text = "SELECT 1" + ";" * 1_000_000
    assert state_of(ask(ready(), query(text))) == "54000"
    assert state_of(ask(ready(), parse(text), SYNC)) == "54000"
    assert kinds(ask(ready(), query(text), query("SELECT 1"))) == "EZTDDDCZ"


def test_sent_rows_of_a_portal_are_dropped() -> None:
    conversation = ready()
    ask(conversation, query("BEGIN"), parse("SELECT 1"), bind("p"), execute("p"), SYNC)
    answer = queries_of(conversation)._named.portals["p"].answer
    assert answer is not None
    assert answer.rows == ()
    assert kinds(ask(conversation, execute("p"), SYNC)) == "CZ"


_PIECES = [
    query("SELECT 1"), query("BEGIN"), query("bad"), query("COMMIT"), parse("SELECT 1"), parse("SELECT $1", "s"),
    parse("bad"), bind(), bind("p", "s", (b"1",)), bind("p"), execute(), execute("p", 1), execute("p"), SYNC,
    message(b"D", b"P\0"), message(b"D", b"Ss\0"), message(b"C", b"Ss\0"), message(b"C", b"Pp\0"), message(b"H"),
]  # fmt: skip


@settings(max_examples=examples(1_000))
@given(st.lists(st.sampled_from(_PIECES), max_size=12))
def test_each_sync_is_answered_once_in_any_order_of_messages(sent: list[bytes]) -> None:
    conversation = ready()
    told = ask(conversation, *sent)
    wanted = sum(each[:1] in (b"Q", b"S") for each in sent) - skipped(sent)
    assert kinds(told).count("Z") == wanted
    assert kinds(ask(conversation, SYNC)).endswith("Z")


def skipped(sent: list[bytes]) -> int:
    """Count the simple queries after an error that no Sync has ended, by running the messages once more."""
    conversation = ready()
    count = 0
    for each in sent:
        before = queries_of(conversation)._is_skipping
        ask(conversation, each)
        count += each[:1] == b"Q" and before
    return count


@settings(max_examples=examples(1_000))
@given(st.lists(st.one_of(st.sampled_from(_PIECES), st.binary(max_size=30)), max_size=8))
def test_random_bytes_end_in_a_protocol_error(sent: list[bytes]) -> None:
    conversation = ready()
    told = ask(conversation, *sent)
    if conversation.is_closing and kinds(told).endswith("E"):
        assert fields(said(told)[-1][1])["S"] == "FATAL"


def test_nul_in_a_message_starts_no_other_field() -> None:
    """A NUL in a message would make its rest another field."""
    conversation = ready()
    conversation.receive_bytes(query("SELECT 1"))
    task = conversation.step()
    assert task is not None
    conversation.complete_task(task, Failure("42601", "a\0Hwrong", hint="right"))
    assert fields(said(conversation.take_output())[0][1])["H"] == "right"


def test_a_parameter_of_the_type_unknown_has_none() -> None:
    """705 is the type of a text between quotes, which some drivers state for their texts."""
    conversation = ready()
    conversation.receive_bytes(
        message(b"P", b"\0SELECT n > $1\0" + struct.pack("!hI", 1, 705)) + bind(values=(b"1",)) + SYNC
    )
    assert isinstance(conversation.step(), InferTypes)


_TEXTS = (
    "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT a", "ROLLBACK TO a", "RELEASE a", "SELECT n", "SELECT bad", "SELECT $1", "", ";",
    "SELECT n; SELECT bad; SELECT n", "DECLARE c CURSOR FOR SELECT n", "DECLARE h CURSOR WITH HOLD FOR SELECT n",
    "DECLARE c CURSOR FOR SELECT bad", "DECLARE c", "FETCH c", "FETCH ALL h", "FETCH -1 c", "MOVE 2 c", "CLOSE c", "CLOSE ALL",
    "DEALLOCATE ALL", "DEALLOCATE s", "DISCARD ALL", "SET a = b", "FETCH", "BEGIN; DECLARE c CURSOR FOR SELECT n; COMMIT; FETCH c",
)  # fmt: skip
_NAMES = ("", "s", "c", "h")
_MESSAGES = (
    st.sampled_from(_TEXTS).map(query)
    | st.builds(parse, st.sampled_from(_TEXTS), st.sampled_from(_NAMES))
    | st.builds(bind, st.sampled_from(_NAMES), st.sampled_from(_NAMES), st.sampled_from([(), (b"1",)]))
    | st.builds(execute, st.sampled_from(_NAMES), st.integers(0, 2))
    | st.sampled_from([b"S", b"P"]).flatmap(
        lambda kind: st.sampled_from(_NAMES).map(lambda name: message(b"D", kind + name.encode() + b"\0"))
    )
    | st.sampled_from([b"S", b"P"]).flatmap(
        lambda kind: st.sampled_from(_NAMES).map(lambda name: message(b"C", kind + name.encode() + b"\0"))
    )
    | st.sampled_from([SYNC, message(b"H")])
)


@given(st.lists(_MESSAGES, max_size=30))
@settings(max_examples=examples(300), deadline=None)
def test_any_order_of_messages_keeps_the_state(messages: list[bytes]) -> None:
    """One ReadyForQuery for each query and Sync, errors only fail a transaction that there is, and nothing stays held."""
    conversation = ready()
    told = said(ask(conversation, *messages, SYNC))
    assert sum(kind == "Z" for kind, _ in told) == 1 + sum(
        each[:1] in (b"Q", b"S") for each in messages
    ) - skipped(messages)
    failed = False
    for kind, body in told:
        failed = failed or kind == "E"
        if kind == "Z":
            assert body in (b"I", b"T", b"E")
            assert failed or body != b"E"
    assert not conversation.is_closing
    ask(conversation, query("ROLLBACK; DISCARD ALL"))
    queries = queries_of(conversation)
    assert queries.transaction_status == "I"
    assert not queries._named.statements
    assert not queries._named.portals
    memory = queries._named._memory
    assert memory._memory.get_held_bytes(memory.person) == 0
