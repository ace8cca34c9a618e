"""The page of the measurement: what became of the statements, by dialect and by source, and why some were refused."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from benchmarks.people.judge import (
    DOCUMENTED,
    INVALID,
    KINDS,
    LEAKED,
    RIGHT,
    WRONG,
    WRONGLY_REFUSED,
    Verdict,
)
from benchmarks.people.statements import DIALECTS

TITLES = {
    "duckdb": "DuckDB",
    "postgres": "PostgreSQL",
    "tsql": "T-SQL",
    "snowflake": "Snowflake",
    "bigquery": "BigQuery",
    "spark": "Spark",
}
TARGETS: Mapping[str, float] = {"duckdb": 0.03, "postgres": 0.06}
"""How many statements at most may be refused wrongly, by dialect; 10% in the others."""
OTHERS = 0.10
_REPLACED = (
    (r" \(line \d+, column \d+\).*", ""),
    (r", in the query's translation into DuckDB's SQL", ""),
    (r" from (PostgreSQL|T-SQL|Snowflake|BigQuery|Spark)\b(: it may mean something else in DuckDB)?", ""),
    (r"^(PostgreSQL|T-SQL|Snowflake|BigQuery|Spark): ", ""),
    (r"^(ROWS|RANGE|GROUPS) (?!WITH).*? is not read", "a window frame is not read"),
    (r"^r?'[^']*' is not read", "a text of this form is not read"),
    (r"^(ARRAY)?\[.*?\] is not read", "an array is not read"),
    (r"^(LATERAL|CROSS APPLY) \(.*? is not read", r"\1 is not read"),
    (r"^\w+ AS MATERIALIZED.*? is not", "AS MATERIALIZED is not"),
    (r"^the function (\w+) is not read", lambda found: f"{found[1].upper()} is not read"),
    (r"^(\w+)\(.*?\) is not read", r"\1 is not read"),
    (r"^(SELECT|WITH) (?!RECURSIVE).*?… is not supported", r"\1 … is not supported"),
    (r"\b(VARCHAR|DECIMAL|CHAR)\([\d, ]+\)", r"\1(n)"),
    (r"anything in \[.*\]", "anything in its bounds"),
    (
        r"in a derived table, a row of \w+ without a row of \w+",
        "in a derived table, a row of a without a row of b",
    ),
    (r"there is no schema .*", "there is no such schema"),
)


def find_cause(verdict: Verdict) -> str:
    """Return the reason of a refusal or difference without the names of a statement, so that equal reasons are counted together."""
    words = verdict.detail.splitlines()[0] if verdict.detail else verdict.kind
    if verdict.kind != WRONGLY_REFUSED:
        return f"{verdict.statement.family.source.key}: {verdict.statement.family.title}"
    for pattern, put in _REPLACED:
        words = re.sub(pattern, put, words)  # type: ignore[call-overload]
    return words


def write_page(verdicts: Sequence[Verdict], seconds: float, compared: Sequence[str]) -> Iterator[str]:
    """Write the page as lines of Markdown."""
    valid = [each for each in verdicts if each.kind != INVALID]
    sources = {each.statement.family.source.key: each.statement.family.source for each in verdicts}
    families = {(each.statement.family.source.key, each.statement.family.title) for each in valid}
    own = " and ".join([TITLES[each] for each in ("postgres", "spark") if each in compared])
    yield from (
        "# SQL that people write",
        f"{len(valid):,} statements of {len(families)} shapes from {len({each.address for each in sources.values()})} sources: books, tutorials, documentation of engines, packages,",
        "dashboards, clinical libraries, questions of interviews. No text of a source is kept: each shape is written in our own words with",
        "roles for names, and asked over some of eight small studies (web events, a shop, a clinic, a school, a payroll, freight,",
        "subscriptions, a help desk). `benchmarks/people/families` holds the shapes. Where a source was not read for this page, its shapes are",
        "written from what we remember of it, and the table below says so; how often each shape is written is not known, so each counts once.",
        "`python -m benchmarks.people > docs/measurements/people.md` asks all of them and writes this page.",
        "",
        "Each statement is asked without noise (ε = 2^80, bounds that do not bind, keys that are all shown). The answer is compared with that of the",
        f"engine whose dialect it is: DuckDB{', ' + own if own else ''}. Where no such engine runs here, it is compared with a statement in DuckDB's SQL that",
        "means the same, written by hand.",
        "",
        "- **right**: rows, values and, as far as it is asked for, their order are the engine's.",
        "- **documented difference**: it differs as [Differences from DuckDB](../reference/differences.md) says, and a notice of the answer says so.",
        "- **wrong**: it differs otherwise.",
        "- **rightly refused**: it asks for rows of single people, for values that one row decides, or it is not a query (it writes a table, for example).",
        "- **wrongly refused**: it has a differentially private answer.",
        "",
        "## By dialect",
    )
    yield from _write_table(
        "dialect", valid, lambda each: TITLES[each.statement.dialect], [TITLES[each] for each in DIALECTS]
    )
    yield ""
    for dialect in DIALECTS:
        share = _share(each for each in valid if each.statement.dialect == dialect)
        target = TARGETS.get(dialect, OTHERS)
        if share is not None:
            reached = "reached" if share <= target else "not reached"
            yield f"- {TITLES[dialect]}: {share:.1%} of what can be answered is refused; the target is at most {target:.0%}, {reached}."
    wrong = sum(each.kind in (WRONG, LEAKED) for each in valid)
    yield f"- Wrong answers: {wrong}; the target is none."
    yield from ("", "## By source")
    yield from _write_table(
        "source", valid, lambda each: each.statement.family.source.name.split(":")[0], None
    )
    yield from ("", "| source | address | its statements were |", "|---|---|---|")
    for source in sorted(sources.values(), key=lambda each: each.key):
        yield f"| {source.name} | {source.address} | {source.seen} |"
    yield from _write_causes("Why statements are refused", valid, (WRONGLY_REFUSED,), 40)
    yield from _write_causes("What is wrong", valid, (WRONG, LEAKED), 40)
    yield from _write_causes("Documented differences", valid, (DOCUMENTED,), 10)
    yield from ("", f"Measured in {seconds:,.0f} seconds on a busy machine.")


def _share(verdicts: Iterable[Verdict]) -> float | None:
    kinds = Counter(each.kind for each in verdicts)
    answerable = sum(kinds[each] for each in (RIGHT, DOCUMENTED, WRONG, WRONGLY_REFUSED))
    return kinds[WRONGLY_REFUSED] / answerable if answerable else None


def _write_table(
    title: str, verdicts: Sequence[Verdict], name: Callable[[Verdict], str], order: Sequence[str] | None
) -> Iterator[str]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for each in verdicts:
        counts[name(each)][each.kind] += 1
        counts["**all**"][each.kind] += 1
    shown = [kind for kind in KINDS if counts["**all**"][kind]]
    yield f"| {title} | statements | {' | '.join(shown)} | refused of what can be answered |"
    yield f"|---|--:|{'--:|' * (len(shown) + 1)}"
    for key in [*(order or sorted(set(counts) - {"**all**"})), "**all**"]:
        if counts[key]:
            share = _share(each for each in verdicts if key in ("**all**", name(each)))
            cells = " | ".join(f"{counts[key][kind]:,}" for kind in shown)
            yield f"| {key} | {counts[key].total():,} | {cells} | {share or 0:.1%} |"


def _write_causes(title: str, verdicts: Sequence[Verdict], kinds: Sequence[str], most: int) -> Iterator[str]:
    counts: Counter[str] = Counter()
    dialects: dict[str, Counter[str]] = defaultdict(Counter)
    examples: dict[str, Verdict] = {}
    for each in verdicts:
        if each.kind in kinds:
            cause = find_cause(each)
            counts[cause] += 1
            dialects[cause][TITLES[each.statement.dialect]] += 1
            if cause not in examples or len(each.statement.sql) < len(examples[cause].statement.sql):
                examples[cause] = each
    if not counts:
        return
    yield from ("", f"## {title}", "| statements | dialects | reason | example |", "|--:|---|---|---|")
    for cause, count in counts.most_common(most):
        said = ", ".join(f"{dialect} {n}" for dialect, n in dialects[cause].most_common())
        example = " ".join(examples[cause].statement.sql.split()).replace("|", "\\|")
        words = cause.replace("|", "\\|").replace("*", "\\*")
        if examples[cause].kind in (WRONG, DOCUMENTED):
            words += f": {examples[cause].code}"
        yield f"| {count} | {said} | {words} | `{example}` |"
    if len(counts) > most:
        yield f"\n{len(counts) - most} more reasons with {sum(count for _, count in counts.most_common()[most:])} statements."
