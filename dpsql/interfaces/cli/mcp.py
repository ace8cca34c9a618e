"""`dpsql mcp`, and the options of assistants that `dpsql serve` shares."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.api.arguments import is_address
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.cli.connections import (
    find_default_epsilon,
    get_default_ledger,
    is_new_ledger,
    is_policy_path,
    parse_location,
    remember_ledger,
    resolve_policy_path,
)
from dpsql.interfaces.cli.options import ConnectionOptions, make_number_parser
from dpsql.interfaces.cli.times import TimeOptions
from dpsql.version import write_pip_command

if TYPE_CHECKING:
    from dpsql.interfaces.mcp.allowances import AllowanceStore, AssistantLimits
    from dpsql.interfaces.server.service import Service
    from dpsql.interfaces.server.users import UserStore

AssistantSource = Annotated[
    str,
    typer.Argument(
        metavar="POLICY|DATABASE|URL",
        help="A policy with the sources of its tables; or the data as for dpsql query: a file or folder with its policy beside it, or the URL of a database.",
        show_default=False,
    ),
]
DefaultLoss = Annotated[
    Fraction | None,
    typer.Option(
        "--epsilon",
        "-e",
        parser=make_number_parser("epsilon"),
        metavar="NUMBER",
        help="The privacy loss of a question that states none. [default: DPSQL_EPSILON, or the policy's default_epsilon]",
        show_default=False,
    ),
]
MaxEpsilon = Annotated[
    Fraction | None,
    typer.Option(
        "--max-epsilon",
        parser=make_number_parser("max_epsilon"),
        metavar="NUMBER",
        help="The largest privacy loss of one question of an assistant, below the policy's.",
        show_default=False,
    ),
]
AssistantBudget = Annotated[
    Fraction | None,
    typer.Option(
        "--budget",
        parser=make_number_parser("budget"),
        metavar="NUMBER",
        help="The ε of all questions of one account's assistants together, on top of the account's budget.",
        show_default=False,
    ),
]
AssistantFile = Annotated[
    Path | None,
    typer.Option(
        "--assistants",
        metavar="FILE",
        help="The file with what assistants have spent, for --budget. [default: the policy's name with the ending .assistants]",
        show_default=False,
    ),
]
Audit = Annotated[
    Path | None,
    typer.Option(
        "--audit", metavar="FILE", help="Record each call in this audit log, too.", show_default=False
    ),
]


@dataclass(frozen=True, slots=True)
class AssistantOptions:
    """The limits of assistants, and the file with what they have spent."""

    max_epsilon: MaxEpsilon = None
    budget: AssistantBudget = None
    assistants: AssistantFile = None

    def open_limits(self, policy: Path) -> tuple[AssistantLimits, AllowanceStore]:
        """Return the limits, and open the file, which is in memory if there is no budget."""
        from dpsql.interfaces.mcp.allowances import AllowanceStore, AssistantLimits

        file = self.assistants or policy.with_suffix(".assistants")
        return AssistantLimits(self.max_epsilon, self.budget), AllowanceStore(
            None if self.budget is None else file
        )


def require_sdk() -> None:
    """Raise OperationalError (`mcp_unavailable`) if the SDK of the protocol is not installed."""
    from importlib.util import find_spec

    if find_spec("mcp") is None:
        raise OperationalError(
            "assistants need the SDK of the Model Context Protocol, which is not installed",
            code="mcp_unavailable",
            hint=write_pip_command("mcp"),
        )


def mcp(
    database: AssistantSource,
    *,
    options: ConnectionOptions,
    epsilon: DefaultLoss = None,
    assistant: AssistantOptions,
    times: TimeOptions,
    audit: Audit = None,
) -> None:
    """Let an assistant ask questions over standard input and output, by the Model Context Protocol.

    A desktop client starts this command (Claude Desktop and Code, VS Code, Cursor and others). Its questions are charged to the
    analyst. For people without access to the data, use `dpsql serve --mcp`, which answers at /mcp behind its tokens. Requires
    `dpsql[mcp]`.
    """
    import asyncio

    from dpsql.api.opening import get_user_name
    from dpsql.interfaces.server.users import UserStore

    require_sdk()
    if is_address(database):
        raise ProgrammingError(
            "an assistant reaches a server by its address, without this command",
            code="argument",
            hint=f"enter {database.rstrip('/')}/mcp and the token in the client's settings",
        )
    place = parse_location(database)
    policy = resolve_policy_path(place, options.policy)
    users = UserStore.make_for(options.analyst or get_user_name())
    service = _open_service(_PersonSettings(place, policy, options, times, epsilon, audit), users)
    limits, allowances = assistant.open_limits(policy)
    try:
        asyncio.run(_serve_until_end(service, users, limits, allowances))
    finally:
        _close(service, users, allowances)


def _close(service: Service, users: UserStore, allowances: AllowanceStore) -> None:
    service.close()
    users.close()
    allowances.close()


@dataclass(frozen=True, slots=True)
class _PersonSettings:
    """The settings of a server for the person who starts it."""

    database: Path | str
    policy: Path
    options: ConnectionOptions
    times: TimeOptions
    epsilon: Fraction | None
    audit: Path | None


def _open_service(settings: _PersonSettings, users: UserStore) -> Service:
    """Open the service of one person. Creating a ledger is announced on standard error."""
    from dpsql.interfaces.server.oversight import ServerAudit, get_audit_anchor
    from dpsql.interfaces.server.service import Service
    from dpsql.ledger.audit_log import AuditLog
    from dpsql.ledger.digest import read_ledger_key
    from dpsql.policy import load

    policy, options, epsilon = settings.policy, settings.options, settings.epsilon
    ledger = options.ledger or get_default_ledger(policy)
    begins = is_new_ledger(policy, ledger, wanted=options.new_ledger)
    default = find_default_epsilon(load(policy)) if epsilon is None else epsilon
    log = None
    if settings.audit is not None:
        anchor = get_audit_anchor(options.anchor)
        log = AuditLog.open(settings.audit, read_ledger_key(options.ledger_key), anchor)
    service = Service(
        policy,
        None if is_policy_path(settings.database) else settings.database,
        users=users,
        ledger=ledger,
        ledger_key=options.ledger_key,
        anchor=options.anchor,
        epsilon=None if default is None else str(default),
        limits=settings.times.to_limits(),
        audit=ServerAudit(log),
    )
    remember_ledger(policy, ledger)
    if begins:
        print(f"created a new ledger: {ledger}", file=sys.stderr)
    return service


async def _serve_until_end(
    service: Service, users: UserStore, limits: AssistantLimits, allowances: AllowanceStore
) -> None:
    """Serve until the client closes standard input, or the process gets SIGTERM or SIGINT."""
    import asyncio
    import contextlib
    import os
    import signal

    from dpsql.interfaces.mcp.calls import AssistantCalls
    from dpsql.interfaces.mcp.serving import serve_standard_streams
    from dpsql.interfaces.server.sockets import log_event

    calls = AssistantCalls(service, limits, allowances, log_event)
    (user,) = users.list_users()
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # on Windows
            loop.add_signal_handler(name, ended.set)
    serving = asyncio.ensure_future(serve_standard_streams(calls, user))
    waiting = asyncio.ensure_future(ended.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    await calls.stop(service.limits.drain_seconds)
    if not serving.done():
        # A thread waits for the client's next line, and nothing but that line or the end of the process ends it.
        _close(service, users, allowances)
        os._exit(0)
    waiting.cancel()
    await serving
