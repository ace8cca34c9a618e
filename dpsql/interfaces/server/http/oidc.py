"""Logins by OpenID Connect: the authorization code flow with PKCE, and access tokens of the same issuer.

Claim: a login is of the user whom the issuer names to this client, now, in this browser; no code, token or answer of another
login is accepted.
Why: a state is random, is used once, and is bound to a secret of the tab that began the login, of which the server has only the
digest; so is the nonce, which the ID token must contain. The server exchanges the code with a verifier that it sends only to the
issuer's token endpoint (PKCE). Signatures are checked with the issuer's published keys and with asymmetric algorithms only,
whatever the token says; issuer, audience and times are checked.
Source: OpenID Connect Core 1.0, sections 3.1 and 16; RFC 7636 (PKCE); RFC 9068 (access tokens); RFC 9700, sections 2.1 and 4.7.

The flow returns the code in an address. It is useless without the verifier, the page removes it from the address at once, and no log has it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.server.sockets import is_local

ALGORITHMS = ("RS256", "PS256", "ES256")
"""The accepted signatures: asymmetric ones, so that no published key is a secret."""
STATE_SECONDS = 600.0
MOST_STATES = 1_000
_SECONDS = 10.0
_MOST_BYTES = 1_000_000
_LEEWAY = 30
"""Seconds by which the clocks of issuer and server may differ."""
_KEY_REFRESH_SECONDS = 60.0
"""Seconds before keys are fetched again for an unknown key, which anybody may name."""
_MOST_TOKEN = 16_384


@dataclass(frozen=True, slots=True)
class OidcClient:
    """This server's registration at the issuer. With an `audience`, the API accepts access tokens for it."""

    issuer: str
    client_id: str
    redirect: str
    secret: str | None = field(default=None, repr=False)
    audience: str | None = None


@dataclass(frozen=True, slots=True)
class _PendingLogin:
    begun_at: float
    binder: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


class OidcProvider:
    """An issuer of logins. Its methods wait for the network, and are called in threads."""

    def __init__(self, client: OidcClient, clock: Callable[[], float] = time.monotonic) -> None:
        for name, url in (("issuer", client.issuer), ("redirect", client.redirect)):
            _require_safe_url(url, f"the {name} of OpenID Connect")
        self.client, self._clock = client, clock
        self._lock = threading.Lock()
        self._pending_logins = OrderedDict[str, _PendingLogin]()
        self._configuration: Mapping[str, Any] | None = None
        self._keys: KeySet | None = None
        self._keys_fetched_at = 0.0

    @property
    def name(self) -> str:
        """Return the name by which users know the issuer: its host."""
        return urlsplit(self.client.issuer).hostname or self.client.issuer

    def begin_login(self, binder: str) -> str:
        """Return the login address for the browser tab that knows the secret whose digest is `binder`."""
        endpoint = _require_safe_url(
            self._get_endpoint("authorization_endpoint"), "the authorization endpoint"
        )
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with self._lock:
            now = self._clock()
            for key in [
                key for key, each in self._pending_logins.items() if now - each.begun_at > STATE_SECONDS
            ]:
                del self._pending_logins[key]
            while len(self._pending_logins) >= MOST_STATES:
                self._pending_logins.popitem(last=False)
            self._pending_logins[state] = _PendingLogin(now, binder, nonce, verifier)
        asked = {
            "response_type": "code",
            "scope": "openid",
            "client_id": self.client.client_id,
            "redirect_uri": self.client.redirect,
            "state": state,
            "nonce": nonce,
            "code_challenge": compute_digest(verifier),
            "code_challenge_method": "S256",
        }
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(asked)}"

    def find_subject_by_code(self, state: str, code: str, secret: str) -> str | None:
        """Return the subject that the issuer names for a code, or None if state, code, the tab's secret or the token is invalid.

        Raises OperationalError (`provider`) if the issuer cannot be reached.
        """
        with self._lock:
            begun = self._pending_logins.pop(state, None)
        if begun is None or self._clock() - begun.begun_at > STATE_SECONDS:
            return None
        if not hmac.compare_digest(compute_digest(secret), begun.binder):
            return None
        token = self._exchange_code(code, begun.verifier)
        claims = None if token is None else self._find_valid_claims(token, self.client.client_id)
        if claims is None or not hmac.compare_digest(str(claims.get("nonce", "")), begun.nonce):
            return None
        audience = claims["aud"]
        if isinstance(audience, list) and len(audience) > 1 and "azp" not in claims:
            return None
        if claims.get("azp", self.client.client_id) != self.client.client_id:
            return None
        return str(claims["sub"])

    def find_subject_by_token(self, token: str) -> str | None:
        """Return the subject of an access token for this API, or None if it is invalid or no audience is configured."""
        if self.client.audience is None or len(token) > _MOST_TOKEN:
            return None
        claims = self._find_valid_claims(token, self.client.audience, kind="at+jwt")
        return None if claims is None else str(claims["sub"])

    def _find_valid_claims(self, token: str, audience: str, kind: str | None = None) -> dict[str, Any] | None:
        for again in (False, True):
            keys = self._fetch_key_set(again=again)
            try:
                found = jwt.decode(token, keys, algorithms=list(ALGORITHMS))
            except (JoseError, ValueError, TypeError, KeyError):
                continue  # with keys that were fetched again, if they may be
            typ = str(found.header.get("typ", "")).lower().removeprefix("application/")
            if kind is not None and typ != kind:
                return None
            return found.claims if self._has_valid_claims(found.claims, audience) else None
        return None

    def _has_valid_claims(self, claims: Mapping[str, Any], audience: str) -> bool:
        now, given = time.time(), claims.get("aud")
        audiences = given if isinstance(given, list) else [given]
        ends, begins, issued = claims.get("exp"), claims.get("nbf", 0), claims.get("iat")
        subject = claims.get("sub")
        return (
            claims.get("iss") == self.client.issuer
            and audience in audiences
            and _is_time(ends)
            and _is_time(begins)
            and _is_time(issued)
            and ends > now - _LEEWAY  # type: ignore[operator]
            and begins <= now + _LEEWAY
            and issued <= now + _LEEWAY  # type: ignore[operator]
            and isinstance(subject, str)
            and 0 < len(subject) <= 255
        )

    def _exchange_code(self, code: str, verifier: str) -> str | None:
        """Return the ID token for a code, or None if the issuer refuses it."""
        endpoint = _require_safe_url(self._get_endpoint("token_endpoint"), "the token endpoint")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.client.redirect,
            "client_id": self.client.client_id,
            "code_verifier": verifier,
        }
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        if self.client.secret is not None:
            pair = urlencode({self.client.client_id: self.client.secret}).replace("=", ":", 1)
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        found = _fetch_json(endpoint, urlencode(form).encode(), headers)
        token = found.get("id_token")
        return token if isinstance(token, str) and len(token) <= _MOST_TOKEN else None

    def _get_endpoint(self, name: str) -> str:
        known = self._configuration
        if known is None:
            place = f"{self.client.issuer.rstrip('/')}/.well-known/openid-configuration"
            known = _fetch_json(place)
            if known.get("issuer") != self.client.issuer:
                raise _make_provider_error("states another issuer in its configuration")
            self._configuration = known
        found = known.get(name)
        if not isinstance(found, str):
            raise _make_provider_error(f"has no {name} in its configuration")
        return found

    def _fetch_key_set(self, *, again: bool) -> KeySet:
        with self._lock:
            keys, age = self._keys, self._clock() - self._keys_fetched_at
            if keys is not None and not (again and age > _KEY_REFRESH_SECONDS):
                return keys
        place = _require_safe_url(self._get_endpoint("jwks_uri"), "the address of the issuer's keys")
        data = _fetch_json(place)
        failed = False
        try:
            found = KeySet.import_key_set(data)  # type: ignore[arg-type]
        except (JoseError, ValueError, TypeError, KeyError):
            failed = True
        if failed:
            raise _make_provider_error("publishes malformed keys")
        with self._lock:
            self._keys, self._keys_fetched_at = found, self._clock()
        return found


def compute_digest(secret: str) -> str:
    """Return the SHA-256 digest of a secret, in base64url without padding, as in PKCE.

    >>> compute_digest("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk")
    'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM'
    """
    return base64.urlsafe_b64encode(hashlib.sha256(secret.encode()).digest()).rstrip(b"=").decode()


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and abs(value) < 1e12  # type: ignore[arg-type]


def _require_safe_url(url: str, what: str) -> str:
    """Raise ProgrammingError (`oidc`) unless an address is reached encrypted, or is on this machine."""
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_local(parts.hostname or ""))
    if not safe or parts.username is not None or parts.fragment:
        raise ProgrammingError(
            f"{what} is not an https:// address", code="oidc", hint="https://login.example.org"
        )
    return url


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirects: an issuer's addresses are those of its configuration."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Refuse every redirect."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def _fetch_json(
    url: str, form: bytes | None = None, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the JSON object at an address that `_require_safe_url` accepted, after posting a form if there is one.

    Returns {} if the form is refused. Raises OperationalError (`provider`).
    """
    failed = ""
    request = urllib.request.Request(url, form, dict(headers or {}))  # noqa: S310  (https, or this machine)
    try:
        with _OPENER.open(request, timeout=_SECONDS) as answer:
            text = answer.read(_MOST_BYTES + 1)
        found = json.loads(text) if len(text) <= _MOST_BYTES else None
    except urllib.error.HTTPError as error:
        error.close()
        if form is not None and 400 <= error.code < 500:
            return {}
        failed = f"answers with status {error.code}"
    except (OSError, http.client.HTTPException, ValueError):
        failed = "cannot be reached, or does not answer with JSON"
    if failed:
        raise _make_provider_error(failed)
    if not isinstance(found, dict):
        raise _make_provider_error("does not answer with a JSON object")
    return found


def _make_provider_error(why: str) -> OperationalError:
    return OperationalError(
        f"the OpenID Connect issuer {why}",
        code="provider",
        hint="use a password or a token, or try again later",
    )
