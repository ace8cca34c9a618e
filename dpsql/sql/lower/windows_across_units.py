"""Rewrite windows over rows of several privacy units as released values of their partitions, to which each row is joined.

`SELECT x, AVG(x) OVER (PARTITION BY k) AS m FROM t` is `SELECT x, w.m FROM t LEFT JOIN (SELECT k, AVG(x) AS m FROM t GROUP BY k) AS w
ON t.k IS NOT DISTINCT FROM w.k`. A window value of each row cannot be computed over private rows; the values of the groups can be
released, and rows are compared with what is released.

Claim: an aggregate over the whole partition means in the rewritten query what it means in the original. NTILE(n) numbers a row by its
place among the quantiles i / n: that is its number if no two values are equal, but that a limit may be up to n / 4 rows elsewhere.
Why: the partition of a row is the group with its keys, of which there is one, so that the LEFT JOIN keeps each row once. The first i
of n parts are the rows up to the position CEIL(i * rows / n), apart from where the longer parts are; the quantile i / n is the value
there. NULL is counted as the end of the bounds at which it is sorted. Nothing is released that the rewritten query does not release.
Source: ISO/IEC 9075-2, <window clause> and <group by clause>; Hyndman, Fan 1996, "Sample quantiles in statistical packages", definition 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType

from sqlglot import exp

from dpsql.plan.expressions import FrameKind
from dpsql.policy import normalize_name
from dpsql.sql.lower.aggregates import AGGREGATE_CALLS
from dpsql.sql.lower.aggregates.quantiles import NULLS_PLACED
from dpsql.sql.lower.group_conditions import wrap_groups
from dpsql.sql.lower.grouping import WITHOUT_WINDOWS, format_output_name
from dpsql.sql.lower.node_kinds import has_aggregate
from dpsql.sql.lower.rank_shares import Cut, choose_representatives, find_cuts
from dpsql.sql.lower.row_positions import is_modelled, read_number
from dpsql.sql.lower.statement_context import CrossingWindow
from dpsql.sql.parse.rejection import QueryText, format_sql

_KNOWN = frozenset(
    {
        "expressions", "from_", "joins", "where", "qualify", "windows", "distinct", "order", "limit", "offset", "with_",
        "group", "having",
    }
)  # fmt: skip
_RELEASED = "released_windows"
"""The mark of a join with released values, which neither adds nor removes rows."""
_AGGREGATES = frozenset(node for entry in AGGREGATE_CALLS for node in entry.nodes)
_MOST_NODES = 1_500
"""The most nodes of a statement whose windows are rewritten."""
_MOST_PARTS = 100
"""The most parts of NTILE: each limit is a released quantile."""
_MOST_BUILT = 1_500
"""The most nodes that are built of the values which are compared with limits, each as often as it is compared."""
_FRAME = ("kind", "start", "start_side", "end", "end_side")
_BEYOND = Fraction(1, 10**6)
"""What is added to a share counted from the greatest value, so that it is the next value where it falls between two."""


@dataclass(frozen=True, slots=True)
class RewrittenWindows:
    """A statement's tree with released values in place of windows, and how its meaning differs."""

    tree: exp.Expr
    notices: tuple[str, ...] = ()


def rewrite_crossing_window(
    source: QueryText, tree: exp.Expr, crossing: CrossingWindow
) -> RewrittenWindows | None:
    """Return a copy of a statement's tree without a window, and those of its SELECT like it; None where it has no released value."""
    if sum(1 for _ in tree.walk()) > _MOST_NODES:
        return None
    windows = list(tree.find_all(exp.Window))
    place = next((at for at, each in enumerate(windows) if each is crossing.node), None)
    if place is None:  # a part of the statement was rewritten before, and holds copies
        place = next((at for at, each in enumerate(windows) if each == crossing.node), None)
    if place is None or tree.find(exp.TableSample) is not None:
        return None  # two releases would read different samples
    copied = tree.copy()
    window = list(copied.find_all(exp.Window))[place]
    select = window.find_ancestor(exp.Select)
    if select is None or not {name for name, value in select.args.items() if value} <= _KNOWN:
        return None
    if _is_grouped(select):
        _replace_arguments(select, wrap_groups(source, select))
        return RewrittenWindows(copied)
    found = CrossingWindow(window, *_copy_definition(crossing), crossing.orders_null)
    rewrite = _WindowRewrite(select, found, _find_free_prefix(copied))
    return RewrittenWindows(copied, tuple(rewrite.notices)) if rewrite.rewrite() else None


def _copy_definition(
    crossing: CrossingWindow,
) -> tuple[Sequence[exp.Expr], exp.Expr | None, exp.Expr | None]:
    order, frame = crossing.order, crossing.frame
    return (
        [part.copy() for part in crossing.partition],
        None if order is None else order.copy(),
        None if frame is None else frame.copy(),
    )


def _is_grouped(select: exp.Select) -> bool:
    parts = [*select.expressions, *filter(None, [select.args.get("order"), select.args.get("qualify")])]
    return bool(select.args.get("group") or select.args.get("having")) or any(map(has_aggregate, parts))


def _replace_arguments(select: exp.Select, built: exp.Select) -> None:
    for name in {*select.args, *built.args}:
        select.set(name, built.args.get(name))


def _find_free_prefix(tree: exp.Expr) -> str:
    """Return a prefix that no name of the statement has."""
    names = {normalize_name(str(part.this)) for part in tree.find_all(exp.Identifier)}
    number = 1
    while any(name.startswith(f"window_{number}_") for name in names):
        number += 1
    return f"window_{number}_"


# The values of a window: the aggregates that are released for each partition, and what each row has of them.


@dataclass(frozen=True, slots=True)
class _WindowValues:
    """The aggregates of a partition that a window is computed from, the value of a row, and how its meaning differs.

    `work` is the number of nodes that are built, beside those of the window itself.
    """

    aggregates: Sequence[exp.Expr]
    build: Callable[[Sequence[exp.Expr]], exp.Expr]
    notice: str
    work: int = 0


def _read_aggregate(window: CrossingWindow) -> _WindowValues | None:
    """Return the aggregate over the whole partition; None where a row has one over a part of it."""
    call = window.node.this
    called = call.this if type(call) is exp.Filter else call
    whole = window.order is None if window.frame is None else _is_whole_frame(window.frame)
    if not whole or type(called) not in _AGGREGATES or call.find(exp.Window, exp.Query) is not None:
        return None
    return _WindowValues(
        [call],
        lambda found: found[0],
        f"{format_sql(window.node)} is a released value of each partition: rows are compared with its noisy value, and have NULL where "
        "the partition is not released.",
    )


def _is_whole_frame(frame: exp.Expr) -> bool:
    kind, *ends = (str(frame.args.get(name)).upper() for name in _FRAME)
    whole = kind in FrameKind.__members__ and ends == ["UNBOUNDED", "PRECEDING", "UNBOUNDED", "FOLLOWING"]
    return whole and is_modelled(frame, deep=False, read=_FRAME)


def _read_ordered(window: CrossingWindow) -> exp.Ordered | None:
    """Return the one value by which rows are ordered."""
    if window.order is None or window.frame is not None or not is_modelled(window.order, deep=False):
        return None
    items = window.order.expressions
    found = items[0] if len(items) == 1 else None
    if type(found) is not exp.Ordered or not is_modelled(found, deep=False):
        return None
    return None if found.find(exp.Window, exp.Query, exp.AggFunc) is not None else found


def _read_ntile(window: CrossingWindow) -> _WindowValues | None:
    """Return the quantiles between the parts, and the part of a row as a comparison with them."""
    ordered, number = _read_ordered(window), read_number(window.node.this.this)
    if ordered is None or number is None or number.denominator != 1 or not 1 <= number <= _MOST_PARTS:
        return None
    parts, value, descending = int(number), ordered.this, bool(ordered.args.get("desc"))
    work = _count_built(ordered, parts)
    if work > _MOST_BUILT:
        return None
    limits = [_build_limit(ordered, Fraction(part, parts)) for part in range(1, parts)]

    def build_part(found: Sequence[exp.Expr]) -> exp.Expr:
        compare = exp.GTE if descending else exp.LTE
        is_null = exp.Is(this=value.copy(), expression=exp.Null())
        first = [(is_null, 1)] * (
            bool(ordered.args.get("nulls_first")) or parts == 1
        )  # the value is always read
        within = [(compare(this=value.copy(), expression=limit), part) for part, limit in enumerate(found, 1)]
        branches = [
            exp.If(this=condition, true=exp.Literal.number(part)) for condition, part in (*first, *within)
        ]
        return _build_case(window, found, branches, exp.Literal.number(parts))

    return _WindowValues(
        limits,
        build_part,
        f"NTILE({parts}) by {format_sql(value)} compares each row with released quantiles: rows with equal values are in one part, "
        "so that parts may differ in size.",
        work,
    )


def _count_built(ordered: exp.Ordered, limits: int) -> int:
    """Return the nodes that are built to compare a value with limits."""
    return limits * (sum(1 for _ in ordered.walk()) + 4)


def _build_limit(ordered: exp.Ordered, share: Fraction) -> exp.Expr:
    """Return the value at which the first share of the rows ends, NULL counted where it is sorted."""
    descending, first = bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first"))
    below = min(1 - share + _BEYOND, Fraction(1)) if descending else share
    limit = exp.PercentileDisc(this=ordered.this.copy(), expression=exp.Literal.number(str(float(below))))
    limit.meta[NULLS_PLACED] = "high" if descending == first else "low"
    return limit


def _read_rank(window: CrossingWindow) -> _WindowValues | None:
    """Return the quantiles at the constants with which a rank is compared, and a rank on the same side of them."""
    ordered = _read_ordered(window)
    cuts = None if ordered is None or window.orders_null else find_cuts(window.node)
    if ordered is None or cuts is None or _count_built(ordered, len(cuts)) > _MOST_BUILT:
        return None
    value, descending = ordered.this, bool(ordered.args.get("desc"))
    cumulative = type(window.node.this) is exp.CumeDist
    compare = _BELOW[cumulative, descending]
    places = choose_representatives(cuts)
    limits = [_build_rank_limit(ordered, cut, cumulative=cumulative) for cut in cuts]

    def build_part(found: Sequence[exp.Expr]) -> exp.Expr:
        below = [compare(this=value.copy(), expression=limit) for limit in found]
        branches = [
            exp.If(this=condition, true=exp.Literal.number(str(float(place))))
            for condition, place in zip(below, places, strict=False)
        ]
        return _build_case(window, found, branches, exp.Literal.number(str(float(places[-1]))))

    return _WindowValues(
        limits,
        build_part,
        f"{format_sql(window.node)} compares each row with released quantiles, at the shares with which it is compared: rows with equal "
        "values are on one side.",
        _count_built(ordered, len(cuts)),
    )


_BELOW: Mapping[tuple[bool, bool], type[exp.Expr]] = MappingProxyType(
    {
        (False, False): exp.LTE,
        (False, True): exp.GTE,
        (True, False): exp.LT,
        (True, True): exp.GT,
    }
)
"""How the value of a row below a share compares with the quantile, by whether its rank is cumulative, and descending."""


def _build_rank_limit(ordered: exp.Ordered, cut: Cut, *, cumulative: bool) -> exp.Expr:
    """Return the quantile with which a row is compared.

    CUME_DIST is below q if the value is before the one at the position CEIL(q * n), and q at most if before the one at
    FLOOR(q * n) + 1. PERCENT_RANK is compared with the former, which is one row off at most.
    """
    descending = bool(ordered.args.get("desc"))
    after = cut.closed != descending if cumulative else descending
    share = (1 - cut.share if descending else cut.share) + after * _BEYOND
    return exp.PercentileDisc(
        this=ordered.this.copy(), expression=exp.Literal.number(str(float(min(share, Fraction(1)))))
    )


def _build_case(
    window: CrossingWindow, limits: Sequence[exp.Expr], branches: list[exp.If], last: exp.Expr
) -> exp.Expr:
    """Return a CASE that is NULL in a partition whose limits are not released."""
    if window.partition and limits:
        hidden = exp.Is(this=limits[0].copy(), expression=exp.Null())
        branches = [exp.If(this=hidden, true=exp.Null()), *branches]
    return exp.Case(ifs=branches, default=last) if branches else last


_READERS: Mapping[type[exp.Expr], Callable[[CrossingWindow], _WindowValues | None]] = MappingProxyType(
    {exp.Ntile: _read_ntile, exp.PercentRank: _read_rank, exp.CumeDist: _read_rank}
)
"""How windows are read that are no aggregates, by the node of their function."""


def _read_values(window: CrossingWindow) -> _WindowValues | None:
    """Return the values of a window; None for a window, or a function other than an aggregate, with an unknown argument."""
    node = window.node
    if not is_modelled(node, deep=False, read=("spec", "alias")):
        return None
    read = _READERS.get(type(node.this))
    if read is None:
        return _read_aggregate(window)
    return read(window) if is_modelled(node.this) else None


# Rewrite the SELECT with the windows.


@dataclass(slots=True)
class _WindowRewrite:
    """The SELECT that has a window, and the same with released values in its place; `prefix` begins names that are free."""

    select: exp.Select
    crossing: CrossingWindow
    prefix: str
    notices: list[str] = field(default_factory=list)

    def rewrite(self) -> bool:
        """Rewrite the SELECT; return whether it could be."""
        known: list[tuple[exp.Expr, _WindowValues]] = []
        for window in self._list_alike():  # the window itself is the first
            values = _read_values(window)
            known += [] if values is None else [(window.node, values)]
            if not known or sum(each.work for _, each in known) > _MOST_BUILT:
                return False
        if any(_is_constant(part) for part in self.crossing.partition):
            return False
        self._name_outputs()
        distinct = self.select.args.get("distinct")
        if distinct is not None and not any(distinct.args.values()) and self._has_only(known):
            self._group(known)
            return True
        self.notices += dict.fromkeys(values.notice for _, values in known)
        return self._add_join(known)

    def _list_alike(self) -> list[CrossingWindow]:
        """List the window and the others of the SELECT with the same partition, whose order is not dropped before it is checked."""
        partition = self.crossing.partition
        others = [
            CrossingWindow(
                node,
                partition,
                node.args.get("order"),
                node.args.get("spec"),
                self.crossing.orders_null or node.args.get("order") != self.crossing.order,
            )
            for node in self._iterate_windows()
            if node is not self.crossing.node
            and node.args.get("alias") is None
            and not (node.args.get("order") and node.args.get("spec"))
            and list(node.args.get("partition_by") or []) == list(partition)
        ]
        return [self.crossing, *others]

    def _iterate_windows(self) -> Iterator[exp.Window]:
        """Yield the windows of the SELECT itself, without those that WINDOW defines."""
        for node in self.select.find_all(exp.Window):
            if node.find_ancestor(exp.Select) is self.select and type(node.this) is not exp.Identifier:
                yield node

    def _name_outputs(self) -> None:
        """Give items without a name the name that they have with their windows."""
        items = []
        for item in self.select.expressions:
            if type(item) in (exp.Alias, exp.Column, exp.Star) or item.find(exp.Window) is None:
                items.append(item)
                continue
            name = exp.to_identifier(format_output_name(item), quoted=True)
            items.append(exp.Alias(this=item, alias=name))
        self.select.set("expressions", items)

    def _has_only(self, windows: Sequence[tuple[exp.Expr, _WindowValues]]) -> bool:
        """Return whether all items of the SELECT are computed from the partition's keys and these windows, which are aggregates."""
        known, keys = {id(window) for window, _ in windows}, list(self.crossing.partition)
        if any(type(window.this) in _READERS for window, _ in windows) or self.select.args.get("qualify"):
            return False

        def is_known(node: exp.Expr) -> bool:
            if id(node) in known or node in keys or type(node) is exp.Literal:
                return True
            if isinstance(node, (exp.Column, exp.Star, exp.Query, exp.Window)):
                return False
            return all(map(is_known, node.iter_expressions()))

        return all(is_known(item.unalias()) for item in self.select.expressions)

    def _group(self, known: Sequence[tuple[exp.Expr, _WindowValues]]) -> None:
        """Rewrite distinct values of whole partitions as the groups by their keys."""
        for node, values in known:
            node.replace(values.build([aggregate.copy() for aggregate in values.aggregates]))
        if self.crossing.partition:
            self.select.set("group", exp.Group(expressions=[part.copy() for part in self.crossing.partition]))
        items = [item.unalias() for item in self.select.expressions]
        if all(part in items for part in self.crossing.partition):
            self.select.set("distinct", None)

    def _add_join(self, known: Sequence[tuple[exp.Expr, _WindowValues]]) -> bool:
        """Join the released values of the partition to each row."""
        table = f"{self.prefix}values"
        columns: list[exp.Expr] = []
        conditions: list[exp.Expr] = []

        def add_column(node: exp.Expr) -> exp.Expr:
            name = exp.to_identifier(f"{self.prefix}{len(columns)}")
            columns.append(exp.Alias(this=node.copy(), alias=name))
            return exp.Column(this=name.copy(), table=exp.to_identifier(table))

        given = self.select.args
        joins = [join.copy() for join in given.get("joins") or [] if _RELEASED not in join.meta]
        rows = {"joins": joins} | {name: given[name].copy() for name in ("from_", "where") if given.get(name)}
        conditions += [
            exp.NullSafeEQ(this=exp.Paren(this=part.copy()), expression=add_column(part))
            for part in self.crossing.partition
        ]
        for node, values in known:
            node.replace(exp.Paren(this=values.build([add_column(each) for each in values.aggregates])))
        if not self._exclude_from_stars(columns):
            return False
        if given.get("qualify"):
            given["qualify"].meta[WITHOUT_WINDOWS] = True
        if not columns:
            return True  # NTILE(1)
        inner = exp.Select(expressions=columns, **rows)
        if conditions:
            inner.set("group", exp.Group(expressions=[part.copy() for part in self.crossing.partition]))
        join = exp.Join(
            this=exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(table))),
            **(
                {"side": "LEFT", "on": exp.and_(*conditions, copy=False)} if conditions else {"kind": "CROSS"}
            ),
        )
        join.meta[_RELEASED] = True
        self.select.set("joins", [*(given.get("joins") or []), join])
        return True

    def _exclude_from_stars(self, columns: Sequence[exp.Expr]) -> bool:
        """Leave the released columns out of `*`; return False where a star has another form."""
        for star in [star for item in self.select.expressions for star in item.find_all(exp.Star)]:
            around = star.parent
            if around is self.select:
                names = [exp.Column(this=column.args["alias"].copy()) for column in columns]
                star.set("except_", [*(star.args.get("except_") or []), *names])
            elif type(around) is not exp.Count and not (type(around) is exp.Column and around.table):
                return False
        return True


def _is_constant(part: exp.Expr) -> bool:
    return part.find(exp.Column) is None or part.find(exp.Query) is not None
