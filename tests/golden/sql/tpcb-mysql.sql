-CREATE TABLE pgbench_branches (bid integer NOT NULL, bbalance integer, filler char(88)) WITH (fillfactor=100)
-CREATE TABLE pgbench_tellers (tid integer NOT NULL, bid integer, tbalance integer, filler char(84)) WITH (fillfactor=100)
-CREATE TABLE pgbench_accounts (aid integer NOT NULL, bid integer, abalance integer, filler char(84)) WITH (fillfactor=100)
-CREATE TABLE pgbench_history (tid integer, bid integer, aid integer, delta integer, mtime timestamp, filler char(22))
+CREATE TABLE pgbench_branches (bid INT NOT NULL, bbalance INT, filler char(88), PRIMARY KEY (bid)) ENGINE = InnoDB
+CREATE TABLE pgbench_tellers (tid INT NOT NULL, bid INT, tbalance INT, filler char(84), PRIMARY KEY (tid)) ENGINE = InnoDB
+CREATE TABLE pgbench_accounts (aid INT NOT NULL, bid INT, abalance INT, filler char(84), PRIMARY KEY (aid)) ENGINE = InnoDB
+CREATE TABLE pgbench_history (tid INT, bid INT, aid INT, delta INT, mtime DATETIME, filler char(22)) ENGINE = InnoDB
-ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid)
-ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid)
-ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid)
-VACUUM (FREEZE, ANALYZE) pgbench_branches
-VACUUM (FREEZE, ANALYZE) pgbench_tellers
-VACUUM (FREEZE, ANALYZE) pgbench_accounts
-VACUUM (FREEZE, ANALYZE) pgbench_history
+ANALYZE TABLE pgbench_branches
+ANALYZE TABLE pgbench_tellers
+ANALYZE TABLE pgbench_accounts
+ANALYZE TABLE pgbench_history
-SELECT CAST((SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts) AS BIGINT), CAST((SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS BIGINT)
+SELECT CAST((SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts) AS SIGNED), CAST((SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS SIGNED)
-SELECT CAST((SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers) AS BIGINT), CAST((SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches) AS BIGINT)
+SELECT CAST((SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers) AS SIGNED), CAST((SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches) AS SIGNED)
-SELECT CAST((SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches) AS BIGINT), CAST((SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS BIGINT)
+SELECT CAST((SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches) AS SIGNED), CAST((SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS SIGNED)
