"""Any host to which an operation may be applied: the hosts of its cases, with a model of what a kernel does beside what is
written; and strategies for operations that own a file, or a part of one: any bytes, mode, owner, extended attributes, access
list, line endings, lines of other programs (operations on units: any_units).

Data flow: a case, or a strategy -> a `Case`: arguments that the schema permits, and the state of a host before them ->
`Case.make(folder)` -> a `World`: that host, created each time, and its comparison with an earlier state.

Kernels are models of their documentation; systemd and Oracle do what a case says: neither shows that the real ones do
(real kernels: test_tuning_kernel; PostgreSQL and partition tables are real here).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import assume
from hypothesis import strategies as st
from pydantic import ValidationError
from tuning_bench import StubTools, StubUnits, picture, put, tuning

from proveout.agent.errors import TaskFault
from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tuning.host import Attributes, Host, Systemd
from proveout.agent.tuning.programs import Processes
from proveout.agent.tuning.sql_access import Databases
from proveout.dsl.operations.facts import UnitFact
from proveout.dsl.operations.kernel import COUPLED, path_of
from proveout.dsl.plan.stages import Tuning

GOOD = frozenset({"applied", "unchanged", "refused"})
OPEN = Policy(
    source="/etc/proveout/policy.yaml",
    sysctl=("*",),
    units=("*",),
    paths=("/etc/sysctl.d", "/etc/app", "/etc/security/limits.d", "/etc/udev/rules.d", "/etc/multipath/conf.d", "/etc/fstab", "/sys"),
    devices=("/dev/disk/by-id/disk", "/dev/disk/by-id/scsi-1", "/dev/disk/by-id/wwn-0x1", "/dev/disk/by-id/wwn-0x2"),
    udev_devices=("ENV{DM_NAME}==fcion*", "KERNEL==scini*", "ENV{DM_UUID}==data*"),
    tools=tuple(
        Tool(path=path, arguments=("*",))
        for path in (
            "/usr/bin/udevadm", "/usr/bin/systemctl", "/usr/sbin/parted", "/usr/sbin/partprobe", "/usr/sbin/wipefs", "/usr/sbin/blkid",
            "/usr/sbin/mkfs.ext4", "/usr/bin/dd", "/usr/bin/cmp", "/opt/lab/array", "/usr/bin/needs-restarting", "/u01/bin/srvctl", "/bin/emc/scaleio/drv_cfg",
        )
    ),
    validators=(("app-check", ("/usr/bin/app-check", "{file}")),),
    destructive=True,
    oracle_parameters=("audit_trail", "dispatchers", "_high_priority_processes"),
)  # fmt: skip
"""A policy that permits everything that is tested here."""

React = Callable[[Path, str, str], str]
"""(root, path, text written) -> the text of the attribute afterwards; OSError where the kernel refuses the text. May set
other attributes."""


@dataclass(frozen=True, slots=True)
class KernelTexts(Attributes):
    """Attributes below /proc and /sys with the reactions of a model kernel to writes."""

    react: React = lambda _root, _path, text: text

    def write(self, path: str, text: str) -> None:
        """Write like `Attributes`, with the kernel's reaction in place of the text."""
        if self.read(path) is None:
            raise TaskFault("refused", f"{path} cannot be set to {text!r}: there is none")
        try:
            shown = self.react(self.root, path, text)
        except OSError as error:
            raise TaskFault("refused", f"{path} cannot be set to {text!r}: {error.strerror}") from error
        Attributes(self.root).write(path, shown)


@dataclass(slots=True, kw_only=True)
class AnyHost(Host):
    """A host beneath a folder, with a model kernel."""

    react: React = lambda _root, _path, text: text

    @property
    def texts(self) -> Attributes:
        return KernelTexts(self.root, self.react)


@dataclass(slots=True, kw_only=True)
class World:
    """A host in some state; `seen` returns the state beside its files that a revert must restore."""

    host: AnyHost
    seen: Callable[[], object] = lambda: None

    def picture(self) -> object:
        """The complete observable state."""
        return picture(self.host.root), self.seen()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An operation with arguments, and the state of the host. `outcomes`: the correct ones here; `failed` where the host
    may refuse the change."""

    tuning: Tuning
    state: object
    make: Callable[[Path], World] = field(repr=False)
    outcomes: frozenset[str] = GOOD
    undone: frozenset[str] = frozenset({"reverted"})
    """The correct outcomes of a revert: `kept` where nothing undoes the change."""


def world(
    folder: Path,
    *,
    react: React = lambda _root, _path, text: text,
    units: Systemd | None = None,
    tools: Processes | None = None,
    databases: Databases | None = None,
    seen: Callable[[], object] = lambda: None,
) -> World:
    """A host beneath the empty folder `folder`/root."""
    root, scratch = folder / "root", folder / "scratch"
    root.mkdir(parents=True)
    scratch.mkdir()
    host = AnyHost(
        policy=OPEN,
        root=root,
        scratch=scratch,
        react=react,
        units=units or StubUnits(),
        tools=tools or StubTools(),
        databases=databases or Databases(),
    )
    return World(host=host, seen=seen)


def valid_tuning(kind: str, **fields: object) -> Tuning:
    """A tuning; arguments that the schema refuses are discarded."""
    try:
        return tuning(kind, **fields)
    except ValidationError:
        assume(False)
        raise


def words(pattern: str, size: int = 12) -> st.SearchStrategy[str]:
    """Texts of a pattern, of limited length."""
    return st.from_regex(pattern, fullmatch=True).filter(lambda text: len(text) <= size)


def some(choices: Mapping[str, st.SearchStrategy[object]]) -> st.SearchStrategy[dict[str, object]]:
    """Some of the fields, at least one."""
    return st.fixed_dictionaries({}, optional=choices).filter(bool)


# ---- kernels ---------------------------------------------------------------------------------------------------------
#
# Modelled by Documentation/admin-guide, the source, and observations of Linux 6.18: choices in brackets; numbers separated
# by tabs; of `dirty_bytes` and `dirty_ratio` (and similar pairs) a write to one sets the other to 0, and the first refuses
# 0; a change of the I/O scheduler resets `nr_requests` to the length of the device's queue, or with a scheduler to 256; a
# scheduler's own attributes have their defaults when it is selected again, and `async_depth` follows `nr_requests`; a bond
# gives its MTU to its ports.

COUPLES = {path_of(one): path_of(other) for pair in COUPLED.items() for one, other in (pair, pair[::-1])}
NO_ZERO = ("/proc/sys/vm/dirty_bytes", "/proc/sys/vm/dirty_background_bytes")


def chosen(now: str, text: str) -> str:
    """An attribute after a write: of choices, the written one is in brackets."""
    choices = now.replace("[", "").replace("]", "").split()
    if "[" in now and text not in choices:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return " ".join(f"[{one}]" if one == text else one for one in choices) if "[" in now else text


def plain_kernel(root: Path, path: str, text: str) -> str:
    return chosen((root / path[1:]).read_text(), text)


def kernel_of_parameters(root: Path, path: str, text: str) -> str:
    other = COUPLES.get(path)
    if path in NO_ZERO and text == "0":
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    if other is not None and (root / path[1:]).read_text().split() != text.split():
        put(root, other, "0\n")
    return "\t".join(text.split())


def kernel_of_queues(root: Path, path: str, text: str) -> str:
    file = root / path[1:]
    now, shown, own = file.read_text(), plain_kernel(root, path, text), file.with_name("iosched")
    if file.name == "scheduler" and shown.split() != now.split():
        length = 1000 if text in ("none", "noop") else 256
        file.with_name("nr_requests").write_text(f"{length}\n")
        shutil.rmtree(own, ignore_errors=True)
        for name, value in {"async_depth": length, "read_expire": 500}.items() if text == "mq-deadline" else ():
            put(own, name, f"{value}\n")
    if file.name == "nr_requests" and (own / "async_depth").exists():
        put(own, "async_depth", f"{text}\n")
    return shown


def kernel_of_bonds(root: Path, path: str, text: str) -> str:
    slaves = (root / path[1:]).with_name("bonding") / "slaves"
    for port in slaves.read_text().split() if slaves.exists() else ():
        put(root, f"/sys/class/net/{port}/mtu", f"{text}\n")
    return text


REACTIONS: Mapping[str, React] = {
    "sysctl": kernel_of_parameters,
    "block_queue": kernel_of_queues,
    "mtu": kernel_of_bonds,
}


# ---- files ------------------------------------------------------------------------------------------------------------

ACL = bytes.fromhex("0200000001000600ffffffff020004000100000004000400ffffffff10000600ffffffff20000400ffffffff")
"""user::rw-, user:1:r--, group::r--, mask::rw-, other::r-- as the kernel keeps it (struct posix_acl_xattr_header)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The state of a path before the operation; `kind` as in `FileFact`."""

    kind: str = "file"
    content: bytes = b""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    xattrs: Mapping[str, bytes] = field(default_factory=dict)
    mtime_ns: int = 10**18

    def put(self, path: Path) -> None:
        """Create this state at the path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        match self.kind:
            case "absent":
                return
            case "link":
                path.symlink_to("elsewhere")
            case "directory":
                path.mkdir()
            case _:
                path.write_bytes(self.content)
                os.chown(path, self.uid, self.gid)
                for name, value in self.xattrs.items():
                    os.setxattr(path, name, value)
                if "system.posix_acl_access" not in self.xattrs:
                    path.chmod(self.mode)
                os.utime(path, ns=(self.mtime_ns, self.mtime_ns))


NAMES = words(r"[A-Za-z0-9_][A-Za-z0-9._+@:=,%-]{0,9}[A-Za-z0-9_]")
LINE = st.sampled_from(
    [
        b"# by hand",
        b"",
        b"  ",
        b"x = 1",
        b"vm.swappiness = 60",
        b"\xff\xfe",
        b"\xc3\xa4 = \xe2\x82\xac",
        b"tab\there",
        b"\x00",
    ]
)
ENDS = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])
LINES = st.lists(st.tuples(LINE, ENDS), max_size=5).map(lambda pairs: b"".join(line + end for line, end in pairs))
CONTENTS = st.one_of(LINES, st.builds(bytes.__add__, LINES, LINE), st.binary(max_size=60))
XATTRS = st.fixed_dictionaries(
    {},
    optional={
        "user.x": st.binary(max_size=9),
        "user.note": st.just(b"keep me"),
        "system.posix_acl_access": st.just(ACL),
    },
)


def files(contents: st.SearchStrategy[bytes] = CONTENTS) -> st.SearchStrategy[Found]:
    return st.builds(
        Found,
        content=contents,
        mode=st.integers(min_value=0, max_value=0o7777),
        uid=st.sampled_from([0, 1, 65534, 54321]),
        gid=st.sampled_from([0, 1, 65534, 54321]),
        xattrs=XATTRS,
        mtime_ns=st.integers(min_value=1, max_value=2**61),
    )


OTHERS = st.sampled_from(["absent", "absent", "absent", "link", "directory"]).map(lambda kind: Found(kind=kind))
STATES = st.one_of(files(), files(), OTHERS)


def _of_a_file(
    one: Tuning, path: str, found: Found, more: Callable[[World], None] = lambda _made: None, state: object = None
) -> Case:
    """A host with a file in some state; `more` makes the rest of it, and `state` says what that is."""

    def make(folder: Path) -> World:
        made = world(folder)
        place = made.host.root / path[1:]
        found.put(place)
        (place.parent / "of-others").write_bytes(b"theirs\r\n")
        more(made)
        return made

    return Case(tuning=one, state=(found, state), make=make)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=60)
WORD = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1, max_size=9)


@st.composite
def a_file(draw: st.DrawFn) -> Case:
    """Any text or template, any mode, existing owner and group."""
    path = f"/etc/app/{draw(st.sampled_from(['', 'deep/', 'deep/er/']))}{draw(NAMES)}"
    text: dict[str, object] = {"content": draw(TEXT)}
    if draw(st.booleans()):
        text = {"template": "a {{ one }}\nb {{ two }}\r\n", "values": {"one": draw(WORD), "two": draw(st.integers())}}
    one = valid_tuning(
        "file",
        path=path,
        **text,
        mode=draw(st.integers(min_value=0, max_value=0o777)),
        owner=draw(st.sampled_from(["root", "daemon", "nobody"])),
        group=draw(st.sampled_from(["root", "daemon", "nogroup"])),
        validator=draw(st.sampled_from(["", "app-check"])),
    )
    return _of_a_file(one, path, draw(STATES))


LIMIT = st.one_of(st.just("unlimited"), st.integers(min_value=-20, max_value=2**63 - 1))
ITEMS = st.sampled_from(["memlock", "nofile", "nproc", "stack", "core", "nice", "rtprio"])
LIMITS = st.dictionaries(ITEMS, LIMIT | st.fixed_dictionaries({"soft": LIMIT, "hard": LIMIT}), min_size=1, max_size=3)
USERS = st.just("*") | words(r"@?[a-z_][a-z0-9_-]{0,8}")


@st.composite
def limits(draw: st.DrawFn) -> Case:
    """Any limits of any users."""
    path = f"/etc/security/limits.d/{draw(words(r'[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}'))}.conf"
    users = draw(st.dictionaries(USERS, LIMITS, min_size=1, max_size=3))
    return _of_a_file(valid_tuning("limits", file=path, users=users), path, draw(STATES))


VALUE = words(r"[ !#$%&'()*+,./0-9:;<=>?@A-Z\[\]^_a-z{|}~-]{1,20}", 20)
ACCOUNT = words(r"[a-z_][a-z0-9_-]{0,8}")
MATCH = st.dictionaries(
    st.sampled_from(["KERNEL", "SUBSYSTEM", "ENV{DM_NAME}", "ATTRS{vendor}", "ATTR{queue/rotational}", "RESULT", "TAG"]),
    VALUE, min_size=1, max_size=3,
)  # fmt: skip
ASSIGN = some({
    "OWNER": ACCOUNT, "GROUP": ACCOUNT, "MODE": st.sampled_from(["0660", "600", "0640"]),
    "SYMLINK": words(r"oraudev/[A-Za-z0-9_]{1,5}(/[A-Za-z0-9_]{1,5})?( oraudev/[a-z]{1,4})?"),
    "ATTR{queue/nr_requests}": VALUE, "ENV{ID_X}": VALUE,
})  # fmt: skip
RULE = st.fixed_dictionaries(
    {"match": MATCH.map(lambda pairs: {**pairs, "ENV{DM_UUID}": "data1"}), "assign": ASSIGN},
    optional={"unless": MATCH, "program": st.just(["/usr/bin/udevadm", "info"])},
)


@st.composite
def udev_rules(draw: st.DrawFn) -> Case:
    path = f"/etc/udev/rules.d/{draw(words(r'[0-9]{2}-[A-Za-z0-9][A-Za-z0-9_.-]{0,8}'))}.rules"
    rules = draw(st.lists(RULE, min_size=1, max_size=3))
    return _of_a_file(valid_tuning("udev_rules", file=path, rules=rules), path, draw(STATES))


NAA = "008300140103001060021ad00000000100000000{:08x}"
"""A VPD page 0x83 with one worldwide name."""
SECTION = st.fixed_dictionaries(
    {"vendor": st.sampled_from(["FUSIONIO", "3PARdata"])},
    optional={
        "product": words(r"[A-Za-z0-9_ .*-]{1,8}"),
        "features": st.just("3 queue_if_no_path pg_init_retries 50"),
        "no_path_retry": st.sampled_from(["3", "queue", "fail"]),
        "dev_loss_tmo": st.integers(min_value=0, max_value=2**31 - 1),
    },
)
ALIASES = st.dictionaries(words(r"[A-Za-z][A-Za-z0-9_.-]{0,8}"), words(r"3[0-9a-f]{7,12}", 13), max_size=3)


@st.composite
def multipath(draw: st.DrawFn) -> Case:
    """Any sections and names, and an array of any size; multipathd runs or not."""
    path = f"/etc/multipath/conf.d/{draw(words(r'[A-Za-z0-9][A-Za-z0-9_.-]{0,8}'))}.conf"
    disks, active = draw(st.integers(min_value=0, max_value=4)), draw(st.sampled_from([True, True, True, False]))
    numbered = st.just([{"vendor": "FUSIONIO", "prefix": "fcion", "count": disks or 1}])
    sections = {"devices": st.lists(SECTION, max_size=2)}
    asks = draw(st.fixed_dictionaries(sections, optional={"aliases": ALIASES, "numbered": numbered}))

    def array(made: World) -> None:
        made.host.units = units = StubUnits(multipathd=UnitFact(active=active, enabled=True))
        made.seen = lambda: dict(units.units)
        for number in range(disks * 2):  # two paths to each
            device = f"/sys/block/sd{'abcdefgh'[number]}/device"
            put(made.host.root, f"{device}/vendor", "FUSIONIO\n")
            put(made.host.root, f"{device}/model", "ION LUN\n")
            put(made.host.root, f"{device}/vpd_pg83", "").write_bytes(bytes.fromhex(NAA.format(number % disks)))

    return _of_a_file(valid_tuning("multipath", file=path, **asks), path, draw(STATES), array, (disks, active))


PARAMETER = st.one_of(
    st.sampled_from(["vm.swappiness", "kernel.sem", "net.ipv4.tcp_rmem", "net.ipv4.conf.eth0/100.rp_filter"]),
    words(r"(net|vm|fs)(\.[A-Za-z0-9_/:@-]{1,4}){1,3}", 16),
)
SETTING = st.one_of(st.integers(), words(r"[A-Za-z0-9_.:,/%+-]{1,6}( [A-Za-z0-9_.:,/%+-]{1,4}){0,3}", 20))
NOW = st.one_of(words(r"[0-9]{1,4}([ \t]{1,2}[0-9]{1,3}){0,3}", 20), st.sampled_from(["", "(none)", "1-2,4"]))


@st.composite
def a_couple(draw: st.DrawFn) -> tuple[dict[str, object], dict[str, str]]:
    """Two parameters of which one sets the other to 0: the settings of a plan, and the values before."""
    one, other = draw(st.sampled_from([*COUPLED.items()]).flatmap(st.permutations))
    numbers = st.integers(min_value=1, max_value=99)
    asked = st.sampled_from(
        [{one: numbers}, {one: numbers, other: st.just(0)}, {one: numbers, other: numbers}, {one: st.just(0)}]
    )
    return draw(asked.flatmap(st.fixed_dictionaries)), draw(
        st.sampled_from([{one: "7", other: "0"}, {one: "0", other: "7"}])
    )


@st.composite
def sysctl(draw: st.DrawFn) -> Case:
    """Any parameters, also in a file; pairs of which one resets the other."""
    settings: dict[str, object] = dict(draw(st.dictionaries(PARAMETER, SETTING, max_size=3)))
    values = {name: draw(NOW) for name in settings}
    if draw(st.booleans()) or not settings:
        coupled, now = draw(a_couple())
        settings, values = {**settings, **coupled}, {**values, **now}
    path = draw(st.sampled_from([None, "/etc/sysctl.d/97-x.conf"]))
    places = {path_of(name): value for name, value in values.items()}
    assume(not any(other.startswith(f"{place}/") for place in places for other in places))

    def kernel(made: World) -> None:
        made.host.react = kernel_of_parameters
        for place, value in places.items():
            put(made.host.root, place, f"{value}\n")

    one = valid_tuning("sysctl", settings=settings, **({"file": path} if path else {}))
    return _of_a_file(one, path or "/etc/sysctl.d/of-another.conf", draw(STATES), kernel, values)


INI_LINE = st.sampled_from([
    b"[hlr]", b"[other]", b" [HLR ] ; x", b"PermSize=1", b"permsize = 2 ", b"LogBufMB=9", b"; PermSize=4", b"nonsense", b"\xff=\xfe",
    b"\tTempSize\t=\t9", b"", b"[odd", b"=", b"k==", b"x\ry=1",
])  # fmt: skip
INI_BODY = st.lists(st.tuples(INI_LINE, ENDS), max_size=8).map(
    lambda pairs: b"".join(line + end for line, end in pairs)
)
INI_TEXTS = st.one_of(
    st.builds(
        lambda *parts: b"".join(parts), INI_BODY, st.just(b"[hlr]\n"), INI_BODY, st.sampled_from([b"", b"LogBufMB=5"])
    ),
    st.builds(lambda before, end: b"[odbc]\r\nhlr=x" + end + before, INI_BODY, ENDS),
    CONTENTS,
)
INI_VALUE = st.one_of(
    st.integers(), st.sampled_from(["", "x y", "a=b", "[c]", "; no comment", "€"]), words(r"[ -~]{1,12}")
)


@st.composite
def ini_section(draw: st.DrawFn) -> Case:
    """Any attributes of a section in a file of any bytes."""
    path = "/etc/app/sys.odbc.ini"
    keys = st.one_of(
        st.sampled_from(["PermSize", "permsize", "TempSize", "LogBufMB"]), words(r"[A-Za-z_][A-Za-z0-9_.-]{0,8}")
    )
    one = valid_tuning(
        "ini_section",
        file=path,
        section=draw(st.sampled_from(["hlr", "hlr", "HLR", "other", "not there"])),
        set=draw(st.dictionaries(keys, INI_VALUE, min_size=1, max_size=3)),
        create=draw(st.booleans()),
    )
    return _of_a_file(one, path, draw(st.one_of(files(INI_TEXTS), files(INI_TEXTS), OTHERS)))
