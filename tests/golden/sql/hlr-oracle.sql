-- before the load
CREATE TABLE subscriber (s_id NUMBER(10) NOT NULL, sub_nbr VARCHAR2(15) NOT NULL, bit_1 NUMBER(5) NOT NULL, bit_2 NUMBER(5) NOT NULL, bit_3 NUMBER(5) NOT NULL, bit_4 NUMBER(5) NOT NULL, bit_5 NUMBER(5) NOT NULL, bit_6 NUMBER(5) NOT NULL, bit_7 NUMBER(5) NOT NULL, bit_8 NUMBER(5) NOT NULL, bit_9 NUMBER(5) NOT NULL, bit_10 NUMBER(5) NOT NULL, hex_1 NUMBER(5) NOT NULL, hex_2 NUMBER(5) NOT NULL, hex_3 NUMBER(5) NOT NULL, hex_4 NUMBER(5) NOT NULL, hex_5 NUMBER(5) NOT NULL, hex_6 NUMBER(5) NOT NULL, hex_7 NUMBER(5) NOT NULL, hex_8 NUMBER(5) NOT NULL, hex_9 NUMBER(5) NOT NULL, hex_10 NUMBER(5) NOT NULL, byte2_1 NUMBER(5) NOT NULL, byte2_2 NUMBER(5) NOT NULL, byte2_3 NUMBER(5) NOT NULL, byte2_4 NUMBER(5) NOT NULL, byte2_5 NUMBER(5) NOT NULL, byte2_6 NUMBER(5) NOT NULL, byte2_7 NUMBER(5) NOT NULL, byte2_8 NUMBER(5) NOT NULL, byte2_9 NUMBER(5) NOT NULL, byte2_10 NUMBER(5) NOT NULL, msc_location NUMBER(19) NOT NULL, vlr_location NUMBER(19) NOT NULL)
CREATE TABLE access_info (s_id NUMBER(10) NOT NULL, ai_type NUMBER(5) NOT NULL, data1 NUMBER(5) NOT NULL, data2 NUMBER(5) NOT NULL, data3 CHAR(3) NOT NULL, data4 CHAR(5) NOT NULL)
CREATE TABLE special_facility (s_id NUMBER(10) NOT NULL, sf_type NUMBER(5) NOT NULL, is_active NUMBER(5) NOT NULL, error_cntrl NUMBER(5) NOT NULL, data_a NUMBER(5) NOT NULL, data_b CHAR(5) NOT NULL)
CREATE TABLE call_forwarding (s_id NUMBER(10) NOT NULL, sf_type NUMBER(5) NOT NULL, start_time NUMBER(5) NOT NULL, end_time NUMBER(5) NOT NULL, numberx VARCHAR2(15) NOT NULL)
-- after the load, phase 1
ALTER TABLE subscriber ADD CONSTRAINT subscriber_pk PRIMARY KEY (s_id) USING INDEX (CREATE UNIQUE INDEX subscriber_pk ON subscriber (s_id) PARALLEL NOLOGGING)
ALTER TABLE access_info ADD CONSTRAINT access_info_pk PRIMARY KEY (s_id, ai_type) USING INDEX (CREATE UNIQUE INDEX access_info_pk ON access_info (s_id, ai_type) PARALLEL NOLOGGING)
ALTER TABLE special_facility ADD CONSTRAINT special_facility_pk PRIMARY KEY (s_id, sf_type) USING INDEX (CREATE UNIQUE INDEX special_facility_pk ON special_facility (s_id, sf_type) PARALLEL NOLOGGING)
ALTER TABLE call_forwarding ADD CONSTRAINT call_forwarding_pk PRIMARY KEY (s_id, sf_type, start_time) USING INDEX (CREATE UNIQUE INDEX call_forwarding_pk ON call_forwarding (s_id, sf_type, start_time) PARALLEL NOLOGGING)
CREATE UNIQUE INDEX subscriber_sub_nbr ON subscriber (sub_nbr) PARALLEL NOLOGGING
-- after the load, phase 2
ALTER TABLE access_info PARALLEL
ALTER TABLE special_facility PARALLEL
ALTER TABLE call_forwarding PARALLEL
-- after the load, phase 3
ALTER TABLE access_info ADD CONSTRAINT access_info_fk1 FOREIGN KEY (s_id) REFERENCES subscriber (s_id)
-- after the load, phase 4
ALTER TABLE special_facility ADD CONSTRAINT special_facility_fk1 FOREIGN KEY (s_id) REFERENCES subscriber (s_id)
-- after the load, phase 5
ALTER TABLE call_forwarding ADD CONSTRAINT call_forwarding_fk1 FOREIGN KEY (s_id, sf_type) REFERENCES special_facility (s_id, sf_type)
-- after the load, phase 6
ALTER TABLE access_info NOPARALLEL
ALTER TABLE special_facility NOPARALLEL
ALTER TABLE call_forwarding NOPARALLEL
ALTER INDEX subscriber_pk NOPARALLEL LOGGING
ALTER INDEX access_info_pk NOPARALLEL LOGGING
ALTER INDEX special_facility_pk NOPARALLEL LOGGING
ALTER INDEX call_forwarding_pk NOPARALLEL LOGGING
ALTER INDEX subscriber_sub_nbr NOPARALLEL LOGGING
-- after the load, phase 7
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'SUBSCRIBER', degree => DBMS_STATS.AUTO_DEGREE); END;
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'ACCESS_INFO', degree => DBMS_STATS.AUTO_DEGREE); END;
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'SPECIAL_FACILITY', degree => DBMS_STATS.AUTO_DEGREE); END;
BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, 'CALL_FORWARDING', degree => DBMS_STATS.AUTO_DEGREE); END;
-- removal
DROP TABLE call_forwarding CASCADE CONSTRAINTS PURGE
DROP TABLE special_facility CASCADE CONSTRAINTS PURGE
DROP TABLE access_info CASCADE CONSTRAINTS PURGE
DROP TABLE subscriber CASCADE CONSTRAINTS PURGE
-- get_subscriber
SELECT s_id, sub_nbr, bit_1, bit_2, bit_3, bit_4, bit_5, bit_6, bit_7, bit_8, bit_9, bit_10, hex_1, hex_2, hex_3, hex_4, hex_5, hex_6, hex_7, hex_8, hex_9, hex_10, byte2_1, byte2_2, byte2_3, byte2_4, byte2_5, byte2_6, byte2_7, byte2_8, byte2_9, byte2_10, msc_location, vlr_location FROM subscriber WHERE s_id = $1
-- get_access
SELECT data1, data2, data3, data4 FROM access_info WHERE s_id = $1 AND ai_type = $2
-- get_destination
SELECT cf.numberx FROM special_facility sf, call_forwarding cf WHERE sf.s_id = $1 AND sf.sf_type = $2 AND sf.is_active = 1 AND cf.s_id = sf.s_id AND cf.sf_type = sf.sf_type AND cf.start_time <= $3 AND $4 < cf.end_time
-- set_bit
UPDATE subscriber SET bit_1 = $1 WHERE s_id = $2
-- set_data_a
UPDATE special_facility SET data_a = $1 WHERE s_id = $2 AND sf_type = $3
-- find_number
SELECT s_id FROM subscriber WHERE sub_nbr = $1
-- set_location
UPDATE subscriber SET vlr_location = $1 WHERE s_id = $2
-- get_facilities
SELECT sf_type FROM special_facility WHERE s_id = $1
-- insert_forwarding
INSERT INTO call_forwarding (s_id, sf_type, start_time, end_time, numberx) VALUES ($1, $2, $3, $4, $5)
-- delete_forwarding
DELETE FROM call_forwarding WHERE s_id = $1 AND sf_type = $2 AND start_time = $3
