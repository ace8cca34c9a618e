"""What is known of how many rows a public source has, whatever is released."""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.plan.expr import Column, Released
from dpsql.plan.nodes import Answer, Filter, Grouped, Project, Release, Source, Values


def is_unique(answer: Source, columns: Iterable[Column]) -> bool:
    """Whether no two rows of a source agree in all of these columns, whatever is released."""
    if not isinstance(answer, Answer) or not isinstance(answer.post.source, Release):
        return False
    named = {column.name for column in columns}
    shown = {
        output.expr.name
        for output, column in zip(answer.post.outputs, answer.columns, strict=True)
        if isinstance(output.expr, Released) and column.name in named
    }
    return shown >= {key.name for key in answer.post.source.keys}


def is_single(source: Source) -> bool:
    """Whether a public source has at most one row."""
    match source:
        case Answer(post=post):
            whole = isinstance(post.source, Release) and not post.source.keys
            below = isinstance(post.source, (Project, Values)) and is_single(post.source)
            return post.limit in (0, 1) or whole or below
        case (
            Project(input=Grouped() | Project() as rows)
            | Project(input=Filter(input=Grouped() | Project() as rows))
        ):
            return is_single(rows)
        case Grouped():
            return not source.keys
        case Values():
            return len(source.rows) <= 1
        case _:
            return False
