"""The policy of a host: permissions of the agent, lists of programs and devices, and a decision for each requested
change.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase, translate
from functools import cache

from proveout.agent.errors import TaskFault
from proveout.agent.security.protected_paths import OWN_FOLDERS, ROOT_EQUIVALENT_PATHS, UNITS_OF_THE_HOST
from proveout.core.data_classes import record
from proveout.core.linux import PROGRAM_SYSCTLS, UNIT_KINDS

# - folders that the tuning operations write, each through the operation that checks the content;
# - folders below `DATA_FOLDERS`, for the files of fio and of databases;
# - programs that the tuning operations start, or that udev rules call to identify a disk.
#
# An argument of an entry is a text, a glob, or a text with forms of values (`FORMS`), as `--threads={count}`.
#
# The configuration of database servers (`/etc/postgresql`, `/etc/mysql`) is not in the list: it can make the server run
# programs. Use `postgres_settings` or `oracle_parameters`. Everything here is pure.

KNOWN_FOLDERS = (
    "/etc/multipath/conf.d",
    "/etc/security/limits.d",
    "/etc/sysctl.d",
    "/etc/udev/rules.d",
    "/sys/block",
    "/sys/class/net",
    "/sys/devices/system/cpu",
    "/sys/kernel/mm/hugepages",
    "/sys/kernel/mm/transparent_hugepage",
)
"""Folders that the tuning operations write. A policy lists one of them, or a folder below."""

KNOWN_FILES = ("/etc/fstab",)

DATA_FOLDERS = ("/data", "/mnt", "/srv")
"""Folders for data by hier(7) and by convention. A policy lists a folder below one of them, not the folder itself."""

PROGRAM_FOLDERS = ("/bin", "/sbin", "/usr/bin", "/usr/sbin")

_DISK = r"/dev/disk/by-id/[A-Za-z0-9][A-Za-z0-9._:+-]*"
_NODE = r"/dev/(%k|\$kernel|\$name|[a-z][a-z0-9]*)"
_LABEL = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,15}"
_FILE = r"/(data|mnt|srv)/[A-Za-z0-9._+:=/-]+"

_ARGUMENTS: Mapping[str, str] = {
    "blkid": rf"--probe|--output|export|{_DISK}",
    "cmp": rf"--bytes=[0-9]+|/dev/zero|{_DISK}",
    "dd": rf"if=/dev/zero|of={_DISK}|bs=1M|count=[0-9]+|conv=notrunc,fsync",
    "fio": r"--output-format=(json|normal|terse)|--(name|rw|bs|iodepth|runtime|direct|size|numjobs|time_based|ramp_time"
    rf"|rwmixread|group_reporting|thread|ioengine=(psync|sync|libaio|io_uring))(=[A-Za-z0-9_.,:-]+)?|--filename={_DISK}"
    rf"|--(filename|directory)={_FILE}",
    "mkfs.ext4": rf"-q|-F|-L|{_LABEL}|{_DISK}",
    "mkfs.xfs": rf"-q|-f|-L|{_LABEL}|{_DISK}",
    "multipath": r"-t|-l|-ll|-v[0-6]",
    "parted": rf"--script|--machine|{_DISK}|unit|s|print|mklabel|gpt|mkpart|[A-Za-z0-9][A-Za-z0-9._-]*",
    "partprobe": rf"--dry-run|--summary|{_DISK}",
    "sg_vpd": rf"--?[A-Za-z][A-Za-z-]*(=[A-Za-z0-9]+)?|{_DISK}|{_NODE}",
    "systemctl": "daemon-reload",
    "udevadm": r"control|--reload|trigger|--action=change|--subsystem-match=[a-z0-9_]+|settle|--timeout=[0-9]+",
    "wipefs": rf"--all|--types|gpt,PMBR|{_DISK}",
}
"""Program of `PROGRAM_FOLDERS` -> pattern that each argument must match in full, in addition to the globs of the
policy.
"""

_DRV_CFG = rf"--query_block_device_id|--query_guid|--query_mdms|--block_device|{_NODE}"
_SCSI_ID = rf"-g|-u|-d|--whitelisted|--replace-whitespace|(--device=)?{_NODE}"
_BY_PATH: Mapping[str, str] = {
    "/bin/emc/scaleio/drv_cfg": _DRV_CFG,
    "/opt/emc/scaleio/sdc/bin/drv_cfg": _DRV_CFG,
    "/lib/udev/scsi_id": _SCSI_ID,
    "/usr/lib/udev/scsi_id": _SCSI_ID,
}
"""Programs in other folders that udev rules call to identify a disk."""

KNOWN_VALIDATORS: Mapping[str, tuple[str, ...]] = {
    "findmnt": ("--verify", "--tab-file", "{file}"),
    "multipath": ("-t", "{file}"),
    "udevadm": ("verify", "{file}"),
}
"""Program of `PROGRAM_FOLDERS` -> the arguments of a known validator: it reads the file and runs nothing in it."""

_NAME = r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*"
FORMS: Mapping[str, str] = {
    "count": r"[0-9]{1,18}",
    "number": r"[0-9]{1,18}(\.[0-9]{1,9})?",
    "word": r"[A-Za-z0-9][A-Za-z0-9_.+-]*",
    "path": rf"(/{_NAME})+",
    "host": rf"[A-Za-z0-9][A-Za-z0-9.-]*|\[?[0-9A-Fa-f]*(:[0-9A-Fa-f]*){{2,7}}\]?|(/{_NAME})+",
}
"""Form of a value in an argument of an entry, as `--threads={count}` -> its pattern. None matches an option, a list, a
`name:value` of a program's own, or a `..`. A host may be the folder of a socket.
"""
_SAMPLES: Mapping[str, str] = {"count": "1", "number": "1", "word": "a", "path": "/a", "host": "a"}
_FORM = re.compile(r"\{([a-z_]+)\}")

_I_KNOW = 'i_know: "…"'
_OF_POSTGRES = re.compile(r"/(etc|var/lib)/postgresql(/|$)")


def is_known_folder(path: str) -> bool:
    """Whether `paths` of a policy may list the plain absolute path `path` without a reason."""
    if path in KNOWN_FILES:
        return True
    below = any(path.startswith(f"{folder}/") for folder in (*KNOWN_FOLDERS, *DATA_FOLDERS))
    return below or path in KNOWN_FOLDERS


def known_arguments(program: str) -> str | None:
    """Pattern of the arguments of a program that a policy may list without a reason; None for any other program."""
    folder, _, name = program.rpartition("/")
    return _BY_PATH.get(program) or (_ARGUMENTS.get(name) if folder in PROGRAM_FOLDERS else None)


def has_wildcard(argument: str) -> bool:
    """Whether an entry's argument is a glob."""
    return any(character in argument for character in "*?[")


def is_literal(argument: str) -> bool:
    """Whether an entry's argument is a text, without wildcards and forms."""
    return not has_wildcard(argument) and _FORM.search(argument) is None


def unknown_form(argument: str) -> str:
    """The first `{name}` of an entry's argument that is not one of `FORMS`; "" if there is none."""
    return next((name for name in _FORM.findall(argument) if name not in FORMS), "")


def sample(argument: str) -> tuple[str, str]:
    """The text before the first form or wildcard of an argument, and the argument with a value in each place."""
    values = _FORM.sub(lambda match: _SAMPLES.get(match[1], match[0]), argument).replace("*", "a")
    return re.split(r"\{(?:" + "|".join(FORMS) + r")\}|\*", argument)[0], values


@cache
def compiled(listed: str) -> re.Pattern[str]:
    """The pattern of an entry's argument: its forms, and its text as a glob."""
    parts = _FORM.split(listed)
    around = [translate(text)[len("(?s:") : -len(r")\Z")] for text in parts[::2]]
    forms = [f"(?:{FORMS[name]})" for name in parts[1::2]]
    return re.compile("".join(map(str.__add__, around, [*forms, ""])), re.DOTALL)


def is_known_validator(argv: tuple[str, ...]) -> bool:
    """Whether `validators` of a policy may list `argv`, with `{file}`, without a reason."""
    folder, _, name = argv[0].rpartition("/")
    return folder in PROGRAM_FOLDERS and KNOWN_VALIDATORS.get(name) == argv[1:]


def folder_way_out(path: str) -> str:
    """Way out: how the policy can list another folder."""
    known = ", ".join((*KNOWN_FOLDERS, *KNOWN_FILES, *(f"{folder}/NAME" for folder in DATA_FOLDERS)))
    runs = "the files there can make the server run programs, so use the operation `postgres_settings`; "
    known = f"{runs if _OF_POSTGRES.match(path) else ''}known: {known}"
    return f"{known}; to let plans write there anyway, give a reason: {{path: {path}, {_I_KNOW}}}"


def program_way_out(program: str) -> str:
    """Way out: how the policy can list another program."""
    known = ", ".join(sorted((*_ARGUMENTS, *_BY_PATH)))
    return (
        f"known: {known}; to let plans start it anyway, give a reason: {{path: {program}, arguments: […], {_I_KNOW}}}"
    )


def argument_way_out(program: str) -> str:
    """Way out: how the policy can list an argument without a glob."""
    forms = ", ".join(f"{{{name}}}" for name in FORMS)
    return (
        f"list each option that plans need, with the form of its value, as `--threads={{count}}`; forms: {forms}; "
        f"to permit whatever the glob matches, give a reason: {{path: {program}, arguments: […], {_I_KNOW}}}"
    )


def validator_way_out(argv: tuple[str, ...]) -> str:
    """Way out: how the policy can list another validator."""
    known = ", ".join(" ".join((name, *words)) for name, words in sorted(KNOWN_VALIDATORS.items()))
    return f"known: {known}; to let it read files of plans, give a reason: {{run: [{', '.join(argv)}], {_I_KNOW}}}"


def matches(pattern: str, argument: str) -> bool:
    """Whether the whole argument matches a pattern of `known_arguments` and has no `..`."""
    return re.fullmatch(pattern, argument) is not None and ".." not in re.split(r"[/=]", argument)


# `udev: devices` has the syntax of a rule, `KERNEL==scini*`. Without a reason (`i_know`) an entry must name one device
# by a lasting property, or a known family of data disks: kernel names of disks (`sd*`) change, and may be those of the
# system disk. Everything here is pure. Sources: udev(7), 60-persistent-storage.rules of systemd, 10-dm.rules of device
# mapper.

FORM = re.compile(
    r"(?P<key>KERNEL|ENV\{[A-Z0-9_]+\}|ATTRS\{[a-z0-9_]+\})==(?P<value>[A-Za-z0-9][A-Za-z0-9._:+*?\[\]-]*)"
)
LASTING = frozenset(
    {"ENV{DM_NAME}", "ENV{DM_UUID}", "ENV{ID_SERIAL}", "ENV{ID_SERIAL_SHORT}", "ENV{ID_WWN_WITH_EXTENSION}"}
)
KEYS = LASTING | {"ATTRS{model}", "ATTRS{vendor}", "KERNEL"}
"""Properties that identify disks, and that no rule of a plan can assign to another disk."""

DATA_DISKS = ("drbd", "emcpower", "fio", "nbd", "rbd", "rssd", "scini")
"""Prefixes of kernel names that no system disk has: DRBD, PowerPath, Fusion-io, network block devices, Ceph, Micron,
ScaleIO.
"""

ARRAYS = ("3PARdata", "COMPELNT", "DGC", "EMC", "FUSIONIO", "HITACHI", "HUAWEI", "NETAPP", "Nimble", "PURE", "XtremIO")
"""Vendors of storage arrays, as their disks report them."""

NEVER = (
    "mem", "kmem", "kmsg", "kvm", "port", "null", "zero", "full", "random", "urandom", "console", "tty", "tty0",
    "ttyS0", "ptmx", "fuse", "vfio", "vhost-net", "vhost-vsock", "uinput", "nvram", "hpet", "rtc0", "cpu0", "msr0",
    "event0", "loop-control", "btrfs-control", "mapper/control", "sg0", "fb0", "vcs", "watchdog", "autofs",
    "userfaultfd", "net/tun", "tpm0", "hwrng", "snapshot",
)  # fmt: skip
"""Devices that are not disks: a KERNEL pattern that matches one is always refused."""

LINK_FOLDERS = ("oraudev",)
"""Folders of /dev in which plans may put links without an entry in the policy."""

LITERAL_MIN = 2
_GLOB = re.compile(r"[*?\[]")
_OF_THE_SERIAL = re.compile(r"/dev/disk/by-id/(?:scsi|ata|virtio|nvme|usb)-(?P<serial>.+)")


def is_pinned(match: Iterable[tuple[str, str]], devices: Sequence[str], listed: Sequence[str]) -> bool:
    """Whether a rule with these pairs matches only devices of the policy: `devices`, or those of the patterns
    `listed`.
    """
    patterns = [found.group("key", "value") for one in listed if (found := FORM.fullmatch(one))]
    for key, value in match:
        if any(key == of and is_within(value, pattern) for of, pattern in patterns):
            return True
        if any(is_of(device, key, value) for device in devices):
            return True
    return False


def is_within(value: str, listed: str) -> bool:
    """Whether the listed pattern matches everything that a rule's pattern matches; `|` separates alternatives of a
    rule.
    """
    return all(_one_within(one, listed) for one in value.split("|"))


def _one_within(value: str, listed: str) -> bool:
    begin = _GLOB.search(value)
    if begin is None:
        return fnmatchcase(value, listed)
    prefix = listed.removesuffix("*")
    return value == listed or (
        listed != prefix and _GLOB.search(prefix) is None and value[: begin.start()].startswith(prefix)
    )


def is_of(device: str, key: str, value: str) -> bool:
    """Whether only this device (a name in /dev/disk/by-id, or `serial:…`), or its partitions, has that property."""
    if device.startswith("serial:"):
        return key == "ENV{ID_SERIAL_SHORT}" and value == device.removeprefix("serial:")
    name = device.removeprefix("/dev/disk/by-id/")
    if key == "ENV{DM_NAME}" and name.startswith("dm-name-"):
        return re.fullmatch(re.escape(name.removeprefix("dm-name-")) + r"((p|-part)\d+)?", value) is not None
    if key == "ENV{DM_UUID}" and name.startswith("dm-uuid-"):
        return re.fullmatch(r"(part\d+-)?" + re.escape(name.removeprefix("dm-uuid-")), value) is not None
    if key == "ENV{ID_WWN_WITH_EXTENSION}" and name.startswith("wwn-"):
        return value == name.removeprefix("wwn-")
    serial = _OF_THE_SERIAL.fullmatch(device)
    return key == "ENV{ID_SERIAL}" and serial is not None and value == serial["serial"]


def is_known(pattern: str) -> bool:
    """Whether `udev: devices` accepts a pattern of `FORM` without a reason."""
    found = FORM.fullmatch(pattern)
    if found is None:
        return False
    key, value = found.group("key", "value")
    beginning = _GLOB.split(value)[0]
    if key == "KERNEL":
        return beginning.startswith(DATA_DISKS)
    if key == "ATTRS{vendor}":
        return beginning in ARRAYS and value in (beginning, f"{beginning}*")
    return key in LASTING and beginning == value


def objection(pattern: str) -> str:
    """The reason against a pattern, which no policy can list then; "" if there is none."""
    found = FORM.fullmatch(pattern)
    if found is None or found["key"] not in KEYS:
        return f"`{pattern}` does not identify disks: write KEY==pattern, KEY one of {', '.join(sorted(KEYS))}"
    if len(_GLOB.split(found["value"])[0]) < LITERAL_MIN:
        return f"`{pattern}` is too wide: it must begin with at least {LITERAL_MIN} literal characters"
    if found["key"] == "KERNEL" and (other := next((one for one in NEVER if fnmatchcase(one, found["value"])), None)):
        return f"`{pattern}` matches /dev/{other}, which is not a disk"
    return ""


# The file lists folders and programs of `policy`, and others with the owner's reason (`policy_file`). Some entries stay
# denied even if the file lists them, because each of them gives root: kernel settings that hold a command, the units
# for logins, the unit and policy of the agent itself, the folders of `ROOT_EQUIVALENT_PATHS`.
#
# Everything here is pure: names are compared as text. Whether a path has symbolic links is checked when it is opened,
# beneath the root that `root_of` gives.

SYSCTL_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[A-Za-z0-9_-][A-Za-z0-9_/:@-]*)+")
"""With `/` for a `.` in the name of an interface (`net.ipv4.conf.eth0/100.rp_filter`), as in sysctl(8)."""
UNIT_NAME = re.compile(rf"(?:[A-Za-z0-9]|\\x[0-9a-f]{{2}})[A-Za-z0-9:_.@\\-]*\.({'|'.join(UNIT_KINDS)})")
DEVICE_NAME = re.compile(r"/dev/disk/by-id/[A-Za-z0-9][A-Za-z0-9._:+-]*|serial:[A-Za-z0-9][A-Za-z0-9._-]*")
PARTITION = re.compile(r"-part\d+$")
FAULTS = ("partition", "loss", "delay", "fill_disk", "cpu_pressure")
"""Faults that disturb more than what a run has started: the owner of the host lists them."""
_OF_A_LOGIN = re.compile(r"/home/[^/]+/\.")
_CLIMBS = re.compile(r"(^|[/=:,])\.\.(/|$)")


@record
class Decision:
    """Whether a change is allowed; if not, the reason, and the policy entry that would allow it."""

    allowed: bool
    reason: str = ""
    way_out: str = ""

    def __bool__(self) -> bool:
        return self.allowed

    def require(self) -> None:
        """Raise TaskFault `refused` if the change is not allowed."""
        if not self.allowed:
            raise TaskFault("refused", self.reason, way_out=self.way_out)


ALLOWED = Decision(allowed=True)


@record
class Tool:
    """A program that may be started: its absolute path, and the arguments of its entry, of which each argument must
    match one (`compiled`).

    `known`: a pattern (`known_arguments`) that each argument must match too; None for an entry with a reason.
    """

    path: str
    arguments: tuple[str, ...] = ()
    known: str | None = None
    privileged: bool = False
    """Of a command: it runs as the agent's own user."""

    def takes(self, argument: str) -> bool:
        """Whether the argument is listed, and safe if the program is listed without a reason."""
        return self.lists(argument) and (self.known is None or matches(self.known, argument))

    def lists(self, argument: str) -> bool:
        """Whether one of the entry's arguments matches the whole argument. A `*` does not match `..`."""
        leaves = _CLIMBS.search(argument) is not None
        return any(one == argument or (not leaves and compiled(one).fullmatch(argument)) for one in self.arguments)

    def may_take(self, argument: str) -> bool:
        """Whether some value of an argument with forms (`--threads={count}`) is listed; of a text, whether it is."""
        before, text = sample(argument)
        if text == argument:
            return self.takes(argument)
        return argument in self.arguments or any(
            compiled(one).fullmatch(text)
            or (one.startswith(before) if before else is_literal(one) and not one.startswith("-"))
            for one in self.arguments
        )


@record
class Policy:
    """Permissions on this host.

    `source` is the policy file, "" without one; `validators` maps names to argv with `{file}`.
    """

    source: str = ""
    sysctl: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    udev_devices: tuple[str, ...] = ()
    """Patterns as `KERNEL==scini*`: a rule of a plan must match one of them, unless it matches one of `devices`."""
    udev_links: tuple[str, ...] = ()
    """Folders of /dev in which rules of plans may put links, in addition to `LINK_FOLDERS`."""
    tools: tuple[Tool, ...] = ()
    commands: tuple[Tool, ...] = ()
    """Programs whose output plans may read, and which plans may run as load, as the unprivileged user."""
    validators: tuple[tuple[str, tuple[str, ...]], ...] = ()
    destructive: bool = False
    reboot: bool = False
    provision_as_agent_user: bool = False
    """Whether a server may run as the agent's own user without Landlock to protect that user's files."""
    widened: tuple[tuple[str, str], ...] = ()
    """Entries beyond `policy`, each with the owner's reason (`i_know`)."""
    programs: tuple[str, ...] = ()
    """Other names of the programs in `tools` and `validators`: links on the way to them, and resolved paths."""
    oracle_parameters: tuple[str, ...] = ()
    """Parameters of Oracle instances that plans may set only with the owner's consent: hidden ones, audit_trail …"""
    provision: tuple[str, ...] = ()
    """Engines whose servers a coordinator may start here."""
    own_folders: tuple[str, ...] = ()
    """Folders with certificates and journals of this agent, in addition to `OWN_FOLDERS`."""
    database_files: tuple[str, ...] = ()
    """Database files, or folders of them, that plans may open by a dsn, with the rights of the file's owner."""
    faults: tuple[str, ...] = ()
    """Operations of faults that plans may inject here: `FAULTS`."""
    disk_left_bytes: int = 1 << 30
    """The free space of a file system that a fault must leave."""
    own: bool = False
    """Whether the agent is the child of a run on this host: the agent then runs as the user who runs the plan."""

    def allows_sysctl(self, name: str) -> Decision:
        """Whether a kernel setting, `vm.nr_hugepages`, may be written."""
        if not SYSCTL_NAME.fullmatch(name):
            return _never(f"{name!r} is not the name of a kernel setting")
        if _matches(name, PROGRAM_SYSCTLS):
            return _never(f"{name} holds a command that the kernel runs as root")
        return ALLOWED if _matches(name, self.sysctl) else self._denied("sysctl", f"the kernel setting {name}", name)

    def allows_unit(self, unit: str) -> Decision:
        """Whether a systemd unit, `multipathd.service` (or `multipathd`), may be stopped, started, enabled,
        disabled.
        """
        name = unit if UNIT_NAME.fullmatch(unit) else f"{unit}.service"
        if not UNIT_NAME.fullmatch(name):
            return _never(f"{unit!r} is not the name of a unit")
        if _matches(name, UNITS_OF_THE_HOST):
            return _never(f"{name} is a unit that the host needs to run or to be reached")
        return ALLOWED if _matches(name, self.units) else self._denied("units", f"the unit {name}", name)

    def allows_path(self, path: str) -> Decision:
        """Whether a file at `path` may be written, changed or removed."""
        if (never := self._refused_path(path)) is not None:
            return never
        if self.root_of(path) or (path in KNOWN_FILES and path in self.paths):
            return ALLOWED
        folder = posixpath.dirname(path)
        line = folder if is_known_folder(folder) else f'{{path: {folder}, i_know: "why plans may write there"}}'
        return self._denied("paths", f"the path {path}", line)

    def allows_database_file(self, path: str) -> Decision:
        """Whether a database file that the agent has not made may be opened, with the rights of its owner.

        A run may do so on its own machine.
        """
        if self.own:
            return ALLOWED
        if (never := self._refused_path(path)) is not None:
            return never
        if self.root_of(path) or any(is_beneath(path, listed) for listed in self.database_files):
            return ALLOWED
        return self._denied("database_files", f"opening the database file {path}", path)

    def _refused_path(self, path: str) -> Decision | None:
        """The refusal of a path that no policy can allow; else None."""
        if not is_plain_path(path):
            return _never(f"{path!r} is not an absolute path without `.`, `..` and doubled slashes")
        if any(is_beneath(path, folder) for folder in (*OWN_FOLDERS, *self.own_folders)):
            return _never(f"{path} belongs to the agent itself")
        if self.source and is_beneath(path, folder := posixpath.dirname(self.source)):
            return Decision(
                allowed=False,
                reason=f"{path} lies in {folder}, where the agent's policy is",
                way_out=f"No policy can allow files beside itself; put {self.source} into a folder of its own.",
            )
        reason = self._used_by_agent(path) or trusted_by_root(path)
        return None if reason is None else _never(reason)

    def allows_provision(self, engine: str) -> Decision:
        """Whether a server (or the file) of an engine may be created and started.

        A run may always do so on its own machine.
        """
        if self.own or engine in self.provision:
            return ALLOWED
        return self._denied("provision", f"starting an embedded {engine} system", engine)

    def allows_fault(self, operation: str) -> Decision:
        """Whether a fault of the whole host may be injected: `FAULTS`. A run may keep the CPUs of its own machine busy,
        as its load does."""
        if operation in self.faults or (self.own and operation == "cpu_pressure"):
            return ALLOWED
        return self._denied("faults", f"the fault {operation}", operation)

    def allows_rest(self, path: str, left_bytes: int) -> Decision:
        """Whether a fault may leave only so much of the file system of `path` free."""
        if left_bytes >= self.disk_left_bytes:
            return ALLOWED
        reason = f"only {left_bytes} bytes would be left of the file system of {path}"
        return self._refusal(f"{reason}, and the policy leaves {self.disk_left_bytes}", f"disk_left: {left_bytes}B")

    def root_of(self, path: str) -> str:
        """The listed folder that contains `path`, the deepest of several; "" if there is none."""
        return max((root for root in self.paths if is_beneath(path, root) and path != root), key=len, default="")

    def allows_device(self, device: str) -> Decision:
        """Whether a block device, or a partition of it, may be changed; by `/dev/disk/by-id/…` or `serial:…`, as `sdb`
        is not stable.
        """
        if not DEVICE_NAME.fullmatch(device):
            return _never(f"{device!r} is not a stable name of a device; write /dev/disk/by-id/NAME or serial:NUMBER")
        whole = PARTITION.sub("", device)
        return ALLOWED if {device, whole} & {*self.devices} else self._denied("devices", f"the device {device}", whole)

    def allows_device_of(self, names: Sequence[str]) -> Decision:
        """The same for a device with several names: one listed name is enough."""
        decisions = [self.allows_device(name) for name in names] or [_never("the device has no stable name")]
        return next((decision for decision in decisions if decision), decisions[0])

    def allows_rule(self, match: Sequence[tuple[str, str]]) -> Decision:
        """Whether a udev rule may give an owner, a mode or a name to the devices that match all these pairs."""
        if is_pinned(match, self.devices, self.udev_devices):
            return ALLOWED
        rule = ", ".join(f"{key}=={value}" for key, value in match)
        where = f"under `udev: devices` in {self.source or 'a policy file'}"
        return Decision(
            allowed=False,
            reason=f"the devices of the rule {rule} are not allowed on this host",
            way_out="Match them by a property of one of `devices` (ENV{ID_SERIAL}, ENV{DM_NAME} …), "
            f"or the owner of the host can add these devices, `KEY==pattern`, {where}.",
        )

    def allows_link(self, link: str) -> Decision:
        """Whether a udev rule may put this link below /dev."""
        if any(link.startswith(f"{folder}/") for folder in (*LINK_FOLDERS, *self.udev_links)):
            return ALLOWED
        return self._denied("udev: links", f"the link /dev/{link}", link.split("/", maxsplit=1)[0])

    def allows_oracle_parameter(self, name: str) -> Decision:
        """Whether a plan may set a hidden parameter of an Oracle instance, or another one that needs consent."""
        if name in self.oracle_parameters:
            return ALLOWED
        return self._denied("oracle_parameters", f"the Oracle parameter {name}", name)

    def allows_tool(self, argv: Iterable[str], *, of_plan: bool = False) -> Decision:
        """Whether a program may be started with these arguments.

        `of_plan`: they are the plan's own text. The checks of the tuning operations do not protect the host then, so
        only entries with a reason count.
        """
        path, *arguments = tuple(argv) or ("",)
        if not is_plain_path(path):
            return _never(f"{path!r} is not the absolute path of a program")
        known = [tool for tool in self.tools if tool.path == path and not (of_plan and tool.known is not None)]
        if not known:
            is_known = known_arguments(path) and not of_plan
            why = "" if is_known else ', i_know: "why plans may start it"'
            listed = ", ".join(map(yaml_text, dict.fromkeys(arguments))) if of_plan else "…"
            return self._denied("tools", f"the program {path}", f"{{path: {path}, arguments: [{listed}]{why}}}")
        if any(all(tool.takes(argument) for argument in arguments) for tool in known):
            return ALLOWED
        nearest = max(known, key=lambda tool: sum(map(tool.takes, arguments)))
        wrong = next(word for word in arguments if not nearest.takes(word))
        if any(tool.lists(wrong) and not tool.takes(wrong) for tool in known):
            what = f"the argument {wrong!r} of {path}, which is not a known argument of it,"
            line = f'{{path: {path}, arguments: […], i_know: "why plans may give it any"}}'
            return self._denied("tools", what, line)
        return self._denied(f"tools: the arguments of {path}", f"the argument {wrong!r} of {path}", repr(wrong))

    def command(
        self, argv: Sequence[str], found: str = "", patterns: Sequence[str] = (), *, in_forms: bool = False
    ) -> tuple[tuple[str, ...], bool]:
        """The argv of a command with the path of its program, and whether it runs as the agent's own user.

        A first word without `/` is the name of a listed program; `found` is where this host has it. TaskFault `refused`
        if no entry lists the program with these arguments; its line has `patterns` in their place. `in_forms`: the argv
        is that of a plan, before the values of its fields are known (`Tool.may_take`).
        """
        word, *arguments = argv
        known = [tool for tool in self.commands if word in (tool.path, posixpath.basename(tool.path))]
        takes = Tool.may_take if in_forms else Tool.takes
        chosen = next((tool for tool in known if all(takes(tool, argument) for argument in arguments)), None)
        if chosen is not None:
            return (chosen.path, *arguments), chosen.privileged
        path = known[0].path if known else (word if word.startswith("/") else found)
        line = command_line(path or f"/path/of/{word}", patterns or arguments)
        wrong = next((word for word in arguments if not any(takes(tool, word) for tool in known)), "")
        what = f"the argument {wrong!r} of the command {word}" if known and wrong else f"the command {' '.join(argv)}"
        self._denied("commands", what, line).require()
        raise AssertionError  # `require` has raised

    def allows_destructive(self) -> Decision:
        """Whether steps that destroy data (partition, mkfs, write tests on devices, disk groups) are allowed."""
        if self.destructive:
            return ALLOWED
        return self._refusal("steps that destroy data are not allowed on this host", "destructive: true")

    def allows_reboot(self) -> Decision:
        """Whether a run may reboot the host."""
        if self.reboot:
            return ALLOWED
        return self._refusal("reboots are not allowed on this host", 'reboot: {i_know: "…"}')

    def allows_server_as_agent_user(self) -> Decision:
        """Whether a database server may run as the agent's user, with access to that user's files.

        In a local run it may.
        """
        if self.own or self.provision_as_agent_user:
            return ALLOWED
        reason = (
            "a provisioned server would run as the agent's own user, and this kernel has no Landlock to protect that "
            "user's files, such as the agent's key, from SQL of the plan"
        )
        found = self._refusal(reason, "provision_as_agent_user: true")
        return replace(found, way_out=f"Run the agent as root (the server then has a user of its own). {found.way_out}")

    def allows_validator(self, name: str) -> Decision:
        """Whether a file may be checked by the policy's program of this name."""
        line = f"{name}: [/path/of/program, '{{file}}']"
        return ALLOWED if name in dict(self.validators) else self._denied("validators", f"the validator {name}", line)

    def validator(self, name: str, file: str) -> tuple[str, ...]:
        """The argv that validates `file`. TaskFault `refused` if the policy has no validator of that name."""
        self.allows_validator(name).require()
        return tuple(word.replace("{file}", file) for word in dict(self.validators)[name])

    def _used_by_agent(self, path: str) -> str | None:
        """The reason if a change of `path` would change a program or file that the agent runs or trusts; else None."""
        listed = (tool.path for tool in (*self.tools, *self.commands))
        programs = (*listed, *(argv[0] for _, argv in self.validators), *self.programs)
        if path in programs:
            return f"{path} is a program that the policy lists, or a link to one"
        held = next((one for one in (*programs, *self.own_folders, self.source) if is_beneath(one, path)), None)
        return None if held is None else f"{path} contains {held}, which the agent runs or trusts"

    def _denied(self, key: str, what: str, line: str) -> Decision:
        return self._refusal(f"{what} is not allowed on this host", line, key)

    def _refusal(self, reason: str, line: str, key: str = "") -> Decision:
        under = f"add `- {line}` under `{key}`" if key else f"write `{line}`"
        if key == "validators":
            under = f"add `{line}` under `{key}`"
        where = (
            f"in {self.source}"
            if self.source
            else "in a policy file, and start the agent (or a local run) with --policy FILE"
        )
        return Decision(allowed=False, reason=reason, way_out=f"The owner of the host can {under} {where}.")


NOTHING = Policy()
"""No changes of the host: load and captures only."""


def yaml_text(text: str) -> str:
    """A text as a scalar of YAML in a list on one line."""
    form = r"(?!-?\.?\d|-?\.(?:inf|nan)$)[a-z_/.=-][a-z0-9_/.=+-]*"
    words = {"true", "false", "null", "yes", "no", "on", "off", "-", "."}
    plain = re.fullmatch(form, text, re.IGNORECASE | re.ASCII) and text.lower() not in words
    return text if plain else "'" + text.replace("'", "''") + "'"


def command_line(path: str, arguments: Iterable[str]) -> str:
    """The entry of `commands` for a program with these arguments."""
    listed = tuple(dict.fromkeys(arguments))
    why = ', i_know: "why plans may give it these"' if any(map(has_wildcard, listed)) else ""
    return f"{{path: {yaml_text(path)}, arguments: [{', '.join(map(yaml_text, listed))}]{why}}}"


def is_plain_path(path: str) -> bool:
    """Whether a path is absolute and normalized: no `.`, `..`, doubled or trailing slash, NUL or line break."""
    odd = any(ord(character) < 32 for character in path)
    return path.startswith("/") and not path.startswith("//") and not odd and posixpath.normpath(path) == path


def trusted_by_root(path: str) -> str | None:
    """The reason if no policy may allow a plan to write at `path`; else None."""
    found = next((folder for folder in ROOT_EQUIVALENT_PATHS if is_beneath(path, folder)), None)
    if found is None and _OF_A_LOGIN.match(path):
        return f"{path} is a hidden file of a home, which that user's login runs or trusts"
    return None if found is None else f"{path} lies in {found}, which root runs or trusts"


def is_beneath(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it, compared as text."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _matches(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def _never(reason: str) -> Decision:
    return Decision(allowed=False, reason=reason, way_out="No policy can allow this.")
