"""Text functions over Unicode: characters are code points unless stated otherwise."""

from __future__ import annotations

from fractions import Fraction

from dpsql.plan.expressions import Function, SizeRule, WorkRule
from dpsql.plan.functions import growth
from dpsql.plan.functions.signatures import (
    INTEGER,
    TEXT,
    format_placeholders,
    make_constant_rule,
    make_fixed_rule,
    make_variadic_rule,
)
from dpsql.plan.interval import Interval
from dpsql.plan.types import Type, Value

MOST_OFFSET = 2**31 - 1
MOST_PADDED = 1_000
"""Most characters that a text is padded to."""
MOST_REPEATED = 100
"""Most times that a text is repeated."""
MOST_PARTS = 1_000
"""The largest index of a part of a text."""
MOST_CONSTANT = 1_000
"""Most characters of a constant that is put into a text."""
MOST_COMPARED = 1_000
"""The number of first characters that decide how similar two texts are."""
_BEGINNING = f"LEFT({{0}}, {MOST_COMPARED})"
_DEFINED = "defined for every text"
_CONSTANTS = "defined for every text; the positions are constants within 32 bits"
_LENGTH = make_constant_rule(Interval(0, 2**32))
_LETTERS = growth.make_multiplied_size_rule(Fraction(3, 2))
_SIMILARITY = make_constant_rule(Interval(0, 1))


def _find_offset_error(values: tuple[Value, ...]) -> str | None:
    fits = all(isinstance(value, int) and abs(value) <= MOST_OFFSET for value in values)
    return None if fits else f"at most {MOST_OFFSET:,} in size there"


def _find_padding_error(values: tuple[Value, ...]) -> str | None:
    length, fill = values
    if not (isinstance(length, int) and 0 <= length <= MOST_PADDED):
        return f"the length must be between 0 and {MOST_PADDED:,}"
    return None if fill else "the fill must not be empty"


def _find_repeat_error(values: tuple[Value, ...]) -> str | None:
    fits = isinstance(values[0], int) and 0 <= values[0] <= MOST_REPEATED
    return None if fits else f"the count must be between 0 and {MOST_REPEATED}"


def _find_length_error(values: tuple[Value, ...]) -> str | None:
    texts = [value for value in values if isinstance(value, str)]
    numbers = tuple(value for value in values if isinstance(value, int))
    fits = all(len(text) <= MOST_CONSTANT for text in texts)
    return _find_offset_error(numbers) if fits else f"the text must have at most {MOST_CONSTANT:,} characters"


def _find_empty_text_error(values: tuple[Value, ...]) -> str | None:
    return _find_length_error(values) if values[0] else "the text must not be empty"


def _find_part_error(values: tuple[Value, ...]) -> str | None:
    fits = isinstance(values[1], int) and 1 <= values[1] <= MOST_PARTS
    return _find_length_error(values[:1]) if fits else f"the place must be between 1 and {MOST_PARTS:,}"


def _define_text_function(
    word: str,
    example: tuple[str, str],
    *aliases: str,
    size: SizeRule = growth.bound_by_first_text,
    work: WorkRule | None = None,
) -> Function:
    """Return a function from text to text."""
    return Function(
        word.lower(),
        f"{word}(s)",
        make_fixed_rule(Type.VARCHAR, TEXT),
        f"{word}({{0}})",
        _DEFINED,
        strict=True,
        names=(word.lower(), *aliases),
        size=size,
        work=work,
        example=example,
    )


def _define_trim(word: str, example: tuple[str, str]) -> Function:
    """Return a function that takes characters of a set away."""
    return Function(
        f"{word.lower()}_characters",
        f"{word}(s, characters)",
        make_fixed_rule(Type.VARCHAR, TEXT, TEXT),
        f"{word}({{0}}, {{1}})",
        _DEFINED,
        strict=True,
        names=(word.lower(),),
        size=growth.bound_by_first_text,
        work=growth.make_byte_work_rule(8),
        example=example,
    )


def _define_number_function(
    word: str,
    interval: Interval,
    example: tuple[str, str],
    *aliases: str,
    work: WorkRule | None = None,
) -> Function:
    """Return a function from text to a whole number."""
    return Function(
        word.lower(),
        f"{word}(s)",
        make_fixed_rule(Type.INTEGER, TEXT),
        f"CAST({word}({{0}}) AS BIGINT)",
        _DEFINED,
        interval=make_constant_rule(interval),
        strict=True,
        names=(word.lower(), *aliases),
        work=work,
        example=example,
    )


def _define_part_function(
    word: str,
    example: tuple[str, str],
    *arguments: str,
    size: SizeRule = growth.bound_by_first_text,
    **more: str,
) -> Function:
    """Return a function that takes a part of a text, by constant positions."""
    return Function(
        more.get("name", word.lower()),
        f"{word}(s, {', '.join(arguments)})",
        make_fixed_rule(Type.VARCHAR, TEXT, *([INTEGER] * len(arguments))),
        f"{word}({format_placeholders(1 + len(arguments))})",
        _CONSTANTS,
        strict=True,
        literals=frozenset(range(1, len(arguments) + 1)),
        check=_find_offset_error,
        names=(word.lower(), *((more["alias"],) if "alias" in more else ())),
        size=size,
        work=growth.make_byte_work_rule(8 if "GRAPHEME" in word else 2),
        example=example,
    )


def _define_padding(word: str, example: tuple[str, str]) -> Function:
    return Function(
        word.lower(),
        f"{word}(s, length, 'fill')",
        make_fixed_rule(Type.VARCHAR, TEXT, INTEGER, TEXT),
        f"{word}({{0}}, {{1}}, {{2}})",
        "length and fill are constants, and there is something to fill with",
        strict=True,
        literals=frozenset({1, 2}),
        check=_find_padding_error,
        names=(word.lower(),),
        size=growth.bound_padded_text,
        example=example,
    )


def _define_search(word: str, result: Type, example: tuple[str, str], *aliases: str) -> Function:
    """Return a function that looks for one text in another."""
    return Function(
        word.lower(),
        f"{word}(s, sought)",
        make_fixed_rule(result, TEXT, TEXT),
        f"{word}({{0}}, CAST({{1}} AS VARCHAR))",
        _DEFINED,
        interval=_LENGTH if result is Type.INTEGER else make_constant_rule(Interval(0, 1)),
        strict=True,
        names=(word.lower(), *aliases),
        work=growth.bound_search_work,
        example=example,
    )


def _define_similarity(
    word: str, result: Type, example: tuple[str, str], *aliases: str, sql: str = ""
) -> Function:
    """Return how alike a text is to a constant, by its first letters: the work is in proportion to the product of both."""
    return Function(
        word.lower(),
        f"{word}(s, 'text')",
        make_fixed_rule(result, TEXT, TEXT),
        sql or f"{word}({_BEGINNING}, {{1}})",
        f"defined for every text, of which the first {MOST_COMPARED:,} characters are compared; the other is a short constant",
        interval=_LENGTH if result is Type.INTEGER else _SIMILARITY,
        strict=not sql,
        doubled_arguments=frozenset({0} if "NULLIF" in sql else ()),
        literals=frozenset({1}),
        check=_find_length_error if not sql else _find_empty_text_error,
        names=(word.lower(), *aliases),
        work=growth.make_pair_work_rule(8, cut=MOST_COMPARED),
        example=example,
    )


def _define_overlay(name: str, signature: str, sql: str, example: tuple[str, str], places: int) -> Function:
    return Function(
        name,
        signature,
        make_fixed_rule(Type.VARCHAR, TEXT, TEXT, *([INTEGER] * (places - 1))),
        sql,
        "defined for every text; the new text and its place are constants",
        strict=True,
        literals=frozenset(range(1, places + 1)),
        check=_find_length_error,
        names=("overlay",),
        size=growth.bound_overlaid_text,
        example=example,
    )


TEXT_FUNCTIONS = (
    _define_text_function(
        "LOWER", ("LOWER('Ab')", "ab"), "lcase", size=_LETTERS, work=growth.make_byte_work_rule(8)
    ),
    _define_text_function(
        "UPPER", ("UPPER('Ab')", "AB"), "ucase", size=_LETTERS, work=growth.make_byte_work_rule(8)
    ),
    _define_text_function("REVERSE", ("REVERSE('abc')", "cba"), work=growth.make_byte_work_rule(8)),
    _define_text_function("TRIM", ("TRIM('  ab ')", "ab")),
    _define_text_function("LTRIM", ("LTRIM('  ab')", "ab")),
    _define_text_function("RTRIM", ("RTRIM('ab  ')", "ab")),
    _define_text_function(
        "STRIP_ACCENTS", ("STRIP_ACCENTS('née')", "nee"), size=_LETTERS, work=growth.make_byte_work_rule(40)
    ),
    _define_text_function(
        "NFC_NORMALIZE",
        ("NFC_NORMALIZE('née')", "née"),
        size=growth.make_multiplied_size_rule(Fraction(3)),
        work=growth.make_square_work_rule(40, 8),
    ),
    _define_trim("TRIM", ("TRIM('xabx', 'x')", "ab")),
    _define_trim("LTRIM", ("LTRIM('xabx', 'x')", "abx")),
    _define_trim("RTRIM", ("RTRIM('xabx', 'x')", "xab")),
    _define_number_function(
        "LENGTH", Interval(0, 2**32), ("LENGTH('née')", "3"), "len", "char_length", "character_length"
    ),
    _define_number_function(
        "LENGTH_GRAPHEME",
        Interval(0, 2**32),
        ("LENGTH_GRAPHEME('née')", "3"),
        work=growth.make_byte_work_rule(8),
    ),
    _define_number_function("STRLEN", Interval(0, 2**32), ("STRLEN('née')", "4")),
    _define_number_function("BIT_LENGTH", Interval(0, 2**35), ("BIT_LENGTH('née')", "32")),
    _define_number_function("ASCII", Interval(0, 0x10FFFF), ("ASCII('née')", "110")),
    _define_number_function("UNICODE", Interval(-1, 0x10FFFF), ("UNICODE('')", "-1"), "ord"),
    Function(
        "chr",
        "CHR(n)",
        make_fixed_rule(Type.VARCHAR, INTEGER),
        "TRY(CHR(TRY_CAST({0} AS INTEGER)))",
        "TRY gives NULL where there is no such character",
        names=("chr",),
        size=growth.make_fixed_size_rule(growth.LETTER),
        example=("CHR(65)", "A"),
    ),
    _define_part_function(
        "SUBSTRING", ("SUBSTRING('abcdef', 3)", "cdef"), "start", name="substring_from", alias="substr"
    ),
    _define_part_function(
        "SUBSTRING",
        ("SUBSTRING('abcdef', 3, 2)", "cd"),
        "start",
        "length",
        alias="substr",
        size=growth.make_part_size_rule(2),
    ),
    _define_part_function(
        "SUBSTRING_GRAPHEME", ("SUBSTRING_GRAPHEME('née', 2)", "ée"), "start", name="substring_grapheme_from"
    ),
    _define_part_function("SUBSTRING_GRAPHEME", ("SUBSTRING_GRAPHEME('née', 2, 1)", "é"), "start", "length"),
    _define_part_function("LEFT", ("LEFT('abcdef', 2)", "ab"), "count", size=growth.make_part_size_rule(1)),
    _define_part_function("RIGHT", ("RIGHT('abcdef', 2)", "ef"), "count", size=growth.make_part_size_rule(1)),
    _define_part_function("LEFT_GRAPHEME", ("LEFT_GRAPHEME('née', 2)", "né"), "count"),
    _define_part_function("RIGHT_GRAPHEME", ("RIGHT_GRAPHEME('née', 2)", "ée"), "count"),
    Function(
        "left_counted",
        "LEFT(s, n)",
        make_fixed_rule(Type.VARCHAR, TEXT, INTEGER),
        "TRY(LEFT({0}, {1}))",
        "TRY gives NULL where the number is beyond those that DuckDB takes",
        names=("left",),
        size=growth.bound_by_first_text,
        work=growth.make_byte_work_rule(2),
        example=("LEFT('abcdef', LENGTH('abc'))", "abc"),
    ),
    _define_padding("LPAD", ("LPAD('7', 3, '0')", "007")),
    _define_padding("RPAD", ("RPAD('7', 3, '0')", "700")),
    Function(
        "repeat",
        "REPEAT(s, count)",
        make_fixed_rule(Type.VARCHAR, TEXT, INTEGER),
        "CAST(REPEAT({0}, {1}) AS VARCHAR)",
        "the count is a small constant",
        strict=True,
        literals=frozenset({1}),
        check=_find_repeat_error,
        size=growth.bound_repeated_text,
        names=("repeat",),
        example=("REPEAT('ab', 3)", "ababab"),
    ),
    Function(
        "replace",
        "REPLACE(s, 'old', 'new')",
        make_fixed_rule(Type.VARCHAR, TEXT, TEXT, TEXT),
        "REPLACE({0}, {1}, {2})",
        "the replaced text and its replacement are constants",
        strict=True,
        literals=frozenset({1, 2}),
        check=_find_length_error,
        size=growth.bound_replaced_text,
        work=growth.bound_replacement_work,
        names=("replace",),
        example=("REPLACE('abc', 'b', 'xy')", "axyc"),
    ),
    Function(
        "translate",
        "TRANSLATE(s, 'old', 'new')",
        make_fixed_rule(Type.VARCHAR, TEXT, TEXT, TEXT),
        "TRANSLATE({0}, {1}, {2})",
        "the characters are constants",
        strict=True,
        literals=frozenset({1, 2}),
        check=_find_length_error,
        size=growth.bound_translated_text,
        work=growth.make_byte_work_rule(8),
        names=("translate",),
        example=("TRANSLATE('abc', 'ab', 'x')", "xc"),
    ),
    _define_overlay(
        "overlay",
        "OVERLAY(s, 'new', start)",
        "OVERLAY({0}, {1}, {2})",
        ("OVERLAY('abcdef', 'xy', 2)", "axydef"),
        2,
    ),
    _define_overlay(
        "overlay_length",
        "OVERLAY(s, 'new', start, length)",
        "OVERLAY({0}, {1}, {2}, {3})",
        ("OVERLAY('abcdef', 'xy', 2, 1)", "axycdef"),
        3,
    ),
    Function(
        "split_part",
        "SPLIT_PART(s, 'separator', place)",
        make_fixed_rule(Type.VARCHAR, TEXT, TEXT, INTEGER),
        "LIST_EXTRACT(LIST_RESIZE(STRING_SPLIT({0}, {1}), {2}, ''), {2})",
        "separator and place are constants, and missing parts are empty",
        strict=True,
        literals=frozenset({1, 2}),
        check=_find_part_error,
        size=growth.bound_by_first_text,
        work=growth.make_byte_work_rule(20),
        names=("split_part",),
        example=("SPLIT_PART('a-b-c', '-', 2)", "b"),
    ),
    _define_search("CONTAINS", Type.BOOLEAN, ("CONTAINS('abc', 'b')", "true")),
    _define_search("STARTS_WITH", Type.BOOLEAN, ("STARTS_WITH('abc', 'b')", "false"), "prefix"),
    _define_search("SUFFIX", Type.BOOLEAN, ("ENDS_WITH('abc', 'c')", "true"), "ends_with"),
    _define_search("STRPOS", Type.INTEGER, ("STRPOS('abc', 'c')", "3"), "instr"),
    Function(
        "concatenate",
        "s || u",
        make_fixed_rule(Type.VARCHAR, TEXT, TEXT),
        "CAST({0} || {1} AS VARCHAR)",
        _DEFINED,
        strict=True,
        names=("||",),
        size=growth.bound_concatenated_text,
        example=("'a' || 1", "a1"),
    ),
    Function(
        "concat",
        "CONCAT(s, …)",
        make_variadic_rule(1, TEXT, Type.VARCHAR),
        "CONCAT({args})",
        "defined for every text; NULL is left out",
        never_null=True,
        names=("concat",),
        size=growth.bound_concatenated_text,
        example=("CONCAT('a', NULL, 1)", "a1"),
    ),
    Function(
        "concat_ws",
        "CONCAT_WS(separator, s, …)",
        make_variadic_rule(2, TEXT, Type.VARCHAR),
        "CONCAT_WS({args})",
        "defined for every text; NULL is left out",
        names=("concat_ws",),
        size=growth.bound_separated_text,
        example=("CONCAT_WS('-', 'a', NULL, 'b')", "a-b"),
    ),
    Function(
        "hex",
        "HEX(n)",
        make_fixed_rule(Type.VARCHAR, INTEGER),
        "HEX({0})",
        "defined for all 64 bits",
        strict=True,
        names=("hex", "to_hex"),
        size=growth.make_fixed_size_rule(16),
        example=("HEX(255)", "FF"),
    ),
    Function(
        "bin",
        "BIN(n)",
        make_fixed_rule(Type.VARCHAR, INTEGER),
        "BIN({0})",
        "defined for all 64 bits",
        strict=True,
        names=("bin", "to_binary"),
        size=growth.make_fixed_size_rule(64),
        example=("BIN(5)", "101"),
    ),
    Function(
        "format_bytes",
        "FORMAT_BYTES(n)",
        make_fixed_rule(Type.VARCHAR, INTEGER),
        "FORMAT_BYTES({0})",
        "defined for all 64 bits",
        strict=True,
        names=("format_bytes", "formatreadablesize"),
        size=growth.make_fixed_size_rule(40),
        example=("FORMAT_BYTES(2048)", "2.0 KiB"),
    ),
    _define_similarity("LEVENSHTEIN", Type.INTEGER, ("LEVENSHTEIN('abc', 'adc')", "1"), "editdist3"),
    _define_similarity("DAMERAU_LEVENSHTEIN", Type.INTEGER, ("DAMERAU_LEVENSHTEIN('abc', 'acb')", "1")),
    _define_similarity("JARO_SIMILARITY", Type.DOUBLE, ("JARO_SIMILARITY('abc', 'abc')", "1.0")),
    _define_similarity(
        "JARO_WINKLER_SIMILARITY", Type.DOUBLE, ("JARO_WINKLER_SIMILARITY('abc', 'abc')", "1.0")
    ),
    _define_similarity(
        "JACCARD",
        Type.DOUBLE,
        ("JACCARD('abc', 'bcd')", "0.5"),
        sql=f"JACCARD(NULLIF({_BEGINNING}, ''), {{1}})",
    ),
)
