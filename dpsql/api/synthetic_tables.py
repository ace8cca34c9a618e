"""The synthetic tables, randomized tables and streams of a connection, and the public tables that they are queried as."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from dpsql.analysis.domains import list_combinations
from dpsql.backends.scratch_database import create_database
from dpsql.engine.streams import answer_stream_query, open_stream, require_current_entry
from dpsql.engine.synthetic import (
    build_hypothesis_table,
    make_local_table,
    make_synthetic_table,
    prepare_local_table,
    prepare_stream,
    prepare_synthetic_table,
)
from dpsql.errors import ProgrammingError, QueryRejected
from dpsql.policy.request.parameters import Parameters
from dpsql.policy.request.query import Query, QueryOptions
from dpsql.results.stream import Stream

if TYPE_CHECKING:
    from dpsql.api.engine_queries import OpenEngine
    from dpsql.engine.explain import Explanation
    from dpsql.engine.synthetic import PreparedSynthesis
    from dpsql.privacy.synthesis.stream import Cells, RunningStream, StreamedCount
    from dpsql.privacy.synthesis.workload import Counts
    from dpsql.results.local_table import LocalTable
    from dpsql.results.result import Receipt, Result
    from dpsql.results.synthetic_table import SyntheticTable

Workload = str | Iterable[Sequence[str] | str]


class PublicConnection(Protocol):
    """A connection to a database of public tables."""

    def query(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Result:
        """Return the answer to a SELECT."""
        ...

    def explain(self, sql: str, parameters: Parameters = (), **options: Unpack[QueryOptions]) -> Explanation:
        """Return the plan of a SELECT."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


OpenPublicTables = Callable[[Any, Sequence[str]], PublicConnection]
"""Open a connection to a database in memory whose tables, with these names, are public."""


class SyntheticTables:
    """Makes synthetic tables, randomized tables and streams of private rows; it keeps the cells of its streams until it is closed."""

    def __init__(self, engine: OpenEngine, open_public_tables: OpenPublicTables) -> None:
        self._engine = engine
        self._open_public_tables = open_public_tables
        self._cell_tables: list[_CellTable] = []

    def make_table(
        self, query: Query, workload: Workload, method: str | None, rounds: int | None
    ) -> SyntheticTable:
        """Return a table of synthetic rows; see `Connection.synthetic`."""
        engine = self._engine.current
        with engine.backend.open_snapshot():
            return self.charge_table(prepare_synthetic_table(engine, query, workload, method, rounds))

    def charge_table(self, prepared: PreparedSynthesis) -> SyntheticTable:
        """Charge and return a prepared table, which can be queried."""
        made = make_synthetic_table(self._engine.current, prepared)
        return replace(made, _connect=self._connect_to_table)

    def randomize(self, query: Query) -> LocalTable:
        """Return a table of rows that are randomized one by one; see `Connection.randomize`."""
        engine = self._engine.current
        with engine.backend.open_snapshot():
            return make_local_table(engine, prepare_local_table(engine, query))

    def open_stream(
        self, query: Query, method: str, workload: Workload, updates: int, queries: int
    ) -> Stream:
        """Charge and open a stream of counting queries; see `Connection.stream`."""
        if method != "pmw":
            raise ProgrammingError(f"there is no method {method!r}", code="synthetic_method", hint="'pmw'")
        engine = self._engine.current
        with engine.backend.open_snapshot():
            prepared = prepare_stream(engine, query, workload, updates, queries)
            running, receipt = open_stream(engine, prepared.prepared)
        return self._build_stream(prepared, running, receipt)

    def _build_stream(self, prepared: PreparedSynthesis, running: RunningStream, receipt: Receipt) -> Stream:
        cell_table = _CellTable(prepared, self._open_public_tables)
        self._cell_tables.append(cell_table)
        engine = self._engine.current
        charged = engine.ledger.find_entry(receipt.entries[0]["id"])

        def answer_cells(cells: Cells) -> StreamedCount:
            with self._engine.current.backend.lock():
                return answer_stream_query(engine, running, cells, prepared.prepared, charged)

        def build_table(histogram: Counts) -> SyntheticTable:
            require_current_entry(engine, charged)
            made = build_hypothesis_table(prepared, histogram, receipt)
            return replace(made, _connect=self._connect_to_table)

        return Stream(
            prepared.columns,
            prepared.types,
            receipt,
            prepared.domains,
            answer_cells,
            running,
            cell_table.list_matching_cells,
            build_table,
        )

    def _connect_to_table(self, made: SyntheticTable) -> PublicConnection:
        """Return a connection to a synthetic table, which is public."""
        columns = list(zip(made.columns, made.types, strict=True))
        return self._open_public_tables(create_database(made.name, columns, made.rows), [made.name])

    def close(self) -> None:
        """Close the databases of cells; the streams end."""
        for cells in self._cell_tables:
            cells.close()


class _CellTable:
    """The public table of all cells of a stream, on which conditions are parsed and run as for any query."""

    def __init__(self, prepared: PreparedSynthesis, open_public_tables: OpenPublicTables) -> None:
        self._prepared = prepared
        self._open_public_tables = open_public_tables
        self._connection: PublicConnection | None = None

    def close(self) -> None:
        """Close the database of the table, if a condition has opened it."""
        if self._connection is not None:
            self._connection.close()

    def list_matching_cells(self, condition: str) -> list[int]:
        """Return the numbers of the cells that satisfy a condition; raise QueryRejected for a text that is not a condition."""
        if self._connection is None:
            named = self._prepared
            columns = [*zip(named.columns, named.types, strict=True), ("#cell", "BIGINT")]
            cells = [(*keys, place) for place, keys in enumerate(list_combinations(named.domains))]
            database = create_database("stream", columns, cells)
            self._connection = self._open_public_tables(database, ["stream"])
        found = self._connection.query(f'SELECT "#cell" FROM stream WHERE (\n{condition}\n)')
        places = [int(place) for (place,) in found.rows]  # type: ignore[arg-type]
        if len(found.columns) != 1 or len(set(places)) < len(places):
            raise QueryRejected("this is not a condition", code="condition", text=condition)
        return places
