"""The options of times: how long a statement may run, and when it is answered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from dpsql.interfaces.server.limits import Limits


def parse_seconds(text: str) -> float:
    """Return the seconds of a time with a unit. Raises typer.BadParameter.

    >>> parse_seconds("250ms"), parse_seconds("5min")
    (0.25, 300.0)
    """
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s|min)", text.strip())
    if match is None:
        raise typer.BadParameter("write a time as a number with a unit: 5min, 1s or 250ms")
    return float(match[1]) * {"ms": 0.001, "s": 1, "min": 60}[match[2]]


AnswerGrid = Annotated[
    float | None,
    typer.Option(
        "--answer-grid",
        parser=parse_seconds,
        metavar="TIME",
        help="Answer only at whole multiples of this time after a statement started, such as 1s, so that running times reveal less.",
        show_default=False,
    ),
]
Longest = Annotated[
    float | None,
    typer.Option(
        "--longest",
        parser=parse_seconds,
        metavar="TIME",
        help="Stop a statement that has run for this time; if it was charged, this counts as a failure. 0s means no limit. [default: 10min]",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class TimeOptions:
    """How long statements may run, and at which times they are answered."""

    answer_grid: AnswerGrid = None
    longest: Longest = None

    def to_limits(self) -> Limits:
        """Return the limits of a server for one person."""
        from dpsql.interfaces.server.limits import Limits

        longest = Limits().statement_seconds if self.longest is None else self.longest
        return Limits(statement_seconds=longest, answer_grid=self.answer_grid or 0.0)
