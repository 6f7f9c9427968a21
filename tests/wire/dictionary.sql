-- The views of Oracle's dictionary that proveout queries, and its packages. Those of gv$ are tables, which tests fill; v$ is
-- instance 1.
CREATE SCHEMA IF NOT EXISTS oracle;
CREATE TABLE IF NOT EXISTS oracle.dual AS SELECT 'X'::char(1) AS dummy;
CREATE OR REPLACE VIEW oracle.user_tab_comments AS
  SELECT upper(relname)::varchar(128) AS table_name, obj_description(oid, 'pg_class')::varchar(4000) AS comments
  FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace;
CREATE OR REPLACE VIEW oracle.v$parameter AS
  SELECT name::varchar(80), value::varchar(4000), isdefault::varchar(9)
  FROM (VALUES ('commit_wait', 'WAIT', 'TRUE'), ('nls_sort', 'BINARY', 'TRUE')) AS p (name, value, isdefault);
CREATE OR REPLACE FUNCTION oracle.sys_context(text, text) RETURNS varchar(80) LANGUAGE sql AS $$ SELECT '1' $$;
CREATE TABLE IF NOT EXISTS oracle.gv$instance (inst_id int, startup_time timestamp);
CREATE TABLE IF NOT EXISTS oracle.gv$system_event
  (inst_id int, wait_class varchar(64), event varchar(64), total_waits_fg bigint, time_waited_micro_fg bigint);
CREATE TABLE IF NOT EXISTS oracle.gv$sys_time_model (inst_id int, stat_name varchar(64), value bigint);
CREATE TABLE IF NOT EXISTS oracle.gv$osstat (inst_id int, stat_name varchar(64), value bigint, cumulative varchar(3));
CREATE TABLE IF NOT EXISTS oracle.gv$sysstat (inst_id int, name varchar(64), value bigint);
CREATE OR REPLACE VIEW oracle.v$instance AS SELECT 1 AS instance_number, coalesce(
  (SELECT startup_time FROM oracle.gv$instance WHERE inst_id = 1), '2026-01-01 00:00:00'::timestamp) AS startup_time;
CREATE OR REPLACE VIEW oracle.v$system_event AS SELECT * FROM oracle.gv$system_event WHERE inst_id = 1;
CREATE OR REPLACE VIEW oracle.v$sys_time_model AS SELECT * FROM oracle.gv$sys_time_model WHERE inst_id = 1;
CREATE OR REPLACE VIEW oracle.v$osstat AS SELECT * FROM oracle.gv$osstat WHERE inst_id = 1;
CREATE OR REPLACE VIEW oracle.v$sysstat AS SELECT * FROM oracle.gv$sysstat WHERE inst_id = 1;
CREATE TABLE IF NOT EXISTS oracle.v$sql
  (sql_id varchar(13), child_number int, sql_text varchar(1000), executions bigint, elapsed_time bigint,
   rows_processed bigint, parsing_schema_name varchar(128));
CREATE TABLE IF NOT EXISTS oracle.v$sqlarea
  (executions bigint, sql_fulltext varchar(4000), command_type int, parsing_schema_name varchar(128));
CREATE TABLE IF NOT EXISTS oracle.v$sql_plan
  (sql_id varchar(13), child_number int, id int, depth int, operation varchar(30), options varchar(30),
   object_name varchar(128), cardinality bigint);
CREATE OR REPLACE VIEW oracle.v$database AS SELECT 4242::bigint AS con_dbid;
CREATE TABLE IF NOT EXISTS oracle.dba_hist_snapshot
  (snap_id int, dbid bigint, instance_number int, startup_time timestamp, taken timestamp DEFAULT clock_timestamp());
CREATE OR REPLACE FUNCTION oracle.create_snapshot() RETURNS int LANGUAGE sql AS $$
  INSERT INTO oracle.dba_hist_snapshot (snap_id, dbid, instance_number, startup_time)
    SELECT coalesce(max(snap_id), 0) + 1, 4242, 1, '2026-01-01 00:00:00' FROM oracle.dba_hist_snapshot
    RETURNING snap_id $$;
CREATE OR REPLACE FUNCTION oracle.awr_report_html(dbid bigint, instance bigint, first_snap bigint, last_snap bigint)
  RETURNS TABLE (output varchar(8000)) LANGUAGE sql AS $$
  VALUES ('<html><title>canned</title>'),
         ('<p>database ' || dbid || ', instance ' || instance || ', snapshots ' || first_snap || ' to ' || last_snap),
         (NULL), ('</html>') $$;
CREATE OR REPLACE FUNCTION oracle.awr_global_report_html(dbid bigint, instances text, first_snap bigint, last_snap bigint)
  RETURNS TABLE (output varchar(8000)) LANGUAGE sql AS $$
  VALUES ('<p>database ' || dbid || ', all instances, snapshots ' || first_snap || ' to ' || last_snap) $$;
CREATE OR REPLACE FUNCTION oracle.capture_snapshot(level text) RETURNS int LANGUAGE sql AS $$
  SELECT oracle.create_snapshot() $$;
CREATE OR REPLACE FUNCTION oracle.generate_report_text(first_snap bigint, last_snap bigint) RETURNS text[]
  LANGUAGE sql AS $$ SELECT ARRAY['canned', 'snapshots ' || first_snap || ' to ' || last_snap] $$;
