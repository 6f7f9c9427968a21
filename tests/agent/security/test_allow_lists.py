"""Entries that a policy may list without a reason, checked against the folders and programs of this machine, and against
known ways to root; devices that a udev rule of a plan may match: attacks are refused by the compiler or by the policy, rules
of labs are accepted."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from policy_attacks import (
    ARGUMENTS,
    DEVICES,
    FOLDERS,
    LISTED,
    LOADERS,
    NEVER_DEVICES,
    NEVER_FOLDERS,
    RULES,
    RUNNERS,
    TOOLS,
    VALIDATORS,
    policy_of,
    write,
)
from pydantic import BaseModel, ValidationError

from proveout.agent.daemon.servicer import Options, _audit_log, read_policy
from proveout.agent.engines.postgres.installation import find_installation
from proveout.agent.errors import TaskFault
from proveout.agent.security import policy as security_policy
from proveout.agent.security import policy_file
from proveout.agent.security.policy import Policy, Tool, command_line
from proveout.agent.tuning.host import Host
from proveout.core.errors import ProveoutError
from proveout.dsl.operations.facts import ABSENT, Facts, FileQuery
from proveout.dsl.operations.multipath import UdevRules
from proveout.proto.audit_log import FILE as AUDIT_LOG

WHY = "nothing but the lab reads it"
KNOWN_PROGRAMS = {
    f"{folder}/{name}"
    for folder in ("/bin", "/sbin", "/usr/bin", "/usr/sbin")
    for name in (
        "blkid", "cmp", "dd", "fio", "mkfs.ext4", "mkfs.xfs", "multipath", "parted", "partprobe", "sg_vpd", "systemctl", "udevadm", "wipefs",
    )
}  # fmt: skip
KNOWN_FOLDERS = (
    "/etc/multipath/conf.d", "/etc/security/limits.d", "/etc/sysctl.d", "/etc/udev/rules.d", "/sys/block", "/sys/class/net",
    "/sys/devices/system/cpu", "/sys/kernel/mm/hugepages", "/sys/kernel/mm/transparent_hugepage",
)  # fmt: skip


def folders() -> list[str]:
    """Folders and files of this machine, in addition to those of `policy_attacks`."""
    places = ("*", "etc/*", "etc/*/*", "var/lib/*", "usr/*", "usr/local/*", "home/*", "opt/*")
    return sorted({*FOLDERS, *(str(path) for place in places for path in Path("/").glob(place))})


def programs() -> list[str]:
    """All programs of this machine, in addition to those of `policy_attacks`."""
    every = {f"{folder}/{name}" for folder in ("/usr/bin", "/usr/sbin") for name in TOOLS}
    places = ("bin/*", "sbin/*", "usr/bin/*", "usr/sbin/*")
    return sorted({*every, *(str(path) for place in places for path in Path("/").glob(place))})


def taken(model: type[BaseModel], **entry: object) -> bool:
    try:
        model.model_validate(entry)
    except ValidationError:
        return False
    return True


def test_no_other_folder_is_listed_without_a_reason() -> None:
    assert security_policy.KNOWN_FOLDERS == KNOWN_FOLDERS
    found = [path for path in folders() if taken(policy_file.PathEntry, path=path)]
    assert [path for path in found if not path.startswith(KNOWN_FOLDERS) and path != "/etc/fstab"] == []
    below = [f"{path}/x" for path in folders()]
    found = [path for path in below if taken(policy_file.PathEntry, path=path)]
    assert [path for path in found if not path.startswith((*KNOWN_FOLDERS, "/data/", "/mnt/", "/srv/"))] == []


def test_no_other_program_is_listed_without_a_reason() -> None:
    assert {path.rpartition("/")[2] for path in KNOWN_PROGRAMS} == set(security_policy._ARGUMENTS)
    found = {path for path in programs() if taken(policy_file.ToolEntry, path=path)}
    assert found <= KNOWN_PROGRAMS
    assert not taken(policy_file.ToolEntry, path="/srv/blkid"), "a known name in another folder"
    assert not taken(policy_file.ToolEntry, path="/usr/local/bin/udevadm")


@pytest.mark.escape
def test_folders_and_programs_that_no_reason_permits() -> None:
    for path in NEVER_FOLDERS:
        assert not taken(policy_file.PathEntry, path=path, i_know=WHY), path
        assert path == "/home" or not Policy(paths=(path, "/")).allows_path(f"{path}/x"), path
    paths = [f"{folder}/{name}" for folder in ("/usr/bin", "/opt/lab") for name in RUNNERS]
    assert [path for path in paths if taken(policy_file.ToolEntry, path=path, i_know=WHY)] == []
    assert [path for path in paths if taken(policy_file.CommandEntry, path=path, i_know=WHY)] == []
    assert [path for path in paths if taken(policy_file.ValidatorEntry, run=[path, "{file}"], i_know=WHY)] == []
    assert taken(policy_file.ToolEntry, path="/usr/sbin/tuned-adm", i_know=WHY)


@pytest.mark.escape
@pytest.mark.parametrize("kind", ["commands", "tools"])
def test_a_link_to_a_program_that_runs_others_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / "client").symlink_to("/bin/sh")
    with pytest.raises(ProveoutError, match=r"is a link to .*sh, which runs any program"):
        policy_of(tmp_path, f"{kind}: [{{path: {tmp_path}/client, i_know: {WHY}}}]")


def test_reboots_need_a_reason(tmp_path: Path) -> None:
    assert not policy_of(tmp_path, "").allows_reboot()
    found = policy_of(tmp_path, f"reboot: {{i_know: {WHY}}}")
    assert found.allows_reboot()
    assert ("reboot", WHY) in found.widened
    assert "plans reboot this host" in policy_file.describe(found)
    with pytest.raises(ProveoutError):
        policy_of(tmp_path, "reboot: true")


def test_validators_and_devices_that_need_a_reason_and_devices_that_no_reason_permits() -> None:
    for argv in VALIDATORS:
        assert not taken(policy_file.ValidatorEntry, run=list(argv)), argv
        assert taken(policy_file.ValidatorEntry, run=list(argv), i_know=WHY), argv
    for argv in (("/usr/bin/udevadm", "verify", "{file}"), ("/usr/sbin/multipath", "-t", "{file}")):
        assert taken(policy_file.ValidatorEntry, run=list(argv)), argv
    for pattern in DEVICES:
        assert not taken(policy_file.RuleEntry, match=pattern), pattern
        assert taken(policy_file.RuleEntry, match=pattern, i_know=WHY), pattern
    for pattern in NEVER_DEVICES:
        assert not taken(policy_file.RuleEntry, match=pattern, i_know=WHY), pattern


@pytest.mark.parametrize(("program", "globs", "arguments"), ARGUMENTS, ids=str)
def test_a_wide_glob_does_not_widen_a_known_program(
    program: str, globs: tuple[str, ...], arguments: tuple[str, ...], tmp_path: Path
) -> None:
    entry = f"path: {program}, arguments: [{', '.join(repr(glob) for glob in globs)}]"
    narrow = policy_of(tmp_path, f"tools: [{{{entry}}}]")
    decision = narrow.allows_tool((program, *arguments))
    assert not decision
    climbs = any(".." in argument.split("/") for argument in arguments)
    assert climbs or "which is not a known argument of it" in decision.reason
    assert climbs or "i_know" in decision.way_out
    wide = policy_of(tmp_path, f"tools: [{{{entry}, i_know: {WHY}}}]")
    assert bool(wide.allows_tool((program, *arguments))) is not climbs


OPERATIONS = (
    ("/usr/bin/udevadm", "control", "--reload"),
    ("/usr/bin/udevadm", "trigger", "--action=change", "--subsystem-match=block"),
    ("/usr/bin/udevadm", "settle", "--timeout=30"),
    ("/usr/bin/systemctl", "daemon-reload"),
    ("/usr/sbin/blkid", "--probe", "--output", "export", "/dev/disk/by-id/wwn-0x6000-part1"),
    ("/usr/sbin/parted", "--script", "--machine", "/dev/disk/by-id/x", "unit", "s", "print"),
    ("/usr/sbin/parted", "--script", "/dev/disk/by-id/x", "mklabel", "gpt", "mkpart", "redo", "2048s", "38911s"),
    ("/usr/sbin/partprobe", "/dev/disk/by-id/x"),
    ("/usr/sbin/wipefs", "--all", "--types", "gpt,PMBR", "/dev/disk/by-id/x"),
    ("/usr/sbin/mkfs.xfs", "-q", "-f", "-L", "ttdb", "/dev/disk/by-id/x-part1"),
    ("/usr/sbin/mkfs.ext4", "-q", "-F", "-L", "ttdb", "/dev/disk/by-id/x-part1"),
    ("/usr/bin/dd", "if=/dev/zero", "of=/dev/disk/by-id/x", "bs=1M", "count=16", "conv=notrunc,fsync"),
    ("/usr/bin/cmp", "--bytes=16777216", "/dev/disk/by-id/x", "/dev/zero"),
    ("/bin/emc/scaleio/drv_cfg", "--query_block_device_id", "--block_device", "/dev/$name"),
    ("/bin/emc/scaleio/drv_cfg", "--query_block_device_id", "--block_device", "/dev/%k"),
    ("/usr/lib/udev/scsi_id", "-g", "-u", "-d", "/dev/$name"),
)


def test_programs_of_tuning_operations_are_known() -> None:
    for argv in OPERATIONS:
        tool = Tool(path=argv[0], arguments=("*",), known=security_policy.known_arguments(argv[0]))
        assert tool.known is not None, argv
        assert Policy(tools=(tool,)).allows_tool(argv), argv
        assert taken(policy_file.ToolEntry, path=argv[0], arguments=list(argv[1:])), argv


# ---- arguments of load generators ------------------------------------------------------------------------------------

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
OF_A_SOCKET = {"--pgsql-host", "--mysql-host", "--mysql-socket"}
VALUES = (
    "", "=", "=/bin/sh", "=/bin/sh -c id", "=sh -c id", "=external:/tmp/x.so", "=/tmp/x.so", "=exec", "=../x", "=a:b", "=x;id",
    "=$(id)", "=|id", "=@x", "=~/x", "=a,b", "=a b", "=-x", "=--help", "=a/b", "=a\nb", "=${x}", "={word}",
)  # fmt: skip
HARMLESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


def documented() -> str:
    """The policy of the page about load generators."""
    return re.findall(r"```yaml\n(policy: 1\n.*?)```", (GUIDE / "programs.md").read_text(), re.DOTALL)[0]


def help_of(name: str) -> tuple[str, str]:
    """(program, its help with all options). Skips where it is not installed."""
    program = str(find_installation().programs / name) if name == "pgbench" else shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not on this host")
    asked = {
        "fio": [("--help",), ("--cmdhelp=all",), ("--enghelp=exec",), ("--enghelp=libaio",), ("--enghelp=net",)],
        "pgbench": [("--help",)],
        "sysbench": [("--help",), ("oltp_point_select", "help"), ("fileio", "help")],
    }[name]
    runs = [subprocess.run([program, *words], capture_output=True, text=True, check=False) for words in asked]
    return f"/usr/bin/{name}", "\n".join(run.stdout + run.stderr for run in runs)


def permits(policy: Policy, argv: tuple[str, ...]) -> bool:
    try:
        policy.command(argv)
    except TaskFault:
        return False
    return True


@pytest.mark.escape
@pytest.mark.parametrize("name", ["fio", "pgbench", "sysbench"])
def test_the_documented_entries_let_no_option_run_load_or_write_something(name: str, tmp_path: Path) -> None:
    """Each option of the program's help with hostile values: only listed options, with values that are plain words."""
    policy = policy_file.read(write(tmp_path, documented()))
    program, text = help_of(name)
    options = {found.strip("-") for found in re.findall(r"^\s*(?:-\w, )?-{0,2}([a-zA-Z_][\w-]*)", text, re.MULTILINE)}
    options |= {*re.findall(r"--([a-zA-Z][\w-]*)", text)}
    assert {*LOADERS[name]} <= options and len(options) > 40
    listed = {one for tool in policy.commands if tool.path == program for one in tool.arguments}
    names = {one.partition("=")[0] for one in listed}
    found = [
        argument
        for option in sorted(options)
        for dashes in ("--", "-", "")
        for value in VALUES
        if permits(policy, (program, argument := f"{dashes}{option}{value}")) and argument not in listed
    ]
    for argument in found:
        option, _, value = argument.partition("=")
        assert option in names, argument
        assert HARMLESS.fullmatch(value) or (option in OF_A_SOCKET and re.fullmatch(r"(/[\w.+-]+)+", value)), argument
    for argument in ("/tmp/job.fio", "job.fio", "x.lua", "/usr/share/sysbench/x.lua", "host=evil dbname=x", "-f/tmp/x"):
        assert not permits(policy, (program, argument)), argument


@pytest.mark.escape
@pytest.mark.parametrize(
    "glob", ["*", "--*", "--[!f]*", "-*", "?-exec_prerun=sh", "--size=*", "[-]-exec_prerun=sh", "{word}*"]
)
def test_a_glob_of_arguments_of_a_command_needs_a_reason(glob: str, tmp_path: Path) -> None:
    entry = f"path: /usr/bin/fio, arguments: ['{glob}']"
    with pytest.raises(policy_file.PolicyError, match=r":2:12: .*list each option .*--threads=\{count\}.*i_know"):
        policy_of(tmp_path, f"commands: [{{{entry}}}]")
    assert policy_of(tmp_path, f"commands: [{{{entry}, i_know: {WHY}}}]").widened


@pytest.mark.parametrize(
    ("listed", "given", "refused"),
    [
        ("--n={count}", ["--n=1", "--n=000"], ["--n=", "--n=1 ", "--n=1e3", "--n=-1", "--n=1\n", "--m=1", "x--n=1"]),
        ("--n={number}", ["--n=1.5", "--n=2"], ["--n=1.", "--n=nan", "--n=1,5"]),
        ("--n={word}", ["--n=a", "--n=json+", "--n=64m"], ["--n=/a", "--n=a:b", "--n=.", "--n=..", "--n=-a", "--n=a b", "--n=a=b"]),
        ("--n={path}", ["--n=/a/b.so", "--n=/a"], ["--n=a", "--n=/a/../b", "--n=/", "--n=/a:b", "--n=/.a", "--n=//a", "--n=/a/"]),
        ("--n={host}", ["--n=db1.lab", "--n=10.0.0.1", "--n=[fe80::1]", "--n=/run/pg"], ["--n=a/b", "--n=a b", "--n=a,b", "--n=-a"]),
        ("/data/{word}", ["/data/a.bin"], ["/data/a/b", "/data/..", "/data/"]),
        ("{count}m*", ["5m", "5mx"], ["m", "5"]),
        ("{word}", ["a", "x.lua"], ["-a", "--a", "/a"]),
    ],
)  # fmt: skip
def test_forms_of_values(listed: str, given: list[str], refused: list[str]) -> None:
    tool = Tool(path="/x", arguments=(listed,))
    assert [one for one in given if not tool.takes(one)] == []
    assert [one for one in refused if tool.takes(one)] == []


@pytest.mark.parametrize(
    ("listed", "argument", "found"),
    [
        ("--client={count}", "--client={count}", True),
        ("--client=8", "--client={count}", True),  # one rung may fit
        ("--client={word}", "--client={count}", True),
        ("--host=/run/{word}", "--host={host}", True),
        ("--client={path}", "--size={count}", False),
        ("{word}", "--client={count}", False),
        ("8", "{count}", True),
        ("-8", "{count}", False),
        ("--url=*", "--url=*", True),
        ("--log", "--log", True),
        ("--log", "--log-prefix", False),
    ],
)
def test_before_the_values_are_known_an_argument_passes_when_one_value_would(
    listed: str, argument: str, found: bool
) -> None:
    assert Tool(path="/x", arguments=(listed,)).may_take(argument) is found


def test_commands_are_listed_with_their_arguments_apart_from_paths_and_tools(tmp_path: Path) -> None:
    text = "commands: [{path: /usr/bin/who}, {path: /usr/bin/df, arguments: [-k]}, {path: /opt/x/stat, arguments: ['--disk=*'], privileged: true, i_know: it reads}]"
    policy = policy_of(tmp_path, text)
    assert policy.command(("df", "-k")) == policy.command(("/usr/bin/df", "-k")) == (("/usr/bin/df", "-k"), False)
    assert policy.command(("stat", "--disk=sda")) == (("/opt/x/stat", "--disk=sda"), True)
    assert policy.command(("who",)) == (("/usr/bin/who",), False)
    for argv in (("stat", "-z"), ("df", "-l"), ("who", "-a"), ("/bin/stat",), ("stat", "--disk=../../etc")):
        with pytest.raises(TaskFault, match="not allowed"):
            policy.command(argv)
    assert ("/opt/x/stat --disk=*", "it reads") in policy.widened
    assert not policy.allows_path("/usr/bin/df")
    assert not policy.allows_tool(["/usr/bin/df", "-k"])
    assert "/usr/bin/df -k" in policy_file.describe(policy)


def test_the_line_of_a_refusal_lists_what_was_refused(tmp_path: Path) -> None:
    """Words that YAML takes for something else than a text are quoted in it."""
    path, words = (
        "/opt/a tool, 2/run",
        ("-1", "-.5", ".5", "-.inf", ".nan", "no", "On", "True", "null", "it's", "#", "-x", "/a=b"),
    )
    (command,) = policy_of(tmp_path, f"commands: [{command_line(path, words)}]").commands
    assert (command.path, command.arguments) == (path, words)


# ---- the entry with a reason -----------------------------------------------------------------------------------------


WIDENED = f"""policy: 1
paths: [/etc/sysctl.d, {{path: /opt/lab, i_know: {WHY}}}]
tools: [{{path: /usr/sbin/tuned-adm, arguments: [active], i_know: it reads}}]
validators: {{app: {{run: [/usr/bin/test, -s, "{{file}}"], i_know: it looks at the size}}}}
oracle_parameters: [audit_trail]
udev: {{devices: ["KERNEL==scini*", {{match: "ENV{{DM_NAME}}==fcion*", i_know: the Fusion-io array}}], links: [lab]}}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the folder of the policy is root's")
def test_a_reason_widens_a_policy_and_is_logged_by_the_agent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = tmp_path / "state"
    state.mkdir()
    options = Options(listen="", pki=tmp_path / "pki", state_dir=state, policy=write(tmp_path, WIDENED))
    with caplog.at_level(logging.WARNING):
        found = read_policy(options)
    assert found.paths == ("/etc/sysctl.d", "/opt/lab")
    assert found.allows_path("/opt/lab/x.conf")
    assert found.allows_tool(("/usr/sbin/tuned-adm", "active"))
    assert found.validator("app", "/x") == ("/usr/bin/test", "-s", "/x")
    assert found.udev_devices == ("KERNEL==scini*", "ENV{DM_NAME}==fcion*")
    assert found.udev_links == ("lab",)
    refused = found.allows_oracle_parameter("_max_outstanding_log_writes")
    assert found.allows_oracle_parameter("audit_trail") and not refused
    assert "add `- _max_outstanding_log_writes` under `oracle_parameters` in" in refused.way_out
    assert '{path: /opt/other, i_know: "why plans may write there"}' in found.allows_path("/opt/other/x").way_out
    assert 'i_know: "why plans may start it"' in found.allows_tool(("/usr/bin/tee",)).way_out
    assert f"the policy allows /opt/lab, which is not in the list of safe entries; its reason: {WHY}" in caplog.text
    _audit_log(state, found)
    log = (state / AUDIT_LOG).read_text()
    assert log.count('"widened"') == 4
    assert WHY in log


def test_programs_of_a_plan_need_an_entry_with_a_reason(tmp_path: Path) -> None:
    """The checks of `zero_blocks` and `partition` do not protect a disk from a `command` of the plan."""
    known = "{path: /usr/bin/dd, arguments: ['*']}, {path: /usr/sbin/partprobe, arguments: ['/dev/disk/by-id/*']}"
    check = "/opt/lab/check"
    found = policy_of(tmp_path, f"tools: [{known}, {{path: {check}, arguments: [a], i_know: {WHY}}}]")
    destroys = ("/usr/bin/dd", "if=/dev/zero", "of=/dev/disk/by-id/x")
    assert found.allows_tool(destroys)
    refused = found.allows_tool(destroys, of_plan=True)
    assert not refused
    line = "{path: /usr/bin/dd, arguments: [if=/dev/zero, of=/dev/disk/by-id/x], i_know: "
    assert line in refused.way_out
    assert not found.allows_tool(("/usr/sbin/partprobe", "/dev/disk/by-id/x"), of_plan=True)
    assert found.allows_tool((check, "a"), of_plan=True)
    assert not found.allows_tool((check, "b"), of_plan=True)


# ---- devices of udev rules -------------------------------------------------------------------------------------------

RULES_FILE = "/etc/udev/rules.d/66-x.rules"
DRV_CFG = "/bin/emc/scaleio/drv_cfg"
UDEVADM = Tool(path="/usr/bin/udevadm", arguments=("*",))
POLICY = Policy(
    source="/etc/proveout/policy.yaml",
    paths=("/etc/udev/rules.d",),
    devices=LISTED,
    udev_devices=("KERNEL==scini*",),
    tools=(UDEVADM, Tool(path="/opt/drv_cfg", arguments=("/srv/*", "--file=/srv/*"))),
)


def objections(rule: Mapping[str, Any], policy: Policy = POLICY) -> tuple[str, ...]:
    """The objections to a rule, by the compiler or by the agent's policy."""
    try:
        operation = UdevRules.model_validate({"file": RULES_FILE, "rules": [rule]})
    except ValidationError as error:
        return tuple(str(detail["msg"]) for detail in error.errors())
    step = operation.changes(Facts({FileQuery(RULES_FILE): ABSENT}))
    return Host(policy=policy, root=Path("/nonexistent")).objections(step.changes)


@pytest.mark.escape
def test_a_rule_that_exceeds_the_policy_is_refused(record_property: Callable[[str, object], None]) -> None:
    """The same rules without the attack are accepted, so they are not refused for another reason."""
    record_property("escapes", len(RULES))
    assert [name for name, rule in RULES.items() if not objections(rule)] == []
    for rule in (
        {"match": {"KERNEL": "scini*"}, "assign": {"OWNER": "lab", "SYMLINK": "oraudev/disks/A%n"}},
        {"match": {"KERNEL": "scinia|scinib"}, "program": ["/opt/drv_cfg", "/srv/%k"], "assign": {"MODE": "0660"}},
        {"match": {"ENV{DM_NAME}": "fcion1"}, "assign": {"OWNER": "lab"}},
        {"match": {"ENV{DM_NAME}": "fcion1p2"}, "assign": {"OWNER": "lab"}},
        {"match": {"ENV{ID_SERIAL}": "36001405aaaa", "SUBSYSTEM": "block"}, "assign": {"OWNER": "lab"}},
        {"match": {"ENV{ID_SERIAL_SHORT}": "S4EVNX0R512345"}, "assign": {"GROUP": "lab"}},
    ):
        assert objections(rule) == (), rule


LABS: Mapping[str, tuple[Mapping[str, Any], Policy]] = {
    "ScaleIO disks identified by drv_cfg": (
        {
            "match": {"KERNEL": "scini*", "RESULT": "3e1a6b0f00000000"},
            "program": [DRV_CFG, "--query_block_device_id", "--block_device", "/dev/$name"],
            "assign": {"SYMLINK": "oraudev/disks/OCR1", "OWNER": "grid", "GROUP": "asmadmin", "MODE": "0660"},
        },
        replace(
            POLICY,
            tools=(UDEVADM, Tool(path=DRV_CFG, arguments=("--query_block_device_id", "--block_device", "/dev/$name"))),
        ),
    ),
    "maps of a Fusion-io array": (
        {"match": {"ENV{DM_NAME}": "fcion*1"}, "assign": {"OWNER": "grid", "GROUP": "asmadmin", "MODE": "0660"}},
        replace(POLICY, udev_devices=("ENV{DM_NAME}==fcion*",)),
    ),
    "queues of a 3PAR array": (
        {
            "match": {"SUBSYSTEM": "block", "KERNEL": "sd*", "ATTRS{vendor}": "3PARdata*"},
            "assign": {"ATTR{queue/rotational}": "0", "ATTR{queue/nr_requests}": "128"},
        },
        replace(POLICY, paths=("/etc/udev/rules.d", "/sys/block")),
    ),
}


@pytest.mark.parametrize("name", LABS)
def test_rules_of_labs_are_accepted_by_a_policy_that_lists_their_disks(name: str) -> None:
    rule, policy = LABS[name]
    assert objections(rule, policy) == ()
    without = replace(policy, udev_devices=(), paths=("/etc/udev/rules.d",))
    assert objections(rule, without), "and not without"


def test_a_refusal_names_the_rule_and_the_way_out() -> None:
    (objection,) = objections({"match": {"KERNEL": "sda"}, "assign": {"OWNER": "lab"}})
    assert objection.startswith("the devices of the rule KERNEL==sda are not allowed on this host")
    assert "`KEY==pattern`, under `udev: devices` in /etc/proveout/policy.yaml" in objection
    queues, policy = LABS["queues of a 3PAR array"]
    (attribute,) = objections(queues, replace(policy, paths=("/etc/udev/rules.d",)))
    assert "/sys/block/queue is not allowed" in attribute and "`- /sys/block`" in attribute


@pytest.mark.parametrize(
    ("value", "listed", "expected"),
    [
        ("scinia", "scini*", True),
        ("scini*1", "scini*", True),
        ("sc*", "scini*", False),
        ("scinia|sda", "scini*", False),
        ("", "scini*", False),
        ("scini*", "scini[ab]", False),
        ("scinia", "scini[ab]", True),
        ("scini*", "*ini*", False),
        ("fcion*12", "fcion*1", False),
    ],
)
def test_a_pattern_within_a_listed_one(value: str, listed: str, expected: bool) -> None:
    assert security_policy.is_within(value, listed) is expected
