"""Tokens are valid until they are revoked, expire, or their user is removed or gets another password."""

from __future__ import annotations

import hashlib
import io
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dpsql.errors import DataError, ProgrammingError
from dpsql.interfaces.cli import main
from dpsql.interfaces.server.users import MOST_TOKENS, Role, TokenSecret, UserStore

from .conftest import PASSWORD

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UserStore]:
    """A store with ana, who has a token already that no test ends."""
    found = UserStore.open(tmp_path / "users", create=True)
    found.add_user("ana", Role.analyst, PASSWORD)
    found.add_user("eve", Role.auditor, PASSWORD)
    found.add_token("eve", "of another", 30)
    yield found
    found.close()


def test_a_token_finds_its_user_with_the_present_role(store: UserStore) -> None:
    secret = store.add_token("ana", "notebook", 30)
    user = store.find_by_token(secret.to_text())
    assert user is not None
    assert (user.name, user.role) == ("ana", Role.analyst)
    (listed,) = store.list_tokens("ana")
    assert (listed.id, listed.user, listed.label) == (secret.id, "ana", "notebook")
    assert len(store.list_tokens()) == 2


def test_the_store_holds_no_token_and_no_repr_shows_one(tmp_path: Path, store: UserStore) -> None:
    secret = store.add_token("ana", "", 30)
    hidden = secret.to_text().rpartition("_")[2]
    store.close()
    assert hidden.encode() not in (tmp_path / "users").read_bytes()
    assert hidden not in repr(secret)
    assert secret.compute_digest().encode() in (tmp_path / "users").read_bytes()


def _other_secret(text: str) -> str:
    return text[:-1] + ("0" if text[-1] != "0" else "1")


@pytest.mark.parametrize(
    "changed",
    [
        _other_secret,
        lambda text: text.replace("dpsql_", "dpsql-"),
        lambda text: text + "0",
        lambda text: text.upper(),
        lambda text: f" {text}",
        lambda text: f"{text}\n",
        lambda text: f"dpsql_{'0' * 16}_{text[-64:]}",
        lambda text: text[:23],
        lambda text: f"{text[:6]}%{text[7:]}",
        lambda _: "",
        lambda _: "é" * 87,
        lambda _: "x" * 1_000_000,
        lambda text: f"{text[:23]}{hashlib.sha256(text[23:].encode()).hexdigest()}",
    ],
)
def test_another_text_finds_no_user(store: UserStore, changed: Callable[[str], str]) -> None:
    """Neither another secret, nor another id, nor what the store holds."""
    text = store.add_token("ana", "", 30).to_text()
    assert store.find_by_token(changed(text)) is None
    assert store.find_by_token(text) is not None


def _revoked(store: UserStore, secret: TokenSecret) -> None:
    store.revoke_token(secret.id)


def _with_another_password(store: UserStore, _: TokenSecret) -> None:
    store.change_password("ana", PASSWORD + "2")


def _removed_and_added_again(store: UserStore, _: TokenSecret) -> None:
    store.remove_user("ana")
    assert store.list_tokens("ana") == ()
    store.add_user("ana", Role.analyst, PASSWORD)


@pytest.mark.parametrize("end", [_revoked, _with_another_password, _removed_and_added_again])
def test_a_token_ends_when_revoked_or_with_its_user_or_password(
    store: UserStore, end: Callable[[UserStore, TokenSecret], None]
) -> None:
    """And the tokens of others stay."""
    secret = store.add_token("ana", "", 30)
    end(store, secret)
    assert store.find_by_token(secret.to_text()) is None
    assert store.list_tokens("ana") == ()
    assert len(store.list_tokens("eve")) == 1


def test_a_token_expires_to_the_second(store: UserStore) -> None:
    text = store.add_token("ana", "", 30, now=NOW).to_text()
    end = NOW + timedelta(days=30)
    assert store.find_by_token(text, now=end - timedelta(seconds=1)) is not None
    assert store.find_by_token(text, now=end) is None
    assert store.find_by_token(text) is not None or datetime.now(UTC) >= end


def test_invalid_tokens_are_not_created(store: UserStore) -> None:
    for days in (0, -1, 3_651):
        with pytest.raises(DataError):
            store.add_token("ana", "", days)
    for label in ("a\nb", "x" * 64):
        with pytest.raises(DataError):
            store.add_token("ana", label, 1)
    with pytest.raises(ProgrammingError):
        store.add_token("nobody", "", 1)
    with pytest.raises(ProgrammingError):
        store.revoke_token("0" * 16)
    assert store.list_tokens("ana") == ()


def test_the_number_of_a_user_s_tokens_is_limited(store: UserStore) -> None:
    for _ in range(MOST_TOKENS):
        store.add_token("ana", "", 1)
    with pytest.raises(ProgrammingError) as refused:
        store.add_token("ana", "", 1)
    assert refused.value.code == "token_count"


def test_a_store_of_an_older_version_gets_its_table_of_tokens(tmp_path: Path, store: UserStore) -> None:
    store.close()
    with sqlite3.connect(tmp_path / "users") as older:
        older.execute("DROP TABLE dpsql_tokens")
    again = UserStore.open(tmp_path / "users")
    assert again.find_by_token(again.add_token("ana", "", 1).to_text()) is not None
    again.close()


def test_commands_create_list_and_revoke_tokens(
    tmp_path: Path, store: UserStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO())
        with pytest.raises(SystemExit) as ended:
            main(["users", *arguments, "--users", str(tmp_path / "users")])
        return int(ended.value.code or 0), capsys.readouterr().out

    code, out = run("token", "ana", "--expires", "7", "--name", "notebook")
    assert code == 0
    text = out.split("token: ")[1].strip()
    assert store.find_by_token(text) is not None
    (made,) = store.list_tokens("ana")
    assert made.expires - made.created == timedelta(days=7)
    listed = run("tokens", "ana")[1]
    assert made.id in listed
    assert "notebook" in listed
    assert text not in listed + run("tokens")[1]
    assert "of another" in run("tokens")[1]
    assert run("token", "ana", "--expires", "0")[0] == 2
    assert run("token", "nobody")[0] == 1
    assert run("revoke", made.id)[0] == 0
    assert store.find_by_token(text) is None
    assert run("revoke", made.id)[0] == 1
