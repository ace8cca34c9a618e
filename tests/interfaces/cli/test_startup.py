"""What starting costs: heavy libraries are loaded when they are needed, not before."""

from __future__ import annotations

import subprocess
import sys

import pytest
from small_study import POLICY

HEAVY = (
    "duckdb",
    "numpy",
    "pandas",
    "polars",
    "prompt_toolkit",
    "pyarrow",
    "rich",
    "scipy",
    "sqlalchemy",
    "sqlglot",
)


def loaded(program: str) -> set[str]:
    """The heavy libraries that a fresh Python holds after a program."""
    text = f"{program}\nimport sys\nprint('\\n' + ' '.join(m for m in sys.modules if '.' not in m or m == 'scipy.stats'))"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(ran.stdout.splitlines()[-1].split()) & {*HEAVY, "scipy.stats"}


@pytest.mark.parametrize(
    "program",
    [
        "import dpsql",
        "import dpsql.interfaces.cli\ntry: dpsql.interfaces.cli.main(['--help'])\nexcept SystemExit: pass",
    ],
)
def test_importing_and_helping_are_light(program: str) -> None:
    """Neither `import dpsql` nor `dpsql --help` loads an engine, a parser or a numerical library."""
    assert loaded(program) == set()


def test_a_query_needs_neither_pandas_nor_statistics() -> None:
    """Answering from a DuckDB connection loads no frame library and no scipy.stats."""
    program = f"""
import dpsql, duckdb
db = duckdb.connect()
db.execute("CREATE TABLE visits AS SELECT 1 AS patient_id, 'A' AS plan, 0 AS region, 1.0::DOUBLE AS cost, "
           "DATE '2024-01-01' AS day, '' AS note")
db.execute("CREATE TABLE regions AS SELECT 0 AS id")
con = dpsql.connect(db, policy={POLICY!r}, ledger=":memory:", epsilon=1)
con.query("SELECT plan, COUNT(*), AVG(cost) FROM visits GROUP BY plan").intervals()
"""
    assert not loaded(program) & {"pandas", "polars", "pyarrow", "scipy.stats", "rich", "prompt_toolkit"}
