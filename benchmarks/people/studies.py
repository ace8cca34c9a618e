"""Eight studies of one structure: a table of people, two of what they did, what it was about, and a calendar.

Names, types and values differ between the studies, so that one shape becomes statements of eight businesses. All declared bounds hold
on the data, nobody has more rows than count, and the data follow from a seed.
"""

from __future__ import annotations

import csv
import datetime as dt
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

PEOPLE = 90
"""How many people each study has."""
FIRST, LAST = dt.date(2024, 1, 1), dt.date(2024, 12, 31)
MOST_FACTS, MOST_LOGS = 12, 6
"""The most rows of a person."""
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Study:
    """The names of a study by their roles, its values, the type of its amounts, and whether its policy lists the values of keys."""

    name: str
    names: Mapping[str, str]
    values: Mapping[str, Sequence[str]]
    amount: str
    listed: bool

    def get_name(self, role: str) -> str | None:
        """Return the name, or the value as a constant, that a role has here; None if there is no such role."""
        if role in self.names:
            return self.names[role]
        kind, place = role[:-1], role[-1:]
        if place.isdigit() and kind in self.values and 0 < int(place) <= len(self.values[kind]):
            return f"'{self.values[kind][int(place) - 1]}'"
        return None


_ROLES = (
    *("people", "id", "region", "tier", "joined", "age", "active", "facts", "key"),
    *("at", "day", "kind", "state", "amount", "qty", "code", "flag", "logs"),
    *("lat", "channel", "score", "items", "label", "class", "price"),
)


def _study(name: str, names: str, values: str, *, amount: str = "DOUBLE", listed: bool = True) -> Study:
    kinds = [part.split(",") for part in values.split("; ")]
    return Study(
        name,
        dict(zip(_ROLES, names.split(), strict=True)),
        dict(zip(("r", "t", "k", "s", "c", "l"), kinds, strict=True)),
        amount,
        listed,
    )


STUDIES = (
    _study(
        "web",
        "visitors visitor_id country device first_seen age subscribed "
        "events event_id event_time event_date event_name platform revenue quantity page_id is_bot "
        "sessions started_at channel engagement pages title section weight",
        "US,DE,FR,JP; phone,tablet,desktop; view,cart,checkout,purchase,search; ios,android,web; "
        "organic,paid,email; docs,blog,shop",
    ),
    _study(
        "shop",
        "customers customer_id country segment created_at age newsletter "
        "orders order_id ordered_at order_date category status amount quantity product_id is_gift "
        "reviews reviewed_at source rating products product_name department list_price",
        "UK,IE,NL,ES; consumer,business,reseller; books,games,garden,music,toys; shipped,returned,pending; "
        "site,app,store; media,home,kids",
        amount="DECIMAL(8,2)",
        listed=False,
    ),
    _study(
        "clinic",
        "person person_id state gender enrolled_on age insured "
        "visits visit_id visit_start visit_date visit_type outcome cost length_of_stay provider_id emergency "
        "measurements measured_at unit_source value_as_number providers provider_name specialty fee",
        "CA,NY,TX,WA; F,M,U; outpatient,inpatient,lab,emergency,telehealth; home,transfer,admitted; "
        "ward,home_kit,lab_a; cardiology,surgery,general",
    ),
    _study(
        "school",
        "students student_id district grade_level enrolled_on age lunch_program "
        "exams exam_id taken_at exam_date subject result points hours_studied course_id retake "
        "attendance checked_at period participation courses course_name faculty credits",
        "North,South,East,West; junior,middle,senior; math,physics,history,art,biology; pass,fail,absent; "
        "morning,noon,evening; science,humanities,arts",
        amount="INTEGER",
        listed=False,
    ),
    _study(
        "payroll",
        "employees emp_id office job_level hire_date age full_time "
        "payments payment_id paid_at pay_date pay_type pay_status gross_pay hours department_id is_bonus "
        "trainings held_at provider grade departments dept_name division cost_rate",
        "Oslo,Rome,Lima,Pune; junior,senior,lead; salary,overtime,bonus,travel,refund; paid,held,void; "
        "internal,vendor,online; sales,engineering,support",
        amount="DECIMAL(8,2)",
    ),
    _study(
        "freight",
        "shippers shipper_id hub contract since_date age insured "
        "shipments shipment_id shipped_at ship_date mode delivery_status freight_cost parcels route_id fragile "
        "claims filed_at medium severity routes route_name zone tariff",
        "Hamburg,Gdansk,Genoa,Porto; basic,plus,premium; road,rail,sea,air,courier; delivered,late,lost; "
        "phone,mail,portal; domestic,regional,overseas",
        listed=False,
    ),
    _study(
        "saas",
        "accounts account_id region plan signup_date age trial "
        "invoices invoice_id issued_at invoice_date product invoice_status mrr seats feature_id renewed "
        "logins logged_in_at client session_score features feature_name module unit_price",
        "emea,amer,apac,latam; free,pro,enterprise; core,storage,addon,support,training; open,paid,overdue; "
        "browser,mobile,api; analytics,billing,admin",
    ),
    _study(
        "helpdesk",
        "users user_id locale tier created_on age vip "
        "tickets ticket_id opened_at opened_on topic ticket_status minutes_open replies agent_id escalated "
        "surveys answered_at via satisfaction agents agent_name team hourly_rate",
        "en,de,es,pt; bronze,silver,gold; login,invoice,bug,feature,other; open,solved,closed; "
        "chat,mail,phone; first_line,second_line,field",
        amount="INTEGER",
        listed=False,
    ),
)
"""All of them, in order."""


def list_tables(study: Study) -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return the columns with their types of each table; `items` and `dim_date` are public."""
    name = study.names

    def columns(**kinds: str) -> list[tuple[str, str]]:
        return [(name[role], kind) for role, kind in kinds.items()]

    return {
        name["people"]: columns(
            id="INTEGER", region="VARCHAR", tier="VARCHAR", joined="DATE", age="INTEGER", active="BOOLEAN"
        ),
        name["facts"]: columns(
            key="INTEGER", id="INTEGER", at="TIMESTAMP", day="DATE", kind="VARCHAR", state="VARCHAR",
            amount=study.amount, qty="INTEGER", code="INTEGER", flag="BOOLEAN",
        ),
        name["logs"]: columns(id="INTEGER", lat="TIMESTAMP", channel="VARCHAR", score="DOUBLE"),
        name["items"]: [*columns(code="INTEGER", label="VARCHAR", price="DOUBLE"), (name["class"], "VARCHAR")],
        "dim_date": [
            ("cal_date", "DATE"), ("cal_year", "INTEGER"), ("cal_month", "INTEGER"), ("month_start", "DATE"),
            ("weekday_name", "VARCHAR"), ("is_weekend", "BOOLEAN"),
        ],
    }  # fmt: skip


def make_rows(study: Study) -> Mapping[str, list[Row]]:
    """Make the rows of each table; reals are multiples of a quarter, so that their sums are exact."""
    rng = random.Random(f"people {study.name}")
    name, values = study.names, study.values
    people: list[Row] = []
    facts: list[Row] = []
    logs: list[Row] = []

    def pick(options: Sequence[Any], nothing: float = 0.0) -> Any:
        # Later options are rarer, so that few counts are equal: which of equal groups comes first, no engine says.
        weights = range(len(options) + 3, 3, -1)
        return None if rng.random() < nothing else rng.choices(options, weights)[0]

    def draw_amount() -> Any:
        return (
            None
            if rng.random() < 0.03
            else rng.randint(1, 200)
            if study.amount == "INTEGER"
            else rng.randint(1, 800) / 4
        )

    for person in range(1, PEOPLE + 1):
        joined = FIRST + dt.timedelta(days=int(300 * rng.random() ** 2))
        people.append(
            (
                person,
                pick(values["r"], 0.02),
                pick(values["t"]),
                joined,
                pick(range(16, 90), 0.04),
                rng.random() < 0.4,
            )
        )
        left = (LAST - joined).days
        for second in rng.sample(range(left * 86_400), rng.choice((0, 1, 2, 4, 6, 8, 10, MOST_FACTS))):
            at = dt.datetime.combine(joined, dt.time()) + dt.timedelta(seconds=second)
            facts.append(
                (
                    len(facts) + 1, person, at, at.date(), pick(values["k"]), pick(values["s"], 0.03), draw_amount(),
                    pick(range(1, 10)), pick(range(1, 7)), pick((False, True), 0.05),
                )
            )  # fmt: skip
        for second in rng.sample(range(left * 86_400), rng.randint(0, MOST_LOGS)):
            at = dt.datetime.combine(joined, dt.time()) + dt.timedelta(seconds=second)
            logs.append((person, at, pick(values["c"]), pick([half / 2 for half in range(2, 11)], 0.08)))
    items = [
        (code, f"{values['l'][code % 3]} {code}", code * 2.5, values["l"][code % 3]) for code in range(1, 9)
    ]
    days = [FIRST + dt.timedelta(days=each) for each in range(366)]
    calendar = [
        (day, day.year, day.month, day.replace(day=1), day.strftime("%A"), day.weekday() >= 5) for day in days
    ]
    return {
        name["people"]: people,
        name["facts"]: facts,
        name["logs"]: logs,
        name["items"]: items,
        "dim_date": calendar,
    }


def make_policy(study: Study) -> dict[str, Any]:
    """Make the policy: bounds as its owner knows them, and the values of keys in half of the studies."""
    name = study.names
    days = {"type": "date", "bounds": [FIRST, LAST]}
    moments = {
        "type": "timestamp",
        "bounds": [dt.datetime(2024, 1, 1), dt.datetime(2024, 12, 31, 23, 59, 59)],
    }
    known = {} if study.name in ("web", "payroll") else {"nullable": False}
    amount = {"INTEGER": "integer", "DOUBLE": "double"}.get(study.amount, study.amount.lower())

    def text(kind: str) -> dict[str, Any]:
        return {"type": "varchar", **({"values": list(study.values[kind])} if study.listed else {})}

    def table(most: int, **columns: Any) -> dict[str, Any]:
        return {
            "unit": name["id"],
            "rows_per_unit": most,
            "columns": {name[role]: rule for role, rule in columns.items()},
        }

    return {
        "version": 1,
        "privacy_unit": "person",
        "budget": {"epsilon": 2**120, "delta": "1/2", "accountant": "basic"},
        "tables": {
            name["people"]: table(
                1, region=text("r"), tier={**text("t"), **known}, joined=days, age={"type": "integer", "bounds": [0, 110]},
                active={"type": "boolean"},
            ),
            name["facts"]: table(
                MOST_FACTS, key={"type": "integer"}, at=moments, day=days, kind={**text("k"), **known}, state=text("s"),
                amount={"type": amount, "bounds": [0, 250]}, qty={"type": "integer", "bounds": [1, 9]},
                code={"type": "integer", "bounds": [1, 6]}, flag={"type": "boolean"},
            ),
            name["logs"]: table(
                MOST_LOGS, lat=moments, channel=text("c"), score={"type": "double", "bounds": [0, 5]}
            ),
            name["items"]: {"public": True},
            "dim_date": {"public": True},
        },
    }  # fmt: skip


def fill(study: Study) -> duckdb.DuckDBPyConnection:
    """Return a database in memory with the study's rows."""
    database = duckdb.connect(config={"threads": 1})
    rows = make_rows(study)
    with tempfile.TemporaryDirectory() as folder:
        for table, columns in list_tables(study).items():
            database.execute(
                f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in columns)})"
            )
            path = Path(folder, table)
            with path.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file).writerows(rows[table])
            database.execute(f"COPY {table} FROM '{path}' (FORMAT csv, HEADER false)")
    return database
