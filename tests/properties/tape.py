"""Recorded draws: a release on a neighbour has the same ones again, or such that its noisy cells are the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from unittest import mock

from properties.still import First, Lowest

from dpsql.analysis.domains import list_combinations
from dpsql.backends import Exact
from dpsql.engine.release import exact_release as dataflow
from dpsql.engine.release.exact_rows import read_groups
from dpsql.engine.release.noise import ReadGroups, StagedSource, WholeSource
from dpsql.engine.release.released_table import Components, Keys, ReleasedTable
from dpsql.planning.clamping import Clamp
from dpsql.planning.measurement import MeasurementPlan
from dpsql.privacy.mechanisms import Entropy, Mechanism
from dpsql.sql.compile.statement import ReleaseStatement

Place = tuple[int, int, Keys, int]
"""A noisy cell: the number of its release and of its block, its group, its number in the block."""


@dataclass(frozen=True)
class Tape:
    """Recorded draws, each with the noisy cell that it made; `cells` says which of the two comes again.

    `clamps` are those that each release has chosen.
    """

    cells: bool
    recorded: dict[Place, tuple[int, int]] = field(default_factory=dict)
    clamps: dict[int, tuple[Clamp, ...]] = field(default_factory=dict)

    def draw(self, place: Place, exact: int, fresh: int) -> int:
        """The draw for a cell: `fresh` where it is the first."""
        draw, noisy = self.recorded.setdefault(place, (fresh, exact + fresh))
        return noisy - exact if self.cells else draw


@dataclass(frozen=True)
class Measurement:
    """One release: its plan, each group's exact cells and noise, and the released table.

    `draws` is how many each block took. Where keys are secret there are as many groups as the data has, so there it is how
    many there were beyond one for each cell of a group that is noised: none.
    """

    plan: MeasurementPlan
    exact: dict[Keys, Components]
    noise: dict[Keys, Components]
    table: ReleasedTable
    draws: tuple[int, ...]

    @property
    def secret(self) -> bool:
        """Whether keys had to pass a selection."""
        return self.plan.selection is not None

    @property
    def shown(self) -> list[Keys]:
        """The groups of the released table, in its order."""
        return [row[: len(self.plan.analysis.release.keys)] for row in self.table.rows]


@dataclass(frozen=True)
class Taped:
    """A mechanism whose draws are those of the tape.

    `cells` says at the draw which the exact ones of its `block` are, in order; `given` takes the draws, `sizes` their number.
    """

    mechanism: Mechanism
    block: int
    cells: Callable[[], Mapping[Place, int]]
    tape: Tape
    given: dict[Place, int]
    sizes: list[int]

    def draw(self, size: int, entropy: Entropy) -> list[int]:
        """As many draws as asked for; of those beyond the cells nothing is recorded."""
        draws = self.mechanism.draw(size, entropy)
        for at, (place, exact) in enumerate(itertools.islice(self.cells().items(), size)):
            draws[at] = self.given[place] = self.tape.draw(place, exact, draws[at])
        self.sizes[self.block] += size
        return draws


@contextmanager
def recorded_by(tape: Tape, measurements: list[Measurement]) -> Iterator[None]:
    """Keeps what the dataflow releases meanwhile, with noise by the tape."""
    release = dataflow.draw_release

    def recorded(
        plan: MeasurementPlan, statement: ReleaseStatement, exact: Exact, entropy: Entropy
    ) -> ReleasedTable:
        _assert_domain_is_whole(plan, statement, exact)
        number, given, sizes = len(measurements), {}, [0] * len(plan.vectors)
        if plan.top_k is None:
            found = read_groups(plan, statement, exact)
            if any(not clamp.chosen for clamp in plan.clamps):
                chosen_now = WholeSource(found).select_clamps(plan, range(len(plan.clamps)), entropy).clamps
                plan = plan.with_clamps(tape.clamps.setdefault(number, chosen_now))
            counted = list(found.with_clamped_moments(plan.clamps))
        else:
            counted = []
        groups = {
            group.keys: _cells(
                plan,
                lambda block, at, of=group.moments: (
                    plan.vectors[block].vector.components[at].compute_exact(of)
                ),
            )
            for group in counted
        }
        units = dict(zip(groups, found.get_unit_counts(plan), strict=True)) if counted else {}
        deciding = plan.threshold

        def is_noised(block: int, keys: Keys) -> bool:
            """Whether a block is noised in a group: what decides is so in all of them, and the rest in those that are selected."""
            if deciding is None or block == deciding.vector:
                return True
            place = deciding.vector
            noisy = (groups[keys][place][at] + given[number, place, keys, at] for at in deciding.components)
            return units[keys] >= deciding.min_frequency and sum(noisy) >= deciding.threshold

        def cells_of(block: int) -> Mapping[Place, int]:
            noised = (keys for keys in groups if is_noised(block, keys))
            return {
                (number, block, keys, at): x for keys in noised for at, x in enumerate(groups[keys][block])
            }

        blocks = []
        for block, measured in enumerate(plan.vectors):
            taped = Taped(measured.mechanism, block, partial(cells_of, block), tape, given, sizes)
            blocks.append(replace(measured, mechanism=taped))  # type: ignore[arg-type]
        chosen = tuple(
            Lowest(*(getattr(part, item.name) for item in fields(part))) for part in plan.quantiles
        )
        best = plan.top_k and First(*(getattr(plan.top_k, item.name) for item in fields(plan.top_k)))
        held = replace(plan, vectors=tuple(blocks), quantiles=chosen, top_k=best)
        table = release(held, statement, exact, entropy)
        table = replace(table, plan=plan)
        noise = {
            keys: _cells(plan, lambda block, at, of=keys: given.get((number, block, of, at), 0))
            for keys in groups
        }
        # A count that selects groups is noised in all of them, and the rest in those that are shown.
        selects = None if plan.threshold is None else plan.threshold.vector
        expected = [len(groups if place == selects else table.rows) for place in range(len(plan.vectors))]
        if plan.selection is None:
            expected = [0] * len(plan.vectors)
        draws = tuple(
            size - number * len(b.vector.components)
            for size, number, b in zip(sizes, expected, plan.vectors, strict=True)
        )
        measurements.append(Measurement(plan, groups, noise, table, draws))
        return table

    def in_stages(
        plan: MeasurementPlan,
        histograms: Exact,
        read: ReadGroups,
        entropy: Entropy,
    ) -> ReleasedTable:
        number, source = len(measurements), StagedSource.from_histograms(plan, histograms, read)
        chosen = source.select_clamps(plan, range(len(plan.clamps)), entropy).clamps
        plan = plan.with_clamps(tape.clamps.setdefault(number, chosen))
        return recorded(plan, *read(plan), entropy)

    with (
        mock.patch.object(dataflow, "draw_release", recorded),
        mock.patch.object(dataflow, "draw_release_in_stages", in_stages),
    ):
        yield


def _cells(plan: MeasurementPlan, value: Callable[[int, int], int]) -> Components:
    """A value for each cell of each block, by their numbers."""
    return tuple(
        tuple(value(block, at) for at in range(len(measured.vector.components)))
        for block, measured in enumerate(plan.vectors)
    )


def _assert_domain_is_whole(plan: MeasurementPlan, statement: ReleaseStatement, exact: Exact) -> None:
    domains = plan.analysis.domains
    if domains is not None:
        outside = {row[: len(statement.keys)] for row in exact.reveal()} - set(list_combinations(domains))
        assert not outside, f"groups with rows are missing among the public keys: {outside}"
