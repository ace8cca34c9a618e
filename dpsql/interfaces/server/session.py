"""The session of one user: describe and answer its statements.

Statements reach private data only through `Connection.match_query`. Utility statements and catalog queries read at most the
policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dpsql.errors import Error, OperationalError
from dpsql.interfaces.server.audit import Caller
from dpsql.interfaces.server.connections import PlannedQuery, QueryRunner
from dpsql.interfaces.server.protocol.failure import Failure, StatementError
from dpsql.interfaces.server.protocol.queries import parse_client_text
from dpsql.interfaces.server.protocol.tasks import (
    Answer,
    DescribeStatement,
    InferTypes,
    ReadText,
    RunStatement,
    StatementDescription,
)
from dpsql.interfaces.server.protocol.values import (
    BOOL,
    INT4,
    TEXT,
    Column,
    decode_value,
    find_element_oid,
    get_oid,
)
from dpsql.interfaces.server.service import Lane, Service
from dpsql.interfaces.server.session_memory import compute_size
from dpsql.interfaces.server.settings import Settings
from dpsql.interfaces.server.sqlstates import make_unforeseen_failure, to_failure
from dpsql.interfaces.server.statement_runs import CancelledBeforeTurn, StatementRunner
from dpsql.interfaces.server.statements import (
    Statement,
    count_parameters,
    remove_comments,
    to_named_parameters,
)
from dpsql.interfaces.server.users import User
from dpsql.interfaces.server.utilities import (
    MOST_CHARACTERS,
    find_utility_columns,
    is_utility,
    make_unknown_process_notice,
    needs_ledger,
    parse_setting_name,
    to_budget_row,
    unquote_value,
)
from dpsql.interfaces.shell.answers import format_charges
from dpsql.policy.request.loss import parse_amount
from dpsql.sql.pg_catalog.rewrite import MOST_CHARACTERS as MOST_OF_CATALOGUE

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.ledger import RemainingBudget
    from dpsql.policy.request.query import QueryOptions
    from dpsql.results.result import Result

_T = TypeVar("_T")
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
_PLAN = (Column("plan", TEXT),)


class PgSession:
    """The statements of one logged-in user, one after the other."""

    def __init__(self, service: Service, user: User, peer: str = "") -> None:
        self.user, self._peer = user, peer
        self.settings = Settings(user.name, service.epsilon)
        self.runner = StatementRunner(service, user)
        self.memory = service.memory.open_session(user.name)
        self._service = service
        self._last_result: Result | None = None
        self._last_described: _DescribedStatement | None = None

    async def read_text(self, task: ReadText) -> tuple[Statement, ...] | Failure:
        """Parse the statements of a long text."""
        return await self._run_guarded(task.text, Lane.lookup, lambda: parse_client_text(task.text))

    async def infer_types(self, task: InferTypes) -> tuple[int, ...] | Failure:
        """Infer the types of a statement's parameters."""
        text, types = task.statement.text, task.types
        return await self._run_guarded(
            text, Lane.lookup, lambda: self._service.pg_catalog.infer_parameter_types(text, types)
        )

    async def describe_statement(self, task: DescribeStatement) -> StatementDescription | Failure:
        """Describe the columns and parameters of a statement; nothing is charged."""
        statement, text = task.statement, task.text
        if self._is_utility(statement) or not text:
            return _run_catching_errors(text, lambda: self._describe_utility(task))
        if self._is_catalog_query(statement):
            looked = await self._run_guarded(text, Lane.lookup, lambda: self._describe_catalog_query(task))
            if looked is not None:
                return looked
        return await self._run_guarded(text, Lane.query, lambda: self._describe_query(task))

    async def run_statement(self, task: RunStatement) -> Answer | Failure:
        """Run a statement and return its answer."""
        found = await self._answer_statement(task)
        if isinstance(found, Failure) and found.position is not None and task.statement.start:
            return _shift_position(found, task.statement.start)
        return found

    async def _answer_statement(self, task: RunStatement) -> Answer | Failure:
        statement, text = task.statement, task.text
        self.runner.text = text[:MOST_CHARACTERS]
        if self._is_utility(statement):
            if needs_ledger(statement) or self._match_backend_call(text) is not None:
                return await self._run_guarded(text, Lane.lookup, lambda: self._run_utility(task))
            return _run_catching_errors(text, lambda: self._run_utility(task))
        if self._is_catalog_query(statement):
            looked = await self._run_guarded(text, Lane.lookup, lambda: self._answer_catalog_query(task))
            if looked is not None:
                return looked
        return await self._run_guarded(text, Lane.query, lambda: self._answer_query(task))

    def _is_utility(self, statement: Statement) -> bool:
        return is_utility(statement) or self._match_backend_call(statement.text) is not None

    def _is_catalog_query(self, statement: Statement) -> bool:
        """Return whether a statement is probably a catalog query, since it names none of the policy's tables.

        This decides only about its lane.
        """
        if self.settings.dialect != "postgres" or statement.is_explain:
            return False
        if len(statement.text) > MOST_OF_CATALOGUE:
            return False
        text = statement.text.lower()
        return not any(name in text for name in self._service.declared_tables)

    def cancel(self) -> None:
        """Cancel the running or waiting statement; see `StatementRunner.cancel`."""
        self.runner.cancel()

    def stop(self) -> None:
        """Stop the running or waiting statement for the owner; see `StatementRunner.stop`."""
        self.runner.stop()

    def close_session(self) -> None:
        """Close the session of a disconnected client; see `StatementRunner.cancel_waiting`."""
        self.runner.cancel_waiting()
        self.memory.close()

    async def _run_guarded(self, text: str, lane: Lane, work: Callable[[], _T]) -> _T | Failure:
        """Run `work` in a worker thread, and convert errors to a failure for the client."""
        try:
            found = await self.runner.run_work(
                lambda: _run_catching_errors(text, work), self.settings.timeout, lane
            )
        except OperationalError as error:
            return to_failure(error, text)
        except CancelledBeforeTurn:
            return Failure("57014", "the statement was cancelled before it began; nothing was charged")
        not_charged = isinstance(found, Failure) and found.sqlstate == "57014" and found.charged is False
        if lane is Lane.query and not_charged:
            return Failure("57014", _NOT_CHARGED[self.runner.is_stopped])
        return found

    def _describe_utility(self, task: DescribeStatement) -> StatementDescription:
        if not task.text:
            return StatementDescription(None, ())
        ending = self._match_backend_call(task.text)
        if ending is not None:
            return StatementDescription((Column(ending["name"].lower(), BOOL),), (INT4,) * len(task.types))
        return StatementDescription(find_utility_columns(task.statement, self._last_result), task.types)

    def _resolve_parameters(self, task: DescribeStatement) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        """Return the types of a statement's parameters, and their values or sample values."""
        if task.values is not None:
            return task.types, task.values
        types = self._service.pg_catalog.infer_parameter_types(task.text, task.types)
        return types, tuple(map(_make_sample_value, types))

    def _describe_catalog_query(self, task: DescribeStatement) -> StatementDescription | None:
        types, values = self._resolve_parameters(task)
        looked = self._run_catalog_query(task.statement, values, self.settings.copy())
        return None if looked is None else StatementDescription(looked[0], types)

    def _describe_query(self, task: DescribeStatement) -> StatementDescription:
        text = task.text
        types, values = self._resolve_parameters(task)
        looked = self._run_catalog_query(task.statement, values, self.settings.copy())
        if looked is not None:
            return StatementDescription(looked[0], types)
        reloads = self._service.reload_count
        planned = self.runner.run_with_query_runner(
            lambda asker: self._plan_query(asker, task.statement, values)
        )
        found = _DescribedStatement(text, values, self.settings.to_query_options(), reloads, planned)
        # A plan with sample values may have other columns than one with the real values.
        self._last_described = None if task.values is None else found
        return StatementDescription(found.columns, types)

    def _find_described(self, text: str, values: tuple[Any, ...]) -> _DescribedStatement | None:
        """Return the last described statement if it is this one and nothing was reloaded."""
        last = self._last_described
        if last is None or last.values is not values or last.text != text:
            return None
        same = (last.options, last.reloads) == (self.settings.to_query_options(), self._service.reload_count)
        return last if same else None

    def _run_catalog_query(
        self, statement: Statement, values: tuple[Any, ...], settings: Settings
    ) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]] | None:
        """Answer a catalog query, which reads only the policy; None for a statement for the engine.

        Settings that it changes are changed in `settings`.
        """
        if self.settings.dialect != "postgres" or statement.is_explain:
            return None
        query = self._service.pg_catalog.match_query(statement.text)
        if query is None:
            return None
        service = self._service
        seen = partial(service.activity.list_visible_rows, self.user)
        return service.pg_catalog.answer_query(
            query, self.user.name, self._find_setting, values, seen, assign=settings.assign_value
        )

    def _find_setting(self, name: str) -> str | None:
        try:
            return self.settings.get_value(name)
        except StatementError:
            return None

    def _plan_query(
        self, query_runner: QueryRunner, statement: Statement, values: tuple[Any, ...]
    ) -> PlannedQuery | None:
        """Plan a query; None for EXPLAIN, whose columns are known."""
        text = statement.text
        if statement.is_explain:
            return None
        self._require_query_role()
        query, places = to_named_parameters(text)
        try:
            return query_runner.plan(query, _name_values(text, values), **self.settings.to_query_options())
        except Error as error:
            raise _DescribedError(to_failure(error, query, places)) from None

    def _require_query_role(self) -> None:
        if not self.user.role.can_query:
            raise StatementError(
                "42501", f"{self.user.name} has the role {self.user.role.value}, which may not run queries"
            )

    def _answer_catalog_query(self, task: RunStatement) -> Answer | None:
        before = self.settings.get_reported()
        looked = self._run_catalog_query(task.statement, task.values, self.settings)
        if looked is None:
            return None
        columns, rows = looked
        changed = self._get_changed_settings(before)
        return Answer(
            f"SELECT {len(rows)}", task.columns or columns, rows, statuses=changed, size=compute_size(rows)
        )

    def _get_changed_settings(self, before: dict[str, str]) -> dict[str, str]:
        """Return the reported settings that changed."""
        return {name: value for name, value in self.settings.get_reported().items() if before[name] != value}

    def _answer_query(self, task: RunStatement) -> Answer:
        looked = self._answer_catalog_query(task)
        if looked is not None:
            return looked
        self._require_query_role()
        return self.runner.run_with_query_runner(lambda asker: self._run_query(asker, task))

    def _run_query(self, query_runner: QueryRunner, task: RunStatement) -> Answer:
        text = task.text
        query, places = to_named_parameters(text)
        described = self._find_described(text, task.values)
        self._last_described = None  # a plan of many parameters is large
        if described is None and task.columns is not None and (task.values or self._service.reload_count):
            options, reloads = self.settings.to_query_options(), self._service.reload_count
            planned = self._plan_query(query_runner, task.statement, task.values)
            described = _DescribedStatement(text, task.values, options, reloads, planned)
        if described is not None and task.columns not in (None, described.columns):
            raise StatementError(
                "0A000",
                "with these parameters the answer has other column types than described",
                "cast the parameters; nothing was charged",
            )
        what = "explain" if task.statement.is_explain else "query"
        caller = Caller(
            self.user.name,
            self._service.policy.resolve_analyst_name(self.user.name),
            "postgresql",
            self._peer,
        )
        try:
            with self._service.audit.audit_request(caller, what) as outcome:
                if described is None or described.planned is None:
                    result = query_runner.query(
                        query, _name_values(text, task.values), **self.settings.to_query_options()
                    )
                else:
                    result = query_runner.answer(described.planned)
                outcome.record_answer(result)
                left = query_runner.remaining_budget(result.receipt)
        except Error as error:
            raise _DescribedError(to_failure(error, query, places)) from None
        columns = tuple(
            Column(name, get_oid(kind)) for name, kind in zip(result.columns, result.types, strict=True)
        )
        if result.receipt.explained:
            return Answer("EXPLAIN", columns, result.rows)
        size = compute_size(result.rows)
        self._last_result = result if self.memory.try_hold_bytes("last answer", size) else None
        wanted = self.settings.get_value("dpsql.notices") == "on"
        loss = self._service.resolve_loss(
            query, self.settings.dialect, self.settings.get_value("dpsql.epsilon")
        )
        notices = _list_notices(result, loss, left) if wanted else ()
        return Answer(f"SELECT {len(result)}", task.columns or columns, result.rows, notices, size=size)

    def _run_utility(self, task: RunStatement) -> Answer:
        statement, text = task.statement, task.text
        if statement.command is not None:
            return Answer(_TAGS[statement.command])
        if len(text) > MOST_CHARACTERS:
            raise StatementError(
                "54000", f"a statement of the session has at most {MOST_CHARACTERS:,} characters"
            )
        ending = self._match_backend_call(text)
        if ending is not None:
            return self._run_backend_call(ending, task.values)
        words, text = statement.words, remove_comments(text)
        match words:
            case ("show", *_):
                return self._run_show(statement)
            case ("discard" | "unlisten", *_):
                return self._run_discard(words)
        before = self.settings.get_reported()
        if words[0] == "reset":
            name = text.split(None, 1)[1].strip() if len(text.split(None, 1)) > 1 else ""
            if name.lower() == "all":
                self.settings.reset_all()
            else:
                self.settings.set_value(name, None)
            tag = "RESET"
        else:
            self._run_set(text)
            tag = "SET"
        return Answer(tag, statuses=self._get_changed_settings(before))

    def _run_discard(self, words: tuple[str, ...]) -> Answer:
        """Run DISCARD or UNLISTEN, which connection pools send between two users."""
        match words:
            case ("discard", "all"):
                self.settings.reset_all()
                self._last_result = self._last_described = None
                self.memory.drop_items("last answer")
                return Answer("DISCARD ALL", statuses=self.settings.get_reported())
            case ("discard", what) if what in _DISCARDS:
                return Answer(f"DISCARD {'TEMP' if what == 'temporary' else what.upper()}")
            case ("unlisten", _):
                return Answer("UNLISTEN")
            case _:
                raise StatementError(
                    "42601", f"{words[0].upper()} takes one word", "write DISCARD ALL or UNLISTEN *"
                )

    def _run_set(self, text: str) -> None:
        match = _SET.fullmatch(text)
        if match is None:
            raise StatementError(
                "42601", "SET takes a name and a value", "for example: SET dpsql.epsilon = 0.1"
            )
        if match["mode"]:
            if re.search(r"READ\s+WRITE", match["value"], re.IGNORECASE):
                raise StatementError("25006", "dpsql supports read-only transactions only")
            return
        name = "TimeZone" if match["zone"] else "client_encoding" if match["names"] else match["name"]
        value = match["value"].rstrip()
        self.settings.set_value(name, ", ".join(unquote_value(part) for part in value.split(",")))

    @staticmethod
    def _match_backend_call(text: str) -> re.Match[str] | None:
        """Match a call that ends another client's statement or session."""
        return _ENDS.fullmatch(remove_comments(text)) if len(text) <= _LONGEST_ENDING else None

    def _run_backend_call(self, call: re.Match[str], values: tuple[Any, ...]) -> Answer:
        """End a client's statement or session; the result is false if this user may end none of that number."""
        name, number = call["name"].lower(), call["number"]
        given = str(values[0]) if number == "$1" else number
        if not re.fullmatch(r"\d{1,10}", given):
            raise StatementError("22P02", f"{name} takes the PID of a session or request")
        wanted = int(given)
        found = self._service.activity.find_client(self.user, wanted)
        if found is not None:
            ends_session = name == "pg_terminate_backend"
            self._service.stop_client(found, self.user, session=ends_session)
        notices = () if found is not None else (make_unknown_process_notice(wanted),)
        return Answer("SELECT 1", (Column(name, BOOL),), ((found is not None,),), notices)

    def _run_show(self, statement: Statement) -> Answer:
        name = parse_setting_name(statement.text)
        columns = find_utility_columns(statement, self._last_result)
        rows: list[tuple[Any, ...]]
        match name:
            case "dpsql.budget":
                rows = self._list_budgets()
            case "dpsql.receipt":
                rows = [(self._get_last_result().receipt.to_json(),)]
            case "dpsql.intervals":
                rows = list(self._get_last_result().with_interval_columns(0.95).rows)
            case "all":
                rows = list(self.settings.list_values())
            case _:
                rows = [(self.settings.get_value(name),)]
        return Answer("SHOW", columns, rows)

    def _get_last_result(self) -> Result:
        if self._last_result is None:
            raise StatementError("55000", "this session has no answer yet")
        return self._last_result

    def _list_budgets(self) -> list[tuple[Any, ...]]:
        def list_rows(connection: Connection) -> list[tuple[Any, ...]]:
            own = connection.budget().values()
            states = connection.engine.ledger.list_states() if self.user.role.can_view_all else own
            return [to_budget_row(state) for state in states]

        return self.runner.run_with_connection(list_rows)


_NOT_CHARGED = (
    "the statement was cancelled; nothing was charged",
    "the statement was stopped at the owner's limit; nothing was charged",
)


@dataclass(frozen=True, slots=True)
class _DescribedStatement:
    """A described statement with its values, settings, number of reloads and plan.

    `values` are compared by identity, since equal values may have other types, signs or digits.
    """

    text: str
    values: tuple[Any, ...]
    options: QueryOptions
    reloads: int
    planned: PlannedQuery | None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the answer."""
        if self.planned is None:
            return _PLAN
        return tuple(Column(name, get_oid(kind)) for name, kind in self.planned.columns)


class _DescribedError(StatementError):
    """A failure that is already described."""

    def __init__(self, described: Failure) -> None:
        super().__init__(described.sqlstate, described.message)
        self.failure = described


def _run_catching_errors(text: str, work: Callable[[], _T]) -> _T | Failure:
    """Run `work`, and convert errors to a failure with dpsql's own messages only."""
    try:
        return work()
    except StatementError as error:
        return error.failure
    except Error as error:
        return to_failure(error, text)
    except Exception:  # noqa: BLE001  (whatever it is, its words may quote private values)
        return make_unforeseen_failure()


def _name_values(text: str, values: tuple[Any, ...]) -> dict[str, Any]:
    """Return the values of a text's parameters by name."""
    return {f"p{number}": value for number, value in enumerate(values, 1)} if count_parameters(text) else {}


def _make_sample_value(oid: int) -> Any:
    """Return a sample value of a parameter's type, for planning before the values are known."""
    samples = {16: b"true", 20: b"1", 21: b"1", 23: b"1", 26: b"1", 700: b"1.5", 701: b"1.5", 1700: b"1.5"}
    element = find_element_oid(oid)
    if element is not None:
        return (_make_sample_value(element),)
    samples |= {1082: b"2000-01-01", 1114: b"2000-01-01", 1184: b"2000-01-01"}
    return decode_value(samples.get(oid, b"x"), oid, 0)


def _shift_position(found: Failure, start: int) -> Failure:
    """Shift a failure's position from a statement to a text of several statements."""
    return replace(found, position=(found.position or 0) + start)


def _list_notices(result: Result, epsilon: Any, left: Sequence[RemainingBudget]) -> tuple[Failure, ...]:
    """Return the warnings of an answer, the error bounds of its columns, and its charge."""
    loss = None if epsilon is None else parse_amount(epsilon)
    found = [Failure("01000", text, severity="WARNING") for text in result.notices]
    found += [Failure("00000", text, severity="NOTICE") for text in _describe_errors(result)]
    price = format_charges(result.receipt, loss, left)
    return (*found, Failure("00000", price, severity="NOTICE"))


def _describe_errors(result: Result) -> list[str]:
    """Return a line for each noisy column with the largest half-width of its 95% intervals."""
    lines = list[str]()
    intervals = result.intervals(0.95)
    for place, name in enumerate(result.columns):
        widths = [(row[place][1] - row[place][0]) / 2 for row in intervals if row[place] is not None]  # type: ignore[index]
        if widths:
            most = "at most " * (len(set(widths)) > 1)
            lines.append(f"{name} ±95%: {most}{max(widths):,.4g}")
    return lines
