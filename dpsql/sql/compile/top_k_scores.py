"""Emit the scores of groups for top-k selection, with the contribution of each unit clamped."""

from __future__ import annotations

from dpsql.analysis.release_analysis import Analysis
from dpsql.plan.aggregates import AGGREGATES, Moment
from dpsql.planning.group_selection import TopKSelection
from dpsql.sql.compile.dialect import get_dialect
from dpsql.sql.compile.group_keys import emit_key_values
from dpsql.sql.compile.relations import emit_rows
from dpsql.sql.compile.unit_sums import emit_measure_total

SCORE = "score"
"""The column of a group's score."""


def emit_scores(analysis: Analysis, top_k: TopKSelection) -> str:
    """Return the query for the group keys and the score of each group that has rows."""
    (item,) = analysis.release.aggregations
    (moment,) = AGGREGATES[item.function].moments
    keys = [key.name for key in analysis.release.keys]
    by = ", ".join(keys)
    share = f"LEAST(GREATEST({_emit_unit_score(analysis, moment)}, {top_k.low}), {top_k.high})"
    if analysis.bound.per_unit:
        source = f"SELECT {by}, {share} AS s\n  FROM {get_dialect().queries.emit_derived_table(emit_rows(analysis))}\n  GROUP BY u, {by}"
        body = f"SELECT {by}, SUM(s) AS score\nFROM {get_dialect().queries.emit_derived_table(source)}\nGROUP BY {by}"
    else:
        body = f"SELECT {by}, {_emit_unit_score(analysis, moment)} AS score\nFROM {get_dialect().queries.emit_derived_table(emit_rows(analysis))}\nGROUP BY {by}"
    texts = emit_key_values(analysis)
    if texts:
        body = f"SELECT {', '.join(f'{texts.get(key, key)} AS {key}' for key in keys)}, score\nFROM {get_dialect().queries.emit_derived_table(body)}"
    return f"{body}\nORDER BY {', '.join(f'{key} NULLS LAST' for key in keys)}"


def _emit_unit_score(analysis: Analysis, moment: Moment) -> str:
    match moment:
        case Moment.ROWS:
            return "COUNT(*)"
        case Moment.UNITS:
            return "1" if analysis.bound.per_unit else "COUNT(*)"
        case Moment.COUNT:
            return "COUNT(x0)"
        case _:
            return f"COALESCE({emit_measure_total(analysis.measures[0], 0)}, 0)"
