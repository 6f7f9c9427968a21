-CREATE TABLE pgbench_branches (bid integer NOT NULL, bbalance integer, filler char(88)) WITH (fillfactor=100)
-CREATE TABLE pgbench_tellers (tid integer NOT NULL, bid integer, tbalance integer, filler char(84)) WITH (fillfactor=100)
-CREATE TABLE pgbench_accounts (aid integer NOT NULL, bid integer, abalance integer, filler char(84)) WITH (fillfactor=100)
-CREATE TABLE pgbench_history (tid integer, bid integer, aid integer, delta integer, mtime timestamp, filler char(22))
+CREATE TABLE pgbench_branches (bid INTEGER NOT NULL, bbalance INTEGER, filler char(88), PRIMARY KEY (bid))
+CREATE TABLE pgbench_tellers (tid INTEGER NOT NULL, bid INTEGER, tbalance INTEGER, filler char(84), PRIMARY KEY (tid))
+CREATE TABLE pgbench_accounts (aid INTEGER NOT NULL, bid INTEGER, abalance INTEGER, filler char(84), PRIMARY KEY (aid))
+CREATE TABLE pgbench_history (tid INTEGER, bid INTEGER, aid INTEGER, delta INTEGER, mtime TIMESTAMP, filler char(22))
-ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid)
-ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid)
-ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid)
-VACUUM (FREEZE, ANALYZE) pgbench_branches
-VACUUM (FREEZE, ANALYZE) pgbench_tellers
-VACUUM (FREEZE, ANALYZE) pgbench_accounts
-VACUUM (FREEZE, ANALYZE) pgbench_history
+ANALYZE
