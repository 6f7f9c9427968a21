"""The host's counters from /proc, with the files kept open: one pread and a little parsing per file and sample.

Flow: `Counters.read()` -> `Reading`s of cpu, memory, load average, disk, network and pressure; the metrics are those of
`capture.os`. The parsers are pure functions of the files' text. Source: proc(5), Documentation/admin-guide/iostats.rst.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from proveout.proto.wire.results import Reading

SECTOR_BYTES = 512
FILE_BYTES_MAX = 1 << 20
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BLOCK = Path("/sys/block")
NETWORK_NAMESPACE = Path("/proc/self/ns/net")
VIRTUAL_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")


def parse_cpu(text: str) -> Iterator[Reading]:
    """The `cpu` line of /proc/stat, in seconds; the file may be cut after the per-core lines."""
    lines = text.splitlines()
    user, nice, system, idle, iowait, irq, softirq, steal = (int(word) / TICKS_PER_S for word in lines[0].split()[1:9])
    yield Reading(metric="cpu.cores", value=sum(line.startswith("cpu") for line in lines) - 1)
    yield Reading(metric="cpu.user_s_total", value=user + nice)
    yield Reading(metric="cpu.system_s_total", value=system + irq + softirq)
    yield Reading(metric="cpu.iowait_s_total", value=iowait)
    yield Reading(metric="cpu.idle_s_total", value=idle)
    yield Reading(metric="cpu.steal_s_total", value=steal)
    switches = next((line for line in lines if line.startswith("ctxt ")), "")
    if switches:
        yield Reading(metric="cpu.context_switches_total", value=int(switches.split()[1]))


def parse_memory(text: str) -> Iterator[Reading]:
    """MemTotal and MemAvailable of /proc/meminfo, in bytes."""
    kib = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in text.splitlines()[:8])}
    total, available = kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024
    yield Reading(metric="memory.total_bytes", value=total)
    yield Reading(metric="memory.available_bytes", value=available)
    yield Reading(metric="memory.used_bytes", value=total - available)


def parse_load_average(text: str) -> Iterator[Reading]:
    """The first field of /proc/loadavg: tasks that ran or waited for a CPU or a disk, averaged over the last minute."""
    yield Reading(metric="load_average.1m", value=float(text.split(maxsplit=1)[0]))


def parse_disks(text: str, whole: frozenset[str]) -> Iterator[Reading]:
    """The lines of /proc/diskstats whose device is in `whole`."""
    for line in text.splitlines():
        fields = line.split()
        name = fields[2]
        if name not in whole:
            continue
        yield Reading(metric="disk.reads_total", value=int(fields[3]), label=name)
        yield Reading(metric="disk.read_bytes_total", value=int(fields[5]) * SECTOR_BYTES, label=name)
        yield Reading(metric="disk.writes_total", value=int(fields[7]), label=name)
        yield Reading(metric="disk.write_bytes_total", value=int(fields[9]) * SECTOR_BYTES, label=name)
        yield Reading(metric="disk.busy_s_total", value=int(fields[12]) / 1000, label=name)


def parse_network(text: str) -> Iterator[Reading]:
    """The lines of /proc/net/dev but lo."""
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        name, fields = name.strip(), rest.split()
        if name == "lo":
            continue
        yield Reading(metric="network.received_bytes_total", value=int(fields[0]), label=name)
        yield Reading(metric="network.received_packets_total", value=int(fields[1]), label=name)
        yield Reading(metric="network.sent_bytes_total", value=int(fields[8]), label=name)
        yield Reading(metric="network.sent_packets_total", value=int(fields[9]), label=name)


def network_namespace() -> Iterator[Reading]:
    """The inode of this process' network namespace: processes with the same one reach each other by `lo`."""
    try:
        yield Reading(metric="network.namespace", value=float(NETWORK_NAMESPACE.stat().st_ino))
    except OSError:
        return


def parse_pressure(text: str, resource: str) -> Iterator[Reading]:
    """The `some` line of a /proc/pressure file: its total, in µs."""
    first = text.partition("\n")[0]
    yield Reading(metric=f"pressure.{resource}_us_total", value=int(first.rpartition("total=")[2]))


def whole_disks() -> frozenset[str]:
    """Block devices that are disks of their own: no partitions, no mappings of other devices, no memory."""
    if not BLOCK.is_dir():
        return frozenset()
    return frozenset(entry.name for entry in BLOCK.iterdir() if not entry.name.startswith(VIRTUAL_DISKS))


class Counters:
    """The open files with their parsers; a file that this kernel has not is left out."""

    def __init__(self) -> None:
        disks = whole_disks()
        parsers: list[tuple[str, Callable[[str], Iterable[Reading]]]] = [
            ("/proc/stat", parse_cpu),
            ("/proc/meminfo", parse_memory),
            ("/proc/loadavg", parse_load_average),
            ("/proc/diskstats", lambda text: parse_disks(text, disks)),
            ("/proc/net/dev", parse_network),
            ("/proc/pressure/cpu", lambda text: parse_pressure(text, "cpu")),
            ("/proc/pressure/io", lambda text: parse_pressure(text, "io")),
            ("/proc/pressure/memory", lambda text: parse_pressure(text, "memory")),
        ]
        self._files = [(descriptor, parse) for path, parse in parsers if (descriptor := _open(path)) is not None]
        self._namespace = list(network_namespace())

    def close(self) -> None:
        """Close the files."""
        for descriptor, _ in self._files:
            os.close(descriptor)
        self._files = []

    def read(self) -> list[Reading]:
        """All readings now."""
        found = [
            reading
            for descriptor, parse in self._files
            for reading in parse(os.pread(descriptor, FILE_BYTES_MAX, 0).decode())
        ]
        return found + self._namespace


def _open(path: str) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        os.pread(descriptor, 1, 0)
    except OSError:  # a kernel with PSI compiled in and switched off opens the file, and refuses to read it
        os.close(descriptor)
        return None
    return descriptor
