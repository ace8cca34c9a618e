"""`dpsql audit verify`, `show` and `head`: a server's log of logins, queries and changes."""

from __future__ import annotations

import json
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.interfaces.cli.ledger import AnchoredHead, open_reader, read_anchored_head
from dpsql.interfaces.cli.options import AnchorPath, LedgerKey

if TYPE_CHECKING:
    from dpsql.ledger.audit_log import AuditEvent

audit = typer.Typer(help="Verify and show the audit log of `dpsql serve`.", no_args_is_help=True)

Log = Annotated[Path, typer.Argument(metavar="LOG", help="The audit log, a file.", show_default=False)]
Beside = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        "-l",
        metavar="FILE|URL",
        help="The ledger of the same server: the log's charges are compared with it.",
        show_default=False,
    ),
]
User = Annotated[str | None, typer.Option("--user", help="Show only this user's events.", show_default=False)]
Name = Annotated[
    str | None,
    typer.Option(
        "--event",
        help="Show only events of this name: start, stop, login, 'login refused', asked, answered, refused, failed, 'reload asked', reload or "
        "'reload refused'.",
        show_default=False,
    ),
]
Last = Annotated[int, typer.Option("--last", min=1, help="Show at most this number of the newest events.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one event per line, as JSON.")]


@audit.command()
def verify(
    log: Log,
    *,
    ledger: Beside = None,
    anchor: AnchorPath = None,
    head: AnchoredHead = None,
    ledger_key: LedgerKey = None,
) -> None:
    """Verify every event, from the first to the last, with the ledger's key.

    The audit log has its own anchor: the file beside the ledger's anchor with the ending .audit.
    """
    from dpsql.ledger.audit_log import require_ledger_entries, verify_log
    from dpsql.ledger.key import read_ledger_key as key_of
    from dpsql.ledger.rows import START

    expected = read_anchored_head(anchor, head)
    found = verify_log(log, key_of(ledger_key), expected or START)
    under = " with the ledger's key" if ledger_key else ""
    print(f"the chain is intact{under}: events {found.head.entries:,}")
    for name, count in sorted(found.counts.items()):
        print(f"  {name}: {count:,}")
    if ledger is not None:
        with open_reader(ledger, ledger_key) as history:
            history.verify()
            require_ledger_entries(found, history.iterate_rows())
        print(f"the ledger has every charge of the log: charges {len(found.charge_events):,}")
    if expected is None:
        print("to detect events missing at the end, compare with a recorded head: --anchor FILE or --head")
    else:
        print(f"the chain contains the recorded head of {expected.entries:,} events")
    print(f"head: {found.head}")


@audit.command()
def show(
    log: Log,
    *,
    user: User = None,
    event: Name = None,
    last: Last = 20,
    as_json: AsJson = False,
    ledger_key: LedgerKey = None,
) -> None:
    """Show the newest events, oldest first; each event is verified as it is read."""
    from dpsql.interfaces.shell.view import View, build_table
    from dpsql.ledger.audit_log import iterate_events
    from dpsql.ledger.key import read_ledger_key as key_of

    found: deque[AuditEvent] = deque(maxlen=last)
    for each in iterate_events(log, key_of(ledger_key)):
        if (user is None or user in (each.facts.get("user"), each.facts.get("by"))) and event in (
            None,
            each.name,
        ):
            found.append(each)
    if as_json:
        for each in found:
            facts = {"number": each.number, "at": each.at.isoformat(), "event": each.name, **each.facts}
            print(json.dumps(facts, ensure_ascii=False))
    elif not found:
        print("the audit log has no such events")
    else:
        rows = [
            (
                f"{each.number}",
                f"{each.at:%Y-%m-%d %H:%M:%S}",
                str(each.facts.get("user") or each.facts.get("by") or ""),
                each.name,
                _describe_event(each),
            )
            for each in found
        ]
        print(
            View.from_stream(sys.stdout).render_parts(
                build_table(("event", "at (UTC)", "user", "what", "facts"), rows, right=(0,))
            )
        )


@audit.command()
def head(log: Log, ledger_key: LedgerKey = None) -> None:
    """Print the log's head. Record it where nobody who can write the log can change it."""
    from dpsql.ledger.audit_log import verify_log
    from dpsql.ledger.key import read_ledger_key as key_of

    print(verify_log(log, key_of(ledger_key)).head)


def _describe_event(event: AuditEvent) -> str:
    """Return the facts of an event, without the user who caused it."""
    return ", ".join(
        f"{name} {_format_fact(value)}"
        for name, value in event.facts.items()
        if name not in ("user", "by", "ledger", "analyst")
    )


def _format_fact(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}: {_format_fact(each)}" for name, each in value.items())
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "unknown"}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)
