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

QUARTER = "%Q"
"""The quarter of the year, which DuckDB's formats lack."""

_POSTGRES = {
    "YYYY": "%Y", "IYYY": "%G", "YY": "%y", "MM": "%m", "FMMM": "%-m", "MON": "", "Mon": "%b", "FMMonth": "%B", "Month": "",
    "MONTH": "", "month": "", "DD": "%d", "FMDD": "%-d", "DDD": "%j", "Dy": "%a", "FMDay": "%A", "Day": "", "DAY": "", "day": "",
    "HH24": "%H", "FMHH24": "%-H", "HH12": "%I", "HH": "%I", "MI": "%M", "SS": "%S", "MS": "%g", "US": "%f", "AM": "%p",
    "PM": "%p", "IW": "%V", "ID": "%u", "Q": QUARTER,
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
    "%%": "%%",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _FormatSyntax:
    """The words of a dialect's formats; `quotes` encloses literal text."""

    words: Mapping[str, str]
    quotes: str
    ignores_case: bool = False

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
            elif rest[0].isalnum() or rest[0] in "%\\":
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
    "bigquery": _FormatSyntax(_GOOGLE, ""),
}
STYLES: Mapping[int, str] = {
    101: "%m/%d/%Y", 102: "%Y.%m.%d", 103: "%d/%m/%Y", 104: "%d.%m.%Y", 105: "%d-%m-%Y", 110: "%m-%d-%Y", 111: "%Y/%m/%d",
    112: "%Y%m%d", 23: "%Y-%m-%d", 120: "%Y-%m-%d %H:%M:%S", 108: "%H:%M:%S",
}  # fmt: skip
"""The styles of T-SQL's CONVERT to a text."""


def translate_format(text: str, dialect: str) -> list[str] | None:
    """Return a format in DuckDB's words, in parts between which quarters stand; None if it has words that are not known.

    >>> translate_format("YYYY-MM", "postgres"), translate_format('YYYY"-Q"Q', "postgres"), translate_format("WW", "postgres")
    (['%Y-%m'], ['%Y-Q', '%Q'], None)
    """
    if dialect == "postgres":
        text = re.sub(r"(?<![A-Za-z])(yyyy|mm|dd|hh24|mi|ss)(?![a-z])", lambda found: found[0].upper(), text)
    parts = FORMATS[dialect].split(text)
    if not parts:
        return None
    pieces: list[str] = [""]
    for part in parts:
        if part == QUARTER:
            pieces += [QUARTER, ""]
        else:
            pieces[-1] += part
    return [piece for piece in pieces if piece]
