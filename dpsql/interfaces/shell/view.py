"""Render rich text to a string: colored and wrapped for a terminal, plain otherwise."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.box import Box
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_READABLE = 100
_UNBOUNDED = 10_000  # columns: output that is not for a terminal is never wrapped


@dataclass(frozen=True, slots=True)
class View:
    """How text is shown: colored or not, wrapped to the terminal's width or not."""

    color: bool = False
    fit: bool = False

    @classmethod
    def from_stream(cls, stream: TextIO) -> View:
        """Return the view for a stream: plain unless it is a terminal, without colors if NO_COLOR is set."""
        if not stream.isatty():
            return cls()
        return cls(not os.environ.get("NO_COLOR"), fit=True)

    @property
    def width(self) -> int:
        """Return the columns of the terminal, or no limit without one."""
        return shutil.get_terminal_size().columns if self.fit else _UNBOUNDED

    @property
    def columns(self) -> int:
        """Return the width of running text."""
        return min(_READABLE, shutil.get_terminal_size().columns) if self.fit else _READABLE

    def render_parts(self, *parts: RenderableType) -> str:
        """Render the parts one below the other, without space at the ends of lines."""
        from rich.console import Console

        out = io.StringIO()
        console = Console(
            file=out,
            force_terminal=self.color,
            no_color=not self.color,
            color_system="standard" if self.color else None,
            width=self.width,
            markup=False,
            highlight=False,
            emoji=False,
        )
        for part in parts:
            console.print(part, soft_wrap=isinstance(part, str))
        return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def render_table(made: Table, view: View) -> str:
    """Render a table, or each of its rows as lines if it is wider than the terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if Console(width=_UNBOUNDED).measure(made).maximum <= view.width:
        return view.render_parts(made)
    parts: list[RenderableType] = []
    for row in zip(*(column.cells for column in made.columns), strict=True):
        lines = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        lines.add_column(style="bold", no_wrap=True)
        lines.add_column(overflow="fold")
        for column, cell in zip(made.columns, row, strict=True):
            lines.add_row(column.header, cell)
        parts += [*([Text("")] if parts else []), lines]
    return view.render_parts(*parts)


def build_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> Table:
    """Build a table with a rule under its head; `right` are the columns to align right.

    The cells are plain text: control characters in them are shown as escapes.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(
        box=_make_rule_box(), header_style="bold", pad_edge=False, show_edge=False, padding=(0, 1, 0, 0)
    )
    for index, name in enumerate(columns):
        made.add_column(
            Text(escape_unprintable(name)), justify="right" if index in right else "left", overflow="fold"
        )
    for row in rows:
        made.add_row(*(Text(escape_unprintable(cell)) for cell in row))
    return made


def make_bold(text: str) -> Text:
    """Return bold text."""
    from rich.text import Text

    return Text(text, style="bold")


def make_dim(text: str) -> Text:
    """Return dimmed text."""
    from rich.text import Text

    return Text(text, style="dim")


def escape_unprintable(text: str) -> str:
    r"""Return the text on one line, with control characters, which could control a terminal, as escapes.

    >>> escape_unprintable("a\x1b[2J\n")
    'a\\x1b[2J\\n'
    """
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _make_rule_box() -> Box:
    from rich.box import Box

    return Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
