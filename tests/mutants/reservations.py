"""Faults of reservations: made without being charged, spent by others or beyond, given back twice or whole."""

from __future__ import annotations

from .fault import Fault

_SLICES = "tests/ledger/test_reservations.py"
_FORGED = "tests/attacks/test_a17_slices.py::test_forged_slices_are_refused"
_FACE = "tests/api/test_reservations.py"

_LAW = "tests/ledger/test_every_column.py"

FAULTS = (
    Fault(
        "slices-given-back-whole",
        "dpsql.ledger.balance:AccountReservation.compute_remaining",
        "spent = self.parts.compute_largest_charge(box)",
        "spent = self.parts.compute_largest_charge(box) if box != WHOLE else Charge(0, 0)",
        "what was spent within a slice is given back with the rest",
        f"{_SLICES}::test_a_slice_is_charged_whole_spent_from_and_given_back",
    ),
    Fault(
        "slices-not-charged",
        "dpsql.ledger.balance:_apply_reservation",
        "return replace(before, parts=before.parts.with_charge(WHOLE, step.charge), reservations=reservations)",
        "return replace(before, reservations=reservations)",
        "a slice is reserved of what others spend too",
        f"{_SLICES}::test_a_slice_is_charged_whole_spent_from_and_given_back",
    ),
    Fault(
        "slices-stay-open",
        "dpsql.ledger.balance:_apply_return",
        "return replace(before, parts=parts, reservations=rest)",
        "return replace(before, parts=parts)",
        "a slice is spent from, and given back, again after its end",
        f"{_SLICES}::test_a_slice_is_charged_whole_spent_from_and_given_back",
    ),
    Fault(
        "slices-spent-without-counting",
        "dpsql.ledger.balance:_apply_draw",
        "step.charge",
        "NOTHING",
        "any number of queries spend the same slice",
        f"{_SLICES}::test_a_slice_is_as_much_as_one_query_of_its_epsilon",
    ),
    Fault(
        "slices-outlive-their-period",
        "dpsql.ledger.balance:Balance.move_to_period",
        "replace(self, parts=PartitionCharges(), period=period, reservations={})",
        "replace(self, parts=PartitionCharges(), period=period)",
        "what was reserved of the last period is spent in this one, on top of its budget",
        f"{_SLICES}::test_a_slice_ends_with_its_period_and_with_a_reset",
    ),
    Fault(
        "slices-outlive-a-reset",
        "dpsql.ledger.balance:_apply_reset",
        "return replace(before, parts=PartitionCharges(), reservations={})",
        "return replace(before, parts=PartitionCharges())",
        "what was reserved before a reset is spent after it, on top of the budget",
        f"{_SLICES}::test_a_slice_ends_with_its_period_and_with_a_reset",
    ),
    Fault(
        "slices-of-anybody",
        "dpsql.ledger.quote:_get_reservation",
        "held is None or held.holder != step.actor",
        "held is None",
        "whoever knows a slice's number spends it",
        f"{_SLICES}::test_slices_are_of_tables_and_of_analysts_at_once",
    ),
    Fault(
        "slices-held-against-the-table",
        "dpsql.ledger.quote:iterate_quoted_charges",
        "left = _get_reservation(before, kind, key).compute_remaining(bill.box)",
        "left = _get_reservation(before, kind, key).compute_remaining(bill.box) + before.compute_remaining(accounts[key].limit, bill.box)",
        "a session spends what it has not reserved, uncounted",
        f"{_SLICES}::test_a_slice_is_charged_whole_spent_from_and_given_back",
    ),
    Fault(
        "slices-passed-in-the-chain",
        "dpsql.ledger.chain:_compute_next_balance",
        "any(not each.is_within_limit for each in balance.reservations.values())",
        "False",
        "a chain with a slice that was spent twice is verified",
        _FORGED,
    ),
    Fault(
        "returns-not-added-up",
        "dpsql.ledger.balance:_apply_return",
        "_require_valid_entry(step.charge == held.compute_remaining() and step.box == WHOLE)",
        "",
        "a chain that gives back more than was left is verified",
        _FORGED,
    ),
    Fault(
        "draws-of-anybody-in-the-chain",
        "dpsql.ledger.balance:_apply_draw",
        "_require_valid_entry(held.holder == step.actor)",
        "",
        "a chain in which another spends a slice is verified",
        _FORGED,
    ),
    Fault(
        "kept-slices-believed",
        "dpsql.ledger.chain:_restore_balance",
        '(compute_partitions_digest(parts), compute_reservations_digest(reservations)) == (row["parts"], row["slices"])',
        'compute_partitions_digest(parts) == row["parts"]',
        "whoever edits what is kept of a slice spends it again",
        f"{_SLICES}::test_long_ledgers_read_their_stored_slices",
    ),
    Fault(
        "rows-beside-the-entries",
        "dpsql.ledger.tables:require_derived_rows",
        "found ^ expected",
        "expected - found",
        "what somebody puts into the tables beside the entries passes",
        f"{_LAW}::test_tables_derived_from_entries_are_checked_on_opening[without a key-INSERT INTO slices VALUES ('others', 'eve', 3, 'a body')]",
    ),
    Fault(
        "partitions-compared-in-part",
        "dpsql.ledger.tables:require_derived_rows",
        "{tuple(row) for row in connection.execute(select(table))}",
        "{row for row in expected if any(row[-3:] == tuple(each)[-3:] for each in connection.execute(select(table)))}",
        "an edit of a partition's period, account or digest passes",
        f"{_LAW}::test_tables_derived_from_entries_are_checked_on_opening[with a key-UPDATE parts SET period = 'x']",
    ),
    Fault(
        "tables-not-checked-on-opening",
        "dpsql.ledger.journal:_prepare_once",
        "require_derived_rows(connection, journal.chain.balances)",
        "",
        "a ledger whose partitions were edited goes on until somebody verifies it",
        f"{_LAW}::test_tables_derived_from_entries_are_checked_on_opening[without a key-UPDATE parts SET period = 'x']",
    ),
    Fault(
        "queries-beside-the-slice",
        "dpsql.engine.charging:charge_query",
        """
        entries = engine.ledger.charge(
            prepared.table_charges,
            analyst=engine.analyst,
            query=prepared.query.sql,
            details=build_charge_details(engine, prepared),
            refines=[base.number for base in prepared.refinements],
            reservation=engine.reservation,
        )
        """,
        """
        entries = engine.ledger.charge(
            prepared.table_charges,
            analyst=engine.analyst,
            query=prepared.query.sql,
            details=build_charge_details(engine, prepared),
            refines=[base.number for base in prepared.refinements],
        )
        """,
        "a session with a slice is charged to the table",
        f"{_FACE}::test_queries_spend_from_the_reservation_and_the_rest_is_returned",
    ),
    Fault(
        "slices-left-at-the-close",
        "dpsql.api.engine_queries:OpenEngine.close",
        "self._reservation.close()",
        "pass",
        "a session that ends keeps what it has not spent",
        f"{_FACE}::test_closing_returns_a_reservation_and_a_crash_does_not",
    ),
)
