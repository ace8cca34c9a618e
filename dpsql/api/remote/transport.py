"""One connection over HTTP/1.1, with the standard library: requests with a token, answers as JSON, errors of dpsql.

It follows no redirects, so that the token is sent to no other host, and uses no proxy from the environment.
"""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

from dpsql.api.remote.address import Address
from dpsql.errors import InterfaceError, OperationalError, ProgrammingError
from dpsql.results import json_format
from dpsql.version import VERSION

_MOST_BYTES = 2**31
"""Bytes of an answer."""
_CONNECT_SECONDS = 30.0


class Transport:
    """Send requests to one server, one after the other."""

    def __init__(self, address: Address, token: str, *, tls_ca: str | Path | None = None) -> None:
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise ProgrammingError(
                "this is not a dpsql token",
                code="token",
                hint="create one with dpsql users token NAME, and set DPSQL_TOKEN",
            )
        self._address, self._token = address, token
        self._context = _make_tls_context(tls_ca) if address.encrypted else None
        self._connection: http.client.HTTPConnection | None = None

    def __repr__(self) -> str:
        return f"Transport({self._address})"  # a token is never displayed

    def get(self, path: str) -> Any:
        """Return the answer to a GET request."""
        return self._fetch_answer("GET", path, None, None, repeatable=True)

    def post(
        self, path: str, body: dict[str, Any], *, sql: str | None = None, repeatable: bool = True
    ) -> Any:
        """Return the answer to a POST request; a `repeatable` one may be sent twice without a second charge."""
        return self._fetch_answer("POST", path, json.dumps(body).encode("ascii"), sql, repeatable=repeatable)

    def _fetch_answer(
        self, method: str, path: str, body: bytes | None, sql: str | None, *, repeatable: bool
    ) -> Any:
        if not repeatable:
            self.close()  # a connection that the server closed meanwhile looks like a lost one
        used = self._connection is not None
        found = self._send_request(method, path, body, lost_is_fatal=not used)
        if found is None:  # the server had closed the idle connection
            found = self._send_request(method, path, body, lost_is_fatal=True)
        status, data = found or (0, None)
        if status == 200 and isinstance(data, dict):
            return data
        error = data.get("error") if isinstance(data, dict) else None
        if not isinstance(error, dict):
            raise _make_unavailable_error(
                f"{self._address} answers with status {status} and is not a dpsql server"
            )
        raise json_format.read_error(error, sql)

    def _send_request(
        self, method: str, path: str, body: bytes | None, *, lost_is_fatal: bool
    ) -> tuple[int, Any] | None:
        reason, complete = "", False
        try:
            connection = self._ensure_connection()
            headers = {
                "Authorization": f"Bearer {self._token}",
                "Accept": "application/json",
                "User-Agent": f"dpsql/{VERSION}",
            }
            headers |= {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read(_MOST_BYTES)
            complete = not answer.will_close
            return answer.status, json.loads(text)
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            if not lost_is_fatal:
                return None
            reason = f"the connection was lost ({type(error).__name__})"
        except ssl.SSLCertVerificationError as error:
            reason = f"its certificate is not trusted ({error.verify_message})"
        except (OSError, http.client.HTTPException) as error:
            reason = f"it cannot be reached ({type(error).__name__})"
        except ValueError:
            reason = "its answer is not JSON"
        finally:
            if not complete:
                self.close()
        raise _make_unavailable_error(f"{self._address}: {reason}")

    def _ensure_connection(self) -> http.client.HTTPConnection:
        if self._connection is None:
            host, port = self._address.host, self._address.port
            made = (
                http.client.HTTPConnection(host, port, timeout=_CONNECT_SECONDS)
                if self._context is None
                else http.client.HTTPSConnection(host, port, timeout=_CONNECT_SECONDS, context=self._context)
            )
            self._connection = made
            made.connect()
            made.sock.settimeout(None)  # a query may run for any time
        return self._connection

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None


def _make_tls_context(authorities: str | Path | None) -> ssl.SSLContext:
    """Return a TLS context that trusts the system's authorities, or only those of a file."""
    failed = ""
    try:
        return ssl.create_default_context(cafile=None if authorities is None else str(authorities))
    except (OSError, ssl.SSLError) as error:
        failed = type(error).__name__
    raise InterfaceError(f"cannot read the certificates {authorities} ({failed})", code="certificate")


def _make_unavailable_error(message: str) -> OperationalError:
    found = OperationalError(
        message,
        code="server_unavailable",
        hint="run the query again; if it was charged, the stored answer is free",
    )
    found.charged = None
    return found
