"""The command line: `dpsql shell`, `query`, `explain`, `check`, `init`, `budget`, and what app.py lists besides."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

from dpsql.errors import BackendError, BudgetExhausted, Error, QueryRejected

EXITS = ((QueryRejected, 3), (BudgetExhausted, 4), (BackendError, 5))
"""Exit codes of errors that a script can distinguish: a refused query, a budget too small, a failed engine."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit: with 0 on success, 2 after invalid options, the code in `EXITS` after an error, else 1.

    An error is a message on stderr, never a traceback: a traceback could hold private values.
    """
    from dpsql.interfaces.cli.app import app

    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            # A terminal that cannot print ε must not make the command fail after the charge.
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    failure, code = "", 1
    try:
        app(None if arguments is None else list(arguments), prog_name="dpsql")
    except Error as error:
        from dpsql.interfaces.shell.answers import format_error

        failure = format_error(error)
        code = next((code for kind, code in EXITS if isinstance(error, kind)), 1)
    except Exception as error:  # noqa: BLE001  (whatever it is, its words may quote private values)
        from dpsql.interfaces.shell.answers import format_unforeseen_error

        failure = format_unforeseen_error(error)
    if failure:
        from dpsql.interfaces.shell.answers import print_error

        print_error(failure)
        sys.exit(code)
