-- before the load
CREATE TABLE pgbench_branches (bid integer NOT NULL, bbalance integer, filler char(88)) WITH (fillfactor=100)
CREATE TABLE pgbench_tellers (tid integer NOT NULL, bid integer, tbalance integer, filler char(84)) WITH (fillfactor=100)
CREATE TABLE pgbench_accounts (aid integer NOT NULL, bid integer, abalance integer, filler char(84)) WITH (fillfactor=100)
CREATE TABLE pgbench_history (tid integer, bid integer, aid integer, delta integer, mtime timestamp, filler char(22))
-- after the load, phase 1
ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid)
ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid)
ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid)
-- after the load, phase 2
VACUUM (FREEZE, ANALYZE) pgbench_branches
VACUUM (FREEZE, ANALYZE) pgbench_tellers
VACUUM (FREEZE, ANALYZE) pgbench_accounts
VACUUM (FREEZE, ANALYZE) pgbench_history
-- removal
DROP TABLE IF EXISTS pgbench_history
DROP TABLE IF EXISTS pgbench_accounts
DROP TABLE IF EXISTS pgbench_tellers
DROP TABLE IF EXISTS pgbench_branches
-- update_account
UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2
-- get_balance
SELECT abalance FROM pgbench_accounts WHERE aid = $1
-- update_teller
UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2
-- update_branch
UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2
-- add_history
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)
-- accounts_total
SELECT CAST((SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts) AS BIGINT), CAST((SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS BIGINT)
-- tellers_total
SELECT CAST((SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers) AS BIGINT), CAST((SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches) AS BIGINT)
-- branches_total
SELECT CAST((SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches) AS BIGINT), CAST((SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS BIGINT)
