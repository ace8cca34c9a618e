"""The report of all problems of a policy: one `PolicyError` that names the file, the lines and the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpsql.errors import PolicyError, Position
from dpsql.policy.problem import KeyPath, Problem, format_path

MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class PolicySource:
    """The source of a policy: the name shown, its text, and the place of each key in the text.

    A policy that is no text (a dict, a model) has neither text nor places.
    """

    name: str
    text: str | None = None
    positions: Mapping[KeyPath, Position] | None = None

    def find_position(self, path: KeyPath) -> Position | None:
        """Return the place of the key, or of the nearest key around it when it is not written."""
        if not self.positions:
            return None
        return next(
            (self.positions[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.positions),
            None,
        )


def make_policy_error(source: PolicySource, problems: Sequence[Problem]) -> PolicyError:
    """Return one error for all problems, in the order of the file; the first one sets code and position."""
    known = {(problem.path, problem.code): problem for problem in problems}
    placed = [(source.find_position(problem.path), problem) for problem in known.values()]
    placed.sort(key=lambda found: (found[0].line, found[0].column) if found[0] else (0, 0))
    position, first = placed[0]
    lines = [_format_problem(source.name, *found) for found in placed[:MOST_SHOWN]]
    if len(placed) > MOST_SHOWN:
        lines.append(f"and {len(placed) - MOST_SHOWN} more")
    if len(placed) > 1:
        lines.append(f"{len(placed)} problems, the first here" if position else f"{len(placed)} problems")
    return PolicyError(
        "\n".join(lines),
        code=first.code,
        hint=_format_hints([problem for _, problem in placed[:MOST_SHOWN]]),
        position=position,
        text=source.text,
    )


def _format_problem(name: str, position: Position | None, problem: Problem) -> str:
    where = f"{name}, line {position.line}" if position else name
    key = f"{format_path(problem.path)}: " if problem.path else ""
    return f"{where}: {key}{problem.message}"


def _format_hints(problems: Sequence[Problem]) -> str | None:
    if len(problems) == 1:
        return problems[0].hint
    hints = [
        f"{format_path(problem.path) or 'policy'}: {problem.hint}" for problem in problems if problem.hint
    ]
    return "\n  ".join(hints) or None
