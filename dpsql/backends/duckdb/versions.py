"""What differs between the reviewed versions of DuckDB, as one table with a reason for each line."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import duckdb

from dpsql.version import Difference

DIFFERENCES: Mapping[str, Difference] = {
    "common_subplan": Difference(
        (1, 5),
        "the optimizer `common_subplan`, which is disabled",
        "nothing is disabled",
        "the optimizer does not exist, and DuckDB refuses to disable what it does not know",
    ),
    "qualified_scans": Difference(
        (1, 5),
        "a bound plan names the database and the schema of a scanned table",
        "a table or view is refused if it reads a name that two schemas have",
        "the plan does not say which of them is read, and one may be private and the other public",
    ),
    "allowed_configs": Difference(
        (2, 0),
        "`allowed_configs`, the settings that a locked configuration still accepts",
        "the configuration is locked after all other settings were applied; a later connection to a file that is open already reads "
        "its bound plans on a session of the first, since `explain_output` is a setting of a connection there",
        "`lock_down` applies settings that DuckDB accepts only of an open database, and a locked one accepts none",
    ),
    "locked_pragmas": Difference(
        (2, 0),
        "a locked configuration refuses a PRAGMA that changes a setting",
        "PRAGMA still switches progress output, profiling and the optimizer of its own connection",
        "no text of an analyst reaches the engine; none of these PRAGMAs opens a file, loads an extension or changes a value, "
        "and `verify` tries each",
    ),
    "frame_views": Difference(
        (2, 0),
        "the view of a registered frame has its SQL, which names the scan of the frame",
        "such a view has no SQL, and the scan of Arrow tables is called `ARROW_SCAN`",
        "a view made by SQL always has its text; one without text whose plan is not the scan of a frame is refused",
    ),
    "total_moments": Difference(
        (2, 0),
        "TRY_CAST between types of moments gives NULL for moments that are infinite or too great",
        "the cast of a TIMESTAMP_S or TIMESTAMP_MS stands in a TRY, and that of a moment to TIME is of finite ones",
        "TRY_CAST itself fails on DuckDB 1.x; TRY catches what its operand raises",
    ),
    "total_truncation": Difference(
        (2, 0),
        "DATE_TRUNC gives a TIMESTAMP, and its statistics never fail",
        "its argument stands in a TRY, and its value is cast to a TIMESTAMP",
        "DuckDB 1.5 truncates the least and the greatest value of a table while it plans, where no TRY catches an error, but "
        "it has no such values of a TRY; the type on DuckDB 1.4 is DATE, whose first moment is the same value",
    ),
    "typed_null_lists": Difference(
        (2, 0),
        "an element of a list that is made of NULL is a text",
        "SPLIT_PART casts its value to VARCHAR",
        "on DuckDB 1.x it is NULL without a type; the cast of a text to VARCHAR is the text",
    ),
    "overlay": Difference(
        (2, 0),
        "the function OVERLAY",
        "it is refused (`engine_function`)",
        "the function does not exist",
    ),
    "partial_sums": Difference(
        (2, 0),
        "an optimizer that moves sums below joins",
        "sums are computed after joins",
        "the sums are the same; they take longer",
    ),
    "tilde": Difference(
        (2, 0),
        "`~` and `!~` find a pattern anywhere in a text",
        "a query of dpsql has that meaning on every version",
        "what is emitted is REGEXP_MATCHES, which has one meaning; DuckDB 1.x itself matches the whole text",
    ),
    "division": Difference(
        (2, 0),
        "a whole number divided by zero is an error",
        "what is emitted gives NULL before it divides",
        "DuckDB 1.x gives NULL itself",
    ),
    "grammar": Difference(
        (2, 0),
        "a comma after the last argument, a comparison with a list without parentheses, new keywords",
        "a query that the engine's own parser does not read is refused (`syntax`)",
        "the parser of the installed version decides, as on every version",
    ),
    "memory_share": Difference(
        (2, 0),
        "`memory_limit` may be a percentage of the machine's memory",
        "the limit is that share of the one with which DuckDB opens, which is 80%",
        "DuckDB reads the machine's memory itself",
    ),
    "identifier_cases": Difference(
        (2, 0),
        "`preserve_identifier_case` names a way of folding names",
        "it must be `true`",
        "both keep names as they are written",
    ),
}
"""Everything in which dpsql treats one version of DuckDB differently from another."""


@cache
def supports(name: str) -> bool:
    """Return whether the installed DuckDB has what a line of `DIFFERENCES` describes."""
    return DIFFERENCES[name].is_in(duckdb.__version__)
