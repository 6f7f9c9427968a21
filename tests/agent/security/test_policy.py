"""The policy of a host: decisions, the policy file, and refusals that name the line to add."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from policy_attacks import policy_of, write

from proveout.agent.daemon.servicer import Options, read_policy
from proveout.agent.errors import TaskFault
from proveout.agent.security import policy_file
from proveout.agent.security.policy import NOTHING, Decision, Policy, Tool
from proveout.cli import execute
from proveout.core.errors import ProveoutError

POLICIES = Path(__file__).parents[3] / "plans" / "policies"
DISK = "/dev/disk/by-id/wwn-0x600a098038304437415d4b6a59676d51"
FIO = "/usr/bin/fio"
WHY = "files of a test"


def ask(policy: Policy, what: str, name: str) -> Decision:
    checks = {
        "sysctl": policy.allows_sysctl,
        "unit": policy.allows_unit,
        "path": policy.allows_path,
        "device": policy.allows_device,
        "tool": lambda line: policy.allows_tool(line.split()),
        "destructive": lambda _: policy.allows_destructive(),
        "provision": policy.allows_provision,
    }
    return checks[what](name)


# ---- the documented policies -----------------------------------------------------------------------------------------

DOCUMENTED = {
    "database-server": [
        ("sysctl", "vm.nr_hugepages", True),
        ("sysctl", "kernel.core_pattern", False),
        ("sysctl", "net.ipv4.ip_forward", False),
        ("unit", "postgresql@16-main.service", True),
        ("unit", "sshd.service", False),
        ("path", "/etc/postgresql/16/main/conf.d/load.conf", False),
        ("path", "/etc/sysctl.d/90-load.conf", True),
        ("path", "/etc/sysctl.d/../passwd", False),
        ("device", DISK, False),
        ("tool", f"{FIO} --name=x", False),
        ("destructive", "", False),
        ("provision", "postgres", False),
    ],
    "storage-node": [
        ("sysctl", "vm.dirty_bytes", True),
        ("sysctl", "vm.nr_hugepages", False),
        ("unit", "multipathd", True),
        ("path", "/etc/udev/rules.d/60-load.rules", True),
        ("device", DISK, True),
        ("device", "serial:S4EVNX0R512345", True),
        ("device", DISK[:-1] + "3", False),
        ("device", "/dev/disk/by-id/../../sda", False),
        ("tool", f"{FIO} --name=randread --rw=randread --filename={DISK}", True),
        ("tool", f"{FIO} --name=x --exec_prerun=/bin/sh", False),
        ("tool", "/usr/bin/../bin/fio --name=x", False),
        ("tool", "/bin/sh -c id", False),
        ("destructive", "", True),
    ],
    "client": [
        ("sysctl", "net.core.somaxconn", True),
        ("path", "/etc/security/limits.d/90-load.conf", True),
        ("destructive", "", False),
    ],
}


def test_documented_policies_and_nothing_without_one(tmp_path: Path) -> None:
    assert {path.stem for path in POLICIES.glob("*.yaml")} == set(DOCUMENTED)
    for name, cases in DOCUMENTED.items():
        policy = policy_file.read(write(tmp_path, (POLICIES / f"{name}.yaml").read_text()))
        assert [case for case in cases if bool(ask(policy, case[0], case[1])) is not case[2]] == []
        for what, asked, _ in cases:
            decision = ask(NOTHING, what, asked)
            assert not decision and decision.way_out, (what, asked)
        if name == "storage-node":
            assert policy.validator("udev", "/run/x.rules") == ("/usr/bin/udevadm", "verify", "/run/x.rules")
            with pytest.raises(TaskFault, match="the validator visudo is not allowed") as caught:
                policy.validator("visudo", "/run/x")
            assert "under `validators`" in caught.value.way_out


# ---- some things never -----------------------------------------------------------------------------------------------

EVERYTHING = Policy(
    source="/srv/p.yaml", sysctl=("*",), units=("*",), paths=("/etc", "/srv", "/"), devices=("/dev/sda",)
)
NEVER = {
    "sysctl": (
        "kernel.core_pattern", "kernel.usermodehelper.bset", "fs.binfmt_misc.register", "kernel/core_pattern",
        "vm.swappiness\nkernel.core_pattern", "../vm.swappiness", "vm",
    ),
    "unit": (
        "sshd.service", "ssh", "systemd-logind.service", "proveout-agent", "dbus.socket", "--now", "a b", "../x.service",
        "reboot.target", "user.slice", "ctrl-alt-del.target", "runlevel6.target", "soft-reboot.target", "NetworkManager.service",
    ),
    "path": (
        "/etc/proveout/policy.yaml", "/var/lib/proveout/journal.sqlite", "/srv/p.yaml", "/etc//x", "//etc/x", "/etc/x/", "/etc/x\n",
        "etc/x", "", "/etc/binfmt.d/x.conf", "/etc/rc2.d/S01x", "/run/sysctl.d/x.conf", "/etc/cron.daily/x",
        "/etc/ld.so.conf.d/x.conf", "/etc/modprobe.d/x.conf", "/etc/passwd", "/etc/profile.d/x.sh", "/etc/sudoers.d/x",
        "/etc/systemd/system/x.service.d/x.conf", "/root/.ssh/authorized_keys", "/usr/local/bin/x", "/var/spool/cron/crontabs/root",
    ),
    "device": ("/dev/sda", "sda"),
}  # fmt: skip


@pytest.mark.parametrize("what", NEVER)
def test_no_policy_allows_this(what: str) -> None:
    for name in NEVER[what]:
        decision = ask(EVERYTHING, what, name)
        assert not decision, name
        assert decision.way_out.startswith("No policy can allow "), name


@pytest.mark.parametrize(
    ("argument", "allowed"),
    [
        ("--file=/srv/load/a", True),
        ("--file=/srv/load/a..b", True),
        ("--file=/srv/load/../../etc/shadow", False),
        ("--file=/srv/load/..", False),
        ("/srv/load/x:/srv/load/../x", False),
    ],
)
def test_a_glob_does_not_lead_out_of_its_folder(argument: str, allowed: bool) -> None:
    tool = Tool(path="/usr/bin/fio", arguments=("--file=/srv/load/*", "/srv/load/*"))
    assert bool(Policy(tools=(tool,)).allows_tool(["/usr/bin/fio", argument])) is allowed
    assert Policy(tools=(Tool(path="/x", arguments=("..",)),)).allows_tool(["/x", ".."]), "who lists it means it"


def test_the_deepest_root_and_single_files_and_full_names_of_units_count() -> None:
    policy = Policy(
        source="/p/policy.yaml", paths=("/srv/data", "/srv/data/pg", "/etc/fstab"), units=("oracle*.service",)
    )
    assert [policy.root_of(path) for path in ("/srv/data/pg/x", "/srv/data/x", "/srv/data")] == [
        "/srv/data/pg",
        "/srv/data",
        "",
    ]
    assert policy.allows_path("/etc/fstab")
    assert not policy.allows_path("/etc/fstab2")
    assert policy.allows_unit("oracle")
    for unit in ("oracle-data.swap", "oracle.automount", "oracle.mount"):
        assert not policy.allows_unit(unit)
        assert f"`- {unit}`" in policy.allows_unit(unit).way_out


def test_a_refusal_names_the_file_and_the_line(tmp_path: Path) -> None:
    decision = Policy(source="/etc/proveout/policy.yaml").allows_sysctl("vm.swappiness")
    with pytest.raises(TaskFault) as caught:
        decision.require()
    assert caught.value.code == "refused"
    assert caught.value.what == "the kernel setting vm.swappiness is not allowed on this host"
    assert caught.value.way_out == (
        "The owner of the host can add `- vm.swappiness` under `sysctl` in /etc/proveout/policy.yaml."
    )
    assert "--policy FILE" in NOTHING.allows_sysctl("vm.swappiness").way_out
    policy = policy_of(tmp_path, "provision: [postgres, sqlite]")
    assert policy.allows_provision("postgres")
    refused = policy.allows_provision("mysql")
    assert refused.reason == "starting an embedded mysql system is not allowed on this host"
    assert refused.way_out.endswith(f"add `- mysql` under `provision` in {tmp_path}/policy.yaml.")
    assert Policy(own=True).allows_provision("mysql"), "the child of a run is as the user of the run"
    entries = tuple(Tool(path="/x/app", arguments=given) for given in (("--a", "--b"), ("--a", "--c")))
    for words, wrong in ((("--a", "--bad"), "--bad"), (("--b", "--c"), "--c")):
        assert f"the argument '{wrong}' of /x/app" in Policy(tools=entries).allows_tool(("/x/app", *words)).reason


def test_faults_of_the_whole_host_and_the_room_that_they_leave(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, "faults: [partition, fill_disk]\ndisk_left: 2MiB")
    assert policy.allows_fault("partition")
    refused = policy.allows_fault("delay")
    assert refused.reason == "the fault delay is not allowed on this host"
    assert refused.way_out.endswith(f"add `- delay` under `faults` in {tmp_path}/policy.yaml.")
    assert policy.allows_rest("/data/x", 2 << 20)
    little = policy.allows_rest("/data/x", 1 << 20)
    assert little.reason.startswith("only 1048576 bytes would be left of the file system of /data/x")
    assert little.way_out.endswith(f"write `disk_left: 1048576B` in {tmp_path}/policy.yaml.")
    own = Policy(own=True)
    assert own.allows_fault("cpu_pressure"), "a run may use the CPUs of its own machine"
    assert not own.allows_fault("partition")


# ---- the file --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r":1:1: the file is empty \(a policy begins with `policy: 1`\)"),
        ("policy: 2", ":1:9: `policy` cannot be 2"),
        ("sysctl: []", "`policy` is required"),
        ("policy: 1\nsysctls: [a.b]", r":2:1: unknown key `sysctls` \(did you mean `sysctl`\?\)"),
        ("policy: 1\nsysctl: vm.swappiness", ":2:9: `sysctl` must be a list"),
        ("policy: 1\nsysctl:\n  - '*'", ":3:5: `\\*` cannot be allowed"),
        ("policy: 1\nunits: ['*.service']", ":2:9: `\\*.service` is not a unit"),
        ("policy: 1\npaths: [/etc]", ":2:9: `/etc` is too wide: it contains /etc/proveout"),
        ("policy: 1\ndevices: [/dev/sdb]", "is not a stable name of a device"),
        ("policy: 1\ntools:\n  - {path: fio}", ":3:12: `fio` is not the absolute path of a program"),
        ("policy: 1\ntools:\n  - {path: /usr/bin/python3.11}", "runs any program that it is given"),
        ("policy: 1\npaths: [/root/.ssh]", "lies in /root, which root runs or trusts"),
        ("policy: 1\nvalidators: {a: [/bin/true, x]}", "exactly one argument with {file}"),
        ("policy: 1\nvalidators: {a: [/usr/bin/udevadm, verify, '{file}', '{file}']}", "exactly one argument with {file}"),
        ("policy: 1\ncommands: [{path: /usr/bin/df, privileged: true}]", "would run as the agent's own user, which may be root; give a reason"),
        ("policy: 1\nprovision: [oracle]", "`oracle` is not an engine that proveout can start: duckdb, mysql, postgres, sqlite"),
        ("policy: 1\nfaults: [kill]\n", "`kill` is not a fault that a policy lists: partition"),
        ("policy: 1\ndisk_left: much\n", r"yaml:2:12: expected a size such as .*, not much"),
        ("policy: 1\ndestructive: yes", "is a boolean in YAML 1.1"),
        ("policy: !!python/object:os.system 1", "is not part of the policy language"),
        ("policy: 1\npaths: [/opt/lab]", r":2:9: `/opt/lab` is not in the list of folders that tuning needs .*\{path: /opt/lab, i_know"),
        ("policy: 1\npaths: [/etc/postgresql]", ":2:9: .*use the operation `postgres_settings`"),
        ("policy: 1\npaths:\n  - {path: /opt/lab, i_know: ''}", ":3:.*`i_know` must not be empty"),
        ("policy: 1\npaths:\n  - {path: /opt/lab, i_know: '???'}", ":3:.*is not a reason"),
        ("policy: 1\npaths:\n  - {path: /etc/shadow, i_know: a reason}", "`/etc/shadow` cannot be allowed"),
        ("policy: 1\ntools:\n  - {path: /usr/bin/tee}", ":3:5: `/usr/bin/tee` is not in the list of programs that tuning needs"),
        ("policy: 1\ntools:\n  - {path: /usr/bin/fio, arguments: ['--exec_prerun=x']}", "is not in the list of arguments of /usr/bin/fio"),
        ("policy: 1\nvalidators: {a: [/usr/bin/dpkg, -i, '{file}']}", r":2:17: `/usr/bin/dpkg -i \{file\}` is not in the list of validators"),
        ("policy: 1\nudev: {devices: ['KERNEL==sd*']}", ":2:18: `KERNEL==sd\\*` may match the system disk"),
        ("policy: 1\nudev: {devices: [{match: KERNEL==mem, i_know: a reason}]}", "matches /dev/mem, which is not a disk"),
        ("policy: 1\nudev: {links: [disk]}", "`disk` is not a folder of /dev for links of plans"),
        ("policy: 1\noracle_parameters: [processes]", ":2:21: `processes` is not a parameter of Oracle that needs consent"),
        ("policy: 1\ncommands: [{path: /usr/bin/df, arguments: ['--n={int}']}]", r"`\{int\}` is not a form of a value; the forms are \{count\}"),
    ],
)  # fmt: skip
def test_errors_in_a_policy_have_their_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(policy_file.PolicyError, match=message) as caught:
        policy_file.read(write(tmp_path, text))
    assert caught.value.exit_code == 2


def test_all_errors_of_a_policy_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(policy_file.PolicyError) as caught:
        policy_of(tmp_path, "paths: [/etc, x]\ndevices: [sda]")
    assert len(caught.value.problems) == 3


def test_a_policy_that_other_users_can_write_or_replace_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    path = write(folder, "policy: 1")
    assert policy_file.read(path) == Policy(source=str(path))
    for mode in (0o620, 0o602):
        path.chmod(mode)
        with pytest.raises(ProveoutError, match="other users can write the policy"):
            policy_file.read(path)
    path.chmod(0o600)
    folder.chmod(0o777)
    with pytest.raises(ProveoutError, match="other users can replace the policy"):
        policy_file.read(path)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "fifo", 0o600)
    for other in (tmp_path / "link", tmp_path / "fifo", tmp_path, tmp_path / "none"):
        with pytest.raises(ProveoutError, match="policy"):
            policy_file.read(other)


def test_a_program_that_other_users_can_change_or_replace_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir(mode=0o755)
    program = folder / "load"
    program.write_text("")
    program.chmod(0o755)
    link = tmp_path / "link"
    link.symlink_to(program)
    listed = (
        f"policy: 1\ntools:\n  - {{path: {link}, i_know: {WHY}}}\n"
        f"validators:\n  a: {{run: [{program}, '{{file}}'], i_know: {WHY}}}\n"
    )
    policy = write(tmp_path, listed)
    assert policy_file.read(policy).tools == (Tool(path=str(link)),)
    program.chmod(0o757)
    with pytest.raises(ProveoutError, match=r"other users can change .*link, which it lists"):
        policy_file.read(policy)
    program.chmod(0o755)
    folder.chmod(0o777)
    says = r"other users can replace .*link, which it lists: other users can write .*bin"
    with pytest.raises(ProveoutError, match=says):
        policy_file.read(policy)
    program.unlink()
    folder.chmod(0o755)
    assert policy_file.read(policy).tools, "what is not there yet says so when it is to be started"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_refusal_names_who_can_replace_the_file_and_the_command_that_prevents_it(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o755)
    os.chown(theirs, 12345, 12345)
    missing = write(tmp_path, f"policy: 1\ntools:\n  - {{path: {theirs}/none, i_know: {WHY}}}\n")
    link = tmp_path / "link"
    link.symlink_to("/usr/bin/true")
    os.lchown(link, 12345, 12345)
    linked = tmp_path / "linked.yaml"
    linked.write_text(f"policy: 1\ntools:\n  - {{path: {link}, i_know: {WHY}}}\n")
    linked.chmod(0o600)
    beneath = write(theirs, "policy: 1")
    for policy, what, way_out in (
        (missing, f"{theirs}/none, which it lists: {theirs} belongs to another user", f"chown root {theirs}"),
        (linked, f"{link}, which it lists: the link {link} belongs to another user", f"chown -h root {link}"),
        (beneath, f"the policy: {theirs} belongs to another user", f"chown root {theirs}"),
    ):
        with pytest.raises(ProveoutError) as caught:
            policy_file.read(policy)
        assert (caught.value.what, caught.value.way_out) == (f"other users can replace {what}", way_out)
    os.chown(missing, 12345, 12345)
    with pytest.raises(ProveoutError, match="other users can write the policy"):
        policy_file.read(missing)


def test_check_policy_lists_the_permissions_and_the_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy").mkdir()
    text = (
        f"policy: 1\nsysctl: [vm.swappiness]\npaths: [{{path: {tmp_path}/srv, i_know: {WHY}}}]\nprovision: [postgres, sqlite]\n"
        "tools: [{path: /usr/sbin/tuned-adm, arguments: [active], i_know: it reads}]\nudev: {links: [lab]}\n"
        "commands: [{path: /usr/sbin/tuned-adm, arguments: ['list*'], i_know: it lists}]\n"
        "faults: [partition, fill_disk]\ndisk_left: 2MiB\noracle_parameters: [_high_priority_processes, audit_trail]\n"
    )
    good = write(tmp_path / "policy", text)
    assert execute(["agent", "--check-policy", str(good), "--pki", f"{tmp_path}/srv/pki"]) == 0
    output = capsys.readouterr().out
    for line in (
        "kernel settings:  vm.swappiness\n",
        f"{tmp_path}/srv ({WHY}): plans write files",
        f"but not in:       {tmp_path}/srv/pki\n",
        "/usr/sbin/tuned-adm active (it reads): plans start it as the agent's own user, with any arguments that match",
        "/usr/sbin/tuned-adm list* (it lists): plans start it as the unprivileged user, with any arguments that match",
        "links in /dev/lab",
        "servers:          postgres, sqlite",
        "faults:           partition, fill_disk (leaves 2MiB)",
        "oracle settings:  _high_priority_processes, audit_trail",
    ):
        assert line in output
    good.write_text("policy: 1\nsysctl: [vm.swappiness\n")
    assert execute(["agent", "--check-policy", str(good)]) == 2
    assert f"{good}:2:9: `[` opens here and is not closed" in capsys.readouterr().err


def test_an_agent_reads_the_policy_of_its_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = write(tmp_path, "policy: 1\nunits: [irqbalance.service]\n")
    options = Options(listen="127.0.0.1:0", pki=tmp_path, state_dir=tmp_path, policy=given)
    assert read_policy(options).allows_unit("irqbalance")
    hosts = write(tmp_path, "policy: 1\nsysctl: [vm.swappiness]\n")
    monkeypatch.setattr("proveout.agent.daemon.servicer.HOST_POLICY", hosts)
    permanent = Options(listen="127.0.0.1:0", pki=tmp_path, state_dir=tmp_path)
    assert read_policy(permanent).allows_sysctl("vm.swappiness")
    local = Options(listen="127.0.0.1:0", pki=tmp_path, state_dir=tmp_path, local=True)
    assert read_policy(local) == Policy(own=True), "changes nothing; and whose files it may use is who has started it"


# ---- programs and trusted files of the agent -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/srv/app/bin/check", "is a program that the policy lists"),
        ("/srv/app/bin", "contains /srv/app/bin/check, which the agent runs or trusts"),
        ("/srv/real/load", "is a program that the policy lists, or a link to one"),
        ("/srv/pki", "belongs to the agent itself"),
        ("/srv/state/tuning/undo.sqlite", "belongs to the agent itself"),
        ("/srv/below", "contains /srv/below/undo, which the agent runs or trusts"),
        ("/srv/lab/app.conf", "/srv/lab/app.conf lies in /srv/lab, where the agent's policy is"),
        ("/srv/app/bin/check.conf", ""),
        ("/srv/pki2", ""),
    ],
)
def test_a_plan_cannot_write_programs_and_trusted_files_of_the_agent(path: str, reason: str) -> None:
    policy = Policy(
        source="/srv/lab/policy.yaml",
        paths=("/srv",),
        tools=(Tool(path="/srv/app/load"),),
        validators=(("app", ("/srv/app/bin/check", "{file}")),),
        programs=("/srv/real/load",),
        own_folders=("/srv/pki", "/srv/state", "/srv/below/undo"),
    )
    decision = policy.allows_path(path)
    assert bool(decision) is not bool(reason)
    assert reason in decision.reason


def test_a_plan_cannot_write_a_program_or_the_agents_own_folders_by_any_name(tmp_path: Path) -> None:
    app, srv, folder = tmp_path / "app", tmp_path / "srv", tmp_path / "policy"
    for made in (app, srv / "real", folder):
        made.mkdir(parents=True)
    (app / "check").write_text("")
    (app / "middle").symlink_to("check")
    (tmp_path / "link").symlink_to(app / "middle")
    (srv / "pki").symlink_to("real")
    listed = (
        f"policy: 1\npaths: [{{path: {app}, i_know: {WHY}}}, {{path: {srv}, i_know: {WHY}}}]\n"
        f"validators:\n  a: {{run: [{tmp_path}/link, '{{file}}'], i_know: {WHY}}}\n"
    )
    given = write(folder, listed)
    options = Options(listen="", pki=srv / "pki", state_dir=srv / "state", policy=given)
    names = (
        "app/check",
        "app/middle",
        "app/app.conf",
        "srv/pki",
        "srv/pki/ca.pem",
        "srv/real/ca.pem",
        "srv/state/tuning/undo.sqlite",
        "srv/x",
    )
    assert [name for name in names if read_policy(options).allows_path(f"{tmp_path}/{name}")] == [
        "app/app.conf",
        "srv/x",
    ]
    local = Options(listen="", pki=tmp_path, state_dir=tmp_path, policy=given, local=True, undo_dir=srv / "undo")
    assert not read_policy(local).allows_path(f"{srv}/undo/beside-1/undo.sqlite"), "which it would undo as well"
