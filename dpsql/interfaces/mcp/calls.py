"""The calls of assistants: each runs one tool for a user, in its turn, with the limits, the audit log and the refusals of other doors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from dpsql.engine import schema_description
from dpsql.errors import Error, OperationalError, ProgrammingError
from dpsql.interfaces.mcp import answers
from dpsql.interfaces.mcp.allowances import AllowanceStore, AssistantLimits, query_within_budget
from dpsql.interfaces.mcp.tools import (
    TOOLS,
    BudgetArguments,
    DescribeArguments,
    ExplainArguments,
    HistoryArguments,
    LimitsBody,
    QueryArguments,
    ToolSpec,
    parse_arguments,
)
from dpsql.interfaces.server.connections import QueryRunner
from dpsql.interfaces.server.limits import Lane
from dpsql.interfaces.server.oversight import Caller
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.sockets import Log
from dpsql.interfaces.server.statement_runs import CancelledBeforeTurn, StatementRunner
from dpsql.interfaces.server.users import User
from dpsql.ledger.reader import LedgerReader
from dpsql.policy.request.loss import parse_amount
from dpsql.results import json_format
from dpsql.sql.parse.session_statement import parse_stated_options

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.policy.request.query import QueryOptions
    from dpsql.results.result import Result

_T = TypeVar("_T")
DOOR = "mcp"
"""The name of this interface in the audit log and in the list of statements."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a call returns: a text for people and models, and the same as data."""

    text: str
    data: dict[str, Any]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of a tool: who makes it, from where, with which arguments; `sql` is the text that errors point into."""

    user: User
    peer: str
    analyst: str
    asked: Any
    sql: str


class AssistantCalls:
    """Run the calls of assistants over one service.

    Claim: a call reaches private rows only through `QueryRunner.query` for the user of its token, in a turn of that user, after
    its event is in the audit log; its loss is at most the cap, and the sum of losses at most the budget (`AllowanceStore`).
    Why: `_query` is the only handler that has a query runner, and `StatementRunner` is what the other doors use. The loss is
    resolved here, from the text and the argument, before the engine has it.

    A cancelled call is cancelled like a statement of psql: before its charge it ends, uncharged; after it the statement goes on,
    and its answer is stored. In both cases the client is answered at once, or not at all, so that neither what it receives nor
    when tells of rows.
    """

    def __init__(
        self, service: Service, limits: AssistantLimits, allowances: AllowanceStore, log: Log
    ) -> None:
        self._service, self._limits, self._allowances, self._log = service, limits, allowances, log
        self._running = dict[asyncio.Task[Any], StatementRunner]()
        self._is_stopping = False
        self._tools: Mapping[str, ToolSpec] = {each.name: each for each in TOOLS}
        self._handlers: Mapping[str, Callable[[_Call], Any]] = {
            "describe": self._describe,
            "explain": self._explain,
            "query": self._query,
            "budget": self._list_budgets,
            "history": self._list_history,
        }

    async def call_tool(self, name: str, data: dict[str, Any] | None, user: User, peer: str) -> ToolOutcome:
        """Run a tool. Whatever fails is an outcome with an error of dpsql's, never an exception."""
        begun, sql = time.monotonic(), ""
        code: str | None = None
        try:
            spec = self._find_tool(name)
            asked = parse_arguments(spec.arguments, data)
            sql = getattr(asked, "sql", "")
            analyst = self._service.policy.resolve_analyst_name(user.name)
            body = await self._handlers[spec.name](_Call(user, peer, analyst, asked, sql))
            outcome = ToolOutcome(answers.format_body(body), body.model_dump(mode="json"))
        except Error as error:
            outcome, code = _make_refusal(error, sql), error.code
        except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
            self._log("failure", peer=peer, error=type(error).__name__, door=DOOR)
            unforeseen = json_format.make_unforeseen_error(getattr(error, "charged", None))
            outcome, code = _make_refusal(unforeseen, sql), unforeseen.code
        tool = name if name in self._tools else ""
        facts = {} if code is None else {"code": code}
        seconds = round(time.monotonic() - begun, 3)
        self._log("call", tool=tool, user=user.name, peer=peer, seconds=seconds, **facts)
        return outcome

    async def stop(self, seconds: float) -> None:
        """Refuse further calls, wait for running statements, then stop them for the owner."""
        self._is_stopping = True
        if self._running:
            await asyncio.wait(set(self._running), timeout=seconds)
        for runner in tuple(self._running.values()):
            runner.stop()
        if self._running:
            await asyncio.wait(set(self._running))

    def _find_tool(self, name: str) -> ToolSpec:
        if self._is_stopping:
            raise OperationalError("the server is stopping", code="stopping", hint="try again later")
        found = self._tools.get(name)
        if found is None:
            raise ProgrammingError(
                "there is no such tool", code="not_found", hint=f"the tools are: {', '.join(self._tools)}"
            )
        return found

    # Tools.

    async def _describe(self, call: _Call) -> BaseModel:
        asked: DescribeArguments = call.asked

        def describe(connection: Connection) -> BaseModel:
            policy = self._service.policy
            found = schema_description.describe_schema(policy, connection.engine.catalog)
            return answers.build_schema(found, asked.table, self._describe_limits(call.analyst))

        return await self._run_lookup(call, describe)

    async def _explain(self, call: _Call) -> BaseModel:
        asked: ExplainArguments = call.asked

        def explain(connection: Connection) -> BaseModel:
            with self._service.audit.audit_request(_make_caller(call), "explain"):
                options = self._resolve_explain_options(asked)
                found = connection.explain(asked.sql, **options)
                price = found.price
                if price is None:
                    return answers.build_explanation(found, None, allowed=None)
                # A text that states its loss or target has no other one.
                loss = price.epsilon if len(options) > 1 else None
                forecast = connection.budget((asked.sql,), epsilon=loss, dialect=asked.dialect)
            allowed = self._count_allowed(call.analyst, price.epsilon)
            return answers.build_explanation(found, forecast, allowed=allowed)

        return await self._run_with_connection(call, explain)

    async def _query(self, call: _Call) -> BaseModel:
        asked: QueryArguments = call.asked
        _require_query_role(call.user)
        runner = StatementRunner(self._service, call.user, "mcp")

        def run_query(query_runner: QueryRunner) -> BaseModel:
            with self._service.audit.audit_request(_make_caller(call), "query") as outcome:
                loss = self._resolve_loss(asked)
                result = self._query_within_limits(call, loss, query_runner)
                outcome.record_answer(result)
            try:
                remaining = query_runner.remaining_budget(result.receipt)
                limits = self._describe_limits(call.analyst)
                return answers.build_answer(result, loss, remaining, limits)
            except Exception as error:
                error.__dict__["charged"] = bool(result.receipt.entries)
                raise

        work = lambda: runner.run_with_query_runner(run_query)  # noqa: E731
        return await self._run_work(call, runner, work, asked.seconds)

    async def _list_budgets(self, call: _Call) -> BaseModel:
        asked: BudgetArguments = call.asked
        del asked

        def list_states(connection: Connection) -> BaseModel:
            return answers.build_budgets(connection.budget().values(), self._describe_limits(call.analyst))

        return await self._run_lookup(call, list_states)

    async def _list_history(self, call: _Call) -> BaseModel:
        asked: HistoryArguments = call.asked

        def read_entries(_: Connection) -> BaseModel:
            with closing(LedgerReader.open(self._service.ledger, self._service.ledger_key)) as history:
                found = history.list_last_entries(asked.limit, analyst=call.analyst, kind="charge")
            return answers.build_history(found)

        return await self._run_lookup(call, read_entries)

    # The loss of a question, and the limits on it.

    def _resolve_loss(self, asked: QueryArguments | ExplainArguments) -> Fraction:
        """Return the loss of a question, which its text, its argument or the default states.

        Raises QueryRejected (`epsilon_cap`) above the cap, and ProgrammingError without a loss or with a target error.
        """
        given = None if asked.epsilon is None else parse_amount(asked.epsilon, "epsilon")
        stated = parse_stated_options(asked.sql, asked.dialect)
        if stated.target_error is not None:
            raise ProgrammingError(
                "a question of an assistant states ε, not a target error",
                code="ambiguous",
                hint="call explain with target_error, which names the ε for it",
            )
        losses = [each for each in (given, stated.epsilon) if each is not None]
        if not losses:
            default = self._limits.clamp_default(self._find_default())
            if default is None:
                raise ProgrammingError(
                    "no privacy loss given: pass epsilon",
                    code="epsilon_missing",
                    hint="call explain with epsilon 0.1 to see the expected ±",
                )
            return default
        for each in losses:
            self._limits.require_below_cap(each)
        return losses[0]  # the engine refuses a query with two different ones

    def _find_default(self) -> Fraction | None:
        default = self._service.default_loss
        return self._service.policy.default_epsilon if default is None else default

    def _resolve_explain_options(self, asked: ExplainArguments) -> QueryOptions:
        """Return the options of an explanation, which may also state a target error, or an ε above the cap."""
        options: QueryOptions = {"dialect": asked.dialect}
        if asked.epsilon is not None:
            options["epsilon"] = parse_amount(asked.epsilon, "epsilon")
        if asked.target_error is not None:
            options["target_error"] = asked.target_error
        stated = parse_stated_options(asked.sql, asked.dialect)
        if len(options) == 1 and stated.epsilon is None and stated.target_error is None:
            options["epsilon"] = self._resolve_loss(asked)
        return options

    def _query_within_limits(self, call: _Call, loss: Fraction, query_runner: QueryRunner) -> Result:
        asked: QueryArguments = call.asked

        def is_free() -> bool:
            with self._service.connections.acquire_connection(call.analyst) as connection:
                found = connection.budget((asked.sql,), epsilon=loss, dialect=asked.dialect)
            return not found.accounts

        return query_within_budget(
            self._allowances,
            call.analyst,
            loss,
            self._limits.budget,
            run=lambda: query_runner.query(asked.sql, epsilon=loss, dialect=asked.dialect),
            is_free=is_free,
        )

    def _count_allowed(self, analyst: str, loss: Fraction) -> int | None:
        """Return how many charged questions of a loss the limits of assistants allow, or None if they set no limit."""
        cap, budget = self._limits.max_epsilon, self._limits.budget
        if cap is not None and loss > cap:
            return 0
        return None if budget is None else max(int((budget - self._allowances.get_spent(analyst)) // loss), 0)

    def _describe_limits(self, analyst: str) -> LimitsBody:
        spent = None if self._limits.budget is None else self._allowances.get_spent(analyst)
        default = self._limits.clamp_default(self._find_default())
        return answers.build_limits(default, self._limits.max_epsilon, self._limits.budget, spent)

    # Turns.

    async def _run_with_connection(self, call: _Call, work: Callable[[Connection], _T]) -> _T:
        _require_query_role(call.user)
        runner = StatementRunner(self._service, call.user, "mcp")
        return await self._run_work(call, runner, lambda: runner.run_with_connection(work))

    async def _run_lookup(self, call: _Call, work: Callable[[Connection], _T]) -> _T:
        runner = StatementRunner(self._service, call.user, "mcp")
        return await self._run_work(call, runner, lambda: runner.run_with_connection(work), lane=Lane.lookup)

    async def _run_work(
        self,
        call: _Call,
        runner: StatementRunner,
        work: Callable[[], _T],
        seconds: float | None = None,
        lane: Lane = Lane.query,
    ) -> _T:
        """Run `work` in a turn of the user. If the call is cancelled, the statement is, too, and nobody waits for it."""
        activity = self._service.activity
        runner.text = call.sql
        number = activity.register_client(
            call.user, runner, door=DOOR, peer=call.peer, disconnect=lambda: None
        )
        task = asyncio.ensure_future(runner.run_work(work, seconds, lane))
        self._running[task] = runner

        def forget_task(ended: asyncio.Task[_T]) -> None:
            activity.remove_client(number)
            del self._running[ended]
            if not ended.cancelled():
                ended.exception()  # nobody may be left who reads it

        task.add_done_callback(forget_task)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            runner.cancel()
            raise
        try:
            return task.result()
        except CancelledBeforeTurn:
            pass
        raise OperationalError(
            "the query was cancelled before it began; nothing was charged", code="not_begun"
        )


def _make_caller(call: _Call) -> Caller:
    return Caller(call.user.name, call.analyst, DOOR, call.peer)


def _require_query_role(user: User) -> None:
    """Raise ProgrammingError (`forbidden`) unless the user's role may run queries."""
    if not user.role.can_query:
        raise ProgrammingError(
            f"{user.name} has the role {user.role.value}, which may not run queries", code="forbidden"
        )


def _make_refusal(error: Error, sql: str) -> ToolOutcome:
    data = json_format.write_error(error, sql)
    return ToolOutcome(answers.format_refusal(error), {"error": data}, is_error=True)
