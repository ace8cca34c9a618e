"""The beginning of a connection: encryption, the startup packet, and the proof of the password by SCRAM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpsql.interfaces.server.protocol import backend, frontend
from dpsql.interfaces.server.protocol.failure import ProtocolError
from dpsql.interfaces.server.protocol.frontend import GSSRequest, Message, Password, SSLRequest, Startup
from dpsql.interfaces.server.protocol.scram import MECHANISM, ScramExchange
from dpsql.interfaces.server.protocol.tasks import (
    FoundVerifier,
    LogIn,
    LoginResult,
    LookUpUser,
    PendingTask,
    RejectLogin,
    StartTLS,
)


class LoginExchange:
    """The messages of a client up to its login: `accept` takes the session of a user who proved the password.

    `offers_tls` says whether TLS is offered, `requires_tls` whether it is required.
    """

    def __init__(
        self, out: bytearray, accept: Callable[[LoginResult], None], *, offers_tls: bool, requires_tls: bool
    ) -> None:
        self._out, self._accept = out, accept
        self._offers_tls, self._requires_tls = offers_tls, requires_tls
        self._is_encrypted = False
        self._asked_gss = False
        self._startup: Startup | None = None
        self._scram: ScramExchange | None = None
        self._was_challenged = False

    @property
    def is_started(self) -> bool:
        """Return whether the startup packet was received."""
        return self._startup is not None

    @property
    def user(self) -> str:
        """Return the user name that the client claims, or an empty text before it does."""
        return "" if self._startup is None else self._startup.parameters.get("user", "")

    def handle_first_message(
        self, message: SSLRequest | GSSRequest | Startup, unread: int
    ) -> PendingTask[Any] | None:
        """Handle a message before the login; `unread` is the number of bytes that were received after it."""
        match message:
            case SSLRequest() if self._offers_tls and not self._is_encrypted:
                # Bytes after the request are not encrypted, and must not be treated as encrypted.
                if unread:
                    raise ProtocolError("received unencrypted data after SSL request")
                self._out += b"S"
                return PendingTask(StartTLS(), self._confirm_tls)
            case SSLRequest():
                self._out += b"N"
            case GSSRequest():
                if self._asked_gss:
                    raise ProtocolError("GSSAPI encryption is requested twice")
                self._asked_gss = True
                self._out += b"N"
            case Startup():
                return self._handle_startup(message)
        return None

    def _confirm_tls(self, _: None) -> None:
        self._is_encrypted = True

    def _handle_startup(self, message: Startup) -> PendingTask[Any]:
        if self._requires_tls and not self._is_encrypted:
            raise ProtocolError("the server requires TLS: connect with sslmode=require", "28000")
        user = message.parameters.get("user", "")
        if not user:
            raise ProtocolError("no user name given in the startup packet", "28000")
        if "replication" in message.parameters:
            raise ProtocolError("replication is not supported", "0A000")
        unknown = [name for name in message.parameters if name.startswith("_pq_.")]
        if message.minor or unknown:
            self._out += backend.negotiate_protocol_version(unknown)
        self._startup = message
        return PendingTask(LookUpUser(user), self._begin_scram)

    def _begin_scram(self, found: FoundVerifier) -> None:
        self._scram = ScramExchange(found.verifier, known=found.is_known)
        self._out += backend.authentication_sasl([MECHANISM])

    def handle_message(self, message: Message) -> PendingTask[Any] | None:
        """Handle a message of the SCRAM exchange. Raises ProtocolError for any other message."""
        if not isinstance(message, Password) or self._scram is None:
            raise ProtocolError("expected a SASL response")
        if not self._was_challenged:
            self._challenge_client(self._scram, message)
            return None
        signature = self._scram.answer_final_message(message.data.decode("utf-8", "replace"))
        self._scram = None
        if signature is None:
            return PendingTask(RejectLogin(self.user), self._report_wrong_password)
        self._out += backend.authentication_sasl_final(signature)
        parameters = {} if self._startup is None else self._startup.parameters
        return PendingTask(LogIn(self.user, parameters), self._accept)

    def _challenge_client(self, scram: ScramExchange, message: Password) -> None:
        mechanism, first = frontend.parse_initial_response(message.data)
        if mechanism != MECHANISM:
            raise ProtocolError("the client selected an invalid SASL authentication mechanism")
        challenge = scram.answer_first_message(first.decode("utf-8", "replace"))
        if challenge is None:
            raise ProtocolError("malformed SCRAM message")
        self._out += backend.authentication_sasl_continue(challenge)
        self._was_challenged = True

    def _report_wrong_password(self, _: None) -> None:
        raise ProtocolError(f'password authentication failed for user "{self.user}"', "28P01")
