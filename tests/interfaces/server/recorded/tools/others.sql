-- # Queries with the constructs that dbt, ETL tools, notebooks, frameworks, pools and newer psql send, written for the tests; values of parameters and rows after the text.
-- dbt: relations
SELECT 'dpsql' AS database, tablename AS name, schemaname AS schema, 'table' AS type FROM pg_tables WHERE schemaname ILIKE 'public' UNION ALL SELECT 'dpsql' AS database, viewname AS name, schemaname AS schema, 'view' AS type FROM pg_views WHERE schemaname ILIKE 'public' UNION ALL SELECT 'dpsql', matviewname, schemaname, 'materialized_view' FROM pg_matviews WHERE schemaname ILIKE 'public';
-- dbt: columns with the name of the database
SELECT column_name, data_type, character_maximum_length, numeric_precision, numeric_scale FROM "dpsql".information_schema.columns WHERE table_name = 'wards' AND table_schema = 'public' ORDER BY ordinal_position;
-- rows [["beds", "bigint", null, 64, 0], ["name", "text", null, null, null]]
-- dbt: schemas
SELECT DISTINCT nspname FROM pg_namespace;
-- dbt: does a schema exist
SELECT count(*) FROM pg_namespace WHERE nspname = 'public';
-- rows [[1]]
-- dbt: catalog
SELECT 'dpsql' AS table_database, sch.nspname AS table_schema, tbl.relname AS table_name, CASE tbl.relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'BASE TABLE' END AS table_type, tbl_desc.description AS table_comment, col.attname AS column_name, col.attnum AS column_index, pg_catalog.format_type(col.atttypid, col.atttypmod) AS column_type, col_desc.description AS column_comment, pg_get_userbyid(tbl.relowner) AS table_owner FROM pg_catalog.pg_namespace sch JOIN pg_catalog.pg_class tbl ON tbl.relnamespace = sch.oid JOIN pg_catalog.pg_attribute col ON col.attrelid = tbl.oid LEFT OUTER JOIN pg_catalog.pg_description tbl_desc ON (tbl_desc.objoid = tbl.oid AND tbl_desc.objsubid = 0) LEFT OUTER JOIN pg_catalog.pg_description col_desc ON (col_desc.objoid = tbl.oid AND col_desc.objsubid = col.attnum) WHERE (upper(sch.nspname) = upper('public')) AND NOT pg_is_other_temp_schema(sch.oid) AND tbl.relpersistence IN ('p', 'u') AND tbl.relkind IN ('r', 'v', 'f', 'p', 'm') AND col.attnum > 0 AND NOT col.attisdropped ORDER BY sch.nspname, tbl.relname, col.attnum;
-- dbt: dependencies
WITH relation AS (SELECT pg_class.oid AS id, pg_class.relname AS name, pg_class.relnamespace AS schema, pg_class.relkind AS kind FROM pg_class), dependency AS (SELECT DISTINCT pg_depend.objid AS id, pg_depend.refobjid AS ref FROM pg_depend), schema AS (SELECT pg_namespace.oid AS id, pg_namespace.nspname AS name FROM pg_namespace WHERE nspname <> 'information_schema' AND nspname NOT LIKE 'pg\_%') SELECT relation.name, schema.name FROM relation JOIN schema ON relation.schema = schema.id JOIN dependency ON dependency.id = relation.id;
-- Airbyte: schemas
SELECT nspname FROM pg_catalog.pg_namespace WHERE nspname NOT LIKE 'pg_%' AND nspname <> 'information_schema' AND has_schema_privilege(nspname, 'USAGE') ORDER BY 1;
-- rows [["emr"], ["public"]]
-- Airbyte: privileges of tables
SELECT nspname AS table_schema, relname AS table_name FROM pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace WHERE relkind = ANY (ARRAY['r', 'm', 'v', 't', 'f', 'p']) AND nspname NOT LIKE 'pg_%' AND nspname <> 'information_schema' AND has_table_privilege(pg_class.oid, 'SELECT') ORDER BY 1, 2;
-- rows [["emr", "labs"], ["public", "patients"], ["public", "visits"], ["public", "wards"]]
-- Airbyte: grants
SELECT DISTINCT table_catalog, table_schema, table_name, privilege_type FROM information_schema.table_privileges WHERE grantee = current_user AND privilege_type = 'SELECT' ORDER BY 2, 3;
-- Fivetran: size of the transaction log
SELECT relname, age(relfrozenxid) FROM pg_class WHERE relkind = 'r' AND relnamespace = 2200;
-- Redash: schema
SELECT s.nspname AS table_schema, c.relname AS table_name, a.attname AS column_name, NULL AS data_type FROM pg_class c JOIN pg_namespace s ON c.relnamespace = s.oid AND s.nspname NOT IN ('pg_catalog', 'information_schema') JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped WHERE c.relkind = 'm' AND has_table_privilege(quote_ident(s.nspname) || '.' || quote_ident(c.relname), 'select') UNION SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns WHERE table_schema NOT IN ('pg_catalog', 'information_schema') AND has_table_privilege(quote_ident(table_schema) || '.' || quote_ident(table_name), 'select');
-- Looker: tables
SELECT t.table_schema, t.table_name, t.table_type FROM information_schema.tables AS t WHERE t.table_schema NOT LIKE 'pg_%' AND t.table_schema NOT IN ('information_schema') ORDER BY 1, 2 LIMIT 1000;
-- Looker: running queries
SELECT pg_stat_activity.pid, query_start, now() - query_start AS duration, query FROM pg_stat_activity WHERE state = 'active' AND usename = current_user;
-- Looker: time zone
SELECT 1 FROM pg_timezone_names WHERE name = 'UTC';
-- rows [[1]]
-- Hex: schema
SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables WHERE table_schema NOT IN ('pg_catalog', 'information_schema') AND has_table_privilege(format('%I.%I', table_schema, table_name), 'SELECT') ORDER BY 2, 3;
-- rows [["dpsql", "emr", "labs", "BASE TABLE"], ["dpsql", "public", "patients", "BASE TABLE"], ["dpsql", "public", "visits", "BASE TABLE"], ["dpsql", "public", "wards", "BASE TABLE"]]
-- Hex: columns with comments
SELECT c.table_schema, c.table_name, c.column_name, c.data_type, pg_catalog.col_description(format('%s.%s', c.table_schema, c.table_name)::regclass::oid, c.ordinal_position) AS comment FROM information_schema.columns c WHERE c.table_name = 'wards' ORDER BY c.ordinal_position;
-- rows [["public", "wards", "beds", "bigint", "from 0 to 50"], ["public", "wards", "name", "text", null]]
-- Mode: columns
SELECT table_schema, table_name, column_name, udt_name::regtype::text AS type FROM information_schema.columns WHERE table_schema = 'public' AND table_name = 'wards' ORDER BY ordinal_position;
-- rows [["public", "wards", "beds", "bigint"], ["public", "wards", "name", "text"]]
-- Retool: schema as JSON
SELECT json_agg(row_to_json(t)) FROM (SELECT table_name, column_name FROM information_schema.columns WHERE table_name = 'wards' ORDER BY ordinal_position) t;
-- Retool: objects of columns
SELECT table_name, json_object_agg(column_name, data_type) AS columns FROM information_schema.columns WHERE table_name = 'wards' GROUP BY table_name;
-- Django: tables
SELECT c.relname, CASE WHEN c.relispartition THEN 'p' WHEN c.relkind IN ('m', 'v') THEN 'v' ELSE 't' END, obj_description(c.oid, 'pg_class') FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('f', 'm', 'p', 'r', 'v') AND n.nspname NOT IN ('pg_catalog', 'pg_toast') AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY 1;
-- rows [["patients", "t", "private: it protects each patient; the unit column is patient_id"], ["visits", "t", "private: it protects each patient; the unit column is patient_id"], ["wards", "t", "public"]]
-- Django: columns
SELECT a.attname AS column_name, NOT (a.attnotnull OR (t.typtype = 'd' AND t.typnotnull)) AS is_nullable, pg_get_expr(ad.adbin, ad.adrelid) AS column_default, CASE WHEN collname = 'default' THEN NULL ELSE collname END AS collation, a.attidentity != '' AS is_autofield, col_description(a.attrelid, a.attnum) AS column_comment FROM pg_attribute a LEFT JOIN pg_attrdef ad ON a.attrelid = ad.adrelid AND a.attnum = ad.adnum LEFT JOIN pg_collation co ON a.attcollation = co.oid JOIN pg_type t ON a.atttypid = t.oid JOIN pg_class c ON a.attrelid = c.oid JOIN pg_namespace n ON c.relnamespace = n.oid WHERE c.relkind IN ('f', 'm', 'p', 'r', 'v') AND c.relname = 'wards' AND n.nspname NOT IN ('pg_catalog', 'pg_toast') AND pg_catalog.pg_table_is_visible(c.oid) ORDER BY a.attnum;
-- rows [["beds", true, null, null, false, "from 0 to 50"], ["name", true, null, null, false, null]]
-- Django: constraints
SELECT c.conname, array(SELECT attname FROM unnest(c.conkey) WITH ORDINALITY cols(colid, arridx) JOIN pg_attribute AS ca ON cols.colid = ca.attnum WHERE ca.attrelid = c.conrelid ORDER BY cols.arridx), c.contype, (SELECT fkc.relname || '.' || fka.attname FROM pg_attribute AS fka JOIN pg_class AS fkc ON fka.attrelid = fkc.oid WHERE fka.attrelid = c.confrelid AND fka.attnum = c.confkey[1]), cl.reloptions FROM pg_constraint AS c JOIN pg_class AS cl ON c.conrelid = cl.oid WHERE cl.relname = 'visits' AND pg_catalog.pg_table_is_visible(cl.oid) ORDER BY 1;
-- rows [["visits_patient_id_fkey", ["patient_id"], "f", "patients.patient_id", null], ["visits_visit_id_key", ["visit_id"], "u", null, null]]
-- Django: indexes
SELECT indexname, array_agg(attname ORDER BY arridx), indisunique, indisprimary, array_agg(ordering ORDER BY arridx), amname, exprdef, s2.attoptions FROM (SELECT c2.relname AS indexname, idx.*, attr.attname, am.amname, CASE WHEN idx.indexprs IS NOT NULL THEN pg_get_indexdef(idx.indexrelid) END AS exprdef, CASE am.amname WHEN 'btree' THEN CASE (option & 1) WHEN 1 THEN 'DESC' ELSE 'ASC' END END AS ordering, c2.reloptions AS attoptions FROM (SELECT * FROM pg_index i, unnest(i.indkey, i.indoption) WITH ORDINALITY koi(key, option, arridx)) idx LEFT JOIN pg_class c ON idx.indrelid = c.oid LEFT JOIN pg_class c2 ON idx.indexrelid = c2.oid LEFT JOIN pg_am am ON c2.relam = am.oid LEFT JOIN pg_attribute attr ON attr.attrelid = c.oid AND attr.attnum = idx.key WHERE c.relname = 'visits' AND pg_catalog.pg_table_is_visible(c.oid)) s2 GROUP BY indexname, indisunique, indisprimary, amname, exprdef, attoptions;
-- Rails: types
SELECT t.oid, t.typname, t.typelem, t.typdelim, t.typinput, r.rngsubtype, t.typtype, t.typbasetype FROM pg_type AS t LEFT JOIN pg_range AS r ON oid = rngtypid WHERE t.typname IN ('int2', 'int4', 'int8', 'oid', 'float4', 'float8', 'text', 'varchar', 'bool', 'date', 'timestamp') ORDER BY 1 LIMIT 2;
-- Rails: columns
SELECT a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid), a.attnotnull, a.atttypid, a.atttypmod, c.collname, col_description(a.attrelid, a.attnum) AS comment, attidentity AS identity, attgenerated AS attgenerated FROM pg_attribute a LEFT JOIN pg_attrdef d ON a.attrelid = d.adrelid AND a.attnum = d.adnum LEFT JOIN pg_type t ON a.atttypid = t.oid LEFT JOIN pg_collation c ON a.attcollation = c.oid AND a.attcollation <> t.typcollation WHERE a.attrelid = '"visits"'::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum;
-- Rails: primary key
SELECT a.attname FROM (SELECT indrelid, indkey, generate_subscripts(indkey, 1) idx FROM pg_index WHERE indrelid = '"patients"'::regclass AND indisprimary) i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[i.idx] ORDER BY i.idx;
-- rows [["patient_id"]]
-- Rails: advisory lock of migrations
SELECT pg_try_advisory_lock(4221);
-- TypeORM: current schema
SELECT * FROM current_schema();
-- rows [["public"]]
-- TypeORM: constraints
SELECT "ns"."nspname" AS "table_schema", "t"."relname" AS "table_name", "cnst"."conname" AS "constraint_name", pg_get_constraintdef("cnst"."oid") AS "expression", CASE "cnst"."contype" WHEN 'p' THEN 'PRIMARY' WHEN 'u' THEN 'UNIQUE' WHEN 'c' THEN 'CHECK' WHEN 'x' THEN 'EXCLUDE' END AS "constraint_type", "a"."attname" AS "column_name" FROM "pg_constraint" "cnst" INNER JOIN "pg_class" "t" ON "t"."oid" = "cnst"."conrelid" INNER JOIN "pg_namespace" "ns" ON "ns"."oid" = "cnst"."connamespace" LEFT JOIN "pg_attribute" "a" ON "a"."attrelid" = "cnst"."conrelid" AND "a"."attnum" = ANY ("cnst"."conkey") WHERE "t"."relkind" IN ('r', 'p') AND (("ns"."nspname" = 'public' AND "t"."relname" = 'patients'));
-- rows [["public", "patients", "patients_pkey", "PRIMARY KEY (patient_id)", "PRIMARY", "patient_id"]]
-- Prisma: columns
SELECT oid.namespace, info.table_name, info.column_name, format_type(att.atttypid, att.atttypmod) AS formatted_type, info.numeric_precision, info.numeric_scale, info.data_type, info.udt_schema AS type_schema_name, info.udt_name AS full_data_type, pg_get_expr(attdef.adbin, attdef.adrelid) AS column_default, info.is_nullable, info.is_identity FROM information_schema.columns info JOIN pg_attribute att ON att.attname = info.column_name JOIN (SELECT pg_class.oid, relname, pg_namespace.nspname AS namespace FROM pg_class JOIN pg_namespace ON pg_namespace.oid = pg_class.relnamespace AND pg_namespace.nspname = ANY ( $1 ) WHERE reltype > 0) AS oid ON oid.oid = att.attrelid AND relname = info.table_name AND namespace = info.table_schema LEFT OUTER JOIN pg_attrdef attdef ON attdef.adrelid = att.attrelid AND attdef.adnum = att.attnum AND table_schema = namespace WHERE table_schema = ANY ( $1 ) ORDER BY namespace, table_name, ordinal_position;
-- values [["public"]]
-- PostgREST: roles
SELECT auth_sett.role, auth_sett.value FROM (SELECT r.rolname AS role, unnest(r.rolconfig) AS value FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid) auth_sett;
-- rows []
-- PostgREST: a claim of a request
SELECT set_config('search_path', '"public"', true), set_config('application_name', 'x', true);
-- psql of 17: databases
SELECT d.datname AS "Name", pg_catalog.pg_get_userbyid(d.datdba) AS "Owner", pg_catalog.pg_encoding_to_char(d.encoding) AS "Encoding", CASE d.datlocprovider WHEN 'b' THEN 'builtin' WHEN 'c' THEN 'libc' WHEN 'i' THEN 'icu' END AS "Locale Provider", d.datcollate AS "Collate", d.datctype AS "Ctype", d.daticulocale AS "Locale", NULL AS "ICU Rules", CASE WHEN pg_catalog.array_length(d.datacl, 1) = 0 THEN '(none)' ELSE pg_catalog.array_to_string(d.datacl, E'\n') END AS "Access privileges" FROM pg_catalog.pg_database d ORDER BY 1;
-- psql of 17: columns
SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef), a.attnotnull, (SELECT c.collname FROM pg_catalog.pg_collation c, pg_catalog.pg_type t WHERE c.oid = a.attcollation AND t.oid = a.atttypid AND a.attcollation <> t.typcollation) AS attcollation, a.attidentity, a.attgenerated, a.attstorage, a.attcompression AS attcompression, CASE WHEN a.attstattarget = -1 THEN NULL ELSE a.attstattarget END AS attstattarget, pg_catalog.col_description(a.attrelid, a.attnum) FROM pg_catalog.pg_attribute a WHERE a.attrelid = '16386' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum;
-- psql: foreign keys of a table, with partitions
SELECT true AS sametable, conname, pg_catalog.pg_get_constraintdef(r.oid, true) AS condef, conrelid::pg_catalog.regclass AS ontable FROM pg_catalog.pg_constraint r WHERE r.conrelid = '16385' AND r.contype = 'f' AND conparentid = 0 ORDER BY conname;
-- rows [[true, "visits_patient_id_fkey", "FOREIGN KEY (patient_id) REFERENCES patients(patient_id)", "visits"]]
-- psql: references to a table, with partitions
SELECT conname, conrelid::pg_catalog.regclass AS ontable, pg_catalog.pg_get_constraintdef(oid, true) AS condef FROM pg_catalog.pg_constraint c WHERE confrelid IN (SELECT pg_catalog.pg_partition_ancestors('16384') UNION ALL VALUES ('16384'::pg_catalog.regclass)) AND contype = 'f' AND conparentid = 0 ORDER BY conname;
-- rows [["visits_patient_id_fkey", "visits", "FOREIGN KEY (patient_id) REFERENCES patients(patient_id)"]]
-- psql: partitions of a table
SELECT inhparent::pg_catalog.regclass, pg_catalog.pg_get_expr(c.relpartbound, c.oid), inhdetachpending FROM pg_catalog.pg_class c JOIN pg_catalog.pg_inherits i ON c.oid = inhrelid WHERE c.oid = '16384';
-- JDBC: primary keys
SELECT result.TABLE_CAT, result.TABLE_SCHEM, result.TABLE_NAME, result.COLUMN_NAME, result.KEY_SEQ, result.PK_NAME FROM (SELECT current_database() AS TABLE_CAT, n.nspname AS TABLE_SCHEM, ct.relname AS TABLE_NAME, a.attname AS COLUMN_NAME, (information_schema._pg_expandarray(i.indkey)).n AS KEY_SEQ, ci.relname AS PK_NAME, information_schema._pg_expandarray(i.indkey) AS KEYS, a.attnum AS A_ATTNUM FROM pg_catalog.pg_class ct JOIN pg_catalog.pg_attribute a ON (ct.oid = a.attrelid) JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid) JOIN pg_catalog.pg_index i ON (a.attrelid = i.indrelid) JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid) WHERE true AND ct.relname = 'patients' AND i.indisprimary) result WHERE result.A_ATTNUM = (result.KEYS).x ORDER BY result.table_name, result.pk_name, result.key_seq;
-- rows [["dpsql", "public", "patients", "patient_id", 1, "patients_pkey"]]
-- JDBC: imported keys
SELECT current_database() AS "PKTABLE_CAT", pkn.nspname AS "PKTABLE_SCHEM", pkc.relname AS "PKTABLE_NAME", pka.attname AS "PKCOLUMN_NAME", fkn.nspname AS "FKTABLE_SCHEM", fkc.relname AS "FKTABLE_NAME", fka.attname AS "FKCOLUMN_NAME", pos.n AS "KEY_SEQ", con.conname AS "FK_NAME", pkic.relname AS "PK_NAME" FROM pg_catalog.pg_namespace pkn, pg_catalog.pg_class pkc, pg_catalog.pg_attribute pka, pg_catalog.pg_namespace fkn, pg_catalog.pg_class fkc, pg_catalog.pg_attribute fka, pg_catalog.pg_constraint con, pg_catalog.generate_series(1, 32) pos(n), pg_catalog.pg_class pkic WHERE pkn.oid = pkc.relnamespace AND pkc.oid = pka.attrelid AND pka.attnum = con.confkey[pos.n] AND con.confrelid = pkc.oid AND fkn.oid = fkc.relnamespace AND fkc.oid = fka.attrelid AND fka.attnum = con.conkey[pos.n] AND con.conrelid = fkc.oid AND con.contype = 'f' AND (pkic.relkind = 'i' OR pkic.relkind = 'I') AND pkic.oid = con.conindid AND fkn.nspname = 'public' AND fkc.relname = 'visits' ORDER BY pkn.nspname, pkc.relname, con.conname, pos.n;
-- rows [["dpsql", "public", "patients", "patient_id", "public", "visits", "patient_id", 1, "visits_patient_id_fkey", "patients_pkey"]]
-- JDBC: one type
SELECT n.nspname = ANY(current_schemas(true)), n.nspname, t.typname FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = $1;
-- values [20]
-- JDBC: keywords
SELECT string_agg(word, ',') FROM pg_catalog.pg_get_keywords() WHERE word <> ALL ('{a,abs,absolute,action,ada,add}'::text[]);
-- JDBC: client properties
SELECT name, setting FROM pg_catalog.pg_settings WHERE name = 'max_index_keys';
-- rows [["max_index_keys", "32"]]
-- pools: check of a connection
SELECT 1 AS ok;
-- pools: asyncpg
SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;
-- pools: Npgsql
CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD SEQUENCES; DISCARD TEMP;
-- pools: PgBouncer
DISCARD ALL;
-- pools: sessions
SET SESSION AUTHORIZATION DEFAULT; RESET ALL; DEALLOCATE ALL;
-- settings that drivers ask for
SHOW server_version; SHOW client_encoding; SHOW max_identifier_length; SHOW lc_collate; SHOW integer_datetimes; SHOW block_size; SHOW default_transaction_isolation; SHOW wal_level; SHOW max_connections; SHOW shared_preload_libraries;
-- time
SELECT now(), current_timestamp, clock_timestamp();
-- date
SELECT current_date;
-- time of the start
SELECT pg_postmaster_start_time();
-- whether the server is read only
SELECT pg_is_in_recovery(), current_setting('transaction_read_only'), current_setting('default_transaction_read_only', true);
-- an unknown setting that may be missing
SELECT current_setting('app.user', true);
-- rows [[null]]
-- encoding of the client
SELECT getdatabaseencoding();
-- address
SELECT inet_server_addr(), inet_server_port(), inet_client_addr(), inet_client_port();
-- size
SELECT pg_database_size(current_database());
