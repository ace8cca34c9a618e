"""Replays: a driver that answers prepared queries from stored releases, as far as there are any."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from dpsql.engine.engine import Engine
from dpsql.engine.query_run import PlanOptions, QueryRun
from dpsql.engine.stages import answer_query, prepare_query
from dpsql.policy.request.query import Query
from dpsql.results.result import Result


def plan_and_match(engine: Engine, query: Query, options: PlanOptions | None = None) -> QueryRun:
    """Prepare a query, with the stored releases that may answer it.

    Nothing is charged; public tables and stored releases are read. Raises QueryRejected with the place in the text.
    """
    return match_stored(engine, prepare_query(engine, query, options))


def match_stored(engine: Engine, prepared: QueryRun) -> QueryRun:
    """Return a prepared query with the stored releases that may answer it, if the query allows them."""
    return engine.release_store.match_stored(prepared) if prepared.query.replay else prepared


def combine_stored_releases(engine: Engine, query: Query) -> Result:
    """Return the most accurate answer that follows from stored releases, free; nothing private is read.

    The loss only decides which statistics are meant. Raises QueryRejected with code "nothing_released".
    """
    loss = query.epsilon or query.default or min(engine.policy.max_epsilon or Fraction(1), Fraction(1))
    query = replace(query, epsilon=loss, target_error=None, confidence=None, replay=False)
    return answer_combined(engine, prepare_query(engine, query, PlanOptions(is_free=True)))


def answer_combined(engine: Engine, prepared: QueryRun) -> Result:
    """Return the answer of `combine_stored_releases` for a prepared query."""
    return answer_query(engine, engine.release_store.combine_stored(prepared))
