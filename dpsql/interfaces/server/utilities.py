"""Utility statements of a session: SET, SHOW, RESET, DISCARD, and the functions that end statements and sessions."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dpsql.interfaces.server.protocol.failure import Failure, StatementError
from dpsql.interfaces.server.protocol.tasks import (
    Answer,
    DescribeStatement,
    RunStatement,
    StatementDescription,
)
from dpsql.interfaces.server.protocol.values import (
    BOOL,
    INT4,
    INT8,
    NUMERIC,
    TEXT,
    Column,
    get_oid,
)
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.session_memory import SessionMemory
from dpsql.interfaces.server.settings import Settings
from dpsql.interfaces.server.statement_runs import StatementRunner
from dpsql.interfaces.server.statements import Statement
from dpsql.policy.request.loss import format_rounded
from dpsql.sql.parse.scanner import collapse_space

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.ledger import BudgetState
    from dpsql.results.result import Result


_SET = re.compile(
    r"\s*SET\s+(?:(?:SESSION|LOCAL)\s+(?!CHARACTERISTICS))?"
    r"(?:(?P<zone>TIME\s+ZONE)\s+|(?P<names>NAMES)\s+|(?P<mode>(?:SESSION\s+CHARACTERISTICS\s+AS\s+)?TRANSACTION)\b"
    r"|(?P<name>[\w.]++)(?:\s*+=|\s++TO\b)\s*+)(?P<value>.*)",
    re.IGNORECASE | re.DOTALL,
)
_TAGS = {"begin": "BEGIN", "commit": "COMMIT", "rollback": "ROLLBACK", "savepoint": "SAVEPOINT"}
_TAGS |= {"release": "RELEASE", "rollback to": "ROLLBACK"}
_DISCARDS = {"all", "plans", "sequences", "temp", "temporary"}
_ENDS = re.compile(
    r"\s*SELECT\s+(?:pg_catalog\s*\.\s*)?(?P<name>pg_(?:cancel|terminate)_backend)\s*\(\s*(?P<number>\d{1,10}|\$1)"
    r"(?:\s*::\s*int(?:4|eger)?)?\s*\)(?:\s+AS\s+\w+)?\s*",
    re.IGNORECASE,
)
"""The functions that end statements and sessions, as in PostgreSQL."""
_LONGEST_ENDING = 200
_UTILITIES = {"set", "reset", "show", "discard", "deallocate", "close", "unlisten"}
MOST_CHARACTERS = 10_000
"""The largest number of characters of a utility statement, which is parsed while all sessions wait."""
_BUDGET = (
    Column("table", TEXT),
    Column("analyst", TEXT),
    Column("epsilon", NUMERIC),
    Column("delta", NUMERIC),
    Column("accountant", TEXT),
    Column("queries", INT8),
    Column("spent_epsilon", NUMERIC),
    Column("next_query_epsilon", NUMERIC),
    Column("locked", BOOL),
)


def is_utility(statement: Statement) -> bool:
    """Return whether a statement is for the session and not for the engine."""
    words = statement.words
    return (
        not words
        or words[0] in _UTILITIES
        or statement.command is not None
        or _match_backend_call(statement.text) is not None
    )


def takes_time(statement: Statement) -> bool:
    """Return whether a utility statement reads the ledger or writes to the audit log."""
    reads_ledger = statement.words[:1] == ("show",) and parse_setting_name(statement.text) == "dpsql.budget"
    return reads_ledger or _match_backend_call(statement.text) is not None


def _match_backend_call(text: str) -> re.Match[str] | None:
    """Match a call that ends another client's statement or session."""
    return _ENDS.fullmatch(collapse_space(text)) if len(text) <= _LONGEST_ENDING else None


def make_unknown_process_notice(number: int) -> Failure:
    """Return the warning that no session or request has a PID that the user may end."""
    return Failure(
        "01000",
        f"no session or request that you may end has PID {number}",
        "list them: SELECT pid, usename, state, query FROM pg_stat_activity",
        severity="WARNING",
    )


def parse_setting_name(text: str) -> str:
    """Return the folded name of the setting that a SHOW statement reads."""
    return " ".join(collapse_space(text[:MOST_CHARACTERS]).split()[1:]).strip('"').lower()


def unquote_value(part: str) -> str:
    """Return the value of a SET statement without its quotation marks."""
    part = part.strip()
    if len(part) > 1 and part[0] == part[-1] and part[0] in "'\"":
        return part[1:-1].replace(part[0] * 2, part[0])
    return part


def find_utility_columns(statement: Statement, last: Result | None) -> tuple[Column, ...] | None:
    """Return the columns of a utility statement's answer, or None without rows."""
    if statement.words[:1] != ("show",):
        return None
    name = parse_setting_name(statement.text)
    match name:
        case "dpsql.budget":
            return _BUDGET
        case "dpsql.intervals":
            extended = None if last is None else last.with_interval_columns(0.95)
            if extended is None:
                return (Column(name, TEXT),)
            return tuple(map(Column, extended.columns, map(get_oid, extended.types)))
        case "all":
            return (Column("name", TEXT), Column("setting", TEXT))
        case _:
            return (Column(name.rpartition(".")[2] if name.startswith("dpsql.") else name, TEXT),)


def to_budget_row(state: BudgetState) -> tuple[Any, ...]:
    """Return a budget as a row of SHOW dpsql.budget."""
    return (
        state.table,
        state.analyst,
        Decimal(format_rounded(state.epsilon, 6).replace(",", "")),
        Decimal(format_rounded(state.delta, 6).replace(",", "")),
        state.accountant,
        state.queries,
        Decimal(format_rounded(state.spent_epsilon, up=True).replace(",", "")),
        Decimal(format_rounded(state.remaining_epsilon).replace(",", "")),
        bool(state.locked),
    )


class LastAnswer:
    """The last answer of a session, for SHOW; its size is entered in the memory of the session's user."""

    def __init__(self, memory: SessionMemory) -> None:
        self._memory = memory
        self.result: Result | None = None

    def keep_result(self, result: Result, size: int) -> None:
        """Keep a result, if there is room for it."""
        self.result = result if self._memory.try_hold_bytes("last answer", size) else None

    def require_result(self) -> Result:
        """Return the result. Raises StatementError if there is none."""
        if self.result is None:
            raise StatementError("55000", "this session has no answer yet")
        return self.result

    def drop_result(self) -> None:
        """Forget the result."""
        self.result = None
        self._memory.drop_items("last answer")


class UtilityStatements:
    """The utility statements of a session: they change its settings, or read at most the policy and the ledger."""

    def __init__(
        self, service: Service, settings: Settings, runner: StatementRunner, last_answer: LastAnswer
    ) -> None:
        self._service, self._settings, self._runner = service, settings, runner
        self._last_answer = last_answer

    def describe_statement(self, task: DescribeStatement) -> StatementDescription:
        """Describe the columns of a utility statement's answer."""
        if not task.text:
            return StatementDescription(None, ())
        ending = _match_backend_call(task.text)
        if ending is not None:
            return StatementDescription((Column(ending["name"].lower(), BOOL),), (INT4,) * len(task.types))
        return StatementDescription(
            find_utility_columns(task.statement, self._last_answer.result), task.types
        )

    def run_statement(self, task: RunStatement) -> Answer:
        """Run a utility statement."""
        statement, text = task.statement, task.text
        if statement.command is not None:
            return Answer(_TAGS[statement.command])
        if len(text) > MOST_CHARACTERS:
            raise StatementError(
                "54000", f"a statement of the session has at most {MOST_CHARACTERS:,} characters"
            )
        ending = _match_backend_call(text)
        if ending is not None:
            return self._run_backend_call(ending, task.values)
        match statement.words:
            case ("show", *_):
                return self._run_show(statement)
            case ("discard" | "unlisten", *_):
                return self._run_discard(statement.words)
            case ("reset", *_):
                return self._run_reset(collapse_space(text))
            case _:
                return self._run_set(collapse_space(text))

    def _run_show(self, statement: Statement) -> Answer:
        name = parse_setting_name(statement.text)
        columns = find_utility_columns(statement, self._last_answer.result)
        rows: list[tuple[Any, ...]]
        match name:
            case "dpsql.budget":
                rows = self._runner.run_with_connection(self._list_budgets)
            case "dpsql.receipt":
                rows = [(self._last_answer.require_result().receipt.to_json(),)]
            case "dpsql.intervals":
                rows = list(self._last_answer.require_result().with_interval_columns(0.95).rows)
            case "all":
                rows = list(self._settings.list_values())
            case _:
                rows = [(self._settings.get_value(name),)]
        return Answer("SHOW", columns, rows)

    def _list_budgets(self, connection: Connection) -> list[tuple[Any, ...]]:
        own = connection.budget().values()
        can_view_all = self._runner.user.role.can_view_all
        states = connection.engine.ledger.list_states() if can_view_all else own
        return [to_budget_row(state) for state in states]

    def _run_reset(self, text: str) -> Answer:
        before = self._settings.get_reported()
        name = text.split(None, 1)[1].strip() if len(text.split(None, 1)) > 1 else ""
        if name.lower() == "all":
            self._settings.reset_all()
        else:
            self._settings.set_value(name, None)
        return Answer("RESET", statuses=self._settings.list_changes(before))

    def _run_set(self, text: str) -> Answer:
        before = self._settings.get_reported()
        match = _SET.fullmatch(text)
        if match is None:
            raise StatementError(
                "42601", "SET takes a name and a value", "for example: SET dpsql.epsilon = 0.1"
            )
        if match["mode"]:
            if re.search(r"READ\s+WRITE", match["value"], re.IGNORECASE):
                raise StatementError("25006", "dpsql supports read-only transactions only")
        else:
            name = "TimeZone" if match["zone"] else "client_encoding" if match["names"] else match["name"]
            parts = match["value"].rstrip().split(",")
            self._settings.set_value(name, ", ".join(map(unquote_value, parts)))
        return Answer("SET", statuses=self._settings.list_changes(before))

    def _run_discard(self, words: tuple[str, ...]) -> Answer:
        """Run DISCARD or UNLISTEN, which connection pools send between two users."""
        match words:
            case ("discard", "all"):
                self._settings.reset_all()
                self._last_answer.drop_result()
                return Answer("DISCARD ALL", statuses=self._settings.get_reported())
            case ("discard", what) if what in _DISCARDS:
                return Answer(f"DISCARD {'TEMP' if what == 'temporary' else what.upper()}")
            case ("unlisten", _):
                return Answer("UNLISTEN")
            case _:
                raise StatementError(
                    "42601", f"{words[0].upper()} takes one word", "write DISCARD ALL or UNLISTEN *"
                )

    def _run_backend_call(self, call: re.Match[str], values: tuple[Any, ...]) -> Answer:
        """End a client's statement or session; the result is false if this user may end none of that number."""
        name, number = call["name"].lower(), call["number"]
        given = str(values[0]) if number == "$1" else number
        if not re.fullmatch(r"\d{1,10}", given):
            raise StatementError("22P02", f"{name} takes the PID of a session or request")
        user, wanted = self._runner.user, int(given)
        found = self._service.activity.find_client(user, wanted)
        if found is not None:
            self._service.stop_client(found, user, session=name == "pg_terminate_backend")
        notices = () if found is not None else (make_unknown_process_notice(wanted),)
        return Answer("SELECT 1", (Column(name, BOOL),), ((found is not None,),), notices)
