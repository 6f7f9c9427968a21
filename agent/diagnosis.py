"""Checks of a host: software and settings for `proveout doctor`, and the needs of a run for the task `CheckHost`."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import resource
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Literal, TypeAlias

from proveout.agent import host_facts
from proveout.agent.daemon.tasks import TaskContext
from proveout.agent.engines import pgbouncer as pooler
from proveout.agent.engines import table
from proveout.agent.engines.table import adapter
from proveout.agent.errors import TaskFault
from proveout.agent.load import ceiling_store
from proveout.agent.security import data_dirs
from proveout.agent.tools.program import listed_program
from proveout.agent.tuning.programs import require_reboot
from proveout.core import child_process, directories, errors
from proveout.core.data_classes import record
from proveout.core.errors import ProveoutError
from proveout.core.numbers import number, percent, size
from proveout.dsl import engines
from proveout.dsl.plan.topology import System
from proveout.proto.wire.results import Checked, CheckFinding
from proveout.proto.wire.tasks import CheckedCommand, CheckHost, OfferedRate

# Sources: proc(5), adjtimex(2), Documentation/admin-guide/mm/transhuge and hugetlbpage of Linux.

State: TypeAlias = Literal["ok", "note", "absent", "missing"]
"""`absent`: not installed, perhaps not needed; `missing`: not installed, but needed."""

OPEN_FILES_MIN = 4096
STEAL_MAX = 0.01
LOAD_MAX = 0.25
FREE_BYTES_MIN = 5 << 30
CLOCK_ERROR_US_MAX = 100_000
_NAME = re.compile(r"[\[=<>~!; ]")
_OURS = ("all", "benchmark", "dev", "docs")
_STA_UNSYNC = 0x0040


@record
class Finding:
    """One check: its subject, state, text, and way out ("" for none)."""

    area: Literal["proveout", "equipment", "machine", "plan"]
    name: str
    state: State
    detail: str
    way_out: str = ""


# ---- what is installed -------------------------------------------------------------------------------------------


def program() -> Iterator[Finding]:
    """This release, and whether its hot path is compiled."""
    detail = f"{metadata.version('proveout')}, Python {dict(host_facts.facts())['python']}"
    yield Finding(area="proveout", name="proveout", state="ok", detail=detail)
    try:
        from proveout.agent.engines.mysql import protocol_native as mysql_native  # noqa: F401, PLC0415 - as the next one
        from proveout.agent.engines.postgres import copy_rows_native, protocol_native  # noqa: F401, PLC0415 - can they be imported?
        from proveout.agent.load.loop import arrival_schedule_native, transaction_loop_native  # noqa: F401, PLC0415
    except ImportError:
        detail = "not compiled: the client runs its hot path in Python"
        way_out = "install a wheel for this platform, or build one on a machine with a C compiler"
        yield Finding(area="proveout", name="hot path", state="note", detail=detail, way_out=way_out)
    else:
        yield Finding(area="proveout", name="hot path", state="ok", detail="compiled")


def equipment() -> Iterator[Finding]:
    """The extras with their packages, then servers and programs that plans may need."""
    for extra, packages in installable().items():
        yield _extra(extra, packages)
    for engine in engines.ENGINES.values():
        if engine.server:
            found = tried(f"{engine.server} to start", partial(_server, engine.name, None))
            yield replace(found, area="equipment", state="ok" if found.state == "ok" else "absent")
    for name, path in (("pgbouncer", shutil.which("pgbouncer", path=pooler.PLACES)), ("fio", shutil.which("fio"))):
        text = _first_line(path, "--version") if path else f"not installed: Debian: apt-get install {name}"
        yield Finding(area="equipment", name=name, state="ok" if path else "absent", detail=text)


def tried(name: str, do: Callable[[], object], detail: str = "") -> Finding:
    """A need of the plan: the result of `do`, or `detail` in its place; `missing` with its ProveoutError."""
    try:
        found = do()
        return Finding(area="plan", name=name, state="ok", detail=detail or str(found))
    except ProveoutError as fault:
        return Finding(area="plan", name=name, state="missing", detail=fault.what, way_out=fault.way_out)


def _server(engine: str, version: int | None) -> str:
    """The version of the server that `provision: embedded` starts. TaskFault when it is not on this host."""
    return _first_line(str(table.adapter(engine).server_program(version)), "--version")


def _first_line(*argv: str) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=10, check=False, cwd="/", env=child_process.environment()
        )
    except (OSError, subprocess.SubprocessError) as fault:
        return f"cannot run {argv[0]}: {fault}"
    return next(iter((done.stdout or done.stderr).splitlines()), "no output").replace(argv[0], Path(argv[0]).name)


def installable() -> dict[str, tuple[str, ...]]:
    """The extras of this release with the packages of each."""
    wanted = {extra: required for extra, required in errors.requirements().items() if extra not in _OURS}
    return {extra: tuple(_NAME.split(one)[0] for one in required) for extra, required in wanted.items()}


def _extra(extra: str, packages: tuple[str, ...]) -> Finding:
    versions = {name: _version(name) for name in packages}
    lacking = [name for name, version in versions.items() if not version]
    detail = ", ".join(f"{name} {version or 'not installed'}" for name, version in versions.items())
    way_out = errors.install_command(f"proveout[{extra}]") if lacking else ""
    state: State = "absent" if lacking else "ok"
    return Finding(area="equipment", name=f"extra {extra}", state=state, detail=detail, way_out=way_out)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def drives(engine: str) -> Finding:
    """Whether the driver for an engine can be loaded; `missing` if not."""
    return tried(f"{engine} driver", partial(table.driver, engine), "can be loaded")


def starts(engine: str, version: int | None) -> Finding | None:
    """Whether a server of an engine can be started; None for an engine without a server."""
    name = f"{engine} {version} server" if version else f"{engine} server"
    return tried(name, partial(_server, engine, version)) if engines.of(engine).server else None


# ---- machine settings --------------------------------------------------------------------------------------------


def _setting(name: str, detail: str, way_out: str = "", *, noted: bool) -> Finding:
    """A setting of this machine; one that is not `noted` is fine, and needs no way out."""
    state: State = "note" if noted else "ok"
    return Finding(area="machine", name=name, state=state, detail=detail, way_out=way_out if noted else "")


def machine(root: Path = Path("/")) -> Iterator[Finding]:
    """Settings that affect results: cores, memory, other load, clock, limits, pages, governor."""
    facts = dict(host_facts.facts())
    gib = int(str(facts.get("memory_bytes", 0))) / 2**30
    kind = str(facts.get("virtualisation", "")) or "no hypervisor seen"
    cores = host_facts.cores()
    detail = f"{cores} cores, {gib:.1f} GiB, {kind}"
    yield _setting("machine", detail, "a database and its client on one core compete for it", noted=cores < 2)
    yield from _stolen(_read(root / "proc/stat"))
    if words := _read(root / "proc/loadavg").split():
        detail = f"{words[0]} processes ran or waited in the last minute, on {cores} cores"
        way_out = "other programs use the machine; iterations may be flagged or void"
        yield _setting("load", detail, way_out, noted=float(words[0]) > LOAD_MAX * cores)
    yield clock()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = soft != resource.RLIM_INFINITY and soft < OPEN_FILES_MIN
    way_out = f"ulimit -n {OPEN_FILES_MIN * 16}, or LimitNOFILE= of the agent's unit"
    yield _setting("open files", f"{_limit(soft)} (may be raised to {_limit(hard)})", way_out, noted=few)
    yield from _pages(root)
    if name := _read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip():
        way_out = "cpupower frequency-set -g performance: idle cores respond later with other governors"
        yield _setting("governor", name, way_out, noted=name != "performance")


def _stolen(stat: str) -> Iterator[Finding]:
    """CPU time that the hypervisor gave to other guests since boot."""
    numbers = [int(word) for word in stat.partition("\n")[0].split()[1:]]
    if len(numbers) < 8 or not sum(numbers[:8]):
        return
    share = numbers[7] / sum(numbers[:8])
    way_out = "other guests use CPU time of this one: measure on a dedicated machine"
    yield _setting("steal", f"{share:.2%} of CPU time since boot", way_out, noted=share > STEAL_MAX)


_TIMEX = struct.Struct("@Illlli")
"""The first fields of `struct timex` of Linux: modes, offset, freq, maxerror, esterror, status."""


def clock() -> Finding:
    """Whether the clock is synchronized, and its maximum error, as the kernel reports them."""
    timex = ctypes.create_string_buffer(512)  # the kernel may write 208 bytes
    try:
        known = ctypes.CDLL(None, use_errno=True).adjtimex(timex) >= 0
    except (OSError, AttributeError):
        known = False
    if not known:
        return _setting("clock", "the kernel does not report whether it is synchronized", noted=True)
    *_, maxerror_us, esterror_us, status = _TIMEX.unpack_from(timex)
    return clock_finding(status, maxerror_us, esterror_us)


def clock_finding(status: int, maxerror_us: int, esterror_us: int) -> Finding:
    """The finding for the status, and the maximum and estimated error, of adjtimex(2)."""
    detail = f"at most {maxerror_us / 1e3:,.1f} ms off, by estimate {esterror_us / 1e3:,.1f} ms"
    if status & _STA_UNSYNC:
        way_out = (
            "run chrony or systemd-timesyncd; proveout measures offsets between agents anyway, but "
            "jumps void iterations"
        )
        return _setting("clock", "not synchronized", way_out, noted=True)
    far = maxerror_us > CLOCK_ERROR_US_MAX
    way_out = "see `chronyc tracking`: the source is far away, or has not answered for a long time"
    return _setting("clock", f"synchronized, {'but ' if far else ''}{detail}", way_out, noted=far)


def open_files() -> int:
    """Soft limit of open files and sockets of a process."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _limit(value: int) -> str:
    return "unlimited" if value == resource.RLIM_INFINITY else f"{value:,}"


def _pages(root: Path) -> Iterator[Finding]:
    memory = dict(re.findall(r"^(HugePages_\w+|Hugepagesize): +(\S+)", _read(root / "proc/meminfo"), re.MULTILINE))
    if "HugePages_Total" in memory:
        detail = (
            f"{memory['HugePages_Total']} of {memory.get('Hugepagesize', '?')} KiB, "
            f"{memory.get('HugePages_Free', '?')} free"
        )
        yield _setting("huge pages", detail, noted=False)
    chosen = re.search(r"\[(\w+)\]", _read(root / "sys/kernel/mm/transparent_hugepage/enabled"))
    if chosen:
        way_out = "databases ask for madvise or never: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
        yield _setting("transparent huge pages", chosen[1], way_out, noted=chosen[1] == "always")


def runs_folder(folder: Path) -> Finding:
    """Whether run directories can be created in a folder, and its free space."""
    at = folder
    while not at.exists() and at != at.parent:
        at = at.parent
    if not at.is_dir() or not os.access(at, os.W_OK | os.X_OK):
        found = _setting("runs", f"cannot write {folder}", "name another with --runs-dir", noted=True)
        return replace(found, state="missing")
    free = shutil.disk_usage(at).free
    way_out = "embedded servers keep their data there too; name another with --runs-dir"
    return _setting("runs", f"{free / 2**30:,.1f} GiB free for {folder}", way_out, noted=free < FREE_BYTES_MIN)


def measured() -> Iterator[Finding]:
    """Ceilings of the load generator by driver, if `proveout ceiling` has measured them."""
    for engine in engines.WITH_DRIVER:
        if detail := ceiling_store.known(engine).text(lambda per_s: f"{per_s:,.0f}"):
            yield _setting(f"ceiling {engine}", detail, noted=False)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


CEILING_FRACTION_MAX = 0.9
"""The part of a ceiling from which on a run has the finding `client-ceiling`."""


async def check_host(context: TaskContext, spec: CheckHost) -> Checked:
    """Check this host. Nothing is written: folders that are missing are not made."""
    began = time.monotonic()
    found = await asyncio.to_thread(lambda: tuple(_findings(context, spec)))
    return Checked(findings=found, seconds=time.monotonic() - began)


def _findings(context: TaskContext, spec: CheckHost) -> Iterator[CheckFinding]:
    for system in spec.systems:
        yield from _of_system(context, system)
    for tool in spec.tools:
        if shutil.which(tool) is None:
            way_out = f"apt install {tool}, or dnf install {tool}"
            yield CheckFinding(code="missing", subject="", message=f"{tool} is not installed", way_out=way_out)
    for command in spec.commands:
        yield from _of_command(context, command)
    if spec.reboots:
        try:
            require_reboot(context)
        except TaskFault as fault:
            yield _lacks("", fault)
    if spec.systems or spec.bytes_min:
        yield from _of_space(context, spec)
    for rate in spec.rates:
        yield from rate_findings(rate)


def rate_findings(rate: OfferedRate) -> Iterator[CheckFinding]:
    """Whether the load generator of this host can offer a rate, where its ceiling was measured."""
    known = ceiling_store.known(rate.engine)
    most = known.shared_per_s if rate.beside else known.apart_per_s
    if most is None or rate.per_s <= CEILING_FRACTION_MAX * most:
        return
    beside = " beside the server" if rate.beside else ""
    yield CheckFinding(
        code="rate",
        subject=rate.subject,
        message=f"the load offers {number(rate.per_s)}/s from this host, {percent(rate.per_s / most)} of the"
        f" {number(most)}/s that its load generator can do{beside} with the {rate.engine} driver",
        way_out="use more client hosts, or a lower rate; `proveout ceiling` measures the host again",
        warns=True,
    )


def _of_system(context: TaskContext, system: System) -> Iterator[CheckFinding]:
    """Whether the agent may start a system, and has its program."""
    found = adapter(system.engine)
    try:
        context.policy.allows_provision(system.engine).require()
        if system.provision == "pgbouncer":
            pooler.find_program()
        elif found.stated.server_program:
            found.server_program(system.version)
    except TaskFault as fault:
        yield _lacks(f"systems.{system.name}", fault)


def _of_command(context: TaskContext, command: CheckedCommand) -> Iterator[CheckFinding]:
    """Whether the policy lists a program of the plan, and the program is there."""
    try:
        (path, *_), _ = listed_program(context.policy, command.argv, in_forms=True)
        if not os.access(path, os.X_OK):
            raise TaskFault("missing", f"{path} is not a program of this host", way_out="install it")
    except TaskFault as fault:
        yield _lacks(command.subject, fault)


def _lacks(subject: str, fault: TaskFault) -> CheckFinding:
    """The finding of a program that is not there, or that the policy forbids."""
    code = "missing" if fault.code == "missing" else "rights"
    return CheckFinding(code=code, subject=subject, message=fault.what, way_out=fault.way_out)


def _of_space(context: TaskContext, spec: CheckHost) -> Iterator[CheckFinding]:
    root = data_dirs.data_root(context.policy, context.work_dir, spec.data_root) if spec.data_root else context.work_dir
    place = Path(root)
    while not place.is_dir() and place != place.parent:
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        yield CheckFinding(code="space", subject="", message=f"the agent cannot write into {place}")
    elif directories.is_used_up(place, spec.bytes_min):
        message = f"the run needs about {size(spec.bytes_min)} in {root}: {directories.describe(place)}"
        yield CheckFinding(code="space", subject="", message=message, way_out="free disk space there")
