"""Faults of a budget that tables share: what it is charged, which tables may share it, and which ledger has it."""

from __future__ import annotations

from .fault import Fault

_LAW = "tests/properties/test_shared_budget.py"
_REFUSED = "tests/policy/test_policy_refusals.py::test_a_table_that_cannot_share_a_budget_is_refused"

FAULTS = (
    Fault(
        "shared-account-charged-its-last-release",
        "dpsql.engine.query_run:QueryRun.table_charges",
        "read.setdefault((account, box), []).append(release.event)",
        "read[account, box] = [release.event]",
        "of several releases the shared account is charged one",
        f"{_LAW}::test_the_shared_account_is_charged_each_release_once",
    ),
    Fault(
        "shared-loss-split-by-table",
        "dpsql.engine.loss_split:split_loss",
        "charged = [get_accounts(read) for read in tables]",
        "charged = [{read[0]: next(iter(get_accounts(read).values()))} for read in tables]",
        "releases of different tables get the whole loss each, and the shared account is charged more than was asked",
        f"{_LAW}::test_the_shared_account_is_charged_each_release_once",
    ),
    Fault(
        "rows-without-ids-share",
        "dpsql.policy.models:_iterate_sharing_problems",
        "is_row(table.unit)",
        "table.unit is None",
        "somebody with a row in two tables loses twice what the shared account is charged",
        _REFUSED,
    ),
    Fault(
        "parts-of-tables-share",
        "dpsql.policy.models:_iterate_sharing_problems",
        "table.partition",
        "table.partition and table.public",
        "a unit in different parts of two tables is charged in one of them",
        _REFUSED,
    ),
    Fault(
        "ids-of-two-types-share",
        "dpsql.backends.analyst_schema:build_analyst_schema",
        "policy.budget.shared",
        "policy.budget.shared and not tables",
        "one person is two units in the tables that share a budget",
        "tests/api/test_shared_budget.py::test_ids_of_different_types_are_refused",
    ),
    Fault(
        "ledgers-begin-to-share",
        "dpsql.ledger.journal:_store_missing_accounts",
        "require_one_sharing(book.accounts, stored)",
        "require_one_sharing(book.accounts, ())",
        "what tables have spent is forgotten when they begin to share a budget",
        "tests/ledger/test_shared_accounts.py::test_a_ledger_never_changes_between_shared_and_separate_budgets",
    ),
    Fault(
        "failures-lock-one-table-of-a-shared-budget",
        "dpsql.policy.models:Policy.get_failure_limits",
        "min(count, least.get(account, count))",
        "max(count, least.get(account, count))",
        "a table is read after as many failures as its owner allows",
        "tests/api/test_shared_budget.py::test_a_failure_at_one_table_locks_all_tables_that_share",
    ),
    Fault(
        "receipts-name-any-tables-of-a-shared-budget",
        "dpsql.ledger.receipts:_get_named_entry",
        '{"tables": entry.details["tables"]} if "tables" in entry.details else {}',
        '{"tables": named.get("tables")} if "tables" in entry.details else {}',
        "a receipt names other tables than were charged",
        "tests/api/test_shared_budget.py::test_a_query_of_two_tables_is_charged_once",
    ),
)
