"""pyqrlew: rewrites SQL to SQL whose noise the database makes. Here that is DuckDB, which runs its PostgreSQL.

Its Gaussian noise is calibrated by the textbook's formula at an equal share of ε and δ for each aggregate,
which spends less than it says. It is charged for the Gaussians that are in its SQL, by their exact profile
together, and asked for as much more.
"""

from __future__ import annotations

import json
import re
from typing import Any

import duckdb
import pyqrlew
import sqlalchemy
from pyqrlew import Dialect

from benchmarks.accuracy.peers.job import Ask, Question, Refused, Rows, serve
from benchmarks.accuracy.spending import bisect, classical_multiplier, gaussian_epsilon

NAME = re.compile(r'"[^"]+"')
FUNCTIONS = {"VAR": "VARIANCE", "STDDEV": "STDDEV"}


def prepare(question: Question, epsilon: float, delta: float) -> Ask:
    """Rewrites the query at the ε whose noise spends what was asked for."""
    if any(function == "MEDIAN" for _, function, _ in question.outputs):
        raise Refused("no MEDIAN")
    dataset = _dataset(question)
    relation = dataset.relation(question.sql(FUNCTIONS), Dialect.PostgreSql)

    def rewritten(asked: float) -> Any:
        return relation.rewrite_with_differential_privacy(
            dataset,
            [("t", [], "unit")],
            {"epsilon": asked, "delta": delta},
            max_multiplicity=float(question.rows_per_unit),
            max_multiplicity_share=1.0,
            max_privacy_unit_groups=question.groups_per_unit,
        )

    first = rewritten(epsilon)
    events = _events(first.dp_event().to_dict())
    drawn = _sql(first).count("COS(")
    asked = bisect(lambda asked: spent(events, drawn, asked, delta), epsilon, epsilon, 3 * epsilon)
    exact, noisy = stages(_sql(rewritten(asked)))
    opened = duckdb.connect()
    opened.execute(f"CREATE TABLE t AS SELECT * FROM '{question.table}'")
    for stage in exact:
        name = NAME.match(stage)
        opened.execute(
            f"CREATE TABLE {name and name.group()} AS WITH {stage} SELECT * FROM {name and name.group()}"
        )

    def ask() -> Rows:
        return opened.execute(noisy).fetchall()

    return ask


def spent(events: list[dict[str, Any]], drawn: int, asked: float, delta: float) -> float:
    """What is really spent where `asked` is asked for: for the choice of keys as it says, and by `drawn` Gaussians."""
    gaussians = [event for event in events if event["class_name"] == "GaussianDpEvent"]
    keys = 0.5 if len(gaussians) < len(events) else 0.0
    shares = len(gaussians)
    left = (1 - keys) / shares
    noise = classical_multiplier(asked * left, delta * left)
    return keys * asked + gaussian_epsilon([noise] * min(drawn, shares), delta * (1 - keys))


def _kind(field: dict[str, Any]) -> dict[str, Any]:
    """What is known of a column, under the name of its type."""
    return {name: value for name, value in field["statistics"].items() if name != "name"}


def stages(sql: str) -> tuple[list[str], str]:
    """The common table expressions before the first with noise, and the query that the rest is.

    >>> stages('WITH "a" ("x") AS (SELECT 1, 2), "b" AS (SELECT RANDOM() FROM "a") SELECT * FROM "b"')
    (['"a" ("x") AS (SELECT 1, 2)'], 'WITH "b" AS (SELECT RANDOM() FROM "a") SELECT * FROM "b"')
    """
    depth, start, found = 0, len("WITH "), []
    for place, letter in enumerate(sql):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter == ",":
            found.append(sql[start:place].strip())
            start = place + 1
    noiseless = next((at for at, stage in enumerate(found) if "RANDOM()" in stage), len(found))
    rest = sql[sql.index(found[noiseless]) if noiseless < len(found) else start :].strip()
    return found[:noiseless], f"WITH {rest}"


def _events(event: dict[str, Any]) -> list[dict[str, Any]]:
    return event.get("events", [event])


def _sql(rewritten: Any) -> str:
    return rewritten.relation().to_query(Dialect.PostgreSql)


def _dataset(question: Question) -> Any:
    """The table as Qrlew sees it: names, types, bounds and public keys; of the size a public bound."""
    engine = sqlalchemy.create_engine(
        "sqlite://", poolclass=sqlalchemy.pool.StaticPool, connect_args={"check_same_thread": False}
    )
    values = [(name, "INTEGER" if name in question.whole else "FLOAT") for name in question.bounds]
    columns = [("unit", "INTEGER"), *((name, "VARCHAR") for name in question.key_names), *values]
    with engine.begin() as opened:
        opened.execute(sqlalchemy.text(f"CREATE TABLE t ({', '.join(map(' '.join, columns))})"))
    made = pyqrlew.Dataset.from_database("d", engine, None)
    size = json.loads(made.size)
    struct = size["statistics"]["union"]["fields"][0]["statistics"]["struct"]
    for part in (struct, *(next(iter(_kind(field).values())) for field in struct["fields"])):
        part["size"] = str(question.public_size)
    spec = str(made).splitlines()[0].removeprefix("Dataset: ")
    dataset = pyqrlew.Dataset.from_str(spec, made.schema, json.dumps(size))
    for name, (low, high) in question.bounds.items():
        dataset = dataset.with_range(None, "t", name, float(low), float(high))
    for name, keys in question.keys:
        if keys is not None:
            dataset = dataset.with_possible_values(None, "t", name, list(keys))
    return dataset


if __name__ == "__main__":
    serve(prepare)
