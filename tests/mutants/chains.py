"""Faults of chains of joins: conditions, rows that are counted, NULLs and groups that SQL knows otherwise."""

from __future__ import annotations

from .fault import Fault

_LAW = "tests/properties/test_join_chains.py"
_MEANT = f"{_LAW}::test_an_answer_is_duckdbs"
_REFUSED = f"{_LAW}::test_what_would_mean_something_else_is_refused"
_BOUNDED = f"{_LAW}::test_rows_are_bounded_by_what_a_unit_can_have"

FAULTS = (
    Fault(
        "condition-behind-an-outer-join-dropped",
        "dpsql.sql.lower.joins:_Assembly.join",
        "self.loose += [condition for condition in item.conditions if condition not in self.loose]",
        "self.loose += []",
        "an INNER JOIN after an outer one is on nothing",
        _MEANT,
    ),
    Fault(
        "conditions-not-compared",
        "dpsql.sql.lower.joins:check_applied",
        "outer or applied != required",
        "outer",
        "nothing says that each condition of FROM is in the relation",
        f"{_LAW}::test_a_condition_that_is_not_applied_is_refused",
    ),
    Fault(
        "full-join-then-right-join-never-null",
        "dpsql.sql.lower.from_clause:_attach",
        "scope.nullable |= {name for name, known in scope.tables.items() if known.relation is before_it}",
        "scope.nullable |= set()",
        "columns of the side that a RIGHT JOIN may leave empty are taken to be there",
        f"{_LAW}::test_columns_of_the_optional_side_may_be_null",
    ),
    Fault(
        "star-joins-counted-once",
        "dpsql.analysis.stability:_Rows._joined",
        "right * back",
        "right",
        "rows of a unit are lost where it has several on both sides of a join",
        _BOUNDED,
    ),
    Fault(
        "keys-of-groups-not-known-to-be-unique",
        "dpsql.analysis.stability:_distinguish",
        "return _named(keys) <= _named(columns)",
        "return False",
        "a unit is taken to have more rows than it can, and gets as much more noise",
        _BOUNDED,
    ),
    Fault(
        "value-of-no-rows-is-null",
        "dpsql.sql.lower.correlated:correlated",
        "isinstance(empty, Literal) and empty.value is None",
        "not alone",
        "COALESCE(SUM(x), 0) of no rows is NULL",
        _MEANT,
    ),
    Fault(
        "counts-of-no-rows-are-null",
        "dpsql.sql.lower.correlated:_of_no_rows",
        'return Literal(0 if function.startswith("count") else None, kind)',
        "return Literal(None, kind)",
        "COUNT(*) + 1 of no rows is NULL",
        _MEANT,
    ),
    Fault(
        "null-compared-with-one-unit",
        "dpsql.sql.lower.semi_joins:_check_unknown",
        "not never_null(side, right if inside else relation)",
        "never_null(side, right if inside else relation) and not inside",
        "NULL NOT IN (…) is true where others have rows",
        _REFUSED,
    ),
    Fault(
        "optional-sides-are-never-null",
        "dpsql.analysis.nullability:_column",
        "return relation.kind is JoinKind.INNER and _column(column, relation.right)",
        "return _column(column, relation.right)",
        "the NULLs of an outer join are taken for one unit's group",
        _REFUSED,
    ),
    Fault(
        "null-identifies",
        "dpsql.analysis.unit_identity:identity",
        "return named if named is not None and never_null(expr, relation) else None",
        "return named",
        "the rows of all units without an id are one group in SQL, and one of each unit here",
        _REFUSED,
    ),
    Fault(
        "groups-of-one-unit-released",
        "dpsql.sql.lower.own_unit:check_groups",
        "secret and separated_identity(key, relation) is not None",
        "not secret and separated_identity(key, relation) is not None",
        "groups of one unit each are released, of which none is shown",
        _REFUSED,
    ),
    Fault(
        "shifted-ids-are-no-ids",
        "dpsql.analysis.unit_identity:separated_identity",
        "return separated_identity(read[0], relation) if len(read) == 1 else None",
        "return None",
        "GROUP BY id + 0 is a release of hidden groups",
        _REFUSED,
    ),
)
