"""A connection to a server over HTTP/1.1, with the standard library."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from dpsql.api.arguments import Address
from dpsql.api.base_connection import BaseConnection, QueryDefaults
from dpsql.errors import InterfaceError, OperationalError, ProgrammingError
from dpsql.ledger.budget_state import BudgetState
from dpsql.policy.request.dialects import require_dialect_name
from dpsql.policy.request.loss import Amount
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import QueryOptions
from dpsql.results import json_format
from dpsql.results.description import Description
from dpsql.results.forecast import Forecast, PlannedAccount, PlannedQuery
from dpsql.results.json_format import write_parameters
from dpsql.version import VERSION

if TYPE_CHECKING:
    from dpsql.results.result import ExplainedQuery, Receipt, Result


# One connection over HTTP/1.1, with the standard library: requests with a token, answers as JSON, errors of dpsql.


_MOST_BYTES = 2**31
"""Bytes of an answer."""
_CONNECT_SECONDS = 30.0


class Transport:
    """Send requests to one server, one after the other.

    It follows no redirects, so that the token is sent to no other host, and uses no proxy from the environment.
    """

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


# A connection to a server, whose methods return the same as those of a connection in this process.


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _run_exclusively(
    method: Callable[Concatenate[RemoteConnection, _P], _T],
) -> Callable[Concatenate[RemoteConnection, _P], _T]:
    """Run a method in one thread at a time, and report a malformed answer of the server as an error of dpsql."""

    @wraps(method)
    def call_exclusively(self: RemoteConnection, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with self._lock:
            self.require_open()
            try:
                return method(self, *args, **kwargs)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                if isinstance(error, ProgrammingError):
                    raise
                failed = type(error).__name__
        found = OperationalError(
            f"cannot read the server's answer ({failed})",
            code="server_answer",
            hint="check that the server has the same version of dpsql",
        )
        found.charged = None
        raise found

    return call_exclusively


class RemoteConnection(BaseConnection):
    """A connection to `dpsql serve`, opened by `connect("https://…", token=…)`.

    Without a default `epsilon` the server's default applies. Threads that share
    a connection wait for each other. Intervals at other confidences than 0.95 are requested from the server, while the connection
    is open and the answer is among the user's latest.
    """

    def __init__(
        self, url: str, token: str, defaults: QueryDefaults, *, tls_ca: str | Path | None = None
    ) -> None:
        require_dialect_name(defaults.dialect)
        self.address = Address.parse(url)
        self._transport = Transport(self.address, token, tls_ca=tls_ca)
        self._defaults = defaults
        self._lock = threading.RLock()
        self._closed = False

    def require_open(self) -> None:
        """Raise InterfaceError if the connection is closed."""
        if self._closed:
            raise InterfaceError("the connection is closed", hint="open another with dpsql.connect(…)")

    @_run_exclusively
    def query(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """Return the private answer to a SELECT; arguments, errors and answer are those of `Connection.query`."""
        body = self._build_request(sql, parameters, options)
        data = self._transport.post("/v1/query", body, sql=sql, repeatable=body["replay"])
        return json_format.read_answer(data, self._make_interval_reader(data))

    @_run_exclusively
    def combine(
        self,
        sql: str,
        parameters: Parameters = (),
        *,
        max_groups: int | None = None,
        dialect: str | None = None,
    ) -> Result:
        """Return the most accurate answer that follows from stored releases, at no charge; see `Connection.combine`."""
        asked = self._build_request(sql, parameters, {"max_groups": max_groups, "dialect": dialect})
        body = {name: asked[name] for name in ("sql", "parameters", "max_groups", "dialect")}
        data = self._transport.post("/v1/combine", body, sql=sql)
        return json_format.read_answer(data, self._make_interval_reader(data))

    @_run_exclusively
    def explain(
        self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]
    ) -> ExplainedQuery:
        """Return the plan with its proofs and its price, at no charge; see `Connection.explain`."""
        body = self._build_request(sql, parameters, options)
        return json_format.read_explanation(self._transport.post("/v1/explain", body, sql=sql))

    @_run_exclusively
    def _read_budgets(self) -> dict[str, BudgetState]:
        found = self._transport.get("/v1/budget")["budgets"]
        return {state.name: state for state in (json_format.read_record(BudgetState, each) for each in found)}

    @_run_exclusively
    def _forecast_queries(
        self, texts: Sequence[str], epsilon: Amount | None, dialect: str | None
    ) -> Forecast:
        options: QueryOptions = {"epsilon": epsilon, "dialect": dialect}
        asked = [self._defaults.build_query(sql, (), options) for sql in texts]
        loss = next((query.epsilon or query.default for query in asked), None)
        body = {
            "queries": list(texts),
            "epsilon": None if loss is None else _format_fraction(loss),
            "dialect": self._defaults.get_dialect(options),
        }
        data = self._transport.post("/v1/price", body, sql=texts[0] if len(texts) == 1 else None)
        return Forecast(
            tuple(json_format.read_record(PlannedQuery, each) for each in data["queries"]),
            tuple(json_format.read_record(PlannedAccount, each) for each in data["accounts"]),
            tuple(map(str, data["notices"])),
        )

    @_run_exclusively
    def describe(self) -> Description:
        """Return the declared tables, with the bounds and public values of their columns, from the policy alone."""
        return json_format.read_record(Description, self._transport.get("/v1/catalogue"))

    @_run_exclusively
    def find_answer_time(self, receipt: Receipt) -> datetime | None:
        """Return when a replayed answer was charged, or None if it was charged to another analyst."""
        found = list[datetime]()
        for entry in receipt.replayed:
            with suppress(ProgrammingError):
                charged = self._transport.get(f"/v1/receipts/{entry}")["entries"]
                found += [datetime.fromisoformat(each["at"]) for each in charged]
        return max(found, default=None)

    def charge_probe(self, sql: str) -> Callable[[], str]:
        """Return a function that describes the charge after Ctrl-C; the server finishes a query that it has started."""
        del sql
        return lambda: (
            "interrupted; if the server had started the query, it was charged, and running it again is free"
        )

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            self._transport.close()

    def _make_interval_reader(self, data: dict[str, Any]) -> json_format.IntervalSource:
        """Return a function that requests the intervals of an answer at further confidences."""
        number = data["answer"]

        @_run_exclusively
        def fetch_intervals(connection: RemoteConnection, confidence: float) -> json_format.IntervalMatrix:
            if not isinstance(number, str) or not number.isalnum():
                raise ProgrammingError(
                    "the answer is too large for intervals at other confidences",
                    code="not_found",
                )
            path = f"/v1/answers/{number}/intervals?confidence={confidence!r}"
            return json_format.read_intervals(connection._transport.get(path)["ends"])

        return lambda confidence: fetch_intervals(self, float(confidence))

    def _build_request(self, sql: str, parameters: Parameters, options: QueryOptions) -> dict[str, Any]:
        """Return the body of a request for a query."""
        asked = self._defaults.build_query(sql, parameters, options)
        bound = asked.parameters
        return {
            "sql": asked.sql,
            "parameters": [] if isinstance(bound, tuple) else write_parameters(bound),
            "epsilon": None if asked.epsilon is None else _format_fraction(asked.epsilon),
            "default_epsilon": None if asked.default is None else _format_fraction(asked.default),
            "delta": None if asked.delta is None else _format_fraction(asked.delta),
            "max_groups": asked.max_groups,
            "target_error": None if asked.target_error is None else str(asked.target_error),
            "confidence": None if asked.confidence is None else _format_fraction(asked.confidence),
            "dialect": asked.dialect,
            "replay": asked.replay,
        }


def _format_fraction(exact: Fraction) -> str:
    return str(exact)
