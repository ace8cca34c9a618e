"""Formats of numbers as texts in other dialects: TO_CHAR's patterns, .NET's, and those of printf.

Claim: a format that is read writes each number as its dialect does, in English, but for halves, which are rounded away from zero.
Why: each letter of a format is read; a format with any other letter is refused.
Source: the manuals of PostgreSQL 17 (9.8), Snowflake ("SQL format models"), GoogleSQL (FORMAT), java.util.Formatter and .NET
("Standard numeric format strings", "Custom numeric format strings").
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from typing import Self

MOST_DECIMALS = 15
MOST_WIDTH = 100
_PATTERN = re.compile(
    r"(?P<fill>FM)?(?P<whole>[90]([90,G]*[90])?)?((?P<point>[.D])(?P<part>[90]*))?", re.IGNORECASE
)
_NET_STANDARD = re.compile(r"(?P<kind>[NFD])(?P<digits>\d{0,2})", re.IGNORECASE)
_NET_CUSTOM = re.compile(r"(?P<whole>[#0,]*[#0])(\.(?P<fixed>0*)(?P<free>#*))?")
_DIRECTIVE = re.compile(r"%(?P<flags>[-0',]*)(?P<width>\d{1,3})?(\.(?P<digits>\d{1,2}))?(?P<kind>[dsfi%])")


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """How a number is written: its digits before and after the point, its zeros, commas, sign and width."""

    decimals: int = 0
    least_digits: int = 1
    """The digits before the point that are written at least; without any, a 0 before a fraction is left out."""
    most_digits: int = 0
    """The digits before the point beyond which `overflow` is written instead; 0 for no limit."""
    overflow: str = ""
    width: int = 0
    is_left: bool = False
    is_grouped: bool = False
    drops_zeros: bool = False
    keeps_point: bool = False
    omits_zero: bool = False
    signs_zero: bool = False
    """Whether a negative number that is rounded to 0 has a sign."""
    halves_to_even: bool = False
    takes_whole: bool = False
    is_percent: bool = False

    def write(self) -> str:
        """Return the format as a text, which `parse` reads."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the format that a text of `write` holds."""
        return cls(**json.loads(text))


def _is_grouped_by_thousands(whole: str) -> bool | None:
    """Return whether commas stand between all thousands; None if they stand elsewhere."""
    if "," not in whole:
        return False
    first, *rest = whole.split(",")
    return True if 1 <= len(first) <= 3 and all(len(part) == 3 for part in rest) else None


def read_pattern(text: str, dialect: str) -> NumberFormat | None:
    """Return the format of TO_CHAR's pattern, such as 'FM999,990.00'; None if it has other words.

    >>> read_pattern("FM990.00", "postgres").decimals, read_pattern("9.99EEEE", "postgres")
    (2, None)
    """
    found = _PATTERN.fullmatch(text)
    if found is None or not (found["whole"] or found["part"]):
        return None
    whole = (found["whole"] or "").upper().replace("G", ",")
    part, is_filled = found["part"] or "", bool(found["fill"])
    digits, grouped = whole.replace(",", ""), _is_grouped_by_thousands(whole)
    if grouped is None or len(set(part)) > 1 or len(part) > MOST_DECIMALS or len(digits) > 30 or not digits:
        return None
    if found["point"] and not part:
        return None
    least = len(digits) - digits.index("0") if "0" in digits else 0
    if dialect == "snowflake":
        least = max(least, 1)
    if least > 1 and grouped and least != len(digits):
        return None
    width = 0 if is_filled else 1 + len(whole) + (1 + len(part) if part else 0)
    overflow = re.sub(r"\d", "#", whole + ("." + part if part else ""))
    return NumberFormat(
        decimals=len(part), least_digits=least, most_digits=len(digits), overflow=overflow, width=width,
        is_grouped=grouped, drops_zeros=is_filled and "9" in part, keeps_point=True,
    )  # fmt: skip


def read_net_format(text: str) -> NumberFormat | None:
    """Return the format of .NET for a number, such as 'N2' and '#,##0.00'; None for others."""
    standard = _NET_STANDARD.fullmatch(text)
    if standard is not None:
        kind, said = standard["kind"].upper(), standard["digits"]
        if kind == "D":
            return NumberFormat(least_digits=int(said or 1), takes_whole=True) if said else None
        decimals = int(said or 2)
        return NumberFormat(decimals=decimals, is_grouped=kind == "N") if decimals <= MOST_DECIMALS else None
    found = _NET_CUSTOM.fullmatch(text)
    if found is None:
        return None
    digits, fixed, free = found["whole"].replace(",", ""), found["fixed"] or "", found["free"] or ""
    if "," in found["whole"] and not re.fullmatch(r"[#0]+(,[#0]+)+", found["whole"]):
        return None
    if "#" in digits.lstrip("#") or (fixed and free) or len(fixed + free) > MOST_DECIMALS:
        return None
    least = digits.count("0")
    grouped = "," in found["whole"]
    if grouped and least > 1:
        return None
    return NumberFormat(
        decimals=len(fixed + free),
        least_digits=least,
        is_grouped=grouped,
        drops_zeros=bool(free),
        omits_zero=not least,
    )


def read_directives(text: str, flags: str) -> list[str | tuple[str, NumberFormat]] | None:
    """Return the plain parts and directives of a format of printf; None if a directive or a flag is not known.

    >>> read_directives("%d of 100%%", "")[1:]
    [' of 100', '%']
    """
    parts: list[str | tuple[str, NumberFormat]] = []
    place = 0
    while place < len(text):
        if text[place] != "%":
            end = text.find("%", place)
            end = len(text) if end < 0 else end
            parts.append(text[place:end])
            place = end
            continue
        found = _DIRECTIVE.match(text, place)
        if found is None or set(found["flags"]) - set(flags):
            return None
        place = found.end()
        made = "%" if found["kind"] == "%" and found[0] == "%%" else _read_directive(found)
        if made is None:
            return None
        parts.append(made)
    return parts


def _read_directive(found: re.Match[str]) -> tuple[str, NumberFormat] | None:
    flags, kind = found["flags"], found["kind"]
    width, digits = int(found["width"] or 0), found["digits"]
    is_left, is_grouped = "-" in flags, bool({"'", ","} & set(flags))
    if kind == "%" or len(set(flags)) < len(flags) or width > MOST_WIDTH or (is_left and not width):
        return None
    if kind == "s":
        return (
            ("text", NumberFormat(width=width, is_left=is_left))
            if digits is None and not width and not flags
            else None
        )
    if "0" in flags:  # zeros fill the width, in which the sign counts
        return (
            ("zeros", NumberFormat(width=width, takes_whole=kind in "di"))
            if not digits and kind in "di" and flags == "0" and width
            else None
        )
    if kind in "di":
        return (
            ("number", NumberFormat(width=width, is_left=is_left, is_grouped=is_grouped, takes_whole=True))
            if digits is None
            else None
        )
    decimals = 6 if digits is None else int(digits)
    if decimals > MOST_DECIMALS:
        return None
    form = NumberFormat(
        decimals=decimals, width=width, is_left=is_left, is_grouped=is_grouped, signs_zero=True
    )
    return "number", form
