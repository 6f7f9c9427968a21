"""Storage operations on a host in a folder: applied, applied again, reverted to the byte.

Not proven here: that udev or the kernel acts on the files and attributes; their programs are recorded, not run.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tuning_bench import StubTools, StubUnits, host_in, picture, put, tuning

from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tuning import revert
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.facts import UnitFact
from proveout.dsl.operations.host.ini_section import edit
from proveout.dsl.operations.storage.multipath import wwid
from proveout.dsl.plan.tuning_step import Tuning

UDEVADM = Tool(path="/usr/bin/udevadm", arguments=("control", "trigger", "settle", "--*"))
POLICY = Policy(
    source="/etc/proveout/policy.yaml",
    paths=("/etc/udev/rules.d", "/etc/app", "/sys/block"),
    udev_devices=("ENV{DM_NAME}==fcion*", "KERNEL==scini*"),
    tools=(UDEVADM,),
)
RULES = "/etc/udev/rules.d/66-asm.rules"
RULE = {"match": {"ENV{DM_NAME}": "fcion*1"}, "assign": {"OWNER": "grid", "MODE": "0660"}}
ASKED = {
    "match": {"KERNEL": "scini*", "RESULT": "id1"},
    "program": ["/opt/drv_cfg", "--query", "/dev/%k"],
    "assign": {"OWNER": "grid"},
}
TUNINGS = (
    tuning("udev_rules", file=RULES, rules=[RULE]),
    tuning("block_queue", devices=["sd*"], scheduler=["none"], nr_requests=64, nomerges=1),
    tuning("ini_section", file="/etc/app/sys.odbc.ini", section="hlr", set={"PermSize": "620000", "LogBufMB": "1024"}),
)
ODBC = "[odbc]\nhlr=x\n\n[hlr]  ; ours\r\nPermSize = 100\n# end\n[other]\nPermSize=1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for disk in ("sda", "sdb"):
        put(root, f"/sys/block/{disk}/queue/scheduler", "none\n")
        put(root, f"/sys/block/{disk}/queue/nr_requests", "256\n")
        put(root, f"/sys/block/{disk}/queue/nomerges", "0\n")
    put(root, RULES, "# by hand\n", mode=0o640)
    put(root, "/etc/app/sys.odbc.ini", ODBC, mode=0o600)
    return root


def applied(host: Host, journal: UndoJournal, *tunings: Tuning) -> list[str]:
    return [state.outcome for state in Transaction(host=host, journal=journal, run="r").apply(tunings)]


@pytest.mark.parametrize("one", TUNINGS, ids=lambda one: one.operation)
def test_applied_once_twice_and_reverted_to_the_byte(one: Tuning, root: Path, journal: UndoJournal) -> None:
    before, host = picture(root), host_in(root, policy=POLICY)
    assert applied(host, journal, one) == ["applied"]
    once = picture(root)
    assert once != before
    assert applied(host, journal, one) == ["unchanged"]
    assert picture(root) == once
    assert {state.outcome for state in revert.revert(host, journal)} == {"reverted"}
    assert picture(root) == before


def test_udev_reloads_the_rules_after_the_write_and_after_the_revert(root: Path, journal: UndoJournal) -> None:
    tools = StubTools()
    host = host_in(root, policy=POLICY, tools=tools)
    applied(host, journal, TUNINGS[0])
    revert.revert(host, journal)
    assert [argv[1] for argv in tools.done] == ["control", "trigger", "settle"] * 2


def test_a_program_in_a_udev_rule_needs_the_policy(root: Path, journal: UndoJournal) -> None:
    one = tuning("udev_rules", file=RULES, rules=[ASKED])
    before = picture(root)
    transaction = Transaction(host=host_in(root, policy=POLICY), journal=journal, run="r")
    (state,) = transaction.apply((one,))
    assert state.outcome == "refused"
    assert "the program /opt/drv_cfg is not allowed on this host" in state.lines[0]
    assert picture(root) == before
    drv_cfg = Tool(path="/opt/drv_cfg", arguments=("--query", "/dev/%k"))
    policy = replace(POLICY, tools=(UDEVADM, drv_cfg))
    assert applied(host_in(root, policy=policy), journal, one) == ["applied"]
    assert 'PROGRAM=="/opt/drv_cfg --query /dev/%k", RESULT=="id1"' in (root / RULES[1:]).read_text()
    revert.revert(host_in(root, policy=policy), journal)


LINES = st.sampled_from(
    [
        "[a]",
        "[b]",
        " [A] ; x",
        "k=1",
        "K = 2 ",
        "other=3",
        "# k=4",
        "; k",
        "",
        "   ",
        "nonsense",
        "k",
        "=",
        "k==",
        "\tk\t=\t9",
    ]
)
FILES = st.builds(
    lambda lines, ends, last: "".join(line + end for line, end in zip(lines, ends, strict=False)) + last,
    st.lists(LINES, max_size=12),
    st.lists(st.sampled_from(["\n", "\r\n"]), min_size=12, max_size=12),
    st.sampled_from(["", "k=5", "[a]"]),
)


@given(content=FILES, value=st.sampled_from(["1", "x y", "", "a=b", "[c]"]), create=st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_an_edit_changes_one_value_and_no_other_byte(content: str, value: str, create: bool) -> None:
    before = content.encode()
    once = edit(before, "a", {"k": value}, create=create)
    if isinstance(once, str):
        assert once.startswith("has ")
        return
    assert edit(once, "a", {"k": value}, create=False) == once
    old, new = before.split(b"\n"), once.split(b"\n")
    kept = [line for line in old if line in new]
    assert len(old) - len(kept) <= 1


class MountingUnits(StubUnits):
    """Units whose mounts are in /proc/self/mounts."""

    def __init__(self, root: Path) -> None:
        super().__init__(multipathd=UnitFact(active=True, enabled=True))
        self.units["ttdb.mount"] = UnitFact(active=False, enabled=None)
        self.mounts = put(root, "/proc/self/mounts", "/dev/sda1 / ext4 rw 0 0\n")

    def act(self, unit: str, verb: str) -> None:
        super().act(unit, verb)
        if unit == "ttdb.mount":
            self.mounts.write_text("/dev/sda1 / ext4 rw 0 0\n" + "/dev/pmem0 /ttdb xfs rw 0 0\n" * (verb == "start"))


SYSTEMCTL = Tool(path="/usr/bin/systemctl", arguments=("daemon-reload",))
MORE = Policy(
    source=POLICY.source,
    paths=("/etc/fstab", "/etc/multipath/conf.d"),
    units=("ttdb.mount", "multipathd.service"),
    tools=(SYSTEMCTL,),
)
NAA = "0083 0014 01030010 6002 1ad0 0000 0001 0000 0000 0000 0000"


@pytest.mark.parametrize(
    "one",
    [
        tuning("mount", at="/ttdb", device="LABEL=ttdb", type="xfs", options=["defaults"]),
        tuning(
            "multipath",
            file="/etc/multipath/conf.d/x.conf",
            devices=[{"vendor": "FUSIONIO", "prio": "alua"}],
            numbered=[{"vendor": "FUSIONIO", "prefix": "fcion", "count": 1}],
        ),
    ],
    ids=lambda one: one.operation,
)
def test_mounts_and_maps_applied_once_twice_and_reverted_to_the_byte(
    one: Tuning, root: Path, journal: UndoJournal
) -> None:
    put(root, "/etc/fstab", "# by hand\nUUID=1 / ext4 defaults 0 1")
    (root / "ttdb").mkdir()
    (root / "etc/multipath/conf.d").mkdir(parents=True)
    put(root, "/sys/block/sda/device/vendor", "FUSIONIO\n")
    put(root, "/sys/block/sda/device/model", "ION LUN\n")
    (root / "sys/block/sda/device/vpd_pg83").write_bytes(bytes.fromhex(NAA))
    units, tools = MountingUnits(root), StubTools()
    before, host = picture(root), host_in(root, policy=MORE, units=units, tools=tools)
    assert applied(host, journal, one) == ["applied"]
    once = picture(root)
    assert once != before
    assert applied(host, journal, one) == ["unchanged"]
    assert picture(root) == once
    assert {state.outcome for state in revert.revert(host, journal)} == {"reverted"}
    assert picture(root) == before
    assert (
        units.done
        == {
            "mount": ["start ttdb.mount", "stop ttdb.mount"],
            "multipath": ["reload multipathd.service"] * 2,
        }[one.operation]
    )


@given(page=st.binary(max_size=80))
@settings(max_examples=200, deadline=None)
def test_a_page_of_any_bytes_has_a_name_or_none(page: bytes) -> None:
    name = wwid(b"\x00\x83" + page)
    assert name is None or (name[0] in "23" and int(name, 16) >= 0)
