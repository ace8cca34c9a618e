"""The session of one user: describe and answer its statements, each in its lane."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from dpsql.errors import Error, OperationalError
from dpsql.interfaces.server.limits import Lane
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
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.session_queries import CatalogQueries, SessionQueries
from dpsql.interfaces.server.settings import Settings
from dpsql.interfaces.server.sqlstates import make_unforeseen_failure, to_failure
from dpsql.interfaces.server.statement_runs import CancelledBeforeTurn, StatementRunner
from dpsql.interfaces.server.statements import Statement
from dpsql.interfaces.server.users import User
from dpsql.interfaces.server.utilities import (
    MOST_CHARACTERS,
    LastAnswer,
    UtilityStatements,
    is_utility,
    takes_time,
)

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
        self.runner = StatementRunner(service, user)
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
