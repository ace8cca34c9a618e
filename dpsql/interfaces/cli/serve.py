"""`dpsql serve`."""

from __future__ import annotations

import re
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsql.errors import Error
from dpsql.interfaces.cli.options import AnchorPath, AuditFile, LedgerFile, LedgerKey
from dpsql.interfaces.cli.options import _parse_epsilon as epsilon_of
from dpsql.interfaces.cli.users import USERS, Store

if TYPE_CHECKING:
    from dpsql.interfaces.server.http.door import HttpServer
    from dpsql.interfaces.server.http.oidc import OidcProvider

PolicyArgument = Annotated[
    Path, typer.Argument(metavar="POLICY", help="The owner's policy.", show_default=False)
]
DatabaseFile = Annotated[
    Path | None,
    typer.Option(
        "--database",
        "-d",
        help="The DuckDB file with the data, opened read-only. Omit it if the policy has the sources of its tables.",
        show_default=False,
    ),
]
Host = Annotated[
    str, typer.Option(help="The address to listen on. An address other than this machine's requires TLS.")
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port of the PostgreSQL protocol.")]
HttpPort = Annotated[int, typer.Option(min=0, max=65535, help="The port of the HTTP API.")]
Certificate = Annotated[
    Path | None,
    typer.Option("--tls-certificate", help="The server's certificate chain, in PEM.", show_default=False),
]
CertificateKey = Annotated[
    Path | None,
    typer.Option(
        "--tls-key", help="The certificate's key, in PEM, if it is in a separate file.", show_default=False
    ),
]
InTheClear = Annotated[
    bool,
    typer.Option(
        "--answers-cross-the-network-unencrypted",
        help="Listen on the network without TLS: anybody on the network can read the answers.",
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check", help="Check whether a server would start, report each problem, and exit without listening."
    ),
]
DefaultEpsilon = Annotated[
    Fraction | None,
    typer.Option(
        "--epsilon",
        "-e",
        parser=epsilon_of,
        metavar="NUMBER",
        help="The privacy loss of a query in sessions that do not set one.",
        show_default=False,
    ),
]
MostConnections = Annotated[
    int,
    typer.Option(
        "--connections",
        min=1,
        help="The largest number of connections at a time; one user gets at most as many as remain for others. Owners have 8 more.",
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        min=1,
        help="The largest number of statements that run at a time. Owners have one more for themselves.",
    ),
]
Running = Annotated[
    int,
    typer.Option(
        "--running", min=1, help="The largest number of statements of one analyst that run at a time."
    ),
]


Issuer = Annotated[
    str | None,
    typer.Option(
        "--oidc-issuer",
        metavar="URL",
        help="The OpenID Connect issuer at which users with a subject log in.",
        show_default=False,
    ),
]
ClientId = Annotated[
    str | None,
    typer.Option(
        "--oidc-client", metavar="ID", help="The client ID of this server at the issuer.", show_default=False
    ),
]
ClientSecret = Annotated[
    Path | None,
    typer.Option(
        "--oidc-secret",
        metavar="FILE",
        help="The file with the client's secret, if the issuer requires one.",
        show_default=False,
    ),
]
Redirect = Annotated[
    str | None,
    typer.Option(
        "--oidc-redirect",
        metavar="URL",
        help="The address of the web page, to which the issuer redirects browsers. [default: the host and HTTP port]",
        show_default=False,
    ),
]
Audience = Annotated[
    str | None,
    typer.Option(
        "--oidc-audience",
        metavar="NAME",
        help="The audience of this API in the issuer's access tokens; with it, the API accepts these tokens.",
        show_default=False,
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        "--processes",
        min=1,
        max=64,
        help="The number of processes that answer queries; 1 answers them in the process that listens.",
    ),
]


def _parse_seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s|min)", text.strip())
    if match is None:
        raise typer.BadParameter("write a time as a number with a unit: 5min, 1s or 250ms")
    return float(match[1]) * {"ms": 0.001, "s": 1, "min": 60}[match[2]]


AnswerGrid = Annotated[
    float | None,
    typer.Option(
        "--answer-grid",
        parser=_parse_seconds,
        metavar="TIME",
        help="Answer only at whole multiples of this time after a statement started, such as 1s, so that running times reveal less.",
        show_default=False,
    ),
]
Longest = Annotated[
    float | None,
    typer.Option(
        "--longest",
        parser=_parse_seconds,
        metavar="TIME",
        help="Stop a statement that has run for this time; if it was charged, this counts as a failure. 0s means no limit. [default: 10min]",
        show_default=False,
    ),
]


Idle = Annotated[
    float | None,
    typer.Option(
        "--idle",
        parser=_parse_seconds,
        metavar="TIME",
        help="End PostgreSQL sessions that are idle for this time, such as 3600s.",
        show_default=False,
    ),
]


def serve(
    policy: PolicyArgument,
    *,
    database: DatabaseFile = None,
    ledger: LedgerFile = None,
    ledger_key: LedgerKey = None,
    anchor: AnchorPath = None,
    audit: AuditFile = None,
    users: Store = USERS,
    host: Host = "localhost",
    port: Port = 5439,
    http_port: HttpPort = 8439,
    tls_certificate: Certificate = None,
    tls_key: CertificateKey = None,
    in_the_clear: InTheClear = False,
    epsilon: DefaultEpsilon = None,
    connections: MostConnections = 200,
    workers: Workers = 8,
    running: Running = 4,
    processes: Processes = 1,
    oidc_issuer: Issuer = None,
    oidc_client: ClientId = None,
    oidc_secret: ClientSecret = None,
    oidc_redirect: Redirect = None,
    oidc_audience: Audience = None,
    answer_grid: AnswerGrid = None,
    longest: Longest = None,
    idle: Idle = None,
    check: Check = False,
) -> None:
    """Serve analysts over the PostgreSQL protocol (psql, SQLAlchemy and others) and over HTTP, until SIGTERM or Ctrl-C.

    `dpsql users` manages users, passwords and tokens. A query is charged to the analyst with the user's name. SIGHUP reloads the
    policy, the data and the users, and keeps all connections. The HTTP API requires `dpsql[server]`; without it, only the
    PostgreSQL port is open.
    """
    import asyncio

    redirect = oidc_redirect or f"http{'s' * (tls_certificate is not None)}://{host}:{http_port}/"
    provider = _make_login_provider(oidc_issuer, oidc_client, oidc_secret, redirect, oidc_audience)
    if check:
        ports = (("PostgreSQL", port), *([] if _find_http_server() is None else [("HTTP", http_port)]))
        _check_server(
            policy,
            database,
            users=users,
            ledger=ledger or str(policy.with_suffix(".ledger")),
            ledger_key=ledger_key,
            anchor=anchor,
            audit=audit or policy.with_suffix(".audit"),
            host=host,
            ports=ports,
            certificate=tls_certificate,
            key=tls_key,
            in_the_clear=in_the_clear,
        )
        return

    from dpsql.interfaces.server.audit import ServerAudit, get_audit_anchor
    from dpsql.interfaces.server.doors import Lifecycle
    from dpsql.interfaces.server.doors import serve_until_signal as served
    from dpsql.interfaces.server.limits import Limits
    from dpsql.interfaces.server.listener import PgServer
    from dpsql.interfaces.server.service import Service, describe_service, reload_service
    from dpsql.interfaces.server.sockets import is_local, load_tls_context, log_event
    from dpsql.interfaces.server.user_changes import UserChangeWatcher
    from dpsql.interfaces.server.users import UserStore
    from dpsql.ledger.audit_log import AuditLog
    from dpsql.ledger.digest import read_ledger_key as read_key

    tls = None if tls_certificate is None else load_tls_context(tls_certificate, tls_key)
    store = UserStore.open(users)
    if provider is not None:
        store.require_issuer(provider.client.issuer)
    log_of_events = AuditLog.open(
        audit or policy.with_suffix(".audit"), read_key(ledger_key), get_audit_anchor(anchor)
    )
    service = Service(
        policy,
        database,
        users=store,
        ledger=ledger or str(policy.with_suffix(".ledger")),
        ledger_key=ledger_key,
        anchor=anchor,
        epsilon=None if epsilon is None else str(epsilon),
        audit=ServerAudit(log_of_events),
        processes=processes,
        limits=Limits(
            workers=workers,
            running_per_user=running,
            connections=connections,
            statement_seconds=Limits().statement_seconds if longest is None else longest,
            answer_grid=answer_grid or 0.0,
            idle_seconds=idle or 0.0,
        ),
    )
    door_of = _find_http_server()

    def report_ports(ports: list[list[int]]) -> None:
        print(describe_service(service))
        for what, found in zip(("PostgreSQL", "HTTP"), filter(None, ports), strict=False):
            print(f"{what}: listening on {host}:{', '.join(map(str, found))}")
        if door_of is None:
            print(_NO_HTTP)
        print("Ctrl-C stops", flush=True)

    async def run_server() -> None:
        listener = PgServer(
            service, tls=tls, requires_tls=tls is not None and not is_local(host), log=log_event
        )
        doors = [Lifecycle(lambda: listener.start(host, port, in_the_clear=in_the_clear), listener.stop)]
        if door_of is not None:
            door = door_of(service, tls=tls, log=log_event, provider=provider)
            doors.append(Lifecycle(lambda: door.start(host, http_port, in_the_clear=in_the_clear), door.stop))
        changes = UserChangeWatcher(service, log_event)
        doors.append(Lifecycle(changes.start, changes.stop))

        async def reload_quietly() -> None:
            with suppress(Error):  # which is in the log
                await reload_service(service, log_event, "SIGHUP")

        await served(doors, report_ports, reload_quietly)

    try:
        asyncio.run(run_server())
    finally:
        service.close()
        store.close()


def _make_login_provider(
    issuer: str | None, client: str | None, secret: Path | None, redirect: str, audience: str | None
) -> OidcProvider | None:
    """Return the OpenID Connect provider of the options, or None if they name none."""
    if issuer is None and client is None and secret is None and audience is None:
        return None
    if issuer is None or client is None:
        raise typer.BadParameter("OpenID Connect requires both --oidc-issuer and --oidc-client")
    try:
        from dpsql.interfaces.server.http.oidc import OidcClient
        from dpsql.interfaces.server.http.oidc import OidcProvider as Found
    except ModuleNotFoundError:
        raise typer.BadParameter("OpenID Connect requires joserfc: pip install 'dpsql[oidc]'") from None
    try:
        text = None if secret is None else secret.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise typer.BadParameter(f"cannot read the client's secret from {secret}") from None
    return Found(OidcClient(issuer, client, redirect, text, audience))


def _check_server(policy: Path, database: Path | None, **plan: Any) -> None:
    """Print the results of the checks, and exit with code 1 if a server would not start."""
    from dpsql.interfaces.server.check import ServerOptions, iterate_findings
    from dpsql.interfaces.shell.answers import format_error

    wrong = False
    for each in iterate_findings(ServerOptions(policy, database, **plan)):
        wrong = wrong or each.error is not None
        print(
            f"{each.name}: {each.found}" if each.error is None else f"{each.name}: {format_error(each.error)}"
        )
    if _find_http_server() is None:
        print(_NO_HTTP)
    if wrong:
        raise typer.Exit(1)


_NO_HTTP = "HTTP: not available, since starlette or uvicorn is not installed: pip install 'dpsql[server]'"


def _find_http_server() -> type[HttpServer] | None:
    """Return the HTTP server's class, or None if its requirements are not installed."""
    try:
        from dpsql.interfaces.server.http.door import HttpServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("starlette", "uvicorn", "h11", "anyio"):
            return None
        raise
    return HttpServer
