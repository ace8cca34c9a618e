"""The common parts of all sockets: networks, TLS and when it is required, the process' log."""

from __future__ import annotations

import ipaddress
import json
import ssl
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpsql.errors import OperationalError, ProgrammingError

Log = Callable[..., None]


def log_event(event: str, **facts: Any) -> None:
    """Write a line of JSON to standard error; `facts` have no text of a query and no value of the data."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    print(json.dumps({"at": at, "event": event, **facts}), file=sys.stderr, flush=True)


def is_local(host: str) -> bool:
    """Return whether a host is only this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def get_network(peer: str) -> str:
    """Return the network whose connections are counted together: an IPv4 address, or the first 64 bits of an IPv6 address."""
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    mapped = getattr(address, "ipv4_mapped", None)
    if address.version == 4 or mapped is not None:
        return str(mapped or address)
    return str(ipaddress.ip_network((address, 64), strict=False))


def load_tls_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and later with a certificate. Raises OperationalError if it cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    failed = ""
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        failed = type(error).__name__
    if failed:
        raise OperationalError(
            f"cannot read the certificate {certificate} and its key ({failed})", code="certificate"
        )
    return context


def require_encryption(host: str, *, tls: bool, in_the_clear: bool) -> None:
    """Raise ProgrammingError (`no_tls`) if passwords, tokens and answers would cross a network unencrypted.

    `in_the_clear` allows it.
    """
    if not is_local(host) and not tls and not in_the_clear:
        raise ProgrammingError(
            f"{host} is reachable from other machines, but no certificate is given, so answers would cross the network"
            " unencrypted",
            code="no_tls",
            hint="add --tls-certificate FILE --tls-key FILE",
        )


def make_port_error(host: str, port: int, error: OSError, option: str) -> OperationalError:
    """Return the error for a port that cannot be opened."""
    return OperationalError(
        f"cannot listen on {host}:{port}: {error.strerror}",
        code="no_port",
        hint=f"choose another with {option}",
    )
