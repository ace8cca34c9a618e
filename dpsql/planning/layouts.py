"""Which statistics are noised together: every way to serve those that are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from dpsql.aggregates import Moment
from dpsql.analysis.analyse import Analysis
from dpsql.analysis.lattice import Lattice
from dpsql.planning.joint import always_there, joint_blocks
from dpsql.planning.statistics import (
    ROWS,
    UNITS,
    Block,
    Statistic,
    count_block,
    distinct_block,
    filled_block,
    partition_block,
    presence_block,
    rows_block,
    total_block,
    units_block,
)


def layouts(analysis: Analysis, wanted: Mapping[Statistic, None]) -> Iterator[tuple[Block, ...]]:
    """Every way to serve the needed statistics: block by block, or joint.

    COUNT(*) is measured alone, or carried by one of the measures. Where one row of a unit counts, units
    are rows; otherwise they are measured alone, or fill up what counts the rows.
    """
    if UNITS in wanted and analysis.bound.rows == 1:
        wanted = {**wanted, ROWS: None}
    distinct = [distinct_block(index) for index, measure in enumerate(analysis.measures) if measure.distinct]
    units = [units_block()] if UNITS in wanted and analysis.bound.rows > 1 else []
    fewest = len(analysis.measures) + 1
    for blocks in _apart(analysis, wanted):
        fewest = min(fewest, len(blocks))
        yield tuple(_implying(analysis, (*blocks, *distinct, *units)))
    of_rows = {Moment.ROWS, Moment.COUNT, Moment.TOTAL}.intersection(moment for moment, _ in wanted)
    for blocks in _apart(analysis, {**wanted, ROWS: None}) if units and of_rows else ():
        most = analysis.bound.rows
        filled = (block if block.weights(ROWS) is None else filled_block(block, most) for block in blocks)
        yield (*filled, *distinct)
    for block in joint_blocks(analysis, wanted):
        if fewest + bool(block.unit_extent) > 1:
            yield (block, *distinct, *([] if block.unit_extent else units))


def _apart(analysis: Analysis, wanted: Mapping[Statistic, None]) -> Iterator[list[Block]]:
    """A block for each measure, and one for COUNT(*) or a measure that carries it."""
    carriers: list[int | None] = [None]
    if ROWS in wanted:
        carriers += [index for index in range(len(analysis.measures)) if _carries(analysis, index)]
    for carrier in carriers:
        blocks = [
            _measure_block(analysis, index, wanted, with_rows=index == carrier)
            for index, measure in enumerate(analysis.measures)
            if measure.rows
        ]
        yield blocks + [rows_block()] * (ROWS in wanted and carrier is None)


def _implying(analysis: Analysis, blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks, with what they say besides: where one row of a unit counts, as many units as rows do."""
    for block in blocks:
        yield block.serving(UNITS, ROWS) if analysis.bound.rows == 1 else block


def _carries(analysis: Analysis, index: int) -> bool:
    measure = analysis.measures[index]
    there = always_there(analysis, index)
    return measure.rows and (measure.lattice is None or measure.lattice.width > 0 or there)


def _measure_block(
    analysis: Analysis, index: int, wanted: Mapping[Statistic, None], *, with_rows: bool
) -> Block:
    lattice, count = analysis.measures[index].lattice, (Moment.COUNT, index)
    if with_rows and always_there(analysis, index):
        return _measure_block(analysis, index, {**wanted, count: None}, with_rows=False).serving(ROWS, count)
    if lattice is None:
        return presence_block(index) if with_rows else count_block(index, Lattice(0, 0, 1))
    if lattice.width == 0:
        return count_block(index, lattice)
    if with_rows or count in wanted:
        return partition_block(index, lattice, with_rows=with_rows)
    return total_block(index, lattice)
