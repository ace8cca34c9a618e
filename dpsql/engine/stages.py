"""The way of a query, in nine stages: the table of contents of the engine.

`prepare_query` takes a query through the first five, and `answer_query` through the others. Each stage is a function of an `Engine`
and of the `QueryRun` so far, and fills in its part. Explanations, forecasts, replays, targets of accuracy, streams and synthetic
tables are drivers around the stages.

| stage | may read | effect |
|---|---|---|
| parse, lower, analyze | the text, the policy, the schema, public tables | none |
| choose | these, and budgets | none |
| verify | the plans; public tables for the statement | none |
| charge | budgets, and the catalog of the database | a durable entry of the ledger, or a refusal |
| run | private rows | exact rows, hidden in `Exact`, and the way to the groups of a release whose clamps are chosen first |
| release | what `run` opened | noise is drawn, and the release is stored before anybody sees it |
| post_process | released values and public tables | none |

Claim: private rows are read only after a durable charge, and an answer depends on them only through released values.
Why: `run` alone opens the reading of private rows, and refuses a release that costs a loss if its query has no entry in the ledger.
A release with clamps by group reads its groups later, in `release`, by a function that `run` returned; it ends with the context of
`run`. Rows come in a type that only `dpsql.engine.release.exact_rows` opens, for the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Final

from dpsql.analysis.partitions.assignment import with_partition_filters
from dpsql.analysis.release_analysis import analyze_release
from dpsql.engine.accuracy_targets import resolve_epsilon
from dpsql.engine.budgets import require_above_floor, require_below_cap
from dpsql.engine.charging import (
    build_receipt,
    charge_query,
    record_release_failures,
    require_payable_loss,
    run_after_charge,
)
from dpsql.engine.engine import Engine
from dpsql.engine.expert_choices import ExpertLosses
from dpsql.engine.loss_split import require_one_sample, split_loss
from dpsql.engine.plan_completion import finish_statement
from dpsql.engine.postprocess.answer import (
    PostProcessor,
    build_result,
    compute_answer,
    emit_outer_statement,
    open_post_processor,
)
from dpsql.engine.query_run import PlanOptions, PreparedRelease, QueryRun
from dpsql.engine.release.exact_release import ExactRelease, draw_table, open_exact_release
from dpsql.errors import InternalError, QueryRejected
from dpsql.plan.nodes import Release, list_private_tables
from dpsql.plan.steps import list_steps
from dpsql.planning.choose import choose_plan
from dpsql.planning.verify import verify_plan
from dpsql.policy.request.loss import Target
from dpsql.policy.request.query import Query, resolve_query
from dpsql.results.result import Result
from dpsql.sql.lower.statement import lower_statement
from dpsql.sql.parse.parse import locate_translation_errors, parse_cached, require_stack_room


def parse(engine: Engine, begun: QueryRun) -> QueryRun:
    """Read the text into a tree, and its options into terms. It may read limits of the policy; no table, and not the ledger.

    Raises QueryRejected with the place in the text; so do the stages up to `choose`.
    """
    require_stack_room()
    statement = parse_cached(begun.query.sql, begun.query.dialect)
    terms = resolve_query(begun.query, statement.options)
    require_above_floor(engine.policy.min_epsilon, terms.loss)
    require_below_cap(engine.policy.max_epsilon, terms.loss)
    return replace(begun, parsed=statement, terms=terms, explain=statement.explain)


def lower(engine: Engine, parsed: QueryRun) -> QueryRun:
    """Lower the tree to a plan: the only validation of SQL. It may read the policy, the schema and public tables; no private row."""
    query, statement, lookups = parsed.query, parsed.parsed, parsed.lookups
    with locate_translation_errors(query.sql, query.dialect) if statement.translated else nullcontext():
        lowered = lower_statement(
            statement, engine.catalog, lookups, query.parameters, parsed.terms.max_groups, at=query.time
        )
        outer = finish_statement(lowered, lookups, engine.backend.dialect.functions.work_rules)
    if not engine.backend.can_parse(statement.text):
        # The parser here forgives much that the engine does not; an answer must not rest on a guess.
        raise QueryRejected(
            "the parser of the database engine cannot read the query", code="syntax", text=statement.text
        )
    return replace(
        parsed,
        outer=outer,
        steps=list_steps(outer),
        sample=lowered.sample,
        constants=lowered.constants,
        notices=lowered.notices,
        matrix_columns=statement.matrix,
        expert_losses=ExpertLosses.from_outputs(statement.experts, outer.outputs),
    )


def analyze(engine: Engine, lowered: QueryRun) -> QueryRun:
    """Derive what one privacy unit can change in each release. It may read the policy and public tables; no private row."""
    releases = [step for step in lowered.steps if isinstance(step, Release)]
    replaced = engine.policy.neighbors == "replace"
    require_one_sample(
        releases,
        replace=replaced,
        targeted=isinstance(lowered.terms.loss, Target),
        text=lowered.parsed.source.text,
        at=lowered.sample,
    )
    analyses = {
        # A replaced unit may leave one part and its successor may enter another: parts are not charged separately.
        release: analyze_release(
            release if replaced else with_partition_filters(release),
            lowered.lookups,
            replace=replaced,
            separate_keys=lowered.options.separate_keys,
        )
        for release in releases
    }
    return replace(lowered, analyses=analyses)


def choose(engine: Engine, analyzed: QueryRun) -> QueryRun:
    """Split the loss among the releases, and choose the plan with the smallest predicted error for each.

    It may read the policy, public tables, and the budgets in the ledger, which are public; no private row. Raises BudgetExhausted for
    a loss beyond the whole budget, unless a forecast is wanted.
    """
    require_payable_loss(engine, analyzed)
    terms = analyzed.terms.with_epsilon(resolve_epsilon(engine, analyzed))
    can_couple = engine.release_store.can_couple
    shares = split_loss(analyzed.analyses, engine.get_accounts, terms.epsilon, terms.delta, can_couple)
    accounts = {name: engine.policy.get_account_name(name) for name in engine.policy.list_private_tables()}
    allow_clamps = not isinstance(terms.loss, Target)  # what a clamp cuts off is not known beforehand
    releases = tuple(
        PreparedRelease(
            release,
            list_private_tables(release.input),
            choose_plan(analysis, share, analyzed.lookups, allow_clamps=allow_clamps),
            share,
            dialect=engine.backend.dialect,
            accounts=accounts,
        )
        for (release, analysis), share in zip(analyzed.analyses.items(), shares, strict=True)
    )
    return replace(analyzed, terms=terms, releases=releases)


def verify(_: Engine, chosen: QueryRun) -> QueryRun:
    """Derive the loss of each plan again, without the planner's code, and emit the SQL of plans that pass.

    It may read the plans; and public tables, whose groups some engines get as constants. It may read neither the ledger nor a
    private row. Raises InternalError if a plan would lose more than it is charged.
    """
    for part in chosen.releases:
        verify_plan(part.plan)
    releases = tuple(
        part.with_statement(
            {}
            if part.dialect.capabilities.supports_public_groups
            else chosen.lookups.read_public_groups(part.release.input)
        )
        for part in chosen.releases
    )
    return emit_outer_statement(replace(chosen, releases=releases))


def charge(engine: Engine, verified: QueryRun) -> QueryRun:
    """Charge the query durably, before any private row is read; it is free if only public values are released.

    It may read the ledger, and bind statements in the database without running them. Raises BudgetExhausted if too little budget is
    left, OperationalError if the database cannot bind a statement or somebody stopped the query; nothing is charged then.
    """
    return charge_query(engine, verified)


def run(engine: Engine, charged: QueryRun, part: PreparedRelease) -> AbstractContextManager[ExactRelease]:
    """Run the statement of a charged release: the only stage that opens the reading of private rows, which stay hidden in `Exact`.

    The engine's temporary tables last as long as the context. A replayed release, and one of public values alone, reads no rows.
    Raises InternalError for a release whose query is not charged.
    """
    if part.event is not None and not charged.entries:
        raise InternalError("a release is run before its query is charged", code="uncharged")
    return open_exact_release(engine.backend, engine.entropy, part)


def release(engine: Engine, running: QueryRun, measured: ExactRelease) -> QueryRun:
    """Draw the noise of one release. It may read the exact rows that `run` returned, and groups by the function that it returned.

    Raises InternalError or BackendError without a word about exact values.
    """
    table = draw_table(measured, engine.entropy)
    return replace(running, released_tables=(*running.released_tables, table))


def post_process(engine: Engine, released: QueryRun, processor: PostProcessor | None = None) -> QueryRun:
    """Compute the answer. It may read released values and public tables; no private row, which nothing here can reach.

    `processor` holds the released tables, unless their rows are the answer as they are.
    """
    answer = compute_answer(released, processor, engine.backend)
    receipt = build_receipt(engine, released, [table.plan for table in released.released_tables])
    return replace(released, result=build_result(released, answer, receipt, engine.entropy))


STAGES: Final[tuple[Callable[..., object], ...]] = (
    parse, lower, analyze, choose, verify, charge, run, release, post_process,
)  # fmt: skip


def prepare_query(engine: Engine, query: Query, options: PlanOptions | None = None) -> QueryRun:
    """Take a query through the stages up to the charge: nothing is charged, and no private row is read."""
    prepared = QueryRun(query, options or PlanOptions(), lookups=engine.public_lookups)
    for stage in (parse, lower, analyze, choose, verify):
        prepared = stage(engine, prepared)
    return prepared.without_planning_inputs()


def answer_query(engine: Engine, prepared: QueryRun) -> Result:
    """Take a prepared query through the stages from the charge on, and return its answer."""
    if not prepared.reads_private_rows:
        return post_process(engine, prepared).result
    with open_post_processor(prepared, engine.backend) as processor:
        charged = charge(engine, prepared)
        return run_after_charge(
            engine,
            charged,
            lambda: post_process(engine, draw_releases(engine, charged, processor), processor).result,
            *(() if processor is None else (processor.scratch,)),
        )


def draw_releases(engine: Engine, charged: QueryRun, processor: PostProcessor | None = None) -> QueryRun:
    """Run and release each release of a charged query after the subqueries that it reads, and store what was charged for."""
    running = charged
    for step in running.steps:
        if isinstance(step, Release):
            running = running.with_known_values(step)
            running = _draw_release(engine, running, running.get_release(step))
            if processor is not None:
                processor.load_intermediate_release(running, step)
        elif processor is not None and step not in running.known_values:
            running = processor.evaluate_step(running, step)
    if running.entries:
        engine.release_store.store_releases(running)
    return running


def _draw_release(engine: Engine, running: QueryRun, part: PreparedRelease) -> QueryRun:
    with record_release_failures(engine, running, part), run(engine, running, part) as measured:
        return release(engine, running, measured)
