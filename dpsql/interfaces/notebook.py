"""The magics of notebooks: `%load_ext dpsql`, then `%dpsql` and `%%dpsql`.

`%dpsql connect hie.duckdb --policy hie.yaml --epsilon 0.1` opens a connection, with the arguments of `dpsql.connect`; `%dpsql con`
uses the connection in the variable `con`. `%dpsql SELECT …` and a cell below `%%dpsql` return a Result, which the notebook shows
with ±95%; `%%dpsql --epsilon 0.5 --into res` states the loss and the variable for the result. `%dpsql budget` shows budgets.
"""

from __future__ import annotations

import re
import shlex
from typing import Any, Final

from dpsql.api.base_connection import BaseConnection
from dpsql.api.connect import connect
from dpsql.errors import ProgrammingError

_OF_CONNECT: Final = (
    "policy",
    "ledger",
    "ledger_key",
    "anchor",
    "analyst",
    "epsilon",
    "dialect",
    "token",
    "tls_ca",
)
_OF_QUERY: Final = ("epsilon", "delta", "max_groups", "target_error", "confidence", "dialect", "into")
_HINT: Final = "%dpsql connect hie.duckdb --policy hie.yaml --epsilon 0.1"
_OPTION: Final = re.compile(r"\s*(?:--([a-z_-]+)|(-e))(?:\s+|=)(\"[^\"]*\"|'[^']*'|\S+)")


class Magic:
    """The `%dpsql` magic: it holds the connection for queries of cells."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._connection: BaseConnection | None = None

    def dpsql(self, line: str, cell: str | None = None) -> Any:
        """Run `%dpsql connect DATABASE …`, `%dpsql con`, `%dpsql budget` or `%dpsql SELECT …`; or `%%dpsql [options]` and a statement."""
        options, rest = _parse_options(line, _OF_QUERY)
        text = rest if cell is None else cell
        if cell is not None and rest.strip():
            raise ProgrammingError(
                f"{rest.split()[0]} is not an option of a query",
                code="argument",
                hint=f"options are --{', --'.join(_OF_QUERY)}",
            )
        words = text.split()
        if cell is None and words and not options:
            if words[0] == "connect":
                self._open_connection(shlex.split(text)[1:])
                return None
            if text.strip() == "budget":
                return self._require_connection().budget()
            known = self._shell.user_ns.get(text.strip())
            if isinstance(known, BaseConnection):
                self._connection = known
                return None
        if not words:
            raise ProgrammingError(
                "%dpsql needs a query", code="argument", hint="write %dpsql SELECT COUNT(*) FROM visits"
            )
        into = options.pop("into", None)
        if "max_groups" in options:
            options["max_groups"] = _parse_max_groups(options["max_groups"])
        result = self._require_connection().query(text.strip().removesuffix(";"), **options)
        if into is None:
            return result
        self._shell.push({into: result})
        return None

    def _require_connection(self) -> BaseConnection:
        if self._connection is None:
            raise ProgrammingError("no database is open", code="no_database", hint=f"open one: {_HINT}")
        return self._connection

    def _open_connection(self, words: list[str]) -> None:
        place = words[0] if words and not words[0].startswith("-") else None
        options, rest = _parse_options(shlex.join(words[place is not None :]), _OF_CONNECT)
        if rest.strip():
            raise ProgrammingError(
                f"{rest.split()[0]} is not an option of connect",
                code="argument",
                hint=f"options are --{', --'.join(_OF_CONNECT)}",
            )
        self._connection = connect(place, **options)


def _parse_options(line: str, known: tuple[str, ...]) -> tuple[dict[str, Any], str]:
    """Return the options before a text, and the text."""
    found: dict[str, Any] = {}
    end = 0
    while (match := _OPTION.match(line, end)) is not None:
        name = "epsilon" if match[2] else match[1].replace("-", "_")
        if name not in known:
            break
        found[name] = match[3][1:-1] if match[3][0] in "\"'" else match[3]
        end = match.end()
    return found, line[end:]


def _parse_max_groups(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def load_ipython_extension(shell: Any) -> None:
    """Register `%dpsql` and `%%dpsql` in a notebook."""
    shell.register_magic_function(Magic(shell).dpsql, "line_cell", "dpsql")
