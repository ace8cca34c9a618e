"""Faults of bounded work: what keeps the planning of a short statement short, whatever its analyst writes."""

from __future__ import annotations

from .fault import Fault

_ATTACK = "tests/attacks/test_a46_plans_that_explode.py"
_HINTS = "tests/sql/test_fuzzing.py::test_hint_costs_no_more_than_reading_the_text"
_PRODUCTS = "tests/analysis/test_public_work.py::test_products_are_refused_before_they_are_made"
_GROWING = f"{_ATTACK}::test_growing_statements_are_planned_in_bounded_work"

_RECURSIVE = "tests/sql/test_recursive_tables.py"

FAULTS = (
    Fault(
        "steps-of-any-number",
        "dpsql.sql.lower.recursive_tables:_run_steps",
        "None if found and found[-1][-1] == steps else [row[:-1] for row in found]",
        "[row[:-1] for row in found]",
        "a recursive query that does not end is answered with a part of its rows",
        f"{_RECURSIVE}::test_recursion_without_an_end_is_refused_soon",
    ),
    Fault(
        "recursions-each-by-itself",
        "dpsql.sql.lower.recursive_tables:_compute_rows",
        "context.source_counter.recursion_work += work * (len(found) // len(box.rows) + 1)",
        "",
        "a statement of many recursive queries takes the work of each before its charge",
        f"{_RECURSIVE}::test_recursions_of_a_statement_share_their_work",
    ),
    Fault(
        "recursive-texts-that-grow",
        "dpsql.sql.lower.recursive_tables:_check_item",
        "column.type is Type.VARCHAR and not copied",
        "False",
        "each step of a recursive query doubles a text",
        f"{_RECURSIVE}::test_what_is_private_or_may_grow_is_refused",
    ),
    Fault(
        "any-number-of-selects",
        "dpsql.sql.parse.parse:_check_length",
        "sum(token.token_type is TokenType.SELECT for token in tokens) > MAX_SELECTS",
        "False",
        "thousands of SELECTs are parsed, though no plan has so many",
        f"{_ATTACK}::test_long_texts_are_refused_before_they_are_parsed",
    ),
    Fault(
        "products-of-public-rows",
        "dpsql.analysis.public_work:require_bounded_products",
        "total > MOST_PUBLIC_ROWS",
        "False",
        "a subquery over three ranges takes the engine for as long as its analyst likes",
        _PRODUCTS,
    ),
    Fault(
        "products-made-to-count-them",
        "dpsql.engine.lookups:PublicLookups.look_up_multiplicity",
        "require_bounded_products(join.right, self)",
        "pass",
        "a product is made to look up how many rows a key of it has, before it is refused",
        _PRODUCTS,
    ),
    Fault(
        "products-of-answers-count-once",
        "dpsql.analysis.public_work:_PublicWork._bound_relation_rows",
        "self.bound_rows(relation.left) * self._bound_matches(relation)",
        "self.bound_rows(relation.left) + self._bound_matches(relation)",
        "the rows of a chain of products are taken for a sum",
        _PRODUCTS,
    ),
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
