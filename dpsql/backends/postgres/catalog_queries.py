"""What PostgreSQL's catalogue says of tables: columns, what stands behind a name, and what a role may do. No row is read."""

from __future__ import annotations

SCHEMA = """
    SELECT n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), t.typtype,
           CASE WHEN NOT (has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'))
                THEN 'NOT GRANTED TO THIS ROLE'
                WHEN a.attgenerated = 'v' THEN 'COMPUTED WHEN READ'
                WHEN t.typtype <> 'e' AND tn.nspname <> 'pg_catalog' THEN upper(t.typname) || ' (EXTENSION)' END,
           ARRAY(SELECT e.enumlabel::text FROM pg_enum AS e WHERE e.enumtypid = a.atttypid ORDER BY e.enumsortorder)
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN pg_type AS t ON t.oid = a.atttypid
    JOIN pg_namespace AS tn ON tn.oid = t.typnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND c.relpersistence <> 't'
      AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'
      AND NOT c.relispartition
    ORDER BY n.nspname <> 'public', n.nspname, c.relname, a.attnum
"""
"""The columns of all tables and views, but for partitions, which are read through their table; and why one is not read.

A right to columns alone is not enough for the lock under which a query reads."""

RELATION = """
    WITH RECURSIVE parts AS (
        SELECT c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = %s AND c.relname = %s
        UNION SELECT i.inhrelid FROM pg_inherits AS i JOIN parts ON i.inhparent = parts.oid
    )
    SELECT c.oid::bigint, c.relkind, c.relrowsecurity, COALESCE(m.amname, 'heap'), c.relpersistence
    FROM parts JOIN pg_class AS c ON c.oid = parts.oid LEFT JOIN pg_am AS m ON m.oid = c.relam
"""
"""A relation and those that inherit from it: its number, kind, row security, access method and persistence."""

DECLARED = """
    SELECT a.attname, a.attnotnull, NOT COALESCE(l.collisdeterministic, TRUE) FROM pg_attribute AS a
    JOIN pg_class AS c ON c.oid = a.attrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
    WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
"""
"""The columns; whether each is NOT NULL, and whether its collation takes texts for equal that differ."""

CHECKS = """
    SELECT pg_get_expr(k.conbin, k.conrelid) FROM pg_constraint AS k
    JOIN pg_class AS c ON c.oid = k.conrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND k.contype = 'c' AND k.convalidated
    ORDER BY k.conname
"""
"""The conditions of a table's CHECK constraints that hold for all its rows."""

KEYS = """
    SELECT n.nspname, c.relname, CASE k.contype WHEN 'p' THEN 'PRIMARY KEY' WHEN 'u' THEN 'UNIQUE' ELSE 'FOREIGN KEY' END,
           ARRAY(SELECT a.attname::text FROM unnest(k.conkey) WITH ORDINALITY AS u (number, place)
                 JOIN pg_attribute AS a ON a.attrelid = k.conrelid AND a.attnum = u.number ORDER BY place),
           t.relname,
           ARRAY(SELECT a.attname::text FROM unnest(k.confkey) WITH ORDINALITY AS u (number, place)
                 JOIN pg_attribute AS a ON a.attrelid = k.confrelid AND a.attnum = u.number ORDER BY place)
    FROM pg_constraint AS k
    JOIN pg_class AS c ON c.oid = k.conrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_class AS t ON t.oid = k.confrelid
    WHERE k.contype IN ('p', 'u', 'f') AND k.convalidated AND NOT c.relispartition
      AND (t.oid IS NULL OR t.relnamespace = c.relnamespace)
    ORDER BY n.nspname, c.relname, k.conname
"""
"""The primary, unique and foreign keys, as `declared_keys.build_table_keys` reads them."""

SERVER = """
    SELECT current_database(), current_setting('server_version_num')::int, current_setting('server_encoding'),
           (SELECT oid::bigint FROM pg_database WHERE datname = current_database()),
           current_setting('is_superuser') = 'on',
           (SELECT rolcreaterole OR rolcreatedb OR rolbypassrls OR rolreplication
            FROM pg_roles WHERE rolname = current_user)
"""

IDENTITY = "SELECT (SELECT system_identifier FROM pg_control_system()), (SELECT timeline_id FROM pg_control_checkpoint())"

WRITABLE = """
    SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND n.nspname NOT LIKE 'pg\\_%'
      AND (pg_has_role(c.relowner, 'USAGE') OR has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE'))
    ORDER BY 1, 2
"""
"""The tables that the role may change."""

READABLE = """
    SELECT n.nspname, c.relname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
      AND n.nspname NOT LIKE 'pg\\_%' AND NOT c.relispartition
      AND has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
    ORDER BY 1, 2
"""
"""The tables that the role may read."""
