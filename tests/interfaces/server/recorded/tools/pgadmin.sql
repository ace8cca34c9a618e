-- # Queries with the constructs that pgAdmin 4 send, written for the tests; values of parameters and rows after the text.
-- begin
SET DateStyle=ISO; SET client_min_messages=notice; SELECT set_config('bytea_output','hex',false) FROM pg_show_all_settings() WHERE name = 'bytea_output'; SET client_encoding='utf-8';
-- the database
SELECT db.oid AS did, db.datname, db.datallowconn, pg_encoding_to_char(db.encoding) AS serverencoding, has_database_privilege(db.oid, 'CREATE') AS cancreate, datistemplate FROM pg_catalog.pg_database db WHERE db.datname = current_database();
-- the user
SELECT roles.oid AS id, roles.rolname AS name, roles.rolsuper AS is_superuser, CASE WHEN roles.rolsuper THEN true ELSE roles.rolcreaterole END AS can_create_role, CASE WHEN roles.rolsuper THEN true ELSE roles.rolcreatedb END AS can_create_db, CASE WHEN 'pg_signal_backend' = ANY(ARRAY(WITH RECURSIVE cte AS (SELECT pg_roles.oid, pg_roles.rolname FROM pg_roles WHERE pg_roles.oid = roles.oid UNION ALL SELECT m.roleid, pgr.rolname FROM cte cte_1 JOIN pg_auth_members m ON m.member = cte_1.oid JOIN pg_roles pgr ON pgr.oid = m.roleid) SELECT rolname FROM cte)) THEN true ELSE false END AS can_signal_backend FROM pg_catalog.pg_roles AS roles WHERE rolname = current_user;
-- recovery
SELECT CASE WHEN usesuper THEN pg_is_in_recovery() ELSE FALSE END AS inrecovery, CASE WHEN usesuper AND pg_is_in_recovery() THEN pg_is_wal_replay_paused() ELSE FALSE END AS isreplaypaused FROM pg_user WHERE usename = current_user;
-- encrypted connections
SELECT gss_authenticated, encrypted FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_backend_pid();
-- databases
SELECT db.oid AS did, db.datname AS name, ta.spcname AS spcname, db.datallowconn, db.datistemplate AS is_template, has_database_privilege(db.oid, 'CREATE') AS cancreate, datdba AS owner, descr.description FROM pg_catalog.pg_database db LEFT OUTER JOIN pg_catalog.pg_tablespace ta ON db.dattablespace = ta.oid LEFT OUTER JOIN pg_catalog.pg_shdescription descr ON (db.oid = descr.objoid AND descr.classoid = 'pg_database'::regclass) WHERE db.oid > 0::OID ORDER BY datname;
-- schemas
SELECT nsp.oid, nsp.nspname AS name, has_schema_privilege(nsp.oid, 'CREATE') AS can_create, has_schema_privilege(nsp.oid, 'USAGE') AS has_usage, des.description FROM pg_catalog.pg_namespace nsp LEFT OUTER JOIN pg_catalog.pg_description des ON (des.objoid = nsp.oid AND des.classoid = 'pg_namespace'::regclass) WHERE nspname NOT LIKE 'pg!_%' ESCAPE '!' AND NOT ((nsp.nspname = 'pg_catalog' AND EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE relname = 'pg_class' AND relnamespace = nsp.oid LIMIT 1)) OR (nsp.nspname = 'information_schema' AND EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE relname = 'tables' AND relnamespace = nsp.oid LIMIT 1))) ORDER BY nspname;
-- rows [[16380, "emr", false, true, null], [2200, "public", false, true, null]]
-- count of tables
SELECT COUNT(*) FROM pg_catalog.pg_class rel WHERE rel.relkind IN ('r','s','t','p') AND rel.relnamespace = 2200::oid AND NOT rel.relispartition;
-- rows [[3]]
-- tables
SELECT rel.oid, rel.relname AS name, (SELECT count(*) FROM pg_catalog.pg_trigger WHERE tgrelid = rel.oid AND tgisinternal = FALSE) AS triggercount, (SELECT count(*) FROM pg_catalog.pg_trigger WHERE tgrelid = rel.oid AND tgisinternal = FALSE AND tgenabled = 'O') AS has_enable_triggers, (CASE WHEN rel.relkind = 'p' THEN true ELSE false END) AS is_partitioned, (SELECT count(1) FROM pg_catalog.pg_inherits WHERE inhrelid = rel.oid LIMIT 1) AS is_inherits, (SELECT count(1) FROM pg_catalog.pg_inherits WHERE inhparent = rel.oid LIMIT 1) AS is_inherited, des.description FROM pg_catalog.pg_class rel LEFT OUTER JOIN pg_catalog.pg_description des ON (des.objoid = rel.oid AND des.objsubid = 0 AND des.classoid = 'pg_class'::regclass) WHERE rel.relkind IN ('r','s','t','p') AND rel.relnamespace = 2200::oid AND NOT rel.relispartition ORDER BY rel.relname;
-- rows [[16384, "patients", 0, 0, false, 0, 0, "private: it protects each patient; the unit column is patient_id"], [16385, "visits", 0, 0, false, 0, 0, "private: it protects each patient; the unit column is patient_id"], [16386, "wards", 0, 0, false, 0, 0, "public"]]
-- columns
SELECT DISTINCT att.attname AS name, att.attnum AS "OID", pg_catalog.format_type(ty.oid, NULL) AS datatype, pg_catalog.format_type(ty.oid, att.atttypmod) AS displaytypname, att.attnotnull AS not_null, CASE WHEN att.atthasdef OR att.attidentity != '' OR ty.typdefault IS NOT NULL THEN True ELSE False END AS has_default_val, des.description, seq.seqtypid FROM pg_catalog.pg_attribute att JOIN pg_catalog.pg_type ty ON ty.oid = atttypid JOIN pg_catalog.pg_namespace tn ON tn.oid = ty.typnamespace JOIN pg_catalog.pg_class cl ON cl.oid = att.attrelid JOIN pg_catalog.pg_namespace na ON na.oid = cl.relnamespace LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = ty.typelem LEFT OUTER JOIN pg_catalog.pg_attrdef def ON adrelid = att.attrelid AND adnum = att.attnum LEFT OUTER JOIN pg_catalog.pg_description des ON (des.objoid = att.attrelid AND des.objsubid = att.attnum AND des.classoid = 'pg_class'::regclass) LEFT OUTER JOIN (pg_catalog.pg_depend JOIN pg_catalog.pg_class cs ON classid = 'pg_class'::regclass AND objid = cs.oid AND cs.relkind = 'S') ON refobjid = att.attrelid AND refobjsubid = att.attnum LEFT OUTER JOIN pg_catalog.pg_sequence seq ON cs.oid = seq.seqrelid WHERE att.attrelid = 16386::oid AND att.attnum > 0 AND att.attisdropped IS FALSE ORDER BY att.attnum;
-- rows [["beds", 1, "bigint", "bigint", false, false, "from 0 to 50", null], ["name", 2, "text", "text", false, false, null, null]]
-- properties of a table
SELECT *, (CASE WHEN (rel.relpersistence = 'u') THEN true ELSE false END) AS relpersistence_u, spc.spcname, pg_catalog.pg_get_userbyid(rel.relowner) AS relowner_name, rel.reltuples, array_to_string(rel.relacl::text[], ', ') AS acl FROM pg_catalog.pg_class rel LEFT OUTER JOIN pg_catalog.pg_tablespace spc ON spc.oid = rel.reltablespace LEFT OUTER JOIN pg_catalog.pg_constraint con ON con.conrelid = rel.oid AND con.contype = 'p' WHERE rel.relnamespace = 2200 AND rel.oid = 16384::oid;
-- keys of a table
SELECT cls.oid, cls.relname AS name, indnkeyatts AS col_count, CASE con.contype WHEN 'p' THEN desp.description WHEN 'u' THEN desp.description ELSE des.description END AS comment, condeferrable, condeferred, conislocal FROM pg_catalog.pg_index idx JOIN pg_catalog.pg_class cls ON cls.oid = indexrelid LEFT JOIN pg_catalog.pg_depend dep ON (dep.classid = cls.tableoid AND dep.objid = cls.oid AND dep.refobjsubid = '0' AND dep.refclassid = (SELECT oid FROM pg_catalog.pg_class WHERE relname = 'pg_constraint') AND dep.deptype = 'i') LEFT OUTER JOIN pg_catalog.pg_constraint con ON (con.conindid = cls.oid AND con.contype IN ('p', 'u')) LEFT OUTER JOIN pg_catalog.pg_description des ON des.objoid = cls.oid LEFT OUTER JOIN pg_catalog.pg_description desp ON (desp.objoid = con.oid AND desp.objsubid = 0 AND desp.classoid = 'pg_constraint'::regclass) WHERE indrelid = 16384::oid ORDER BY cls.relname;
-- foreign keys of a table
SELECT ct.oid, conname AS name, condeferrable, condeferred, confupdtype, confdeltype, CASE confmatchtype WHEN 's' THEN FALSE WHEN 'f' THEN TRUE END AS confmatchtype, conkey, confkey, confrelid, nl.nspname AS fknsp, cl.relname AS fktab, nr.nspname AS refnsp, cr.relname AS reftab, description AS comment, convalidated, conislocal FROM pg_catalog.pg_constraint ct JOIN pg_catalog.pg_class cl ON cl.oid = conrelid JOIN pg_catalog.pg_namespace nl ON nl.oid = cl.relnamespace JOIN pg_catalog.pg_class cr ON cr.oid = confrelid JOIN pg_catalog.pg_namespace nr ON nr.oid = cr.relnamespace LEFT OUTER JOIN pg_catalog.pg_description des ON (des.objoid = ct.oid AND des.classoid = 'pg_constraint'::regclass) WHERE contype = 'f' AND conrelid = 16385::oid ORDER BY conname;
-- statistics of the dashboard
SELECT 'session_stats' AS chart_name, pg_catalog.row_to_json(t) AS chart_data FROM (SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE datname = current_database()) AS "Total", (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE state = 'active') AS "Active", (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE state = 'idle') AS "Idle") t UNION ALL SELECT 'tps_stats' AS chart_name, pg_catalog.row_to_json(t) AS chart_data FROM (SELECT (SELECT sum(xact_commit) + sum(xact_rollback) FROM pg_catalog.pg_stat_database) AS "Transactions", (SELECT sum(xact_commit) FROM pg_catalog.pg_stat_database) AS "Commits") t;
-- sessions
SELECT pid, datname, usename, application_name, client_addr, pg_catalog.to_char(backend_start, 'YYYY-MM-DD HH24:MI:SS TZ') AS backend_start, state, wait_event_type || ': ' || wait_event AS wait_event, array_to_string(pg_catalog.pg_blocking_pids(pid), ', ') AS blocking_pids, query, pg_catalog.to_char(state_change, 'YYYY-MM-DD HH24:MI:SS TZ') AS state_change FROM pg_catalog.pg_stat_activity WHERE datname = current_database() ORDER BY pid;
-- locks
SELECT pid, locktype, datname, relation::regclass, page, tuple, virtualxid, transactionid, classid::regclass, objid, virtualtransaction, mode, granted, fastpath FROM pg_catalog.pg_locks l LEFT OUTER JOIN pg_catalog.pg_database d ON (l.database = d.oid) WHERE datname = current_database() ORDER BY pid, locktype;
-- prepared transactions
SELECT git, database, owner, transaction, pg_catalog.to_char(prepared, 'YYYY-MM-DD') FROM (SELECT gid AS git, database, owner, transaction, prepared FROM pg_catalog.pg_prepared_xacts) x;
-- settings
SELECT name, setting, unit, category, short_desc FROM pg_catalog.pg_settings ORDER BY category LIMIT 3;
-- all settings
SELECT * FROM pg_show_all_settings() WHERE name IN ('bytea_output', 'server_version');
-- replication
SELECT pid, usename, application_name, state FROM pg_catalog.pg_stat_replication;
-- replication slots
SELECT slot_name, plugin, slot_type, database, active FROM pg_catalog.pg_replication_slots;
-- roles
SELECT r.oid, r.rolname, r.rolcanlogin, r.rolsuper FROM pg_catalog.pg_roles r ORDER BY r.rolcanlogin, r.rolname;
-- groups of a role
SELECT array_to_string(array_agg(g.rolname), ',') FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles g ON g.oid = m.roleid WHERE m.member = 10;
-- tablespaces
SELECT ts.oid AS oid, spcname AS name, spcowner AS owner, pg_catalog.shobj_description(ts.oid, 'pg_tablespace') AS description FROM pg_catalog.pg_tablespace ts ORDER BY name;
-- extensions
SELECT x.oid, pg_catalog.pg_get_userbyid(extowner) AS owner, x.extname AS name, n.nspname AS schema, x.extrelocatable AS relocatable, x.extversion AS version, e.comment FROM pg_catalog.pg_extension x LEFT JOIN pg_catalog.pg_namespace n ON x.extnamespace = n.oid JOIN pg_catalog.pg_available_extensions() e(name, default_version, comment) ON x.extname = e.name ORDER BY x.extname;
-- types
SELECT * FROM (SELECT pg_catalog.format_type(t.oid, NULL) AS typname, CASE WHEN typelem > 0 THEN typelem ELSE t.oid END AS elemoid, typlen, typtype, t.oid, nspname, (SELECT COUNT(1) FROM pg_catalog.pg_type t2 WHERE t2.typname = t.typname) > 1 AS isdup FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace nsp ON typnamespace = nsp.oid WHERE (NOT (typname = 'unknown' AND nspname = 'pg_catalog')) AND typisdefined AND typtype IN ('b', 'c', 'd', 'e', 'r') AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE relnamespace = typnamespace AND relname = typname AND relkind != 'c') AND (typname NOT LIKE '_%' OR NOT EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE relnamespace = typnamespace AND relname = substring(typname FROM 2)::name AND relkind != 'c')) AND nsp.nspname != 'information_schema') AS dummy ORDER BY nspname <> 'pg_catalog', nspname <> 'public', nspname, 1;
-- sql help
SELECT has_table_privilege(16384, 'SELECT') AS can_select, has_table_privilege('public.visits', 'INSERT') AS can_insert;
-- rows [[true, false]]
-- primary key for the grid
SELECT at.attname, at.attnum, ty.typname FROM pg_catalog.pg_attribute at LEFT JOIN pg_catalog.pg_type ty ON (ty.oid = at.atttypid) WHERE attrelid = 16384::oid AND attnum = ANY (SELECT unnest(conkey) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_constraint ct ON ct.conrelid = c.oid WHERE c.oid = 16384 AND contype = 'p');
-- rows [["patient_id", 1, "int8"]]
-- statistics of a table
SELECT seq_scan AS "Sequential scans", n_live_tup, pg_catalog.pg_size_pretty(pg_catalog.pg_relation_size(stat.relid)) FROM pg_catalog.pg_stat_all_tables stat JOIN pg_catalog.pg_statio_all_tables statio ON stat.relid = statio.relid JOIN pg_catalog.pg_class cl ON cl.oid = stat.relid WHERE stat.relid = 16384::oid;
-- dependencies
SELECT DISTINCT dep.deptype, dep.refclassid, cl.relkind, ad.adbin, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid) AS adsrc, CASE WHEN cl.relkind IS NOT NULL THEN cl.relkind || COALESCE(dep.refobjsubid::character varying, '') WHEN tg.oid IS NOT NULL THEN 'T'::text ELSE '' END AS type, COALESCE(coc.relname, clrw.relname) AS ownertable FROM pg_catalog.pg_depend dep LEFT JOIN pg_catalog.pg_class cl ON dep.refobjid = cl.oid LEFT JOIN pg_catalog.pg_attribute att ON dep.refobjid = att.attrelid AND dep.refobjsubid = att.attnum LEFT JOIN pg_catalog.pg_trigger tg ON tg.oid = dep.refobjid LEFT JOIN pg_catalog.pg_rewrite rw ON dep.refobjid = rw.oid LEFT JOIN pg_catalog.pg_class clrw ON clrw.oid = rw.ev_class LEFT JOIN pg_catalog.pg_constraint co ON co.oid = dep.refobjid LEFT JOIN pg_catalog.pg_class coc ON coc.oid = co.conrelid LEFT JOIN pg_catalog.pg_attrdef ad ON ad.adrelid = att.attrelid AND ad.adnum = att.attnum WHERE dep.objid = 16384::oid ORDER BY type;
-- completion of names
SELECT n.nspname schema_name, c.relname object_name FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'public' AND c.relkind = ANY(ARRAY['r', 'p', 'f']) ORDER BY 1, 2;
-- rows [["public", "patients"], ["public", "visits"], ["public", "wards"]]
-- keywords
SELECT upper(word) AS word FROM pg_get_keywords() LIMIT 5;
-- size of the database
SELECT pg_catalog.pg_size_pretty(pg_catalog.pg_database_size(db.oid)) FROM pg_catalog.pg_database db;
