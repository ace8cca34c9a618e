"""The session of one user: describe and answer its statements, each in its lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from dpsql.errors import Error, OperationalError
from dpsql.interfaces.server.connections import PlannedQuery, QueryRunner
from dpsql.interfaces.server.limits import Lane, compute_size
from dpsql.interfaces.server.oversight import Caller
from dpsql.interfaces.server.pg_catalog import PgCatalog
from dpsql.interfaces.server.protocol.errors import (
    Failure,
    StatementError,
    make_unforeseen_failure,
    to_failure,
)
from dpsql.interfaces.server.protocol.queries import parse_client_text
from dpsql.interfaces.server.protocol.tasks import (
    Answer,
    DescribeStatement,
    InferTypes,
    ReadText,
    RunStatement,
    StatementDescription,
)
from dpsql.interfaces.server.protocol.values import TEXT, Column, decode_value, find_element_oid, get_oid
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.settings import (
    MOST_CHARACTERS,
    LastAnswer,
    Settings,
    UtilityStatements,
    is_utility,
    takes_time,
)
from dpsql.interfaces.server.statement_runs import CancelledBeforeTurn, StatementRunner
from dpsql.interfaces.server.statements import Statement, count_parameters, to_named_parameters
from dpsql.interfaces.server.users import User
from dpsql.interfaces.shell.answers import format_charges
from dpsql.policy.request.loss import parse_amount
from dpsql.sql.pg_catalog.rewrite import MOST_CHARACTERS as MOST_OF_CATALOG
from dpsql.sql.pg_catalog.rewrite import CatalogQuery

if TYPE_CHECKING:
    from dpsql.ledger import RemainingBudget
    from dpsql.policy.request.query import QueryOptions
    from dpsql.results.result import Result


# The queries of a session: those of private data, and catalog queries, which read only the policy.


_PLAN = (Column("plan", TEXT),)


class CatalogQueries:
    """The catalog queries of a session, by which clients list tables and columns; they read only the policy."""

    def __init__(self, service: Service, settings: Settings, runner: StatementRunner) -> None:
        self._service, self._settings, self._runner = service, settings, runner

    def is_probable(self, statement: Statement) -> bool:
        """Return whether a statement is probably a catalog query, since it names none of the policy's tables.

        This decides only about its lane.
        """
        if not self._can_be_catalog_query(statement) or len(statement.text) > MOST_OF_CATALOG:
            return False
        text = statement.text.lower()
        return not any(name in text for name in self._service.declared_tables)

    def describe_query(self, task: DescribeStatement) -> StatementDescription | None:
        """Describe a catalog query, whose settings stay; None for a statement for the engine."""
        query = self._match_query(task.statement)
        if query is None:
            return None
        types, values = resolve_parameters(self._service.pg_catalog, task)
        columns, _ = self._run_query(query, values, self._settings.copy())
        return StatementDescription(columns, types)

    def answer_query(self, task: RunStatement) -> Answer | None:
        """Answer a catalog query; None for a statement for the engine."""
        query = self._match_query(task.statement)
        if query is None:
            return None
        before = self._settings.get_reported()
        columns, rows = self._run_query(query, task.values, self._settings)
        changed = self._settings.list_changes(before)
        return Answer(
            f"SELECT {len(rows)}", task.columns or columns, rows, statuses=changed, size=compute_size(rows)
        )

    def _can_be_catalog_query(self, statement: Statement) -> bool:
        return not statement.is_explain

    def _match_query(self, statement: Statement) -> CatalogQuery | None:
        if not self._can_be_catalog_query(statement):
            return None
        return self._service.pg_catalog.match_query(statement.text, self._settings.dialect)

    def _run_query(
        self, query: CatalogQuery, values: tuple[Any, ...], settings: Settings
    ) -> tuple[tuple[Column, ...], list[tuple[Any, ...]]]:
        """Run a catalog query; the settings that it changes are changed in `settings`."""
        user = self._runner.user
        seen = partial(self._service.activity.list_visible_rows, user)
        return self._service.pg_catalog.answer_query(
            query,
            user.name,
            self._find_setting,
            values,
            seen,
            assign=settings.assign_value,
            settings=settings.list_values,
        )

    def _find_setting(self, name: str) -> str | None:
        try:
            return self._settings.get_value(name)
        except StatementError:
            return None


class SessionQueries:
    """The queries of a session, which reach private data only through `Connection.match_query`.

    A described query is planned once: its plan is kept for the statement that runs next.
    """

    def __init__(
        self,
        service: Service,
        settings: Settings,
        runner: StatementRunner,
        last_answer: LastAnswer,
        peer: str,
    ) -> None:
        self._service, self._settings, self._runner = service, settings, runner
        self._last_answer, self._peer = last_answer, peer
        self._last_described: _DescribedStatement | None = None

    def describe_query(self, task: DescribeStatement) -> StatementDescription:
        """Describe a query by its plan; nothing is charged."""
        types, values = resolve_parameters(self._service.pg_catalog, task)
        found = self._runner.run_with_query_runner(
            lambda query_runner: self._describe_statement(query_runner, task.statement, values)
        )
        # A plan with sample values may have other columns than one with the real values.
        self._last_described = None if task.values is None else found
        return StatementDescription(found.columns, types)

    def answer_query(self, task: RunStatement) -> Answer:
        """Answer a query and charge it."""
        self._require_query_role()
        return self._runner.run_with_query_runner(lambda query_runner: self._run_query(query_runner, task))

    def forget_plan(self) -> None:
        """Forget the plan of the last described query."""
        self._last_described = None

    def _require_query_role(self) -> None:
        user = self._runner.user
        if not user.role.can_query:
            raise StatementError(
                "42501", f"{user.name} has the role {user.role.value}, which may not run queries"
            )

    def _describe_statement(
        self, query_runner: QueryRunner, statement: Statement, values: tuple[Any, ...]
    ) -> _DescribedStatement:
        options, reloads = self._settings.to_query_options(), self._service.reload_count
        planned = self._plan_query(query_runner, statement, values)
        return _DescribedStatement(statement.text, values, options, reloads, planned)

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
            return query_runner.plan(query, _name_values(text, values), **self._settings.to_query_options())
        except Error as error:
            raise StatementError.from_failure(to_failure(error, query, places)) from None

    def _take_described(self, query_runner: QueryRunner, task: RunStatement) -> _DescribedStatement | None:
        """Return the plan that a statement was described by; None if it may be planned as it runs.

        Raises StatementError if the client was told other columns.
        """
        described = self._find_described(task.text, task.values)
        self._last_described = None  # a plan of many parameters is large
        if described is None and task.columns is not None and (task.values or self._service.reload_count):
            described = self._describe_statement(query_runner, task.statement, task.values)
        if described is not None and task.columns not in (None, described.columns):
            raise StatementError(
                "0A000",
                "with these parameters the answer has other column types than described",
                "cast the parameters; nothing was charged",
            )
        return described

    def _find_described(self, text: str, values: tuple[Any, ...]) -> _DescribedStatement | None:
        """Return the last described statement if it is this one and nothing was reloaded."""
        last = self._last_described
        if last is None or last.values is not values or last.text != text:
            return None
        same = (last.options, last.reloads) == (
            self._settings.to_query_options(),
            self._service.reload_count,
        )
        return last if same else None

    def _run_query(self, query_runner: QueryRunner, task: RunStatement) -> Answer:
        described = self._take_described(query_runner, task)
        query, places = to_named_parameters(task.text)
        user = self._runner.user
        caller = Caller(
            user.name, self._service.policy.resolve_analyst_name(user.name), "postgresql", self._peer
        )
        what = "explain" if task.statement.is_explain else "query"
        try:
            with self._service.audit.audit_request(caller, what) as outcome:
                if described is None or described.planned is None:
                    named = _name_values(task.text, task.values)
                    result = query_runner.query(query, named, **self._settings.to_query_options())
                else:
                    result = query_runner.answer(described.planned)
                outcome.record_answer(result)
                left = query_runner.remaining_budget(result.receipt)
        except Error as error:
            raise StatementError.from_failure(to_failure(error, query, places)) from None
        return self._make_answer(task, query, result, left)

    def _make_answer(
        self, task: RunStatement, query: str, result: Result, left: Sequence[RemainingBudget]
    ) -> Answer:
        columns = tuple(
            Column(name, get_oid(kind)) for name, kind in zip(result.columns, result.types, strict=True)
        )
        if result.receipt.explained:
            return Answer("EXPLAIN", columns, result.rows)
        size = compute_size(result.rows)
        self._last_answer.keep_result(result, size)
        loss = self._service.resolve_loss(
            query, self._settings.dialect, self._settings.get_value("dpsql.epsilon")
        )
        wants_notices = self._settings.get_value("dpsql.notices") == "on"
        notices = _list_notices(result, loss, left) if wants_notices else ()
        return Answer(f"SELECT {len(result)}", task.columns or columns, result.rows, notices, size=size)


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


def resolve_parameters(
    catalog: PgCatalog, task: DescribeStatement
) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """Return the types of a statement's parameters, and their values or sample values."""
    if task.values is not None:
        return task.types, task.values
    types = catalog.infer_parameter_types(task.text, task.types)
    return types, tuple(map(_make_sample_value, types))


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


# The session.


_T = TypeVar("_T")
_NOT_CHARGED = (
    "the statement was cancelled; nothing was charged",
    "the statement was stopped at the owner's limit; nothing was charged",
)


class PgSession:
    """The statements of one logged-in user, one after the other."""

    def __init__(self, service: Service, user: User, peer: str = "") -> None:
        self.user, self._service = user, service
        self.settings = Settings(user.name, service.epsilon)
        self.runner = StatementRunner(service, user, "postgresql")
        self.memory = service.memory.open_session(user.name)
        self.last_answer = LastAnswer(self.memory)
        self._utilities = UtilityStatements(service, self.settings, self.runner, self.last_answer)
        self._catalog = CatalogQueries(service, self.settings, self.runner)
        self._queries = SessionQueries(service, self.settings, self.runner, self.last_answer, peer)

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
        if is_utility(statement) or not text:
            return _run_catching_errors(text, lambda: self._utilities.describe_statement(task))
        if self._catalog.is_probable(statement):
            found = await self._run_guarded(text, Lane.lookup, lambda: self._catalog.describe_query(task))
            if found is not None:
                return found
        return await self._run_guarded(text, Lane.query, lambda: self._describe_query(task))

    async def run_statement(self, task: RunStatement) -> Answer | Failure:
        """Run a statement and return its answer."""
        found = await self._answer_statement(task)
        if isinstance(found, Failure) and found.position is not None and task.statement.start:
            # The client's text has several statements: places are counted from its beginning.
            return replace(found, position=found.position + task.statement.start)
        return found

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

    async def _answer_statement(self, task: RunStatement) -> Answer | Failure:
        statement, text = task.statement, task.text
        self.runner.text = text[:MOST_CHARACTERS]
        if is_utility(statement):
            if takes_time(statement):
                return await self._run_guarded(text, Lane.lookup, lambda: self._run_utility(task))
            return _run_catching_errors(text, lambda: self._run_utility(task))
        if self._catalog.is_probable(statement):
            found = await self._run_guarded(text, Lane.lookup, lambda: self._catalog.answer_query(task))
            if found is not None:
                return found
        return await self._run_guarded(text, Lane.query, lambda: self._answer_query(task))

    def _run_utility(self, task: RunStatement) -> Answer:
        answer = self._utilities.run_statement(task)
        if task.statement.words == ("discard", "all"):
            self._queries.forget_plan()
        return answer

    def _describe_query(self, task: DescribeStatement) -> StatementDescription:
        return self._catalog.describe_query(task) or self._queries.describe_query(task)

    def _answer_query(self, task: RunStatement) -> Answer:
        return self._catalog.answer_query(task) or self._queries.answer_query(task)

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
