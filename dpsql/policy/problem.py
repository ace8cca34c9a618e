"""Problems of a policy: what is wrong, where, and what to write instead; and their report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice

from pydantic_core import PydanticCustomError

from dpsql.errors import PolicyError, Position
from dpsql.policy.names import find_name_problem, normalize_account_name, normalize_name

# A problem of a policy, and how it is raised through the pydantic models.


KeyPath = tuple[str | int, ...]

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_SHOWN = 60
_MOST_COMPARED = 300


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its place (`path`, keys and list places), a stable `code`, and words for the owner."""

    path: KeyPath
    code: str
    message: str
    hint: str | None = None

    def with_parents(self, *parents: str | int) -> Problem:
        """Return the same problem seen from further up, `parents` before its path."""
        return replace(self, path=(*parents, *self.path))


def make_problems_error(problems: Sequence[Problem]) -> PydanticCustomError:
    """Return the error that a validator raises for `problems`, whose paths are relative to the value it validates."""
    text = "; ".join(problem.message for problem in problems)
    return PydanticCustomError("policy", "{text}", {"text": text, "problems": tuple(problems)})


def make_problem_error(
    code: str, message: str, *, hint: str | None = None, at: KeyPath = ()
) -> PydanticCustomError:
    """Return the error that a validator raises for one problem, `at` a path below the value it validates."""
    return make_problems_error([Problem(at, code, message, hint)])


def list_problems(error: PydanticCustomError, *parents: str | int) -> list[Problem]:
    """Return the problems that a validator raised through `make_problem_error` or `make_problems_error`, seen from above `parents`."""
    return [problem.with_parents(*parents) for problem in (error.context or {})["problems"]]


def list_name_problems(names: Mapping[str, object], kind: str, *, dots: bool) -> list[Problem]:
    """Return the names that cannot be used, and those that differ only by case from an earlier one.

    Tables and analysts have accounts: their names must also differ after `normalize_account_name`.
    """
    problems: list[Problem] = []
    first: dict[str, str] = {}
    accounts: dict[str, str] = {}
    for name in names:
        wrong = find_name_problem(name, kind, dots=dots)
        if wrong:
            hint = "make a view with a simple name and declare that" if "dot" in wrong else None
            problems.append(Problem((str(name),), "bad_name", wrong, hint))
        elif normalize_name(name) in first:
            words = (
                f"{first[normalize_name(name)]} and {name} differ only by case, so SQL reads them as one name"
            )
            problems.append(Problem((name,), "duplicate_name", words, "keep one of them"))
        elif kind != "column" and normalize_account_name(name) in accounts:
            other = accounts[normalize_account_name(name)]
            words = f"{other!r} and {name!r} differ only by case, spaces or Unicode form, so they share one budget"
            problems.append(Problem((name,), "duplicate_name", words, "keep one of them"))
        else:
            first[normalize_name(name)] = accounts[normalize_account_name(name)] = name
    return problems


def format_path(path: KeyPath) -> str:
    """Return the path as an owner writes it: `tables.visits.columns.cost.bounds[0]`, odd names quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _PLAIN.fullmatch(part) else format_value(part))
    return text


def format_value(value: object) -> str:
    """Return a value of the policy as one line of at most about 60 characters."""
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except ValueError:  # Python does not write integers of thousands of digits
        text = "a very long number"
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def suggest_choice(word: str, choices: Iterable[str]) -> str | None:
    """Return a hint that names the closest of the first few hundred choices, or None when nothing is close."""
    by_lower = {choice.lower(): choice for choice in islice(choices, _MOST_COMPARED)}
    close = get_close_matches(word.lower(), by_lower, n=1)
    return f"did you mean {by_lower[close[0]]}?" if close else None


# The report of all problems of a policy: one `PolicyError` that names the file, the lines and the keys.


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
