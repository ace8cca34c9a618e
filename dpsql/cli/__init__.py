"""The command line: `dpsql shell`, `query`, `explain`, `check`, `init`, `budget`, and what app.py lists besides."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from dpsql.errors import Error


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits: 0 if it worked, 1 after an error, 2 after a misuse of the options.

    An error is a message on stderr, never a traceback: a traceback could hold private values.
    """
    from dpsql.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            # A terminal that lacks ε is no reason to fail after the charge.
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    failure = ""
    try:
        app(None if arguments is None else list(arguments), prog_name="dpsql")
    except Error as error:
        failure = _message(error)
    except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
        from dpsql.shell.failures import unforeseen

        failure = unforeseen(error)
    if failure:
        _complain(failure)
        sys.exit(1)


def _message(error: Error) -> str:
    from dpsql.shell.failures import message

    return message(error)


def _complain(text: str) -> None:
    from dpsql.shell.failures import styled
    from dpsql.shell.view import View

    print(View.of(sys.stderr).show(styled(text)), file=sys.stderr)
