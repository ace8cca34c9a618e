"""dpsql: ordinary SQL over private data, answered with differential privacy.

>>> import dpsql
>>> policy = {
...     "version": 1,
...     "privacy_unit": "person",
...     "budget": {"epsilon": 1},
...     "tables": {"people": {"unit": "row", "columns": {"age": {"type": "integer", "bounds": [0, 110]}}}},
... }
>>> import pyarrow
>>> people = pyarrow.table({"age": [30, 40, 50]})
>>> con = dpsql.connect({"people": people}, policy=policy, ledger=":memory:")
>>> len(con.query("SELECT COUNT(*), AVG(age) FROM people", epsilon=0.5))
1
"""

from dpsql.api.base_connection import BINARY, DATETIME, NUMBER, ROWID, STRING, Cursor
from dpsql.api.connect import apilevel, connect, paramstyle, threadsafety
from dpsql.api.connection import Connection
from dpsql.api.opening import SharedLedger
from dpsql.errors import (
    BackendError,
    BudgetExhausted,
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    LossError,
    NotSupportedError,
    OperationalError,
    PolicyError,
    ProgrammingError,
    QueryRejected,
    Warning,
)
from dpsql.interfaces.notebook import load_ipython_extension
from dpsql.results.result import Receipt, Result
from dpsql.version import VERSION

__version__ = VERSION

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "BackendError",
    "BudgetExhausted",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "LossError",
    "NotSupportedError",
    "OperationalError",
    "PolicyError",
    "ProgrammingError",
    "QueryRejected",
    "Receipt",
    "Result",
    "SharedLedger",
    "Warning",
    "apilevel",
    "connect",
    "load_ipython_extension",
    "paramstyle",
    "threadsafety",
]
