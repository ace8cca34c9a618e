"""Faults of parts: what is read of them, what is charged to them, and whose budget that is."""

from __future__ import annotations

from .fault import Fault

_LAW = "tests/properties/test_parts.py::test_charge_to_a_part_reads_no_unit_outside"
_PLACES = "tests/privacy/accounting/test_partitions.py::test_each_place_has_spent_the_charges_of_its_boxes"
_LEDGER = "tests/ledger/test_ledger_partitions.py"
_JOINED = "tests/properties/test_inherited_parts.py"
_STRAY = f"{_JOINED}::test_units_outside_an_inherited_part_change_nothing"
_LOST = f"{_JOINED}::test_scan_with_an_inherited_part_keeps_all_counted_rows"

FAULTS = (
    Fault(
        "units-of-two-parts-read",
        "dpsql.sql.compile.scan_conditions:_emit_single_value_condition",
        'f"COUNT(DISTINCT {read}) = 1 AND COUNT({read}) = COUNT(*)"',
        'f"COUNT(DISTINCT {read}) >= 1 AND COUNT({read}) = COUNT(*)"',
        "a unit is read in several parts, each of which is charged alone",
        _LAW,
    ),
    Fault(
        "units-of-a-part-and-none-read",
        "dpsql.sql.compile.scan_conditions:_emit_single_value_condition",
        'f"COUNT(DISTINCT {read}) = 1 AND COUNT({read}) = COUNT(*)"',
        'f"COUNT(DISTINCT {read}) = 1 AND COUNT({read}) <= COUNT(*)"',
        "a unit with rows of no part besides is taken to lie in one: asked for as a whole, it lies elsewhere too",
        _LAW,
    ),
    Fault(
        "linked-rows-are-parts-of-nobody",
        "dpsql.analysis.partitions.assignment:_assign_to_scan",
        "scan.contribution is None or not (scan.unit.kind is UnitKind.ROW or scan.unit.is_known)",
        "scan.contribution is None",
        "rows whose unit the scan does not know are confined, and nothing sees to it that it lies in one part",
        "tests/properties/test_parts.py::test_rows_with_units_unknown_to_the_scan_are_charged_as_a_whole",
    ),
    Fault(
        "owners-of-links-are-not-charged-whole",
        "dpsql.analysis.partitions.assignment:compute_boxes",
        "read[link.owner.table].append(WHOLE)",
        "read[link.owner.table].append(read[scan.table][-1])",
        "a table that is read as a whole for its ids is charged for the part that is read besides",
        "tests/properties/test_parts.py::test_owners_of_links_are_charged_as_a_whole",
    ),
    Fault(
        "parts-of-the-replaced",
        "dpsql.engine.stages:analyze",
        "analyze_release(release if replaced else with_partition_filters(release), lowered.lookups, replace=replaced, separate_keys=lowered.options.separate_keys)",
        "analyze_release(with_partition_filters(release), lowered.lookups, replace=replaced, separate_keys=lowered.options.separate_keys)",
        "one who is replaced by somebody in another part is charged in one of them",
        "tests/analysis/test_predicates.py::test_replaced_units_narrow_no_scan",
    ),
    Fault(
        "parts-are-named-by-their-column-alone",
        "dpsql.analysis.partitions.predicates:Dimension.from_column",
        'return cls(column, f"{_format_name(column)} bounds {low} {high}", low, high, None)',
        "return cls(column, _format_name(column), low, high, None)",
        "after new bounds, rows that lie elsewhere now have a budget that is not spent",
        "tests/properties/test_parts.py::test_redeclared_table_is_charged_as_a_whole",
    ),
    Fault(
        "several-scans-charged-to-the-last",
        "dpsql.analysis.partitions.assignment:compute_boxes",
        "reduce(Box.compute_hull, found)",
        "found[-1]",
        "of a table that is read twice, the part that is read first is free",
        "tests/properties/test_parts.py::test_scans_of_one_table_are_charged_together",
    ),
    Fault(
        "null-lies-in-a-complement-of-nothing",
        "dpsql.privacy.accounting.partitions.grid:compute_complement",
        "below: Ranges = () if first is None else ((None, first - 1),)",
        "below: Ranges = () if first is None else ((-(2**62), first - 1),)",
        "rows without a value are in no part once the table was cut, and what is charged to the whole forgets them",
        "tests/privacy/accounting/test_partitions.py::test_ranges_are_sets_of_numbers_and_null",
    ),
    Fault(
        "overlaps-charged-once",
        "dpsql.privacy.accounting.partitions.grid:_add_inside",
        "own + amount if flag else own",
        "max(own, amount) if flag else own",
        "what two charges share has spent the first alone",
        _PLACES,
    ),
    Fault(
        "the-first-part-counts",
        "dpsql.privacy.accounting.partitions.boxes:PartitionCharges.compute_largest_charge",
        "losses, deltas = max(losses, own.loss), max(deltas, own.delta)",
        "losses, deltas = min(losses, own.loss), max(deltas, own.delta)",
        "the least spend over the parts is taken for the table's",
        _PLACES,
    ),
    Fault(
        "bills-quoted-apart",
        "dpsql.ledger.quote:iterate_quoted_charges",
        "balances[key] = apply_effect(before, step)",
        "",
        "the parts of one statement are each held against what was there before it",
        f"{_LEDGER}::test_several_parts_of_a_charge_are_taken_together_or_not_at_all",
    ),
    Fault(
        "kept-parts-believed",
        "dpsql.ledger.chain:_restore_balance",
        "not vouched or parts.compute_largest_charge() != spent",
        "parts.compute_largest_charge() != spent and not parts.cells",
        "whoever edits what is kept of the parts has a new budget",
        f"{_LEDGER}::test_edited_parts_are_refused",
    ),
    Fault(
        "parts-not-verified",
        "dpsql.ledger.journal:_verify_batch",
        "require_derived_rows(connection, chain.balances)",
        "pass",
        "what is kept of the parts is never held against the entries",
        f"{_LEDGER}::test_edited_parts_are_refused",
    ),
    Fault(
        "resets-keep-a-later-period",
        "dpsql.ledger.balance:Balance.move_to_period",
        "anew and period != self.period",
        "False",
        "after a clock that was ahead a budget never renews, whatever its owner does",
        f"{_LEDGER}::test_a_reset_ends_the_period_of_a_clock_that_was_ahead",
    ),
    Fault(
        "periods-go-back",
        "dpsql.ledger.balance:Balance.move_to_period",
        "period > self.period",
        "period != self.period",
        "a clock that falls back gives a new budget, and again when it is put right",
        f"{_LEDGER}::test_renewing_budget_starts_over_and_never_goes_back",
    ),
    Fault(
        "analysts-charged-alone",
        "dpsql.ledger.quote:list_account_charges",
        "keys = [AccountKey(bill.table), *_list_analyst_accounts(bill.table, analyst, accounts)]",
        "keys = _list_analyst_accounts(bill.table, analyst, accounts) or [AccountKey(bill.table)]",
        "what an analyst with a budget spends is not the table's, and colluding analysts have the sum of theirs",
        f"{_LEDGER}::test_an_analyst_has_a_budget_within_the_table_s",
    ),
    Fault(
        "unknown-kinds-are-followed",
        "dpsql.ledger.chain:_compute_next_balance",
        'EntryEffect(row["kind"], spend, box, row["slice"], row["analyst"])',
        'EntryEffect(row["kind"].replace("gift", "charge"), spend, box, row["slice"], row["analyst"])',
        "an entry of a kind that nobody knows is followed",
        f"{_LEDGER}::test_entries_of_unknown_kinds_are_refused",
    ),
    Fault(
        "inherited-parts-read-whole",
        "dpsql.sql.compile.scan_conditions:emit_partition_conditions",
        "(item.source for item in scan.partition_filters if item.source is not None)",
        "(item.source for item in scan.partition_filters[:0] if item.source is not None)",
        "a table is charged where a joined one says that units lie, and all of it is read",
        _STRAY,
    ),
    Fault(
        "units-of-two-inherited-parts-read",
        "dpsql.sql.compile.scan_conditions:emit_partition_conditions",
        "(_emit_single_value_condition(compiler, item), compiler.dialect.queries.emit_all_true(_emit_range_condition(compiler, item)))",
        '(f"BOOL_OR({_emit_range_condition(compiler, item)})",)',
        "a unit with several values in another table is read in the part of each",
        _STRAY,
    ),
    Fault(
        "inherited-parts-read-anywhere",
        "dpsql.sql.compile.scan_conditions:emit_partition_conditions",
        "(_emit_single_value_condition(compiler, item), compiler.dialect.queries.emit_all_true(_emit_range_condition(compiler, item)))",
        "(_emit_single_value_condition(compiler, item),)",
        "a unit of another part of another table is read",
        _STRAY,
    ),
    Fault(
        "left-joins-need-a-partner",
        "dpsql.analysis.partitions.assignment:_get_needed_sides",
        """
        match relation:
            case Join(kind=JoinKind.INNER) | SemiJoin(anti=False) | SetOperation(kind=SetKind.INTERSECT):
                return _NeededSides.BOTH
            case SetOperation(kind=SetKind.UNION | SetKind.UNION_ALL):
                return _NeededSides.EITHER
            case _:
                return _NeededSides.LEFT
        """,
        """
        match relation:
            case Join() | SemiJoin(anti=False) | SetOperation(kind=SetKind.INTERSECT):
                return _NeededSides.BOTH
            case SetOperation(kind=SetKind.UNION | SetKind.UNION_ALL):
                return _NeededSides.EITHER
            case _:
                return _NeededSides.LEFT
        """,
        "rows that a LEFT JOIN keeps without a partner are not read",
        _LOST,
    ),
    Fault(
        "not-exists-needs-a-match",
        "dpsql.analysis.partitions.assignment:_get_needed_sides",
        """
        match relation:
            case Join(kind=JoinKind.INNER) | SemiJoin(anti=False) | SetOperation(kind=SetKind.INTERSECT):
                return _NeededSides.BOTH
            case SetOperation(kind=SetKind.UNION | SetKind.UNION_ALL):
                return _NeededSides.EITHER
            case _:
                return _NeededSides.LEFT
        """,
        """
        match relation:
            case Join(kind=JoinKind.INNER) | SemiJoin() | SetOperation(kind=SetKind.INTERSECT):
                return _NeededSides.BOTH
            case SetOperation(kind=SetKind.UNION | SetKind.UNION_ALL):
                return _NeededSides.EITHER
            case _:
                return _NeededSides.LEFT
        """,
        "NOT EXISTS reads those alone whom it leaves out",
        _LOST,
    ),
    Fault(
        "except-needs-both",
        "dpsql.analysis.partitions.assignment:_get_needed_sides",
        """
        match relation:
            case Join(kind=JoinKind.INNER) | SemiJoin(anti=False) | SetOperation(kind=SetKind.INTERSECT):
                return _NeededSides.BOTH
            case SetOperation(kind=SetKind.UNION | SetKind.UNION_ALL):
                return _NeededSides.EITHER
            case _:
                return _NeededSides.LEFT
        """,
        """
        match relation:
            case (
                Join(kind=JoinKind.INNER)
                | SemiJoin(anti=False)
                | SetOperation(kind=SetKind.INTERSECT | SetKind.EXCEPT)
            ):
                return _NeededSides.BOTH
            case SetOperation(kind=SetKind.UNION | SetKind.UNION_ALL):
                return _NeededSides.EITHER
            case _:
                return _NeededSides.LEFT
        """,
        "EXCEPT reads those alone whom it leaves out",
        _LOST,
    ),
    Fault(
        "unions-need-both",
        "dpsql.analysis.partitions.assignment:_get_needed_sides",
        """
        match relation:
            case Join(kind=JoinKind.INNER) | SemiJoin(anti=False) | SetOperation(kind=SetKind.INTERSECT):
                return _NeededSides.BOTH
            case SetOperation(kind=SetKind.UNION | SetKind.UNION_ALL):
                return _NeededSides.EITHER
            case _:
                return _NeededSides.LEFT
        """,
        """
        match relation:
            case Join(kind=JoinKind.INNER) | SemiJoin(anti=False) | SetOperation(kind=SetKind.INTERSECT):
                return _NeededSides.BOTH
            case SetOperation(kind=SetKind.UNION):
                return _NeededSides.EITHER
            case _:
                return _NeededSides.LEFT
        """,
        "what one side of UNION ALL says confines the other, too",
        _LOST,
    ),
    Fault(
        "unions-lie-where-their-left-side-does",
        "dpsql.analysis.partitions.assignment:_derive_unit_filters",
        "merge_filters(side, right[name])",
        "side",
        "units that are on the right side of a union alone are not read",
        _LOST,
    ),
    Fault(
        "inherited-parts-are-the-table-s-own",
        "dpsql.analysis.partitions.predicates:Dimension.get_account_name",
        'return self.name if source is None else f"{self.name} of {json.dumps(normalize_name(source.table))}"',
        "return self.name",
        "somebody who lies elsewhere by another table has a second budget there",
        f"{_JOINED}::test_column_of_another_table_is_another_dimension",
    ),
    Fault(
        "rolls-are-read-free",
        "dpsql.analysis.partitions.assignment:compute_boxes",
        "read[table].append(_compute_box(list_source_filters(table, scan)))",
        "pass",
        "units whose rows decide what is read of another table are not charged in their own",
        f"{_JOINED}::test_rolling_windows_are_charged_where_they_are_read",
    ),
    Fault(
        "units-of-links-have-their-own-part",
        "dpsql.analysis.partitions.assignment:_filter_scan",
        "scan.unit.kind is not UnitKind.COLUMN or not scan.unit.is_known",
        "scan.unit.kind is not UnitKind.COLUMN",
        "rows whose unit the scan does not know are looked for among ids that they do not have",
        f"{_JOINED}::test_links_lead_to_parts_where_the_scan_follows_them",
    ),
)
