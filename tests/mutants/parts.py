"""Faults of parts: what is read of them, what is charged to them, and whose budget that is."""

from __future__ import annotations

from .fault import Fault

_LAW = "tests/laws/test_parts.py::test_what_is_charged_to_a_part_reads_no_unit_outside_of_it"
_PLACES = "tests/accounting/test_parts.py::test_each_place_has_spent_what_was_charged_to_boxes_around_it"
_LEDGER = "tests/accounting/test_ledger_parts.py"

FAULTS = (
    Fault(
        "units-of-two-parts-read",
        "sql/confined.py",
        "COUNT(DISTINCT {read}) = 1 AND COUNT",
        "COUNT(DISTINCT {read}) >= 1 AND COUNT",
        "a unit is read in several parts, each of which is charged alone",
        _LAW,
    ),
    Fault(
        "units-of-a-part-and-none-read",
        "sql/confined.py",
        "AND COUNT({read}) = COUNT(*)",
        "AND COUNT({read}) <= COUNT(*)",
        "a unit with rows of no part besides is taken to lie in one: asked for as a whole, it lies elsewhere too",
        _LAW,
    ),
    Fault(
        "linked-rows-are-parts-of-nobody",
        "analysis/confine.py",
        "if scan.contribution is None or not (scan.unit.kind is UnitKind.ROW or scan.unit.known):",
        "if scan.contribution is None:",
        "rows whose unit the scan does not know are confined, and nothing sees to it that it lies in one part",
        "tests/laws/test_parts.py::test_rows_of_units_that_a_scan_does_not_know_are_charged_as_a_whole",
    ),
    Fault(
        "owners-of-links-are-not-charged-whole",
        "analysis/confine.py",
        "read[link.owner.table].append(WHOLE)",
        "read[link.owner.table].append(read[scan.table][-1])",
        "a table that is read as a whole for its ids is charged for the part that is read besides",
        "tests/laws/test_parts.py::test_owners_of_links_are_charged_as_a_whole",
    ),
    Fault(
        "parts-of-the-replaced",
        "engine.py",
        "analyse(release if replaced else confined(release), public, replace=replaced)",
        "analyse(confined(release), public, replace=replaced)",
        "one who is replaced by somebody in another part is charged in one of them",
        "tests/analysis/test_where.py::test_replaced_units_confine_nothing",
    ),
    Fault(
        "parts-are-named-by-their-column-alone",
        "analysis/dimension.py",
        'return cls(column, f"{_called(column)} bounds {low} {high}", low, high, None)',
        "return cls(column, _called(column), low, high, None)",
        "after new bounds, rows that lie elsewhere now have a budget that is not spent",
        "tests/laws/test_parts.py::test_a_table_that_is_declared_anew_is_charged_as_a_whole",
    ),
    Fault(
        "several-scans-charged-to-the-last",
        "analysis/confine.py",
        "reduce(Box.hull, found)",
        "found[-1]",
        "of a table that is read twice, the part that is read first is free",
        "tests/laws/test_parts.py::test_scans_of_one_table_are_charged_together",
    ),
    Fault(
        "null-lies-in-a-complement-of-nothing",
        "accounting/parts.py",
        "below: Ranges = () if first is None else ((None, first - 1),)",
        "below: Ranges = () if first is None else ((-(2**62), first - 1),)",
        "rows without a value are in no part once the table was cut, and what is charged to the whole forgets them",
        "tests/accounting/test_parts.py::test_ranges_are_sets_of_numbers_and_null",
    ),
    Fault(
        "overlaps-charged-once",
        "accounting/parts.py",
        "found[shared] = own + spend",
        "found[shared] = own",
        "what two charges share has spent the first alone",
        _PLACES,
    ),
    Fault(
        "the-first-part-counts",
        "accounting/parts.py",
        "max((own.loss for own in spent), default=0)",
        "min((own.loss for own in spent), default=0)",
        "the least spend over the parts is taken for the table's",
        _PLACES,
    ),
    Fault(
        "bills-quoted-apart",
        "accounting/due.py",
        "        standings[key] = stepped(before, step)\n",
        "",
        "the parts of one statement are each held against what was there before it",
        f"{_LEDGER}::test_several_parts_of_a_charge_are_taken_together_or_not_at_all",
    ),
    Fault(
        "kept-parts-believed",
        "accounting/chain.py",
        "if not vouched or parts.most() != spent:",
        "if parts.most() != spent and not parts.cells:",
        "whoever edits what is kept of the parts has a new budget",
        f"{_LEDGER}::test_edited_parts_are_refused",
    ),
    Fault(
        "parts-not-verified",
        "accounting/verification.py",
        "                _require_kept(connection, chain)",
        "                pass",
        "what is kept of the parts is never held against the entries",
        f"{_LEDGER}::test_edited_parts_are_refused",
    ),
    Fault(
        "periods-go-back",
        "accounting/standing.py",
        "if period > self.period else self",
        "if period != self.period else self",
        "a clock that falls back gives a new budget, and again when it is put right",
        f"{_LEDGER}::test_a_budget_that_renews_begins_anew_and_never_goes_back",
    ),
    Fault(
        "analysts-charged-alone",
        "accounting/due.py",
        "keys = [own, theirs] if analyst",
        "keys = [theirs] if analyst",
        "what an analyst with a budget spends is not the table's, and colluding analysts have the sum of theirs",
        f"{_LEDGER}::test_an_analyst_has_a_budget_within_the_table_s",
    ),
    Fault(
        "unknown-kinds-are-followed",
        "accounting/chain.py",
        'step = Step(row["kind"], spend, box',
        'step = Step(row["kind"].replace("gift", "charge"), spend, box',
        "an entry of a kind that nobody knows is followed",
        f"{_LEDGER}::test_entries_of_unknown_kinds_are_refused",
    ),
)
