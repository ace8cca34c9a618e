"""`dpsql account`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dpsql.errors import LossError, OperationalError
from dpsql.policy.request.loss import parse_amount

if TYPE_CHECKING:
    from rich.table import Table

    from dpsql.privacy.accounting import ComparedCharge, Event

_Made = TypeVar("_Made")
_MOST = 100_000
_TIMES = "; xN for N of them"
Many = list[str]
Delta = Annotated[str, typer.Option("--delta", "-d", help="The δ at which each total is converted to an ε.")]
PureReleases = Annotated[
    Many,
    typer.Option(
        "--pure", metavar="ε[xN]", help=f"An ε-DP release{_TIMES}.", default_factory=list, show_default=False
    ),
]
GaussianReleases = Annotated[
    Many,
    typer.Option(
        "--gaussian",
        metavar="S[xN]",
        help=f"Gaussian noise on integers with σ = S times the l2 sensitivity{_TIMES}.",
        default_factory=list,
        show_default=False,
    ),
]
Choices = Annotated[
    Many,
    typer.Option(
        "--range",
        metavar="ε[xN]",
        help=f"A selection with bounded range ε{_TIMES}.",
        default_factory=list,
        show_default=False,
    ),
]
Selections = Annotated[
    Many,
    typer.Option(
        "--select",
        metavar="δ[xN]",
        help=f"A selection of group keys with δ{_TIMES}.",
        default_factory=list,
        show_default=False,
    ),
]
Approximates = Annotated[
    Many,
    typer.Option(
        "--approximate",
        metavar="ε,δ[xN]",
        help=f"An (ε, δ)-DP release{_TIMES}.",
        default_factory=list,
        show_default=False,
    ),
]
EventFile = Annotated[
    Path | None,
    typer.Option(
        "--events", help="A file of events, one per line, in the format of a ledger.", show_default=False
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option(
        "--plot", help="Plot the ε after each release into this file (.png, .svg, .pdf).", show_default=False
    ),
]


def account(  # noqa: PLR0917  (typer calls it by keyword)
    pure: PureReleases,
    gaussian: GaussianReleases,
    choice: Choices,
    select: Selections,
    approximate: Approximates,
    events: EventFile = None,
    delta: Delta = "1e-6",
    plot: Picture = None,
) -> None:
    """Compare the charges of the accountants for a list of releases.

    For example: dpsql account --pure 0.1x16 --gaussian 10x4 --delta 1e-7
    """
    from dpsql.interfaces.shell.view import View
    from dpsql.policy.request.loss import format_rounded
    from dpsql.privacy.accounting import compare
    from dpsql.privacy.accounting.renyi import fixed_epsilon

    asked = _parse_option(_parse_delta, "--delta", delta)
    releases = [
        *_iterate_releases(pure, gaussian, choice, select, approximate),
        *(_read_events(events) if events else ()),
    ]
    if not releases:
        raise typer.BadParameter("give at least one release, such as --pure 0.1x16")
    charges = compare(releases, asked)
    print(View.from_stream(sys.stdout).render_parts(_build_table(charges, delta)))
    with suppress(LossError):  # no δ is left, as the table says
        least = format_rounded(fixed_epsilon(releases, asked), 4, up=True)
        print(f"\nε {least} if the list is fixed before the first answer (best of all Rényi orders)")
    if plot is not None:
        from dpsql.privacy.accounting.comparison import compare_prefixes
        from dpsql.results.composition_chart import plot_comparison

        plot_comparison(compare_prefixes(releases, asked), delta, plot)
        print(f"wrote the plot to {plot}")


def _iterate_releases(
    pure: Many, gaussian: Many, choice: Many, select: Many, approximate: Many
) -> Iterator[Event]:
    from dpsql.privacy.accounting import Approximate, BoundedRange, Gaussian, Pure, Selection

    def parse_gaussian(text: str) -> Gaussian:
        return Gaussian(1 / (2 * _parse_amount(text) ** 2))

    def parse_approximate(text: str) -> Approximate:
        epsilon, comma, delta = text.partition(",")
        if not comma:
            raise LossError("separate ε and δ with a comma")
        return Approximate(_parse_amount(epsilon), _parse_amount(delta))

    makers: list[tuple[str, Many, Callable[[str], Event]]] = [
        ("--pure", pure, lambda text: Pure(_parse_amount(text))),
        ("--gaussian", gaussian, parse_gaussian),
        ("--range", choice, lambda text: BoundedRange(_parse_amount(text))),
        ("--select", select, lambda text: Selection(_parse_amount(text))),
        ("--approximate", approximate, parse_approximate),
    ]
    for name, texts, make in makers:
        for text in texts:
            value, times, count = text.partition("x")
            if times and not (count.isascii() and count.isdigit() and 0 < int(count[:9]) <= _MOST):
                raise typer.BadParameter(f"{name} {text}: the number after the x must be from 1 to {_MOST:,}")
            yield from [_parse_option(make, f"{name} {text}", value)] * int(count or 1)


def _parse_option(make: Callable[[str], _Made], name: str, text: str) -> _Made:
    try:
        return make(text)
    except LossError as error:
        raise typer.BadParameter(f"{name}: {error.message}") from None


def _parse_amount(text: str) -> Fraction:
    return parse_amount(text, "the number")


def _parse_delta(text: str) -> Fraction:
    delta = _parse_amount(text)
    if delta >= 1:
        raise LossError("delta must be below 1")
    return delta


def _read_events(path: Path) -> list[Event]:
    from dpsql.privacy.accounting.events import from_json

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise OperationalError(
            f"cannot read the events file {path}", code="events_unavailable", hint="check the path"
        ) from None
    return [from_json(line) for line in lines if line.strip()]


def _build_table(charges: tuple[ComparedCharge, ...], delta: str) -> Table:
    from dpsql.interfaces.shell.view import build_table
    from dpsql.policy.request.loss import format_rounded

    heads = ("accountant", "charged", "in", "δ charged", f"ε at δ {delta}", "")
    rows = []
    for charge in charges:
        if charge.loss is None or charge.delta is None or charge.epsilon is None:
            rows.append((charge.accountant, "–", charge.symbol, "–", "–", charge.refusal_reason))
            continue
        numbers = (format_rounded(value, 4, up=True) for value in (charge.loss, charge.delta, charge.epsilon))
        loss, spent, epsilon = numbers
        rows.append((charge.accountant, loss, charge.symbol, spent, epsilon, ""))
    return build_table(heads, rows, right=(1, 3, 4))
