-- before the load
CREATE TABLE pgbench_branches (bid INTEGER NOT NULL, bbalance INTEGER, filler TEXT, PRIMARY KEY (bid)) WITHOUT ROWID
CREATE TABLE pgbench_tellers (tid INTEGER NOT NULL, bid INTEGER, tbalance INTEGER, filler TEXT, PRIMARY KEY (tid)) WITHOUT ROWID
CREATE TABLE pgbench_accounts (aid INTEGER NOT NULL, bid INTEGER, abalance INTEGER, filler TEXT, PRIMARY KEY (aid)) WITHOUT ROWID
CREATE TABLE pgbench_history (tid INTEGER, bid INTEGER, aid INTEGER, delta INTEGER, mtime TEXT, filler TEXT)
-- after the load, phase 1
ANALYZE pgbench_branches
ANALYZE pgbench_tellers
ANALYZE pgbench_accounts
ANALYZE pgbench_history
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
