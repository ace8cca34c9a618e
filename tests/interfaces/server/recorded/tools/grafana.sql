-- # Queries with the constructs that Grafana send, written for the tests; values of parameters and rows after the text.
-- tables in the search path
SELECT CASE WHEN quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN "current_user"() ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1), array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i, string_to_array(current_setting('search_path'), ',') AS s) THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table" FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog', '_timescaledb_cache', '_timescaledb_catalog', '_timescaledb_internal', '_timescaledb_config', 'timescaledb_information', 'timescaledb_experimental') ORDER BY 1;
-- rows [["emr.labs"], ["patients"], ["visits"], ["wards"]]
-- tables in the search path, with a user
SELECT CASE WHEN quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1), array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i, string_to_array(current_setting('search_path'), ',') s) THEN quote_ident(table_name) ELSE quote_ident(table_schema) || '.' || quote_ident(table_name) END AS "table" FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema', 'pg_catalog');
-- columns of a table by its name
SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns WHERE CASE WHEN array_length(parse_ident('visits'), 1) = 2 THEN quote_ident(table_schema) = (parse_ident('visits'))[1] AND quote_ident(table_name) = (parse_ident('visits'))[2] ELSE quote_ident(table_name) = 'visits' AND quote_ident(table_schema) IN (SELECT CASE WHEN trim(s[i]) = '"$user"' THEN user ELSE trim(s[i]) END FROM generate_series(array_lower(string_to_array(current_setting('search_path'), ','), 1), array_upper(string_to_array(current_setting('search_path'), ','), 1)) AS i, string_to_array(current_setting('search_path'), ',') s) END;
-- rows [["visit_id", "bigint"], ["patient_id", "bigint"], ["ward", "text"], ["cost", "double precision"], ["day", "date"], ["urgent", "boolean"]]
-- columns of a table by its schema and name
SELECT quote_ident(column_name) AS "column", data_type AS "type" FROM information_schema.columns WHERE CASE WHEN array_length(parse_ident('emr.labs'), 1) = 2 THEN quote_ident(table_schema) = (parse_ident('emr.labs'))[1] AND quote_ident(table_name) = (parse_ident('emr.labs'))[2] ELSE quote_ident(table_name) = 'emr.labs' END;
-- rows [["code", "text"], ["value", "double precision"]]
-- version as a number
SELECT current_setting('server_version_num')::int/100 AS version;
-- rows [[1500]]
-- version as a text
SELECT version();
-- timescaledb
SELECT extversion FROM pg_extension WHERE extname = 'timescaledb';
-- rows []
-- datasets
SELECT DISTINCT table_schema FROM information_schema.tables ORDER BY 1;
-- rows [["emr"], ["public"]]
-- columns of a time column
SELECT quote_ident(column_name) FROM information_schema.columns WHERE table_name = 'visits' AND data_type IN ('timestamp without time zone','timestamp with time zone','bigint','integer','double precision','real', 'date') ORDER BY ordinal_position LIMIT 1;
-- rows [["visit_id"]]
-- aggregates
SELECT DISTINCT p.proname FROM pg_aggregate a JOIN pg_proc p ON a.aggfnoid::oid = p.oid ORDER BY 1;
-- health check
SELECT 1;
