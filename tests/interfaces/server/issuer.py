"""A small issuer of OpenID Connect: who comes is logged in as whom it says, or as an attacker would have it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote_plus, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT, SECRET, AUDIENCE = "dpsql", "the client's secret", "dpsql-api"


def new_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig"}, private=True)


_KEYS = [new_key("first"), new_key("second")]
Change = Callable[[dict[str, Any], dict[str, Any]], None]
"""Changes the header and the claims of a token before it is signed."""


def unchanged(_: dict[str, Any], __: dict[str, Any]) -> None:
    """Changes nothing."""


@dataclass
class Issuer:
    """What it knows, and what it does: `subject` logs in, `change` is done to ID tokens, `key` signs them."""

    url: str = ""
    subject: str = "248289761001"
    key: RSAKey = field(default_factory=lambda: _KEYS[0])
    published: list[RSAKey] = field(default_factory=lambda: [_KEYS[0]])
    change: Change = unchanged
    names_itself: str = ""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)

    def token(self, claims: dict[str, Any], *, typ: str = "JWT", change: Change | None = None) -> str:
        now = int(time.time())
        header = {"alg": "RS256", "kid": self.key.kid, "typ": typ}
        found = {"iss": self.url, "sub": self.subject, "iat": now, "exp": now + 300, **claims}
        (change or self.change)(header, found)
        signed = b".".join(base64.urlsafe_b64encode(_json(each)).rstrip(b"=") for each in (header, found))
        if header["alg"] == "none":
            return f"{signed.decode()}."
        if header["alg"] == "HS256":  # no library signs so: the secret is the published key
            tag = hmac.digest(self.published[0].as_pem(private=False), signed, "sha256")
            return f"{signed.decode()}.{base64.urlsafe_b64encode(tag).rstrip(b'=').decode()}"
        return str(jwt.encode(header, found, self.key, algorithms=["RS256"]))

    def access_token(self, *, change: Change = unchanged, typ: str = "at+jwt") -> str:
        return self.token({"aud": AUDIENCE, "client_id": CLIENT}, typ=typ, change=change)

    async def configuration(self, _: Request) -> Response:
        named = {
            "authorization_endpoint": "authorize",
            "token_endpoint": "token",
            "jwks_uri": "keys",
        }
        found = {name: f"{self.url}/{path}" for name, path in named.items()}
        return JSONResponse({"issuer": self.names_itself or self.url, **found})

    async def authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        self.asked.append(asked)
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        return RedirectResponse(
            f"{asked['redirect_uri']}?{urlencode({'code': code, 'state': asked['state']})}", 303
        )

    async def exchange(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        asked = self.codes.pop(str(form.get("code")), None)
        given = request.headers.get("authorization", "")
        pair = base64.b64encode(f"{CLIENT}:{quote_plus(SECRET)}".encode()).decode()
        proof = hashlib.sha256(str(form.get("code_verifier", "")).encode()).digest()
        if (
            asked is None
            or given != f"Basic {pair}"
            or base64.urlsafe_b64encode(proof).rstrip(b"=").decode() != asked["code_challenge"]
            or form.get("redirect_uri") != asked["redirect_uri"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        token = self.token({"aud": CLIENT, "nonce": asked["nonce"]})
        return JSONResponse({"id_token": token, "access_token": "opaque", "token_type": "Bearer"})

    async def keys(self, _: Request) -> Response:
        return JSONResponse(KeySet(list(self.published)).as_dict(private=False))

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.configuration),
                Route("/authorize", self.authorize),
                Route("/token", self.exchange, methods=["POST"]),
                Route("/keys", self.keys),
            ]
        )


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()


@contextmanager
def issuing() -> Iterator[Issuer]:
    """An issuer until the end."""
    found = Issuer()
    config = uvicorn.Config(found.app(), host="127.0.0.1", port=0, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    found.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.should_exit = True
        thread.join(20)
