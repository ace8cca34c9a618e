"""Writes the corpus of `dpsql engines verify` from the fixtures: `python -m tests.sql.corpus`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import dpsql
from dpsql.verification import parser_laws
from tests.sql.fixture_files import fixtures

CORPUS = Path(dpsql.__file__).parent / "verification" / "corpus.jsonl"


def lines() -> Iterator[str]:
    """A line for each fixture: query, parameters, and the digest of its plan or the code of its refusal.

    What is refused after it was lowered, for its loss, is left out.
    """
    for fixture in fixtures():
        code, digest = fixture.field("code"), None
        try:
            digest = parser_laws.compute_meaning(fixture.query, fixture.parameters)
        except dpsql.Error as error:
            if code is None:
                raise AssertionError(f"{fixture} is refused") from error
        if code is not None and digest is not None:
            continue
        yield json.dumps([fixture.query, fixture.field("with") or "[]", digest, code], ensure_ascii=False)


def text() -> str:
    """The corpus."""
    return "".join(f"{line}\n" for line in lines())


if __name__ == "__main__":
    CORPUS.write_text(text(), encoding="utf-8")
