"""The command line: `dpsql shell`, `query`, `explain`, `check`, `init`, `budget`, and what app.py lists besides."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from dpsql.errors import BackendError, BudgetExhausted, Error, QueryRejected

EXITS = ((QueryRejected, 3), (BudgetExhausted, 4), (BackendError, 5))
"""The exit codes after errors that a script tells apart: a query refused, a budget too small, the engine failed."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits: 0 if it worked, 2 after a misuse of the options, after an error as `EXITS` says, or 1.

    An error is a message on stderr, never a traceback: a traceback could hold private values.
    """
    from dpsql.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            # A terminal that lacks ε is no reason to fail after the charge.
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    failure, code = "", 1
    try:
        app(None if arguments is None else list(arguments), prog_name="dpsql")
    except Error as error:
        failure = _format_error(error)
        code = next((code for kind, code in EXITS if isinstance(error, kind)), 1)
    except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
        from dpsql.shell.failures import format_unforeseen_error

        failure = format_unforeseen_error(error)
    if failure:
        _print_error(failure)
        sys.exit(code)


def _format_error(error: Error) -> str:
    from dpsql.shell.failures import format_error

    return format_error(error)


def _print_error(text: str) -> None:
    from dpsql.shell.failures import highlight_error
    from dpsql.shell.view import View

    print(View.from_stream(sys.stderr).render_parts(highlight_error(text)), file=sys.stderr)
