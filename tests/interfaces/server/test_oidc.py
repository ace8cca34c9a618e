"""Logins by OpenID Connect at a small issuer: valid ones, and wrong tokens, codes, states and keys."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

import pytest

import dpsql
from dpsql.errors import OperationalError, ProgrammingError
from dpsql.interfaces.server.http import oidc
from dpsql.interfaces.server.http.oidc import OidcClient, OidcProvider, compute_digest
from dpsql.interfaces.server.users import Role, UserStore

from .browser import browsing
from .conftest import Served, Told, prepared, serving
from .issuer import _KEYS, AUDIENCE, CLIENT, SECRET, Change, Issuer, issuing, unchanged

COUNT = {"sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": 0.1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("oidc")
    store = prepared(found)[1]
    store.set_subject("ana", "248289761001")
    store.set_subject("eve", "eve@example.org")
    store.close()
    return found


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as found:
        yield found


@pytest.fixture(scope="module")
def served(folder: Path, issuer: Issuer) -> Iterator[Served]:
    provider = OidcProvider(OidcClient(issuer.url, CLIENT, "http://127.0.0.1:1/", SECRET, AUDIENCE))
    with serving(folder, provider=provider) as found:
        yield found


@pytest.fixture(autouse=True)
def honest(issuer: Issuer, served: Served) -> None:
    """Before each test the issuer does what it should, and nobody has failed of late."""
    issuer.subject, issuer.key, issuer.published = "248289761001", _KEYS[0], [_KEYS[0]]
    issuer.change = unchanged
    provider = served.door.api.context.authenticator.provider
    assert provider is not None
    provider._keys = None
    served.service.failed_logins.reset_failures("issuer")
    served.door.api.context.authenticator._login_limiter.__init__()  # type: ignore[misc]


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def begun(served: Served, secret: str) -> str:
    told = served.ask("/v1/login", {"binder": compute_digest(secret)})
    assert told.status == 200, told.json
    return str(told.json["address"])


def sent_back(address: str) -> dict[str, str]:
    """What the issuer sends a browser back with."""
    try:
        build_opener(_Stay).open(address, timeout=10)
    except Exception as error:
        place = error.headers["location"]  # type: ignore[attr-defined]
        error.close()  # type: ignore[attr-defined]
        return {name: found[0] for name, found in parse_qs(urlsplit(place).query).items()}
    raise AssertionError


def logged_in(served: Served, *, secret: str | None = None, **changed: str) -> Told:
    own = secrets.token_urlsafe(32)
    back = sent_back(begun(served, own))
    return served.ask("/v1/login/code", {**back, "secret": secret or own, **changed})


def test_a_login_is_of_the_user_with_the_issuer_s_subject(served: Served) -> None:
    """The session asks and is charged as ana; the audit log says by what she logged in."""
    assert served.ask("/v1/login").json == {"issuer": "127.0.0.1"}
    told = logged_in(served)
    assert (told.status, told.json["user"], told.json["role"]) == (200, "ana", "analyst")
    session = told.json["session"]
    answer = served.ask("/v1/query", COUNT, token=session)
    assert answer.json["receipt"]["analyst"] == "ana"
    login = [event.facts for event in served.audit if event.name == "login"][-1]
    assert (login["user"], login["method"], login["door"]) == ("ana", "oidc", "http")
    assert served.ask("/v1/session", token=session, method="DELETE").status == 200
    assert served.ask("/v1/session", token=session).status == 401


def test_addresses_and_logs_have_no_secret(served: Served, issuer: Issuer) -> None:
    """PKCE's challenge in place of its verifier; state and nonce are new each time; neither code nor state is logged."""
    own = secrets.token_urlsafe(32)
    asked = [{k: v[0] for k, v in parse_qs(urlsplit(begun(served, own)).query).items()} for _ in range(2)]
    assert asked[0]["response_type"] == "code"
    assert asked[0]["code_challenge_method"] == "S256"
    assert len({each[name] for each in asked for name in ("state", "nonce", "code_challenge")}) == 6
    provider = served.door.api.context.authenticator.provider
    assert provider is not None
    verifiers = [each.verifier for each in provider._pending_logins.values()]
    assert not any(word in str(asked) for word in (own, SECRET, *verifiers))
    assert logged_in(served).status == 200
    held = (served.folder / "clinic.audit").read_text() + str(served.logged)
    assert not any(word in held for word in (issuer.asked[-1]["state"], issuer.asked[-1]["nonce"], own))
    assert SECRET not in repr(provider.client)


WRONG: dict[str, Change] = {
    "issuer": lambda _, claims: claims.update(iss="http://127.0.0.1:1"),
    "audience": lambda _, claims: claims.update(aud="another"),
    "audience of several": lambda _, claims: claims.update(aud=[CLIENT, "another"]),
    "party": lambda _, claims: claims.update(azp="another"),
    "no audience": lambda _, claims: claims.pop("aud"),
    "nonce": lambda _, claims: claims.update(nonce="another"),
    "no nonce": lambda _, claims: claims.pop("nonce"),
    "expired": lambda _, claims: claims.update(exp=int(time.time()) - 60),
    "no expiry": lambda _, claims: claims.pop("exp"),
    "expiry that is none": lambda _, claims: claims.update(exp="2099"),
    "not yet": lambda _, claims: claims.update(nbf=int(time.time()) + 600),
    "of the future": lambda _, claims: claims.update(iat=int(time.time()) + 600),
    "no algorithm": lambda header, _: header.update(alg="none"),
    "public key as a secret": lambda header, _: header.update(alg="HS256"),
    "subject of nobody": lambda _, claims: claims.update(sub="nobody"),
    "subject that is none": lambda _, claims: claims.update(sub=["248289761001"]),
    "no subject": lambda _, claims: claims.pop("sub"),
}


@pytest.mark.whole
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_id_token_is_refused(
    served: Served, issuer: Issuer, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(type(served.service.failed_logins), "note_failure", lambda *_: 0.0)
    issuer.change = WRONG[what]
    told = logged_in(served)
    assert (told.status, told.code) == (401, "unauthenticated")
    assert told.json["error"]["message"] == "no valid token or password given"
    assert [event.name for event in served.audit][-1] == "login refused"


def test_a_code_is_bound_to_its_state_and_tab(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state is used once, by the tab that began it, within ten minutes; a code by the login that it was given for."""
    monkeypatch.setattr(type(served.service.failed_logins), "note_failure", lambda *_: 0.0)
    own = secrets.token_urlsafe(32)
    back = sent_back(begun(served, own))
    body = {**back, "secret": own}
    assert served.ask("/v1/login/code", body).status == 200
    assert served.ask("/v1/login/code", body).status == 401  # replayed
    assert logged_in(served, secret="another tab's").status == 401
    assert logged_in(served, state="invented").status == 401
    assert logged_in(served, code="invented").status == 401
    first, second = (sent_back(begun(served, own)) for _ in range(2))
    assert served.ask("/v1/login/code", {**first, "code": second["code"], "secret": own}).status == 401
    provider = served.door.api.context.authenticator.provider
    assert provider is not None
    late = sent_back(begun(served, own))
    monkeypatch.setattr(provider, "_clock", lambda: time.monotonic() + 601)
    assert served.ask("/v1/login/code", {**late, "secret": own}).status == 401


def test_only_the_issuer_s_keys_are_accepted(
    served: Served, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that it does not publish signs nothing; a new one is found, but is not looked for without end."""
    monkeypatch.setattr(type(served.service.failed_logins), "note_failure", lambda *_: 0.0)
    assert logged_in(served).status == 200
    issuer.key = _KEYS[1]
    assert logged_in(served).status == 401
    issuer.published = _KEYS
    fetched = list[str]()
    fetch = oidc._fetch_json

    def noted(url: str, *options: Any) -> Any:
        fetched.append(url)
        return fetch(url, *options)

    monkeypatch.setattr(oidc, "_fetch_json", noted)
    assert logged_in(served).status == 401  # within the minute
    assert not [url for url in fetched if url.endswith("/keys")]
    provider = served.door.api.context.authenticator.provider
    assert provider is not None
    provider._keys_fetched_at -= 61
    assert logged_in(served).status == 200
    assert len([url for url in fetched if url.endswith("/keys")]) == 1


def test_only_access_tokens_for_this_api_are_accepted(
    served: Served, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of RFC 9068 for this audience ask; ID tokens, other audiences and wrong ones do not, nor do any without an audience."""
    monkeypatch.setattr(type(served.service.failed_logins), "note_failure", lambda *_: 0.0)
    right = issuer.access_token()
    with dpsql.connect(f"http://127.0.0.1:{served.http}", token=right, epsilon="0.1") as connection:
        assert connection.query(COUNT["sql"]).rows  # type: ignore[arg-type]
    assert served.ask("/v1/session", token=right).json["user"] == "ana"
    wrong = [
        issuer.access_token(typ="JWT"),
        issuer.token({"aud": CLIENT, "nonce": "n"}),
        *(
            issuer.access_token(change=change)
            for name, change in WRONG.items()
            if "nonce" not in name and name not in ("party", "audience of several")
        ),
        right[:-6] + "AAAAAA",
        "a.b.c",
    ]
    for token in wrong:
        assert served.ask("/v1/session", token=token).status == 401, token
    provider = served.door.api.context.authenticator.provider
    assert provider is not None
    closed = OidcProvider(OidcClient(issuer.url, CLIENT, "http://localhost/", SECRET))
    assert closed.find_subject_by_token(right) is None


def test_a_session_ends_with_its_subject(
    served: Served, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the subject is taken away or given to another, and where the user is removed."""
    monkeypatch.setattr(type(served.service.failed_logins), "note_failure", lambda *_: 0.0)
    store = served.service.users
    store.add_user("dan", Role.analyst, "a long password")
    store.set_subject("dan", "dan-1")
    issuer.subject = "dan-1"
    session, token = logged_in(served).json["session"], issuer.access_token()
    assert served.ask("/v1/session", token=session).json["user"] == "dan"
    store.set_subject("dan", None)
    assert served.ask("/v1/session", token=session).status == 401
    assert served.ask("/v1/session", token=token).status == 401
    store.set_subject("dan", "dan-1")
    session = logged_in(served).json["session"]
    store.remove_user("dan")
    assert served.ask("/v1/session", token=session).status == 401
    assert served.ask("/v1/session", token=token).status == 401
    assert logged_in(served).status == 401


def test_an_auditor_with_an_access_token_runs_no_queries(served: Served, issuer: Issuer) -> None:
    issuer.subject = "eve@example.org"
    session = logged_in(served).json["session"]
    assert served.ask("/v1/query", COUNT, token=session).status == 403


def test_starts_of_logins_are_limited(served: Served) -> None:
    """They need no password, and each is remembered for ten minutes."""
    told = [served.ask("/v1/login", {"binder": compute_digest("x")}).status for _ in range(21)]
    assert told == [200] * 20 + [503]
    for body in ({}, {"binder": "short"}, {"binder": 1}, {"state": "a", "code": "b"}):
        assert served.ask("/v1/login", body).status == 400
    assert served.ask("/v1/login/code", {"state": "a", "code": "b"}).status == 400


def test_without_an_issuer_there_is_no_such_login(shared: Served) -> None:
    assert shared.ask("/v1/login").json == {"issuer": None}
    assert shared.ask("/v1/login", {"binder": compute_digest("x")}).status == 404
    assert shared.ask("/v1/login/code", {"state": "a", "code": "b", "secret": "c"}).status == 404


def test_another_or_unencrypted_issuer_is_refused(issuer: Issuer) -> None:
    for url in ("http://login.example.org", "ftp://127.0.0.1", "https://user:word@login.example.org"):
        with pytest.raises(ProgrammingError):
            OidcProvider(OidcClient(url, CLIENT, "https://dp.example.org/"))
    other = OidcProvider(OidcClient(issuer.url + "/", CLIENT, "http://localhost/"))
    with pytest.raises(OperationalError, match="states another issuer"):
        other.begin_login(compute_digest("x"))
    gone = OidcProvider(OidcClient("http://127.0.0.1:9", CLIENT, "http://localhost/"))
    with pytest.raises(OperationalError, match="cannot be reached"):
        gone.begin_login(compute_digest("x"))


def test_subjects_of_another_issuer_are_refused(tmp_path: Path) -> None:
    with closing(UserStore.open(tmp_path / "users", create=True)) as store:
        store.add_user("ana", Role.analyst, "a long password")
        store.require_issuer("https://one.example.org")
        store.require_issuer("https://two.example.org")  # nobody has a subject yet
        store.set_subject("ana", "1")
        store.require_issuer("https://two.example.org")
        with pytest.raises(ProgrammingError) as refused:
            store.require_issuer("https://one.example.org")
        assert refused.value.code == "issuer"
        store.add_user("bob", Role.analyst, "a long password")
        with pytest.raises(ProgrammingError) as refused:
            store.set_subject("bob", "1")
        assert refused.value.code == "subject_exists"
        assert [user.subject for user in store.list_users()] == ["1", None]
        store.set_subject("ana", None)
        store.require_issuer("https://one.example.org")


def test_a_browser_logs_in_and_keeps_nothing_in_its_address(
    served: Served, issuer: Issuer, tmp_path: Path
) -> None:
    """One click leads to the issuer and back; the code is not in the address any more, and going back asks nobody."""
    provider = served.door.api.context.authenticator.provider
    assert provider is not None
    before, provider.client = (
        provider.client,
        replace(provider.client, redirect=f"http://127.0.0.1:{served.http}/"),
    )
    try:
        with browsing(tmp_path) as page:
            page.look(width=390, height=844, dark=True)
            page.open(f"http://127.0.0.1:{served.http}/")
            page.wait("document.querySelector('#elsewhere')?.hidden === false")
            assert page.value("document.querySelector('#elsewhere').textContent") == "Log in with 127.0.0.1"
            page.click("#elsewhere")
            page.wait("document.querySelector('#who')?.textContent === 'ana, analyst'")
            assert page.value("location.search") == ""
            assert page.value("sessionStorage.length") == 1
            page.open(f"http://127.0.0.1:{served.http}/?state=stolen&code=stolen")
            page.wait("document.querySelector('#refused')?.textContent.startsWith('The login failed')")
            assert page.value("location.search") == ""
        places = {urlsplit(url).netloc for url in page.requests if url.startswith("http")}
        assert places == {f"127.0.0.1:{served.http}", urlsplit(issuer.url).netloc}
    finally:
        provider.client = before
