-- before the load
CREATE TABLE vpn_users (vpn_id NUMBER(19) NOT NULL, vpn_nb NUMBER(10) NOT NULL, directory_nb CHAR(10) NOT NULL, last_calling_party CHAR(10) NOT NULL, descr CHAR(100) NOT NULL)
-- after the load, phase 1
ALTER TABLE vpn_users ADD CONSTRAINT vpn_users_pk PRIMARY KEY (vpn_id, vpn_nb) USING INDEX (CREATE UNIQUE INDEX vpn_users_pk ON vpn_users (vpn_id, vpn_nb) PARALLEL NOLOGGING)
-- after the load, phase 2
ALTER INDEX vpn_users_pk NOPARALLEL LOGGING
-- after the load, phase 3
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'VPN_USERS', degree => DBMS_STATS.AUTO_DEGREE); END;
-- removal
DROP TABLE vpn_users CASCADE CONSTRAINTS PURGE
-- read
SELECT directory_nb, last_calling_party, descr FROM vpn_users WHERE vpn_id = $1 AND vpn_nb = $2
-- update
UPDATE vpn_users SET last_calling_party = $1 WHERE vpn_id = $2 AND vpn_nb = $3
-- insert
INSERT INTO vpn_users (vpn_id, vpn_nb, directory_nb, last_calling_party, descr) VALUES ($1, $2, $3, $4, $5)
-- delete
DELETE FROM vpn_users WHERE vpn_id = $1 AND vpn_nb = $2
-- callers
SELECT COUNT(CASE WHEN RTRIM(last_calling_party) IN ('0000000000', SUBSTR(CAST(vpn_id AS VARCHAR(20)) || 'x' || CAST(vpn_nb AS VARCHAR(20)), 1, 10)) THEN 1 END), COUNT(*) FROM vpn_users
