-CREATE TABLE vpn_users (vpn_id bigint NOT NULL, vpn_nb integer NOT NULL, directory_nb char(10) NOT NULL, last_calling_party char(10) NOT NULL, descr char(100) NOT NULL)
+CREATE TABLE vpn_users (vpn_id BIGINT NOT NULL, vpn_nb INT NOT NULL, directory_nb char(10) NOT NULL, last_calling_party char(10) NOT NULL, descr char(100) NOT NULL, PRIMARY KEY (vpn_id, vpn_nb)) ENGINE = InnoDB
-ALTER TABLE vpn_users ADD PRIMARY KEY (vpn_id, vpn_nb)
-VACUUM (FREEZE, ANALYZE) vpn_users
+ANALYZE TABLE vpn_users
-SELECT COUNT(CASE WHEN RTRIM(last_calling_party) IN ('0000000000', SUBSTR(CAST(vpn_id AS VARCHAR(20)) || 'x' || CAST(vpn_nb AS VARCHAR(20)), 1, 10)) THEN 1 END), COUNT(*) FROM vpn_users
+SELECT COUNT(CASE WHEN RTRIM(last_calling_party) IN ('0000000000', SUBSTR(CONCAT(CAST(vpn_id AS CHAR), 'x', CAST(vpn_nb AS CHAR)), 1, 10)) THEN 1 END), COUNT(*) FROM vpn_users
