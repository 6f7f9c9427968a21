-CREATE TABLE account_type (account_type char(1) NOT NULL, description char(20) NOT NULL)
-CREATE TABLE account_status (status smallint NOT NULL, description char(20) NOT NULL)
-CREATE TABLE customers (cust_id bigint NOT NULL, first_name char(8) NOT NULL, last_name char(10) NOT NULL, addr1 char(15) NOT NULL, zipcode char(5) NOT NULL, member_since integer NOT NULL)
-CREATE TABLE accounts (account_id bigint NOT NULL, phone char(15) NOT NULL, account_type char(1) NOT NULL, status smallint NOT NULL, current_balance bigint NOT NULL, prev_balance bigint NOT NULL, date_created integer NOT NULL, cust_id bigint NOT NULL)
-CREATE TABLE transactions (account_id bigint NOT NULL, session_id bigint NOT NULL, transaction_nb integer NOT NULL, optype char(1) NOT NULL, amount bigint NOT NULL)
+CREATE TABLE account_type (account_type char(1) NOT NULL, description char(20) NOT NULL, PRIMARY KEY (account_type))
+CREATE TABLE account_status (status SMALLINT NOT NULL, description char(20) NOT NULL, PRIMARY KEY (status))
+CREATE TABLE customers (cust_id BIGINT NOT NULL, first_name char(8) NOT NULL, last_name char(10) NOT NULL, addr1 char(15) NOT NULL, zipcode char(5) NOT NULL, member_since INTEGER NOT NULL, PRIMARY KEY (cust_id))
+CREATE TABLE accounts (account_id BIGINT NOT NULL, phone char(15) NOT NULL, account_type char(1) NOT NULL, status SMALLINT NOT NULL, current_balance BIGINT NOT NULL, prev_balance BIGINT NOT NULL, date_created INTEGER NOT NULL, cust_id BIGINT NOT NULL, PRIMARY KEY (account_id), FOREIGN KEY (cust_id) REFERENCES customers (cust_id), FOREIGN KEY (account_type) REFERENCES account_type (account_type), FOREIGN KEY (status) REFERENCES account_status (status))
+CREATE TABLE transactions (account_id BIGINT NOT NULL, session_id BIGINT NOT NULL, transaction_nb INTEGER NOT NULL, optype char(1) NOT NULL, amount BIGINT NOT NULL, PRIMARY KEY (account_id, session_id, transaction_nb), FOREIGN KEY (account_id) REFERENCES accounts (account_id))
-ALTER TABLE account_type ADD PRIMARY KEY (account_type)
-ALTER TABLE account_status ADD PRIMARY KEY (status)
-ALTER TABLE customers ADD PRIMARY KEY (cust_id)
-ALTER TABLE accounts ADD PRIMARY KEY (account_id)
-ALTER TABLE transactions ADD PRIMARY KEY (account_id, session_id, transaction_nb)
-ALTER TABLE accounts ADD CONSTRAINT accounts_fk1 FOREIGN KEY (cust_id) REFERENCES customers (cust_id)
-ALTER TABLE accounts ADD CONSTRAINT accounts_fk2 FOREIGN KEY (account_type) REFERENCES account_type (account_type)
-ALTER TABLE accounts ADD CONSTRAINT accounts_fk3 FOREIGN KEY (status) REFERENCES account_status (status)
-ALTER TABLE transactions ADD CONSTRAINT transactions_fk1 FOREIGN KEY (account_id) REFERENCES accounts (account_id)
-VACUUM (FREEZE, ANALYZE) account_type
-VACUUM (FREEZE, ANALYZE) account_status
-VACUUM (FREEZE, ANALYZE) customers
-VACUUM (FREEZE, ANALYZE) accounts
-VACUUM (FREEZE, ANALYZE) transactions
+ANALYZE
