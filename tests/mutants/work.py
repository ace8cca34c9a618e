"""Faults of bounded work: what keeps the planning of a short statement short, whatever its analyst writes."""

from __future__ import annotations

from .fault import Fault

_ATTACK = "tests/attacks/test_a46_plans_that_explode.py"
_HINTS = "tests/sql/test_fuzzing.py::test_hint_costs_no_more_than_reading_the_text"
_GROWING = f"{_ATTACK}::test_growing_statements_are_planned_in_bounded_work"

FAULTS = (
    Fault(
        "derived-columns-of-no-size",
        "dpsql.sql.lower.derived_tables:derive_column_info",
        "0 if has_public_subquery(relation) and not is_private(relation) else compute_expression_size(expr)",
        "0",
        "a chain of derived tables is written out with three times the operations at each level",
        f"{_ATTACK}::test_expression_that_an_engine_would_expand_is_refused[x * x + x AS x]",
    ),
    Fault(
        "shared-parts-built-each-time",
        "dpsql.plan.expressions:_Substitution.rewrite_expression",
        """if id(expr) not in self.done:
    self.done[id(expr)] = self._rebuild_expression(expr)""",
        "self.done[id(expr)] = self._rebuild_expression(expr)",
        "an expression is built anew for each place where it stands",
        f"{_ATTACK}::test_careless_substitution_builds_every_part",
    ),
    Fault(
        "shared-parts-walked-each-time",
        "dpsql.plan.expressions:_walk",
        "if id(expr) in visited:\n    return",
        "",
        "a walk over an expression visits a shared part for each place where it stands",
        f"{_ATTACK}::test_careless_substitution_builds_every_part",
    ),
    Fault(
        "domains-of-shared-parts-each-time",
        "dpsql.analysis.domains:_derive_part_domain",
        """if id(expr) not in found:
    found[id(expr)] = _derive_domain(expr, known, None, found)""",
        "found[id(expr)] = _derive_domain(expr, known, None, found)",
        "items that name others are derived for each place where these stand",
        f"{_GROWING}[aliases of aliases]",
    ),
    Fault(
        "statements-of-any-size",
        "dpsql.sql.lower.statement_context:check_statement_size",
        "compute_statement_size(outer) > MAX_STATEMENT",
        "False",
        "a statement of many long expressions is planned",
        f"{_ATTACK}::test_whole_statement_is_bounded",
    ),
    Fault(
        "conditions-of-any-number",
        "dpsql.sql.lower.statement_context:check_statement_size",
        "bound_conditions(outer) > MAX_CONDITIONS",
        "False",
        "an engine compares thousands of conditions with each other, after the charge",
        f"{_ATTACK}::test_conditions_of_all_levels_are_bounded",
    ),
    Fault(
        "names-before-brackets-searched-everywhere",
        "dpsql.sql.parse.rejection:refuse_brackets",
        "_read_name_before(tokens, place)",
        r"""re.search(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*\s*$", source.text[: tokens[place].start])""",
        "a long name before brackets takes minutes before the charge",
        f"{_HINTS}[a name before brackets]",
    ),
    Fault(
        "brackets-with-any-spaces",
        "dpsql.sql.parse.rejection:refuse_brackets",
        "_read_part(tokens, place)",
        r"""(lambda found: found and tuple(part or "" for part in found.groups()))(
            re.match(
                r"\[\s*(-?\d{1,9})?\s*(:)?\s*(-?\d{1,9})?\s*\]", source.text[tokens[place].start :]
            )
        )""",
        "spaces in brackets take hours before the charge",
        f"{_HINTS}[spaces in brackets]",
    ),
    Fault(
        "any-pattern-of-columns-tried",
        "dpsql.sql.lower.unknown_syntax:_is_simple_pattern",
        "len(text) <= _LONGEST_PATTERN and sum(map(text.count, '*?')) <= _MOST_REPEATED",
        "True",
        "a pattern of an analyst takes hours before the charge",
        f"{_HINTS}[a pattern of columns]",
    ),
    Fault(
        "unpayable-loss-planned",
        "dpsql.engine.charging:require_payable_loss",
        "require_payable(engine.ledger, engine.get_accounts(read), loss, engine.analyst, engine.reservation)",
        "",
        "a loss beyond the whole budget is planned before it is refused",
        f"{_ATTACK}::test_unaffordable_loss_is_refused_before_planning[pure-plan]",
    ),
    Fault(
        "selection-of-any-loss",
        "dpsql.planning.group_selection:calibrate_optimal_selection",
        "min(epsilon / groups, compute_sufficient_epsilon(each))",
        "epsilon / groups",
        "e^-ε is computed to as many digits as it has zeros, before the charge",
        f"{_ATTACK}::test_selection_of_keys_spends_no_more_than_needed",
    ),
)
