"""A19, volatile and stateful functions: refused below the release boundary and above it."""

from __future__ import annotations

import datetime as dt
import re
from unittest import mock

import pytest
from attacks.naive import Naive, distinguishes_worlds
from worlds import Refused, Row, engine_of, person, spent, world

from dpsql.engine.replay.replays import plan_and_match
from dpsql.engine.stages import answer_query
from dpsql.policy.request.query import Query

CALLS = """
random() | RANDOM() | rand() | setseed(0.5) | uuid() | gen_random_uuid() | uuidv4() | uuidv7()
current_time | get_current_time() | current_localtime() | localtime | age(day) | DATE 'today' | DATE 'now' | CAST('now' AS TIMESTAMP)
TIMESTAMP 'now' | TIMESTAMP 'epoch' | TIMESTAMP 'infinity' | CAST('today' AS DATE) | CAST('tomorrow' AS DATE)
getvariable('x') | current_setting('threads') | nextval('s') | currval('s') | lastval() | txid_current()
current_user | session_user | user | current_role | current_schema() | current_schemas(TRUE) | current_database()
current_query() | pg_backend_pid() | pg_sleep(1) | sleep_ms(1000) | sleep(1) | version() | getenv('HOME')
add_parquet_key('k', 'v') | write_log('x') | error('x') | nullif(random(), 1) | COALESCE(NULL, random())
CASE WHEN random() < 0.5 THEN 1 END | LEAST(random(), 1) | ABS(random()) | rowid
""".replace("\n", "|").split("|")
CALLS = [call.strip() for call in CALLS if call.strip()]
PLACES = [
    "SELECT COUNT({}) FROM people",
    "SELECT COUNT(*) FROM people WHERE {} IS NOT NULL",
    "SELECT COUNT(*) FROM people GROUP BY {}",
    "SELECT COUNT(*), {} FROM people",
    "SELECT COUNT(*) FROM people HAVING {} IS NULL",
    "SELECT COUNT(*) FROM people ORDER BY {}",
    "SELECT COUNT(*) FROM people LIMIT {}",
    "SELECT COUNT(*) FROM people JOIN regions ON city = name AND {} IS NULL",
]


def test_state_of_a_careless_engine_reveals_a_row(rows: list[Row]) -> None:
    """The attack works where a function keeps a state: a counter that one row moves is read without noise."""

    def counted(naive: Naive) -> object:
        naive.query("SELECT COUNT(CASE WHEN id = 99 THEN nextval('calls') END) FROM people")
        return naive.query("SELECT nextval('calls')")

    ours, theirs = (world(*rows, *more, setup=["CREATE SEQUENCE calls"]) for more in ([], [person(99)]))
    assert distinguishes_worlds(counted, ours, theirs)


def test_coin_tosses_of_a_careless_engine_are_free_samples(rows: list[Row]) -> None:
    """The attack works where a query may toss coins: equal queries see other rows."""
    connection = world(*rows)
    engine_of(connection).execute("SELECT setseed(0.5)")
    sql = "SELECT COUNT(*) FROM people WHERE random() < 0.5"
    assert len({engine_of(connection).execute(sql).fetchone() for _ in range(20)}) > 1


@pytest.mark.parametrize("call", CALLS)
def test_volatile_functions_are_refused(call: str, refused: Refused) -> None:
    """They are refused in arguments, filters, keys, outputs, HAVING, ORDER BY, LIMIT and joins, uncharged."""
    for place in PLACES:
        refused(place.format(call))


TIMES = """
now() | NOW() | transaction_timestamp() | current_timestamp | CURRENT_TIMESTAMP | get_current_timestamp()
current_date | CURRENT_DATE | today() | current_localtimestamp() | localtimestamp
""".replace("\n", "|").split("|")


@pytest.mark.parametrize("call", [call.strip() for call in TIMES if call.strip()])
def test_clock_is_read_once_outside_the_engine(call: str, rows: list[Row]) -> None:
    """The time of a statement is a constant of its plan: another time is another query, which is charged."""
    sql = f"SELECT COUNT(*) FROM people WHERE {call} > seen"
    connection = world(*rows)
    queries = [Query(sql, time=dt.datetime(2026, 1, day, 12)) for day in (1, 1, 2)]
    plans = [plan_and_match(connection.engine, each) for each in queries]
    for plan in plans:
        assert not re.search("now|current|today|local", plan.statement.sql, re.IGNORECASE)
        assert plan.constants == {call.lower().removesuffix("()"): mock.ANY}
    assert plans[0].plan_digest == plans[1].plan_digest != plans[2].plan_digest
    for each in queries:
        answer_query(connection.engine, plan_and_match(connection.engine, each))
    assert spent(connection) == 2


def test_receipts_name_the_time_of_the_statement(rows: list[Row]) -> None:
    """A receipt says what the words for the time meant; that of a statement without them says nothing."""
    connection = world(*rows)
    query = "SELECT COUNT(*) FROM people WHERE day < current_date"
    before = dt.datetime.now(dt.UTC).date()
    stated = connection.query(query, epsilon=1).receipt.to_dict()["constants"]
    days = {before, dt.datetime.now(dt.UTC).date()}  # two at midnight
    assert stated in [{"current_date": day.isoformat()} for day in days]
    assert "constants" not in connection.query("SELECT COUNT(*) FROM people", epsilon=1).receipt.to_dict()


@pytest.mark.parametrize(
    "clause",
    [
        "TABLESAMPLE 10%",
        "USING SAMPLE 1",
        "TABLESAMPLE RESERVOIR(1) REPEATABLE (7)",
        "QUALIFY random() < 0.5",
        "AT (VERSION => 1)",
    ],
)
def test_samples_are_refused(clause: str, refused: Refused) -> None:
    """A sample is a draw that nobody accounts for."""
    refused(f"SELECT COUNT(*) FROM people {clause}")


@pytest.mark.parametrize("word", ["now", "today", "tomorrow", "yesterday", "epoch", "infinity", "-infinity"])
def test_words_for_moments_are_not_constants(word: str, refused: Refused) -> None:
    """Text that the engine would read as the present moment is refused where a day is compared."""
    refused(f"SELECT COUNT(*) FROM people WHERE day < '{word}'")
    refused("SELECT COUNT(*) FROM people WHERE seen >= ?", word)
