"""`sysctl`: kernel parameters below /proc/sys, and optionally the file of /etc/sysctl.d that keeps them over a
restart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from proveout.dsl.operations.change import Change, SetText, WriteFile
from proveout.dsl.operations.facts import Facts, FileQuery, Query, TextQuery
from proveout.dsl.operations.linux_names import PROGRAM_SYSCTLS
from proveout.dsl.operations.operation import Operation, Step, as_written, gathered, whole_file
from proveout.dsl.operations.types import AbsolutePath
from proveout.dsl.schema.scalar_types import custom
from proveout.dsl.source.nodes import Map

NAME_PATTERN = r"^[a-z0-9_]+(\.[A-Za-z0-9_/:@-]+)+$"
SETTING_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
_NAME = re.compile(NAME_PATTERN.strip("^$"))
_VALUE = re.compile(r"[A-Za-z0-9_.:,/%+-]+( [A-Za-z0-9_.:,/%+-]+)*")
_FILE = re.compile(r"/etc/sysctl\.d/[A-Za-z0-9_][A-Za-z0-9_.-]*\.conf")
_NO_WAY_BACK = (
    "kernel.kexec_load_disabled",
    "kernel.kexec_load_limit_panic",
    "kernel.kexec_load_limit_reboot",
    "kernel.modules_disabled",
    "kernel.sysrq",
    "kernel.tainted",
    "kernel.unprivileged_bpf_disabled",
    "kernel.yama.ptrace_scope",
)
_CHANGES_OTHERS = (
    "kernel.watchdog",
    "net.ipv4.ip_forward",
    "net.ipv6.conf.*.disable_ipv6",
    "net.ipv6.conf.all.addr_gen_mode",
    "net.ipv6.conf.all.force_forwarding",
    "net.ipv6.conf.all.ignore_routes_with_linkdown",
    "net.ipv6.route.gc_min_interval",
    "net.ipv[46].conf.*.forwarding",
    "net.ipv[46].neigh.*.base_reachable_time",
    "net.ipv[46].neigh.*.retrans_time",
    "net.ipv[46].neigh.*.unres_qlen",
)
"""Writing one sets those of other interfaces, takes addresses away, or rounds the same in a finer unit: setting it back
does not bring this back.
Source: Documentation/networking/ip-sysctl and admin-guide/sysctl/kernel of Linux, net/ipv4/devinet.c,
net/ipv6/addrconf.c."""
COUPLED: Mapping[str, str] = {
    "vm.dirty_bytes": "vm.dirty_ratio",
    "vm.dirty_background_bytes": "vm.dirty_background_ratio",
    "vm.overcommit_kbytes": "vm.overcommit_ratio",
}
"""Two parameters for one quantity: the kernel sets one to 0 when the other is written. Source:
Documentation/admin-guide/sysctl/vm of Linux."""
_OTHER = {**COUPLED, **{ratio: number for number, ratio in COUPLED.items()}}
_AS_FOUND = ("vm.nr_hugepages",)
"""The kernel provides as many as it can allocate."""
_NEVER_ZERO = ("vm.dirty_bytes", "vm.dirty_background_bytes")
_ACTS = ("vm.drop_caches", "vm.compact_memory", "net.ipv4.route.flush", "net.ipv6.route.flush", "vm.stat_refresh")


def path_of(name: str) -> str:
    """The file of a parameter; as in sysctl(8), `/` in a name stands for a `.` in it (`net.ipv4.conf.eth0/100.mtu`)."""
    return "/proc/sys/" + name.translate(str.maketrans("./", "/."))


def name_of(path: str) -> str:
    """The parameter of a file below /proc/sys."""
    return path.removeprefix("/proc/sys/").translate(str.maketrans("./", "/."))


def normal(value: str) -> str:
    """A value as it is compared: the kernel puts tabs between the numbers that it is given with blanks."""
    return " ".join(value.split())


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name) or any(part in ("", ".", "..") for part in path_of(name).split("/")[1:]):
        raise custom(f"`{name}` is not the name of a kernel parameter, as vm.swappiness")
    if any(fnmatchcase(name, pattern) for pattern in PROGRAM_SYSCTLS):
        raise custom(f"`{name}` names a program that the kernel runs as root, so no plan sets it")
    if name in _NO_WAY_BACK:
        raise custom(f"`{name}` cannot be set back, or guards the host, so no plan sets it")
    if any(fnmatchcase(name, pattern) for pattern in _CHANGES_OTHERS):
        raise custom(f"`{name}` changes more of the host than itself, which could not be set back, so no plan sets it")
    if name in _ACTS:
        raise custom(f"`{name}` is not a setting: writing it does something once")
    return name


def _checked_value(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise custom(f"{value} is not a value of a kernel parameter: a number or words")
    text = normal(str(value)) if "\n" not in str(value) else str(value)
    if not _VALUE.fullmatch(text) or len(text) > 500:
        raise custom(f"`{text}` is not a value of a kernel parameter: numbers or words with blanks between them")
    return text


def _checked_file(path: str) -> str:
    if not _FILE.fullmatch(path):
        raise custom(f"`{path}` is not a file of /etc/sysctl.d: /etc/sysctl.d/NAME.conf")
    return path


def _one_of_two(given: dict[str, str]) -> dict[str, str]:
    for name, other in COUPLED.items():
        if given.get(name, "0") != "0" and given.get(other, "0") != "0":
            raise custom(f"`{name}` and `{other}` exclude each other: the kernel sets one to 0 when the other is set")
    return given


SysctlName: TypeAlias = Annotated[str, AfterValidator(_checked_name)]
SysctlValue: TypeAlias = Annotated[str, BeforeValidator(_checked_value), WithJsonSchema(SETTING_SCHEMA)]


class Sysctl(Operation):
    """Kernel parameters: name to value, `vm.swappiness: 10`."""

    model_config = ConfigDict(json_schema_extra=as_written(NAME_PATTERN, SETTING_SCHEMA))

    settings: SkipJsonSchema[
        Annotated[dict[SysctlName, SysctlValue], Field(min_length=1, max_length=200), AfterValidator(_one_of_two)]
    ]
    file: Annotated[AbsolutePath, AfterValidator(_checked_file)] | None = Field(
        None,
        description="Also keep them in this file of /etc/sysctl.d, as its only content, for the next start of the "
        "host.",
    )

    privileges = "root: writes /proc/sys"

    @classmethod
    def reshape(cls, block: Map) -> Map:
        """`{vm.swappiness: 10, file: …}` -> `{settings: {vm.swappiness: 10}, file: …}`."""
        return gathered(block, lambda name: "." in name)

    def targets(self) -> Mapping[str, str]:
        """Each parameter, which of two that exclude each other rules, and the file."""
        found = {f"sysctl {name}": value for name, value in self.settings.items()} | dict(self._ruling())
        return found | ({f"file {self.file}": self._content().decode()} if self.file else {})

    def _ruling(self) -> Iterator[tuple[str, str]]:
        for pair in COUPLED.items():
            for name in pair:
                if self.settings.get(name, "0") != "0":
                    yield f"{' or '.join(pair)} (the kernel sets one to 0 when the other is set)", name

    def wanted(self) -> tuple[str, ...]:
        """Each parameter, and the file."""
        lines = tuple(f"{name} = {value}" for name, value in self.settings.items())
        return (*lines, f"the same in {self.file}, for the next start of the host") if self.file else lines

    def queries(self, known: Facts) -> tuple[Query, ...]:
        """The values as they are, those that the kernel changes with them, and the file."""
        names = dict.fromkeys((*self.settings, *(_OTHER[name] for name in self.settings if name in _OTHER)))
        texts = tuple(TextQuery(path_of(name)) for name in names)
        return (*texts, FileQuery(self.file)) if self.file else texts

    def changes(self, facts: Facts) -> Step:
        """The parameters that differ, then the file."""
        changes: list[Change] = []
        refusals: list[str] = []
        for name, value in self.settings.items():
            path = path_of(name)
            now = facts.text(path)
            if now is None:
                refusals.append(f"this kernel has no parameter {name} ({path})")
            elif normal(now) != value:
                changes += self._set(name, normal(now), facts, refusals)
        if self.file is not None:
            file = whole_file(facts, self.file, self._content())
            changes += (self._governing(change) for change in file.changes)
            refusals += file.refusals
        return Step(changes=tuple(changes), refusals=tuple(refusals))

    def _set(self, name: str, now: str, facts: Facts, refusals: list[str]) -> tuple[SetText, ...]:
        """The parameter; of two that exclude each other, what sets it back is the one that ruled before."""
        path, value = path_of(name), self.settings[name]
        other = _OTHER.get(name, "")
        was = normal(facts.text(path_of(other)) or "0") if other else "0"
        if value == "0" and self.settings.get(other, "0") != "0":
            return ()  # the kernel does it when the other one is set
        if value == "0" and name in _NEVER_ZERO:
            refusals.append(f"{name} cannot be set to 0 by itself: set {other}, and the kernel does")
            return ()
        if was == "0":
            return (SetText(path=path, before=now, after=value, adjusted=name in _AS_FOUND),)
        back = SetText(path=path_of(other), before=was, after="0", part="undo", only_if=(path, value))
        return (back, SetText(path=path, before=now, after=value, part="make"))

    def _governing(self, change: Change) -> Change:
        return replace(change, sysctls=tuple(self.settings)) if isinstance(change, WriteFile) else change

    def _content(self) -> bytes:
        return "".join(f"{name} = {value}\n" for name, value in self.settings.items()).encode()
