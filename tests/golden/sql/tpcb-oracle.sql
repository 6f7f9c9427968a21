-- before the load
CREATE TABLE pgbench_branches (bid NUMBER(10) NOT NULL, bbalance NUMBER(10), filler CHAR(88))
CREATE TABLE pgbench_tellers (tid NUMBER(10) NOT NULL, bid NUMBER(10), tbalance NUMBER(10), filler CHAR(84))
CREATE TABLE pgbench_accounts (aid NUMBER(10) NOT NULL, bid NUMBER(10), abalance NUMBER(10), filler CHAR(84))
CREATE TABLE pgbench_history (tid NUMBER(10), bid NUMBER(10), aid NUMBER(10), delta NUMBER(10), mtime TIMESTAMP, filler CHAR(22))
-- after the load, phase 1
ALTER TABLE pgbench_branches ADD CONSTRAINT pgbench_branches_pk PRIMARY KEY (bid) USING INDEX (CREATE UNIQUE INDEX pgbench_branches_pk ON pgbench_branches (bid) PARALLEL NOLOGGING)
ALTER TABLE pgbench_tellers ADD CONSTRAINT pgbench_tellers_pk PRIMARY KEY (tid) USING INDEX (CREATE UNIQUE INDEX pgbench_tellers_pk ON pgbench_tellers (tid) PARALLEL NOLOGGING)
ALTER TABLE pgbench_accounts ADD CONSTRAINT pgbench_accounts_pk PRIMARY KEY (aid) USING INDEX (CREATE UNIQUE INDEX pgbench_accounts_pk ON pgbench_accounts (aid) PARALLEL NOLOGGING)
-- after the load, phase 2
ALTER INDEX pgbench_branches_pk NOPARALLEL LOGGING
ALTER INDEX pgbench_tellers_pk NOPARALLEL LOGGING
ALTER INDEX pgbench_accounts_pk NOPARALLEL LOGGING
-- after the load, phase 3
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'PGBENCH_BRANCHES', degree => DBMS_STATS.AUTO_DEGREE); END;
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'PGBENCH_TELLERS', degree => DBMS_STATS.AUTO_DEGREE); END;
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'PGBENCH_ACCOUNTS', degree => DBMS_STATS.AUTO_DEGREE); END;
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'PGBENCH_HISTORY', degree => DBMS_STATS.AUTO_DEGREE); END;
-- removal
DROP TABLE pgbench_history CASCADE CONSTRAINTS PURGE
DROP TABLE pgbench_accounts CASCADE CONSTRAINTS PURGE
DROP TABLE pgbench_tellers CASCADE CONSTRAINTS PURGE
DROP TABLE pgbench_branches CASCADE CONSTRAINTS PURGE
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
SELECT CAST((SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts) AS NUMBER(38)), CAST((SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS NUMBER(38)) FROM dual
-- tellers_total
SELECT CAST((SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers) AS NUMBER(38)), CAST((SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches) AS NUMBER(38)) FROM dual
-- branches_total
SELECT CAST((SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches) AS NUMBER(38)), CAST((SELECT coalesce(sum(delta), 0) FROM pgbench_history) AS NUMBER(38)) FROM dual
