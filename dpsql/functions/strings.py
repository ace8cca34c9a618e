"""Text functions over Unicode: characters are code points unless stated otherwise."""

from __future__ import annotations

from fractions import Fraction

from dpsql.functions import growth
from dpsql.functions.enclosures import constantly
from dpsql.functions.signatures import INTEGER, TEXT, fixed, several, written
from dpsql.plan.expr import Function, SizeRule, WorkRule
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value

MOST_OFFSET = 2**31 - 1
MOST_PADDED = 1_000
"""Most characters that a text is padded to."""
MOST_REPEATED = 100
"""Most times that a text is repeated."""
MOST_PARTS = 1_000
"""The last part of a text that can be taken."""
MOST_CONSTANT = 1_000
"""Most characters of a constant that is put into a text."""
MOST_COMPARED = 1_000
"""The first characters of a text by which it is said how alike it is to another one."""
_BEGINNING = f"LEFT({{0}}, {MOST_COMPARED})"
_DEFINED = "defined for every text"
_CONSTANTS = "defined for every text; the positions are constants within 32 bits"
_LENGTH = constantly(Interval(0, 2**32))
_LETTERS = growth.multiplied(Fraction(3, 2))
_SIMILARITY = constantly(Interval(0, 1))


def _offsets(values: tuple[Value, ...]) -> str | None:
    fits = all(isinstance(value, int) and abs(value) <= MOST_OFFSET for value in values)
    return None if fits else f"at most {MOST_OFFSET:,} in size there"


def _padding(values: tuple[Value, ...]) -> str | None:
    length, fill = values
    if not (isinstance(length, int) and 0 <= length <= MOST_PADDED):
        return f"a length between 0 and {MOST_PADDED:,}"
    return None if fill else "a text to fill with"


def _repeats(values: tuple[Value, ...]) -> str | None:
    fits = isinstance(values[0], int) and 0 <= values[0] <= MOST_REPEATED
    return None if fits else f"between 0 and {MOST_REPEATED} times"


def _short(values: tuple[Value, ...]) -> str | None:
    texts = [value for value in values if isinstance(value, str)]
    numbers = tuple(value for value in values if isinstance(value, int))
    fits = all(len(text) <= MOST_CONSTANT for text in texts)
    return _offsets(numbers) if fits else f"a text of at most {MOST_CONSTANT:,} characters"


def _filled(values: tuple[Value, ...]) -> str | None:
    return _short(values) if values[0] else "a text that is not empty"


def _place(values: tuple[Value, ...]) -> str | None:
    fits = isinstance(values[1], int) and 1 <= values[1] <= MOST_PARTS
    return _short(values[:1]) if fits else f"a place between 1 and {MOST_PARTS:,}"


def _text(
    word: str,
    example: tuple[str, str],
    *aliases: str,
    size: SizeRule = growth.as_long,
    work: WorkRule | None = None,
) -> Function:
    """A function from text to text."""
    return Function(
        word.lower(),
        f"{word}(s)",
        fixed(Type.VARCHAR, TEXT),
        f"{word}({{0}})",
        _DEFINED,
        strict=True,
        names=(word.lower(), *aliases),
        size=size,
        work=work,
        example=example,
    )


def _trimmed(word: str, example: tuple[str, str]) -> Function:
    """A function that takes characters of a set away."""
    return Function(
        f"{word.lower()}_characters",
        f"{word}(s, characters)",
        fixed(Type.VARCHAR, TEXT, TEXT),
        f"{word}({{0}}, {{1}})",
        _DEFINED,
        strict=True,
        names=(word.lower(),),
        size=growth.as_long,
        work=growth.each_byte(8),
        example=example,
    )


def _number(
    word: str,
    interval: Interval,
    example: tuple[str, str],
    *aliases: str,
    work: WorkRule | None = None,
) -> Function:
    """A function from text to a whole number."""
    return Function(
        word.lower(),
        f"{word}(s)",
        fixed(Type.INTEGER, TEXT),
        f"CAST({word}({{0}}) AS BIGINT)",
        _DEFINED,
        interval=constantly(interval),
        strict=True,
        names=(word.lower(), *aliases),
        work=work,
        example=example,
    )


def _part(
    word: str,
    example: tuple[str, str],
    *arguments: str,
    size: SizeRule = growth.as_long,
    **more: str,
) -> Function:
    """A function that takes a part of a text, by constant positions."""
    return Function(
        more.get("name", word.lower()),
        f"{word}(s, {', '.join(arguments)})",
        fixed(Type.VARCHAR, TEXT, *([INTEGER] * len(arguments))),
        f"{word}({written(1 + len(arguments))})",
        _CONSTANTS,
        strict=True,
        literals=frozenset(range(1, len(arguments) + 1)),
        check=_offsets,
        names=(word.lower(), *((more["alias"],) if "alias" in more else ())),
        size=size,
        work=growth.each_byte(8 if "GRAPHEME" in word else 2),
        example=example,
    )


def _padded(word: str, example: tuple[str, str]) -> Function:
    return Function(
        word.lower(),
        f"{word}(s, length, 'fill')",
        fixed(Type.VARCHAR, TEXT, INTEGER, TEXT),
        f"{word}({{0}}, {{1}}, {{2}})",
        "length and fill are constants, and there is something to fill with",
        strict=True,
        literals=frozenset({1, 2}),
        check=_padding,
        names=(word.lower(),),
        size=growth.padded,
        example=example,
    )


def _search(word: str, result: Type, example: tuple[str, str], *aliases: str) -> Function:
    """A function that looks for one text in another."""
    return Function(
        word.lower(),
        f"{word}(s, sought)",
        fixed(result, TEXT, TEXT),
        f"{word}({{0}}, CAST({{1}} AS VARCHAR))",
        _DEFINED,
        interval=_LENGTH if result is Type.INTEGER else constantly(Interval(0, 1)),
        strict=True,
        names=(word.lower(), *aliases),
        work=growth.sought,
        example=example,
    )


def _alike(word: str, result: Type, example: tuple[str, str], *aliases: str, sql: str = "") -> Function:
    """How alike a text is to a constant, by its first letters: the work is in proportion to the product of both."""
    return Function(
        word.lower(),
        f"{word}(s, 'text')",
        fixed(result, TEXT, TEXT),
        sql or f"{word}({_BEGINNING}, {{1}})",
        f"defined for every text, of which the first {MOST_COMPARED:,} characters are compared; the other is a short constant",
        interval=_LENGTH if result is Type.INTEGER else _SIMILARITY,
        strict=not sql,
        doubled=frozenset({0} if "NULLIF" in sql else ()),
        literals=frozenset({1}),
        check=_short if not sql else _filled,
        names=(word.lower(), *aliases),
        work=growth.each_pair(8, cut=MOST_COMPARED),
        example=example,
    )


def _overlay(name: str, signature: str, sql: str, example: tuple[str, str], places: int) -> Function:
    return Function(
        name,
        signature,
        fixed(Type.VARCHAR, TEXT, TEXT, *([INTEGER] * (places - 1))),
        sql,
        "defined for every text; the new text and its place are constants",
        strict=True,
        literals=frozenset(range(1, places + 1)),
        check=_short,
        names=("overlay",),
        size=growth.overlaid,
        example=example,
    )


ENTRIES = (
    _text("LOWER", ("LOWER('Ab')", "ab"), "lcase", size=_LETTERS, work=growth.each_byte(8)),
    _text("UPPER", ("UPPER('Ab')", "AB"), "ucase", size=_LETTERS, work=growth.each_byte(8)),
    _text("REVERSE", ("REVERSE('abc')", "cba"), work=growth.each_byte(8)),
    _text("TRIM", ("TRIM('  ab ')", "ab")),
    _text("LTRIM", ("LTRIM('  ab')", "ab")),
    _text("RTRIM", ("RTRIM('ab  ')", "ab")),
    _text("STRIP_ACCENTS", ("STRIP_ACCENTS('née')", "nee"), size=_LETTERS, work=growth.each_byte(40)),
    _text(
        "NFC_NORMALIZE",
        ("NFC_NORMALIZE('née')", "née"),
        size=growth.multiplied(Fraction(3)),
        work=growth.each_square(40, 8),
    ),
    _trimmed("TRIM", ("TRIM('xabx', 'x')", "ab")),
    _trimmed("LTRIM", ("LTRIM('xabx', 'x')", "abx")),
    _trimmed("RTRIM", ("RTRIM('xabx', 'x')", "xab")),
    _number("LENGTH", Interval(0, 2**32), ("LENGTH('née')", "3"), "len", "char_length", "character_length"),
    _number("LENGTH_GRAPHEME", Interval(0, 2**32), ("LENGTH_GRAPHEME('née')", "3"), work=growth.each_byte(8)),
    _number("STRLEN", Interval(0, 2**32), ("STRLEN('née')", "4")),
    _number("BIT_LENGTH", Interval(0, 2**35), ("BIT_LENGTH('née')", "32")),
    _number("ASCII", Interval(0, 0x10FFFF), ("ASCII('née')", "110")),
    _number("UNICODE", Interval(-1, 0x10FFFF), ("UNICODE('')", "-1"), "ord"),
    Function(
        "chr",
        "CHR(n)",
        fixed(Type.VARCHAR, INTEGER),
        "TRY(CHR(TRY_CAST({0} AS INTEGER)))",
        "TRY gives NULL where there is no such character",
        names=("chr",),
        size=growth.at_most(growth.LETTER),
        example=("CHR(65)", "A"),
    ),
    _part("SUBSTRING", ("SUBSTRING('abcdef', 3)", "cdef"), "start", name="substring_from", alias="substr"),
    _part(
        "SUBSTRING",
        ("SUBSTRING('abcdef', 3, 2)", "cd"),
        "start",
        "length",
        alias="substr",
        size=growth.part_of(2),
    ),
    _part(
        "SUBSTRING_GRAPHEME", ("SUBSTRING_GRAPHEME('née', 2)", "ée"), "start", name="substring_grapheme_from"
    ),
    _part("SUBSTRING_GRAPHEME", ("SUBSTRING_GRAPHEME('née', 2, 1)", "é"), "start", "length"),
    _part("LEFT", ("LEFT('abcdef', 2)", "ab"), "count", size=growth.part_of(1)),
    _part("RIGHT", ("RIGHT('abcdef', 2)", "ef"), "count", size=growth.part_of(1)),
    _part("LEFT_GRAPHEME", ("LEFT_GRAPHEME('née', 2)", "né"), "count"),
    _part("RIGHT_GRAPHEME", ("RIGHT_GRAPHEME('née', 2)", "ée"), "count"),
    _padded("LPAD", ("LPAD('7', 3, '0')", "007")),
    _padded("RPAD", ("RPAD('7', 3, '0')", "700")),
    Function(
        "repeat",
        "REPEAT(s, count)",
        fixed(Type.VARCHAR, TEXT, INTEGER),
        "CAST(REPEAT({0}, {1}) AS VARCHAR)",
        "the count is a small constant",
        strict=True,
        literals=frozenset({1}),
        check=_repeats,
        size=growth.repeated,
        names=("repeat",),
        example=("REPEAT('ab', 3)", "ababab"),
    ),
    Function(
        "replace",
        "REPLACE(s, 'old', 'new')",
        fixed(Type.VARCHAR, TEXT, TEXT, TEXT),
        "REPLACE({0}, {1}, {2})",
        "what is replaced, and by what, are constants",
        strict=True,
        literals=frozenset({1, 2}),
        check=_short,
        size=growth.replaced,
        work=growth.replacing,
        names=("replace",),
        example=("REPLACE('abc', 'b', 'xy')", "axyc"),
    ),
    Function(
        "translate",
        "TRANSLATE(s, 'old', 'new')",
        fixed(Type.VARCHAR, TEXT, TEXT, TEXT),
        "TRANSLATE({0}, {1}, {2})",
        "the characters are constants",
        strict=True,
        literals=frozenset({1, 2}),
        check=_short,
        size=growth.translated,
        work=growth.each_byte(8),
        names=("translate",),
        example=("TRANSLATE('abc', 'ab', 'x')", "xc"),
    ),
    _overlay(
        "overlay",
        "OVERLAY(s, 'new', start)",
        "OVERLAY({0}, {1}, {2})",
        ("OVERLAY('abcdef', 'xy', 2)", "axydef"),
        2,
    ),
    _overlay(
        "overlay_length",
        "OVERLAY(s, 'new', start, length)",
        "OVERLAY({0}, {1}, {2}, {3})",
        ("OVERLAY('abcdef', 'xy', 2, 1)", "axycdef"),
        3,
    ),
    Function(
        "split_part",
        "SPLIT_PART(s, 'separator', place)",
        fixed(Type.VARCHAR, TEXT, TEXT, INTEGER),
        "LIST_EXTRACT(LIST_RESIZE(STRING_SPLIT({0}, {1}), {2}, ''), {2})",
        "separator and place are constants, and missing parts are empty",
        strict=True,
        literals=frozenset({1, 2}),
        check=_place,
        size=growth.as_long,
        work=growth.each_byte(20),
        names=("split_part",),
        example=("SPLIT_PART('a-b-c', '-', 2)", "b"),
    ),
    _search("CONTAINS", Type.BOOLEAN, ("CONTAINS('abc', 'b')", "true")),
    _search("STARTS_WITH", Type.BOOLEAN, ("STARTS_WITH('abc', 'b')", "false"), "prefix"),
    _search("SUFFIX", Type.BOOLEAN, ("ENDS_WITH('abc', 'c')", "true"), "ends_with"),
    _search("STRPOS", Type.INTEGER, ("STRPOS('abc', 'c')", "3"), "instr"),
    Function(
        "concatenate",
        "s || u",
        fixed(Type.VARCHAR, TEXT, TEXT),
        "CAST({0} || {1} AS VARCHAR)",
        _DEFINED,
        strict=True,
        names=("||",),
        size=growth.together,
        example=("'a' || 1", "a1"),
    ),
    Function(
        "concat",
        "CONCAT(s, …)",
        several(1, TEXT, Type.VARCHAR),
        "CONCAT({args})",
        "defined for every text; NULL is left out",
        certain=True,
        names=("concat",),
        size=growth.together,
        example=("CONCAT('a', NULL, 1)", "a1"),
    ),
    Function(
        "concat_ws",
        "CONCAT_WS(separator, s, …)",
        several(2, TEXT, Type.VARCHAR),
        "CONCAT_WS({args})",
        "defined for every text; NULL is left out",
        names=("concat_ws",),
        size=growth.separated,
        example=("CONCAT_WS('-', 'a', NULL, 'b')", "a-b"),
    ),
    Function(
        "hex",
        "HEX(n)",
        fixed(Type.VARCHAR, INTEGER),
        "HEX({0})",
        "defined for all 64 bits",
        strict=True,
        names=("hex", "to_hex"),
        size=growth.at_most(16),
        example=("HEX(255)", "FF"),
    ),
    Function(
        "bin",
        "BIN(n)",
        fixed(Type.VARCHAR, INTEGER),
        "BIN({0})",
        "defined for all 64 bits",
        strict=True,
        names=("bin", "to_binary"),
        size=growth.at_most(64),
        example=("BIN(5)", "101"),
    ),
    Function(
        "format_bytes",
        "FORMAT_BYTES(n)",
        fixed(Type.VARCHAR, INTEGER),
        "FORMAT_BYTES({0})",
        "defined for all 64 bits",
        strict=True,
        names=("format_bytes", "formatreadablesize"),
        size=growth.at_most(40),
        example=("FORMAT_BYTES(2048)", "2.0 KiB"),
    ),
    _alike("LEVENSHTEIN", Type.INTEGER, ("LEVENSHTEIN('abc', 'adc')", "1"), "editdist3"),
    _alike("DAMERAU_LEVENSHTEIN", Type.INTEGER, ("DAMERAU_LEVENSHTEIN('abc', 'acb')", "1")),
    _alike("JARO_SIMILARITY", Type.DOUBLE, ("JARO_SIMILARITY('abc', 'abc')", "1.0")),
    _alike("JARO_WINKLER_SIMILARITY", Type.DOUBLE, ("JARO_WINKLER_SIMILARITY('abc', 'abc')", "1.0")),
    _alike(
        "JACCARD",
        Type.DOUBLE,
        ("JACCARD('abc', 'bcd')", "0.5"),
        sql=f"JACCARD(NULLIF({_BEGINNING}, ''), {{1}})",
    ),
)
