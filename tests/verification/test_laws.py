"""Each law can fail: an engine or a parser that breaks it is found, and `dpsql engines verify` then writes no certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from dpsql.backends.duckdb.dialect import DuckDBColumns, DuckDBFunctions, DuckDBHashes
from dpsql.backends.duckdb.settings import LOCKED
from dpsql.plan.functions import FUNCTIONS
from dpsql.sql.parse import older_parser
from dpsql.sql.parse.parse import parse_statement
from dpsql.sql.parse.rejection import QueryText
from dpsql.verification import data_laws, function_laws, lock_laws, parser_laws
from dpsql.verification.calls import Bench
from dpsql.verification.law import Law, LawBroken, try_laws
from dpsql.verification.laws import LAWS
from dpsql.verification.stored_types import check_moments, check_reads
from tests.sql.corpus import CORPUS, text


def test_corpus_is_current() -> None:
    """The corpus has every fixture, with the meaning that it has today."""
    assert CORPUS.read_text(encoding="utf-8") == text(), "run: python -m tests.sql.corpus"


def test_laws_are_named_once_and_have_parts() -> None:
    """Each law has something to try."""
    assert len({law.name for law in LAWS}) == len(LAWS)
    for law in LAWS:
        assert any(True for _ in law.list_parts()), law.name


@pytest.mark.parametrize(
    "law",
    [
        law
        for law in LAWS
        if law.name in ("lock", "sums", "hashes", "scans", "files", "bound plans", "statements")
    ],
    ids=lambda law: law.name,
)
def test_quick_laws_hold(law: Law) -> None:
    """They hold for the installed versions; the laws of functions and stored columns are tests of their own."""
    (outcome,) = try_laws([law], lambda *_: None)
    assert outcome.failure is None


def broken(check: Callable[[], None]) -> None:
    with pytest.raises(Exception):  # noqa: B017  (an engine's error, or that of the law)
        check()


def test_function_that_fails_on_a_row_breaks_the_law() -> None:
    """Neither a cast that fails nor a wrong NULL passes."""
    bench = Bench.open()
    function_laws.check_rows(bench, FUNCTIONS["cast_bigint"])
    with mock.patch.object(DuckDBFunctions, "emit_call_template", return_value="CAST({0} AS TINYINT)"):
        broken(lambda: function_laws.check_rows(bench, FUNCTIONS["cast_bigint"]))
    with mock.patch.object(DuckDBFunctions, "emit_call_template", return_value="NULLIF(UPPER({0}), 'A')"):
        broken(lambda: function_laws.check_rows(bench, FUNCTIONS["upper"]))


def test_stored_value_that_cannot_be_read_breaks_the_law() -> None:
    """A column that is read by a cast fails on a value that is too great."""
    check_reads("UBIGINT", "integer")
    check_moments("TIMESTAMP_MS")
    with mock.patch.object(DuckDBColumns, "emit_widened_column", return_value="CAST(v AS BIGINT)"):
        broken(lambda: check_reads("UBIGINT", "integer"))
    with mock.patch.object(DuckDBColumns, "emit_widened_column", return_value="CAST(v AS TIMESTAMP)"):
        broken(lambda: check_moments("TIMESTAMP_MS"))


def test_hash_of_a_row_s_place_breaks_the_law() -> None:
    """A hash that depends on more than the values of a row."""
    with mock.patch.object(DuckDBHashes, "emit_shuffle_key", return_value="HASH(ROW_NUMBER() OVER ())"):
        broken(data_laws.check_hashes)


def test_open_lock_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that is not as it was set."""
    monkeypatch.setitem(LOCKED, "allow_community_extensions", True)
    broken(lambda: lock_laws.check_read_back("allow_community_extensions", False))


def test_parser_that_gives_another_meaning_breaks_the_law() -> None:
    """A statement with another plan, a refused one that is accepted, and an argument that nothing refuses."""
    corpus = parser_laws.read_corpus()
    accepted = [each for each in corpus if each.digest is not None]
    one, other = accepted[0], accepted[-1]
    parser_laws.check_meanings([one])
    broken(lambda: parser_laws.check_meanings([replace(one, digest=other.digest)]))
    broken(lambda: parser_laws.check_refusals([one]))
    with mock.patch.object(
        QueryText, "take_arguments", lambda _, node, *names, **__: [node.args.get(name) for name in names]
    ):
        broken(lambda: parser_laws.check_arguments(accepted[:40]))


def test_law_without_parts_is_broken() -> None:
    """What tries nothing proves nothing, and an error while parts are made counts."""

    def fail() -> Any:
        raise LawBroken("no")

    for parts in (lambda: (), fail):
        (outcome,) = try_laws([Law("duckdb", "x", "y", parts)], lambda *_: None)
        assert outcome.failure is not None


@pytest.mark.parametrize(
    ("condition", "ambiguous"),
    [("a = b IS NULL", True), ("a = (b IS NULL)", False), ("(a = b) IS NULL", False), ("a IS NULL AND b = 1", False),
     ("a IS NOT DISTINCT FROM b = c", True), ("NOT a IS NULL", False)],
)  # fmt: skip
def test_older_parser_refuses_comparisons_beside_is(condition: str, ambiguous: bool) -> None:
    """In other dialects, a sqlglot that may bind them otherwise is not believed."""
    tree = parse_statement(
        f"SELECT 1 FROM t WHERE {condition.replace('(', '').replace(')', '') if ambiguous else condition}"
    ).query
    for node in tree.find_all(older_parser.exp.Paren):
        if ambiguous:
            node.replace(node.this)
    assert older_parser.find_ambiguous_predicate(tree) is None
    with mock.patch.object(older_parser, "supports", return_value=False):
        assert (older_parser.find_ambiguous_predicate(tree) is not None) is ambiguous
