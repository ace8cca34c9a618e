"""`dpsql serve`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsql.errors import Error
from dpsql.interfaces.cli.connections import get_default_ledger
from dpsql.interfaces.cli.mcp import AssistantFile, AssistantOptions, require_sdk
from dpsql.interfaces.cli.options import AnchorPath, AuditFile, LedgerFile, LedgerKey, make_number_parser
from dpsql.interfaces.cli.times import TimeOptions, parse_seconds
from dpsql.interfaces.cli.users import USERS, Store
from dpsql.version import write_pip_command

if TYPE_CHECKING:
    from ssl import SSLContext

    from dpsql.interfaces.mcp.serving import AssistantEndpoint
    from dpsql.interfaces.server.http.listener import HttpServer
    from dpsql.interfaces.server.http.oidc import OidcProvider
    from dpsql.interfaces.server.service import Service
    from dpsql.interfaces.server.users import UserStore

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
        parser=make_number_parser("epsilon"),
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


Mcp = Annotated[
    bool,
    typer.Option(
        "--mcp",
        help="Answer assistants at /mcp of the HTTP port, by the Model Context Protocol, with the users' tokens.",
    ),
]
McpMaxEpsilon = Annotated[
    Fraction | None,
    typer.Option(
        "--mcp-max-epsilon",
        parser=make_number_parser("mcp_max_epsilon"),
        metavar="NUMBER",
        help="The largest privacy loss of one question of an assistant, below the policy's.",
        show_default=False,
    ),
]
McpBudget = Annotated[
    Fraction | None,
    typer.Option(
        "--mcp-budget",
        parser=make_number_parser("mcp_budget"),
        metavar="NUMBER",
        help="The ε of all questions of one user's assistants together, on top of the user's budget.",
        show_default=False,
    ),
]
Idle = Annotated[
    float | None,
    typer.Option(
        "--idle",
        parser=parse_seconds,
        metavar="TIME",
        help="End PostgreSQL sessions that are idle for this time, such as 3600s.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class DataOptions:
    """The data that a server answers from, and the files that it writes."""

    database: DatabaseFile = None
    ledger: LedgerFile = None
    ledger_key: LedgerKey = None
    anchor: AnchorPath = None
    audit: AuditFile = None
    users: Store = USERS


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """Where a server listens, and whether its connections are encrypted."""

    host: Host = "localhost"
    port: Port = 5439
    http_port: HttpPort = 8439
    tls_certificate: Certificate = None
    tls_key: CertificateKey = None
    in_the_clear: InTheClear = False


@dataclass(frozen=True, slots=True)
class LimitOptions:
    """How many connections and statements a server has at a time."""

    connections: MostConnections = 200
    workers: Workers = 8
    running: Running = 4
    processes: Processes = 1


@dataclass(frozen=True, slots=True)
class LoginOptions:
    """The OpenID Connect issuer at which users log in."""

    oidc_issuer: Issuer = None
    oidc_client: ClientId = None
    oidc_secret: ClientSecret = None
    oidc_redirect: Redirect = None
    oidc_audience: Audience = None


@dataclass(frozen=True, slots=True)
class ServedAssistants:
    """Whether assistants are answered at /mcp, and their limits."""

    mcp: Mcp = False
    mcp_max_epsilon: McpMaxEpsilon = None
    mcp_budget: McpBudget = None
    assistants: AssistantFile = None

    def to_options(self) -> AssistantOptions:
        """Return the limits as `dpsql mcp` takes them."""
        return AssistantOptions(self.mcp_max_epsilon, self.mcp_budget, self.assistants)


@dataclass(frozen=True, slots=True)
class _ServerSettings:
    """All settings of a server; `epsilon` is the loss of a query in sessions that do not set one."""

    policy: Path
    data: DataOptions
    listen: ListenOptions
    limits: LimitOptions
    login: LoginOptions
    times: TimeOptions
    idle: float | None
    assistants: ServedAssistants
    epsilon: Fraction | None

    @property
    def ledger(self) -> str:
        """Return the given ledger, or the one beside the policy."""
        return self.data.ledger or get_default_ledger(self.policy)

    @property
    def audit(self) -> Path:
        """Return the given audit log, or the one beside the policy."""
        return self.data.audit or self.policy.with_suffix(".audit")

    @property
    def redirect(self) -> str:
        """Return the given address of the web page, or the one at which the server listens."""
        listen = self.listen
        scheme = "http" if listen.tls_certificate is None else "https"
        return self.login.oidc_redirect or f"{scheme}://{listen.host}:{listen.http_port}/"


def serve(
    policy: PolicyArgument,
    *,
    data: DataOptions,
    listen: ListenOptions,
    epsilon: DefaultEpsilon = None,
    limits: LimitOptions,
    login: LoginOptions,
    times: TimeOptions,
    idle: Idle = None,
    assistants: ServedAssistants,
    check: Check = False,
) -> None:
    """Serve analysts over the PostgreSQL protocol (psql, SQLAlchemy and others) and over HTTP, until SIGTERM or Ctrl-C.

    `dpsql users` manages users, passwords and tokens. A query is charged to the analyst with the user's name. SIGHUP reloads the
    policy, the data and the users, and keeps all connections. The HTTP API requires `dpsql[server]`; without it, only the
    PostgreSQL port is open.
    """
    settings = _ServerSettings(policy, data, listen, limits, login, times, idle, assistants, epsilon)
    provider = _make_login_provider(settings)
    if check:
        _check_server(settings)
    else:
        _run_server(settings, provider)


def _run_server(settings: _ServerSettings, provider: OidcProvider | None) -> None:
    """Open what the server needs, and serve until a signal stops it."""
    import asyncio

    from dpsql.interfaces.server.sockets import load_tls_context
    from dpsql.interfaces.server.users import UserStore

    listen = settings.listen
    tls = None if listen.tls_certificate is None else load_tls_context(listen.tls_certificate, listen.tls_key)
    store = UserStore.open(settings.data.users)
    if provider is not None:
        store.require_issuer(provider.client.issuer)
    service = _open_service(settings, store)
    try:
        with _open_assistants(settings, service) as endpoint:
            asyncio.run(_serve_until_signal(service, listen, tls, provider, endpoint))
    finally:
        service.close()
        store.close()


@contextmanager
def _open_assistants(settings: _ServerSettings, service: Service) -> Iterator[AssistantEndpoint | None]:
    """Yield the path of assistants with the file of what they have spent, or None without --mcp."""
    if not settings.assistants.mcp:
        yield None
        return
    require_sdk()
    from dpsql.interfaces.mcp.calls import AssistantCalls
    from dpsql.interfaces.mcp.serving import AssistantEndpoint as Found
    from dpsql.interfaces.server.sockets import log_event

    limits, allowances = settings.assistants.to_options().open_limits(settings.policy)
    with closing(allowances):
        yield Found(AssistantCalls(service, limits, allowances, log_event))


def _open_service(settings: _ServerSettings, users: UserStore) -> Service:
    """Open the audit log, and the service that answers queries."""
    from dpsql.interfaces.server.limits import Limits
    from dpsql.interfaces.server.oversight import ServerAudit, get_audit_anchor
    from dpsql.interfaces.server.service import Service
    from dpsql.ledger.audit_log import AuditLog
    from dpsql.ledger.digest import read_ledger_key

    data, limits, times = settings.data, settings.limits, settings.times
    log = AuditLog.open(settings.audit, read_ledger_key(data.ledger_key), get_audit_anchor(data.anchor))
    return Service(
        settings.policy,
        data.database,
        users=users,
        ledger=settings.ledger,
        ledger_key=data.ledger_key,
        anchor=data.anchor,
        epsilon=None if settings.epsilon is None else str(settings.epsilon),
        audit=ServerAudit(log),
        processes=limits.processes,
        limits=Limits(
            workers=limits.workers,
            running_per_user=limits.running,
            connections=limits.connections,
            statement_seconds=Limits().statement_seconds if times.longest is None else times.longest,
            answer_grid=times.answer_grid or 0.0,
            idle_seconds=settings.idle or 0.0,
        ),
    )


async def _serve_until_signal(
    service: Service,
    listen: ListenOptions,
    tls: SSLContext | None,
    provider: OidcProvider | None,
    assistants: AssistantEndpoint | None,
) -> None:
    """Listen on both ports, and print them; a reload after SIGHUP that fails is in the log."""
    from dpsql.interfaces.server.listener import PgServer
    from dpsql.interfaces.server.service import describe_service, reload_service
    from dpsql.interfaces.server.serving import Lifecycle, UserChangeWatcher, serve_until_signal
    from dpsql.interfaces.server.sockets import is_local, log_event

    host, in_the_clear = listen.host, listen.in_the_clear
    requires_tls = tls is not None and not is_local(host)
    listener = PgServer(service, tls=tls, requires_tls=requires_tls, log=log_event)
    doors = [Lifecycle(lambda: listener.start(host, listen.port, in_the_clear=in_the_clear), listener.stop)]
    http_server = _find_http_server()
    if http_server is not None:
        more_routes = None if assistants is None else assistants.make_routes
        door = http_server(service, tls=tls, log=log_event, provider=provider, more_routes=more_routes)
        doors.append(
            Lifecycle(lambda: door.start(host, listen.http_port, in_the_clear=in_the_clear), door.stop)
        )
    if assistants is not None and http_server is not None:
        doors.append(Lifecycle(assistants.start, assistants.stop))
    changes = UserChangeWatcher(service, log_event)
    doors.append(Lifecycle(changes.start, changes.stop))

    def report_ports(ports: list[list[int]]) -> None:
        print(describe_service(service))
        for what, found in zip(("PostgreSQL", "HTTP"), filter(None, ports), strict=False):
            print(f"{what}: listening on {host}:{', '.join(map(str, found))}")
        if http_server is None:
            print(_NO_HTTP)
        print("Ctrl-C stops", flush=True)

    async def reload_quietly() -> None:
        with suppress(Error):  # which is in the log
            await reload_service(service, log_event, "SIGHUP")

    await serve_until_signal(doors, report_ports, reload_quietly)


def _make_login_provider(settings: _ServerSettings) -> OidcProvider | None:
    """Return the OpenID Connect provider of the options, or None if they name none."""
    login = settings.login
    issuer, client, secret, audience = (
        login.oidc_issuer,
        login.oidc_client,
        login.oidc_secret,
        login.oidc_audience,
    )
    if issuer is None and client is None and secret is None and audience is None:
        return None
    if issuer is None or client is None:
        raise typer.BadParameter("OpenID Connect requires both --oidc-issuer and --oidc-client")
    try:
        from dpsql.interfaces.server.http.oidc import OidcClient
        from dpsql.interfaces.server.http.oidc import OidcProvider as Found
    except ModuleNotFoundError:
        raise typer.BadParameter(f"OpenID Connect requires joserfc: {write_pip_command('oidc')}") from None
    try:
        text = None if secret is None else secret.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise typer.BadParameter(f"cannot read the client's secret from {secret}") from None
    return Found(OidcClient(issuer, client, settings.redirect, text, audience))


def _check_server(settings: _ServerSettings) -> None:
    """Print the results of the checks, and exit with code 1 if a server would not start."""
    from dpsql.interfaces.server.serving import ServerOptions, iterate_findings
    from dpsql.interfaces.shell.answers import format_error

    data, listen = settings.data, settings.listen
    has_http = _find_http_server() is not None
    planned = ServerOptions(
        settings.policy,
        data.database,
        users=data.users,
        ledger=settings.ledger,
        ledger_key=data.ledger_key,
        anchor=data.anchor,
        audit=settings.audit,
        host=listen.host,
        ports=(("PostgreSQL", listen.port), *([("HTTP", listen.http_port)] if has_http else ())),
        certificate=listen.tls_certificate,
        key=listen.tls_key,
        in_the_clear=listen.in_the_clear,
    )
    wrong = False
    for each in iterate_findings(planned):
        wrong = wrong or each.error is not None
        print(
            f"{each.name}: {each.found}" if each.error is None else f"{each.name}: {format_error(each.error)}"
        )
    if not has_http:
        print(_NO_HTTP)
    if wrong:
        raise typer.Exit(1)


_NO_HTTP = f"HTTP: not available, since starlette or uvicorn is not installed: {write_pip_command('server')}"


def _find_http_server() -> type[HttpServer] | None:
    """Return the HTTP server's class, or None if its requirements are not installed."""
    try:
        from dpsql.interfaces.server.http.listener import HttpServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("starlette", "uvicorn", "h11", "anyio"):
            return None
        raise
    return HttpServer
