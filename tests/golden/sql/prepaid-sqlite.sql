-- before the load
CREATE TABLE account_type (account_type TEXT NOT NULL, description TEXT NOT NULL, PRIMARY KEY (account_type)) WITHOUT ROWID
CREATE TABLE account_status (status INTEGER NOT NULL, description TEXT NOT NULL, PRIMARY KEY (status)) WITHOUT ROWID
CREATE TABLE customers (cust_id INTEGER NOT NULL, first_name TEXT NOT NULL, last_name TEXT NOT NULL, addr1 TEXT NOT NULL, zipcode TEXT NOT NULL, member_since INTEGER NOT NULL, PRIMARY KEY (cust_id)) WITHOUT ROWID
CREATE TABLE accounts (account_id INTEGER NOT NULL, phone TEXT NOT NULL, account_type TEXT NOT NULL, status INTEGER NOT NULL, current_balance INTEGER NOT NULL, prev_balance INTEGER NOT NULL, date_created INTEGER NOT NULL, cust_id INTEGER NOT NULL, PRIMARY KEY (account_id), FOREIGN KEY (cust_id) REFERENCES customers (cust_id), FOREIGN KEY (account_type) REFERENCES account_type (account_type), FOREIGN KEY (status) REFERENCES account_status (status)) WITHOUT ROWID
CREATE TABLE transactions (account_id INTEGER NOT NULL, session_id INTEGER NOT NULL, transaction_nb INTEGER NOT NULL, optype TEXT NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (account_id, session_id, transaction_nb), FOREIGN KEY (account_id) REFERENCES accounts (account_id)) WITHOUT ROWID
-- after the load, phase 1
ANALYZE account_type
ANALYZE account_status
ANALYZE customers
ANALYZE accounts
ANALYZE transactions
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
