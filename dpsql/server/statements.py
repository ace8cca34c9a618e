"""The statements of a client's text: where each ends, what it commands besides queries, its numbered parameters.

Words are told apart as PostgreSQL does it (chapter 4.1, "Lexical Structure"). Nothing rests on it but where statements
end: each is then read by the engine's own reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_WORD = re.compile(
    r"""
      (?P<comment>--[^\n]*)
    | (?P<block>/\*)
    | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*+(?:'|\Z))
    | (?P<string>'(?:[^']|'')*+(?:'|\Z))
    | (?P<name>"(?:[^"]|"")*+(?:"|\Z))
    | (?P<parameter>\$[0-9]+)
    | (?P<dollar>\$(?P<label>[^\W\d]\w*)?\$)
    | (?P<word>[^\W\d][\w$]*)
    | (?P<end>;)
    | (?P<space>\s+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CONTROL = {
    "begin": "begin",
    "start transaction": "begin",
    "commit": "commit",
    "end": "commit",
    "rollback": "rollback",
    "abort": "rollback",
}
MOST_PARAMETERS = 1_000


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    """Each word's kind, start and end; comments as space."""
    at = 0
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:  # every character is some word
            return
        kind, end = str(match.lastgroup if match.lastgroup != "label" else "dollar"), match.end()
        if kind == "block":
            kind, end = "space", _block_end(text, end)
        elif kind == "dollar":
            found = text.find(match.group("dollar"), end)
            kind, end = "string", len(text) if found < 0 else found + len(match.group("dollar"))
        elif kind == "comment":
            kind = "space"
        yield kind, at, end
        at = end


def _block_end(text: str, at: int) -> int:
    """Where a comment ends, within which others may nest."""
    depth = 1
    for mark in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if mark.group() == "/*" else -1
        if not depth:
            return mark.end()
    return len(text)


def split(text: str) -> list[tuple[str, int]]:
    r"""The statements of a text with the place at which each starts; comments alone are none.

    >>> split("SELECT ';' ; -- no\n; select 2")
    [("SELECT ';' ", 0), (' select 2', 20)]
    """
    found = list[tuple[str, int]]()
    start, said = 0, False
    for kind, at, end in _words(text):
        if kind == "end":
            if said:
                found.append((text[start:at], start))
            start, said = end, False
        elif kind != "space":
            said = True
    if said:
        found.append((text[start:], start))
    return found


def first_words(text: str, count: int = 3) -> list[str]:
    """The first words of a statement, in lower case; symbols count as words."""
    words = list[str]()
    for kind, at, end in _words(text):
        if kind != "space":
            words.append(text[at:end].lower())
        if len(words) == count:
            break
    return words


def without_comments(text: str) -> str:
    """A statement with a space for each comment and each run of spaces.

    >>> without_comments("/* of a tool */ SET  a = '--b' -- c")
    "SET a = '--b'"
    """
    return "".join(" " if kind == "space" else text[at:end] for kind, at, end in _words(text)).strip()


def control(text: str) -> str | None:
    """What a statement does to the transaction: begin, commit, rollback, or savepoint, which changes nothing.

    >>> control("Start Transaction READ ONLY"), control("ROLLBACK TO a"), control("SELECT 1")
    ('begin', 'savepoint', None)
    """
    words = first_words(text)
    if not words:
        return None
    if words[0] in ("savepoint", "release") or (
        words[0] == "rollback" and ("to" in words[1:2] or words[1:] == ["transaction", "to"])
    ):
        return "savepoint"
    return _CONTROL.get(words[0]) or _CONTROL.get(" ".join(words[:2]))


def count_parameters(text: str) -> int:
    """The highest number of a parameter in a statement."""
    numbers = [text[at + 1 : end] for kind, at, end in _words(text) if kind == "parameter"]
    return max((min(int(number[:6]), MOST_PARAMETERS) for number in numbers), default=0)


def named_parameters(text: str) -> tuple[str, list[int]]:
    """The statement with `:p1` for `$1`, and the places of the letters p in the new text.

    A cast to text right after a parameter is blanked out: the parameter's value has its type already.

    >>> named_parameters("SELECT $1, '$1', $12::VARCHAR")
    ("SELECT :p1, '$1', :p12         ", [8, 19])
    """
    parts, places, length = list[str](), list[int](), 0
    words = list(_words(text))
    blank = -1
    for index, (kind, at, end) in enumerate(words):
        part = text[at:end]
        if kind == "parameter":
            part = f":p{part[1:]}"
            places.append(length + 1)
            blank = (
                index + 3 if _is_text_cast([text[a:b] for _, a, b in words[index + 1 : index + 5]]) else -1
            )
        elif index <= blank:
            part = " " * len(part)
        parts.append(part)
        length += len(part)
    return "".join(parts), places


def _is_text_cast(words: list[str]) -> bool:
    """Whether these words begin with a cast to text of any length."""
    return (
        words[:2] == [":", ":"] and words[2:3] in (["VARCHAR"], ["TEXT"]) and words[3:4] not in (["("], ["["])
    )
