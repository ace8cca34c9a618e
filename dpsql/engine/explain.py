"""EXPLAIN: the plan as a tree, with what was proved of each node, and the price of the answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.analysis.listed_keys import has_unlisted_keys
from dpsql.analysis.partitions.assignment import describe_box
from dpsql.analysis.stability import describe_stability
from dpsql.engine import notices, statement_notices
from dpsql.engine.accuracy_targets import build_loss_search
from dpsql.engine.charging import build_receipt, compute_quotes
from dpsql.engine.engine import Engine
from dpsql.engine.intervals.noise_laws import predict_half_width
from dpsql.engine.query_run import PreparedRelease, QueryRun
from dpsql.engine.relative_targets import STEPS
from dpsql.ledger import Quote
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.expressions import Column, Expr, Scalar
from dpsql.plan.interval import format_interval
from dpsql.plan.nodes import (
    Aggregation,
    Filter,
    Join,
    OuterQuery,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    Relation,
    Release,
    SemiJoin,
    SetOperation,
    Values,
    list_inputs,
    list_private_scans,
)
from dpsql.plan.steps import find_sampling_rate, format_percent
from dpsql.plan.tables import Scan, UnitKind
from dpsql.plan.text import format_expression, format_order_item
from dpsql.planning.choose import compute_predicted_std, get_statistic
from dpsql.planning.clamping import BEYOND_CONFIDENCE, Clamp
from dpsql.planning.group_selection import OptimalPartitionSelection
from dpsql.planning.measurement import MeasurementPlan, VectorMeasurement
from dpsql.planning.statistics import compute_sample_loss
from dpsql.policy.request.loss import CONFIDENCE, Target
from dpsql.results.result import ExplainedQuery, QueryCharge
from dpsql.sql.compile.outer_query import ReleasedTables


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation(ExplainedQuery):
    """The output of EXPLAIN; `prepared` has the same as data."""

    prepared: QueryRun

    @classmethod
    def from_prepared(cls, engine: Engine, prepared: QueryRun) -> Explanation:
        """Explain a prepared query. At most public tables are read, and nothing is charged."""
        quotes = compute_quotes(engine, prepared) if prepared.table_charges else ()
        messages = notices.list_statement_notices(prepared.outer, prepared.notices)
        return cls(
            prepared=prepared,
            lines=tuple(_format_lines(engine, prepared, quotes, messages)),
            receipt=replace(build_receipt(engine, prepared), explained=True),
            price=_compute_charge(engine, prepared, quotes),
            notices=messages,
        )


def _compute_charge(engine: Engine, prepared: QueryRun, quotes: Sequence[Quote]) -> QueryCharge | None:
    if not quotes:
        return None
    accounts, target = tuple(dict.fromkeys(quote.key.name for quote in quotes)), prepared.terms.target
    if isinstance(target, Target) and target.relative_error is not None:
        most, _ = build_loss_search(engine, prepared, target).compute_epsilon_limit()
        return QueryCharge(most, accounts, steps=True)
    return QueryCharge(prepared.terms.epsilon, accounts)


def _format_lines(
    engine: Engine, prepared: QueryRun, quotes: Sequence[Quote], messages: Sequence[str]
) -> Iterator[str]:
    if messages:
        yield "Notices"
        yield from (f"  {notice}" for notice in messages)
        yield ""
    yield from _describe_charge(engine, prepared, quotes)
    yield ""
    yield from _describe_outer_query(engine, prepared, prepared.outer, "")
    for scalar in (step for step in prepared.steps if isinstance(step, Scalar)):
        yield f"First {scalar}"
        yield from _describe_outer_query(engine, prepared, scalar.outer, "  ")
    for number, (release, adjusted) in enumerate(
        zip(prepared.releases, prepared.shown_plans, strict=True), 1
    ):
        several = len(prepared.releases) > 1
        yield ""
        yield f"Measurements{f' in release {number}' * several}"
        yield from _describe_measurements(release, adjusted, _get_confidence(prepared))
    for number, release in enumerate(prepared.releases, 1):
        yield ""
        yield f"SQL sent to the engine{f' for release {number}' * (len(prepared.releases) > 1)}"
        for text in release.sql_texts:
            yield from (f"  {line}" for line in text.splitlines())


def _describe_outer_query(
    engine: Engine, prepared: QueryRun, outer: OuterQuery, indent: str
) -> Iterator[str]:
    names = {}
    if isinstance(outer.source, Release):
        names = {key.name: format_expression(key.expr) for key in outer.source.keys}
        names |= {item.name: notices.format_call(item) for item in outer.source.aggregations}
    outputs = ", ".join(
        f"{format_expression(output.expr, names)} AS {output.name}" for output in outer.outputs
    )
    yield f"{indent}Output {outputs}   free: reads only released and public values"
    if outer.having is not None:
        yield f"{indent}  HAVING {format_expression(outer.having, names)}"
    if outer.qualify is not None:
        yield f"{indent}  QUALIFY {format_expression(outer.qualify, names)}"
    if outer.order:
        yield f"{indent}  ORDER BY {', '.join(format_order_item(item, names) for item in outer.order)}"
    if outer.limit is not None or outer.offset:
        yield f"{indent}  LIMIT {outer.limit} OFFSET {outer.offset}"
    if isinstance(outer.source, Release):
        yield from _describe_release(engine, prepared, outer.source, indent)
    else:
        yield from _describe_tree(engine, prepared, outer.source, indent + "   ")


def _describe_release(engine: Engine, prepared: QueryRun, released: Release, indent: str) -> Iterator[str]:
    number = [part.release for part in prepared.releases].index(released)
    part = prepared.releases[number]
    analysis, bound = part.plan.analysis, part.plan.analysis.bound
    keys = ", ".join(format_expression(key.expr) for key in released.keys)
    title = f"Release{f' {number + 1}' * (len(prepared.releases) > 1)}{f' by {keys}' if keys else ''}"
    yield f"{indent}└─ {title}   privacy boundary: each row below belongs to one {engine.policy.privacy_unit}"
    enforced = (
        "each row is its own unit"
        if not bound.per_unit
        else f"at most {_format_count(bound.rows, 'row')} per unit"
    )
    if bound.per_unit and keys:
        enforced += f" in at most {_format_count(bound.groups, 'group')}"
        enforced += ", enforced" if bound.limits_groups else ""
    yield f"{indent}   │  contribution: {enforced}; neighbors: {engine.policy.neighbors}"
    for scan in list_private_scans(analysis.release.input):
        if scan.partition_filters:
            yield f"{indent}   │  part: {_describe_partition_scan(scan, engine.policy.privacy_unit)}"
    for index, key in enumerate(released.keys):
        yield f"{indent}   │  key {format_expression(key.expr)}: {_describe_domain(part, index)}"
    if isinstance(prepared.post_processing, ReleasedTables) and released in prepared.post_processing.occupied:
        which = "a group whose key follows from bounds" if has_unlisted_keys(released) else "a NULL group"
        yield f"{indent}   │  {which} is left out if, by its noisy count, it may be empty"
    for index, measure in enumerate(analysis.measures):
        lattice = measure.lattice
        grid = "" if lattice is None else f", summed in steps of {_format_number(lattice.step)}"
        yield f"{indent}   │  x{index} = {format_expression(measure.expr)} in {format_interval(measure.interval, measure.expr.type)}{grid}"
    yield from _describe_tree(engine, prepared, released.input, indent + "      ")


def _describe_partition_scan(scan: Scan, unit: str) -> str:
    """Return which rows of a table are read, and which units are not counted."""
    read = f"only rows of {scan.table} with {' and '.join(map(str, scan.partition_filters))} are read"
    if scan.unit.kind is not UnitKind.COLUMN:
        return read
    names = " or of ".join(side.name for side in scan.partition_filters)
    return f"{read}; a {unit} with no value or several values of {names} is not counted"


def _describe_domain(part: PreparedRelease, index: int) -> str:
    domains, chosen = part.plan.analysis.domains, part.plan.selection
    known = "not public" if domains is None else f"{len(domains[index])} public values"
    if part.plan.top_k is not None:
        return f"{known}, of which the top groups are selected"
    if chosen is None:
        return f"{known}, all released"
    return f"{known}; {statement_notices.describe_selection_threshold(part.plan)}"


def _describe_tree(engine: Engine, prepared: QueryRun, relation: Relation, indent: str) -> Iterator[str]:
    if isinstance(relation, PublicSubquery):
        yield f"{indent[3:]}└─ Answer{_format_alias('', relation.alias)}   public"
        yield from _describe_outer_query(engine, prepared, relation.outer, indent)
        return
    yield f"{indent[3:]}└─ {_describe_node(relation)}   {describe_stability(relation, engine.public_lookups)}"
    for part in list_inputs(relation):
        yield from _describe_tree(engine, prepared, part, indent + "   ")


def _describe_node(relation: Relation) -> str:
    match relation:
        case Scan():
            part = "" if relation.sample is None else f", {format_percent(relation.sample)} of the units"
            return f"Scan {relation.table}{_format_alias(relation.table, relation.alias)}{part}"
        case Filter():
            return f"Filter {format_expression(relation.predicate)}"
        case SemiJoin():
            return f"Rows with{'out' * relation.anti} a match where {format_expression(relation.on)}"
        case Join():
            on = [f"{format_expression(ours)} = {format_expression(theirs)}" for ours, theirs in relation.on]
            on += [] if relation.condition is None else [format_expression(relation.condition)]
            return f"{relation.kind.value.title()} join on {' AND '.join(on) or 'nothing'}"
        case Project():
            return f"Select{' distinct' * relation.distinct} {_format_columns(relation.items, relation.columns)}{_format_alias('', relation.alias)}"
        case PerUnitGroupBy():
            return (
                f"Group by {', '.join(map(format_expression, relation.keys))}: {_format_aggregates(relation)}"
            )
        case PerUnitWindows():
            windows = ", ".join(map(format_expression, relation.windows))
            return f"Windows {windows}{_format_alias('', relation.alias)}"
        case SetOperation():
            return f"{relation.kind.value.title()}{_format_alias('', relation.alias)}"
        case PublicSubquery() | Values():
            return f"{type(relation).__name__}{_format_alias('', relation.alias)}"


def _format_alias(table: str, alias: str) -> str:
    return "" if alias == table or alias.startswith("#") else f" AS {alias}"


def _format_columns(items: Sequence[Expr], named: Sequence[Column]) -> str:
    return ", ".join(f"{format_expression(item)} AS {name}" for item, name in zip(items, named, strict=True))


def _format_aggregates(relation: PerUnitGroupBy) -> str:
    texts = []
    for item, name in zip(relation.aggregates, relation.columns[len(relation.keys) :], strict=True):
        texts.append(
            f"{WITHIN[item.function].format_call(*map(format_expression, item.arguments), rank=item.rank)} AS {name}"
        )
    return ", ".join(texts) or "nothing"


def _get_confidence(prepared: QueryRun) -> float:
    target = prepared.terms.target
    return float(CONFIDENCE if target is None else target.confidence)


def _describe_sample(part: PreparedRelease) -> Iterator[str]:
    """Yield the sample that is read, and the loss of the noise on it."""
    rate = find_sampling_rate(part.release.input)
    if rate is not None:
        inner = float(compute_sample_loss(part.loss_share.epsilon, rate))
        yield (
            f"  Poisson sample of {format_percent(rate)} of the units: ε {float(part.loss_share.epsilon):.4g} is charged for noise of "
            f"ε {inner:.4g} on the sample"
        )


def _describe_measurements(
    part: PreparedRelease, adjusted: MeasurementPlan, confidence: float
) -> Iterator[str]:
    plan = part.plan
    yield from _describe_sample(part)
    if plan.synthesis is not None:
        for each in plan.synthesis.mechanism.describe():
            yield f"  {each['statistic']}: {each['noise']}"
        return
    if plan.top_k is not None:
        chosen, (item,) = plan.top_k, part.release.aggregations
        which = "greatest" if chosen.top.descending else "least"
        yield f"  the {_format_count(chosen.top.count, 'group')} of {which} {notices.format_call(item)}: {chosen.mechanism.describe()}"
        yield f"  a unit adds {chosen.low:,} to {chosen.high:,} steps to each score; scores are not released"
        yield f"  {statement_notices.describe_shortfall(plan, chosen, confidence)}"
        return
    if isinstance(plan.selection, OptimalPartitionSelection):
        yield f"  partition selection: {plan.selection.mechanism.describe()}"
    elif not plan.vectors and not plan.quantiles:
        yield "  nothing: the group keys are public"
    yield from _describe_vectors(plan, adjusted)
    for clamp in plan.clamps:
        yield f"  {_describe_clamp(plan, clamp)}"
    for ranked in plan.quantiles:
        law = ranked.describe() if ranked.is_public else f"{ranked.mechanism.describe()} (in steps of rank)"
        yield f"  {ranked.statistic}: {law}"
    for item in part.release.aggregations:
        yield f"  {notices.format_call(item)}: {_describe_expected_error(adjusted, item, confidence)}"
    for candidate in plan.candidates[1:]:
        ratio = math.exp(min(candidate.score - plan.candidates[0].score, 700.0))  # still a float
        worse = (
            "the error"
            if part.release.aggregations
            else "the units in a group that is released with probability 1/2"
        )
        yield f"  not chosen: {candidate.name}, with {ratio:.2f} times {worse}"


def _describe_vectors(plan: MeasurementPlan, adjusted: MeasurementPlan) -> Iterator[str]:
    """Yield the noisy vectors, and whether they are made consistent with other releases afterwards."""
    for measurement, after in zip(plan.vectors, adjusted.vectors, strict=True):
        noise = f"{_format_sensitivities(measurement)}, {measurement.mechanism.describe()} (in steps)"
        if measurement.clamp is not None:
            noise = f"clamping threshold chosen privately; at its expected value, {noise}"
        agrees = "; then totals are made consistent with their parts by least squares, free" * (
            measurement != after
        )
        yield f"  {measurement.vector.name}: {noise}{agrees}"


def _describe_clamp(plan: MeasurementPlan, clamp: Clamp) -> str:
    beyond = f"; then at most {_format_count(clamp.max_n_clipped, 'unit')} beyond it, with {BEYOND_CONFIDENCE:.0%} confidence"
    if clamp.total is None:
        return (
            f"{clamp.statistic}: at most {clamp.upper_limit:,}, declared or derived; "
            f"chosen privately, {clamp.mechanism.describe()}, over {len(clamp.grid)} points; "
            f"expected {clamp.points[0]:,}{beyond}"
        )
    lattice = plan.analysis.measures[clamp.total].lattice
    step = Fraction(1) if lattice is None else lattice.step
    ends = " and ".join(_format_number(sign * clamp.upper_limit * step) for sign in clamp.sides)
    usual = " and ".join(
        _format_number(sign * point * step) for sign, point in zip(clamp.sides, clamp.points, strict=True)
    )
    return (
        f"{clamp.statistic}: at most {ends}, derived from rows and bounds; "
        f"chosen privately, {clamp.mechanism.describe()}, over {len(clamp.grid)} points; expected {usual}{beyond}"
    )


def _format_sensitivities(measurement: VectorMeasurement) -> str:
    l1, l2 = measurement.sensitivity.l1, math.sqrt(measurement.sensitivity.l2_squared)
    linf = f", l∞ sensitivity {_format_number(measurement.sensitivity.linf)}" * measurement.vector.joint
    return f"l1 sensitivity {_format_number(l1)}, l2 sensitivity {l2:,.6g}{linf}"


def _describe_expected_error(plan: MeasurementPlan, item: Aggregation, confidence: float) -> str:
    """Return the half-width that holds with this confidence, as far as it is known beforehand."""
    place = plan.find_quantile_index(item)
    if place is not None:
        if plan.quantiles[place].is_public:
            return "free"
        rows = plan.quantiles[place].bound_row_error(confidence)
        return f"expected to be at most {rows:,.4g} rows from its rank, with {100 * confidence:.12g}% probability"
    half = predict_half_width(plan, item, confidence)
    if half is None:
        return (
            f"expected 95% half-width about {1.96 * compute_predicted_std(plan, item):,.4g} / number of rows"
        )
    block, _ = plan.get_estimator(get_statistic(plan.analysis, item, AGGREGATES[item.function].moments[0]))
    learnt = " if the clamp is as expected" * (plan.vectors[block].clamp is not None)
    return f"expected {100 * confidence:.12g}% half-width {half:,.4g}{learnt}"


def _describe_charge(engine: Engine, prepared: QueryRun, quotes: Sequence[Quote]) -> Iterator[str]:
    yield "Price"
    several = len(prepared.releases) > 1
    for number, part in enumerate(prepared.releases, 1):
        if part.replayed_release is not None:
            what = f"release {number}" if several else "the release"
            yield f"  {what} is stored (ledger entry {', '.join(map(str, part.replayed_release.entries))}): replayed free"
        if part.refinement is not None:
            what = f"release {number}" if several else "the release"
            yield (
                f"  {what} refines a stored release (ledger entry {part.refinement.entry}): "
                "only the difference is charged"
            )
    if not quotes:
        yield "  nothing"
        return
    yield from _describe_target(engine, prepared)
    for quote in quotes:
        account = engine.get_account(quote.table)
        unit = account.accountant.symbol
        loss, left = float(quote.charge.loss_fraction), float(quote.remaining.loss_fraction)
        verdict = "" if quote.fits else "; REFUSED: the budget is too small"
        yield (
            f"  {_describe_account(prepared, quote)}: {unit} = {loss:.4g} and δ = {float(quote.charge.delta_fraction):.3g}, "
            f"as for ε = {float(prepared.terms.epsilon):g}; left {unit} = {left:.4g}{verdict}"
        )


def _describe_target(engine: Engine, prepared: QueryRun) -> Iterator[str]:
    """Yield the requested accuracy, and what is known of its price before anything is released."""
    target, epsilon = prepared.terms.target, float(prepared.terms.epsilon)
    if target is None:
        return
    if target.relative_error is None:
        yield f"  requested {target}: ε = {epsilon:g} is the smallest that meets it"
        return
    most, whose = build_loss_search(engine, prepared, target).compute_epsilon_limit()
    yield f"  requested {target}: the ε that it needs depends on released values, and is not known beforehand"
    yield f"  first step: ε = {epsilon:g}, if nothing was released before; at most {STEPS} steps"
    yield f"  all steps together: at most as for ε = {float(most):g}, {whose}; less if the target is met, or found to be out of reach, earlier"


def _describe_account(prepared: QueryRun, quote: Quote) -> str:
    """Return the account that is charged, with the part of its table."""
    name = f"{quote.table} for {quote.analyst}" if quote.analyst else quote.table
    part = describe_box(quote.box, [part.plan.analysis.release for part in prepared.releases])
    return f"{name}, only {part}" if part else name


def _format_count(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _format_number(value: Fraction) -> str:
    return f"{value.numerator:,}" if value.denominator == 1 else f"{float(value):.6g}"
