-- # Queries with the constructs that DBeaver send, written for the tests; values of parameters and rows after the text.
-- schemas
SELECT n.oid, n.*, d.description FROM pg_catalog.pg_namespace n LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = n.oid AND d.objsubid = 0 AND d.classoid = 'pg_namespace'::regclass ORDER BY nspname;
-- databases
SELECT db.oid, db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate OR db.datname = $1 ORDER BY db.datname;
-- values ["dpsql"]
-- session
SELECT current_schema(), session_user;
-- search path
SHOW search_path;
-- version
SELECT version();
-- tables of a schema
SELECT c.oid, c.*, d.description, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS partition_expr, pg_catalog.pg_get_partkeydef(c.oid) AS partition_key FROM pg_catalog.pg_class c LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_class'::regclass WHERE c.relnamespace = $1 AND c.relkind NOT IN ('i','I','c');
-- values [2200]
-- columns of a table
SELECT c.relname, a.*, pg_catalog.pg_get_expr(ad.adbin, ad.adrelid, true) AS def_value, dsc.description, dep.objid FROM pg_catalog.pg_attribute a INNER JOIN pg_catalog.pg_class c ON (a.attrelid = c.oid) LEFT OUTER JOIN pg_catalog.pg_attrdef ad ON (a.attrelid = ad.adrelid AND a.attnum = ad.adnum) LEFT OUTER JOIN pg_catalog.pg_description dsc ON (c.oid = dsc.objoid AND a.attnum = dsc.objsubid) LEFT OUTER JOIN pg_depend dep ON dep.refobjid = a.attrelid AND dep.deptype = 'i' AND dep.refobjsubid = a.attnum AND dep.classid = dep.refclassid WHERE NOT a.attisdropped AND c.oid = $1 ORDER BY a.attnum;
-- values [16385]
-- constraints of a table
SELECT c.oid, c.*, t.relname AS tabrelname, rt.relnamespace AS refnamespace, d.description, CASE WHEN c.contype = 'c' THEN "substring"(pg_get_constraintdef(c.oid), 7) ELSE NULL END consrc_copy FROM pg_catalog.pg_constraint c INNER JOIN pg_catalog.pg_class t ON t.oid = c.conrelid LEFT OUTER JOIN pg_catalog.pg_class rt ON rt.oid = c.confrelid LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = c.oid AND d.objsubid = 0 AND d.classoid = 'pg_constraint'::regclass WHERE c.conrelid = $1 ORDER BY c.oid;
-- values [16385]
-- references to a table
SELECT c.conname, c.conrelid, c.confrelid FROM pg_catalog.pg_constraint c WHERE c.confrelid = 16384 AND c.contype = 'f';
-- rows [["visits_patient_id_fkey", 16385, 16384]]
-- indexes of a table
SELECT i.*, i.indkey AS keys, c.relname, c.relnamespace, c.relam, c.reltablespace, tc.relname AS tabrelname, dsc.description, pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS pred_expr, pg_catalog.pg_get_expr(i.indexprs, i.indrelid, true) AS expr, pg_catalog.pg_relation_size(i.indexrelid) AS index_rel_size, pg_catalog.pg_stat_get_numscans(i.indexrelid) AS index_num_scans FROM pg_catalog.pg_index i INNER JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid INNER JOIN pg_catalog.pg_class tc ON tc.oid = i.indrelid LEFT OUTER JOIN pg_catalog.pg_description dsc ON i.indexrelid = dsc.objoid WHERE i.indrelid = $1 ORDER BY tabrelname, c.relname;
-- values [16384]
-- types
SELECT t.oid, t.*, c.relkind, format_type(nullif(t.typbasetype, 0), t.typtypmod) AS base_type_name, d.description FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid = t.typelem LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid = t.typrelid LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid = d.objoid WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C');
-- types before 2020
SELECT t.oid, t.*, c.relkind FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_class c ON c.oid = t.typrelid WHERE typnamespace = $1 ORDER BY t.oid;
-- values [11]
-- enums
SELECT e.enumlabel FROM pg_catalog.pg_enum e WHERE e.enumtypid = $1 ORDER BY e.enumsortorder;
-- values [20]
-- functions
SELECT p.oid AS poid, p.*, CASE WHEN p.proargdefaults IS NULL THEN NULL ELSE pg_catalog.pg_get_expr(p.proargdefaults, 0) END AS arg_defaults, d.description FROM pg_catalog.pg_proc p LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = p.oid WHERE p.pronamespace = $1 ORDER BY p.proname;
-- values [2200]
-- sequences
SELECT c.oid, c.relname, c.relkind FROM pg_catalog.pg_class c WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'public') AND c.relkind = 'S';
-- tables by the name of the schema
SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' ORDER BY c.relname;
-- rows [["patients"], ["visits"], ["wards"]]
-- keywords
SELECT * FROM pg_get_keywords();
-- keywords by their kind
SELECT string_agg(word, ',') FROM pg_catalog.pg_get_keywords() WHERE word <> ALL ('{a,abs,absolute}'::text[]);
-- roles
SELECT a.oid, a.*, pd.description FROM pg_catalog.pg_roles a LEFT JOIN pg_catalog.pg_shdescription pd ON a.oid = pd.objoid ORDER BY a.rolname;
-- settings
SELECT * FROM pg_catalog.pg_settings;
-- sizes
SELECT c.oid, pg_catalog.pg_total_relation_size(c.oid) AS total_rel_size, pg_catalog.pg_relation_size(c.oid) AS rel_size FROM pg_class c WHERE c.relnamespace = $1;
-- values [2200]
-- statistics
SELECT c.oid, c.relname, s.n_live_tup FROM pg_class c LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid WHERE c.oid = 16384;
-- sessions
SELECT sa.* FROM pg_catalog.pg_stat_activity sa;
-- dependencies
SELECT DISTINCT dep.objid, cl.relname, cl.relkind, dep.deptype, dep.classid::regclass::text AS deptbl FROM pg_depend dep LEFT JOIN pg_class cl ON dep.objid = cl.oid WHERE dep.refobjid = 16384 ORDER BY deptype;
-- completion
SELECT DISTINCT pc.oid, pc.relname, pn.nspname FROM pg_catalog.pg_class pc JOIN pg_catalog.pg_namespace pn ON pn.oid = pc.relnamespace WHERE pc.relkind IN ('r','v','m','f','p') AND pc.relname ILIKE $1 AND pn.nspname = $2 LIMIT 100;
-- values ["vis%", "public"]
-- definition of a view
SELECT pg_get_viewdef(c.oid, true) FROM pg_class c WHERE c.oid = 16384;
-- policies
SELECT pol.polname, pg_catalog.pg_get_expr(pol.polqual, pol.polrelid) FROM pg_catalog.pg_policy pol WHERE polrelid = 16384;
-- extensions
SELECT e.oid, cfg.tbls, n.nspname AS schema_name, e.* FROM pg_catalog.pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace LEFT JOIN (SELECT ARRAY_AGG(ns.nspname || '.' || cls.relname) AS tbls, oid_ext FROM (SELECT UNNEST(e1.extconfig) AS oid, e1.oid AS oid_ext FROM pg_catalog.pg_extension e1) c JOIN pg_class cls ON cls.oid = c.oid JOIN pg_namespace ns ON ns.oid = cls.relnamespace GROUP BY oid_ext) cfg ON cfg.oid_ext = e.oid;
-- locks
SELECT l.pid, l.mode, c.relname FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_class c ON c.oid = l.relation;
-- ssl
SELECT ssl, version, cipher FROM pg_stat_ssl WHERE pid = pg_backend_pid();
-- inheritance
SELECT i.*, c.relnamespace FROM pg_catalog.pg_inherits i, pg_catalog.pg_class c WHERE i.inhrelid = $1 AND c.oid = i.inhparent ORDER BY i.inhseqno;
-- values [16384]
-- triggers
SELECT x.oid, x.*, p.pronamespace AS func_schema_id, d.description FROM pg_catalog.pg_trigger x LEFT OUTER JOIN pg_catalog.pg_proc p ON p.oid = x.tgfoid LEFT OUTER JOIN pg_catalog.pg_description d ON d.objoid = x.oid WHERE x.tgrelid = 16384 AND NOT x.tgisinternal;
-- encodings
SELECT pg_catalog.pg_encoding_to_char(i) AS name FROM generate_series(0, 100) AS i WHERE pg_catalog.pg_encoding_to_char(i) <> '';
-- settings of a session
SELECT set_config('search_path', 'public', false);
