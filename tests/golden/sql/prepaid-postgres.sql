-- before the load
CREATE TABLE account_type (account_type char(1) NOT NULL, description char(20) NOT NULL)
CREATE TABLE account_status (status smallint NOT NULL, description char(20) NOT NULL)
CREATE TABLE customers (cust_id bigint NOT NULL, first_name char(8) NOT NULL, last_name char(10) NOT NULL, addr1 char(15) NOT NULL, zipcode char(5) NOT NULL, member_since integer NOT NULL)
CREATE TABLE accounts (account_id bigint NOT NULL, phone char(15) NOT NULL, account_type char(1) NOT NULL, status smallint NOT NULL, current_balance bigint NOT NULL, prev_balance bigint NOT NULL, date_created integer NOT NULL, cust_id bigint NOT NULL)
CREATE TABLE transactions (account_id bigint NOT NULL, session_id bigint NOT NULL, transaction_nb integer NOT NULL, optype char(1) NOT NULL, amount bigint NOT NULL)
-- after the load, phase 1
ALTER TABLE account_type ADD PRIMARY KEY (account_type)
ALTER TABLE account_status ADD PRIMARY KEY (status)
ALTER TABLE customers ADD PRIMARY KEY (cust_id)
ALTER TABLE accounts ADD PRIMARY KEY (account_id)
ALTER TABLE transactions ADD PRIMARY KEY (account_id, session_id, transaction_nb)
-- after the load, phase 2
ALTER TABLE accounts ADD CONSTRAINT accounts_fk1 FOREIGN KEY (cust_id) REFERENCES customers (cust_id)
ALTER TABLE accounts ADD CONSTRAINT accounts_fk2 FOREIGN KEY (account_type) REFERENCES account_type (account_type)
ALTER TABLE accounts ADD CONSTRAINT accounts_fk3 FOREIGN KEY (status) REFERENCES account_status (status)
ALTER TABLE transactions ADD CONSTRAINT transactions_fk1 FOREIGN KEY (account_id) REFERENCES accounts (account_id)
-- after the load, phase 3
VACUUM (FREEZE, ANALYZE) account_type
VACUUM (FREEZE, ANALYZE) account_status
VACUUM (FREEZE, ANALYZE) customers
VACUUM (FREEZE, ANALYZE) accounts
VACUUM (FREEZE, ANALYZE) transactions
-- removal
DROP TABLE IF EXISTS transactions
DROP TABLE IF EXISTS accounts
DROP TABLE IF EXISTS customers
DROP TABLE IF EXISTS account_status
DROP TABLE IF EXISTS account_type
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
SELECT CAST((SELECT coalesce(sum(current_balance), 0) FROM accounts) AS BIGINT), CAST($1 AS BIGINT) + CAST((SELECT coalesce(sum(amount), 0) FROM transactions) AS BIGINT)
-- overdrawn
SELECT count(CASE WHEN current_balance >= 0 THEN 1 END), count(*) FROM accounts
