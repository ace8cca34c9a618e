"""A plan in a few lines, for fixtures: what is put out, grouped, measured, read and ordered."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from dpsql.aggregates import AGGREGATES
from dpsql.engine import Prepared
from dpsql.plan.nodes import Aggregation, Filter, Join, Output, Post, Relation
from dpsql.plan.tables import Scan
from dpsql.plan.words import phrase


def summary(prepared: Prepared) -> str:
    """What a prepared query means."""
    return "\n".join(_lines(prepared))


def _lines(prepared: Prepared) -> Iterator[str]:
    post, analysis = prepared.post, prepared.plan.analysis
    names = _names(post)
    yield f"SELECT {', '.join(_output(output, names) for output in post.outputs)}"
    for index, key in enumerate(post.release.keys):
        known = "secret" if analysis.domains is None else f"{len(analysis.domains[index])} values"
        yield f"BY {phrase(key.expr)}: {known}"
    for measure in analysis.measures:
        if measure.lattice is not None:
            yield f"OF {phrase(measure.expr)} in {measure.interval}"
    yield f"FROM {_relation(post.release.input)}"
    if post.having is not None:
        yield f"HAVING {phrase(post.having, names)}"
    for item in post.order:
        direction = " DESC" if item.descending else ""
        yield f"ORDER BY {phrase(item.expr, names)}{direction}{' NULLS FIRST' if item.nulls_first else ''}"
    if post.limit is not None or post.offset:
        yield f"LIMIT {post.limit} OFFSET {post.offset}"
    if prepared.explain:
        yield "EXPLAIN"


def _output(output: Output, names: Mapping[str, str]) -> str:
    """An output with its alias; names that are made of the expression say nothing more."""
    text = phrase(output.expr, names)
    alias = re.fullmatch(r"[\w ]+", output.name) and output.name.lower() != text.lower()
    return f"{text} AS {output.name}" if alias else text


def _names(post: Post) -> dict[str, str]:
    names = {key.name: phrase(key.expr) for key in post.release.keys}
    return names | {item.name: _call(item) for item in post.release.aggregations}


def _call(item: Aggregation) -> str:
    signature = AGGREGATES[item.function].signature
    return signature if item.argument is None else signature.replace("x", phrase(item.argument))


def _relation(relation: Relation) -> str:
    match relation:
        case Scan(table=table, alias=alias):
            return table if table == alias else f"{table} AS {alias}"
        case Filter(input=source, predicate=predicate):
            return f"{_relation(source)} WHERE {phrase(predicate)}"
        case Join(left=left, right=right, kind=kind, on=pairs):
            on = " AND ".join(f"{phrase(ours)} = {right.alias}.{theirs}" for ours, theirs in pairs)
            return f"{_relation(left)} {kind.value} JOIN {_relation(right)} ON {on}"
