"""Operations on the kernel: `sysctl`, `block_queue`, `cpu_governor`, `huge_pages` and `thp`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from proveout.core import units
from proveout.core.linux import PROGRAM_SYSCTLS
from proveout.dsl.operations.change import SetText
from proveout.dsl.operations.facts import Facts
from proveout.dsl.operations.operation import (
    CONF_NAME,
    AbsolutePath,
    Found,
    Operation,
    as_written,
    choices,
    chosen,
    differing,
    gathered,
    in_folder,
    matching,
    whole_file,
)
from proveout.dsl.plan.scalars import Form, custom
from proveout.dsl.source.nodes import Map

NAME_PATTERN = r"^[a-z0-9_]+(\.[A-Za-z0-9_/:@-]+)+$"
SETTING_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
_NAME = re.compile(NAME_PATTERN)
_VALUE = re.compile(r"[A-Za-z0-9_.:,/%+-]+( [A-Za-z0-9_.:,/%+-]+)*")
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
    "kernel.shm_rmid_forced",
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
"""Writing one sets those of other interfaces, takes addresses away, removes shared memory that no process has attached,
or rounds the same in a finer unit: setting it back does not bring this back.
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
_AS_FOUND = ("vm.nr_hugepages", "vm.nr_hugepages_mempolicy")
"""The kernel provides as many as it can allocate."""
_NEVER_ZERO = ("vm.dirty_bytes", "vm.dirty_background_bytes")
_ACTS = ("vm.drop_caches", "vm.compact_memory", "net.ipv4.route.flush", "net.ipv6.route.flush", "vm.stat_refresh")
_REFUSED = (
    (PROGRAM_SYSCTLS, "names a program that the kernel runs as root, so no plan sets it"),
    (_NO_WAY_BACK, "cannot be set back, or guards the host, so no plan sets it"),
    (_CHANGES_OTHERS, "changes more of the host than itself, which could not be set back, so no plan sets it"),
    (_ACTS, "is not a setting: writing it does something once"),
)


_SWAPPED = str.maketrans("./", "/.")


def path_of(name: str) -> str:
    """The file of a parameter; as in sysctl(8), `/` in a name stands for a `.` in it (`net.ipv4.conf.eth0/100.mtu`)."""
    return f"/proc/sys/{name.translate(_SWAPPED)}"


def name_of(path: str) -> str:
    """The parameter of a file below /proc/sys."""
    return path.removeprefix("/proc/sys/").translate(_SWAPPED)


def normal(value: str) -> str:
    """A value as it is compared: the kernel puts tabs between the numbers that it is given with blanks."""
    return " ".join(value.split())


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name) or any(part in ("", ".", "..") for part in path_of(name).split("/")[1:]):
        raise custom(f"`{name}` is not the name of a kernel parameter, as vm.swappiness")
    for patterns, why in _REFUSED:
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            raise custom(f"`{name}` {why}")
    return name


def _checked_value(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise custom(f"{units.shown(value)} is not a value of a kernel parameter: a number or words")
    text = normal(str(value)) if "\n" not in str(value) else str(value)
    if not _VALUE.fullmatch(text) or len(text) > 500:
        raise custom(f"`{text}` is not a value of a kernel parameter: numbers or words with blanks between them")
    return text


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
    file: Annotated[AbsolutePath, in_folder("/etc/sysctl.d", CONF_NAME)] | None = Field(
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
        lines = tuple(f"{name} = {value}" for name, value in self.settings.items())
        return (*lines, f"the same in {self.file}, for the next start of the host") if self.file else lines

    def steps(self, facts: Facts) -> Iterator[Found]:
        """The parameters that differ, then the file."""
        for name, value in self.settings.items():
            path = path_of(name)
            now = facts.text(path)
            if now is None:
                yield f"this kernel has no parameter {name} ({path})"
            elif normal(now) != value:
                yield from self._set(name, normal(now), facts)
        if self.file is not None:
            yield from whole_file(facts, self.file, self._content(), sysctls=tuple(self.settings))

    def _set(self, name: str, now: str, facts: Facts) -> Iterator[Found]:
        """The parameter; of two that exclude each other, what sets it back is the one that ruled before."""
        path, value = path_of(name), self.settings[name]
        other = _OTHER.get(name, "")
        was = normal(facts.text(path_of(other)) or "0") if other else "0"
        if value == "0" and self.settings.get(other, "0") != "0":
            return  # the kernel does it when the other one is set
        if value == "0" and name in _NEVER_ZERO:
            yield f"{name} cannot be set to 0 by itself: set {other}, and the kernel does"
        elif was == "0":
            yield SetText(path=path, before=now, after=value, adjusted=name in _AS_FOUND)
        else:
            yield SetText(path=path_of(other), before=was, after="0", part="undo", only_if=(path, value))
            yield SetText(path=path, before=now, after=value, part="make")

    def _content(self) -> bytes:
        return "".join(f"{name} = {value}\n" for name, value in self.settings.items()).encode()


_PATTERN = re.compile(r"[A-Za-z0-9!_*?.\[\]-]{1,64}")
SCHEDULER, REQUESTS, READ_AHEAD = "scheduler", "nr_requests", "read_ahead_kb"
NUMBERS = ("rotational", "rq_affinity", "nomerges", "nr_requests", "read_ahead_kb")


def _pattern(value: str) -> str:
    name = value.removeprefix("/dev/")
    if not _PATTERN.fullmatch(name) or name in (".", "..") or name.startswith("-"):
        raise custom(f"`{value}` is not the name of a disk in /sys/block, nor a pattern: sdb, sd[b-e], dm-*, nvme*n1")
    return name


Devices: TypeAlias = Annotated[
    list[Annotated[str, AfterValidator(_pattern)]], Form(min_length=1, max_length=200, or_one=True)
]
Scheduler: TypeAlias = Annotated[
    str,
    matching(r"[a-z][a-z0-9-]{0,30}", "`{value}` is not the name of an I/O scheduler: none, mq-deadline, kyber, bfq"),
]


class BlockQueue(Operation):
    """The request queues of disks: `{devices: "sd[b-e]", scheduler: none, nr_requests: 128}`."""

    devices: Devices = Field(description="Names in /sys/block, or patterns of them.")
    scheduler: Annotated[list[Scheduler], Form(max_length=8, or_one=True)] = Field(
        [],
        description="The I/O scheduler; of several, the first that the kernel offers: `[none, noop]` means no "
        "scheduler on new and on old kernels.",
    )
    rotational: Annotated[int, Field(ge=0, le=1)] | None = Field(None, description="Whether it turns: 0 or 1.")
    rq_affinity: Annotated[int, Field(ge=0, le=2)] | None = Field(
        None, description="CPU on which a request is completed: 0 any, 1 on the CPU group that asked, 2 on that CPU."
    )
    nomerges: Annotated[int, Field(ge=0, le=2)] | None = Field(
        None, description="Merging of requests: 0 all, 1 the cheap ones, 2 none."
    )
    nr_requests: Annotated[int, Field(ge=4, le=100_000)] | None = Field(None, description="Requests in the queue.")
    read_ahead_kb: Annotated[int, Field(ge=0, le=1_048_576, multiple_of=4)] | None = Field(
        None, description="Read-ahead, KiB: whole pages."
    )

    privileges = "root: writes /sys/block"

    @model_validator(mode="after")
    def _sets_something(self) -> BlockQueue:
        if not self._settings:
            raise custom(f"nothing is to be set: give {SCHEDULER}, {', '.join(NUMBERS)}")
        return self

    def targets(self) -> Mapping[str, str]:
        return {f"{name} of {device}": value for device in self.devices for name, value in self._settings.items()}

    def wanted(self) -> tuple[str, ...]:
        settings = ", ".join(f"{name} {value}" for name, value in self._settings.items())
        return (f"{', '.join(self.devices)}: {settings}",)

    @property
    def _settings(self) -> Mapping[str, str]:
        numbers = {name: str(value) for name in NUMBERS if (value := getattr(self, name)) is not None}
        return {SCHEDULER: ", else ".join(self.scheduler), **numbers} if self.scheduler else numbers

    def steps(self, facts: Facts) -> Iterator[Found]:
        """The attributes that differ, disk by disk; a pattern that matches nothing is refused."""
        found = {device: facts.paths(f"/sys/block/{device}/queue") for device in self.devices}
        yield from (f"this host has no disk {device} (/sys/block)" for device, queues in found.items() if not queues)
        for queue in dict.fromkeys(queue for queues in found.values() for queue in queues):
            yield from self._of(queue, facts)

    def _of(self, queue: str, facts: Facts) -> Iterator[Found]:
        """The scheduler first: with another scheduler the kernel resets the length of the queue, also on undo, and the
        scheduler's own attributes. These come back last of all, because the length of the queue depends on the
        scheduler."""
        scheduler, requests = f"{queue}/{SCHEDULER}", f"{queue}/{REQUESTS}"
        before, length = facts.text(scheduler) or "", facts.text(requests) or ""
        switches = self._offered(before) not in (None, chosen(before))
        undone: tuple[str, ...] = ()
        only_if = (scheduler, chosen(before)) if switches else (requests, length)
        if switches:
            undone = (*facts.paths(f"{queue}/iosched/*"), requests)
        elif self.nr_requests is not None and length != str(self.nr_requests):
            undone = facts.paths(f"{queue}/iosched/async_depth")
        for path in undone:
            if text := facts.text(path):
                yield SetText(path=path, before=text, after="", part="undo", only_if=only_if)
        for name, wanted in self._settings.items():
            path = f"{queue}/{name}"
            text = facts.text(path)
            if text is None:
                yield f"this disk has no {name} ({path})"
                return
            value = self._offered(text) if name == SCHEDULER else wanted
            if not value:
                offered = ", ".join(choices(text))
                yield f"the kernel offers no scheduler {' or '.join(self.scheduler)} there, but {offered} ({path})"
                return
            if switches and name == REQUESTS:
                yield SetText(path=path, before=chosen(text), after=value, part="make")
            else:
                yield from differing(path, text, value, adjusted=name == READ_AHEAD)

    def _offered(self, text: str) -> str | None:
        return next((name for name in self.scheduler if name in choices(text)), None)


PATTERN = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"


class CpuGovernor(Operation):
    """The governor of every CPU: `{governor: performance}`."""

    governor: Literal["performance", "powersave", "ondemand", "conservative", "schedutil"] = Field(
        description="One that the host's driver has."
    )

    privileges = "root: writes /sys/devices/system/cpu"

    def targets(self) -> Mapping[str, str]:
        return {"cpu governor": self.governor}

    def wanted(self) -> tuple[str, ...]:
        return (f"every CPU has the governor {self.governor}",)

    def steps(self, facts: Facts) -> Iterator[Found]:
        paths = facts.paths(PATTERN)
        if not paths:
            yield "this host does not scale the clock of its CPUs (a virtual machine seldom does)"
        for path in paths:
            there = (facts.text(path.replace("scaling_governor", "scaling_available_governors")) or "").split()
            if self.governor not in there:
                yield f"{path} cannot be {self.governor}: there are {', '.join(there) or 'none'}"
                return
            yield from differing(path, facts.text(path) or "", self.governor)


MEMINFO = "/proc/meminfo"
SHARE_MAX = 0.95
"""Of the host's memory; the rest is the kernel's, the agent's and the page tables'."""
_KIB: Mapping[str, int] = {"2MiB": 2048, "1GiB": 1024 * 1024}
_LINE = re.compile(r"^(\w+):\s+(\d+)", re.M)


class HugePages(Operation):
    """The number of huge pages that a host keeps: `{pages: 512}`."""

    pages: int = Field(ge=0, le=2**31, description="The number of pages.")
    size: Literal["2MiB", "1GiB"] | None = Field(
        None, description="Of which size; by default the host's own (vm.nr_hugepages)."
    )

    privileges = "root: sets the number of huge pages"

    @property
    def _path(self) -> str:
        if self.size is None:
            return "/proc/sys/vm/nr_hugepages"
        return f"/sys/kernel/mm/hugepages/hugepages-{_KIB[self.size]}kB/nr_hugepages"

    def targets(self) -> Mapping[str, str]:
        """The same as the kernel parameter's, where it is that."""
        name = "sysctl vm.nr_hugepages" if self.size is None else f"huge pages of {self.size}"
        return {name: str(self.pages)}

    def wanted(self) -> tuple[str, ...]:
        gib = self.pages * _KIB[self.size or "2MiB"] / 1024**2
        size, where = (self.size, "") if self.size else ("the host's default size", " where that is 2MiB")
        taken = ("a server that runs already takes them up when it is started again",) if self.pages else ()
        return (f"{self.pages:,} huge pages of {size}: {gib:,.6g} GiB{where}", *taken)

    def steps(self, facts: Facts) -> Iterator[Found]:
        """Refused where it would take nearly all of the memory. Whether the kernel found the pages shows only on
        verification."""
        now = facts.text(self._path)
        if now is None:
            yield f"this kernel has no huge pages of {self.size or 'any size'} ({self._path})"
            return
        memory = {name: int(number) for name, number in _LINE.findall(facts.text(MEMINFO) or "")}
        size_kib = _KIB[self.size] if self.size else memory.get("Hugepagesize", 0)
        total_kib = memory.get("MemTotal", 0)
        if self.pages * size_kib > SHARE_MAX * total_kib:
            wanted, there = self.pages * size_kib / 1024**2, total_kib / 1024**2
            yield f"{self.pages} huge pages are {wanted:,.1f} GiB, but this host has {there:,.1f} GiB of memory"
        else:
            yield from differing(self._path, now, str(self.pages), adjusted=True)


FOLDER = "/sys/kernel/mm/transparent_hugepage"


class Thp(Operation):
    """When the kernel backs memory with huge pages by itself: `{enabled: never}`."""

    enabled: Literal["always", "madvise", "never"] | None = Field(None, description="For whose memory.")
    defrag: Literal["always", "defer", "defer+madvise", "madvise", "never"] | None = Field(
        None, description="When it stops a process to find one."
    )

    privileges = "root: writes /sys/kernel/mm"

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self._given:
            raise ValueError("this does nothing: give `enabled`, `defrag` or both")
        return self

    @property
    def _given(self) -> Mapping[str, str]:
        return self.model_dump(exclude_none=True)

    def targets(self) -> Mapping[str, str]:
        return {f"thp {name}": value for name, value in self._given.items()}

    def wanted(self) -> tuple[str, ...]:
        return tuple(f"transparent huge pages: {name} = {value}" for name, value in self._given.items())

    def steps(self, facts: Facts) -> Iterator[Found]:
        """Refused where the kernel does not offer the choice."""
        for name, value in self._given.items():
            path = f"{FOLDER}/{name}"
            now = facts.text(path)
            if now is not None and value in choices(now):
                yield from differing(path, now, value)
            else:
                known = f"it has {', '.join(choices(now))}" if now else "it has no transparent huge pages"
                yield f"this kernel cannot set {path} to {value}: {known}"
