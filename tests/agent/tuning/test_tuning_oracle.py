"""Tunings of an Oracle system over its own protocol: queries are read by the real driver.

Behind the TNS server is PostgreSQL, and the views are tables of this test. Not proven here: that an Oracle Database
accepts ALTER SYSTEM, the PL/SQL blocks and CREATE DISKGROUP, and that its views have these contents; the texts are
checked by the cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import oracledb
import psycopg
import pytest
from tuning_bench import host_in, tuning

from proveout.agent.engines.oracle.driver import role_of
from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Tool
from proveout.agent.tuning import sql_access
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.sql_access import Databases
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.oracle import OPEN
from proveout.proto.wire.tasks import Endpoint

VIEWS = """
CREATE TABLE "gv$system_parameter" (name varchar(80), inst_id int, value varchar(4000), issys_modifiable varchar(9));
CREATE TABLE "gv$instance" (inst_id int, instance_name varchar(16));
CREATE TABLE "v$instance" (status varchar(12));
INSERT INTO "gv$instance" VALUES (1, 'HLR1'), (2, 'HLR2');
CREATE TABLE "v$spparameter" (name varchar(80), sid varchar(80), value varchar(255), isspecified varchar(6), ordinal int);
INSERT INTO "gv$system_parameter" VALUES
  ('spfile', 1, '+DATA/spfile', 'FALSE'), ('processes', 1, '300', 'FALSE'), ('processes', 2, '300', 'FALSE'),
  ('open_cursors', 1, '3000', 'IMMEDIATE');
INSERT INTO "v$spparameter" VALUES
  ('processes', '*', '300', 'TRUE', 1), ('open_cursors', '*', NULL, 'FALSE', 1);
"""


@pytest.fixture
def views(tns_database: str) -> Iterator[None]:
    with psycopg.connect(tns_database, autocommit=True) as connection:
        connection.execute(VIEWS)
        yield
        connection.execute('DROP TABLE "gv$system_parameter", "v$spparameter", "gv$instance", "v$instance"')


@pytest.fixture
def host(oracle: str, tmp_path: Path) -> Host:
    root = tmp_path / "root"
    root.mkdir()
    host = host_in(root)
    host.databases = Databases({("r", "orcl"): Endpoint(system="orcl", engine="oracle", dsn=oracle)}, run="r")
    return host


def test_parameters_are_read_by_the_driver_and_compared_also_of_one_instance(
    views: None, host: Host, journal: UndoJournal
) -> None:
    plan = Transaction(host=host, journal=journal, run="r").plan
    (both,) = plan(
        (tuning("oracle_parameters", system="orcl", settings={"processes": "3000", "open_cursors": "3000"}),)
    )
    assert both.outcome == "would_change"
    assert both.lines == (
        "orcl: ALTER SYSTEM SET processes = 3000 SCOPE=SPFILE SID='*'",
        "  to undo: orcl: ALTER SYSTEM SET processes = 300 SCOPE=SPFILE SID='*'",
        "processes = 3000 is stored, but the instances run with 300 until they are restarted",
    )
    (second,) = plan((tuning("oracle_parameters", system="orcl", instance="HLR2", settings={"processes": "500"}),))
    assert second.lines[0] == "orcl: ALTER SYSTEM SET processes = 500 SCOPE=SPFILE SID='HLR2'"
    assert second.lines[-1] == "processes = 500 is stored, but instance HLR2 runs with 300 until it is restarted"


def test_hidden_parameters_and_a_restart_need_the_consent_of_the_hosts_owner(
    views: None, host: Host, journal: UndoJournal
) -> None:
    srvctl = "/u01/app/oracle/product/19.0.0/dbhome_1/bin/srvctl"
    one = tuning(
        "oracle_parameters",
        system="orcl",
        hidden=True,
        settings={"_high_priority_processes": "VKTM*|LG*"},
        restart_by={"srvctl": srvctl, "database": "HLR"},
    )
    transaction = Transaction(host=host, journal=journal, run="r")
    (state,) = transaction.apply((one,))
    assert (state.outcome, journal.outstanding()) == ("refused", ())
    text = " ".join(state.lines)
    assert "the Oracle parameter _high_priority_processes is not allowed on this host" in text
    assert f"the program {srvctl} is not allowed on this host" in text
    listed = (Tool(path=srvctl, arguments=("*",)),)
    host.policy = replace(host.policy, oracle_parameters=("_high_priority_processes",), tools=listed)
    (state,) = transaction.plan((one,))
    assert state.outcome == "would_change"
    assert f"{srvctl} stop database -db HLR" in state.lines


def test_a_restarted_instance_is_awaited_until_it_is_open(views: None, oracle: str, tns_database: str) -> None:
    endpoint = Endpoint(system="orcl", engine="oracle", dsn=oracle)
    with pytest.raises(TaskFault, match="'orcl' was not open 0 s after its restart: it is not open"):
        sql_access._await_open(endpoint, within_s=0.0)
    with psycopg.connect(tns_database, autocommit=True) as behind:
        behind.execute("""INSERT INTO "v$instance" VALUES ('OPEN')""")
    sql_access.run(endpoint, OPEN)
    nobody = replace(endpoint, dsn="x/y@//127.0.0.1:1/ORCL")
    with pytest.raises(TaskFault, match=r"was not open 0 s after its restart: .*ORA-12541"):
        sql_access._await_open(nobody, within_s=0.0)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ("hlr", ("hlr", oracledb.AUTH_MODE_DEFAULT)),
        ("sys as sysasm", ("sys", oracledb.AUTH_MODE_SYSASM)),
        ("SYS AS SYSDBA", ("SYS", oracledb.AUTH_MODE_SYSDBA)),
        ("as sysdba", ("as sysdba", oracledb.AUTH_MODE_DEFAULT)),
    ],
)
def test_a_dsn_may_name_an_administrators_role(user: str, expected: tuple[str, int]) -> None:
    assert role_of(user) == expected
