"""Metrics for the owner's monitoring: requests, statements and connections, in Prometheus' text format.

They contain no values of the data, no query texts and no user names.

Source: Prometheus, "Exposition formats", text format 0.0.4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Counters of requests by route and status, and of their running times."""

    def __init__(self) -> None:
        self._requests = Counter[tuple[str, int]]()
        self._seconds = Counter[str]()

    def count_response(self, route: str, status: int, seconds: float) -> None:
        """Count a response; the route is a template, never a client's own text."""
        self._requests[route, status] += 1
        self._seconds[route] += seconds  # type: ignore[assignment]

    def render_text(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """Render all metrics; `gauges` are further names with their help and value."""
        requests = [
            (f'{{route="{route}",status="{status}"}}', float(count))
            for (route, status), count in sorted(self._requests.items())
        ]
        seconds = [(f'{{route="{route}"}}', float(total)) for route, total in sorted(self._seconds.items())]
        lines = [
            *_format_family(
                "dpsql_http_requests_total", "counter", "Responses, by route and status.", requests
            ),
            *_format_family(
                "dpsql_http_seconds_total", "counter", "Seconds until responses, by route.", seconds
            ),
        ]
        for name, (said, value) in gauges.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += _format_family(name, kind, said, [("", value)])
        return "\n".join(lines) + "\n"


def _format_family(name: str, kind: str, said: str, samples: Iterable[tuple[str, float]]) -> list[str]:
    return [
        f"# HELP {name} {said}",
        f"# TYPE {name} {kind}",
        *(f"{name}{labels} {value:g}" for labels, value in samples),
    ]


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
