"""A problem of a policy, and how it is raised through the pydantic models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice

from pydantic_core import PydanticCustomError

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
