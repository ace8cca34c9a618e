"""The user store: users, their passwords, and the commands for them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from dpsql.errors import DataError, Error, OperationalError, ProgrammingError
from dpsql.interfaces.server.protocol.scram import ITERATIONS, ScramExchange, Verifier
from dpsql.interfaces.server.users import Role, UserStore

from .conftest import PASSWORD, prepared
from .scram_client import ScramClient


@pytest.fixture
def store(tmp_path: Path) -> UserStore:
    return UserStore.open(tmp_path / "users", create=True)


def test_a_user_is_added_found_listed_changed_and_removed(store: UserStore) -> None:
    store.add_user("ana", Role.analyst, PASSWORD)
    store.add_user("eve", Role.auditor, PASSWORD)
    assert [(user.name, user.role) for user in store.list_users()] == [
        ("ana", Role.analyst),
        ("eve", Role.auditor),
    ]
    found = store.find_user("ana")
    assert found is not None
    store.change_password("ana", PASSWORD + "2")
    changed = store.find_user("ana")
    assert changed is not None
    assert changed[1] != found[1]
    store.remove_user("ana")
    assert store.find_user("ana") is None
    for missing in (lambda: store.remove_user("ana"), lambda: store.change_password("ana", PASSWORD)):
        with pytest.raises(ProgrammingError):
            missing()


@pytest.mark.parametrize("name", ["ANA", "Ana", "a\u200bna", "ａna"])
def test_two_names_of_one_account_are_not_two_users(store: UserStore, name: str) -> None:
    """Each would have a login of its own, and both one budget."""
    store.add_user("ana", Role.analyst, PASSWORD)
    with pytest.raises(Error):
        store.add_user(name, Role.analyst, PASSWORD)
    assert store.find_user(name) is None


@pytest.mark.parametrize("name", ["", " ana", "a\nb", "x" * 64])
def test_names_that_clients_garble_are_refused(store: UserStore, name: str) -> None:
    with pytest.raises(DataError):
        store.add_user(name, Role.analyst, PASSWORD)


@pytest.mark.parametrize("password", ["short", "", "ünïcode is not ascii", "x" * 257, "with\ta tab inside"])
def test_passwords_that_clients_send_differently_or_are_short_are_refused(
    store: UserStore, password: str
) -> None:
    with pytest.raises(DataError) as refused:
        store.add_user("ana", Role.analyst, password)
    assert password == "" or password not in str(refused.value)


def test_the_store_s_file_is_private_and_has_no_password(tmp_path: Path, store: UserStore) -> None:
    store.add_user("ana", Role.analyst, PASSWORD)
    file = tmp_path / "users"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert PASSWORD.encode() not in file.read_bytes()
    assert "hidden" in repr(store.find_user("ana"))


def test_a_missing_store_is_not_created_by_reading(tmp_path: Path) -> None:
    with pytest.raises(OperationalError):
        UserStore.open(tmp_path / "none")
    assert not (tmp_path / "none").exists()
    (tmp_path / "text").write_text("no database at all, but a text that is long enough to be looked at")
    with pytest.raises(OperationalError):
        UserStore.open(tmp_path / "text")


def test_a_store_is_created_only_in_an_empty_place(tmp_path: Path) -> None:
    """A link to a place that another one chose would put the verifiers there."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OperationalError):
        UserStore.open(tmp_path / "link", create=True)
    assert not (tmp_path / "elsewhere").exists()


def test_the_server_s_secret_stays_the_same(tmp_path: Path, store: UserStore) -> None:
    again = UserStore.open(tmp_path / "users")
    assert store.get_server_secret() == again.get_server_secret()
    assert len(store.get_server_secret()) == 32


def proved(verifier: Verifier, password: str, **changed: str) -> bool:
    client, proof = ScramClient(password), ScramExchange(verifier, known=True)
    told = proof.answer_first_message(client.first())
    assert told is not None
    final = client.final(told)
    for old, new in changed.items():
        final = final.replace(f"{old}=", f"{new}=" if len(new) == 1 else new, 1)
    return proof.answer_final_message(final) is not None


def test_a_verifier_matches_only_its_password() -> None:
    verifier = Verifier.from_password(PASSWORD)
    assert Verifier.from_text(str(verifier)) == verifier
    assert verifier.iterations == ITERATIONS
    assert proved(verifier, PASSWORD)
    assert not proved(verifier, PASSWORD + "x")
    assert not proved(verifier, PASSWORD, c="c=eSws")
    assert not proved(verifier, PASSWORD, r="r=x")
    assert not proved(verifier, PASSWORD, p="p=AA")


def test_the_exchange_of_rfc_7677_is_reproduced() -> None:
    """RFC 7677, section 3: the exchange of user and pencil."""
    import base64
    import hashlib
    import hmac

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    keys = (hmac.digest(salted, f"{name} Key".encode(), "sha256") for name in ("Client", "Server"))
    client, server = keys
    proof = ScramExchange(Verifier(4096, salt, hashlib.sha256(client).digest(), server), known=True)
    assert proof.answer_first_message("n,,n=user,r=rOprNGfwEbeRWgbNEkqO") is not None
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    proof._nonce = nonce
    proof._auth_message = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert proof.answer_final_message(final) == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("text", ["", "plain", "SCRAM-SHA-256$1:x$y:z", "md5abc"])
def test_other_texts_are_not_verifiers(text: str) -> None:
    with pytest.raises(DataError):
        Verifier.from_text(text)


@pytest.mark.parametrize(
    "message", ["", "p=tls-unique,,n=,r=abcdefgh", "n,,n=,r=", "y,,r=abcdefgh", "\0", "n,,m=x,n=,r=abcdefgh"]
)
def test_malformed_first_messages_and_channel_bindings_are_refused(message: str) -> None:
    assert ScramExchange(Verifier.make_mock("x", b"y"), known=True).answer_first_message(message) is None


def test_commands_add_list_change_and_remove_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    from dpsql.interfaces.cli import main

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as ended:
            main(["users", *arguments, "--users", str(tmp_path / "users")])
        return int(ended.value.code or 0), *capsys.readouterr()

    assert run("list")[0] == 1
    assert run("add", "ana", "--role", "analyst", stdin=PASSWORD + "\n")[1] == "ana may log in as analyst\n"
    code, out, _ = run("add", "eve", "--role", "auditor", "--generate")
    assert code == 0
    password = out.split("password: ")[1].strip()
    found = UserStore.open(tmp_path / "users").find_user("eve")
    assert found is not None
    assert proved(found[1], password)
    assert run("add", "bob", "--role", "king")[0] == 2
    assert run("add", "bob", "--role", "analyst", stdin="short\n")[0] == 1
    assert "ana" in run("list")[1]
    assert run("password", "ana", "--generate")[0] == 0
    assert run("remove", "ana")[0] == 0
    assert run("remove", "ana")[0] == 1


def test_server_without_querying_users_does_not_start(tmp_path: Path) -> None:
    from dpsql.interfaces.server.service import Service
    from dpsql.policy import load

    from .conftest import POLICY

    file, store = prepared(tmp_path)
    for name in ("ana", "bob"):
        store.remove_user(name)
    with pytest.raises(OperationalError) as refused:
        Service(load(POLICY), file, users=store, ledger=":memory:")
    assert refused.value.code == "no_users"
