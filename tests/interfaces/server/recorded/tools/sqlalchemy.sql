-- # Queries with the constructs that SQLAlchemy and Superset send, written for the tests; values of parameters and rows after the text.
-- connect
select pg_catalog.version();
-- schema
select current_schema();
-- strings
show standard_conforming_strings;
-- isolation
show transaction isolation level;
-- is there a table
SELECT pg_catalog.pg_class.relname FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_catalog.pg_namespace.oid = pg_catalog.pg_class.relnamespace WHERE pg_catalog.pg_class.relname = $1::VARCHAR AND pg_catalog.pg_class.relkind = ANY (ARRAY[$2::VARCHAR, $3::VARCHAR, $4::VARCHAR]) AND pg_catalog.pg_table_is_visible(pg_catalog.pg_class.oid) AND pg_catalog.pg_namespace.nspname != $5::VARCHAR;
-- values ["visits", "r", "p", "v", "pg_catalog"]
-- rows [["visits"]]
-- names of schemas
SELECT pg_catalog.pg_namespace.nspname FROM pg_catalog.pg_namespace WHERE pg_catalog.pg_namespace.nspname NOT LIKE $1::VARCHAR ORDER BY pg_catalog.pg_namespace.nspname;
-- values ["pg_%"]
-- rows [["emr"], ["information_schema"], ["public"]]
-- primary keys
SELECT attr.conrelid, array_agg(CAST(attr.attname AS TEXT) ORDER BY attr.ord) AS cols, attr.conname, min(attr.description) AS description, attr.extra FROM (SELECT con.conrelid AS conrelid, con.conname AS conname, con.conindid AS conindid, con.description AS description, con.ord AS ord, pg_catalog.pg_attribute.attname AS attname, NULL AS extra FROM pg_catalog.pg_attribute JOIN (SELECT pg_catalog.pg_constraint.conrelid AS conrelid, pg_catalog.pg_constraint.conname AS conname, pg_catalog.pg_constraint.conindid AS conindid, unnest(pg_catalog.pg_constraint.conkey) AS attnum, generate_subscripts(pg_catalog.pg_constraint.conkey, $1::INTEGER) AS ord, pg_catalog.pg_description.description AS description FROM pg_catalog.pg_constraint LEFT OUTER JOIN pg_catalog.pg_description ON pg_catalog.pg_description.objoid = pg_catalog.pg_constraint.oid WHERE pg_catalog.pg_constraint.contype = $2::VARCHAR AND pg_catalog.pg_constraint.conrelid IN (16384, 16385)) AS con ON pg_catalog.pg_attribute.attnum = con.attnum AND pg_catalog.pg_attribute.attrelid = con.conrelid) AS attr GROUP BY attr.conrelid, attr.conname, attr.extra ORDER BY attr.conrelid, attr.conname;
-- values [1, "p"]
-- rows [[16384, ["patient_id"], "patients_pkey", null, null]]
-- foreign keys
SELECT pg_catalog.pg_class.relname, pg_catalog.pg_constraint.conname, CASE WHEN (pg_catalog.pg_constraint.oid IS NOT NULL) THEN pg_catalog.pg_get_constraintdef(pg_catalog.pg_constraint.oid, true) END AS anon_1, nsp_ref.nspname, pg_catalog.pg_description.description FROM pg_catalog.pg_class LEFT OUTER JOIN pg_catalog.pg_constraint ON pg_catalog.pg_class.oid = pg_catalog.pg_constraint.conrelid AND pg_catalog.pg_constraint.contype = $1::VARCHAR LEFT OUTER JOIN pg_catalog.pg_class AS pg_class_ref ON pg_class_ref.oid = pg_catalog.pg_constraint.confrelid LEFT OUTER JOIN pg_catalog.pg_namespace AS nsp_ref ON pg_class_ref.relnamespace = nsp_ref.oid LEFT OUTER JOIN pg_catalog.pg_description ON pg_catalog.pg_description.objoid = pg_catalog.pg_constraint.oid JOIN pg_catalog.pg_namespace ON pg_catalog.pg_namespace.oid = pg_catalog.pg_class.relnamespace WHERE pg_catalog.pg_class.relkind = ANY (ARRAY['r', 'p']) AND pg_catalog.pg_table_is_visible(pg_catalog.pg_class.oid) AND pg_catalog.pg_namespace.nspname != 'pg_catalog' AND pg_catalog.pg_class.relname IN ('visits', 'wards') ORDER BY pg_catalog.pg_class.relname, pg_catalog.pg_constraint.conname;
-- values ["f"]
-- rows [["visits", "visits_patient_id_fkey", "FOREIGN KEY (patient_id) REFERENCES patients(patient_id)", "public", null], ["wards", null, null, null, null]]
-- comments of tables
SELECT c.relname, d.description FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON c.oid = d.objoid AND d.objsubid = 0 AND d.classoid = CAST('pg_catalog.pg_class' AS REGCLASS) WHERE c.relname = 'wards';
-- rows [["wards", "public"]]
-- Superset: databases
SELECT datname FROM pg_database WHERE datistemplate = false;
-- rows [["dpsql"]]
-- Superset: views
SELECT pg_get_viewdef(c.oid, true) FROM pg_class c WHERE c.relkind = 'v';
-- rows []
-- Superset: cancel
SELECT pg_backend_pid();
-- Superset: estimate of a schema
SELECT table_name FROM information_schema.views WHERE table_schema = 'public';
-- rows []
-- Superset: columns as written by its metadata browser
SELECT "columns"."column_name", "columns"."data_type" FROM "information_schema"."columns" AS "columns" WHERE "columns"."table_name" = 'wards' ORDER BY "columns"."ordinal_position";
-- rows [["beds", "bigint"], ["name", "text"]]
-- Superset: search path of a schema
SET search_path = "public";
