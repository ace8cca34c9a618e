"""The answers of tools: built from results, budgets and descriptions, and written as short texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import singledispatch
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from dpsql.errors import Error
from dpsql.interfaces.mcp.tools import (
    MOST_QUERY,
    MOST_ROWS,
    MOST_VALUES,
    AnswerBody,
    AnswerColumnBody,
    BalanceBody,
    BudgetBody,
    BudgetsBody,
    ChargeBody,
    ColumnBody,
    ExplanationBody,
    HistoryBody,
    LimitsBody,
    SchemaBody,
    TableBody,
)
from dpsql.interfaces.shell.answers import (
    AnswerFormat,
    View,
    escape_unprintable,
    format_answer,
    format_charges,
    format_error,
)
from dpsql.policy.request.loss import format_rounded
from dpsql.results import json_format

if TYPE_CHECKING:
    from dpsql.ledger.budget_state import BudgetState, RemainingBudget
    from dpsql.ledger.protocol import Entry
    from dpsql.results.description import ColumnDescription, Description
    from dpsql.results.forecast import Forecast
    from dpsql.results.result import ExplainedQuery, Result


class _WrittenAnswer(AnswerBody):
    """An answer with its table as text, which is not part of its data."""

    table_text: str = Field(exclude=True)


_SQL_HEAD = "SQL sent to the engine"
_MEASUREMENTS_HEAD = "Measurements"


# Build the bodies.


def _to_number(value: Fraction, *, up: bool = False) -> float:
    """Return an amount rounded to six digits, down or up, as JSON's number."""
    return float(format_rounded(Fraction(value), 6, up=up)) if value else 0.0


def _to_optional_number(value: Fraction | None, *, up: bool = False) -> float | None:
    return None if value is None else _to_number(value, up=up)


def build_limits(
    default: Fraction | None, cap: Fraction | None, budget: Fraction | None, spent: Fraction | None
) -> LimitsBody:
    """Return the limits of assistants, and what is left of their budget."""
    left = None if budget is None or spent is None else max(budget - spent, Fraction(0))
    return LimitsBody(
        default_epsilon=_to_optional_number(default),
        max_epsilon=_to_optional_number(cap),
        budget=_to_optional_number(budget),
        spent=_to_optional_number(spent, up=True),
        remaining=_to_optional_number(left),
    )


def build_schema(found: Description, table: str | None, limits: LimitsBody) -> SchemaBody:
    """Return the description of all tables, or of one with all its public values. Raises ProgrammingError (`table`)."""
    tables = found.tables if table is None else (found.get_table(table),)
    most = MOST_VALUES if table is None else None
    return SchemaBody(
        privacy_unit=found.privacy_unit,
        tables=[
            TableBody(
                name=each.name,
                private=each.private,
                unit=each.unit,
                rules=list(each.rules),
                columns=[_build_column(column, most) for column in each.columns],
            )
            for each in tables
        ],
        limits=limits,
    )


def _build_column(column: ColumnDescription, most: int | None) -> ColumnBody:
    values = column.values if most is None else column.values[:most]
    return ColumnBody(
        name=column.name,
        type=column.type,
        bounds=list(column.bounds),
        values=list(values),
        more_values=len(column.values) - len(values),
        notes=list(column.notes),
    )


def build_explanation(
    found: ExplainedQuery, forecast: Forecast | None, *, allowed: int | None
) -> ExplanationBody:
    """Return the price and the expected errors of a question, without the SQL that the engine gets.

    There is no `forecast` for a question about public tables only. `allowed` is how many such questions assistants may ask.
    """
    lines = list(_skip_engine_sql(found.lines))
    body = ExplanationBody(
        free=True,
        epsilon=None,
        accounts=[],
        fits=True,
        times=None,
        expected=list(_find_expected_errors(lines)),
        notices=list(found.notices),
        plan=lines,
    )
    if found.price is None or forecast is None or not forecast.accounts:
        return body
    counts = [query.times for query in forecast.queries]
    times = min((each for each in (*counts, allowed) if each is not None), default=None)
    charge: dict[str, Any] = {
        "free": False,
        "epsilon": _to_number(found.price.epsilon, up=True),
        "accounts": list(found.price.accounts),
        "fits": forecast.fits and times != 0,
        "times": times,
    }
    return body.model_copy(update=charge)


def _skip_engine_sql(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines above the SQL that is sent to the engine, which helps nobody who cannot read the data."""
    for line in lines:
        if line.startswith(_SQL_HEAD):
            return
        yield line


def _find_expected_errors(lines: Iterable[str]) -> Iterator[str]:
    is_measurement = False
    for line in lines:
        is_measurement = line.startswith(_MEASUREMENTS_HEAD) or (is_measurement and line.startswith("  "))
        if is_measurement and ": expected " in line:
            yield line.strip()


def build_answer(
    result: Result, loss: Fraction, remaining: Sequence[RemainingBudget], limits: LimitsBody
) -> AnswerBody:
    """Return an answer with its first rows, the intervals of their cells, its charge and what is left."""
    cut = replace(result, rows=result.rows[:MOST_ROWS], scales=result.scales[:MOST_ROWS])
    noisy = result.bounded_columns or (False,) * len(result.columns)
    charged, count = bool(result.receipt.entries), len(result.rows)
    left_out = (
        f"{count - MOST_ROWS:,} more rows are left out: add ORDER BY, LIMIT and OFFSET to the same query, which is free",
    )
    return _WrittenAnswer(
        columns=[
            AnswerColumnBody(name=name, type=kind, noisy=ends)
            for name, kind, ends in zip(result.columns, result.types, noisy, strict=True)
        ],
        rows=[json_format.write_value(row) for row in cut.rows],
        intervals=json_format.write_intervals(cut.intervals(0.95)),
        row_count=count,
        notices=[*result.notices, *left_out * (count > MOST_ROWS)],
        charged=charged,
        epsilon=_to_number(loss, up=True) if charged else None,
        charge=format_charges(result.receipt, loss, remaining).splitlines(),
        remaining=[
            BalanceBody(name=each.name, remaining_epsilon=_to_number(each.remaining_epsilon))
            for each in remaining
        ],
        limits=limits,
        table_text=format_answer(cut, AnswerFormat.TABLE, View()),
    )


def build_budgets(states: Iterable[BudgetState], limits: LimitsBody) -> BudgetsBody:
    """Return the budgets of tables and of this account."""
    return BudgetsBody(
        budgets=[
            BudgetBody(
                name=each.name,
                epsilon=_to_number(each.epsilon),
                spent_epsilon=_to_number(each.spent_epsilon, up=True),
                remaining_epsilon=_to_number(each.remaining_epsilon),
                queries=each.queries,
                locked=each.locked,
            )
            for each in states
        ],
        limits=limits,
    )


def build_history(entries: Sequence[Entry]) -> HistoryBody:
    """Return charges, newest first."""
    return HistoryBody(
        history=[
            ChargeBody(
                entry=each.id,
                at=each.at.isoformat(),
                table=each.table,
                query=_cut_text(each.query),
                loss=str(each.spend.loss_fraction),
                delta=str(each.spend.delta_fraction),
            )
            for each in reversed(entries)
        ]
    )


def _cut_text(text: str) -> str:
    return text if len(text) <= MOST_QUERY else f"{text[:MOST_QUERY]}…"


# Write them as texts.


@singledispatch
def format_body(body: BaseModel) -> str:
    """Return a body as a short text for models and people."""
    return body.model_dump_json(exclude_none=True)


@format_body.register
def _format_schema(body: SchemaBody) -> str:
    lines = [f"privacy unit: {body.privacy_unit}"]
    for table in body.tables:
        lines += ["", f"{table.name} ({'private' if table.private else 'public'})"]
        lines += [f"  {rule}" for rule in table.rules]
        for column in table.columns:
            span = f"[{', '.join(column.bounds)}]" if column.bounds else ", ".join(column.values)
            more = f", and {column.more_values:,} more" if column.more_values else ""
            notes = f"  ({', '.join(column.notes)})" if column.notes else ""
            lines.append(f"  {column.name} {column.type}  {span}{more}{notes}".rstrip())
    return _join_lines([*lines, "", *_format_limits(body.limits)])


@format_body.register
def _format_explanation(body: ExplanationBody) -> str:
    if body.free:
        price = "this question is free"
    else:
        fit = f"{body.times:,} such questions fit" if body.fits and body.times else "it does not fit"
        price = f"ε {body.epsilon:g}, charged to {' and '.join(body.accounts)}; {fit}"
    return _join_lines([price, *body.expected, *body.notices])


@format_body.register
def _format_answer(body: _WrittenAnswer) -> str:
    spent = [
        f"assistants of this account: ε {body.limits.remaining:g} of {body.limits.budget:g} left"
        for _ in range(body.limits.budget is not None and body.limits.remaining is not None)
    ]
    return "\n".join([body.table_text, _join_lines([*body.notices, *body.charge, *spent])])


@format_body.register
def _format_budgets(body: BudgetsBody) -> str:
    lines = [
        f"{each.name}: ε {each.spent_epsilon:g} of {each.epsilon:g} spent, at most ε {each.remaining_epsilon:g} in one question"
        + ", locked" * each.locked
        for each in body.budgets
    ]
    return _join_lines([*lines, *_format_limits(body.limits)])


@format_body.register
def _format_history(body: HistoryBody) -> str:
    lines = [f"{each.entry}  {each.at[:16]}  {each.table}  {each.query}" for each in body.history]
    return _join_lines(lines or ["nothing was charged yet"])


def _format_limits(limits: LimitsBody) -> list[str]:
    words: tuple[tuple[float | None, Callable[[float], str]], ...] = (
        (limits.default_epsilon, lambda value: f"ε {value:g} if a question states none"),
        (limits.max_epsilon, lambda value: f"at most ε {value:g} in one question"),
        (limits.budget, lambda value: f"ε {limits.spent or 0:g} of {value:g} of all assistants spent"),
    )
    found = [write(value) for value, write in words if value is not None]
    return [f"limits: {'; '.join(found)}"] if found else []


def format_refusal(error: Error) -> str:
    """Return an error as text: its code, its rule, what to write instead, and whether it was charged."""
    charge = {False: "nothing was charged", True: "the question was charged"}
    end = "whether it was charged is not known" if error.charged is None else charge[error.charged]
    return f"{format_error(error)}\n{end}"


def _join_lines(lines: Iterable[str]) -> str:
    """Join lines, each without characters that are not printed."""
    return "\n".join(escape_unprintable(line) for line in lines)
