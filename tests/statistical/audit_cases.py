"""What is audited: a query, one privacy unit's rows on D and on D′, and the exact answers on both.

Each unit is a worst case: at a bound, beyond it, or with more rows than count.
"""

from __future__ import annotations

from typing import Any

from statistical.audit import WORLDS, Case

ROW: dict[str, Any] = {"unit": "row"}
CROWD = ((0, 0.0),) * 30
"""So many units at the lower bound that a mean's event is one of its sum."""


def person(rows: int, **rules: Any) -> dict[str, Any]:
    return {"unit": "unit", "rows_per_unit": rows, **rules}


CASES = [
    Case(name="COUNT, a row more", select="COUNT(*)", table=ROW, here=[(0, 1)], exact=[(3, 2)]),
    Case(
        name="SUM, a row at the upper bound",
        select="SUM(x)",
        table=ROW,
        bounds=(-4, 10),
        here=[(0, 10)],
        exact=[(15, 5)],
    ),
    Case(
        name="SUM, a row beyond the lower bound",
        select="SUM(x)",
        table=ROW,
        bounds=(-10, 4),
        here=[(0, -1e300)],
        exact=[(-5, 5)],
    ),
    Case(
        name="two sums by one cube, a row at the upper bound",
        select="SUM(x), SUM(3 - x)",
        table=ROW,
        here=[(0, 10)],
        exact=[(15, 5), (-6, 1)],
    ),
    Case(
        name="AVG, a row at the upper bound",
        select="AVG(x)",
        table=ROW,
        here=[(0, 10)],
        others=CROWD,
        exact=[(10 / 31, 0)],
    ),
    Case(
        name="COUNT, a person with more rows than count",
        select="COUNT(*)",
        table=person(5),
        here=[(0, 1)] * 9,
        exact=[(7, 2)],
        steps=5,
    ),
    Case(
        name="SUM, a person with more rows than count",
        select="SUM(x)",
        table=person(3),
        here=[(0, 10)] * 4,
        exact=[(35, 5)],
    ),
    Case(
        name="COUNT of people, in two groups each",
        select="COUNT(DISTINCT unit)",
        table=person(8, max_groups=2),
        here=[(0, 1), (1, 1)] * 3,
        others=[(0, 1), (1, 1)],
        exact=[(2, 1), (2, 1)],
        epsilon=2.5,
    ),
    Case(
        name="COUNT, a row in another group",
        select="COUNT(*)",
        table=ROW,
        neighbors="replace",
        here=[(0, 1)],
        gone=[(1, 1)],
        others=[(0, 1), (1, 1)],
        exact=[(2, 1), (1, 2)],
        epsilon=2.5,
    ),
    Case(
        name="SUM, a row at the other bound",
        select="SUM(x)",
        table=person(1),
        neighbors="replace",
        bounds=(-10, 10),
        here=[(0, 10)],
        gone=[(0, -10)],
        exact=[(15, -5)],
    ),
    Case(
        name="COUNT of people and SUM, a person at the upper bound",
        select="COUNT(DISTINCT unit), SUM(x)",
        table=person(1),
        here=[(0, 10)],
        exact=[(3, 2), (15, 5)],
        epsilon=3,
    ),
    Case(
        name="COUNT of secret keys, a row more near the threshold",
        select="COUNT(*)",
        table=ROW,
        keys="secret",
        delta=0.01,
        here=[(0, 1)],
        others=[(0, 1)] * 3,
        exact=[(4, 3)],
    ),
    Case(
        name="COUNT, a row more",
        accountant="zcdp",
        select="COUNT(*)",
        table=ROW,
        here=[(0, 1)],
        exact=[(3, 2)],
        steps=1,
    ),
    Case(
        name="SUM, a row at the upper bound",
        accountant="zcdp",
        select="SUM(x)",
        table=ROW,
        bounds=(-4, 10),
        here=[(0, 10)],
        exact=[(15, 5)],
    ),
    Case(
        name="AVG, a person with several rows",
        accountant="zcdp",
        select="AVG(x)",
        table=person(3),
        here=[(0, 10)] * 3,
        others=CROWD,
        exact=[(30 / 33, 0)],
    ),
    Case(
        name="COUNT, a person with more rows than count",
        accountant="zcdp",
        select="COUNT(*)",
        table=person(5),
        here=[(0, 1)] * 9,
        exact=[(7, 2)],
        steps=5,
    ),
    Case(
        name="COUNT of people, in two groups each",
        accountant="zcdp",
        select="COUNT(DISTINCT unit)",
        table=person(8, max_groups=2),
        here=[(0, 1), (1, 1)] * 3,
        others=[(0, 1), (1, 1)],
        exact=[(2, 1), (2, 1)],
        steps=1,
    ),
    Case(
        name="COUNT of people, a person in two other groups",
        accountant="zcdp",
        select="COUNT(DISTINCT unit)",
        table=person(1),
        neighbors="replace",
        here=[(0, 1)],
        gone=[(1, 1)],
        others=[(0, 1), (1, 1)],
        exact=[(2, 1), (1, 2)],
        steps=1,
    ),
    Case(
        name="COUNT of secret keys, a row more near the threshold",
        accountant="zcdp",
        select="COUNT(*)",
        table=ROW,
        keys="secret",
        delta=0.01,
        here=[(0, 1)],
        others=[(0, 1)] * 3,
        exact=[(4, 3)],
        steps=1,
    ),
]
ALONE = [
    Case(
        name=f"a secret key, {who}",
        accountant=accountant,
        select="COUNT(*)",
        keys="secret",
        epsilon=0.2,
        delta=0.02,
        table=table,
        here=here,
        others=others,
        worlds=2 * WORLDS,
    )
    for accountant in ("pure", "zcdp")
    for who, table, here, others in (
        ("a row alone", ROW, [(0, 1)], []),
        ("a person alone in two groups", person(6, max_groups=2), [(0, 1), (1, 1)] * 3, []),
        ("a third person", person(1, min_frequency=3), [(0, 1)], [(0, 1)] * 2),
    )
]
"""Cases where only δ says how often a key may be seen: on D′ it never is."""
