"""Metrics for the owner's monitoring, in Prometheus' text format: requests, statements by outcome, budgets and locks.

They contain no values of the data, no query texts and no names of users. Names of tables are in them, which the policy has.

Source: Prometheus, "Exposition formats", text format 0.0.4.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from dpsql.errors import Error
from dpsql.ledger.budget_state import BudgetState

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper ends of the seconds that are counted apart."""

_Samples = Iterable[tuple[str, float]]


class Metrics:
    """Counters of HTTP requests by route and status, and of statements of both protocols by outcome and seconds."""

    def __init__(self) -> None:
        self._requests = Counter[tuple[str, int]]()
        self._request_seconds: dict[str, float] = {}
        self._outcomes = Counter[tuple[str, str]]()
        self._seconds: dict[str, float] = {}
        self._buckets: dict[str, list[int]] = {}

    def count_response(self, route: str, status: int, seconds: float) -> None:
        """Count a response; the route is a template, never a client's own text."""
        self._requests[route, status] += 1
        self._request_seconds[route] = self._request_seconds.get(route, 0.0) + seconds

    @contextmanager
    def time_statement(self, door: str) -> Iterator[None]:
        """Count a statement by its outcome: answered, refused (nothing was charged), failed or cancelled, and its seconds."""
        begun, outcome = time.monotonic(), "cancelled"
        try:
            yield
            outcome = "answered"
        except Error as error:
            outcome = "refused" if error.charged is False else "failed"
            raise
        except Exception:
            outcome = "failed"
            raise
        finally:
            self._count_statement(door, outcome, time.monotonic() - begun)

    def _count_statement(self, door: str, outcome: str, seconds: float) -> None:
        self._outcomes[door, outcome] += 1
        self._seconds[door] = self._seconds.get(door, 0.0) + seconds
        counts = self._buckets.setdefault(door, [0] * len(BUCKETS))
        for place, end in enumerate(BUCKETS):
            counts[place] += seconds <= end

    def render_text(
        self, gauges: Mapping[str, tuple[str, float]], budgets: Sequence[BudgetState] = ()
    ) -> str:
        """Render all metrics; `gauges` are further names with their help and value, `budgets` those of tables."""
        lines = [
            *_format_family(
                "dpsql_http_requests_total",
                "Responses, by route and status.",
                (
                    (_write_labels(route=route, status=str(status)), count)
                    for (route, status), count in sorted(self._requests.items())
                ),
            ),
            *_format_family(
                "dpsql_http_seconds_total",
                "Seconds until responses, by route.",
                (
                    (_write_labels(route=route), total)
                    for route, total in sorted(self._request_seconds.items())
                ),
            ),
            *_format_family(
                "dpsql_statements_total",
                "Statements, by protocol and outcome.",
                (
                    (_write_labels(door=door, outcome=outcome), count)
                    for (door, outcome), count in sorted(self._outcomes.items())
                ),
            ),
            *self._format_histogram(),
            *_format_budgets([state for state in budgets if not state.analyst]),
        ]
        for name, (said, value) in gauges.items():
            lines += _format_family(name, said, [("", value)])
        return "\n".join(lines) + "\n"

    def _format_histogram(self) -> Iterator[str]:
        name = "dpsql_statement_seconds"
        yield f"# HELP {name} Seconds until statements ended, with their wait, by protocol."
        yield f"# TYPE {name} histogram"
        for door, counts in sorted(self._buckets.items()):
            total = sum(count for (each, _), count in self._outcomes.items() if each == door)
            for end, count in zip((*map(str, BUCKETS), "+Inf"), (*counts, total), strict=True):
                yield f"{name}_bucket{_write_labels(door=door, le=end)} {count}"
            yield f"{name}_sum{_write_labels(door=door)} {self._seconds[door]:g}"
            yield f"{name}_count{_write_labels(door=door)} {total}"


def _format_budgets(states: Sequence[BudgetState]) -> Iterator[str]:
    """Yield the share of each table's budget that is used, failed statements, and whether the table is locked."""
    families: dict[str, tuple[str, list[float]]] = {
        "dpsql_budget_used_ratio": (
            "The share of a table's budget that is used.",
            [min(1.0, state.spent.loss / state.limit.loss) if state.limit.loss else 1.0 for state in states],
        ),
        "dpsql_budget_charges_total": ("Charges to a table's budget.", [state.queries for state in states]),
        "dpsql_table_failures": (
            "Statements that failed while they ran since the table was last unlocked.",
            [state.failures for state in states],
        ),
        "dpsql_table_locked": (
            "Whether a table is locked, since too many statements failed.",
            [int(state.locked) for state in states],
        ),
    }
    for name, (said, values) in families.items():
        labels = (_write_labels(table=state.table) for state in states)
        yield from _format_family(name, said, zip(labels, values, strict=True))


def _write_labels(**labels: str) -> str:
    """Return labels as they stand behind a name.

    >>> _write_labels(door="http", le="0.5")
    '{door="http",le="0.5"}'
    """
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"


def _format_family(name: str, said: str, samples: _Samples) -> Iterator[str]:
    yield f"# HELP {name} {said}"
    yield f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}"
    for labels, value in samples:
        yield f"{name}{labels} {value:g}"


def build_gauges(
    running: int, waiting: int, connections: int, refused_logins: int
) -> dict[str, tuple[str, float]]:
    """Return the gauges of the server's load: by name, what each counts and its value."""
    return {
        "dpsql_statements_running": ("Statements that run, over both protocols.", float(running)),
        "dpsql_statements_waiting": ("Statements that wait for their turn.", float(waiting)),
        "dpsql_http_connections": ("Open connections of the HTTP API.", float(connections)),
        "dpsql_http_logins_refused_total": (
            "Requests without a valid token or password.",
            float(refused_logins),
        ),
    }
