"""Statements from families: a shape of a source, with roles for names and macros for spellings, in its dialects and on some studies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from benchmarks.people.studies import STUDIES, Study

FOLDER = Path(__file__).parent / "families"
DIALECTS = ("duckdb", "postgres", "tsql", "snowflake", "bigquery", "spark")
STUDIES_EACH = 2
"""On how many studies a family is asked in each dialect; they follow each other, so that all are used equally."""
_HOLE = re.compile(r"\{(\w+)(?::([^{}]*))?\}")


@dataclass(frozen=True)
class Source:
    """Where shapes are from: a name, an address, and whether its statements were read for this page or are remembered."""

    key: str
    name: str
    address: str
    seen: str


@dataclass(frozen=True)
class Family:
    """A shape: its title, its text by roles, the text with the same meaning in DuckDB's SQL, and the rule by which it must be refused."""

    source: Source
    title: str
    dialects: Sequence[str]
    text: str
    means: str | None = None
    refused: str | None = None
    random: bool = False
    studies: Sequence[str] = ()


@dataclass(frozen=True)
class Statement:
    """A statement of a family in a dialect on a study; `means` is what it means in DuckDB's SQL."""

    family: Family
    dialect: str
    study: Study
    sql: str
    means: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.family.source.key}/{self.family.title}/{self.dialect}/{self.study.name}"


Spell = Callable[..., str]


def _month(part: str) -> Mapping[str, Spell]:
    return {
        "duckdb": lambda x: f"date_trunc('{part}', {x})",
        "tsql": lambda x: f"DATETRUNC({part}, {x})",
        "snowflake": lambda x: f"DATE_TRUNC('{part.upper()}', {x})",
        "bigquery": lambda x: f"DATE_TRUNC(CAST({x} AS DATE), {part.upper()})",
        "bigquery means": lambda x: f"date_trunc('{part}', CAST({x} AS DATE))",
        "spark": lambda x: f"date_trunc('{part.upper()}', {x})",
    }


def _part(part: str) -> Mapping[str, Spell]:
    return {
        "duckdb": lambda x: f"EXTRACT({part} FROM {x})",
        "tsql": lambda x: f"DATEPART({part}, {x})",
        "snowflake": lambda x: f"DATE_PART('{part}', {x})",
        "spark": lambda x: f"{part}({x})",
    }


MACROS: Mapping[str, Mapping[str, Spell]] = {
    **{part: _month(part) for part in ("month", "quarter", "year")},
    "week": _month("week")
    | {"bigquery means": lambda x: f"CAST(date_trunc('week', CAST({x} AS DATE) + 1) AS DATE) - 1"},  # Sunday's
    **{f"{part}of": _part(part) for part in ("month", "year", "quarter", "hour")},
    "date": {
        "duckdb": lambda x: f"CAST({x} AS DATE)",
        "postgres": lambda x: f"{x}::date",
        "snowflake": lambda x: f"{x}::date",
        "bigquery": lambda x: f"DATE({x})",
        "spark": lambda x: f"to_date({x})",
    },
    "days": {
        "duckdb": lambda a, b: f"date_diff('day', {a}, {b})",
        "postgres": lambda a, b: f"({b} - {a})",
        "tsql": lambda a, b: f"DATEDIFF(day, {a}, {b})",
        "snowflake": lambda a, b: f"DATEDIFF('day', {a}, {b})",
        "bigquery": lambda a, b: f"DATE_DIFF({b}, {a}, DAY)",
        "spark": lambda a, b: f"datediff({b}, {a})",
    },
    "months": {
        "duckdb": lambda a, b: f"date_diff('month', {a}, {b})",
        "postgres": lambda a, b: f"((EXTRACT(YEAR FROM {b}) - EXTRACT(YEAR FROM {a})) * 12 + EXTRACT(MONTH FROM {b}) - EXTRACT(MONTH FROM {a}))",
        "tsql": lambda a, b: f"DATEDIFF(month, {a}, {b})",
        "snowflake": lambda a, b: f"DATEDIFF(month, {a}, {b})",
        "bigquery": lambda a, b: f"DATE_DIFF({b}, {a}, MONTH)",
        "spark": lambda a, b: f"((year({b}) - year({a})) * 12 + month({b}) - month({a}))",
    },
    "add": {
        "duckdb": lambda x, n: f"{x} + INTERVAL {n} DAY",
        "postgres": lambda x, n: f"{x} + INTERVAL '{n} days'",
        "tsql": lambda x, n: f"DATEADD(day, {n}, {x})",
        "snowflake": lambda x, n: f"DATEADD(day, {n}, {x})",
        "bigquery": lambda x, n: f"DATE_ADD({x}, INTERVAL {n} DAY)",
        "spark": lambda x, n: f"date_add({x}, {n})",
    },
    "lit": {
        "duckdb": lambda x: f"'{x}'",
        "bigquery": lambda x: f"DATE '{x}'",
        "spark": lambda x: f"DATE'{x}'",
    },
    "ratio": {
        "duckdb": lambda a, b: f"1.0 * {a} / NULLIF({b}, 0)",
        "postgres": lambda a, b: f"{a}::numeric / NULLIF({b}, 0)",
        "tsql": lambda a, b: f"CAST({a} AS FLOAT) / NULLIF({b}, 0)",
        "snowflake": lambda a, b: f"{a} / NULLIF({b}, 0)",
        "bigquery": lambda a, b: f"SAFE_DIVIDE({a}, {b})",
        "spark": lambda a, b: f"{a} / NULLIF({b}, 0)",
    },
    "pct": {
        "duckdb": lambda a, b: f"ROUND(100.0 * {a} / {b}, 2)",
        "bigquery": lambda a, b: f"ROUND(100 * {a} / {b}, 2)",
    },
    "countif": {
        "duckdb": lambda c: f"COUNT(*) FILTER (WHERE {c})",
        "tsql": lambda c: f"SUM(CASE WHEN {c} THEN 1 ELSE 0 END)",
        "snowflake": lambda c: f"COUNT_IF({c})",
        "bigquery": lambda c: f"COUNTIF({c})",
        "spark": lambda c: f"count_if({c})",
    },
    "med": {
        "duckdb": lambda x: f"MEDIAN({x})",
        "postgres": lambda x: f"PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {x})",
        "bigquery": lambda x: f"APPROX_QUANTILES({x}, 2)[OFFSET(1)]",
        "spark": lambda x: f"percentile_approx({x}, 0.5)",
    },
    "yes": {"duckdb": lambda x: x, "tsql": lambda x: f"{x} = 1", "postgres": lambda x: f"{x} = true"},
    "top": {"duckdb": lambda _: "", "tsql": lambda n: f"TOP {n} "},
    "limit": {"duckdb": lambda n: f"LIMIT {n}", "tsql": lambda _: ""},
    "stddev": {"duckdb": lambda x: f"STDDEV({x})", "tsql": lambda x: f"STDEV({x})"},
    "num": {
        "duckdb": lambda x: f"CAST({x} AS DOUBLE)",
        "postgres": lambda x: f"{x}::numeric",
        "tsql": lambda x: f"CAST({x} AS FLOAT)",
        "snowflake": lambda x: f"{x}::FLOAT",
        "bigquery": lambda x: f"CAST({x} AS FLOAT64)",
    },
    "len": {"duckdb": lambda x: f"LENGTH({x})", "tsql": lambda x: f"LEN({x})"},
    "q": {
        "duckdb": lambda x: x,
        "tsql": lambda x: f"[{x}]",
        "bigquery": lambda x: f"`{x}`",
        "spark": lambda x: f"`{x}`",
        "postgres": lambda x: f'"{x}"',
        "snowflake": lambda x: x.upper(),
        "snowflake means": lambda x: x,
    },
}  # fmt: skip
"""Spellings by dialect; DuckDB's is the default of the others, and what theirs mean unless `… means` says something else."""


def expand(text: str, dialect: str, study: Study, *, means: bool = False) -> str:
    """Return a text with the names of a study and the spellings of a dialect, or with what these mean in DuckDB's SQL."""

    def fill(found: re.Match[str]) -> str:
        role, arguments = found[1], found[2]
        if role in MACROS and arguments is not None:
            spellings = MACROS[role]
            own = [f"{dialect} means", "duckdb"] if means else [dialect, "duckdb"]
            spell = next(spellings[each] for each in own if each in spellings)
            return spell(*(each.strip() for each in arguments.split(";")))
        name = study.get_name(role)
        if name is None:
            raise ValueError(f"{text!r} has {{{role}}}, which is no role and no macro")
        return name

    before = ""
    while before != text:
        before, text = text, _HOLE.sub(fill, text)
    return text.strip()


def parse_families(path: Path) -> Iterator[Family]:
    """Read the families of a file: its first lines say the source, then each has a title, remarks and its text."""
    head, *parts = re.split(r"\n\s*\n", path.read_text(encoding="utf-8").strip())
    said = dict(re.findall(r"^-- (\w+): (.*)$", head, re.MULTILINE))
    source = Source(path.stem, said["source"], said["address"], said["seen"])
    for part in parts:
        lines = part.splitlines()
        title = lines.pop(0).removeprefix("-- ")
        remarks: dict[str, str] = {}
        while lines and (remark := re.fullmatch(r"-- (in|on|refused|random): (.*)", lines[0])):
            remarks[remark[1]] = remark[2]
            lines.pop(0)
        text, _, means = "\n".join(lines).partition("\n-- means\n")
        yield Family(
            source,
            title,
            remarks.get("in", said.get("in", "duckdb")).split(),
            text,
            means or None,
            remarks.get("refused"),
            "random" in remarks,
            remarks.get("on", "").split(),
        )


def list_families() -> list[Family]:
    """List all families, by source."""
    return [family for path in sorted(FOLDER.glob("*.sql")) for family in parse_families(path)]


def list_statements(families: Sequence[Family] | None = None) -> list[Statement]:
    """List the statements of families: each dialect on some studies, and no text twice."""
    found: dict[tuple[str, str], Statement] = {}
    turn = dict.fromkeys(DIALECTS, 0)
    for family in list_families() if families is None else families:
        for dialect in family.dialects:
            wanted = [study for study in STUDIES if study.name in family.studies]
            if not wanted:
                rotated = (*STUDIES[turn[dialect] % 8 :], *STUDIES[: turn[dialect] % 8])
                wanted = list(islice(rotated, STUDIES_EACH))
                turn[dialect] += STUDIES_EACH
            for study in wanted:
                sql = expand(family.text, dialect, study)
                means = expand(family.means or family.text, dialect, study, means=True)
                found.setdefault((dialect, sql), Statement(family, dialect, study, sql, means))
    return list(found.values())
