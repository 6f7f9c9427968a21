-- before the load
CREATE TABLE pgbench_branches (bid INT NOT NULL, bbalance INT, filler char(88), PRIMARY KEY (bid)) ENGINE = InnoDB
CREATE TABLE pgbench_tellers (tid INT NOT NULL, bid INT, tbalance INT, filler char(84), PRIMARY KEY (tid)) ENGINE = InnoDB
CREATE TABLE pgbench_accounts (aid INT NOT NULL, bid INT, abalance INT, filler char(84), PRIMARY KEY (aid)) ENGINE = InnoDB
CREATE TABLE pgbench_history (tid INT, bid INT, aid INT, delta INT, mtime DATETIME, filler char(22)) ENGINE = InnoDB
-- after the load, phase 1
ANALYZE TABLE pgbench_branches
ANALYZE TABLE pgbench_tellers
ANALYZE TABLE pgbench_accounts
ANALYZE TABLE pgbench_history
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
SELECT CAST((SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts) AS SIGNED), CAST((SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS SIGNED)
-- tellers_total
SELECT CAST((SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers) AS SIGNED), CAST((SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches) AS SIGNED)
-- branches_total
SELECT CAST((SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches) AS SIGNED), CAST((SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS SIGNED)
