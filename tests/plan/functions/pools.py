"""Calls of some functions over values that are chosen for them, beside those of `dpsql.verification.calls`."""

from __future__ import annotations

from dpsql.backends.function_spellings import read_case_mapping
from dpsql.plan.expressions import Call, Literal
from dpsql.plan.functions import build_function_call
from dpsql.plan.types import Type
from dpsql.sql.compile.compiler import DUCKDB_COMPILER
from dpsql.verification.calls import (
    CONSTANTS,
    KINDS,
    NASTY,
    SIGNATURES,
    Bench,
    Signature,
    build,
    calls,
    column,
    holes,
    read_by,
    signatures,
    texts,
)

__all__ = [
    "CONSTANTS", "KINDS", "NASTY", "SIGNATURES", "Bench", "Signature", "build", "calls", "column", "holes", "read_by",
    "signatures", "texts",
]  # fmt: skip


def letter_texts() -> list[str]:
    """Texts of all letters that LOWER or UPPER changes, 40 at a time, and of some that have several forms."""
    letters = "".join(
        sorted({*"".join(read_case_mapping("lower") + read_case_mapping("upper")), *"ßʼn\u0345中😀"})
    )
    return [letters[at : at + 40] for at in range(0, len(letters), 40)] + ["ΑΣ", "İ", "ﬃ", "", "aZ", "Éé"]


def of_letters() -> list[Call]:
    """Calls of functions that look at letters, over a column of texts."""
    of = column(0, Type.VARCHAR)
    found = (
        build_function_call("lower", of),
        build_function_call("upper", of),
        build_function_call("ilike", of, Literal("%σ_%", Type.VARCHAR)),
    )
    return [each for each in found if each is not None]


ESCAPES = (
    *(("a!%b%", "!"), ("!!_!_", "!"), ("100%%_", "%"), ("%__%", "_"), ("\\%\\\\%", "\\")),
    *(("!é%", "!"), ("%!A%", "!"), ("a'!_", "!"), ("!%", "'")),
)
"""Patterns with their escapes; some escape what is no wildcard."""
ESCAPED_TEXTS = (
    "a%bc",
    "ab",
    "!__",
    "!x_",
    "100%x",
    "100%",
    "a_b",
    "_",
    "%\\z",
    "é",
    "éa",
    "A",
    "xAy",
    "a'_",
    "!",
    "",
    None,
)


def escapes() -> list[Call]:
    """Calls of LIKE and ILIKE with escapes over a column of texts."""
    found = (
        build_function_call(name, column(0, Type.VARCHAR), *(Literal(part, Type.VARCHAR) for part in pair))
        for name in ("like_escape", "ilike_escape")
        for pair in ESCAPES
    )
    return [each for each in found if each is not None]


EXPRESSIONS = (
    *(
        "a",
        "^a",
        "a$",
        "^a$",
        "^$",
        "",
        "a|^b",
        r"b\.c|\|$",
        r"^\{a\}\(|é",
        "|",
        "^",
        "$",
        "a||b$",
        "ß",
        "'",
        "%_",
    ),
    *("a.c", "(a)", "a+", "[a]", r"\d", "(?i)a", "^^a", "a$b"),
)
"""Regular expressions, of which the last are no alternatives of literals."""
EXPRESSED_TEXTS = (
    *(
        "a",
        "ab",
        "ba",
        "A",
        "b",
        "b.c",
        "bxc",
        "a\n",
        "\na",
        "|",
        "x|",
        "{a}(",
        "{a}(b",
        "é",
        "",
        "'",
        "%_",
        None,
    ),
)


def expressions() -> list[Call]:
    """Questions to regular expressions over a column of texts."""
    found = (
        build_function_call(name, column(0, Type.VARCHAR), Literal(pattern, Type.VARCHAR))
        for name in ("regexp_matches", "regexp_full_match")
        for pattern in EXPRESSIONS
    )
    return [each for each in found if each is not None]


def place(call: Call) -> str:
    """The SQL of where a call's value lies on the line of its type, or of the value itself."""
    value = DUCKDB_COMPILER.emit_expression(call)
    if call.type is Type.DATE:
        return f"CASE WHEN ISFINITE({value}) THEN {value} - DATE '0001-01-01' + 1 END"
    if call.type is Type.TIMESTAMP:
        return f"CASE WHEN ISFINITE({value}) THEN EPOCH_US({value}) END"
    return value
