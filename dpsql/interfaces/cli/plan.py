"""`dpsql plan`, `dpsql simulate` and `dpsql demo`: try queries without private data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.errors import Error, LossError, OperationalError, ProgrammingError
from dpsql.interfaces.cli.options import Dialect
from dpsql.interfaces.cli.queries import FileQuery, read_queries
from dpsql.policy.request.loss import format_rounded, parse_amount

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.backends.simulated_rows import SimulationSize
    from dpsql.policy import Policy
    from dpsql.results.result import Result


# `dpsql simulate`.


PolicyArgument = Annotated[
    Path, typer.Argument(help="The policy that declares the tables.", show_default=False)
]
Units = Annotated[int, typer.Option("--units", min=1, max=10**8, help="The number of privacy units.")]
Rows = Annotated[
    int | None,
    typer.Option(
        "--rows",
        min=1,
        max=10**9,
        help="The number of rows of each table in which a unit may have several. [default: three per unit]",
        show_default=False,
    ),
]
Variant = Annotated[
    int,
    typer.Option("--seed", min=0, help="The seed of the generator; the same seed generates the same rows."),
]
Public = Annotated[
    Path | None,
    typer.Option(
        "--public",
        metavar="DATABASE",
        help="A DuckDB file whose public tables are copied; its private tables are not read.",
        show_default=False,
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="The database to write.", show_default=False)]


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """The size of generated data, the seed of its rows, and the database from which public tables are copied."""

    units: Units = 1000
    rows: Rows = None
    variant: Variant = 0
    public: Public = None

    @property
    def size(self) -> SimulationSize:
        """Return the size of the generated data."""
        from dpsql.backends.simulated_rows import SimulationSize

        return SimulationSize(self.units, 3 * self.units if self.rows is None else self.rows, self.variant)


def simulate(
    policy: PolicyArgument,
    *,
    output: Output,
    simulation: SimulationOptions,
) -> None:
    """Generate a database from a policy alone, for development, demos and tests without a budget.

    Values are drawn uniformly from declared bounds and values; ids follow the declared links. No private data is read. A copy of
    the policy is written beside the database, so that its queries have a ledger of their own.
    """
    from dpsql.backends.simulated_rows import write_simulated_file
    from dpsql.policy import load
    from dpsql.policy.skeleton import rewrite_policy_text

    rules, beside = load(policy), output.with_suffix(".yaml")
    if beside.exists():
        raise OperationalError(
            f"{beside} already exists", code="file_exists", hint="choose another file with --output"
        )
    text = rewrite_policy_text(policy, f"generated rows, {output.name}")
    missing = write_simulated_file(rules, simulation.size, output, simulation.public)
    made = [name for name in rules.tables if name not in missing]
    beside.write_text(text, encoding="utf-8")
    print(f"wrote generated rows of {', '.join(made)} to {output}; its policy is {beside}")
    if missing:
        print(
            f"left out, since they declare no columns: {', '.join(missing)}; copy them with --public DATABASE",
            file=sys.stderr,
        )


_EXACT = Fraction(10**6)
"""A loss at which every group is released."""
Queries = Annotated[list[Path], typer.Argument(help="Files with queries.", show_default=False)]
PolicyOption = Annotated[Path, typer.Option("--policy", "-p", help="The owner's policy.", show_default=False)]
Losses = Annotated[
    str, typer.Option("--epsilons", metavar="NUMBERS", help="The values of ε to try, separated by commas.")
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Plot errors against ε into this file, with matplotlib.", show_default=False),
]


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of a query at a loss: for each noisy column the median 95% half-width, and its share of the median value.

    `selected` of `groups` are released; `share` is the query's part of the smallest budget, into which it fits `times`.
    """

    epsilon: Fraction
    half_widths: dict[str, tuple[float, float | None]]
    selected: int
    groups: int
    share: Fraction
    times: int | None


def plan(
    queries: Queries,
    *,
    policy: PolicyOption,
    epsilons: Losses = "0.1,0.3,1",
    simulation: SimulationOptions,
    dialect: Dialect = "duckdb",
    plot: Plot = None,
) -> None:
    """Estimate the accuracy of queries, and how often they fit into the budget, on generated rows.

    The rows are generated from the policy alone, as `dpsql simulate` does; no data are read and nothing is charged. Errors are
    in the units of the values. The exit code is 1 if a query would be refused.
    """
    from dpsql.backends.simulated_rows import open_simulated_database
    from dpsql.interfaces.shell.answers import View, build_table, format_error, print_error
    from dpsql.policy import load
    from dpsql.policy.skeleton import drop_sources

    rules, losses, view = drop_sources(load(policy)), _parse_losses(epsilons), View.from_stream(sys.stdout)
    drawn, refused = dict[str, list[Accuracy]](), 0
    with open_simulated_database(rules, simulation.size, simulation.public) as data:
        print(f"generated rows of {simulation.units:,} units\n")
        for text in (each for file in queries for each in read_queries(file)):
            print(f"{text.file}, query {text.number}: {text.short_sql}", flush=True)
            try:
                found = list(_measure_accuracies(data, rules, text, losses, dialect))
            except Error as error:
                refused += 1
                print_error(format_error(error) + "\n")
                continue
            drawn[f"{text.file.name}, {text.number}"] = found
            print(
                view.render_parts(
                    build_table(_HEADS, list(_iterate_table_rows(found)), right=(0, 2, 3, 4, 5, 6))
                )
            )
            print()
    if plot is not None:
        _plot_accuracies(drawn, plot)
    if refused:
        raise typer.Exit(1)


_HEADS = ("ε", "column", "±95%", "of value", "groups", "of budget", "fits")


def _parse_losses(listed: str) -> list[Fraction]:
    try:
        return sorted(parse_amount(text.strip(), "epsilon") for text in listed.split(","))
    except LossError as error:
        raise typer.BadParameter(error.message) from None


def _measure_accuracies(
    data: object, rules: Policy, text: FileQuery, losses: Sequence[Fraction], dialect: str
) -> Iterator[Accuracy]:
    """Measure a query at each loss, smallest first. Raises ProgrammingError for a query with its own loss, and for EXPLAIN."""
    import dpsql
    from dpsql.interfaces.shell.session import is_explain
    from dpsql.sql.parse.session_statement import parse_stated_options

    said = parse_stated_options(text.sql, dialect)
    if is_explain(text.sql) or said.epsilon is not None or said.target_error is not None:
        raise ProgrammingError(
            "dpsql plan runs a query at several epsilons, so it may not state its own epsilon or be an EXPLAIN",
            code="not_planned",
            hint="remove the OPTIONS clause and EXPLAIN",
        )
    with (
        closing(
            dpsql.connect(
                data, policy=_with_unlimited_budget(rules), ledger=":memory:", dialect=dialect, replay=False
            )
        ) as able,
        closing(dpsql.connect(data, policy=rules, ledger=":memory:", dialect=dialect)) as limited,
    ):
        whole = able.query(text.sql, epsilon=_EXACT)
        for epsilon in losses:
            share, times = _forecast_budget_share(limited, text.sql, epsilon)
            yield _compute_accuracy(able.query(text.sql, epsilon=epsilon), whole, epsilon, share, times)


def _with_unlimited_budget(rules: Policy) -> Policy:
    """Return the policy with a budget that planning cannot exhaust; the real budget is checked separately."""
    from dpsql.policy.names import NameMap

    most = {"epsilon": 10 * _EXACT, "renew": None}
    tables = {
        # The table keeps its accountant and delta, which determine its noise.
        name: table.model_copy(
            update={"budget": table.budget and table.budget.model_copy(update=most), "max_epsilon": None}
        )
        for name, table in rules.tables.items()
    }
    changed = {
        "budget": rules.budget.model_copy(update=most),
        "max_epsilon": None,
        "tables": NameMap(tables),
        "analysts": NameMap({}),
        "per_analyst": None,
    }
    return rules.model_copy(update=changed)


def _forecast_budget_share(
    connection: Connection, sql: str, epsilon: Fraction
) -> tuple[Fraction, int | None]:
    """Return the part of the budget that a query costs, and how often it fits."""
    forecast = connection.budget([sql], epsilon=epsilon)
    priced = [query for query in forecast.queries if query.quote is not None]
    return (
        max((query.share for query in priced), default=Fraction(0)),
        min((query.times for query in priced if query.times is not None), default=None),
    )


def _compute_accuracy(
    result: Result, whole: Result, epsilon: Fraction, share: Fraction, times: int | None
) -> Accuracy:
    """Compare the answer at a loss with a nearly exact answer that has all groups."""
    intervals = result.intervals()
    halves = dict[str, tuple[float, float | None]]()
    for place, name in enumerate(result.columns):
        found = [(ends[1] - ends[0]) / 2 for row in intervals if (ends := row[place]) is not None]
        if found:
            values = [
                abs(float(value))
                for row in whole.rows
                if isinstance(value := row[place], int | float | Decimal)
            ]
            size = median(values) if values else 0
            halves[name] = (median(found), median(found) / size if size else None)
    return Accuracy(epsilon, halves, len(result), len(whole), share, times)


def _iterate_table_rows(found: Sequence[Accuracy]) -> Iterator[tuple[str, ...]]:
    for each in found:
        times = "free" if each.times is None else "no" if not each.times else f"{each.times:,} times"
        groups = f"{each.selected:,} of {max(each.groups, each.selected):,}"
        rest = (groups, f"{format_rounded(100 * each.share, up=True)}%", times)
        first = f"{float(each.epsilon):g}"
        for name, (half, part) in each.half_widths.items() or {"": (None, None)}.items():
            size = "" if half is None else f"{half:,.3g}"
            yield (
                first,
                name,
                size,
                "" if part is None else f"{part:,.0%}" if part >= 1 else f"{100 * part:.2g}%",
                *rest,
            )
            first, rest = "", ("", "", "")


def _plot_accuracies(drawn: dict[str, list[Accuracy]], path: Path) -> None:
    from dpsql.results.charts import save_line_plot

    lines = dict[str, list[tuple[float, float]]]()
    for label, found in drawn.items():
        for each in found:
            for name, (_, part) in each.half_widths.items():
                if part is not None:
                    lines.setdefault(f"{label}: {name}", []).append((float(each.epsilon), part))
    save_line_plot(lines, path, xlabel="ε", ylabel="±95% of the value", xscale="log", yscale="log")


# `dpsql demo`.


Save = Annotated[
    Path | None,
    typer.Option(
        "--save",
        metavar="DIRECTORY",
        help="Keep the database, its policy and the ledger in this directory. [default: delete them]",
        show_default=False,
    ),
]


def demo(save: Save = None) -> None:
    """Run five example queries on real data.

    Each private answer is shown beside the true one. The data is the RAND Health Insurance Experiment, which is public, so this
    demo, unlike any other command, may show true answers.
    """
    from dpsql.interfaces.demo import run_tour
    from dpsql.interfaces.shell.answers import View

    run_tour(View.from_stream(sys.stdout), print, save)
