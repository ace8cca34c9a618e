"""A plan in a few lines, for fixtures: what is put out, grouped, measured, read and ordered.

Relations are written as SQL would write them, in the order in which they are joined, with what is proved of
the privacy unit in brackets: how a table finds it (`[visit_id -> visits.visit_id]`), and whether private
rows meet `[on the unit]`, which the join's condition sees to, or `[within a unit]`, which is enforced. An
answer that is released or computed before is a block of its own, and so is a subquery's value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from dpsql.engine.query_run import QueryRun
from dpsql.plan.aggregates import AGGREGATES
from dpsql.plan.aggregates.per_unit import WITHIN
from dpsql.plan.expressions import Call, Column, Expr, ReleasedColumn, Scalar
from dpsql.plan.nodes import (
    Aggregation,
    Filter,
    Join,
    OuterQuery,
    Output,
    PerUnitAggregate,
    PerUnitGroupBy,
    PerUnitWindows,
    Project,
    PublicSubquery,
    Relation,
    Release,
    Scan,
    SemiJoin,
    SetOperation,
    Source,
    Values,
    is_private,
)
from dpsql.plan.steps import format_percent, list_steps
from dpsql.plan.text import format_expression


def summary(prepared: QueryRun) -> str:
    """What a prepared query means."""
    return "\n".join(_Summary(prepared).lines())


@dataclass
class _Summary:
    prepared: QueryRun
    answers: list[PublicSubquery] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield from self._outer_query(self.prepared.outer)
        for step in list_steps(self.prepared.outer):
            if isinstance(step, Scalar):
                yield "VALUE"
                yield from (f"  {line}" for line in self._outer_query(step.outer))
        for number, answer in enumerate(self.answers, 1):
            yield f"ANSWER {number}"
            yield from (f"  {line}" for line in self._outer_query(answer.outer))
        if self.prepared.explain:
            yield "EXPLAIN"

    def _outer_query(self, outer: OuterQuery) -> Iterator[str]:
        names = _names(outer)
        shown = (_output(output, names) for output in outer.outputs)
        yield f"SELECT {'DISTINCT ' * outer.distinct}{', '.join(shown)}"
        if isinstance(outer.source, Release):
            yield from self._release(outer.source)
        else:
            yield f"FROM {self._relation(outer.source)}"
        if outer.having is not None:
            yield f"HAVING {format_expression(outer.having, names)}"
        if outer.qualify is not None:
            yield f"QUALIFY {format_expression(outer.qualify, names)}"
        for item in outer.order:
            direction = " DESC" if item.descending else ""
            nulls = " NULLS FIRST" if item.nulls_first else ""
            yield f"ORDER BY {format_expression(item.expr, names)}{direction}{nulls}"
        if outer.limit is not None or outer.offset:
            yield f"LIMIT {outer.limit} OFFSET {outer.offset}"

    def _release(self, release: Release) -> Iterator[str]:
        (analysis,) = (part.plan.analysis for part in self.prepared.releases if part.release == release)
        for index, key in enumerate(release.keys):
            known = "secret" if analysis.domains is None else f"{len(analysis.domains[index])} values"
            yield f"BY {format_expression(key.expr)}: {known}"
        for measure in analysis.measures:
            if measure.lattice is not None:
                yield f"OF {format_expression(measure.expr)} in {measure.interval}"
        if release.top is not None:
            (item,) = release.aggregations
            which = "GREATEST" if release.top.descending else "LEAST"
            yield f"CHOSEN {release.top.count} OF {which} {_call(item)}"
        yield f"FROM {self._relation(release.input)}"

    def _relation(self, relation: Relation) -> str:
        match relation:
            case Filter():
                return f"{self._relation(relation.input)} WHERE {format_expression(relation.predicate)}"
            case Join():
                return f"{self._relation(relation.left)} {relation.kind.value} JOIN {self._joined(relation)}"
            case SemiJoin():
                found = (
                    f"WITH{'OUT' * relation.anti} A MATCH{' [within a unit]' * is_private(relation.right)}"
                )
                right = self._source(relation.right)
                return (
                    f"{self._relation(relation.input)} {found} IN {right} ON {format_expression(relation.on)}"
                )
            case _:
                return self._source(relation)

    def _joined(self, join: Join) -> str:
        pairs = (f"{format_expression(ours)} = {_qualified(theirs)}" for ours, theirs in join.on)
        on = [*pairs, *([] if join.condition is None else [format_expression(join.condition)])]
        unit = f" [{'on the' if join.proven else 'within a'} unit]" * is_private(join.right)
        return f"{self._source(join.right)} ON {' AND '.join(on) or 'TRUE'}{unit}"

    def _source(self, source: Source) -> str:
        if isinstance(source, Scan):
            return f"{_scan(source)}{_known_as(source.alias, source.table)}"
        return f"{self._body(source)}{_known_as(source.alias)}"

    def _body(self, source: Source) -> str:
        match source:
            case Project():
                return self._select(source)
            case PerUnitGroupBy():
                named = zip(
                    (*map(format_expression, source.keys), *map(_aggregate, source.aggregates)),
                    source.columns,
                    strict=True,
                )
                shown = ", ".join(f"{text} AS {name}" for text, name in named)
                by = f" GROUP BY {', '.join(map(format_expression, source.keys))}" * bool(source.keys)
                return f"(SELECT {shown} FROM {self._relation(source.input)}{by})"
            case PerUnitWindows():
                shown = ", ".join(
                    f"{format_expression(window)} AS {name}"
                    for window, name in zip(source.windows, source.columns[len(source.items) :], strict=True)
                )
                return f"(WITHIN A UNIT {shown} FROM {self._relation(source.input)})"
            case SetOperation():
                return f"({self._body(source.left)} {source.kind.value} {self._body(source.right)})"
            case PublicSubquery():
                if source not in self.answers:
                    self.answers.append(source)
                return f"answer {self.answers.index(source) + 1}"
            case Values():
                return f"(VALUES {', '.join(map(str, source.rows))})"
            case _:
                return self._source(source)

    def _select(self, project: Project) -> str:
        """A derived table; where it groups, its items are shown over what is grouped."""
        inner, having = project.input, ""
        shown: Callable[[Expr], str] = format_expression
        if isinstance(inner, Filter) and isinstance(inner.input, PerUnitGroupBy):
            inner, having = inner.input, f" HAVING {_over(inner.input)(inner.predicate)}"
        grouped = ""
        if isinstance(inner, PerUnitGroupBy):
            shown, grouped = (
                _over(inner),
                f" GROUP BY {', '.join(map(format_expression, inner.keys))}" * bool(inner.keys),
            )
            inner = inner.input
        items = ", ".join(
            _item(shown(item), name) for item, name in zip(project.items, project.columns, strict=True)
        )
        return (
            f"(SELECT {'DISTINCT ' * project.distinct}{items} FROM {self._relation(inner)}{grouped}{having})"
        )


def _scan(scan: Scan) -> str:
    if scan.sample is not None:
        return f"{_scan(replace(scan, sample=None))} [{format_percent(scan.sample)} of the units]"
    link = scan.unit.link
    if link is not None:
        return f"{scan.table} [{link.column} -> {link.owner.table}.{link.key}]"
    return f"{scan.table} [joined]" if scan.unit.private and not scan.unit.is_known else scan.table


def _known_as(alias: str, table: str = "") -> str:
    return "" if alias == table or alias.startswith("#") else f" AS {alias}"


def _qualified(column: Column) -> str:
    return str(column) if column.source.startswith("#") else f"{column.source}.{column}"


def _over(grouped: PerUnitGroupBy) -> Callable[[Expr], str]:
    """Phrases expressions over groups with what the groups' columns hold."""
    texts = [*map(format_expression, grouped.keys), *map(_aggregate, grouped.aggregates)]
    meant = dict(zip(grouped.columns, texts, strict=True))
    return lambda expr: format_expression(_substituted(expr, meant))


def _substituted(expr: Expr, meant: Mapping[Column, str]) -> Expr:
    if isinstance(expr, Column):
        return ReleasedColumn(meant[expr], expr.type) if expr in meant else expr
    if isinstance(expr, Call):
        return Call(expr.function, tuple(_substituted(part, meant) for part in expr.arguments), expr.type)
    return expr


def _aggregate(item: PerUnitAggregate) -> str:
    return WITHIN[item.function].format_call(*map(format_expression, item.arguments), rank=item.rank)


def _call(item: Aggregation) -> str:
    entry = AGGREGATES[item.function]
    return (
        entry.signature
        if item.argument is None
        else entry.format_call(format_expression(item.argument), item.rank, item.interval_end)
    )


def _item(text: str, name: Column) -> str:
    return (
        text
        if text.lower() == name.name.lower() or not re.fullmatch(r"[\w ]+", name.name)
        else f"{text} AS {name}"
    )


def _output(output: Output, names: Mapping[str, str]) -> str:
    """An output with its alias; names that are made of the expression say nothing more."""
    text = format_expression(output.expr, names)
    alias = re.fullmatch(r"[\w ]+", output.name) and output.name.lower() != text.lower()
    return f"{text} AS {output.name}" if alias else text


def _names(outer: OuterQuery) -> dict[str, str]:
    if not isinstance(outer.source, Release):
        return {}
    names = {key.name: format_expression(key.expr) for key in outer.source.keys}
    return names | {item.name: _call(item) for item in outer.source.aggregations}
