-- before the load
CREATE TABLE account_type (account_type CHAR(1) NOT NULL, description CHAR(20) NOT NULL)
CREATE TABLE account_status (status NUMBER(5) NOT NULL, description CHAR(20) NOT NULL)
CREATE TABLE customers (cust_id NUMBER(19) NOT NULL, first_name CHAR(8) NOT NULL, last_name CHAR(10) NOT NULL, addr1 CHAR(15) NOT NULL, zipcode CHAR(5) NOT NULL, member_since NUMBER(10) NOT NULL)
CREATE TABLE accounts (account_id NUMBER(19) NOT NULL, phone CHAR(15) NOT NULL, account_type CHAR(1) NOT NULL, status NUMBER(5) NOT NULL, current_balance NUMBER(19) NOT NULL, prev_balance NUMBER(19) NOT NULL, date_created NUMBER(10) NOT NULL, cust_id NUMBER(19) NOT NULL)
CREATE TABLE transactions (account_id NUMBER(19) NOT NULL, session_id NUMBER(19) NOT NULL, transaction_nb NUMBER(10) NOT NULL, optype CHAR(1) NOT NULL, amount NUMBER(19) NOT NULL)
-- after the load, phase 1
ALTER TABLE account_type ADD CONSTRAINT account_type_pk PRIMARY KEY (account_type) USING INDEX (CREATE UNIQUE INDEX account_type_pk ON account_type (account_type) PARALLEL NOLOGGING)
ALTER TABLE account_status ADD CONSTRAINT account_status_pk PRIMARY KEY (status) USING INDEX (CREATE UNIQUE INDEX account_status_pk ON account_status (status) PARALLEL NOLOGGING)
ALTER TABLE customers ADD CONSTRAINT customers_pk PRIMARY KEY (cust_id) USING INDEX (CREATE UNIQUE INDEX customers_pk ON customers (cust_id) PARALLEL NOLOGGING)
ALTER TABLE accounts ADD CONSTRAINT accounts_pk PRIMARY KEY (account_id) USING INDEX (CREATE UNIQUE INDEX accounts_pk ON accounts (account_id) PARALLEL NOLOGGING)
ALTER TABLE transactions ADD CONSTRAINT transactions_pk PRIMARY KEY (account_id, session_id, transaction_nb) USING INDEX (CREATE UNIQUE INDEX transactions_pk ON transactions (account_id, session_id, transaction_nb) PARALLEL NOLOGGING)
-- after the load, phase 2
ALTER TABLE accounts PARALLEL
ALTER TABLE transactions PARALLEL
-- after the load, phase 3
ALTER TABLE accounts ADD CONSTRAINT accounts_fk1 FOREIGN KEY (cust_id) REFERENCES customers (cust_id)
-- after the load, phase 4
ALTER TABLE accounts ADD CONSTRAINT accounts_fk2 FOREIGN KEY (account_type) REFERENCES account_type (account_type)
-- after the load, phase 5
ALTER TABLE accounts ADD CONSTRAINT accounts_fk3 FOREIGN KEY (status) REFERENCES account_status (status)
-- after the load, phase 6
ALTER TABLE transactions ADD CONSTRAINT transactions_fk1 FOREIGN KEY (account_id) REFERENCES accounts (account_id)
-- after the load, phase 7
ALTER TABLE accounts NOPARALLEL
ALTER TABLE transactions NOPARALLEL
ALTER INDEX account_type_pk NOPARALLEL LOGGING
ALTER INDEX account_status_pk NOPARALLEL LOGGING
ALTER INDEX customers_pk NOPARALLEL LOGGING
ALTER INDEX accounts_pk NOPARALLEL LOGGING
ALTER INDEX transactions_pk NOPARALLEL LOGGING
-- after the load, phase 8
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'ACCOUNT_TYPE', degree => DBMS_STATS.AUTO_DEGREE); END;
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'ACCOUNT_STATUS', degree => DBMS_STATS.AUTO_DEGREE); END;
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'CUSTOMERS', degree => DBMS_STATS.AUTO_DEGREE); END;
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'ACCOUNTS', degree => DBMS_STATS.AUTO_DEGREE); END;
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'TRANSACTIONS', degree => DBMS_STATS.AUTO_DEGREE); END;
-- removal
DROP TABLE transactions CASCADE CONSTRAINTS PURGE
DROP TABLE accounts CASCADE CONSTRAINTS PURGE
DROP TABLE customers CASCADE CONSTRAINTS PURGE
DROP TABLE account_status CASCADE CONSTRAINTS PURGE
DROP TABLE account_type CASCADE CONSTRAINTS PURGE
-- authorize
SELECT c.cust_id, c.last_name, a.account_type, s.description FROM accounts a, customers c, account_status s WHERE a.account_id = $1 AND a.status = 10 AND c.cust_id = a.cust_id AND s.status = a.status
-- balance
SELECT current_balance, prev_balance FROM accounts WHERE account_id = $1
-- profile
UPDATE customers SET addr1 = $1, zipcode = $2 WHERE cust_id = $3
-- change
UPDATE accounts SET prev_balance = current_balance, current_balance = current_balance + $1 WHERE account_id = $2 AND current_balance >= $3
-- record
INSERT INTO transactions (account_id, session_id, transaction_nb, optype, amount) VALUES ($1, $2, $3, $4, $5)
-- low
SELECT account_id, cust_id, phone, current_balance FROM accounts WHERE account_id BETWEEN $1 AND $2 AND current_balance < $3
-- totals
SELECT CAST((SELECT coalesce(sum(current_balance), 0) FROM accounts) AS NUMBER(38)), CAST($1 AS NUMBER(38)) + CAST((SELECT coalesce(sum(amount), 0) FROM transactions) AS NUMBER(38)) FROM dual
-- overdrawn
SELECT count(CASE WHEN current_balance >= 0 THEN 1 END), count(*) FROM accounts
