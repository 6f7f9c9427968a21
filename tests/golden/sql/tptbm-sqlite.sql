-CREATE TABLE vpn_users (vpn_id bigint NOT NULL, vpn_nb integer NOT NULL, directory_nb char(10) NOT NULL, last_calling_party char(10) NOT NULL, descr char(100) NOT NULL)
+CREATE TABLE vpn_users (vpn_id INTEGER NOT NULL, vpn_nb INTEGER NOT NULL, directory_nb TEXT NOT NULL, last_calling_party TEXT NOT NULL, descr TEXT NOT NULL, PRIMARY KEY (vpn_id, vpn_nb)) WITHOUT ROWID
-ALTER TABLE vpn_users ADD PRIMARY KEY (vpn_id, vpn_nb)
-VACUUM (FREEZE, ANALYZE) vpn_users
+ANALYZE vpn_users
