"""Faults of what is answered again: which release is meant, who pays for it, and how it is refined."""

from __future__ import annotations

from .fault import Fault

_REFINED = "tests/engine/replay/test_refining.py"
_REPLAYED = "tests/engine/replay/test_replay.py"
_KEPT = "tests/ledger/test_stored_releases.py"

_BESIDE = "tests/attacks/test_a32_edits_beside_the_chain.py"
_DATABASES = "tests/attacks/test_a31_one_ledger_two_databases.py"
_FAILURES = "tests/attacks/test_a40_failures_as_answers.py"
_LAYOUTS = "tests/engine/replay/test_layouts.py"
_OTHER = f"{_LAYOUTS}::test_unreleased_aggregate_is_not_combined"

FAULTS = (
    Fault(
        "spoilt-release-refined",
        "dpsql.engine.replay.release_store:ReleaseStore._compute_source_digest",
        "reads_a_table_twice(part.release.input)",
        "False",
        "noise is coupled to exact values that an unsound optimizer may have read otherwise",
        "tests/engine/replay/test_refining.py::test_release_of_an_unsound_optimizer_is_not_refined",
    ),
    Fault(
        "statistics-of-any-lattice",
        "dpsql.engine.replay.reuse:_compute_statistic_digest",
        'f"{word} {compute_digest(compute_equality_text((analysis.release.input, measure.expr, lattice)))}"',
        'f"{word} {compute_digest(compute_equality_text((analysis.release.input, lattice)))}"',
        "a sum of one expression is answered by that of another",
        f"{_OTHER}[pure-another expression]",
    ),
    Fault(
        "more-of-other-rows",
        "dpsql.engine.replay.stored_release:FingerprintRules.compute_rows_digest",
        "(analysis.release.input, keys, analysis.bound, analysis.domains, analysis.replace)",
        "(keys, analysis.bound, analysis.domains, analysis.replace)",
        "a count of some rows is answered by that of others",
        f"{_OTHER}[pure-other rows]",
    ),
    Fault(
        "more-with-chosen-keys",
        "dpsql.engine.replay.reuse:Coverage.from_plan",
        "plan.selection is not None or plan.top_k is not None or plan.quantiles or plan.clamps",
        "plan.top_k is not None or plan.quantiles or plan.clamps",
        "cells of groups that were chosen are kept as those of all groups",
        f"{_LAYOUTS}::test_selected_keys_have_no_coverage[zcdp]",
    ),
    Fault(
        "more-that-agrees-with-anything",
        "dpsql.planning.hierarchy:_is_additive",
        """
        if not moments:
            return False
        """,
        """
        if not moments:
            pass
        """,
        "cells that are known by nothing are taken for each other's totals",
        f"{_LAYOUTS}::test_parts_of_a_total_are_answered_as_released",
    ),
    Fault(
        "replayed-with-other-noise",
        "dpsql.engine.replay.release_store:ReleaseStore._find_exact_release",
        "release.release.measurement == names.measurement",
        "release.release.statistic == names.statistic",
        "an answer has more noise than was asked for",
        f"{_REFINED}::test_both_answers_are_replayed_after_a_refinement",
    ),
    Fault(
        "replayed-of-other-data",
        "dpsql.engine.replay.stored_release",
        """
        {
            "budget", "max_epsilon", "min_epsilon", "default_epsilon", "max_failures", "per_analyst", "analysts"
        }
        """,
        """
        {
            "data_version", "budget", "max_epsilon", "min_epsilon", "default_epsilon", "max_failures", "per_analyst", "analysts"
        }
        """,
        "new data are answered by what was released of the old",
        f"{_REPLAYED}::test_new_data_version_is_not_replayed",
    ),
    Fault(
        "sources-of-one-name",
        "dpsql.plan.text:_number_sources",
        'names.setdefault(part.alias, f"#{len(names)}")',
        'names.setdefault(part.alias, "#")',
        "two sources are taken for one, and a query gets the answer of another",
        "tests/engine/replay/test_equal.py::test_different_releases_have_different_fingerprints",
    ),
    Fault(
        "comparisons-in-any-order",
        "dpsql.plan.text",
        '_SYMMETRIC = frozenset({"eq", "ne"})',
        '_SYMMETRIC = frozenset({"eq", "ne", "lt", "gt"})',
        "more is taken for less",
        "tests/engine/replay/test_equal.py::test_different_releases_have_different_fingerprints",
    ),
    Fault(
        "kept-after-it-is-seen",
        "dpsql.engine.stages:draw_releases",
        "engine.release_store.store_releases(running)",
        "pass",
        "an answer that was paid for is charged again",
        f"{_REPLAYED}::test_equal_query_is_replayed_free",
    ),
    Fault(
        "replays-charged",
        "dpsql.engine.query_run:PreparedRelease.event",
        """
        if self.replayed_release is not None:
            return None
        """,
        "",
        "what was paid for is charged again",
        f"{_REPLAYED}::test_equal_query_is_replayed_free",
    ),
    Fault(
        "releases-of-another-analyst",
        "dpsql.engine.replay.stored_release:FingerprintRules.from_policy",
        "own = analyst if policy.analysts or policy.per_analyst is not None else None",
        "own = None",
        "an analyst sees more than that one's budget",
        f"{_REFINED}::test_analysts_with_own_budgets_refine_only_their_releases",
    ),
    Fault(
        "refined-twice",
        "dpsql.ledger.releases:require_refinable",
        """
        not paid
        or not claims.entries.keys().isdisjoint(bases)
        or connection.execute(released).first() is not None
        """,
        "not paid or not claims.entries.keys().isdisjoint(bases)",
        "two refinements of one release cost more than is charged",
        f"{_KEPT}::test_a_stored_refinement_names_its_base",
    ),
    Fault(
        "refined-without-a-claim",
        "dpsql.ledger.releases:require_refinable",
        """
        not paid
        or not claims.entries.keys().isdisjoint(bases)
        or connection.execute(released).first() is not None
        """,
        "not paid or connection.execute(released).first() is not None",
        "two programs refine one release at one time",
        f"{_KEPT}::test_a_release_is_claimed_once",
    ),
    Fault(
        "claims-not-counted",
        "dpsql.ledger.releases:require_claim_count",
        """
        connection.execute(select(func.count()).select_from(REFINEMENTS)).scalar() != len(
            claims.entries
        )
        """,
        "connection.closed",
        "claims that were deleted are not missed where a release is refined",
        f"{_KEPT}::test_deleted_claims_are_found_on_use",
    ),
    Fault(
        "claims-not-chained",
        "dpsql.ledger.chain:_compute_claims_after",
        'claims.digest != row["claims"]',
        'claims.digest == ""',
        "an entry vouches for other claims than were made",
        f"{_BESIDE}::test_entry_holds_the_earlier_claims",
    ),
    Fault(
        "claims-not-looked-up",
        "dpsql.ledger.chain:Chain.from_last_entries",
        'claims.digest != end["claims"]',
        'claims.digest == ""',
        "claims that were exchanged for others pass where a long ledger is opened",
        f"{_BESIDE}::test_exchanged_claims_are_found_when_a_long_ledger_opens",
    ),
    Fault(
        "stored-releases-not-walked",
        "dpsql.ledger.journal:_verify_batch",
        "replace(chain, stored_head=verify_stored_releases(connection, digests, chain.claims, vouched_digests))",
        "chain",
        "verify says unbroken of a ledger whose stored releases were edited",
        f"{_BESIDE}::test_edited_release_is_refused",
    ),
    Fault(
        "bodies-not-held-against-their-digests",
        "dpsql.ledger.releases:_require_intact",
        '_compute_body_digest(row["body"]) != row["body_digest"]',
        "False",
        "a stored release is edited without its digest",
        f"{_KEPT}::test_an_edited_release_is_refused",
    ),
    Fault(
        "stored-releases-not-anchored",
        "dpsql.ledger.sql_ledger:SqlLedger.store_releases.commit",
        "journal.write_anchor()",
        "",
        "the newest stored release is edited beside an anchor",
        f"{_BESIDE}::test_edited_release_is_refused",
    ),
    Fault(
        "databases-not-told-apart",
        "dpsql.engine.replay.stored_release:FingerprintRules.from_policy",
        "(_freeze_content(content), own, database)",
        "(_freeze_content(content), own)",
        "the count of one database is answered for another",
        f"{_DATABASES}::test_replaced_file_keeps_the_budget_without_its_answers",
    ),
    Fault(
        "ledger-of-two-databases",
        "dpsql.ledger.anchor:can_follow",
        "before is None",
        "before != after",
        "a ledger serves another database than it was of",
        f"{_DATABASES}::test_another_file_is_refused_before_a_charge",
    ),
    Fault(
        "database-looked-at-on-opening-alone",
        "dpsql.ledger.entry_writer:EntryWriter._write_group",
        """
        before = journal.chain
        require_same_database(journal.store.where, before.database, self._database)
        """,
        "before = journal.chain",
        "two databases that are open at once share a ledger",
        f"{_DATABASES}::test_first_charge_binds_the_ledger_to_one_database",
    ),
    Fault(
        "failures-not-noted",
        "dpsql.engine.charging:record_failure",
        """
        if charged.entries:
            engine.ledger.record_failure([*engine.get_accounts(tables)], charged.entries[0], analyst=engine.analyst, query=charged.query.sql, code=code)
        """,
        "pass",
        "a query that fails may be asked again and again",
        f"{_FAILURES}::test_table_is_locked_after_several_failures",
    ),
    Fault(
        "locked-tables-read",
        "dpsql.ledger.budget:FailureLimit.is_locked",
        "return failures >= self.by_table.get(table, MOST_FAILURES)",
        "return failures > self.by_table.get(table, MOST_FAILURES)",
        "a table is read once more than its policy allows failures",
        f"{_FAILURES}::test_table_is_locked_after_several_failures",
    ),
    Fault(
        "refined-beyond-a-reset",
        "dpsql.ledger.releases:iterate_stored_releases",
        'row["number"] in refined or row["entry"] < reset',
        'row["number"] in refined',
        "what was paid before a budget was begun anew pays for what comes after",
        f"{_REFINED}::test_renewed_account_pays_in_full",
    ),
    Fault(
        "refined-beyond-a-renewal",
        "dpsql.engine.replay.release_store:ReleaseStore._can_refine",
        '"data_version" in self.policy.model_fields_set and self._renewing_tables.isdisjoint(tables)',
        '"data_version" in self.policy.model_fields_set',
        "what was paid in one period pays for the next",
        f"{_REFINED}::test_release_that_cannot_be_refined_is_charged_in_full",
    ),
    Fault(
        "refined-of-unsaid-data",
        "dpsql.engine.replay.release_store:ReleaseStore._can_refine",
        '"data_version" in self.policy.model_fields_set and self._renewing_tables.isdisjoint(tables)',
        "self._renewing_tables.isdisjoint(tables)",
        "noise is taken from data that it was not added to",
        f"{_REFINED}::test_release_that_cannot_be_refined_is_charged_in_full",
    ),
    Fault(
        "refined-by-another-engine",
        "dpsql.engine.replay.release_store:ReleaseStore._find_refinement",
        "written.source != self._compute_source_digest(part)",
        "False",
        "noise is taken from sums that another engine has made",
        f"{_REFINED}::test_release_of_another_engine_is_not_refined",
    ),
    Fault(
        "coupled-under-any-accountant",
        "dpsql.engine.replay.release_store:ReleaseStore._find_refinement",
        "self.can_couple(part.tables)",
        "True",
        "a difference is charged where it bounds nothing",
        "tests/engine/replay/test_merging.py::test_gaussian_release_is_refined_by_an_independent_one",
    ),
    Fault(
        "refined-at-half-the-difference",
        "dpsql.engine.replay.reuse:find_coupled_refinement",
        "Pure(plan.event.epsilon - before.event.epsilon)",
        "Pure((plan.event.epsilon - before.event.epsilon) / 2)",
        "refinements pass the budget",
        f"{_REFINED}::test_refinement_costs_the_difference",
    ),
    Fault(
        "fresh-noise-for-the-difference",
        "dpsql.engine.replay.reuse:CoupledRefinement.refine_components",
        "noise = [old - true for old, true in zip(before, exact, strict=True)]",
        "noise = [0 for old, true in zip(before, exact, strict=True)]",
        "the second answer does not know the first, and both cost more than the second",
        f"{_REFINED}::test_refinement_starts_from_the_stored_noise",
    ),
    Fault(
        "a-chain-counted-twice",
        "dpsql.engine.replay.release_store:ReleaseStore._combine_statistic",
        "ends = [release for release in records if release.number not in refined]",
        "ends = list(records)",
        "a mean of releases has more noise than it says",
        "tests/engine/replay/test_merging.py::test_chain_of_refinements_is_combined_once",
    ),
)
