-CREATE TABLE vpn_users (vpn_id bigint NOT NULL, vpn_nb integer NOT NULL, directory_nb char(10) NOT NULL, last_calling_party char(10) NOT NULL, descr char(100) NOT NULL)
+CREATE TABLE vpn_users (vpn_id BIGINT NOT NULL, vpn_nb INTEGER NOT NULL, directory_nb char(10) NOT NULL, last_calling_party char(10) NOT NULL, descr char(100) NOT NULL, PRIMARY KEY (vpn_id, vpn_nb))
-ALTER TABLE vpn_users ADD PRIMARY KEY (vpn_id, vpn_nb)
-VACUUM (FREEZE, ANALYZE) vpn_users
+ANALYZE
