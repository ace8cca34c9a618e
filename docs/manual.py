"""Make the man page dpsql(1) from the commands: `docs/dpsql.1`, which a wheel installs below share/man."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from dpsql.interfaces.cli.app import app

PAGE = Path(__file__).resolve().parent / "dpsql.1"
_VARIABLES = {
    "DPSQL_POLICY": "The policy, where no option names one.",
    "DPSQL_LEDGER": "The ledger, likewise.",
    "DPSQL_LEDGER_KEY_FILE": "The file with the ledger's key.",
    "DPSQL_EPSILON": "The privacy loss of a query that names none.",
    "DPSQL_TOKEN": "The token for a server.",
}
_EXITS = {
    "0": "Success.",
    "1": "An error, with its code on standard error.",
    "2": "Options were misused.",
    "3": "A query was refused.",
    "4": "A budget does not suffice.",
    "5": "The engine failed.",
    "130": "Ctrl-C.",
}


def manual() -> str:
    """Return the page in the macros of man(7)."""
    top = typer.main.get_command(app)
    lines = [
        '.TH DPSQL 1 "" dpsql',
        ".SH NAME",
        "dpsql \\- ordinary SQL over private data, answered with differential privacy",
        ".SH SYNOPSIS",
        ".B dpsql",
        ".I COMMAND",
        "[\\fIARGUMENTS\\fR] [\\fIOPTIONS\\fR]",
        ".SH COMMANDS",
        *_commands(top, ""),
        ".SH ENVIRONMENT",
        *_list(_VARIABLES),
        ".SH EXIT STATUS",
        *_list(_EXITS),
        ".SH FILES",
        *_list(
            {
                "NAME.yaml, NAME.ledger": "The policy and the ledger beside the data NAME, unless others are named."
            }
        ),
    ]
    return "\n".join(lines) + "\n"


def _commands(command: Any, path: str) -> Iterator[str]:
    for name, below in getattr(command, "commands", {}).items():
        full = f"{path} {name}".strip()
        if hasattr(below, "commands"):
            yield from _commands(below, full)
            continue
        arguments = [part for part in below.params if part.param_type_name == "argument"]
        words = " ".join(f"\\fI{_text(part.name.upper())}\\fR" for part in arguments)
        yield f".SS dpsql {_text(full)} {words}".rstrip()
        for number, paragraph in enumerate(re.split(r"\n\s*\n", inspect.cleandoc(below.help or ""))):
            yield from ([".PP"] if number else [])
            yield _text(" ".join(paragraph.split()))
        options = [part for part in below.params if part.param_type_name == "option" and part.name != "help"]
        yield from _list(
            {
                **{part.name.upper(): part.help or "" for part in arguments},
                **{", ".join([*part.opts, *part.secondary_opts]): part.help or "" for part in options},
            }
        )


def _list(entries: dict[str, str]) -> Iterator[str]:
    for name, said in entries.items():
        yield from (".TP", f".B {_text(name)}")
        if said:
            yield _text(" ".join(inspect.cleandoc(said).split()))


def _text(text: str) -> str:
    """Return a text on one line, with the characters escaped that roff would interpret."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in {".", "'"} else escaped
