"""`dpsql budget` and `dpsql account`: what is left of budgets, and what releases would cost under each accountant."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dpsql.api.arguments import is_address
from dpsql.errors import LossError, OperationalError, ProgrammingError
from dpsql.interfaces.cli.connections import get_default_ledger, require_no_ledger
from dpsql.interfaces.cli.options import LedgerFile, LedgerKey
from dpsql.policy.request.loss import parse_amount

if TYPE_CHECKING:
    from rich.table import Table

    from dpsql.ledger import Entry
    from dpsql.ledger.protocol import ReservationState
    from dpsql.privacy.accounting import ComparedCharge, Event


Rules = Annotated[Path | None, typer.Option("--policy", "-p", help="The owner's policy.", show_default=False)]
Policies = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[POLICY|URL]...",
        help="Policies, each with the ledger beside it; or addresses of servers, with the token in DPSQL_TOKEN.",
        show_default=False,
    ),
]
Entries = Annotated[int, typer.Option(min=0, help="Also show this number of the latest charges.")]
_MOST_RESETS = 100


def budget(
    policies: Policies = None,
    *,
    policy: Rules = None,
    ledger: LedgerFile = None,
    entries: Entries = 0,
    ledger_key: LedgerKey = None,
) -> None:
    """Show the spent and remaining budgets of tables, and of each analyst with an account.

    Several policies are shown one after the other, each with the ledger beside it.
    """
    named = [*(policies or []), *([] if policy is None else [str(policy)])]
    if not named:
        raise ProgrammingError("no policy given", code="argument", hint="dpsql budget hie.yaml")
    if len(named) > 1 and ledger is not None:
        raise ProgrammingError(
            "--ledger is only valid with one policy", code="argument", hint="leave out --ledger"
        )
    for place, each in enumerate(named):
        if len(named) > 1:
            print("\n" * bool(place) + each)
        if is_address(each):
            require_no_ledger(ledger, ledger_key)
            _show_server_budgets(each, entries)
        else:
            _show_ledger_budgets(Path(each), ledger or get_default_ledger(Path(each)), entries, ledger_key)


def _show_server_budgets(address: str, entries: int) -> None:
    import dpsql
    from dpsql.interfaces.shell.answers import View, build_budget_table, render_table

    if entries:
        raise ProgrammingError("--entries is not valid with a server address", code="argument")
    with dpsql.connect(address) as connection:
        print(render_table(build_budget_table(connection.budget().values()), View.from_stream(sys.stdout)))


def _show_ledger_budgets(policy: Path, path: str, entries: int, ledger_key: Path | None) -> None:
    from dpsql.engine.budgets import collect_budgets
    from dpsql.interfaces.shell.answers import View, build_budget_table, describe_failures, render_table
    from dpsql.ledger import open_ledger
    from dpsql.ledger.open import is_url
    from dpsql.policy import load

    rules, view = load(policy), View.from_stream(sys.stdout)
    # Showing budgets must not create a ledger.
    known = is_url(path) or Path(path).is_file()
    asked = _list_analysts(path, ledger_key) if known else []
    book = open_ledger(
        path if known else ":memory:",
        collect_budgets(rules, [*rules.analysts, *asked]),
        key=ledger_key,
        max_failures=rules.get_failure_limits(),
    )
    try:
        print(render_table(build_budget_table(book.list_states()), view))
        for state in book.list_reservations():
            print(_describe_reservation(state))
        if known:
            for entry in _list_owner_actions(path, ledger_key):
                print(_describe_owner_action(entry))
            for line in describe_failures(book.list_states(), path):
                print(line)
        if not known:
            print(f"no query was answered yet: {path} does not exist")
        if entries:
            print(view.render_parts("", *map(_format_entry, book.list_entries(limit=entries))))
    finally:
        book.close()


def _list_analysts(path: str, key: Path | None) -> list[str]:
    """Return the analysts with an account in a ledger."""
    from dpsql.ledger.digest import read_ledger_key
    from dpsql.ledger.reader import LedgerReader

    with closing(LedgerReader.open(path, read_ledger_key(key))) as history:
        return sorted({account.analyst for account in history.read_budgets() if account.analyst})


def _describe_reservation(state: ReservationState) -> str:
    from dpsql.interfaces.shell.answers import escape_unprintable
    from dpsql.policy.request.loss import format_rounded

    part = Fraction(100 * state.remaining.loss, state.limit.loss)
    whose = f"reservation {state.number} of {escape_unprintable(state.key.name)}"
    return f"{whose} is held by {escape_unprintable(state.holder)}: {format_rounded(part)}% left"


def _list_owner_actions(path: str, key: Path | None) -> list[Entry]:
    """Return the entries that reset or amended budgets or unlocked tables."""
    from dpsql.ledger.digest import read_ledger_key
    from dpsql.ledger.reader import LedgerReader

    with closing(LedgerReader.open(path, read_ledger_key(key))) as history:
        found = [
            entry
            for kind in ("reset", "unlock", "amend")
            for entry in history.list_last_entries(_MOST_RESETS, kind=kind)
        ]
    return sorted(found, key=lambda entry: entry.id)


def _describe_owner_action(entry: Entry) -> str:
    from dpsql.interfaces.shell.answers import escape_unprintable

    when, why = entry.at.strftime("%Y-%m-%d"), escape_unprintable(str(entry.details.get("reason", "")))
    whose = f"{entry.table} for {entry.account_analyst}" if entry.account_analyst else entry.table
    done = {"reset": "reset", "amend": "amended"}.get(entry.kind, "unlocked")
    return f"{escape_unprintable(whose)} was {done} on {when} by {escape_unprintable(entry.analyst)}: {why}"


def _format_entry(entry: Entry) -> str:
    from dpsql.interfaces.shell.answers import escape_unprintable

    when = entry.at.strftime("%Y-%m-%d %H:%M:%S")
    query = escape_unprintable(" ".join(entry.query.split()))
    return f"{entry.id}  {when}  {escape_unprintable(entry.analyst)}  {entry.table}  {query}"


# `dpsql account`.


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


@dataclass(frozen=True, slots=True)
class ReleaseOptions:
    """The releases to account for, by kind; each text is a number, and optionally how many releases have it."""

    pure: PureReleases
    gaussian: GaussianReleases
    choice: Choices
    select: Selections
    approximate: Approximates


def account(
    *, releases: ReleaseOptions, events: EventFile = None, delta: Delta = "1e-6", plot: Picture = None
) -> None:
    """Compare the charges of the accountants for a list of releases.

    For example: dpsql account --pure 0.1x16 --gaussian 10x4 --delta 1e-7
    """
    from dpsql.interfaces.shell.answers import View
    from dpsql.policy.request.loss import format_rounded
    from dpsql.privacy.accounting import compare
    from dpsql.privacy.accounting.renyi import fixed_epsilon

    asked = _parse_option(_parse_delta, "--delta", delta)
    found = [*_iterate_releases(releases), *(_read_events(events) if events else ())]
    if not found:
        raise typer.BadParameter("give at least one release, such as --pure 0.1x16")
    charges = compare(found, asked)
    print(View.from_stream(sys.stdout).render_parts(_build_table(charges, delta)))
    with suppress(LossError):  # no δ is left, as the table says
        least = format_rounded(fixed_epsilon(found, asked), 4, up=True)
        print(f"\nε {least} if the list is fixed before the first answer (best of all Rényi orders)")
    if plot is not None:
        from dpsql.privacy.accounting.composition import compare_prefixes
        from dpsql.results.charts import save_line_plot

        lines = _list_lines(compare_prefixes(found, asked))
        save_line_plot(lines, plot, xlabel="releases", ylabel=f"ε at δ = {delta}", ylim=(0, None))
        print(f"wrote the plot to {plot}")


def _list_lines(
    found: Sequence[tuple[int, tuple[ComparedCharge, ...]]],
) -> dict[str, list[tuple[float, float]]]:
    """Return the ε after each number of releases by accountant; accountants that cannot charge all of them are left out."""
    lines = dict[str, list[tuple[float, float]]]()
    for place, last in enumerate(found[-1][1]):
        if last.epsilon is not None:
            totals = [(stop, charges[place].epsilon) for stop, charges in found]
            lines[last.accountant] = [(stop, float(total)) for stop, total in totals if total is not None]
    return lines


def _iterate_releases(releases: ReleaseOptions) -> Iterator[Event]:
    from dpsql.privacy.accounting import Approximate, BoundedRange, Gaussian, Pure, Selection

    def parse_gaussian(text: str) -> Gaussian:
        return Gaussian(1 / (2 * _parse_amount(text) ** 2))

    def parse_approximate(text: str) -> Approximate:
        epsilon, comma, delta = text.partition(",")
        if not comma:
            raise LossError("separate ε and δ with a comma")
        return Approximate(_parse_amount(epsilon), _parse_amount(delta))

    makers: list[tuple[str, Many, Callable[[str], Event]]] = [
        ("--pure", releases.pure, lambda text: Pure(_parse_amount(text))),
        ("--gaussian", releases.gaussian, parse_gaussian),
        ("--range", releases.choice, lambda text: BoundedRange(_parse_amount(text))),
        ("--select", releases.select, lambda text: Selection(_parse_amount(text))),
        ("--approximate", releases.approximate, parse_approximate),
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
    from dpsql.interfaces.shell.answers import build_table
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
