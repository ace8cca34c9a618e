"""The note on methods for published tables: the guarantee in words, and how each number was computed.

The note depends only on the policy, the publication and the receipts and has no date, so the same release gives the same note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from dpsql.interfaces.publish.publication import Publication
from dpsql.policy.request.loss import format_rounded

if TYPE_CHECKING:
    from dpsql.api.connection import Connection
    from dpsql.results.result import Receipt

_NEIGHBORS = {
    "add_remove": (
        "whether the data hold all rows of one {unit}, or none of them",
        "without this {unit}'s rows",
    ),
    "replace": ("whatever the rows of one {unit} are", "if this {unit}'s rows were others"),
}
"""For each kind of neighbors, the data between which an answer hardly differs, and the data that an outcome is compared with."""


def render_methods(connection: Connection, publication: Publication, receipts: Mapping[str, Receipt]) -> str:
    """Return the note in Markdown."""
    return (
        "\n".join(
            [*_describe_guarantee(connection, publication), "", *_describe_tables(publication, receipts)]
        )
        + "\n"
    )


def _describe_guarantee(connection: Connection, publication: Publication) -> Iterator[str]:
    policy = connection.engine.policy
    unit = policy.privacy_unit
    yield f"# How these numbers were made: {_escape_line(publication.title)}"
    yield ""
    between, otherwise = (text.format(unit=unit) for text in _NEIGHBORS[policy.neighbors])
    yield (
        "Each number computed from private rows has random noise, drawn once. The noise hides the contribution of one"
        f" {unit}: the published numbers are about equally probable {between}. This is differential privacy; ε and δ bound"
        ' what "about" means. Any conclusion from all published numbers, whatever else is known, has at most e^ε times the'
        f" probability that it would have {otherwise}, plus at most δ."
    )
    yield ""
    yield "Budgets that bound everything published from these data, including these tables, until a budget is renewed or reset:"
    yield ""
    yield "| budget | ε | δ | accountant |"
    yield "|---|---:|---:|---|"
    for state in connection.budget().values():
        if not state.analyst:
            yield f"| {_escape_line(state.name)} | {format_rounded(state.epsilon, 6)} | {format_rounded(state.delta, 6)} | {state.accountant} |"
    yield ""
    yield (
        "A noisy column `x` is followed by `x_low` and `x_high`: an interval that contains the number without noise in 95% of"
        " cases. If the policy does not list the groups, small groups are left out by a rule that is itself noisy."
    )


def _describe_tables(publication: Publication, receipts: Mapping[str, Receipt]) -> Iterator[str]:
    for name, table in publication.tables.items():
        receipt = receipts[name]
        yield f"## {_escape_line(table.title or name)}"
        yield ""
        if table.note:
            yield from (table.note.strip(), "")
        yield from ("```sql", table.sql.strip(), "```")
        yield f"File: `{name}.csv`. Version of the data: {_escape_line(receipt.data_version)}."
        paid = sorted({*(int(entry["id"]) for entry in receipt.entries), *receipt.replayed, *receipt.refined})
        if paid:
            yield f"Entries of the ledger: {', '.join(map(str, paid))}. Digest of the plan: `{receipt.plan}`."
        laws = sorted({str(part.get("noise", "")).partition(",")[0] for part in receipt.mechanisms})
        if laws:
            yield f"Noise: {', '.join(map(_escape_line, laws))}; its size is in the intervals, and with its sensitivity in the receipt."
        for notice in receipt.notices:
            yield from ("", f"> {_escape_line(notice)}")
        yield ""


def _escape_line(text: str) -> str:
    """Return a text that stays within its line and table cell."""
    return " ".join(text.split()).replace("|", "\\|")
