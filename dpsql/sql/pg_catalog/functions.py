"""The functions of catalog queries: those of PostgreSQL that the emulator has, and those of the engine that are allowed.

Claim: none of them reads anything but its arguments and the emulator's tables.
Why: a macro is an expression over its parameters, the emulator's tables and functions of these lists; a table function is one
of the emulator's tables; a function of the session is replaced by a constant before the emulator runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.policy.names import normalize_name

PREFIX = "pg_fn_"
"""The prefix of the emulator's own functions."""
EXPAND_ARRAY = "_pg_expandarray"
"""The one function of the information schema that clients call: the items of an array with their places."""


def _allow_privileges(*allowed: str) -> str:
    """Return whether one of the privileges of the text `p` is allowed, as every table may be read and none written."""
    return f"regexp_matches(lower(p), '(^|,)\\s*({'|'.join(allowed)})\\s*(,|$)')"


_MAY_SELECT = _allow_privileges("select")
_MAY_USE = _allow_privileges("usage")
_MAY_CONNECT = _allow_privileges("connect")
_NAME_PARTS = 'regexp_extract_all(n, \'"[^"]*"|[^."]+\')'
_IS_PLAIN = "regexp_full_match(x, '[a-z_][a-z0-9_$]*')"
_QUOTED = "'\"' || replace(x, '\"', '\"\"') || '\"'"
# Each lookup renames the columns that it reads: an argument such as `oid` would be taken for a column of the lookup's table.
_COMMENTS = (
    "(SELECT objoid AS own_oid, objsubid AS own_place, description AS own_text FROM pg.pg_description)"
)
_DEFINITIONS = "(SELECT oid AS own_oid, place AS own_place, definition AS own_text FROM pg.shown_definitions)"
_RELATIONS = "(SELECT oid AS own_oid, shown AS own_shown FROM pg.shown_classes)"
_PARTS = "(SELECT oid AS own_oid, parts AS own_parts FROM pg.shown_names)"
_ROLES = "(SELECT oid AS own_oid, rolname AS own_name FROM pg.pg_roles)"
_SCHEMAS = "(SELECT oid AS own_oid, nspname AS own_name FROM pg.pg_namespace)"
_SETTINGS = "(SELECT lower(name) AS own_name, setting AS own_value FROM pg.pg_settings)"
_TYPES = "(SELECT oid AS own_oid, typname AS own_name, shown AS own_shown FROM pg.shown_types)"
_DEFINITION = f"(SELECT any_value(own_text) FROM {_DEFINITIONS} WHERE own_oid = o AND own_place"
_COMMENT = f"(SELECT any_value(own_text) FROM {_COMMENTS} WHERE own_oid = o AND own_place"

MACROS: Mapping[str, tuple[str, ...]] = {
    EXPAND_ARRAY: ("a := unnest(list_transform(a, lambda x, i: {'x': x, 'n': i}))",),
    "age": ("x := 2147483647",),
    "array_lower": ("a, d := list_transform([len(a)], lambda x: CASE WHEN x > 0 THEN 1 END)[1]",),
    "array_upper": ("a, d := list_transform([len(a)], lambda x: CASE WHEN x > 0 THEN x END)[1]",),
    "array_remove": ("a, x := list_filter(a, lambda i: i IS DISTINCT FROM x)",),
    "col_description": (f"o, n := {_COMMENT} = n)",),
    "format_type": (f"o, m := (SELECT any_value(own_shown) FROM {_TYPES} WHERE own_oid = o)",),
    "getdatabaseencoding": (" := 'UTF8'",),
    "has_any_column_privilege": (f"t, p := {_MAY_SELECT}", f"u, t, p := {_MAY_SELECT}"),
    "has_column_privilege": (f"t, c, p := {_MAY_SELECT}", f"u, t, c, p := {_MAY_SELECT}"),
    "has_database_privilege": (f"d, p := {_MAY_CONNECT}", f"u, d, p := {_MAY_CONNECT}"),
    "has_function_privilege": ("f, p := true", "u, f, p := true"),
    "has_schema_privilege": (f"s, p := {_MAY_USE}", f"u, s, p := {_MAY_USE}"),
    "has_sequence_privilege": ("s, p := false", "u, s, p := false"),
    "has_table_privilege": (f"t, p := {_MAY_SELECT}", f"u, t, p := {_MAY_SELECT}"),
    "has_type_privilege": ("t, p := true", "u, t, p := true"),
    "inet_client_port": (" := NULL::INTEGER",),
    "int4": ("x := CAST(x AS INTEGER)",),
    "int8": ("x := CAST(x AS BIGINT)",),
    "obj_description": (
        f"o := {_COMMENT} = 0)",
        f"o, c := {_COMMENT} = 0)",
    ),
    "parse_ident": (
        f"n := list_transform({_NAME_PARTS}, lambda x: CASE WHEN x LIKE '\"%' THEN x[2:-2] ELSE lower(trim(x)) END)",
    ),
    "pg_advisory_lock": ("k := ''", "k, l := ''"),
    "pg_advisory_unlock": ("k := true", "k, l := true"),
    "pg_advisory_unlock_all": (" := ''",),
    "pg_blocking_pids": ("p := []::INTEGER[]",),
    "pg_char_to_encoding": ("n := CASE WHEN upper(n) IN ('UTF8', 'UTF-8') THEN 6 ELSE -1 END",),
    "pg_collation_is_visible": ("o := true",),
    "pg_conf_load_time": (" := NULL::TIMESTAMP",),
    "pg_conversion_is_visible": ("o := true",),
    "pg_current_wal_lsn": (" := NULL::VARCHAR",),
    "pg_database_size": ("d := NULL::BIGINT",),
    "pg_encoding_to_char": ("n := CASE WHEN n = 6 THEN 'UTF8' ELSE '' END",),
    "pg_function_is_visible": ("o := true",),
    "pg_get_constraintdef": (f"o := {_DEFINITION} = 0)", f"o, p := {_DEFINITION} = 0)"),
    "pg_get_expr": ("e, o := NULL::VARCHAR", "e, o, p := NULL::VARCHAR"),
    "pg_get_function_arg_default": ("o, n := NULL::VARCHAR",),
    "pg_get_function_arguments": ("o := NULL::VARCHAR",),
    "pg_get_function_identity_arguments": ("o := NULL::VARCHAR",),
    "pg_get_function_result": ("o := NULL::VARCHAR",),
    "pg_get_function_sqlbody": ("o := NULL::VARCHAR",),
    "pg_get_functiondef": ("o := NULL::VARCHAR",),
    "pg_get_indexdef": (f"o := {_DEFINITION} = 0)", f"o, n, p := {_DEFINITION} = n)"),
    "pg_get_partkeydef": ("o := NULL::VARCHAR",),
    "pg_get_ruledef": ("o := NULL::VARCHAR", "o, p := NULL::VARCHAR"),
    "pg_get_serial_sequence": ("t, c := NULL::VARCHAR",),
    "pg_get_statisticsobjdef": ("o := NULL::VARCHAR",),
    "pg_get_statisticsobjdef_columns": ("o := NULL::VARCHAR",),
    "pg_get_triggerdef": ("o := NULL::VARCHAR", "o, p := NULL::VARCHAR"),
    "pg_get_userbyid": ("o := 'owner'",),
    "pg_get_viewdef": ("o := NULL::VARCHAR", "o, p := NULL::VARCHAR"),
    "pg_has_role": ("r, p := true", "u, r, p := true"),
    "pg_is_in_recovery": (" := true",),
    "pg_is_other_temp_schema": ("o := false",),
    "pg_is_wal_replay_paused": (" := false",),
    "pg_last_wal_receive_lsn": (" := NULL::VARCHAR",),
    "pg_last_wal_replay_lsn": (" := NULL::VARCHAR",),
    "pg_my_temp_schema": (" := 0",),
    "pg_opclass_is_visible": ("o := true",),
    "pg_operator_is_visible": ("o := true",),
    "pg_opfamily_is_visible": ("o := true",),
    "pg_partition_ancestors": ("o := unnest([]::UINTEGER[])",),
    "pg_relation_is_publishable": ("o := false",),
    "pg_relation_size": ("o := NULL::BIGINT", "o, f := NULL::BIGINT"),
    # A setting whose name is not a constant; the name of the macro says which table it reads.
    "pg_settings_value": (f"n := (SELECT any_value(own_value) FROM {_SETTINGS} WHERE own_name = lower(n))",),
    "pg_size_pretty": ("n := NULL::VARCHAR",),
    "pg_stat_get_numscans": ("o := NULL::BIGINT",),
    "pg_statistics_obj_is_visible": ("o := true",),
    "pg_table_is_visible": (
        "o := o IN (SELECT oid FROM pg.pg_class WHERE relnamespace IN (11, 2200))",
    ),
    "pg_table_size": ("o := NULL::BIGINT",),
    "pg_tablespace_location": ("o := ''",),
    "pg_tablespace_size": ("o := NULL::BIGINT",),
    "pg_total_relation_size": ("o := NULL::BIGINT",),
    "pg_try_advisory_lock": ("k := true", "k, l := true"),
    "pg_ts_config_is_visible": ("o := true",),
    "pg_ts_dict_is_visible": ("o := true",),
    "pg_ts_parser_is_visible": ("o := true",),
    "pg_ts_template_is_visible": ("o := true",),
    "pg_type_is_visible": ("o := true",),
    "pg_index_column_has_property": ("o, n, p := lower(p) IN ('asc', 'nulls_last', 'orderable', 'returnable')",),
    "pg_indexes_size": ("o := NULL::BIGINT",),
    "quote_ident": (f"n := list_transform([n], lambda x: CASE WHEN {_IS_PLAIN} THEN x ELSE {_QUOTED} END)[1]",),
    "quote_literal": ("n := '''' || replace(CAST(n AS VARCHAR), '''', '''''') || ''''",),
    "regclass_name": (
        f"o := (SELECT any_value(own_shown) FROM {_RELATIONS} WHERE own_oid = TRY_CAST(CAST(o AS VARCHAR) AS UINTEGER))",
    ),
    "regtype_name": (
        f"o := (SELECT any_value(own_shown) FROM {_TYPES} WHERE lower(CAST(o AS VARCHAR)) IN (CAST(own_oid AS VARCHAR), own_shown, own_name))",
    ),
    "schema_name": (f"o := (SELECT any_value(own_name) FROM {_SCHEMAS} WHERE own_oid = o)",),
    "shobj_description": ("o, c := NULL::VARCHAR",),
    "to_regclass": (f"n := (SELECT any_value(own_oid) FROM {_PARTS} WHERE own_parts = {PREFIX}parse_ident(n))",),
    "to_regnamespace": (f"n := (SELECT any_value(own_oid) FROM {_SCHEMAS} WHERE own_name = {PREFIX}parse_ident(n)[1])",),
    "to_regrole": (f"n := (SELECT any_value(own_oid) FROM {_ROLES} WHERE own_name = {PREFIX}parse_ident(n)[1])",),
    "to_regtype": (
        f"n := (SELECT any_value(own_oid) FROM {_TYPES} WHERE lower(regexp_extract(n, '([^.\"]+)\"?$', 1)) IN (own_shown, own_name))",
    ),
    "txid_current": (" := 1::BIGINT",),
    "txid_current_if_assigned": (" := NULL::BIGINT",),
}  # fmt: skip
"""PostgreSQL's functions in the emulator: parameters, and a definition over the emulator's tables.

A definition has each parameter once: nested calls of one that had two would be planned 2^depth times.
"""

TABLE_FUNCTIONS: Mapping[str, str] = {
    "pg_available_extensions": "pg_available_extensions",
    "pg_get_keywords": "pg_keywords",
    "pg_partition_ancestors": "pg_no_partitions",
    "pg_partition_tree": "pg_no_partitions",
    "pg_prepared_statement": "pg_prepared_statements",
    "pg_prepared_xact": "pg_prepared_xacts",
    "pg_show_all_settings": "pg_settings",
    "pg_stat_get_activity": "pg_stat_activity",
    "pg_timezone_abbrevs": "pg_timezone_abbrevs",
    "pg_timezone_names": "pg_timezone_names",
}
"""Functions that return a table of the emulator."""

SESSION_FUNCTIONS = {
    "current_user", "session_user", "user", "current_role", "current_database", "current_catalog", "current_schema",
    "current_schemas", "version", "pg_backend_pid", "current_setting", "inet_server_addr", "inet_server_port",
    "inet_client_addr", "pg_postmaster_start_time", "set_config", "current_timestamp", "current_date", "clock_timestamp",
    "statement_timestamp", "transaction_timestamp", "now", "localtimestamp",
}  # fmt: skip
"""Functions of the session, which are replaced by constants."""

BUILT_IN = {
    "abs", "all", "any", "some", "array_agg", "array_length", "array_to_string", "bool_and", "bool_or", "char_length", "coalesce", "concat",
    "count", "generate_series", "generate_subscripts", "greatest", "json_agg", "json_object_agg", "least", "left", "length",
    "lower", "ltrim", "max", "min", "nullif", "octet_length", "position", "right", "row_number", "rtrim",
    "split_part", "starts_with", "string_agg", "string_to_array", "strpos", "substr", "substring", "sum", "translate", "trim",
    "unnest", "upper",
}  # fmt: skip
VECTORS = {
    "indkey", "indclass", "indcollation", "indoption", "proargtypes", "stxkeys", "tgattr", "partattrs", "partclass",
    "partcollation",
}  # fmt: skip
"""Columns that are vectors in PostgreSQL, whose first item has the place 0; the places of arrays begin at 1."""
ALLOWED_NODES = (
    exp.Cast, exp.Case, exp.If, exp.Coalesce, exp.And, exp.Or, exp.Array, exp.ArrayAgg, exp.ArrayToString, exp.Count,
    exp.Max, exp.Min, exp.Sum, exp.Lower, exp.Upper, exp.Length, exp.Substring, exp.Concat, exp.Nullif, exp.Greatest,
    exp.Least, exp.GroupConcat, exp.Unnest, exp.Explode, exp.Posexplode, exp.GenerateSeries, exp.ExplodingGenerateSeries,
    exp.LogicalAnd, exp.LogicalOr, exp.RowNumber, exp.RegexpLike, exp.RegexpILike, exp.Exists, exp.Trim, exp.StrPosition,
    exp.Left, exp.Right, exp.ArraySize, exp.SplitPart, exp.Abs, exp.Literal, exp.StringToArray, exp.Translate,
)  # fmt: skip


def get_function_name(call: exp.Func) -> str:
    """Return the folded name of a function, as PostgreSQL calls it."""
    if isinstance(call, exp.Anonymous):
        return normalize_name(call.name)
    name = normalize_name(call.sql_name())
    return {"current_version": "version"}.get(name, name)
