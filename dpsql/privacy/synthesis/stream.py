"""Private multiplicative weights: a hypothesis answers counting queries, and only its mistakes are paid for."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import LossError, OperationalError
from dpsql.privacy.accounting.events import Composed, Event, Pure
from dpsql.privacy.mechanisms.base import Floats, Sensitivity
from dpsql.privacy.mechanisms.entropy import Entropy
from dpsql.privacy.mechanisms.gaussian import DiscreteGaussian
from dpsql.privacy.mechanisms.geometric import Geometric
from dpsql.privacy.mechanisms.selection import AboveThreshold
from dpsql.privacy.synthesis.mechanism import Mwem, SynthesisLoss, calibrate_noise, make_noise_event
from dpsql.privacy.synthesis.workload import Counts, Marginal, MeasuredCount, fit_weights, round_to_rows

Cells = NDArray[np.bool_]
"""The cells of the histogram that a counting query counts."""

MOST_UPDATES = 1_000
MOST_LEARNT = 5 * 10**6
"""The maximum of cells times updates, since each update visits every cell."""
_START = Fraction(1, 2)
"""The share of the loss for the first hypothesis. Half of the rest finds its mistakes, half counts them."""
_WRONGLY = Fraction(1, 2)
"""The approximate probability that a hypothesis without mistakes is called wrong in any of the queries."""
_ROUNDS = 40


class StreamLoss(SynthesisLoss, Protocol):
    """The loss that a stream may spend."""

    def compute_pure_epsilon(self, share: Fraction) -> Fraction:
        """Return the ε of an ε-DP release that spends this share."""
        ...


@dataclass(frozen=True, slots=True)
class _LossPart:
    """A share of a loss."""

    whole: SynthesisLoss
    share: Fraction

    @property
    def epsilon(self) -> Fraction:
        return self.whole.epsilon * self.share

    @property
    def rho(self) -> Fraction | None:
        return None if self.whole.rho is None else self.whole.rho * self.share

    def compute_range(self, share: Fraction) -> Fraction:
        return self.whole.compute_range(share * self.share)


@dataclass(frozen=True)
class WeightsStream:
    """The mechanism: a synthetic histogram to start with, and up to `updates` of its mistakes that are found and counted.

    Claim: with l1 the sensitivity of the histogram, the loss is that of `start`, and `updates` times that of `test` for l1 and
    that of `count` for one number of sensitivity l1, however many queries are asked.
    Why: the mistake of the hypothesis in a query is a whole number that one unit changes by at most l1. Answers from the
    hypothesis follow from released values; that it was not called wrong, and the first time that it is, is what `test`
    releases. A query in which it is wrong is counted with noise of its own, and `test` begins anew.
    Source: Hardt, Rothblum 2010, "A multiplicative weights mechanism for privacy-preserving data analysis"; Dwork, Roth 2014,
    section 4.2; Lyu, Su, Li 2017.
    """

    tag: ClassVar[str] = "WeightsStream"
    method: ClassVar[str] = "pmw"

    start: Mwem
    updates: int
    test: AboveThreshold
    count: Geometric | DiscreteGaussian
    event: Event

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of values of each column."""
        return self.start.shape

    @property
    def l1(self) -> int:
        """Return the l1 sensitivity of the histogram."""
        return self.start.l1

    @classmethod
    def calibrate(
        cls,
        shape: tuple[int, ...],
        workload: tuple[Marginal, ...],
        l1: int,
        loss: StreamLoss,
        *,
        replace: bool,
        updates: int,
        queries: int,
    ) -> WeightsStream:
        """Return the stream that spends the loss, for about this many queries. Raises LossError without at least one update."""
        if not 1 <= updates <= MOST_UPDATES:
            raise LossError(
                f"a stream must have 1 to {MOST_UPDATES:,} updates", code="stream", hint="updates=20"
            )
        if updates * math.prod(shape) > MOST_LEARNT:
            raise LossError(
                "this many updates of this many cells would take too long",
                code="too_long",
                hint="use fewer updates, or fewer columns and values",
            )
        start = Mwem.calibrate(shape, workload, l1, _LossPart(loss, _START), replace=replace)
        each = (1 - _START) / (2 * updates)
        found = loss.compute_pure_epsilon(each)
        plain = AboveThreshold.calibrate(0, l1, found)
        reach = plain.far.compute_sum_threshold(
            1, _WRONGLY / (2 * queries)
        ) + plain.near.compute_sum_threshold(1, _WRONGLY / (2 * updates))
        one = Sensitivity(Fraction(l1), Fraction(l1 * l1))
        event = Composed(
            (start.event, *[Pure(found)] * updates, make_noise_event(loss, each * updates)),
        )
        return cls(
            start,
            updates,
            AboveThreshold.calibrate(reach, l1, found),
            calibrate_noise(one, loss, each),
            event,
        )

    def bound_error(self, confidence: float) -> int:
        """Bound the error of the hypothesis where the test accepted it, with that probability.

        Why: it was not if mistake + far < threshold + near. Both noises are independent, so that either passes its own
        bound with at most half of the rest.
        """
        side = (1 - Fraction(confidence)) / 2
        near, far = (
            self.test.near.compute_sum_threshold(1, side),
            self.test.far.compute_sum_threshold(1, side),
        )
        return self.test.threshold + near + far

    def describe(self) -> list[dict[str, object]]:
        """Describe what is measured and tested, for receipts and the ledger."""
        one: dict[str, object] = {
            "statistic": f"{self.updates} mistakes of the hypothesis",
            "noise": self.test.describe(),
            "l1_sensitivity": str(self.l1),
        }
        counted: dict[str, object] = {
            "statistic": f"{self.updates} counts",
            "noise": self.count.describe(),
            "l1_sensitivity": str(self.l1),
        }
        return [*self.start.describe(), one, counted]


@dataclass(frozen=True, slots=True)
class StreamedCount:
    """An answer: a number of rows, and whether it was counted, which used up one of the updates.

    `repeated` says that it repeats a count of before.
    """

    value: int
    counted: bool
    repeated: bool = False


@dataclass(slots=True, eq=False)
class RunningStream:
    """A stream over one exact histogram, which it keeps private.

    It cannot be copied, pickled or used in another process: two copies would answer from one noisy threshold, each as if it
    were the only one. An interrupt in the middle of an answer ends it.
    """

    mechanism: WeightsStream
    updates_left: int
    rows: int
    _weights: Floats = field(repr=False)
    _exact: Counts = field(repr=False)
    _threshold: int = field(repr=False)
    _seen: dict[bytes, int] = field(repr=False)
    _measured: list[MeasuredCount] = field(repr=False)
    _process: int = field(repr=False)
    _busy: bool = field(default=False, repr=False)

    @classmethod
    def start_stream(cls, mechanism: WeightsStream, histogram: Counts, entropy: Entropy) -> RunningStream:
        """Return the stream, with its first hypothesis and its first noisy threshold."""
        made = mechanism.start.run(histogram, entropy).histogram
        rows = int(made.sum())
        # Every cell may turn out to have rows.
        smooth = made + 0.01 * max(1, rows) / made.size
        weights: Floats = smooth / smooth.sum()
        noisy = mechanism.test.draw_noisy_threshold(entropy)
        return cls(mechanism, mechanism.updates, rows, weights, histogram, noisy, {}, [], os.getpid())

    def find_known_count(self, cells: Cells) -> StreamedCount | None:
        """Return the count of these cells, if they were counted before; else None.

        Raises OperationalError (`stream_ended`) when there is none and no update is left.
        """
        if self._process != os.getpid():
            raise OperationalError(
                "a stream can only be used by the process that opened it", code="stream_ended"
            )
        found = self._seen.get(np.packbits(cells).tobytes())
        if found is not None:
            return StreamedCount(found, counted=False, repeated=True)
        if self._busy or not self.updates_left:
            why = "was interrupted" if self._busy else "has used up its updates"
            raise OperationalError(
                f"the stream {why}, so it no longer updates its estimates",
                code="stream_ended",
                hint="use stream.table() for its last estimates, or open another stream, which is charged again",
            )
        return None

    def answer_query(self, cells: Cells, entropy: Entropy) -> StreamedCount:
        """Answer the number of rows in these cells: as before, by the hypothesis, or by a count. Raises as `find_known_count` does."""
        before = self.find_known_count(cells)
        if before is not None:
            return before
        self._busy = True  # until all is done: half an answer must not be followed by another
        guess = self._estimate_count(cells)
        exact = int(self._exact[cells].sum())
        if not self.mechanism.test.is_above_threshold(abs(exact - guess), self._threshold, entropy):
            self._busy = False
            return StreamedCount(guess, counted=False)
        self.updates_left -= 1
        (noise,) = self.mechanism.count.draw(1, entropy)
        found = exact + noise
        self._threshold = self.mechanism.test.draw_noisy_threshold(entropy)
        self._update_weights(cells, found)
        self._seen[np.packbits(cells).tobytes()] = found
        self._busy = False
        return StreamedCount(found, counted=True)

    def round_hypothesis(self) -> Counts:
        """Return the hypothesis as whole rows."""
        return round_to_rows(self._weights, self.rows, self.mechanism.start.workload)

    def _estimate_count(self, cells: Cells) -> int:
        return round(float(self._weights[cells].sum()) * self.rows)

    def _update_weights(self, cells: Cells, found: int) -> None:
        part = min(1.0, max(0.0, found / max(1, self.rows)))
        noise = self.mechanism.count.std / max(1, self.rows)
        self._measured.append(MeasuredCount(cells, part, noise))
        self._weights = fit_weights(self._weights, self._measured, _ROUNDS)

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise TypeError("a stream holds exact counts, so it cannot be copied")

    def __copy__(self) -> NoReturn:
        """Refuse to be copied."""
        self.__reduce__()

    def __deepcopy__(self, _: object) -> NoReturn:
        """Refuse to be copied."""
        self.__reduce__()
