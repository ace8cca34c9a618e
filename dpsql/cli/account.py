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
from dpsql.request.loss import amount

if TYPE_CHECKING:
    from rich.table import Table

    from dpsql.accounting import Charge, Event

_Made = TypeVar("_Made")
_MOST = 100_000
_TIMES = "; xN for N of them"
Many = list[str]
Delta = Annotated[str, typer.Option("--delta", "-d", help="The δ at which each total is given as an ε.")]
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
        help=f"Gaussian noise on integers, σ = S times the l2 sensitivity{_TIMES}.",
        default_factory=list,
        show_default=False,
    ),
]
Choices = Annotated[
    Many,
    typer.Option(
        "--range",
        metavar="ε[xN]",
        help=f"A choice of bounded range ε{_TIMES}.",
        default_factory=list,
        show_default=False,
    ),
]
Selections = Annotated[
    Many,
    typer.Option(
        "--select",
        metavar="δ[xN]",
        help=f"Group keys chosen with δ{_TIMES}.",
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
        "--events", help="A file of events, one in a line, as a ledger keeps them.", show_default=False
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option(
        "--plot", help="Draw the ε after each release into this file (.png, .svg, .pdf).", show_default=False
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
    """Compare what the accountants charge for a list of releases.

    For example: dpsql account --pure 0.1x16 --gaussian 10x4 --delta 1e-7
    """
    from dpsql.accounting import compare
    from dpsql.accounting.renyi import fixed_epsilon
    from dpsql.request.loss import rounded
    from dpsql.shell.view import View

    asked = _option(_chance, "--delta", delta)
    releases = [*_asked(pure, gaussian, choice, select, approximate), *(_read(events) if events else ())]
    if not releases:
        raise typer.BadParameter("name at least one release, such as --pure 0.1x16")
    charges = compare(releases, asked)
    print(View.of(sys.stdout).show(_table(charges, delta)))
    with suppress(LossError):  # no δ is left, as the table says
        least = rounded(fixed_epsilon(releases, asked), 4, up=True)
        print(f"\nε {least} if the list is fixed before the first answer (the best of all Rényi orders)")
    if plot is not None:
        from dpsql.accounting.comparison import running
        from dpsql.accounting.plot import draw_running

        draw_running(running(releases, asked), delta, plot)
        print(f"drawn into {plot}")


def _asked(pure: Many, gaussian: Many, choice: Many, select: Many, approximate: Many) -> Iterator[Event]:
    from dpsql.accounting import Approximate, BoundedRange, Gaussian, Pure, Selection

    def noise(text: str) -> Gaussian:
        return Gaussian(1 / (2 * _amount(text) ** 2))

    def both(text: str) -> Approximate:
        epsilon, comma, delta = text.partition(",")
        if not comma:
            raise LossError("write ε and δ with a comma between them")
        return Approximate(_amount(epsilon), _amount(delta))

    makers: list[tuple[str, Many, Callable[[str], Event]]] = [
        ("--pure", pure, lambda text: Pure(_amount(text))),
        ("--gaussian", gaussian, noise),
        ("--range", choice, lambda text: BoundedRange(_amount(text))),
        ("--select", select, lambda text: Selection(_amount(text))),
        ("--approximate", approximate, both),
    ]
    for name, texts, make in makers:
        for text in texts:
            value, times, count = text.partition("x")
            if times and not (count.isascii() and count.isdigit() and 0 < int(count[:9]) <= _MOST):
                raise typer.BadParameter(f"{name} {text}: after the x stands a number up to {_MOST:,}")
            yield from [_option(make, f"{name} {text}", value)] * int(count or 1)


def _option(make: Callable[[str], _Made], name: str, text: str) -> _Made:
    try:
        return make(text)
    except LossError as error:
        raise typer.BadParameter(f"{name}: {error.message}") from None


def _amount(text: str) -> Fraction:
    return amount(text, "the number")


def _chance(text: str) -> Fraction:
    delta = _amount(text)
    if delta >= 1:
        raise LossError("delta must be below 1")
    return delta


def _read(path: Path) -> list[Event]:
    from dpsql.accounting.events import from_json

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise OperationalError(
            f"the file of events {path} cannot be read", code="events_unavailable", hint="check its path"
        ) from None
    return [from_json(line) for line in lines if line.strip()]


def _table(charges: tuple[Charge, ...], delta: str) -> Table:
    from dpsql.request.loss import rounded
    from dpsql.shell.view import table

    heads = ("accountant", "charged", "in", "δ charged", f"ε at δ {delta}", "")
    rows = []
    for charge in charges:
        if charge.loss is None or charge.delta is None or charge.epsilon is None:
            rows.append((charge.accountant, "–", charge.symbol, "–", "–", charge.refused))
            continue
        numbers = (rounded(value, 4, up=True) for value in (charge.loss, charge.delta, charge.epsilon))
        loss, spent, epsilon = numbers
        rows.append((charge.accountant, loss, charge.symbol, spent, epsilon, ""))
    return table(heads, rows, right=(1, 3, 4))
