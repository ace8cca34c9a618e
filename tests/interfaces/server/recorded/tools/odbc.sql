-- # Queries with the constructs that psqlODBC, Tableau and Excel send, written for the tests; values of parameters and rows after the text.
-- tables
SELECT relname, nspname, relkind FROM pg_catalog.pg_class c, pg_catalog.pg_namespace n WHERE relkind IN ('r', 'v', 'm', 'f', 'p') AND nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'pg_temp_1') AND n.oid = relnamespace ORDER BY nspname, relname;
-- rows [["labs", "emr", "r"], ["patients", "public", "r"], ["visits", "public", "r"], ["wards", "public", "r"]]
-- tables by a pattern
SELECT relname, nspname, relkind FROM pg_catalog.pg_class c, pg_catalog.pg_namespace n WHERE relname LIKE E'vis%' AND nspname LIKE E'public' AND relkind IN ('r') AND n.oid = c.relnamespace ORDER BY 1;
-- rows [["visits", "public", "r"]]
-- columns since PostgreSQL 12
SELECT n.nspname, c.relname, a.attname, a.atttypid, t.typname, a.attnum, a.attlen, a.atttypmod, a.attnotnull, c.relhasrules, c.relkind, c.oid, pg_get_expr(d.adbin, d.adrelid), CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE 0 END, t.typtypmod, 0, a.attidentity, c.relhassubclass FROM (((pg_catalog.pg_class c INNER JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND c.relname = E'wards' AND n.nspname = E'public') INNER JOIN pg_catalog.pg_attribute a ON (NOT a.attisdropped) AND a.attnum > 0 AND a.attrelid = c.oid) INNER JOIN pg_catalog.pg_type t ON t.oid = a.atttypid) LEFT OUTER JOIN pg_attrdef d ON a.atthasdef AND d.adrelid = a.attrelid AND d.adnum = a.attnum ORDER BY n.nspname, c.relname, attnum;
-- primary keys
SELECT ta.attname, ia.attnum, ic.relname, n.nspname, tc.relname FROM pg_catalog.pg_attribute ta, pg_catalog.pg_attribute ia, pg_catalog.pg_class tc, pg_catalog.pg_index i, pg_catalog.pg_namespace n, pg_catalog.pg_class ic WHERE tc.relname = E'patients' AND n.nspname = E'public' AND tc.oid = i.indrelid AND n.oid = tc.relnamespace AND i.indisprimary = 't' AND ia.attrelid = i.indexrelid AND ta.attrelid = i.indrelid AND ta.attnum = i.indkey[ia.attnum-1] AND (NOT ta.attisdropped) AND (NOT ia.attisdropped) AND ic.oid = i.indexrelid ORDER BY ia.attnum;
-- rows [["patient_id", 1, "patients_pkey", "public", "patients"]]
-- foreign keys
SELECT 'dpsql'::name AS "PKTABLE_CAT", n2.nspname AS "PKTABLE_SCHEM", c2.relname AS "PKTABLE_NAME", a2.attname AS "PKCOLUMN_NAME", 'dpsql'::name AS "FKTABLE_CAT", n1.nspname AS "FKTABLE_SCHEM", c1.relname AS "FKTABLE_NAME", a1.attname AS "FKCOLUMN_NAME", i::int2 AS "KEY_SEQ", CASE ref.confupdtype WHEN 'c' THEN 0::int2 WHEN 'n' THEN 2::int2 WHEN 'd' THEN 4::int2 WHEN 'r' THEN 1::int2 ELSE 3::int2 END AS "UPDATE_RULE", ref.conname AS "FK_NAME", cn.conname AS "PK_NAME", CASE WHEN ref.condeferrable THEN CASE WHEN ref.condeferred THEN 5::int2 ELSE 6::int2 END ELSE 7::int2 END AS "DEFERRABLITY" FROM ((((((((SELECT cn.oid, conrelid, conkey, confrelid, confkey, generate_series(array_lower(conkey, 1), array_upper(conkey, 1)) AS i, confupdtype, confdeltype, conname, condeferrable, condeferred FROM pg_catalog.pg_constraint cn, pg_catalog.pg_class c, pg_catalog.pg_namespace n WHERE contype = 'f' AND conrelid = c.oid AND relname = E'visits' AND n.oid = c.relnamespace AND n.nspname = E'public') ref INNER JOIN pg_catalog.pg_class c1 ON c1.oid = ref.conrelid) INNER JOIN pg_catalog.pg_namespace n1 ON n1.oid = c1.relnamespace) INNER JOIN pg_catalog.pg_attribute a1 ON a1.attrelid = c1.oid AND a1.attnum = conkey[i]) INNER JOIN pg_catalog.pg_class c2 ON c2.oid = ref.confrelid) INNER JOIN pg_catalog.pg_namespace n2 ON n2.oid = c2.relnamespace) INNER JOIN pg_catalog.pg_attribute a2 ON a2.attrelid = c2.oid AND a2.attnum = confkey[i]) LEFT OUTER JOIN pg_catalog.pg_constraint cn ON cn.conrelid = ref.confrelid AND cn.contype = 'p') ORDER BY ref.oid, ref.i;
-- rows [["dpsql", "public", "patients", "patient_id", "dpsql", "public", "visits", "patient_id", 1, 3, "visits_patient_id_fkey", "patients_pkey", 7]]
-- statistics of indexes
SELECT c.relname, i.indkey, i.indisunique, i.indisclustered, a.amname, c.relhasrules, n.nspname, c.oid, false, i.indoption FROM pg_catalog.pg_index i, pg_catalog.pg_class c, pg_catalog.pg_class d, pg_catalog.pg_am a, pg_catalog.pg_namespace n WHERE d.relname = E'patients' AND n.nspname = E'public' AND n.oid = d.relnamespace AND d.oid = i.indrelid AND i.indexrelid = c.oid AND c.relam = a.oid ORDER BY i.indisprimary DESC, i.indisunique, n.nspname, c.relname;
-- best row identifier
SELECT c.oid, attnum, attname, atttypid FROM pg_catalog.pg_class c, pg_catalog.pg_attribute a, pg_catalog.pg_index i WHERE a.attrelid = c.oid AND c.oid = i.indrelid AND a.attnum = ANY (i.indkey) AND i.indisprimary AND c.relname = 'patients';
-- procedures
SELECT proname, proretset, prorettype, pronargs, proargtypes, nspname, p.oid, atttypid, attname, proargnames, proargmodes, proallargtypes FROM ((pg_catalog.pg_namespace n INNER JOIN pg_catalog.pg_proc p ON p.pronamespace = n.oid) INNER JOIN pg_type t ON p.prorettype = t.oid) LEFT OUTER JOIN pg_attribute a ON a.attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped WHERE has_function_privilege(p.oid, 'EXECUTE') AND nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY nspname, proname, p.oid, attnum;
-- privileges of tables
SELECT relname, usename, relacl, nspname FROM pg_catalog.pg_namespace, pg_catalog.pg_class, pg_catalog.pg_user WHERE relname LIKE 'visits' AND pg_namespace.oid = relnamespace AND usesysid = relowner;
-- type of large objects
SELECT oid, typbasetype FROM pg_type WHERE typname = 'lo';
-- rows []
-- size of characters
SHOW max_identifier_length;
-- connection's settings
SET DateStyle = 'ISO';SET extra_float_digits = 2;SHOW transaction_isolation;
-- does the server take temporary tables
SELECT nspname FROM pg_namespace WHERE oid = pg_my_temp_schema();
-- columns of a query without rows
SELECT * FROM (SELECT relname FROM pg_class) AS "TableauSQL" LIMIT 0;
-- server's kind for Tableau
SELECT current_database(), current_schema(), version(), current_setting('server_version');
-- tables for Tableau
SELECT NULL::text AS table_cat, n.nspname AS table_schem, c.relname AS table_name, CASE n.nspname ~ '^pg_' OR n.nspname = 'information_schema' WHEN true THEN 'SYSTEM TABLE' WHEN false THEN CASE c.relkind WHEN 'r' THEN 'TABLE' WHEN 'v' THEN 'VIEW' ELSE NULL END ELSE NULL END AS table_type, d.description AS remarks FROM pg_catalog.pg_namespace n, pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_description d ON (c.oid = d.objoid AND d.objsubid = 0) WHERE c.relnamespace = n.oid AND n.nspname = 'emr' ORDER BY table_type, table_schem, table_name;
-- rows [[null, "emr", "labs", "TABLE", "private: it protects each patient; the unit column is patient_id"]]
-- custom keys of Tableau
SELECT c.conname, array_agg(a.attname ORDER BY a.attnum) FROM pg_constraint c JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey) WHERE c.contype = 'u' GROUP BY c.conname;
-- rows [["visits_visit_id_key", ["visit_id"]]]
