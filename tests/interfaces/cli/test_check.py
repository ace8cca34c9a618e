"""`dpsql check`: what a policy allows, and what planned queries would cost under it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from interfaces.cli.conftest import Run

import dpsql

QUERIES = """\
-- every month; a comment
SELECT plan, COUNT(*) AS n FROM visits GROUP BY plan;
SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1) AVG(cost) FROM visits
"""


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    """A file of two queries."""
    file = tmp_path / "monthly.sql"
    file.write_text(QUERIES, encoding="utf-8")
    return file


def test_check_sums_up_a_policy(run: Run, study: Path) -> None:
    """A valid policy is summed up; with the database, what it leaves out is named."""
    policy = study.with_suffix(".yaml")
    alone = run("check", policy)
    assert (alone.code, alone.err) == (0, "")
    assert "visits.cost" in alone.out
    assert "[0, 1000]" in alone.out
    held = run("check", policy, study)
    assert "every declared table and column" in held.out
    assert held.out.splitlines()[-1].endswith(": visits.undeclared, wages")


def test_check_refuses_with_the_line(run: Run, study: Path) -> None:
    """A wrong policy is an error with file and line, and exit code 1."""
    policy = study.with_suffix(".yaml")
    policy.write_text(policy.read_text(encoding="utf-8").replace("[0, 1000]", "[1000, 0]"), encoding="utf-8")
    ran = run("check", policy)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error[bounds_inverted]: ")
    assert f"{policy}, line 12" in ran.err
    assert "^" in ran.err


def test_check_against_another_database(run: Run, study: Path) -> None:
    """A declared column that the database lacks is an error."""
    policy = study.with_suffix(".yaml")
    policy.write_text(policy.read_text(encoding="utf-8").replace("cost:", "price:"), encoding="utf-8")
    assert run("check", policy).code == 0
    ran = run("check", policy, study)
    assert (ran.code, "error[column_missing]" in ran.err) == (1, True)


@pytest.mark.parametrize("with_database", [False, True])
def test_check_prices_planned_queries(run: Run, study: Path, planned: Path, *, with_database: bool) -> None:
    """Each query and all of them, with the database and without it; nothing is charged or made."""
    policy = study.with_suffix(".yaml")
    ran = run("check", planned, "--policy", policy, "-e", "0.1", *([study] if with_database else []))
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[2].startswith("1  SELECT plan, COUNT(*) AS n FROM visits GROUP BY")
    assert lines[3].startswith("2  SELECT WITH DIFFERENTIAL_PRIVACY")
    assert lines[-1].endswith("fits")
    assert run("check", planned, policy, "-e", "0.1").out == ran.out
    assert not study.with_suffix(".ledger").exists()


def test_check_compares_prices_with_the_remaining_budget(run: Run, study: Path, planned: Path) -> None:
    """The exit code is 1 if the remaining budget is too small for the plan."""
    policy = study.with_suffix(".yaml")
    assert run("query", study, "SELECT COUNT(*) FROM visits", "-e", "18.6").code == 0
    ran = run("check", planned, "--policy", policy, "-e", "0.1")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.splitlines()[-1].endswith("does not fit")


def test_check_plans_for_an_analyst(run: Run, study: Path, planned: Path) -> None:
    """Where analysts have budgets of their own, the plan is held against that of the one who is named."""
    policy = study.with_suffix(".yaml")
    rules = policy.read_text(encoding="utf-8")
    policy.write_text(f"{rules}\nanalysts: {{ana: {{epsilon: 3}}}}\n", encoding="utf-8")
    ran = run("check", planned, "--policy", policy, "-e", "0.1", "--analyst", "ana")
    assert ran.out.splitlines()[-1].startswith("visits for ana ")
    assert ran.code == int("does not fit" in ran.out)


def test_check_names_the_query_that_is_refused(run: Run, study: Path, planned: Path) -> None:
    """A refusal names file and query; the others are priced all the same, and the exit code is 1."""
    wrong = planned.with_name("wrong.sql")
    wrong.write_text("SELECT COUNT(*) FROM visits; SELECT SUM(price) FROM visits;", encoding="utf-8")
    ran = run("check", planned, wrong, "--policy", study.with_suffix(".yaml"), "-e", "0.1")
    assert ran.code == 1
    assert f"{wrong}, query 2:\nerror[column]: there is no column price" in ran.err
    assert "3 of 4 queries would be answered" in ran.err
    assert ran.out.splitlines()[4].startswith("3  SELECT COUNT(*) FROM visits")
    without = run("check", planned, "--policy", study.with_suffix(".yaml"))
    assert "error[epsilon_missing]" in without.err
    assert "--epsilon 0.1" in without.err


def test_check_without_public_tables(run: Run, study: Path, planned: Path) -> None:
    """What a public table holds decides what a join costs, so such a query needs the database."""
    planned.write_text("SELECT COUNT(*) FROM visits JOIN regions ON region = id", encoding="utf-8")
    policy = study.with_suffix(".yaml")
    alone = run("check", planned, "--policy", policy, "-e", "0.1")
    assert (alone.code, alone.out) == (1, "")
    assert "queries that read public tables need the database" in alone.err
    assert run("check", planned, "--policy", policy, study, "-e", "0.1").code == 0


@pytest.mark.parametrize(
    ("files", "code"), [(["no.sql"], "argument"), (["a.yaml", "b.db", "c.db"], "argument")]
)
def test_check_refuses_a_wrong_set_of_files(run: Run, files: list[str], code: str) -> None:
    """Queries without a policy, or a policy with two databases."""
    ran = run("check", *files)
    assert (ran.code, f"error[{code}]" in ran.err) == (1, True)


def test_check_of_a_file_that_is_no_text(run: Run, study: Path, tmp_path: Path) -> None:
    """A missing file, or one in another encoding."""
    binary = tmp_path / "latin.sql"
    binary.write_bytes(b"SELECT '\xe9'")
    for file in (binary, tmp_path / "missing.sql"):
        ran = run("check", file, "--policy", study.with_suffix(".yaml"))
        assert (ran.code, "error[query_file]" in ran.err) == (1, True)


WEAK = """version: 1
privacy_unit: person
budget: {epsilon: 3, delta: 1e-7}
max_epsilon: 1
default_epsilon: 0.8
per_analyst: {epsilon: 1}
analysts: {olga: {epsilon: 3}}
tables:
  visits:
    unit: person_id
    rows_per_unit: 3
    columns: {cost: {type: integer, bounds: [0, 9]}, e_mail: {type: varchar}, filename: {type: varchar}}
  wages:
    unit: row
    budget: {epsilon: 12, delta: 0.001}
    max_epsilon: 12
"""


def test_check_warns_of_weak_settings(run: Run, tmp_path: Path) -> None:
    """It warns of settings without effect, unreachable limits, weak guarantees and names of people; a sound policy has no warning."""
    policy = tmp_path / "weak.yaml"
    policy.write_text(WEAK)
    said = run("check", policy).out
    for line in (
        "visits: default_epsilon 0.8 is refused: its budget allows no query above ε 0.555",
        "visits: the budget of olga has no effect: it is not less than the budget of the table",
        "visits.e_mail looks like an identifier of people",
        "wages: ε 12 is weak",
        "wages: δ 0.001 is large",
        "wages: max_epsilon 12 has no effect: its budget allows no query above ε ",
    ):
        assert line in said, line
    assert "per_analyst has no effect" not in said
    assert "filename looks" not in said
    assert "\nmax_epsilon 1 has no effect" not in said
    policy.write_text(WEAK.partition("  wages")[0])
    assert (
        "max_epsilon 1 has no effect: no table's budget allows a query above ε 0.555"
        in run("check", policy).out
    )
    sound = WEAK.partition("  wages")[0].replace("max_epsilon: 1", "max_epsilon: 0.5").replace("0.8", "0.1")
    policy.write_text(sound.replace("olga: {epsilon: 3}", "olga: {epsilon: 2}").replace("e_mail", "mailing"))
    said = run("check", policy).out
    assert not any(word in said for word in ("no effect", "is weak", "is large", "identifier", "is refused"))


def test_check_says_how_many_questions_a_budget_holds(run: Run, tmp_path: Path) -> None:
    """In the currency of a query, at usual ε and the policy's own; and what protects whoever is in several tables."""
    policy = tmp_path / "clinic.yaml"
    policy.write_text(
        """
version: 1
privacy_unit: patient
budget: {epsilon: 4, delta: 1e-7}
default_epsilon: 0.2
tables:
  visits: {unit: id, rows_per_unit: 3}
  stays: {unit: id, rows_per_unit: 3}
  tests: {unit: id, rows_per_unit: 3, budget: {epsilon: 1, accountant: pure}}
""",
        encoding="utf-8",
    )
    said = run("check", policy).out
    assert "the budget of visits and stays holds 51 questions at ε 0.1, or 12 at ε 0.2, or 2 at ε 0.5" in said
    assert (
        "the budget of tests holds 10 questions at ε 0.1, or 5 at ε 0.2, or 2 at ε 0.5, or one at ε 1" in said
    )
    assert "protected at the sum of their budgets: ε 9, δ 3e-7" in said


def test_changed_data_of_the_same_version_are_noticed(run: Run, study: Path) -> None:
    """A first check notes a fingerprint; later ones say whether declared columns changed, until the version does."""
    policy, kept = study.with_suffix(".yaml"), study.with_suffix(".fingerprints")
    assert "recorded the fingerprint of data_version 1" in run("check", policy, study).out
    assert kept.stat().st_mode & 0o077 == 0
    noted = kept.read_bytes()

    def changed(sql: str) -> str:
        with duckdb.connect(str(study)) as connection:
            connection.execute(sql)
        ran = run("check", policy, study)
        assert ran.code == int("visits changed" in ran.out)
        return ran.out

    assert "the data match data_version 1" in changed("UPDATE visits SET undeclared = 0")
    assert "the data match" in changed("CREATE OR REPLACE TABLE visits AS FROM visits ORDER BY cost, note")
    run("query", study, "SELECT COUNT(*) FROM visits", "-e", "1")
    text = changed("INSERT INTO visits FROM visits LIMIT 2")
    assert "visits changed: the fingerprint of data_version 1 is from" in text
    assert "its last answer from" in text
    assert kept.read_bytes() == noted
    policy.write_text(policy.read_text(encoding="utf-8") + "data_version: 2\n", encoding="utf-8")
    assert "recorded the fingerprint of data_version 2" in run("check", policy, study).out
    assert "the data match data_version 2" in run("check", policy, study).out
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_bytes", _forbidden)
        assert "cannot read" in run("check", policy, study).out
    kept.write_text("[]", encoding="utf-8")
    assert "recorded the fingerprint of data_version 2" in run("check", policy, study).out


def test_check_counts_rows_whose_link_crosses_units(run: Run, tmp_path: Path) -> None:
    """For the owner alone, a link that joins few of its rows is named with the number of the others."""
    place, policy = tmp_path / "forum.duckdb", tmp_path / "forum.yaml"
    with duckdb.connect(str(place)) as database:
        database.execute(
            """
            CREATE TABLE posts AS SELECT i AS id, i % 10 AS author FROM range(50) AS t(i);
            CREATE TABLE comments AS SELECT i % 50 AS post, i % 9 AS author FROM range(900) AS t(i);
            CREATE TABLE likes AS SELECT i % 50 AS post, i % 50 % 10 AS author FROM range(100) AS t(i);
            CREATE TABLE words AS SELECT i % 50 AS post, i % 7 AS word FROM range(100) AS t(i);
            INSERT INTO comments VALUES (NULL, 1), (7, NULL), (1000, 1);
            """
        )
        (crossing,) = database.execute(
            "SELECT COUNT(*) FROM comments c JOIN posts p ON c.post = p.id WHERE c.author <> p.author"
        ).fetchone() or (0,)
    policy.write_text(
        """
version: 1
privacy_unit: author
budget: {epsilon: 10}
tables:
  posts: {unit: author, rows_per_unit: 5, unique: [id], columns: {id: {type: integer}}}
  comments: {unit: author, rows_per_unit: 100, unique: [post], links: [{columns: [post], references: [posts.id]}], columns: {post: {type: integer}}}
  likes: {unit: author, rows_per_unit: 10, links: [{columns: [post], references: [posts.id]}], columns: {post: {type: integer}}}
  words: {link: {column: post, references: posts.id}, rows_per_unit: 20, columns: {word: {type: integer}}}
""",
        encoding="utf-8",
    )
    said = run("check", policy, place).out
    assert (
        f"comments.post references posts.id, but {crossing:,} rows have the key of a row of another unit"
        in said
    )
    assert "likes.post references" not in said
    assert (
        "comments.post is declared unique, but 900 rows have a value that a row of another unit also has"
        in said
    )
    assert "posts.id is declared" not in said
    assert "words.post references" not in said
    with dpsql.connect(place, policy=policy, ledger=":memory:", epsilon=1) as connection:
        answer = connection.query("SELECT COUNT(*) FROM comments c JOIN posts p ON c.post = p.id")
        assert any("Rows of equal post are joined only within a unit" in text for text in answer.notices)
        own = connection.query("SELECT COUNT(*) FROM words w JOIN posts p ON w.post = p.id", epsilon=0.1)
        assert not any("within a unit" in text for text in own.notices)


def test_check_counts_texts_and_rows_that_are_not_read(run: Run, tmp_path: Path) -> None:
    """For the owner alone: cells of a file that are none of their column's type, and rows that belong to no unit."""
    (tmp_path / "stays.csv").write_text(
        "stay;person;day;cost;note\n1;7;2026-01-31;12,5;n/a\n2;7;31.01.2026;3.5;\n3;;n/a;4,0;x\n4;8; ;n/a;y\n5;p9;;;\n",
        encoding="utf-8-sig",
    )
    (tmp_path / "charges.csv").write_text("stay,n\n1,1\n3,1\n9,1\n,1\n2,1.5\n", encoding="utf-8")
    policy = tmp_path / "stays.yaml"
    policy.write_text(
        """
version: 1
privacy_unit: person
budget: {epsilon: 1}
tables:
  stays:
    source: stays.csv
    unit: person
    rows_per_unit: 3
    columns: {stay: {type: integer}, Person: {type: integer}, day: {type: date}, cost: {type: double}, note: {type: varchar}}
  charges:
    source: charges.csv
    link: {column: stay, references: stays.stay}
    rows_per_unit: 3
    columns: {stay: {type: integer}, n: {type: integer}}
""",
        encoding="utf-8",
    )
    said = run("check", policy).out
    assert (
        "stays.cost: 3 of 4 texts (75%) are not a valid double, read as NULL, the first in row 1: 12,5;"
        ' write decimal: "," for the column if all are written so' in said
    )
    assert (
        "stays.day: 2 of 3 texts (66%) are not a valid date, read as NULL, the first in row 2: 31.01.2026;"
        ' write format: "%d.%m.%Y"' in said
    )
    assert (
        "stays.person: 1 of 4 texts (25%) is not a valid integer, read as NULL, the first in row 5: p9;"
        in said
    )
    assert "charges.n: 1 of 5 texts (20%) is not a valid integer" in said
    assert "take no bounds, values or limits from them" in said
    assert "stays.note:" not in said
    assert "stays: 2 rows have no person, so they belong to no privacy unit and no answer reads them" in said
    assert "charges: 3 rows reference no row of stays with a unit, so no answer reads them" in said
    said = run("check", policy, tmp_path).out  # the same files as a folder
    assert "stays.cost: 3 of 4 texts (75%) are not a valid double" in said


def test_check_counts_unlisted_values_and_rows_beyond_the_limit(run: Run, tmp_path: Path) -> None:
    """For the owner alone: values that are none of the listed ones, and units with more rows than count, also through a link."""
    (tmp_path / "stays.csv").write_text(
        "stay,person,ward\n" + "".join(f"{i},{min(i, 7)},{'ABX'[i % 3]}\n" for i in range(12)),
        encoding="utf-8",
    )
    (tmp_path / "charges.csv").write_text("stay,n\n" + "8,1\n" * 6 + "1,1\n", encoding="utf-8")
    policy = tmp_path / "stays.yaml"
    policy.write_text(
        """
version: 1
privacy_unit: person
budget: {epsilon: 1}
tables:
  stays:
    source: stays.csv
    unit: person
    rows_per_unit: 3
    columns: {stay: {type: integer}, ward: {type: varchar, values: [A, B]}}
  charges:
    source: charges.csv
    link: {column: stay, references: stays.stay}
    rows_per_unit: 4
    columns: {stay: {type: integer}, n: {type: integer}}
""",
        encoding="utf-8",
    )
    ran = run("check", policy)
    assert "stays.ward: 4 of 12 values (33%) are none of the listed ones, read as NULL" in ran.out
    assert (
        "stays: 1 of 8 units (12%) have more than 3 rows, and an answer leaves out 2 of their rows" in ran.out
    )
    assert (
        "charges: 1 of 2 units (50%) have more than 4 rows, and an answer leaves out 2 of their rows"
        in ran.out
    )
    assert ran.code == 0


def _forbidden(_: Path) -> bytes:
    raise PermissionError(13, "Permission denied")
