"""Answer, combine, explain and price queries, which reach private data only through `Connection.query`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from dpsql.interfaces.server.audit import Caller, Outcome
from dpsql.interfaces.server.connections import QueryRunner
from dpsql.interfaces.server.http.access import require_query_role
from dpsql.interfaces.server.http.bodies import (
    CellIntervals,
    CombineBody,
    QueryBody,
    QuoteBody,
    parse_confidence,
)
from dpsql.interfaces.server.http.calls import ApiCall
from dpsql.interfaces.server.http.requests import ARROW, negotiate_media_type, parse_number
from dpsql.interfaces.server.http.responses import HEADERS, to_arrow_bytes, to_json_response, write_json
from dpsql.interfaces.server.service import Service
from dpsql.interfaces.server.statement_runs import StatementRunner
from dpsql.interfaces.shell.answers import format_charges
from dpsql.policy.request.loss import parse_amount
from dpsql.policy.request.query import QueryOptions
from dpsql.results import json_format
from dpsql.sql.parse.stated_options import parse_stated_options

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.results.result import Result


async def answer_query(call: ApiCall[QueryBody]) -> Response:
    """Answer a SELECT privately and charge it."""
    asked, form, service = call.body, negotiate_media_type(call.request), call.service
    call.note_sql(asked.sql)
    require_query_role(call.user)
    runner = StatementRunner(service, call.user)

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
    loss = call.service.epsilon if asked.epsilon is None else asked.epsilon

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
        StatementRunner(call.service, call.user),
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
    default = service.epsilon if asked.default_epsilon is None else asked.default_epsilon
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
