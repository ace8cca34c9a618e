"""Formats of dates in other dialects, as the formats of DuckDB's STRFTIME.

Claim: a format that is read gives the same text as its dialect, in English and for the years 1000 to 9999.
Why: each dialect's words are listed; words that pad names, or that DuckDB lacks, are not, and a format with any other letter
is refused.
Source: the manuals of PostgreSQL 17 (9.8), Spark ("Datetime Patterns"), Snowflake, GoogleSQL and .NET ("Custom date and time
format strings").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

EXPRESSION = "\0"
"""What a part begins with that is an expression of the date, `_1`, since DuckDB's formats lack it."""
QUARTER = f"{EXPRESSION}CAST(QUARTER(_1) AS VARCHAR)"
_MONTH_NAME, _DAY_NAME = "STRFTIME(_1, '%B')", "STRFTIME(_1, '%A')"
_NAMES = {
    word.format(name): f"{EXPRESSION}{template.format(name=text)}"
    for name, text in (("MONTH", _MONTH_NAME), ("DAY", _DAY_NAME))
    for word, template in (("{}", "RPAD(UPPER({name}), 9, ' ')"), ("FM{}", "UPPER({name})"), ("TM{}", "UPPER({name})"))
} | {
    word.format(name.lower()): f"{EXPRESSION}{template.format(name=text)}"
    for name, text in (("MONTH", _MONTH_NAME), ("DAY", _DAY_NAME))
    for word, template in (("{}", "RPAD(LOWER({name}), 9, ' ')"), ("FM{}", "LOWER({name})"), ("TM{}", "LOWER({name})"))
} | {
    word: f"{EXPRESSION}RPAD({text}, 9, ' ')" for word, text in (("Month", _MONTH_NAME), ("Day", _DAY_NAME))
} | {
    word: f"{EXPRESSION}{case}(STRFTIME(_1, '{part}'))"
    for word, case, part in (("MON", "UPPER", "%b"), ("mon", "LOWER", "%b"), ("DY", "UPPER", "%a"), ("dy", "LOWER", "%a"))
}  # fmt: skip
"""PostgreSQL's names of months and days: in three cases, with spaces up to nine letters unless FM is before them."""

_POSTGRES = {
    "YYYY": "%Y", "IYYY": "%G", "YY": "%y", "MM": "%m", "FMMM": "%-m", "Mon": "%b", "FMMonth": "%B", "TMMonth": "%B",
    "DD": "%d", "FMDD": "%-d", "DDD": "%j", "Dy": "%a", "FMDay": "%A", "TMDay": "%A", **_NAMES,
    "D": f"{EXPRESSION}CAST(DAYOFWEEK(_1) + 1 AS VARCHAR)", "W": f"{EXPRESSION}CAST((DAY(_1) - 1) // 7 + 1 AS VARCHAR)",
    "WW": f"{EXPRESSION}LPAD(CAST((DAYOFYEAR(_1) - 1) // 7 + 1 AS VARCHAR), 2, '0')",
    "HH24": "%H", "FMHH24": "%-H", "HH12": "%I", "HH": "%I", "MI": "%M", "SS": "%S", "MS": "%g", "US": "%f", "AM": "%p",
    "PM": "%p", "FMMI": "%-M", "FMSS": "%-S", "FMHH12": "%-I", "IW": "%V", "ID": "%u", "Q": QUARTER,
}  # fmt: skip
_SNOWFLAKE = {
    "YYYY": "%Y", "YY": "%y", "MM": "%m", "MON": "%b", "MMMM": "%B", "DD": "%d", "DY": "%a", "HH24": "%H", "HH12": "%I",
    "MI": "%M", "SS": "%S", "AM": "%p", "PM": "%p",
}  # fmt: skip
_JAVA = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "M": "%-m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "d": "%-d", "D": "", "EEE": "%a",
    "E": "%a", "EEEE": "%A", "HH": "%H", "H": "%-H", "hh": "%I", "mm": "%M", "ss": "%S", "a": "%p", "Q": QUARTER, "q": QUARTER,
}  # fmt: skip
_NET = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "ddd": "%a", "dddd": "%A", "HH": "%H",
    "hh": "%I", "mm": "%M", "ss": "%S", "tt": "%p",
}  # fmt: skip
_GOOGLE = {
    **{f"%{letter}": f"%{letter}" for letter in "YmdHMSyBbAajIpuVGUW"}, "%F": "%Y-%m-%d", "%D": "%m/%d/%y", "%T": "%H:%M:%S", "%Q": QUARTER, "%h": "%b", "%R": "%H:%M",
    "%%": "%%", "%e": f"{EXPRESSION}LPAD(STRFTIME(_1, '%-d'), 2, ' ')",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _FormatSyntax:
    """The words of a dialect's formats; `quotes` encloses literal text, and `keeps_letters` where other letters are literal."""

    words: Mapping[str, str]
    quotes: str
    ignores_case: bool = False
    keeps_letters: bool = False

    def split(self, text: str) -> list[str] | None:
        """Return the parts in DuckDB's words, or None if a letter is not known."""
        parts: list[str] = []
        place = 0
        longest = sorted(self.words, key=len, reverse=True)
        while place < len(text):
            rest = text[place:]
            if self.quotes and rest[0] == self.quotes:
                end = rest.find(self.quotes, 1)
                if end < 0:
                    return None
                parts.append(rest[1:end].replace("%", "%%"))
                place += end + 1
                continue
            title = rest.upper() if self.ignores_case else rest
            word = next((word for word in longest if title.startswith(word)), None)
            if word is not None:
                if not self.words[word] or (word.isalpha() and self._continues(text, place, word)):
                    return None
                parts.append(self.words[word])
                place += len(word)
            elif (rest[0].isalnum() and not self.keeps_letters) or rest[0] in "%\\\0":
                return None
            else:
                parts.append(rest[0])
                place += 1
        return parts

    def _continues(self, text: str, place: int, word: str) -> bool:
        """Return whether the same letter follows, as in a word with more letters than are known."""
        after = text[place + len(word) : place + len(word) + 1]
        return len(set(word)) == 1 and after == word[-1]


FORMATS: Mapping[str, _FormatSyntax] = {
    "postgres": _FormatSyntax(_POSTGRES, '"'),
    "snowflake": _FormatSyntax(_SNOWFLAKE, '"', ignores_case=True),
    "spark": _FormatSyntax(_JAVA, "'"),
    "tsql": _FormatSyntax(_NET, "'"),
    "bigquery": _FormatSyntax(_GOOGLE, "", keeps_letters=True),
}
STYLES: Mapping[int, str] = {
    101: "%m/%d/%Y", 102: "%Y.%m.%d", 103: "%d/%m/%Y", 104: "%d.%m.%Y", 105: "%d-%m-%Y", 110: "%m-%d-%Y", 111: "%Y/%m/%d",
    112: "%Y%m%d", 23: "%Y-%m-%d", 120: "%Y-%m-%d %H:%M:%S", 108: "%H:%M:%S",
}  # fmt: skip
"""The styles of T-SQL's CONVERT to a text."""


def translate_format(text: str, dialect: str) -> list[str] | None:
    r"""Return a format in DuckDB's words, in parts between which expressions stand; None if it has words that are not known.

    >>> translate_format("YYYY-MM", "postgres"), translate_format('YYYY"-Q"Q', "postgres"), translate_format("RM", "postgres")
    (['%Y-%m'], ['%Y-Q', '\x00CAST(QUARTER(_1) AS VARCHAR)'], None)
    """
    if dialect == "postgres":
        text = re.sub(r"(?<![A-Za-z])(yyyy|mm|dd|hh24|mi|ss)(?![a-z])", lambda found: found[0].upper(), text)
    parts = FORMATS[dialect].split(text)
    if not parts:
        return None
    pieces: list[str] = [""]
    for part in parts:
        if part.startswith(EXPRESSION):
            pieces += [part, ""]
        else:
            pieces[-1] += part
    return [piece for piece in pieces if piece]
