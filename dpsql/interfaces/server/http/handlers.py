"""The handlers of the HTTP API: queries, sessions, budgets, the ledger, the schema, users, statements, the policy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from dpsql.engine import schema_description
from dpsql.errors import ProgrammingError
from dpsql.interfaces.server.connections import QueryRunner
from dpsql.interfaces.server.http.access import (
    LONGEST,
    make_forbidden_error,
    require_auditor_role,
    require_query_role,
)
from dpsql.interfaces.server.http.bodies import (
    AddressBody,
    BudgetsBody,
    CallerBody,
    CellIntervals,
    CodeBody,
    CombineBody,
    EndedBody,
    EntriesBody,
    EntryBody,
    FullEntryBody,
    HealthBody,
    HistoryBody,
    IssuerBody,
    LoginBody,
    PolicyBody,
    QueryBody,
    QuoteBody,
    ReceiptBody,
    ReceiptEntryBody,
    SessionBody,
    StatementsBody,
    TokenBody,
    UserBody,
    UsersBody,
    WordsBody,
    parse_confidence,
)
from dpsql.interfaces.server.http.calls import ApiCall
from dpsql.interfaces.server.http.messages import (
    ARROW,
    HEADERS,
    negotiate_media_type,
    parse_limit,
    parse_number,
    parse_path_number,
    to_arrow_bytes,
    to_json_response,
    write_json,
)
from dpsql.interfaces.server.limits import Lane
from dpsql.interfaces.server.metrics import CONTENT_TYPE, build_gauges
from dpsql.interfaces.server.oversight import Caller, Outcome
from dpsql.interfaces.server.service import Service, reload_service
from dpsql.interfaces.server.statement_runs import StatementRunner
from dpsql.interfaces.server.users import User
from dpsql.interfaces.shell.answers import format_charges
from dpsql.interfaces.shell.completion import KEYWORDS, list_functions
from dpsql.ledger.budget_state import BudgetState
from dpsql.ledger.reader import LedgerReader
from dpsql.policy.request.loss import parse_amount
from dpsql.policy.request.query import QueryOptions
from dpsql.results import json_format
from dpsql.sql.parse.session_statement import parse_stated_options

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.ledger.protocol import Entry
    from dpsql.results.result import Result


# Answer, combine, explain and price queries, which reach private data only through `Connection.query`.


async def answer_query(call: ApiCall[QueryBody]) -> Response:
    """Answer a SELECT privately and charge it."""
    asked, form, service = call.body, negotiate_media_type(call.request), call.service
    call.note_sql(asked.sql)
    require_query_role(call.user)
    runner = StatementRunner(service, call.user, "http")

    def run_query(query_runner: QueryRunner) -> bytes:
        options = _resolve_options(service, asked)
        with _audit_call(call, "query") as outcome:
            result = query_runner.query(asked.sql, asked.parameters, **options)
            outcome.record_answer(result)
        loss = service.resolve_loss(asked.sql, options.get("dialect") or "duckdb", options.get("epsilon"))
        return _serialize_answer(call, form, query_runner, result, loss)

    body = await call.context.runner.run_work(
        call.request, runner, lambda: runner.run_with_query_runner(run_query), asked.seconds
    )
    return Response(body, headers=HEADERS, media_type=form)


async def combine_releases(call: ApiCall[CombineBody]) -> Response:
    """Compute the most accurate answer from stored releases, at no charge."""
    asked, form = call.body, negotiate_media_type(call.request)
    call.note_sql(asked.sql)
    require_query_role(call.user)

    def run_combine(connection: Connection) -> bytes:
        with _audit_call(call, "combine") as outcome:
            result = connection.combine(
                asked.sql, asked.parameters, max_groups=asked.max_groups, dialect=asked.dialect
            )
            outcome.record_answer(result)
        return _serialize_answer(call, form, connection, result, None)

    body = await call.run_with_connection(run_combine, asked.seconds)
    return Response(body, headers=HEADERS, media_type=form)


async def explain_query(call: ApiCall[QueryBody]) -> Response:
    """Show the plan of a query, its proofs and its price, at no charge."""
    asked = call.body
    call.note_sql(asked.sql)
    require_query_role(call.user)

    def run_explain(connection: Connection) -> dict[str, Any]:
        with _audit_call(call, "explain"):
            options = _resolve_options(call.service, asked)
            explained = connection.explain(asked.sql, asked.parameters, **options)
        return json_format.write_explanation(explained)

    return to_json_response(await call.run_with_connection(run_explain, asked.seconds))


async def compute_quote(call: ApiCall[QuoteBody]) -> Response:
    """Compute the joint charge of queries, at no charge."""
    asked = call.body
    if len(asked.queries) == 1:
        call.note_sql(asked.queries[0])
    require_query_role(call.user)
    loss = call.service.default_loss if asked.epsilon is None else asked.epsilon

    def run_quote(connection: Connection) -> dict[str, Any]:
        with _audit_call(call, "price"):
            found = connection.budget(tuple(asked.queries), epsilon=loss, dialect=asked.dialect)
        return {**json_format.write_record(found), "fits": found.fits}

    return to_json_response(await call.run_with_connection(run_quote))


async def compute_intervals(call: ApiCall[None]) -> Response:
    """Compute the intervals of a recent answer at another confidence, at no charge."""
    confidence = parse_confidence(parse_number(call.request.query_params.get("confidence", "0.95")))
    number = str(call.request.path_params["answer"])
    found = await call.context.runner.run_work(
        call.request,
        StatementRunner(call.service, call.user, "http"),
        lambda: json_format.write_intervals(
            call.context.answers.get_intervals(call.user.name, number, confidence)
        ),
    )
    return to_json_response(CellIntervals(confidence=confidence, ends=found))


def _audit_call(call: ApiCall[Any], what: str) -> AbstractContextManager[Outcome]:
    """Record the caller and the outcome of a request in the audit log."""
    return call.service.audit.audit_request(Caller(call.user.name, call.analyst, "http", call.peer), what)


def _resolve_options(service: Service, asked: QueryBody) -> QueryOptions:
    """Return the options of a query, with the default loss if neither they nor the text state one."""
    options = asked.options
    default = service.default_loss if asked.default_epsilon is None else asked.default_epsilon
    if default is None or options.keys() & {"epsilon", "target_error"}:
        return options
    stated = parse_stated_options(asked.sql, options.get("dialect") or "duckdb")
    if stated.epsilon is not None or stated.target_error is not None:
        return options
    return {**options, "epsilon": default}


def _serialize_answer(
    call: ApiCall[Any], form: str, query_runner: QueryRunner, result: Result, loss: Any
) -> bytes:
    """Return an answer with its cost in a media type. An error says whether the answer was charged."""
    confidences = call.body.confidences
    try:
        metadata = {
            "answer": call.context.answers.keep_answer(call.user.name, result),
            "cost": format_charges(
                result.receipt,
                None if loss is None else parse_amount(loss),
                query_runner.remaining_budget(result.receipt),
            ).splitlines(),
        }
        if form == ARROW:
            return to_arrow_bytes(result, {**metadata, **json_format.write_all_but_rows(result, confidences)})
        return write_json({**metadata, **json_format.write_answer(result, confidences)})
    except Exception as error:
        error.__dict__["charged"] = bool(result.receipt.entries)
        raise


# Logins, and sessions of the web page.


async def get_issuer(call: ApiCall[None]) -> Response:
    """Return the OpenID Connect issuer, if there is one."""
    provider = call.context.authenticator.provider
    return to_json_response(IssuerBody(issuer=None if provider is None else provider.name))


async def begin_issuer_login(call: ApiCall[LoginBody]) -> Response:
    """Start a login at the issuer, and return its login address."""
    address = await call.context.authenticator.begin_issuer_login(call.body.binder, call.peer)
    return to_json_response(AddressBody(address=address))


async def begin_session_by_code(call: ApiCall[CodeBody]) -> Response:
    """Open a session with the issuer's state and code and the client's secret."""
    asked = call.body
    user, session = await call.context.authenticator.begin_session_by_code(
        asked.state, asked.code, asked.secret, call.peer
    )
    return _describe_session(call.service, user, session)


async def begin_session(call: ApiCall[None]) -> Response:
    """Return the session that was begun with a name and password."""
    return _describe_session(call.service, call.user, call.session)


async def get_session(call: ApiCall[None]) -> Response:
    """Return the caller."""
    return to_json_response(CallerBody(**_list_caller_fields(call.service, call.user)))


async def end_session(call: ApiCall[None]) -> Response:
    """End the caller's session."""
    call.context.authenticator.end_session(call.request.headers.getlist("authorization"))
    return await get_session(call)


def _describe_session(service: Service, user: User, session: str) -> Response:
    return to_json_response(
        SessionBody(session=session, seconds=LONGEST, **_list_caller_fields(service, user))
    )


def _list_caller_fields(service: Service, user: User) -> dict[str, Any]:
    default = service.epsilon
    if default is None and service.policy.default_epsilon is not None:
        default = str(service.policy.default_epsilon)
    return {
        "user": user.name,
        "role": user.role.value,
        "asks": user.role.can_query,
        "oversees": user.role.can_view_all,
        "default_epsilon": default,
    }


# Budgets and the ledger.


async def list_budgets(call: ApiCall[None]) -> Response:
    """List the budgets of tables and the caller's own budgets; all budgets for owners and auditors."""
    everyone, user = call.request.query_params.get("all", "") in ("1", "true"), call.user
    if everyone and not user.role.can_view_all:
        raise make_forbidden_error(
            f"{user.name} has the role {user.role.value}, which sees its own budget and those of tables only"
        )

    def list_states(connection: Connection) -> BudgetsBody:
        found = connection.engine.ledger.list_states() if everyone else connection.budget().values()
        return BudgetsBody(
            budgets=[{"name": state.name, **json_format.write_record(state)} for state in found]
        )

    return to_json_response(await call.run_with_connection(list_states, lane=Lane.lookup))


async def list_history(call: ApiCall[None]) -> Response:
    """List the caller's charges, newest first."""
    most, analyst = parse_limit(call.request), call.analyst

    def read_entries() -> HistoryBody:
        with closing(_open_ledger_reader(call.service)) as history:
            found = history.list_last_entries(most, analyst=analyst, kind="charge")
        return HistoryBody(
            history=[EntryBody.from_entry(each, call.service.policy) for each in reversed(found)]
        )

    return to_json_response(await call.run_lookup(read_entries))


async def list_entries(call: ApiCall[None]) -> Response:
    """List the ledger's entries, newest first, for owners and auditors."""
    require_auditor_role(call.user)
    most = parse_limit(call.request)

    def read_entries() -> EntriesBody:
        with closing(_open_ledger_reader(call.service)) as history:
            found = history.list_last_entries(most)
        return EntriesBody(
            entries=[FullEntryBody.from_entry(each, call.service.policy) for each in reversed(found)]
        )

    return to_json_response(await call.run_lookup(read_entries))


async def get_receipt(call: ApiCall[None]) -> Response:
    """Return the ledger's entries of one of the caller's charges."""
    missing = ProgrammingError(
        "none of your charges has this entry number",
        code="not_found",
        hint="GET /v1/history lists your charges",
    )
    number = parse_path_number(call.request, "entry")
    if number is None:
        raise missing

    def read_entries() -> list[Entry]:
        with closing(_open_ledger_reader(call.service)) as history:
            return history.list_charge_entries(number)

    analyst, found = call.analyst, await call.run_lookup(read_entries)
    if not found or (not call.user.role.can_view_all and any(each.analyst != analyst for each in found)):
        raise missing
    return to_json_response(
        ReceiptBody(
            entries=[ReceiptEntryBody.from_entry(each, call.service.policy) for each in found],
            details=dict(found[0].details),
        )
    )


def _open_ledger_reader(service: Service) -> LedgerReader:
    return LedgerReader.open(service.ledger, service.ledger_key)


# The schema, and the words of an editor.


async def describe_schema(call: ApiCall[None]) -> Response:
    """List tables, columns, bounds and public values, from the policy."""

    def describe(connection: Connection) -> Any:
        return json_format.write_record(
            schema_description.describe_schema(call.service.policy, connection.engine.catalog)
        )

    return to_json_response(await call.run_with_connection(describe, lane=Lane.lookup))


async def list_words(_: ApiCall[None]) -> Response:
    """Return the keywords and functions that an editor completes and highlights."""
    return to_json_response(WordsBody(keywords=list(KEYWORDS), functions=list(list_functions())))


# Statements, users, the policy, and the state of the server.


async def list_statements(call: ApiCall[None]) -> Response:
    """List the caller's statements and connections, and all of them for owners and auditors."""
    return to_json_response(StatementsBody.from_rows(call.service.activity.list_visible_rows(call.user)))


async def stop_statement(call: ApiCall[None]) -> Response:
    """Stop one of the caller's statements, or any statement for owners."""
    number = parse_path_number(call.request, "pid")
    found = None if number is None else call.service.activity.find_client(call.user, number)
    if found is None:
        raise ProgrammingError(
            "no statement that you may end has this number",
            code="not_found",
            hint="GET /v1/statements lists the statements",
        )

    def stop_client() -> EndedBody:
        call.service.stop_client(found, call.user, session=False)
        return EndedBody(ended=found.number)

    return to_json_response(await call.run_lookup(stop_client))


async def list_users(call: ApiCall[None]) -> Response:
    """List users and tokens, without secrets, for owners and auditors."""
    require_auditor_role(call.user)

    def read_users() -> UsersBody:
        store = call.service.users
        return UsersBody(
            users=[UserBody.from_user(each) for each in store.list_users()],
            tokens=[TokenBody.from_token(each) for each in store.list_tokens()],
        )

    return to_json_response(await call.run_lookup(read_users))


async def get_policy(call: ApiCall[None]) -> Response:
    """Return the server's policy, for owners and auditors."""
    require_auditor_role(call.user)
    return to_json_response(PolicyBody.from_policy(call.service.policy))


async def reload_policy(call: ApiCall[None]) -> Response:
    """Reload the policy, the data and the users, for owners."""
    user = call.user
    if not user.role.is_owner:
        raise make_forbidden_error(f"{user.name} has the role {user.role.value}; only owners may do this")
    await reload_service(call.service, call.context.log, user.name)
    return await get_policy(call)


async def render_metrics(call: ApiCall[None]) -> Response:
    """Return metrics for monitoring, for owners and auditors."""
    require_auditor_role(call.user)
    context = call.context
    asking, running = context.service.turns.count_statements()
    gauges = build_gauges(
        running, asking - running, context.count_connections(), context.authenticator.failures
    )

    def list_states(connection: Connection) -> Sequence[BudgetState]:
        return tuple(connection.engine.ledger.list_states())

    budgets = await call.run_with_connection(list_states, lane=Lane.lookup)
    text = context.service.metrics.render_text(gauges, budgets)
    return Response(text, headers={**HEADERS, "Content-Type": CONTENT_TYPE})


async def get_health(call: ApiCall[None]) -> Response:
    """Return whether the server accepts queries."""
    is_stopping = call.context.is_stopping
    return to_json_response(
        HealthBody(status="stopping" if is_stopping else "ok"), 503 if is_stopping else 200
    )
