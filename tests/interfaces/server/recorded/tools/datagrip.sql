-- # Queries with the constructs that DataGrip send, written for the tests; values of parameters and rows after the text.
-- version and names
SELECT version() AS v, current_database() AS a, current_schemas(false) AS b, current_user AS c;
-- roles of the server
SELECT r.oid::bigint AS role_id, rolname AS role_name, rolsuper AS is_super, rolinherit AS is_inherit, rolcreaterole AS can_createrole, rolcreatedb AS can_createdb, rolcanlogin AS can_login, rolreplication AS is_replication, rolconnlimit AS conn_limit, rolvaliduntil AS valid_until, rolbypassrls AS bypass_rls, rolconfig AS config, d.description FROM pg_catalog.pg_roles r LEFT JOIN pg_catalog.pg_shdescription d ON d.objoid = r.oid;
-- members of roles
SELECT member AS id, roleid AS role_id, admin_option FROM pg_catalog.pg_auth_members ORDER BY id, roleid::text;
-- databases
SELECT n.oid::bigint AS id, datname AS name, d.description, datistemplate AS is_template, datallowconn AS allow_connections, pg_catalog.pg_get_userbyid(n.datdba) AS "owner" FROM pg_catalog.pg_database AS n LEFT JOIN pg_catalog.pg_shdescription AS d ON n.oid = d.objoid ORDER BY CASE WHEN datname = pg_catalog.current_database() THEN -1::bigint ELSE n.oid::bigint END;
-- tablespaces
SELECT t.oid::bigint AS id, t.spcname AS name, t.xmin AS state_number, pg_catalog.pg_get_userbyid(t.spcowner) AS owner, pg_catalog.pg_tablespace_location(t.oid) AS location, t.spcoptions AS options, d.description AS comment FROM pg_catalog.pg_tablespace t LEFT JOIN pg_catalog.pg_shdescription d ON d.objoid = t.oid;
-- state of a snapshot
SELECT L.transactionid::varchar::bigint AS transaction_id FROM pg_catalog.pg_locks L WHERE L.transactionid IS NOT NULL ORDER BY pg_catalog.age(L.transactionid) DESC LIMIT 1;
-- current transaction
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL ELSE (pg_catalog.txid_current() % 4294967296)::varchar::bigint END AS current_txid;
-- time zones
SELECT name, is_dst FROM pg_catalog.pg_timezone_names UNION DISTINCT SELECT abbrev AS name, is_dst FROM pg_catalog.pg_timezone_abbrevs;
-- schemas
SELECT N.oid::bigint AS id, N.xmin AS state_number, nspname AS name, D.description, pg_catalog.pg_get_userbyid(N.nspowner) AS "owner" FROM pg_catalog.pg_namespace N LEFT JOIN pg_catalog.pg_description D ON N.oid = D.objoid ORDER BY CASE WHEN nspname = pg_catalog.current_schema() THEN -1::bigint ELSE N.oid::bigint END;
-- access methods
SELECT A.oid::bigint AS access_method_id, A.xmin AS state_number, A.amname AS access_method_name, A.amhandler::oid AS handler_id, pg_catalog.quote_ident(N.nspname) || '.' || pg_catalog.quote_ident(P.proname) AS handler_name, A.amtype AS access_method_type FROM pg_am A JOIN pg_proc P ON A.amhandler::oid = P.oid JOIN pg_namespace N ON P.pronamespace = N.oid WHERE pg_catalog.age(A.xmin) <= 2147483647;
-- extensions
SELECT E.oid AS id, E.xmin AS state_number, extname AS name, extversion AS version, extnamespace AS schema_id, nspname AS schema_name, ARRAY(SELECT unnest(available_versions.extversion) FROM (SELECT ARRAY['1.0'] AS extversion) available_versions) AS available_updates FROM pg_catalog.pg_extension E JOIN pg_namespace N ON E.extnamespace = N.oid;
-- languages
SELECT l.oid AS id, l.xmin AS state_number, lanname AS name, lanpltrusted AS trusted, h.proname AS handler, hs.nspname AS handlerschema FROM pg_catalog.pg_language l LEFT JOIN pg_catalog.pg_proc h ON h.oid = lanplcallfoid LEFT JOIN pg_catalog.pg_namespace hs ON hs.oid = h.pronamespace ORDER BY lanname;
-- casts
SELECT C.oid, C.xmin AS state_number, C.castsource AS castsource_id, pg_catalog.quote_ident(SN.nspname) || '.' || pg_catalog.quote_ident(S.typname) AS castsource_name, C.castcontext, C.castmethod FROM pg_cast C LEFT JOIN pg_type S ON C.castsource::oid = S.oid LEFT JOIN pg_namespace SN ON S.typnamespace = SN.oid WHERE pg_catalog.age(C.xmin) <= 100;
-- event triggers
SELECT t.oid AS id, t.xmin AS state_number, t.evtname AS name, t.evtevent AS event, t.evtfoid AS routine_id, t.evtenabled AS state, t.evttags AS tags FROM pg_catalog.pg_event_trigger t LEFT JOIN pg_catalog.pg_proc proc ON t.evtfoid = proc.oid;
-- foreign servers
SELECT srv.oid AS id, srv.srvfdw AS fdw_id, srv.xmin AS state_number, srv.srvname AS name, srv.srvtype AS type, srv.srvversion AS version, srv.srvoptions AS options FROM pg_catalog.pg_foreign_server srv;
-- tables, views and sequences of a schema
WITH T AS (SELECT T.oid AS oid, relkind::pg_catalog.text AS kind, relpersistence::pg_catalog.text AS persistence, relname AS name, relnamespace AS schema_id, relam, reltablespace, T.xmin::varchar::bigint AS state_number, relowner FROM pg_catalog.pg_class T WHERE relnamespace = $1::oid AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')) SELECT T.oid::bigint AS table_id, kind AS table_kind, name AS table_name, state_number, d.description, pg_catalog.pg_get_userbyid(T.relowner) AS "owner" FROM T LEFT JOIN pg_catalog.pg_description d ON d.objoid = T.oid AND d.objsubid = 0 ORDER BY table_id;
-- values [2200]
-- rows [[16384, "r", "patients", 1, "private: it protects each patient; the unit column is patient_id", "owner"], [16385, "r", "visits", 1, "private: it protects each patient; the unit column is patient_id", "owner"], [16386, "r", "wards", 1, "public", "owner"]]
-- changed tables of a schema
SELECT DISTINCT T.oid::bigint AS id, T.relkind::char AS kind, T.relname AS name, T.xmin AS state_number FROM pg_catalog.pg_class T WHERE T.relnamespace = $1::oid AND T.relkind IN ('r','m','v','p','f') AND pg_catalog.age(T.xmin) <= $2::int ORDER BY 1;
-- values [2200, 2147483647]
-- rows [[16384, "r", "patients", 1], [16385, "r", "visits", 1], [16386, "r", "wards", 1]]
-- columns of tables
WITH T AS (SELECT DISTINCT T.oid AS table_id, T.relname AS table_name FROM pg_catalog.pg_class T, pg_catalog.pg_attribute A WHERE T.relnamespace = $1::oid AND T.relkind IN ('r', 'm', 'v', 'f', 'p') AND A.attrelid = T.oid) SELECT T.table_id, C.attnum AS column_position, C.attname AS column_name, C.xmin AS column_state_number, C.atttypmod AS type_mod, C.attndims AS dimensions_number, pg_catalog.format_type(C.atttypid, C.atttypmod) AS type_spec, C.atttypid AS type_id, C.attnotnull AS mandatory, pg_catalog.pg_get_expr(D.adbin, T.table_id) AS column_default_expression, NOT C.attislocal AS column_is_inherited, C.attfdwoptions AS options, C.attisdropped AS column_is_dropped, C.attidentity AS identity_kind, C.attgenerated AS generated FROM T JOIN pg_catalog.pg_attribute C ON T.table_id = C.attrelid LEFT JOIN pg_catalog.pg_attrdef D ON (C.attrelid, C.attnum) = (D.adrelid, D.adnum) WHERE attnum > 0 ORDER BY table_id, attnum;
-- values [2200]
-- indexes of tables
SELECT tab.oid AS table_id, tab.relkind AS table_kind, ind_stor.relname AS index_name, ind_head.indexrelid AS index_id, ind_stor.xmin AS state_number, ind_head.indisunique AS is_unique, ind_head.indisprimary AS is_primary, pg_catalog.pg_get_expr(ind_head.indpred, ind_head.indrelid) AS condition, opcmethod AS access_method_id FROM pg_catalog.pg_class tab JOIN pg_catalog.pg_index ind_head ON ind_head.indrelid = tab.oid JOIN pg_catalog.pg_class ind_stor ON tab.relnamespace = ind_stor.relnamespace AND ind_head.indexrelid = ind_stor.oid LEFT JOIN pg_catalog.pg_opclass ON pg_opclass.oid = ANY(ind_head.indclass) WHERE tab.relnamespace = $1::oid AND tab.relkind IN ('r', 'm', 'v', 'p') AND ind_stor.relkind IN ('i', 'I');
-- values [2200]
-- columns of indexes
SELECT ind_head.indexrelid AS index_id, k AS column_idx, k <= indnkeyatts AS in_key, CASE WHEN ind_head.indkey[k - 1] = 0 THEN pg_catalog.pg_get_indexdef(ind_head.indexrelid, k::int, true) ELSE NULL END AS expression, a.attname FROM pg_catalog.pg_index ind_head JOIN pg_catalog.pg_class tab ON tab.oid = ind_head.indrelid CROSS JOIN generate_series(1, 8) AS k LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = ind_head.indexrelid AND a.attnum = k WHERE tab.relnamespace = 2200 AND k <= ind_head.indnatts ORDER BY index_id, k;
-- constraints of tables
SELECT T.oid AS table_id, relkind AS table_kind, C.oid::bigint AS con_id, pg_catalog.int8(C.xmin::varchar) AS con_state_id, conname AS con_name, contype AS con_kind, conkey AS con_columns, conindid AS index_id, confrelid AS ref_table_id, condeferrable AS is_deferrable, condeferred AS is_init_deferred, confupdtype AS on_update, confdeltype AS on_delete, connoinherit AS no_inherit, pg_catalog.pg_get_expr(conbin, T.oid) AS con_expression, confkey AS ref_columns FROM pg_catalog.pg_constraint C JOIN pg_catalog.pg_class T ON C.conrelid = T.oid WHERE relkind IN ('r', 'v', 'f', 'p') AND relnamespace = $1::oid AND contype IN ('p', 'u', 'f', 'c', 'x') AND connamespace = $1::oid ORDER BY conname;
-- values [2200]
-- types of a schema
SELECT T.oid AS type_id, T.xmin AS type_state_number, T.typname AS type_name, T.typtype AS type_sub_kind, T.typcategory AS type_category, T.typrelid AS class_id, T.typbasetype AS base_type_id, CASE WHEN T.typtype IN ('c','e') THEN NULL ELSE pg_catalog.format_type(T.typbasetype, T.typtypmod) END AS type_def, T.typndims AS dimensions_number, T.typdefault AS default_expression, T.typnotnull AS mandatory, pg_catalog.pg_get_userbyid(T.typowner) AS "owner" FROM pg_catalog.pg_type T WHERE T.typnamespace = $1::oid AND (T.typtype IN ('d','e') OR T.typtype = 'b' AND T.typarray <> 0) ORDER BY 1;
-- values [11]
-- functions of a schema
WITH languages AS (SELECT oid AS lang_oid, lanname AS lang FROM pg_catalog.pg_language), routines AS (SELECT proname AS r_name, prolang AS lang_oid, oid AS r_id, xmin AS r_state_number, proargnames AS arg_names, proargmodes AS arg_modes, proargtypes::int[] AS in_arg_types, proallargtypes::int[] AS all_arg_types, provariadic AS arg_variadic_id, prorettype AS ret_type_id, proretset AS ret_set, provolatile AS volatile_kind FROM pg_catalog.pg_proc WHERE pronamespace = $1::oid) SELECT * FROM routines NATURAL JOIN languages;
-- values [2200]
-- comments
SELECT D.objoid AS id, CASE WHEN 'pg_catalog.pg_class'::regclass = classoid THEN 'C' ELSE 'O' END AS kind, D.objsubid AS sub_id, D.description FROM pg_catalog.pg_description D JOIN pg_catalog.pg_class C ON D.objoid = C.oid WHERE C.relnamespace = $1::oid AND C.relkind <> 'c' ORDER BY D.objoid, D.objsubid LIMIT 3;
-- values [2200]
-- triggers
SELECT T.tgrelid AS table_id, T.oid::varchar::bigint AS trigger_id, T.xmin AS trigger_state_number, tgname AS trigger_name, tgfoid AS function_id, tgtype & 31 AS bits, tgdeferrable AS is_deferrable, tgenabled AS trigger_fire_mode FROM pg_catalog.pg_trigger T JOIN pg_catalog.pg_class C ON C.oid = tgrelid WHERE NOT tgisinternal;
-- rules
SELECT R.ev_class AS table_id, R.oid AS rule_id, R.xmin AS rule_state_number, R.rulename AS rule_name, pg_catalog.translate(ev_type, '1234', 'SUID') AS rule_event_code, R.ev_enabled AS rule_fire_mode, R.is_instead AS rule_is_instead FROM pg_catalog.pg_rewrite R WHERE R.rulename != '_RETURN';
-- sources of views
SELECT T.relkind AS view_kind, T.oid AS view_id, pg_catalog.pg_get_viewdef(T.oid, true) AS source_text FROM pg_catalog.pg_class T JOIN pg_catalog.pg_namespace N ON T.relnamespace = N.oid WHERE N.oid = $1::oid AND T.relkind IN ('m','v');
-- values [2200]
-- privileges
SELECT T.oid AS object_id, T.relacl AS acl FROM pg_catalog.pg_class T WHERE T.relacl IS NOT NULL UNION ALL SELECT N.oid, N.nspacl FROM pg_catalog.pg_namespace N ORDER BY 1 LIMIT 5;
-- operators
SELECT O.oid AS op_id, O.xmin AS state_number, oprname AS op_name, oprkind AS op_kind, oprleft AS arg_left_type_id, oprright AS arg_right_type_id, oprresult AS arg_result_type_id, oprcode AS func_main FROM pg_catalog.pg_operator O WHERE oprnamespace = 2200;
-- collations
SELECT oid AS id, xmin AS state_number, collname AS name, collcollate AS lc_collate, collctype AS lc_ctype, pg_catalog.pg_get_userbyid(collowner) AS "owner" FROM pg_catalog.pg_collation WHERE collnamespace = 11;
-- first look into the session
SHOW TRANSACTION ISOLATION LEVEL;
-- name of the application
SET application_name = 'DataGrip 2025.2';
-- digits
SET extra_float_digits = 3;
-- search path
SELECT current_setting('search_path') AS p;
