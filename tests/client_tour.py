"""What an analyst does with dpsql-client, as one script: `python client_tour.py URL TOKEN`, where only the client is installed.

It prints a line when all of it worked. With `--frames`, pandas and polars are installed too, and are tried; without, no library is.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

_BEFORE = set(sys.modules)

import dpsql  # noqa: E402
from dpsql.errors import BudgetExhausted, QueryRejected  # noqa: E402

QUESTION = "SELECT city, COUNT(*) AS n FROM visits GROUP BY city"


def main(url: str, token: str, *, frames: bool) -> None:
    """Query the server in every way."""
    with dpsql.connect(url, token=token, epsilon=0.05) as con:
        if frames:
            _export_frames(con)
        else:
            _query(con)
            _fetch(con)
            _read_free_answers(con)
            _see_errors(con, url)
            _use_magic(url, token)
            _miss_libraries(con)
    _miss_the_engine()
    if not frames:
        loaded = {name.partition(".")[0] for name in set(sys.modules) - _BEFORE}
        foreign = loaded - set(sys.stdlib_module_names) - {"dpsql"}
        assert not foreign, foreign
    print(f"the client works ({dpsql.__version__})")


def _spent(con: Any) -> Any:
    return con.budget()["visits"].spent


def _query(con: Any) -> None:
    """An answer has intervals, notices and a receipt; the second time it is the same one, free."""
    first = con.query(QUESTION)
    assert type(first) is dpsql.Result
    assert [row[0] for row in first] == ["Bonn", "Cork"]
    assert "±95%" in str(first)
    assert "<table" in first._repr_html_()
    low, high = first.intervals()[0][1]
    wide, wider = first.intervals(0.99)[0][1]  # the server is asked for these
    assert wide < low < first.rows[0][1] < high < wider
    assert first.receipt.loss is not None
    assert type(first.notices) is tuple
    spent = _spent(con)
    again = con.query(QUESTION)
    assert again.rows == first.rows
    assert again.receipt.replayed == (first.receipt.entries[0]["id"],)
    assert con.find_answer_time(again.receipt) is not None
    assert con.combine(QUESTION).rows == first.rows
    assert _spent(con) == spent
    assert con.query(QUESTION, replay=False).receipt.replayed == ()
    assert _spent(con) != spent
    assert pickle.loads(pickle.dumps(first.receipt)) == first.receipt
    assert len(asyncio.run(con.aquery(QUESTION))) == 2
    few = con.query("SELECT COUNT(*) FROM visits WHERE city = ?", ["Bonn"], target_error=400)
    assert few.receipt.target is not None


def _fetch(con: Any) -> None:
    """The cursor of PEP 249."""
    assert (dpsql.apilevel, dpsql.paramstyle, dpsql.threadsafety) == ("2.0", "qmark", 1)
    with con.cursor() as cursor:
        cursor.execute(QUESTION)
        assert [column[0] for column in cursor.description] == ["city", "n"]
        assert cursor.description[1][1] == dpsql.NUMBER
        first, rest = cursor.fetchone(), cursor.fetchall()
        assert cursor.rowcount == len([first, *rest]) == 2
        assert cursor.fetchmany(3) == []
        _expect(dpsql.NotSupportedError, lambda: cursor.executemany(QUESTION, []), "executemany")


def _read_free_answers(con: Any) -> None:
    """The plan, the budget, a forecast and the schema."""
    spent = _spent(con)
    explained = con.explain("SELECT COUNT(DISTINCT patient) FROM visits", epsilon=0.2)
    assert "privacy boundary" in str(explained)
    assert explained.price is not None
    assert "pure" in str(con.budget())
    assert con.budget([QUESTION, "SELECT COUNT(*) FROM visits"], epsilon=0.1).fits
    assert con.describe().get_table("VISITS").columns[1].values == ("Bonn", "Cork")
    assert _spent(con) == spent


def _see_errors(con: Any, url: str) -> None:
    """Errors are those of dpsql, with their codes, places and hints."""
    spent = _spent(con)
    refused = _expect(QueryRejected, lambda: con.query("SELECT patient FROM visits"), "group_by")
    assert refused.charged is False
    assert "^" in str(refused)
    assert type(pickle.loads(pickle.dumps(refused))) is QueryRejected
    _expect(BudgetExhausted, lambda: con.query("SELECT COUNT(*) FROM visits", epsilon=3), "budget_exhausted")
    _expect(dpsql.Error, lambda: con.describe().get_table("patients"), "table")
    _expect(dpsql.ProgrammingError, lambda: con.query(QUESTION, dialect="oracle"), "dialect")
    other = dpsql.connect(url, token="dpsql_0000000000000000_" + "0" * 64)
    _expect(dpsql.OperationalError, lambda: other.query(QUESTION), "unauthenticated")
    _expect(dpsql.ProgrammingError, lambda: dpsql.connect(url, token="not a token"), "token")
    _expect(dpsql.ProgrammingError, lambda: dpsql.connect(url, policy="visits.yaml"), "argument")
    assert _spent(con) == spent


def _use_magic(url: str, token: str) -> None:
    """The magic of notebooks, in a shell that only keeps what it is given."""
    kept: dict[str, Any] = {}
    shell = SimpleNamespace(user_ns={}, push=kept.update)
    shell.register_magic_function = lambda magic, _, name: kept.update({name: magic})
    dpsql.load_ipython_extension(shell)
    kept["dpsql"](f"connect {url} --token {token} --epsilon 0.05")
    kept["dpsql"]("--into found", QUESTION)
    assert len(kept["found"]) == 2


def _miss_libraries(con: Any) -> None:
    """Without pandas and the like, an error names what to install, and nothing is charged for an answer that cannot be made."""
    found = con.query(QUESTION)
    assert "pip install './client[pandas]'" in str(_expect(ImportError, found.df))
    assert "pip install './client[polars]'" in str(_expect(ImportError, found.pl))
    assert "pip install pyarrow" in str(_expect(ImportError, found.to_arrow_table))
    assert "'./client[plot]'" in str(_expect(dpsql.ProgrammingError, found.plot, "plot_unavailable"))
    assert "'./client[altair]'" in str(_expect(dpsql.ProgrammingError, found.chart, "plot_unavailable"))
    spent = _spent(con)
    missing = _expect(ImportError, lambda: con.covariance(["patient", "patient"], source="visits"))
    assert "pip install numpy" in str(missing)
    assert _spent(con) == spent


def _export_frames(con: Any) -> None:
    """Data frames, as of the whole package."""
    found = con.query(QUESTION)
    assert list(found.df(intervals=True).columns) == ["city", "n", "n_low", "n_high"]
    assert str(found.df()["n"].dtype) == "Int64"
    assert found.pl().rows() == list(found.rows)
    assert con.execute(QUESTION).to_arrow_table().column_names == ["city", "n"]


def _miss_the_engine() -> None:
    """A database of this process needs the whole package, which the error names."""
    for options in ({}, {"policy": "visits.yaml"}):
        missing = _expect(
            dpsql.NotSupportedError,
            lambda given=options: dpsql.connect("v.duckdb", **given),
            "engine_missing",
        )
        assert "pip install ." in str(missing)
    assert "pip install ." in str(_expect(ImportError, lambda: dpsql.Connection))
    assert not hasattr(dpsql, "connections")
    assert "Connection" not in dpsql.__all__
    assert all(hasattr(dpsql, name) for name in dpsql.__all__)


def _expect(kind: type[Exception], call: Callable[[], Any], code: str | None = None) -> Any:
    """The error that a call raises."""
    error = _catch(kind, call)
    assert error is not None, f"no {kind.__name__}"
    assert code is None or error.code == code, error.code
    return error


def _catch(kind: type[Exception], call: Callable[[], Any]) -> Any:
    try:
        call()
    except kind as error:
        return error
    return None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], frames="--frames" in sys.argv)
