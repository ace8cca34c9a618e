"""Laws of the parsers: what is accepted means what was reviewed, and what is not named stays refused."""

from __future__ import annotations

import ast
import datetime as dt
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from importlib.resources import files

from sqlglot import exp

from dpsql.backends.duckdb import DuckDBBackend
from dpsql.backends.duckdb.versions import supports as engine_supports
from dpsql.engine.budgets import collect_budgets
from dpsql.engine.engine import Engine
from dpsql.engine.query_run import PlanOptions, QueryRun
from dpsql.engine.stages import lower, parse
from dpsql.errors import Error, QueryRejected
from dpsql.ledger import open_ledger
from dpsql.plan.text import compute_digest
from dpsql.plan.types import Value
from dpsql.policy import load
from dpsql.policy.request.query import Query
from dpsql.sql.lower.statement import lower_statement
from dpsql.sql.parse.older_parser import supports as parser_supports
from dpsql.sql.parse.parse import parse_statement
from dpsql.verification.clinic import POLICY, make_clinic
from dpsql.verification.law import Law, LawBroken, Part, require

NOON = dt.datetime(2026, 4, 1, 12)
"""When the statements of the corpus are asked."""
_LOSS = Fraction(10**15)
_TOGETHER = 25
_OLDER = frozenset({"syntax", "engine_function"})
"""Codes with which an older version may refuse what the newest one accepts."""


@dataclass(frozen=True, slots=True)
class CorpusStatement:
    """A statement of the corpus: its meaning, which is the digest of its plan, or the code of its refusal."""

    query: str
    parameters: tuple[Value, ...]
    digest: str | None = None
    code: str | None = None


@cache
def read_corpus() -> tuple[CorpusStatement, ...]:
    """Read the corpus, which is made of the queries of the test suite."""
    lines = (files("dpsql.verification") / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    found = []
    for line in lines:
        query, parameters, digest, code = json.loads(line)
        found.append(CorpusStatement(query, tuple(ast.literal_eval(parameters)), digest, code))
    return tuple(found)


@cache
def open_clinic() -> Engine:
    """Open the clinic with a ledger in memory."""
    rules = load(POLICY)
    ledger = open_ledger(":memory:", collect_budgets(rules, ["verifier"]))
    return Engine(rules, DuckDBBackend(make_clinic()), ledger, "verifier")


def compute_meaning(query: str, parameters: Sequence[Value]) -> str:
    """Return the digest of the plan of a statement. Raises the error that refuses it.

    The names of its columns do not count: each version of the parser writes expressions a little differently.
    """
    engine = open_clinic()
    asked = Query(query, tuple(parameters), None, default=_LOSS, time=NOON)
    lowered = lower(engine, parse(engine, QueryRun(asked, PlanOptions(), lookups=engine.public_lookups)))
    unnamed = tuple(replace(output, name="") for output in lowered.outer.outputs)
    return compute_digest(replace(lowered.outer, outputs=unnamed))


def check_meanings(statements: Sequence[CorpusStatement]) -> None:
    """Check that accepted statements mean what they did when they were reviewed."""
    for each in statements:
        try:
            found = compute_meaning(each.query, each.parameters)
        except QueryRejected as error:
            older = not (engine_supports("grammar") and parser_supports("positions"))
            if older and error.code in _OLDER:
                continue
            raise LawBroken(f"{each.query} is refused: {error.message}") from None
        require(found == each.digest, f"{each.query} has another plan")


def check_refusals(statements: Sequence[CorpusStatement]) -> None:
    """Check that refused statements stay refused."""
    for each in statements:
        try:
            compute_meaning(each.query, each.parameters)
        except Error:
            continue
        raise LawBroken(f"{each.query} is accepted; it was refused with {each.code}")


def check_arguments(statements: Sequence[CorpusStatement]) -> None:
    """Check that an argument which no rule names is refused on a node of each kind, whatever its name.

    Each node gets an argument of an unheard-of name, and one that its class has and this tree does not.
    """
    engine = open_clinic()
    for each in statements:
        try:
            statement = parse_statement(each.query)
            lower_statement(statement, engine.catalog, engine.public_lookups, each.parameters, at=NOON)
        except Error:
            continue
        chance = random.Random(each.query)
        nodes = [node for node in statement.query.walk(prune=is_unread) if not is_unread(node)]
        for node in chance.sample(nodes, min(1, len(nodes))):
            node.args["not_modelled"] = True
            try:
                lower_statement(statement, engine.catalog, engine.public_lookups, each.parameters, at=NOON)
            except QueryRejected:
                continue
            finally:
                del node.args["not_modelled"]
            raise LawBroken(f"{each.query}: {type(node).__name__} took an argument that is not named")


def is_unread(node: exp.Expr) -> bool:
    """Return whether a node is a common table expression that no FROM names."""
    read = {table.name for table in node.root().find_all(exp.Table)}
    return isinstance(node, exp.CTE) and node.alias not in read


def check_statement_kinds(text: str, expected: bool) -> None:
    """Check whether the engine's parser reads a text as one statement."""
    require(
        open_clinic().backend.can_parse(text) is expected,
        f"{text!r} is {'not ' * expected}read as one statement",
    )


ONE_STATEMENT = {
    "SELECT 1": True,
    "SELECT 1;": True,
    'SELECT \';\' AS a, "b;c" FROM (SELECT 1 AS "b;c") -- ; comment': True,
    "SELECT 1 /* ; SELECT 2 */": True,
    "SELECT 1; SELECT 2": False,
    "SELECT 1; DROP TABLE visits": False,
    "SELECT 'a; DROP TABLE visits": False,
    "SELECT (1": False,
    "SELECT 1 FROM": False,
    "": False,
    "-- nothing": False,
}
"""Texts, and whether the engine's parser reads one statement."""


def _split(
    check: Callable[[Sequence[CorpusStatement]], None], *, accepted: bool
) -> Callable[[], Iterator[Part]]:
    def list_parts() -> Iterator[Part]:
        chosen = [each for each in read_corpus() if (each.digest is not None) is accepted]
        for start in range(0, len(chosen), _TOGETHER):
            some = chosen[start : start + _TOGETHER]
            yield f"statements from {start + 1} on", partial(check, some)

    return list_parts


LAWS = (
    Law(
        "duckdb",
        "statements",
        "the engine's parser tells one statement from none and from several",
        lambda: (
            (repr(text), partial(check_statement_kinds, text, one)) for text, one in ONE_STATEMENT.items()
        ),
    ),
    Law(
        "sqlglot",
        "accepted statements",
        "each has the plan that was reviewed",
        _split(check_meanings, accepted=True),
    ),
    Law("sqlglot", "refused statements", "each stays refused", _split(check_refusals, accepted=False)),
    Law(
        "sqlglot",
        "unnamed arguments",
        "an argument of a node that no rule names is refused",
        _split(check_arguments, accepted=True),
    ),
)
