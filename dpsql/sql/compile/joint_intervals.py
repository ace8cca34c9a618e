"""Emit the groups of a release with the histograms of its clamps, in one pass over the unit-group pairs.

A joint interval is an interval for each clamp. Where these are too many, a pair becomes a row for each histogram, so that the
work is linear in the number of histograms.

Claim: a histogram has the totals that the pairs of its group and interval add up to, and no pair is missing from any.
Why: each pair is in one joint interval, and each joint interval in one interval of each histogram; so sums over the joint
intervals with an interval are sums over its pairs. These are added up by one histogram at a time, whose intervals are never
NULL where those of the others are. A pair has one row with the number of a histogram, with its interval there, and one of
each number of totals, without an interval.
Source: Gray et al. 1997, "Data cube: a relational aggregation operator", section 3 (sums of sums).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

from dpsql.analysis.release_analysis import Analysis
from dpsql.planning.clamp_histogram import list_clamp_targets
from dpsql.planning.clamping import Amount, Clamp
from dpsql.sql.compile.columns import name_group_keys, name_histogram
from dpsql.sql.compile.contribution_bounds import (
    COUNTED,
    NOTHING,
    Summand,
    build_clamp_summands,
    emit_interval_index,
)
from dpsql.sql.compile.lattice import UnitSums

MOST_JOINT = 2**20
"""With at most so many joint intervals, pairs are summed by these first, then by intervals."""
MOST_LISTED = 2**16
"""With at most so many, histograms have an interval once for each joint interval that it is in."""


def bound_joint_intervals(analysis: Analysis, clamps: Sequence[Clamp]) -> float:
    """Return the most joint intervals of all groups together; infinite if the groups are not known."""
    if analysis.release.keys and analysis.domains is None:
        return inf
    sizes = [
        len(clamp.grid) + 1 for clamp in clamps for _ in range(len(clamp.sides) * _count_contributions(clamp))
    ]
    return prod(map(len, analysis.domains or ())) * prod(sizes)


def _count_contributions(clamp: Clamp) -> int:
    """Return the number of a unit's contributions to a group that are compared with the grid of a clamp, on one side."""
    return len(clamp.measures) if clamp.amount is Amount.ROWS and not clamp.across_groups else 1


def emit_histograms(sums: UnitSums, clamps: Sequence[Clamp]) -> str:
    """Return the groups of `COUNTED`: their keys, units, rows and sums, then the list `s0`, `s1`, … of each target of the clamps.

    An interval of a list is the index of its point and the totals that `ClampHistogram` documents. Groups below the minimum
    frequency are included. If such a group were left out, one unit could change the histograms by the contributions of all
    its units.
    """
    compiler, keys = sums.compiler, name_group_keys(sums.analysis.release)
    joint, most = _JointIntervals(sums, clamps), bound_joint_intervals(sums.analysis, clamps)
    source, intervals = joint.emit_pairs(keys), list(joint.intervals.values())
    grouped = f"\nGROUP BY {', '.join(keys)}" * bool(keys)
    if most > MOST_JOINT and not compiler.dialect.capabilities.materializes_ctes:
        # If the engine materializes rows, stages run instead of such a statement.
        source, items = joint.emit_histogram_rows(source, keys)
        return f"SELECT {', '.join([*keys, *items])}\nFROM {compiler.dialect.queries.emit_derived_table(source)}{grouped}"
    if most <= MOST_JOINT:
        source = compiler.dialect.queries.emit_coalesced_query(
            joint.emit_sums(source, [*keys, *intervals], pairs=True)
        )
    if most > MOST_LISTED:
        sets = ", ".join(f"({', '.join([*keys, name])})" for name in intervals)
        by = f"GROUPING SETS ({sets})"
        source = joint.emit_sums(source, [*keys, *intervals], pairs=most > MOST_JOINT, by=by)
    listed = ", ".join([*keys, *joint.emit_totals(), *joint.emit_lists()])
    return f"SELECT {listed}\nFROM {compiler.dialect.queries.emit_derived_table(source)}{grouped}"


class _JointIntervals:
    """The intervals of pairs and their summed columns, as texts by name."""

    def __init__(self, sums: UnitSums, clamps: Sequence[Clamp]) -> None:
        self.compiler = sums.compiler
        self.intervals: dict[str, str] = {}
        self._contribution_names: dict[str, str] = {}  # with many thresholds, so these are computed once
        self._summand_names: dict[Summand, str] = {}
        self._totals = {name: self._name_summand(part) for name, part in sums.pair_summands.items()}
        self._lists: list[tuple[str, list[str]]] = []
        apart = {clamp.total for clamp in clamps} - {None}
        for target in list_clamp_targets(clamps):
            clamp = clamps[target.clamp]
            compared, summed = build_clamp_summands(self.compiler, sums.analysis, clamp, target)
            if clamp.total is None and target.measure in apart:
                # A total that has its own clamp is not read here.
                summed = (*summed[:2], NOTHING, NOTHING, *summed[4:])
            interval = emit_interval_index(
                self.compiler,
                self._contribution_names.setdefault(
                    compared, f"compared_{len(self._contribution_names) + 1}"
                ),
                clamp,
            )
            name = self.intervals.setdefault(interval, f"interval_{len(self.intervals) + 1}")
            self._lists.append((name, [self._name_summand(part) for part in summed]))

    def _name_summand(self, part: Summand) -> str:
        return self._summand_names.setdefault(part, f"summand_{len(self._summand_names) + 1}")

    def emit_pairs(self, keys: Sequence[str]) -> str:
        """Return the query of all pairs, with their intervals and summed columns."""
        named = [*self.intervals.items(), *((part.text, name) for part, name in self._summand_names.items())]
        compared = [f"{text} AS {name}" for text, name in self._contribution_names.items()]
        source = self.compiler.dialect.queries.emit_derived_table(
            f"SELECT {', '.join(['*', *compared])} FROM {COUNTED}", once=True
        )
        return f"SELECT {', '.join([*keys, *(f'{text} AS {name}' for text, name in named)])}\n  FROM {source}"

    def emit_sums(self, source: str, columns: Sequence[str], *, pairs: bool, by: str = "") -> str:
        """Return the query of the sums over pairs, or over sums, by these columns or by sets of them."""
        sums = (
            f"{Summand(name, part.max_magnitude).emit_sum(self.compiler) if pairs else f'SUM({name})'} AS {name}"
            for part, name in self._summand_names.items()
        )
        return f"SELECT {', '.join([*columns, *sums])}\n  FROM {self.compiler.dialect.queries.emit_derived_table(source)}\n  GROUP BY {by or ', '.join(columns)}"

    def emit_histogram_rows(self, source: str, keys: Sequence[str]) -> tuple[str, list[str]]:
        """Return the query of the totals and intervals of each group and number, and the totals and lists of a group, picked from it.

        The first numbers are those of the histograms, whose lists differ in width; the totals are spread over further ones.
        """
        widths = sorted({len(parts) for _, parts in self._lists})
        columns, totals = [f"sum_{place + 1}" for place in range(widths[-1])], list(self._totals)
        rows = [(interval, parts) for interval, parts in self._lists]
        starts = range(0, len(totals), len(columns))
        rows += [("NULL", [self._totals[name] for name in totals[at : at + len(columns)]]) for at in starts]
        limits = {name: part.max_magnitude for part, name in self._summand_names.items()}
        most = [max(limits[parts[at]] for _, parts in rows if at < len(parts)) for at in range(len(columns))]
        written = [
            [str(number), interval]
            + [
                self.compiler.dialect.integers.to_wide_int(name, limit)
                for name, limit in zip([*parts, *"0" * 9], most, strict=False)
            ]
            for number, (interval, parts) in enumerate(rows)
        ]
        pairs = self.compiler.dialect.queries.emit_derived_table(
            self.compiler.dialect.queries.emit_unpivot(
                source, keys, written, ["histogram_number", "interval_index", *columns]
            )
        )
        sums = [
            f"{Summand(name, limit).emit_sum(self.compiler)} AS {name}"
            for name, limit in zip(columns, most, strict=True)
        ]
        by = ", ".join([*keys, "histogram_number"])
        intervals = self.compiler.dialect.queries.emit_derived_table(
            f"SELECT {by}, interval_index, {', '.join(sums)}\n  FROM {pairs}\n  GROUP BY {by}, interval_index"
        )
        found = [f"SUM({name}) AS {name}" for name in columns]
        found += [
            f"{self._emit_list('interval_index', columns[:width])} AS list_of_{width}" for width in widths
        ]
        numbers = f"SELECT {by}, {', '.join(found)}\n  FROM {intervals}\n  GROUP BY {by}"
        at = {
            name: (columns[place % len(columns)], len(self._lists) + place // len(columns))
            for place, name in enumerate(totals)
        }
        at |= {
            name_histogram(place): (f"list_of_{len(parts)}", place)
            for place, (_, parts) in enumerate(self._lists)
        }
        picked = [
            f"MAX({column}) FILTER (WHERE histogram_number = {number}) AS {name}"
            for name, (column, number) in at.items()
        ]
        return numbers, picked

    def emit_totals(self) -> list[str]:
        """Return the query of the sums over all pairs of a group, by one of the histograms."""
        first = next(iter(self.intervals.values()))
        return [
            f"SUM({part}) FILTER (WHERE {first} IS NOT NULL) AS {name}" for name, part in self._totals.items()
        ]

    def emit_lists(self) -> list[str]:
        """Return the list of each target."""
        return [
            f"{self._emit_list(interval, parts)} AS {name_histogram(place)}"
            for place, (interval, parts) in enumerate(self._lists)
        ]

    def _emit_list(self, interval: str, parts: Sequence[str]) -> str:
        found = [self.compiler.dialect.integers.to_wide_int(name) for name in (interval, *parts)]
        return self.compiler.dialect.lists.emit_tuple_list_aggregate(found, interval)
