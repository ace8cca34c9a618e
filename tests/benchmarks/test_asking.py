"""Peers are told the same questions, in environments of their own, and a refusal is kept with its reason."""

from __future__ import annotations

import json
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.accuracy.asking import Asking, ask, read
from benchmarks.accuracy.environments import PEERS, NotInstalledError, Peer, kept, python
from benchmarks.accuracy.peers.job import Ask, Question, Refused, lines_of, serve
from benchmarks.accuracy.questions import QUESTIONS

TOLD = {
    "name": "HIE count by plan",
    "table": "flat.parquet",
    "rows": 20_190,
    "whole": ["x"],
    "keys": [["k", ["a", "b"]], ["j", ["c"]]],
    "outputs": [["n", "COUNT", None], ["v", "VAR", "x"]],
    "bounds": {"x": [0, 10]},
    "row_is_unit": True,
    "rows_per_unit": 1,
    "groups_per_unit": 1,
}


def test_peer_can_write_the_query_its_own_way() -> None:
    """A peer gets SQL with its names of functions, all public groups, and a public size."""
    question = Question(**TOLD)
    assert (
        question.sql({"VAR": "VARIANCE"})
        == "SELECT k, j, COUNT(*) AS n, VARIANCE(x) AS v FROM t GROUP BY k, j"
    )
    assert question.public_keys == [("a", "c"), ("b", "c")]
    assert replace(question, keys=[("k", ["a"]), ("j", None)]).public_keys is None
    assert question.public_size == 100_000


def test_answers_and_refusals_are_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is computed once; a peer's error or panic is its reason; stored answers are not computed again."""
    job, written = tmp_path / "job.json", tmp_path / "said.jsonl"
    job.write_text(json.dumps({"questions": [TOLD], "epsilons": [1, 2, 3], "delta": 1e-6, "runs": 2}))
    monkeypatch.setattr("sys.argv", ["", str(job), str(written)])

    def prepare(question: Question, epsilon: float, delta: float) -> Ask:
        if epsilon == 2:
            raise Refused("no VAR")
        if epsilon == 3:
            raise BaseException("panicked\nand more")  # noqa: TRY002
        values = iter([5.0, 6.0])
        assert delta == 1e-6
        return lambda: [["a", "c", question.rows, next(values)]]

    serve(prepare)
    (counted,) = (question for question in QUESTIONS if question.name == "HIE count by plan")
    said = read(lines_of(written), [replace(counted, keys=(("k", None), ("j", None)))])
    assert said[counted.name, 1] == [{("a", "c"): (20_190.0, 5.0)}, {("a", "c"): (20_190.0, 6.0)}]
    assert said[counted.name, 2] == "Refused: no VAR"
    assert said[counted.name, 3] == "BaseException: panicked"

    before = written.read_text(encoding="utf-8")
    serve(prepare)
    assert written.read_text(encoding="utf-8") == before


def test_stored_answers_belong_to_the_same_queries(tmp_path: Path) -> None:
    """Answers at another scale, or fewer of them, are not mixed in."""
    asking = Asking([], [], 2, "0.01", [], tmp_path, tmp_path / "answers")
    assert ask(asking) == ([], [])
    assert ask(asking) == ([], [])
    with pytest.raises(ValueError, match="another scale"):
        ask(replace(asking, runs=3))


def test_environment_belongs_to_its_requirements(tmp_path: Path) -> None:
    """Other versions are installed next to the existing environment, not over it."""
    first, *others = PEERS
    newer = replace(first, requirements=("another==2",))
    folders = {peer.folder(tmp_path) for peer in (first, newer, *others)}
    assert len(folders) == 2 + len(others)
    assert all("==" in peer.requirements[0] for peer in PEERS)


def test_environment_is_made_once(tmp_path: Path) -> None:
    """An environment that is ready is reused."""
    peer = Peer("none", "none", ("--no-index", "surely-not-a-package"))
    peer.folder(tmp_path).mkdir()
    (peer.folder(tmp_path) / "ready").touch()
    assert python(peer, tmp_path).is_relative_to(peer.folder(tmp_path))


def test_failed_installation_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the installation's last words; the next run tries again."""
    create = venv.create
    monkeypatch.setattr("venv.create", lambda folder, **_: create(folder, with_pip=False))
    peer = Peer("none", "none", ("surely-not-a-package",))
    with pytest.raises(NotInstalledError, match="No module named pip"):
        python(peer, tmp_path)
    assert not (peer.folder(tmp_path) / "ready").exists()


def test_environments_are_stored_in_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cache is the user's, wherever that is."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept().is_relative_to(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert kept().is_relative_to(Path.home() / ".cache")
