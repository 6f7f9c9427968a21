"""Operations that own a file, or a part of one: any bytes, mode, owner, extended attributes, access list, line endings,
lines of other programs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from any_host import Case, World, valid_tuning, words, world
from hypothesis import strategies as st
from tuning_bench import StubUnits

from proveout.dsl.operations.facts import UnitFact

NAA = "008300140103001060021ad00000000100000000{:08x}"
"""A VPD page 0x83 with one worldwide name."""
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


def _world(folder: Path, path: str, found: Found, neighbour: bytes = b"theirs\r\n") -> World:
    made = world(folder)
    place = made.host.root / path.lstrip("/")
    found.put(place)
    (place.parent / "of-others").write_bytes(neighbour)
    return made


def _of_a_file(one: object, path: str, found: Found) -> Case:
    return Case(tuning=one, state=found, make=lambda folder: _world(folder, path, found))  # type: ignore[arg-type]


# ---- file, limits, udev_rules ----------------------------------------------------------------------------------------

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
PAIRS = st.one_of(LIMIT, st.fixed_dictionaries({"soft": LIMIT, "hard": LIMIT}))
USERS = st.one_of(st.just("*"), words(r"@?[a-z_][a-z0-9_-]{0,8}"))


@st.composite
def limits(draw: st.DrawFn) -> Case:
    """Any limits of any users."""
    path = f"/etc/security/limits.d/{draw(words(r'[A-Za-z0-9_][A-Za-z0-9_.-]{0,8}'))}.conf"
    users = draw(st.dictionaries(USERS, st.dictionaries(ITEMS, PAIRS, min_size=1, max_size=3), min_size=1, max_size=3))
    return _of_a_file(valid_tuning("limits", file=path, users=users), path, draw(STATES))


VALUE = words(r"[ !#$%&'()*+,./0-9:;<=>?@A-Z\[\]^_a-z{|}~-]{1,20}", 20)
MATCH = st.dictionaries(
    st.sampled_from(["KERNEL", "SUBSYSTEM", "ENV{DM_NAME}", "ATTRS{vendor}", "ATTR{queue/rotational}", "RESULT", "TAG"]),
    VALUE, min_size=1, max_size=3,
)  # fmt: skip
ASSIGN = st.fixed_dictionaries(
    {},
    optional={
        "OWNER": words(r"[a-z_][a-z0-9_-]{0,8}"),
        "GROUP": words(r"[a-z_][a-z0-9_-]{0,8}"),
        "MODE": st.sampled_from(["0660", "600", "0640"]),
        "SYMLINK": words(r"oraudev/[A-Za-z0-9_]{1,5}(/[A-Za-z0-9_]{1,5})?( oraudev/[a-z]{1,4})?"),
        "ATTR{queue/nr_requests}": VALUE,
        "ENV{ID_X}": VALUE,
    },
).filter(bool)
RULE = st.fixed_dictionaries(
    {"match": MATCH.map(lambda pairs: {**pairs, "ENV{DM_UUID}": "data1"}), "assign": ASSIGN},
    optional={"unless": MATCH, "program": st.just(["/usr/bin/udevadm", "info"])},
)


@st.composite
def udev_rules(draw: st.DrawFn) -> Case:
    path = f"/etc/udev/rules.d/{draw(words(r'[0-9]{2}-[A-Za-z0-9][A-Za-z0-9_.-]{0,8}'))}.rules"
    rules = draw(st.lists(RULE, min_size=1, max_size=3))
    return _of_a_file(valid_tuning("udev_rules", file=path, rules=rules), path, draw(STATES))


# ---- a part of a file -----------------------------------------------------------------------------------------------

INI_LINE = st.sampled_from([
    b"[hlr]", b"[other]", b" [HLR ] ; x", b"PermSize=1", b"permsize = 2 ", b"LogBufMB=9", b"; PermSize=4", b"nonsense", b"\xff=\xfe",
    b"\tTempSize\t=\t9", b"", b"[odd", b"=", b"k==", b"x\ry=1",
])  # fmt: skip
INI_BODY = st.lists(st.tuples(INI_LINE, ENDS), max_size=8).map(
    lambda pairs: b"".join(line + end for line, end in pairs)
)
INI_TEXTS = st.one_of(
    st.builds(
        lambda before, after, last: before + b"[hlr]\n" + after + last,
        INI_BODY,
        INI_BODY,
        st.sampled_from([b"", b"LogBufMB=5"]),
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


# ---- multipath -------------------------------------------------------------------------------------------------------

SECTION = st.fixed_dictionaries(
    {"vendor": st.sampled_from(["FUSIONIO", "3PARdata"])},
    optional={
        "product": words(r"[A-Za-z0-9_ .*-]{1,8}"),
        "prio": st.sampled_from(["alua", "const"]),
        "features": st.just("3 queue_if_no_path pg_init_retries 50"),
        "no_path_retry": st.sampled_from(["3", "queue", "fail"]),
        "dev_loss_tmo": st.integers(min_value=0, max_value=2**31 - 1),
    },
)


@st.composite
def multipath(draw: st.DrawFn) -> Case:
    """Any sections and names, and an array of any size of which the plan may expect another."""
    path = f"/etc/multipath/conf.d/{draw(words(r'[A-Za-z0-9][A-Za-z0-9_.-]{0,8}'))}.conf"
    disks = draw(st.integers(min_value=0, max_value=4))
    asks = draw(
        st.fixed_dictionaries(
            {"devices": st.lists(SECTION, max_size=2)},
            optional={
                "aliases": st.dictionaries(
                    words(r"[A-Za-z][A-Za-z0-9_.-]{0,8}"), words(r"3[0-9a-f]{7,12}", 13), max_size=3
                ),
                "numbered": st.just([{"vendor": "FUSIONIO", "prefix": "fcion", "count": disks or 1}]),
            },
        )
    )
    found, active = draw(STATES), draw(st.sampled_from([True, True, True, False]))

    def make(folder: Path) -> World:
        made = _world(folder, path, found)
        made.host.units = units = StubUnits(multipathd=UnitFact(active=active, enabled=True))
        for number in range(disks * 2):  # two paths to each
            device = made.host.root / f"sys/block/sd{'abcdefgh'[number]}/device"
            device.mkdir(parents=True)
            (device / "vendor").write_text("FUSIONIO\n")
            (device / "model").write_text("ION LUN\n")
            (device / "vpd_pg83").write_bytes(bytes.fromhex(NAA.format(number % disks)))
        made.seen = lambda: dict(units.units)
        return made

    return Case(tuning=valid_tuning("multipath", file=path, **asks), state=(found, disks, active), make=make)
