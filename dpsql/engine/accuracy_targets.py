"""Targets of accuracy: the smallest loss at which an answer is as accurate as requested."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.analysis.release_analysis import Analysis
from dpsql.analysis.stability import PublicFacts
from dpsql.engine.budgets import compute_epsilon_cap
from dpsql.engine.engine import Engine
from dpsql.engine.intervals.noise_laws import predict_half_width
from dpsql.engine.loss_split import split_loss
from dpsql.engine.query_run import QueryRun
from dpsql.errors import QueryRejected
from dpsql.ledger import Quote
from dpsql.ledger.protocol import Account
from dpsql.plan.expressions import Expr, ReleasedColumn, Scalar, walk
from dpsql.plan.nodes import Aggregation, OuterQuery, Release, list_private_tables
from dpsql.plan.provenance import find_provenance, is_unfiltered
from dpsql.plan.smooth import match_linear
from dpsql.plan.steps import list_releases, list_required_subqueries
from dpsql.planning.choose import choose_plan
from dpsql.planning.measurement import MeasurementPlan
from dpsql.policy.names import SHARED_ACCOUNT
from dpsql.policy.request.loss import RelativeError, Target
from dpsql.privacy.accounting.events import NOTHING

# The search for the smallest loss.


FIRST = 1024
"""The first step to an error that is a part of each value costs one of so many parts of the most."""
_LEAST = -6
"""The grid begins at this power of ten."""
_DECADE = 900
_GRID = range(_DECADE * 320)


Place = tuple[int, int]
"""Which part of a UNION ALL of releases, and which column."""
AllowedError = Callable[[Place], Fraction]
"""The error that values may have, by their place."""


@dataclass(frozen=True, slots=True)
class _NoisyOutput:
    """A column of the answer: an aggregate of a release times a factor, plus terms that do not affect the error."""

    name: str
    place: Place
    release: Release
    item: Aggregation
    factor: float

    def predict_error(self, plan: MeasurementPlan, confidence: float) -> float:
        """Return the half-width of the value's noise; raise QueryRejected if it depends on the data."""
        half = predict_half_width(plan, self.item, confidence)
        if half is None:
            raise _make_rejection(
                f"the error of {self.name} depends on the data and is not known beforehand; that of a mean depends on the number of rows",
                "use `target_error` for sums and counts, `epsilon` for this value",
            )
        return half * self.factor


@dataclass(frozen=True, slots=True)
class LossSearch:
    """A statement whose loss is searched for: its releases, public facts, the accounts of its tables, and the target.

    `can_refine` tells whether a release that reads some tables may be refined by coupled noise. `cap` is the policy's for one
    query, or None.
    """

    outer: OuterQuery
    analyses: Mapping[Release, Analysis]
    facts: PublicFacts
    get_accounts: Callable[[Sequence[str]], Mapping[str, Account]]
    delta: Fraction | None
    target: Target
    cap: Fraction | None
    can_refine: Callable[[Sequence[str]], bool]

    def search_least_epsilon(self) -> Fraction:
        """Return the first ε of the public grid that meets the target while the one before it does not.

        Claim: it depends only on the query and public metadata, and at this ε each value of the answer has noise of at most the
        target's error with at least the target's probability.
        Why: half-widths follow from the law of the noise, and only the target is compared with them. The ε at which the search ends
        was tried itself, and so was the one before it.
        Source: Ligett, Neel, Roth, Waggoner, Wu 2017, "Accuracy first" (a loss for an accuracy).

        The grid has three digits, 1.00e-6, 1.01e-6 and so on, and includes the largest ε that may be requested. Its smallest ε
        serves a query that reads nothing private. Raises QueryRejected with code "target_error" if the largest is not enough, or no
        error can be predicted. For a target that is a part of each value, the result is the ε of the first step, one of `FIRST`
        parts of the largest: further steps depend on what that step releases.
        """
        if not self.analyses:
            return _get_grid_epsilon(0)
        error = self.target.error
        most, whose = self.compute_epsilon_limit()
        if isinstance(error, RelativeError):
            self._require_relative_target()
            first = _get_grid_epsilon(max(0, bisect_right(_GRID, most / FIRST, key=_get_grid_epsilon) - 1))
            self.predict_errors(first)  # refuses what has none that is known
            return first
        found = self.find_epsilon(lambda _: error)
        if found is None:
            bought, name = self._find_largest_error(tuple(self._iterate_noisy_outputs()), most)
            raise _make_rejection(
                f"{self.target} needs more than {whose} (ε {float(most):.6g}), which gives ±{bought:.6g} for {name}",
                "use a larger target_error, or fewer aggregates in one query",
            )
        return found

    def find_epsilon(self, allowed_error: AllowedError) -> Fraction | None:
        """Return the smallest ε of the grid, or the largest that may be requested, at which no value exceeds its `allowed_error`.

        Return None if the largest is not enough.
        """
        values, (most, _) = tuple(self._iterate_noisy_outputs()), self.compute_epsilon_limit()
        top = bisect_right(_GRID, most, key=_get_grid_epsilon) - 1
        if top < 0 or self._compute_largest_excess(values, _get_grid_epsilon(top), allowed_error) > 1:
            return most if self._compute_largest_excess(values, most, allowed_error) <= 1 else None
        start = min(Fraction(1), _get_grid_epsilon(top))
        guess = start * self._compute_largest_excess(values, start, allowed_error)
        near = bisect_right(_GRID, guess, key=_get_grid_epsilon) - 1
        return _get_grid_epsilon(
            _search_first_index(
                lambda at: self._compute_largest_excess(values, _get_grid_epsilon(at), allowed_error) <= 1,
                top,
                near,
            )
        )

    def predict_largest_error(self, epsilon: Fraction) -> float:
        """Return the largest error of a value at an ε, at the target's confidence."""
        return self._find_largest_error(tuple(self._iterate_noisy_outputs()), epsilon)[0]

    def predict_errors(self, epsilon: Fraction) -> dict[Place, float]:
        """Return the errors of the values at an ε, by their places."""
        return {
            value.place: error
            for value, error in self._iterate_errors(tuple(self._iterate_noisy_outputs()), epsilon)
        }

    def compute_epsilon_limit(self) -> tuple[Fraction, str]:
        """Return the largest ε that may be requested, and a description of that limit."""
        tables = dict.fromkeys(
            name for release in self.analyses for name in list_private_tables(release.input)
        )
        found = []
        for name, account in self.get_accounts(tuple(tables)).items():
            whole = account.accountant.compute_remaining_epsilon(NOTHING, account.limit)
            whose = "the whole shared budget" if name == SHARED_ACCOUNT else f"the whole budget of {name}"
            found.append((whole, whose))
        if self.cap is not None:
            found.append((self.cap, "the policy's cap for one query"))
        return min(found, key=lambda pair: pair[0])

    def _compute_largest_excess(
        self, values: Sequence[_NoisyOutput], epsilon: Fraction, allowed_error: AllowedError
    ) -> Fraction:
        """Return the largest ratio of an error to the allowed one."""
        return max(
            Fraction(error) / allowed_error(value.place)
            for value, error in self._iterate_errors(values, epsilon)
        )

    def _find_largest_error(self, values: Sequence[_NoisyOutput], epsilon: Fraction) -> tuple[float, str]:
        """Return the largest error at a loss, and the value that has it."""
        return max((error, value.name) for value, error in self._iterate_errors(values, epsilon))

    def _iterate_errors(
        self, values: Sequence[_NoisyOutput], epsilon: Fraction
    ) -> Iterator[tuple[_NoisyOutput, float]]:
        """Yield the error of each value at a loss."""
        parts = split_loss(self.analyses, self.get_accounts, epsilon, self.delta, self.can_refine)
        plans = {
            release: choose_plan(analysis, part, self.facts, allow_clamps=False)
            for (release, analysis), part in zip(self.analyses.items(), parts, strict=True)
        }
        confidence = float(self.target.confidence)
        for value in values:
            yield value, value.predict_error(plans[value.release], confidence)

    def _require_relative_target(self) -> None:
        """Raise QueryRejected if the values of an answer at one loss tell little about those at another."""
        hint = "use an absolute error, such as target_error=50, or an epsilon"
        for release, analysis in self.analyses.items():
            if analysis.domains is None or analysis.selects_keys:
                raise QueryRejected(
                    "a relative target_error needs public group keys: noise decides here which groups are released",
                    code="relative_target",
                    hint=f"JOIN a public table of the keys, or list their values in the policy; or {hint}",
                )
            if list_required_subqueries(release):
                raise QueryRejected(
                    "a relative target_error does not apply to a value that reads another noisy answer: each step would change that answer",
                    code="relative_target",
                    hint=hint,
                )
        if not is_unfiltered(self.outer):
            raise QueryRejected(
                "a relative target_error does not apply under HAVING, QUALIFY or LIMIT: noise decides which rows remain",
                code="relative_target",
                hint=f"query all values and filter the result; or {hint}",
            )

    def _iterate_noisy_outputs(self) -> Iterator[_NoisyOutput]:
        """Yield the noisy columns of the answer."""
        found = find_provenance(self.outer)
        if found is None:
            raise _make_rejection(
                "the error of a value computed from several released rows is not known beforehand",
                "query the aggregates themselves, or use an epsilon",
            )
        some = False
        for branch, trace in enumerate(found):
            items = {item.name: item for item in trace.release.aggregations}
            for column, (output, expr) in enumerate(zip(self.outer.outputs, trace.outputs, strict=True)):
                if _is_noisy(expr, items):
                    some = True
                    yield _build_noisy_output(output.name, (branch, column), trace.release, expr, items)
        if not some:
            raise _make_rejection(
                "no value of the answer has noise, so target_error does not apply", "use an epsilon"
            )


def _is_noisy(expr: Expr, items: Mapping[str, Aggregation]) -> bool:
    """Return whether an output reads aggregates, of its own release or of a subquery."""
    parts = tuple(walk(expr))
    return any(isinstance(part, ReleasedColumn) and part.name in items for part in parts) or any(
        isinstance(part, Scalar) and list_releases(part.outer) for part in parts
    )


def _build_noisy_output(
    name: str, place: Place, release: Release, expr: Expr, items: Mapping[str, Aggregation]
) -> _NoisyOutput:
    found = match_linear(expr)
    if found is None or found.column.name not in items:
        raise _make_rejection(
            f"the error of {name}, which is computed from noisy values, is not known beforehand",
            "query the aggregates themselves, or use an epsilon",
        )
    return _NoisyOutput(name, place, release, items[found.column.name], abs(found.factor))


def _make_rejection(message: str, hint: str) -> QueryRejected:
    return QueryRejected(message, code="target_error", hint=hint)


def _get_grid_epsilon(index: int) -> Fraction:
    """Return the loss at a place of the grid.

    >>> [float(_get_grid_epsilon(at)) for at in (0, 1, 899, 900)]
    [1e-06, 1.01e-06, 9.99e-06, 1e-05]
    """
    decades, rest = divmod(index, _DECADE)
    return (100 + rest) * Fraction(10) ** (decades + _LEAST - 2)


def _search_first_index(meets: Callable[[int], bool], top: int, near: int) -> int:
    """Return the first index that `meets` while the one before it does not, up to `top`, which does; start `near` an index."""
    low, high, stride = -1, top, 1
    at = near
    while high - low > 1:
        at = min(max(at, low + 1), high - 1)
        if meets(at):
            high = at
        else:
            low = at
        if low < 0:
            at = high - stride
        elif high == top:
            at = low + stride
        else:
            at = (low + high) // 2
        stride *= 4
    return high


# The loss at which a query meets its target, and the accuracy that the remaining budget allows.


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
        engine.get_accounts,
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
