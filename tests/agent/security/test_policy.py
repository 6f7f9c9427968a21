"""The policy of a host: decisions, the policy file, and refusals that name the line to add."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

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


def shipped(name: str, tmp_path: Path) -> Policy:
    """A documented policy, installed with the mode that an agent requires."""
    path = tmp_path / "policy.yaml"
    path.write_bytes((POLICIES / f"{name}.yaml").read_bytes())
    path.chmod(0o644)
    return policy_file.read(path)


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

DATABASE = [
    ("sysctl", "vm.nr_hugepages", True),
    ("sysctl", "kernel.shmmax", True),
    ("sysctl", "net.core.rmem_max", True),
    ("sysctl", "kernel.core_pattern", False),
    ("sysctl", "net.ipv4.ip_forward", False),
    ("unit", "postgresql@16-main.service", True),
    ("unit", "postgresql@16-main", True),
    ("unit", "irqbalance", True),
    ("unit", "sshd.service", False),
    ("unit", "proveout-agent.service", False),
    ("path", "/etc/postgresql/16/main/conf.d/load.conf", False),
    ("path", "/etc/sysctl.d/90-load.conf", True),
    ("path", "/etc/sysctl.d", False),
    ("path", "/etc/sysctl.d/../passwd", False),
    ("path", "/etc/sysctl.dir/x", False),
    ("path", "/etc/proveout/policy.yaml", False),
    ("device", DISK, False),
    ("tool", f"{FIO} --name=x", False),
    ("destructive", "", False),
    ("provision", "postgres", False),
]
STORAGE = [
    ("sysctl", "vm.dirty_bytes", True),
    ("sysctl", "vm.nr_hugepages", False),
    ("unit", "multipathd", True),
    ("path", "/etc/udev/rules.d/60-load.rules", True),
    ("path", "/etc/multipath.conf", False),
    ("device", DISK, True),
    ("device", f"{DISK}-part1", True),
    ("device", "serial:S4EVNX0R512345", True),
    ("device", DISK[:-1] + "3", False),
    ("device", "/dev/sda", False),
    ("device", "/dev/disk/by-id/../../sda", False),
    ("tool", f"{FIO} --name=randread --rw=randread --filename={DISK}", True),
    ("tool", f"{FIO} --name=randread --filename=/dev/sda", False),
    ("tool", f"{FIO} --name=x --exec_prerun=/bin/sh", False),
    ("tool", "fio --name=x", False),
    ("tool", "/usr/bin/../bin/fio --name=x", False),
    ("tool", "/bin/sh -c id", False),
    ("destructive", "", True),
]
CLIENT = [
    ("sysctl", "net.core.somaxconn", True),
    ("sysctl", "net.core.somaxconn2", False),
    ("unit", "irqbalance.service", False),
    ("path", "/etc/security/limits.d/90-load.conf", True),
    ("destructive", "", False),
]


@pytest.mark.parametrize(
    ("name", "cases"),
    [("database-server", DATABASE), ("storage-node", STORAGE), ("client", CLIENT)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_documented_policies(name: str, cases: list[tuple[str, str, bool]], tmp_path: Path) -> None:
    policy = shipped(name, tmp_path)
    wrong = [case for case in cases if bool(ask(policy, case[0], case[1])) is not case[2]]
    assert wrong == []


def test_every_documented_policy_is_tested() -> None:
    assert {path.stem for path in POLICIES.glob("*.yaml")} == {"database-server", "storage-node", "client"}


def test_validators_are_named_by_the_policy(tmp_path: Path) -> None:
    policy = shipped("storage-node", tmp_path)
    assert policy.validator("udev", "/run/x.rules") == ("/usr/bin/udevadm", "verify", "/run/x.rules")
    with pytest.raises(TaskFault, match="the validator visudo is not allowed") as caught:
        policy.validator("visudo", "/run/x")
    assert "under `validators`" in caught.value.way_out


# ---- nothing by default, some things never ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "name"), sorted({(what, name) for what, name, _ in DATABASE + STORAGE + CLIENT}), ids=lambda value: value
)
def test_without_a_policy_nothing_is_allowed(what: str, name: str) -> None:
    decision = ask(NOTHING, what, name)
    assert not decision
    assert decision.way_out


EVERYTHING = Policy(
    source="/srv/p.yaml", sysctl=("*",), units=("*",), paths=("/etc", "/srv", "/"), devices=("/dev/sda",)
)


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("sysctl", "kernel.core_pattern"),
        ("sysctl", "kernel.usermodehelper.bset"),
        ("sysctl", "fs.binfmt_misc.register"),
        ("sysctl", "kernel/core_pattern"),
        ("sysctl", "vm.swappiness\nkernel.core_pattern"),
        ("sysctl", "../vm.swappiness"),
        ("sysctl", "vm"),
        ("unit", "sshd.service"),
        ("unit", "ssh"),
        ("unit", "systemd-logind.service"),
        ("unit", "proveout-agent"),
        ("unit", "dbus.socket"),
        ("unit", "--now"),
        ("unit", "a b"),
        ("unit", "../x.service"),
        ("path", "/etc/proveout/policy.yaml"),
        ("path", "/var/lib/proveout/journal.sqlite"),
        ("path", "/srv/p.yaml"),
        ("path", "/etc//x"),
        ("path", "//etc/x"),
        ("path", "/etc/x/"),
        ("path", "/etc/x\n"),
        ("path", "etc/x"),
        ("path", ""),
        ("unit", "reboot.target"),
        ("unit", "user.slice"),
        ("unit", "ctrl-alt-del.target"),
        ("unit", "runlevel6.target"),
        ("unit", "soft-reboot.target"),
        ("path", "/etc/binfmt.d/x.conf"),
        ("path", "/etc/rc2.d/S01x"),
        ("path", "/run/sysctl.d/x.conf"),
        ("unit", "NetworkManager.service"),
        ("path", "/etc/cron.daily/x"),
        ("path", "/etc/ld.so.conf.d/x.conf"),
        ("path", "/etc/modprobe.d/x.conf"),
        ("path", "/etc/passwd"),
        ("path", "/etc/profile.d/x.sh"),
        ("path", "/etc/sudoers.d/x"),
        ("path", "/etc/systemd/system/x.service.d/x.conf"),
        ("path", "/root/.ssh/authorized_keys"),
        ("path", "/usr/local/bin/x"),
        ("path", "/var/spool/cron/crontabs/root"),
        ("device", "/dev/sda"),
        ("device", "sda"),
    ],
)
def test_no_policy_allows_this(what: str, name: str) -> None:
    decision = ask(EVERYTHING, what, name)
    assert not decision
    assert decision.way_out.startswith("No policy can allow ")


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


def test_the_deepest_root_counts() -> None:
    policy = Policy(paths=("/srv/data", "/srv/data/pg"))
    assert policy.root_of("/srv/data/pg/x") == "/srv/data/pg"
    assert policy.root_of("/srv/data/x") == "/srv/data"
    assert policy.root_of("/srv/data") == ""


def test_a_refusal_names_the_file_and_the_line() -> None:
    decision = Policy(source="/etc/proveout/policy.yaml").allows_sysctl("vm.swappiness")
    with pytest.raises(TaskFault) as caught:
        decision.require()
    assert caught.value.code == "refused"
    assert caught.value.what == "the kernel setting vm.swappiness is not allowed on this host"
    assert caught.value.way_out == (
        "The owner of the host can add `- vm.swappiness` under `sysctl` in /etc/proveout/policy.yaml."
    )
    assert "--policy FILE" in NOTHING.allows_sysctl("vm.swappiness").way_out


def test_engines_whose_servers_may_be_started(tmp_path: Path) -> None:
    policy = policy_file.read(write(tmp_path, "policy: 1\nprovision: [postgres, sqlite]\n"))
    assert policy.allows_provision("postgres")
    refused = policy.allows_provision("mysql")
    assert refused.reason == "starting an embedded mysql system is not allowed on this host"
    assert refused.way_out.endswith(f"add `- mysql` under `provision` in {tmp_path}/policy.yaml.")
    assert Policy(own=True).allows_provision("mysql"), "the child of a run is as the user of the run"
    assert "servers:          postgres, sqlite" in policy_file.describe(policy)


def test_faults_of_the_whole_host_and_the_room_that_they_leave(tmp_path: Path) -> None:
    policy = policy_file.read(write(tmp_path, "policy: 1\nfaults: [partition, fill_disk]\ndisk_left: 2MiB\n"))
    assert policy.allows_fault("partition")
    refused = policy.allows_fault("delay")
    assert refused.reason == "the fault delay is not allowed on this host"
    assert refused.way_out.endswith(f"add `- delay` under `faults` in {tmp_path}/policy.yaml.")
    assert policy.allows_rest("/data/x", 2 << 20)
    little = policy.allows_rest("/data/x", 1 << 20)
    assert little.reason.startswith("only 1048576 bytes would be left of the file system of /data/x")
    assert little.way_out.endswith(f"write `disk_left: 1048576B` in {tmp_path}/policy.yaml.")
    assert "faults:           partition, fill_disk (leaves 2MiB)" in policy_file.describe(policy)
    own = Policy(own=True)
    assert own.allows_fault("cpu_pressure"), "a run may use the CPUs of its own machine"
    assert not own.allows_fault("partition")
    with pytest.raises(policy_file.PolicyError, match="`kill` is not a fault that a policy lists: partition"):
        policy_file.read(write(tmp_path, "policy: 1\nfaults: [kill]\n"))
    with pytest.raises(policy_file.PolicyError, match=r"yaml:2:12: expected a size such as .*, not much"):
        policy_file.read(write(tmp_path, "policy: 1\ndisk_left: much\n"))


# ---- the file --------------------------------------------------------------------------------------------------------


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r":1:1: the file is empty \(a policy begins with `policy: 1`\)"),
        ("policy: 2", ":1:9: `policy` cannot be 2"),
        ("sysctl: []", "`policy` is required"),
        ("policy: 1\nsysctls: [a.b]", r":2:1: unknown key `sysctls` \(did you mean `sysctl`\?\)"),
        ("policy: 1\nsysctl: vm.swappiness", ":2:9: `sysctl` must be a list"),
        ("policy: 1\nsysctl:\n  - '*'", ":3:5: `\\*` cannot be allowed"),
        ("policy: 1\nsysctl:\n  - kernel.core_pattern", ":3:5: `kernel.core_pattern` cannot be allowed"),
        ("policy: 1\nunits: ['*.service']", ":2:9: `\\*.service` is not a unit"),
        ("policy: 1\npaths: [/etc]", ":2:9: `/etc` is too wide: it contains /etc/proveout"),
        ("policy: 1\npaths: [/]", "`/` is too wide"),
        ("policy: 1\npaths: [/proc]", "`/proc` is too wide"),
        ("policy: 1\npaths: [/srv/../etc]", "not an absolute path"),
        ("policy: 1\ndevices: [/dev/sdb]", "is not a stable name of a device"),
        ("policy: 1\ntools:\n  - {path: fio}", ":3:12: `fio` is not the absolute path of a program"),
        ("policy: 1\ntools:\n  - {path: /bin/bash}", "`/bin/bash` runs any program that it is given"),
        ("policy: 1\ntools:\n  - {path: /usr/bin/python3.11}", "runs any program that it is given"),
        ("policy: 1\npaths: [/root/.ssh]", "lies in /root, which root runs or trusts"),
        ("policy: 1\npaths: [/etc/systemd/system/x.service.d]", "lies in /etc/systemd"),
        ("policy: 1\npaths: [/var/spool]", "`/var/spool` is too wide"),
        ("policy: 1\ntools:\n  - {path: /usr/sbin/chroot}", "runs any program that it is given"),
        ("policy: 1\ntools:\n  - {path: /usr/bin/pypy3}", "runs any program that it is given"),
        ("policy: 1\ntools:\n  - {path: /usr/bin/vim.basic}", "runs any program that it is given"),
        ("policy: 1\ntools:\n  - {path: /usr/bin/bash-static}", "runs any program that it is given"),
        ("policy: 1\ntools:\n  - {path: /lib64/ld-linux-x86-64.so.2}", "runs any program that it is given"),
        ("policy: 1\ntools:\n  - {path: /lib/ld-musl-x86_64.so.1}", "runs any program that it is given"),
        ("policy: 1\nvalidators: {a: [/bin/true, x]}", "exactly one argument with {file}"),
        ("policy: 1\nvalidators: {a: [/bin/sh, '{file}']}", "runs any program that it is given"),
        ("policy: 1\ndestructive: yes", "is a boolean in YAML 1.1"),
        (
            "policy: 1\nprovision: [oracle]",
            "`oracle` is not an engine that proveout can start: duckdb, mysql, postgres, sqlite",
        ),
        ("policy: 1\nprovision: all", ":2:12: `provision` must be a list"),
        ("policy: 1\ndestructive: 'true'", "`destructive` must be true or false"),
        ("policy: 1\n<<: {}", "`<<` is not part of the policy language"),
        ("policy: !!python/object:os.system 1", "is not part of the policy language"),
        ("policy: 1\npolicy: 1", "is there twice"),
    ],
)
def test_errors_in_a_policy_have_their_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(policy_file.PolicyError, match=message) as caught:
        policy_file.read(write(tmp_path, text))
    assert caught.value.exit_code == 2


def test_all_errors_of_a_policy_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(policy_file.PolicyError) as caught:
        policy_file.read(write(tmp_path, "policy: 1\npaths: [/etc, x]\ndevices: [sda]\n"))
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_policy_that_other_users_can_write_is_refused(mode: int, tmp_path: Path) -> None:
    path = write(tmp_path, "policy: 1")
    path.chmod(mode)
    with pytest.raises(ProveoutError, match="other users can write the policy"):
        policy_file.read(path)


def test_a_policy_in_a_folder_that_other_users_can_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    path = write(folder, "policy: 1")
    folder.chmod(0o777)
    with pytest.raises(ProveoutError, match="other users can replace the policy"):
        policy_file.read(path)
    folder.chmod(0o755)
    assert policy_file.read(path) == Policy(source=str(path))


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
    with pytest.raises(
        ProveoutError, match=r"other users can replace .*link, which it lists: other users can write .*bin"
    ):
        policy_file.read(policy)
    program.unlink()
    folder.chmod(0o755)
    assert policy_file.read(policy).tools, "what is not there yet says so when it is to be started"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_policy_of_another_user_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "policy: 1")
    os.chown(path, 12345, 12345)
    with pytest.raises(ProveoutError, match="other users can write the policy"):
        policy_file.read(path)


def test_a_policy_that_is_not_a_regular_file_is_refused(tmp_path: Path) -> None:
    target = write(tmp_path, "policy: 1")
    link = tmp_path / "link"
    link.symlink_to(target)
    os.mkfifo(tmp_path / "fifo", 0o600)
    for path in (link, tmp_path / "fifo", tmp_path, tmp_path / "none"):
        with pytest.raises(ProveoutError, match="policy"):
            policy_file.read(path)


def test_check_policy_lists_the_permissions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path, "policy: 1\nsysctl: [vm.swappiness]\n")
    assert execute(["agent", "--check-policy", str(good)]) == 0
    assert "kernel settings:  vm.swappiness\n" in capsys.readouterr().out
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


def test_a_single_file_may_be_listed_where_its_folder_is_too_wide() -> None:
    policy = Policy(source="/etc/proveout/policy.yaml", paths=("/etc/fstab",))
    assert policy.allows_path("/etc/fstab")
    assert not policy.allows_path("/etc/fstab2")
    assert not policy.allows_path("/etc/passwd")


def test_writes_to_the_folder_of_the_policy_are_refused_with_the_reason() -> None:
    decision = Policy(source="/srv/lab/policy.yaml", paths=("/srv/lab/app",)).allows_path("/srv/lab/app/app.conf")
    assert not decision
    assert decision.reason == "/srv/lab/app/app.conf lies in /srv/lab, where the agent's policy is"
    assert "put /srv/lab/policy.yaml into a folder of its own" in decision.way_out


def test_a_unit_is_checked_by_its_full_name() -> None:
    policy = Policy(units=("oracle*.service",))
    assert policy.allows_unit("oracle")
    for unit in ("oracle-data.swap", "oracle.automount", "oracle.mount"):
        assert not policy.allows_unit(unit)
        assert f"`- {unit}`" in policy.allows_unit(unit).way_out


# ---- programs and trusted files of the agent -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/srv/app/bin/check", "is a program that the policy lists"),
        ("/srv/app/bin", "contains /srv/app/bin/check, which the agent runs or trusts"),
        ("/srv/app/load", "is a program that the policy lists"),
        ("/srv/real/load", "is a program that the policy lists, or a link to one"),
        ("/srv/pki", "belongs to the agent itself"),
        ("/srv/state/tuning/undo.sqlite", "belongs to the agent itself"),
        ("/srv/below", "contains /srv/below/undo, which the agent runs or trusts"),
        ("/srv/app/bin/check.conf", ""),
        ("/srv/pki2", ""),
    ],
)
def test_a_plan_cannot_write_programs_and_trusted_files_of_the_agent(path: str, reason: str) -> None:
    policy = Policy(
        source="/etc/proveout/policy.yaml",
        paths=("/srv",),
        tools=(Tool(path="/srv/app/load"),),
        validators=(("app", ("/srv/app/bin/check", "{file}")),),
        programs=("/srv/real/load",),
        own_folders=("/srv/pki", "/srv/state", "/srv/below/undo"),
    )
    decision = policy.allows_path(path)
    assert bool(decision) is not bool(reason)
    assert reason in decision.reason


def test_a_plan_cannot_write_a_program_by_any_of_its_names(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "check").write_text("")
    (app / "middle").symlink_to("check")
    (tmp_path / "link").symlink_to(app / "middle")
    folder = tmp_path / "policy"
    folder.mkdir()
    listed = (
        f"policy: 1\npaths: [{{path: {app}, i_know: {WHY}}}]\n"
        f"validators:\n  a: {{run: [{tmp_path}/link, '{{file}}'], i_know: {WHY}}}\n"
    )
    policy = policy_file.read(write(folder, listed))
    assert [name for name in ("check", "middle", "app.conf") if policy.allows_path(f"{app}/{name}")] == ["app.conf"]


def test_a_plan_cannot_write_the_agents_own_folders(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    folder.mkdir()
    (tmp_path / "srv" / "real").mkdir(parents=True)
    (tmp_path / "srv" / "pki").symlink_to("real")
    given = write(folder, f"policy: 1\npaths: [{{path: {tmp_path}/srv, i_know: {WHY}}}]\n")
    srv = tmp_path / "srv"
    options = Options(listen="", pki=srv / "pki", state_dir=srv / "state", policy=given)
    names = ("pki", "pki/ca.pem", "real/ca.pem", "state/tuning/undo.sqlite", "app/x")
    assert [name for name in names if read_policy(options).allows_path(f"{srv}/{name}")] == ["app/x"]
    local = Options(listen="", pki=tmp_path, state_dir=tmp_path, policy=given, local=True, undo_dir=srv / "undo")
    assert not read_policy(local).allows_path(f"{srv}/undo/beside-1/undo.sqlite"), "which it would undo as well"


def test_check_policy_lists_folders_of_the_agent_within_listed_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "policy").mkdir()
    given = write(tmp_path / "policy", f"policy: 1\npaths: [{{path: {tmp_path}/srv, i_know: {WHY}}}]\n")
    assert execute(["agent", "--check-policy", str(given), "--pki", f"{tmp_path}/srv/pki"]) == 0
    assert f"but not in:       {tmp_path}/srv/pki\n" in capsys.readouterr().out


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
