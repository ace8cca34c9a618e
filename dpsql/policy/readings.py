"""How the texts of files are read: the keys `file` of a table, and `format`, `decimal` and `null_values` of a column."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, SerializerFunctionWrapHandler, ValidationInfo, model_serializer, model_validator

from dpsql.policy.fields import Json, KeyCodec, Model
from dpsql.policy.names import NameMap, find_name_problem, normalize_name
from dpsql.policy.problem import format_value, make_problem_error, suggest_choice

ENCODINGS = (
    *("utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1", "ascii"),
    *(f"iso8859-{number}" for number in range(2, 17) if number != 12),
    *(f"cp{number}" for number in (437, 850, 852, 866, 932, 1140, *range(1250, 1259))),
    *("mac-roman", "koi8-r", "koi8-u", "gb18030", "big5", "euc-jp", "euc-kr"),
)
"""The encodings of files, by Python's names. In none of them does a broken letter take the separator or the line's end with it."""
_ALIASES = {
    "utf8": "utf-8",
    "utf16": "utf-16",
    "latin1": "latin-1",
    "iso-8859-1": "latin-1",
    "iso8859-1": "latin-1",
    "windows-31j": "cp932",
    **{f"iso-8859-{number}": f"iso8859-{number}" for number in range(2, 17)},
    **{f"windows-{number}": f"cp{number}" for number in range(1250, 1259)},
}
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_DIRECTIVES = "aAbBdfHIjmMpSyY%"
"""What a format may hold: each reads a text or fails, without a time zone."""
_CALENDAR_WORDS = (
    ("YYYY", "%Y"),
    ("MMMM", "%B"),
    ("MMM", "%b"),
    ("YY", "%y"),
    ("DD", "%d"),
    ("HH", "%H"),
    ("SS", "%S"),
    ("MI", "%M"),
)
Separator: TypeAlias = Literal[",", ";", "\t", "|"]
SEPARATORS: tuple[str, ...] = (",", ";", "\t", "|")


@dataclass(frozen=True, slots=True)
class CellReading:
    """How the texts of a column are read: as a type of the policy, dates in one of some formats, numbers with a decimal sign.

    Without `decimal` numbers are read as SQL writes them. Texts that are one of `null_values` are NULL.
    """

    kind: str
    formats: tuple[str, ...] = ()
    decimal: str | None = None
    null_values: tuple[str, ...] = ()

    @property
    def has_options(self) -> bool:
        """Return whether more than the type is declared."""
        return bool(self.formats or self.decimal or self.null_values)


# The keys of the YAML file.


def _parse_encoding(value: object, _: ValidationInfo) -> str | None:
    if value is None:
        return None
    name = value.strip().lower().replace("_", "-").replace(" ", "-") if isinstance(value, str) else ""
    found = _ALIASES.get(name, name)
    if found not in ENCODINGS:
        hint = suggest_choice(name, ENCODINGS) or "Excel in Western Europe writes cp1252 or utf-16"
        raise make_problem_error(
            "unknown_choice", f"must be an encoding such as utf-8, utf-16, latin-1 or cp1252, not {format_value(value)}", hint=hint
        )  # fmt: skip
    return found


def _parse_names(value: object, _: ValidationInfo) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or not value or not all(isinstance(name, str) for name in value):
        raise make_problem_error("names_shape", "must be a list of column names, in the order of the file")
    names = tuple(str(name) for name in value)
    wrong = next((wrong for name in names if (wrong := find_name_problem(name, "column", dots=True))), None)
    if wrong or len(set(map(normalize_name, names))) < len(names):
        raise make_problem_error("bad_name", wrong or "names a column twice")
    return names


def _parse_formats(value: object, info: ValidationInfo) -> tuple[str, ...]:
    if value == ():
        return ()
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, (list, tuple)) or not found or not all(isinstance(each, str) for each in found):
        raise make_problem_error("format", 'must be a format such as "%d.%m.%Y", or a list of formats')
    kind = info.data.get("type")  # absent when the type itself is wrong, which is reported on its own
    if kind not in (None, "date", "timestamp", "time"):
        hint = "numbers take `decimal`; delete this key, or set the type to date"
        raise make_problem_error(
            "format", f"is only valid for dates, timestamps and times, not for {kind}", hint=hint
        )
    for each in found:
        if wrong := _find_format_problem(each, str(kind)):
            raise make_problem_error("format", wrong, hint=_suggest_format(each))
    return tuple(found)


def _find_format_problem(text: str, kind: str) -> str | None:
    """Return why a format cannot be read, or None."""
    used = _DIRECTIVE.findall(text)
    unknown = next((each for each in used if not each or each not in _DIRECTIVES), None)
    if unknown is not None:
        return f"has the unknown directive %{unknown}; valid are {', '.join('%' + each for each in _DIRECTIVES[:-1])}"
    if not text.isprintable():
        return "must consist of printable characters"
    if kind != "time" and not (
        set(used) & set("yY") and ((set(used) & set("mbB") and "d" in used) or "j" in used)
    ):
        return f"must hold year, month and day, such as %d.%m.%Y, not {text!r}"
    if kind == "time" and not set(used) & set("HI"):
        return f"must hold the hour, such as %H:%M, not {text!r}"
    return None


def _suggest_format(text: str) -> str:
    """Return the format that words such as DD.MM.YYYY mean.

    >>> _suggest_format("dd.mm.yyyy hh:mm"), _suggest_format("MM/DD/YY")
    ('write "%d.%m.%Y %H:%M"', 'write "%m/%d/%y"')
    """
    if "%z" in text or "%Z" in text:
        return "a column of a file has no time zone: write the letters that each text ends with as they are, such as Z"
    found = text.upper()
    found = re.sub(r"(?<=:)MM", "%M", found)
    for word, directive in _CALENDAR_WORDS:
        found = re.sub(rf"(?<!%){word}", directive, found)
    found = found.replace("MM", "%m")
    return (
        f'write "{found}"'
        if "%" not in text and "%" in found
        else 'write for example "%d.%m.%Y" or "%m/%d/%y"'
    )


def _parse_null_values(value: object, _: ValidationInfo) -> tuple[str, ...]:
    if value == ():
        return ()
    found = value if isinstance(value, (list, tuple)) else [value]
    if not found or not all(
        isinstance(each, (str, int, float, Decimal)) and not isinstance(each, bool) for each in found
    ):
        raise make_problem_error(
            "null_values", "must be a text or a list of texts", hint='put words such as "No" or "NULL" in quotes'
        )  # fmt: skip
    return tuple(format(each, "f") if isinstance(each, Decimal) else str(each).strip() for each in found)


def _parse_decimal(value: object, info: ValidationInfo) -> str | None:
    if value is None:
        return None
    if value not in (",", "."):
        raise make_problem_error("unknown_choice", f'must be "," or ".", not {format_value(value)}')
    kind = info.data.get("type")
    if kind not in (None, "integer", "double"):
        raise make_problem_error(
            "decimal", f"is only valid for numbers, not for {kind}", hint="delete this key"
        )
    return str(value)


def _write_one_or_list(texts: Sequence[str]) -> object:
    return texts[0] if len(texts) == 1 else list(texts)


_TEXT: Json = {"type": "string", "minLength": 1}
_ONE_OR_LIST: Json = {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}]}
_NULL_TEXT: Json = {"type": ["string", "number"]}
Encoding = Annotated[str | None, KeyCodec(_parse_encoding, str, _TEXT)]
Names = Annotated[
    tuple[str, ...] | None, KeyCodec(_parse_names, list, {"type": "array", "minItems": 1, "items": _TEXT})
]
Formats = Annotated[tuple[str, ...], KeyCodec(_parse_formats, _write_one_or_list, _ONE_OR_LIST)]
NullValues = Annotated[
    tuple[str, ...],
    KeyCodec(
        _parse_null_values,
        _write_one_or_list,
        {"anyOf": [_NULL_TEXT, {"type": "array", "minItems": 1, "items": _NULL_TEXT}]},
    ),
]
DecimalSign = Annotated[str | None, KeyCodec(_parse_decimal, str, {"enum": [",", "."]})]


class FileReading(Model):
    """How a table's file is written, where it differs from a CSV file in UTF-8 whose first line names the columns."""

    encoding: Encoding = Field(
        default=None,
        description="The encoding of the file: utf-8, utf-16, latin-1, cp1252 and others. A letter that is not valid is read as U+FFFD. "
        "Default: UTF-8, or what the file's byte order mark says.",
    )
    separator: Separator | None = Field(
        default=None,
        description="The character between cells. Default: as in the line of the columns' names.",
    )
    header: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="The number of the line that names the columns; lines above it, such as a title, are not read. Default: 1.",
    )
    names: Names = Field(
        default=None,
        description="The names of all columns in order, of a file without a line of names, such as one that COPY wrote.",
    )
    ragged: bool = Field(
        default=False,
        description="true: a line may have fewer cells than the header, the others are NULL; and further ones, which are not read.",
    )
    sheet: str | None = Field(
        default=None, description="The sheet of an Excel workbook. Default: the one with the table's name, or the only one."
    )  # fmt: skip

    @model_validator(mode="after")
    def _require_one_header(self) -> FileReading:
        if self.header is not None and self.names is not None:
            raise make_problem_error(
                "header_and_names", "header and names cannot both be set", hint="keep one of them", at=("names",)
            )  # fmt: skip
        if self.names is not None and self.separator is None and self.sheet is None:
            raise make_problem_error(
                "missing_key", "separator is missing: no line of names shows it", hint='write `separator: ","`', at=("names",)
            )  # fmt: skip
        return self

    @model_serializer(mode="wrap")
    def _drop_default_keys(self, rest: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the keys that are not set."""
        return {key: value for key, value in rest(self).items() if value not in (None, False)}


@dataclass(frozen=True, slots=True)
class TableReading:
    """How a table's files are read: the readings of its declared columns, by their names in any case, and the file's own."""

    cells: Mapping[str, CellReading] = field(default_factory=lambda: NameMap({}))
    file: FileReading = field(default_factory=FileReading)

    def find_cell(self, column: str) -> CellReading:
        """Return the reading of a column; one that is not declared is text."""
        return self.cells.get(column, _AS_TEXT)

    @property
    def options(self) -> list[str]:
        """Return the keys that only tables in files of texts can have, as a policy names them."""
        named = [] if self.file == FileReading() else ["file"]
        return named + [
            f"{column}.{key}"
            for column, cell in self.cells.items()
            for key, value in (("format", cell.formats), ("decimal", cell.decimal), ("null_values", cell.null_values))
            if value
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ReadingProposal:
    """What some rows of a file show about how it is written, for an owner who writes a policy: keys that are sure, and notes."""

    file: FileReading = field(default_factory=FileReading)
    cells: Mapping[str, CellReading] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


_AS_TEXT = CellReading("varchar")
