"""What a DuckDB schema declares beside types: keys, NOT NULL and CHECK, as queries of its catalogue."""

from __future__ import annotations

from typing import Final

NULLABLE: Final = """
    SELECT column_name, is_nullable FROM duckdb_columns()
    WHERE NOT internal AND {} AND table_name = {}
"""
CHECKS: Final = """
    SELECT expression FROM duckdb_constraints()
    WHERE {} AND constraint_type = 'CHECK' AND expression IS NOT NULL AND table_name = {}
"""
KEYS: Final = """
    SELECT schema_name, table_name, constraint_type, constraint_column_names, referenced_table, referenced_column_names
    FROM duckdb_constraints()
    WHERE database_name = current_database() AND constraint_type IN ('PRIMARY KEY', 'FOREIGN KEY')
    ORDER BY constraint_index
"""
