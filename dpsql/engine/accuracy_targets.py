"""Targets of accuracy: the loss at which a query meets its target, and the accuracy that the remaining budget allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from dpsql.analysis.release_analysis import Analysis
from dpsql.engine.accuracy_search import LossSearch
from dpsql.engine.budgets import compute_epsilon_cap
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import QueryRun
from dpsql.ledger import Quote
from dpsql.plan.nodes import Release
from dpsql.policy.request.target import Target
from dpsql.privacy.accounting.charge import NOTHING


def resolve_epsilon(engine: Engine, analyzed: QueryRun) -> Fraction:
    """Return the loss of a query: that of the step, the requested one, or the smallest that meets the target.

    It is any loss if nothing private is read. Raises QueryRejected with code "target_error" if no allowed loss meets the target.
    """
    loss = analyzed.terms.loss
    if analyzed.options.epsilon is not None:
        return analyzed.options.epsilon
    if not isinstance(loss, Target):
        return loss
    found = _build_search(engine, analyzed, analyzed.analyses, loss).search_least_epsilon()
    return max(found, engine.policy.min_epsilon) if analyzed.analyses else found


def build_loss_search(engine: Engine, prepared: QueryRun, target: Target) -> LossSearch:
    """Return the search for the loss at which a prepared query meets a target."""
    analyses = {part.release: part.plan.analysis for part in prepared.releases}
    return _build_search(engine, prepared, analyses, target)


def _build_search(
    engine: Engine, analyzed: QueryRun, analyses: Mapping[Release, Analysis], target: Target
) -> LossSearch:
    return LossSearch(
        analyzed.outer,
        analyses,
        engine.public_lookups,
        engine.get_account,
        analyzed.terms.delta,
        target,
        compute_epsilon_cap(engine.policy, analyses),
        engine.release_store.can_couple,
    )


def describe_affordable_target(
    engine: Engine, prepared: QueryRun, target: Target, quotes: tuple[Quote, ...]
) -> str | None:
    """Return a hint with the accuracy that the remaining budget allows; None if nothing remains.

    The budget is public, and so is this answer.
    """
    left = min(
        engine.get_account(quote.table).accountant.compute_remaining_epsilon(NOTHING, quote.remaining)
        for quote in quotes
    )
    if left <= 0:
        return None
    bought = build_loss_search(engine, prepared, target).predict_largest_error(left)
    return (
        f"nothing was charged; the remaining budget is enough for {replace(target, error=Fraction(bought))}"
    )
