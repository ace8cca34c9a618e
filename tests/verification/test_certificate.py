"""No engine is opened that was neither reviewed nor certified here, and a certificate counts for what it states alone."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlglot

import dpsql
from dpsql.errors import OperationalError
from dpsql.verification import certificate
from dpsql.verification.certificate import (
    REVIEWED,
    build_certificate,
    get_certificate_path,
    get_versions,
    is_reviewed,
    read_certificate,
    require_verified,
    write_certificate,
)

ROOT = Path(__file__).parents[2]
UNREVIEWED = (((9, 0, 0), (9, 0, 1)),)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The certificate of a machine on which this DuckDB was not reviewed."""
    monkeypatch.setattr(certificate, "REVIEWED", {**REVIEWED, "duckdb": UNREVIEWED})
    found = tmp_path / "engines.json"
    monkeypatch.setenv("DPSQL_CERTIFICATE", str(found))
    return found


def refuse() -> OperationalError:
    with pytest.raises(OperationalError) as caught:
        require_verified()
    return caught.value


def test_installed_versions_are_reviewed() -> None:
    """The versions on which all tests run are in the ranges."""
    assert all(is_reviewed(name, version) for name, version in get_versions().items())
    assert get_versions() == {"duckdb": duckdb.__version__, "sqlglot": sqlglot.__version__}  # type: ignore[attr-defined]


def test_package_allows_all_reviewed_versions() -> None:
    """The requirements of the package hold the reviewed ranges, and end with the minor or major version."""
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    for name, ranges in REVIEWED.items():
        (found,) = (
            re.fullmatch(rf"{name}>=([\d.]+),<([\d.]+)", need) for need in needs if need.startswith(name)
        )
        assert found is not None
        low, high = (tuple(map(int, end.split("."))) for end in found.groups())
        assert low == ranges[0][0][: len(low)]
        assert ranges[-1][1] < high


@pytest.mark.parametrize("version", ["1.3.2", "1.4.6", "1.6.0", "2.0.2", "2.1.0", "2.0.1.dev3", "2", "x", ""])
def test_other_versions_are_not_reviewed(version: str) -> None:
    """A fix release is not reviewed before somebody tried it, nor is what is no release."""
    assert not is_reviewed("duckdb", version)


def test_unreviewed_engine_is_refused_at_connect(path: Path) -> None:
    """The error names the one command that is the way out, and a ledger is not even created."""
    ledger = path.parent / "a.ledger"
    policy = {
        "version": 1,
        "privacy_unit": "p",
        "budget": {"epsilon": 1},
        "tables": {"people": {"unit": "row"}},
    }
    with duckdb.connect() as owner:
        owner.execute("CREATE TABLE people AS SELECT 30 AS age")
        with pytest.raises(OperationalError) as caught:
            dpsql.connect(owner, policy=policy, ledger=ledger)
    assert caught.value.code == "engine_version"
    assert "dpsql engines verify" in (caught.value.hint or "")
    assert not ledger.exists()
    assert refuse().code == "engine_version"


def test_certificate_of_these_versions_counts(path: Path) -> None:
    """It is read back as it was written, with no right for others."""
    write_certificate(path)
    assert read_certificate(path) == build_certificate()
    require_verified()
    assert path.stat().st_mode & 0o077 == 0
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("field", ["dpsql", "duckdb", "sqlglot", "platform", "laws", "result"])
def test_certificate_of_anything_else_does_not_count(
    path: Path, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate states each version, the platform and the laws; one that states another is no proof for this."""
    other = replace(build_certificate(), **{field: "another"})
    with monkeypatch.context() as patch:
        patch.setattr(certificate, "build_certificate", lambda: other)
        write_certificate(path)
    assert read_certificate(path) == other
    assert refuse().code == "engine_version"


def test_certificate_states_the_files_of_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their digest changes with any file that says what is tried or what an engine is asked."""
    certificate.compute_laws_digest.cache_clear()
    before = build_certificate().laws
    monkeypatch.setattr(certificate, "_LAWS", certificate._LAWS[1:])
    certificate.compute_laws_digest.cache_clear()
    assert build_certificate().laws != before
    monkeypatch.undo()
    certificate.compute_laws_digest.cache_clear()
    assert build_certificate().laws == before


DAMAGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another version": lambda stated: {**stated, "duckdb": "9.9.9"},
    "no checksum": lambda stated: {name: value for name, value in stated.items() if name != "checksum"},
    "another field": lambda stated: {**stated, "note": "x"},
    "no version": lambda stated: {name: value for name, value in stated.items() if name != "duckdb"},
    "a number": lambda stated: {**stated, "laws": 1},
    "a list": lambda stated: [stated],
    "nothing": lambda _: None,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_certificate_is_refused(path: Path, damage: Callable[[dict[str, Any]], Any]) -> None:
    """It is neither believed nor taken for none: the error names the file."""
    write_certificate(path)
    path.write_text(json.dumps(damage(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")
    error = refuse()
    assert error.code == "certificate"
    assert str(path) in error.message


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b" " * 20_000])
def test_bytes_that_are_no_certificate_are_refused(path: Path, content: bytes) -> None:
    """However long or deep they are."""
    path.write_bytes(content)
    assert refuse().code == "certificate"


@pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_certificate_that_others_can_write_is_refused(path: Path, mode: int) -> None:
    """Another user of the machine cannot vouch for an engine."""
    write_certificate(path)
    path.chmod(mode)
    assert refuse().code == "certificate"


def test_folder_in_place_of_a_certificate_is_refused(path: Path) -> None:
    """So is what cannot be read."""
    path.mkdir()
    assert refuse().code == "certificate"


@pytest.mark.skipif(os.name != "posix", reason="there are no such files")
@pytest.mark.timeout(20)
def test_pipe_in_place_of_a_certificate_is_refused(path: Path) -> None:
    """Nobody waits for what may never be written."""
    os.mkfifo(path)
    assert refuse().code == "certificate"


@pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")
def test_file_that_is_looked_at_is_the_one_that_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can write the folder might exchange the file in between: its rights are asked of what is open."""
    write_certificate(path)
    others = path.with_name("others.json")
    others.write_bytes(path.read_bytes())
    others.chmod(0o666)
    path.write_text("{}", encoding="utf-8")
    stated = Path.stat

    def exchange(self: Path, **options: Any) -> os.stat_result:
        found = stated(self, **options)
        if self == path and others.exists():
            others.replace(path)
        return found

    monkeypatch.setattr(Path, "stat", exchange)
    assert refuse().code == "certificate"


def test_path_follows_the_configuration(tmp_path: Path) -> None:
    """DPSQL_CERTIFICATE, else the user's configuration."""
    assert get_certificate_path({"DPSQL_CERTIFICATE": "/x/c.json"}) == Path("/x/c.json")
    assert get_certificate_path({"XDG_CONFIG_HOME": str(tmp_path)}) == tmp_path / "dpsql" / "engines.json"
    assert (
        get_certificate_path({"XDG_CONFIG_HOME": "relative"})
        == Path.home() / ".config" / "dpsql" / "engines.json"
    )


def test_reviewed_engine_needs_no_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged one beside it is not read."""
    (tmp_path / "engines.json").write_text("{", encoding="utf-8")
    monkeypatch.setenv("DPSQL_CERTIFICATE", str(tmp_path / "engines.json"))
    require_verified()


def test_no_route_of_a_server_leads_to_a_certificate() -> None:
    """Neither the server nor the shell imports what verifies, and only the command writes."""
    package = Path(dpsql.__file__).parent
    callers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"write_certificate|verification\.laws?\b", path.read_text(encoding="utf-8"))
    }
    assert {each for each in callers if not each.startswith("verification/")} == {"interfaces/cli/engines.py"}
