"""Operations on attributes of the kernel: any values, and a model of the side effects of Linux.

Modelled by Documentation/admin-guide, the source, and observations of Linux 6.18: choices in brackets; numbers separated
by tabs; of `dirty_bytes` and `dirty_ratio` (and similar pairs) a write to one sets the other to 0, and the first refuses
0; a change of the I/O scheduler resets `nr_requests`, and without a scheduler it is at most the length of the device's
queue; a scheduler's own attributes have their defaults when it is selected again, and `async_depth` follows
`nr_requests`.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from any_host import GOOD, STATES, Case, World, some, valid_tuning, words, world
from hypothesis import assume
from hypothesis import strategies as st
from tuning_bench import put

from proveout.dsl.operations.kernel import COUPLED, path_of

PAIRS = {path_of(one): path_of(other) for pair in COUPLED.items() for one, other in (pair, pair[::-1])}
NO_ZERO = ("dirty_bytes", "dirty_background_bytes")


def refuse() -> None:
    """Refuse a write like the kernel."""
    raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def bracketed(text: str, choice: str) -> str:
    """The choices with the selected one in brackets."""
    choices = text.replace("[", "").replace("]", "").split()
    if choice not in choices:
        refuse()
    return " ".join(f"[{one}]" if one == choice else one for one in choices)


def chosen(now: str, text: str) -> str:
    """An attribute after a write: of choices, the written one is in brackets."""
    return bracketed(now, text) if "[" in now else text


def choices(root: Path, path: str, text: str) -> str:
    """A kernel without side effects."""
    return chosen((root / path[1:]).read_text(), text)


# ---- sysctl ----------------------------------------------------------------------------------------------------------


def kernel_of_parameters(root: Path, path: str, text: str) -> str:
    """Model of coupled parameters, and of tabs."""
    name = path.rpartition("/")[2]
    other = PAIRS.get(path)
    if name in NO_ZERO and text == "0":
        refuse()
    file = root / path.lstrip("/")
    if other is not None and file.read_text().split() != text.split():
        (root / other.lstrip("/")).write_text("0\n")
    return "\t".join(text.split())


PARAMETER = st.one_of(
    st.sampled_from(
        ["vm.swappiness", "kernel.sem", "net.ipv4.tcp_rmem", "net.ipv4.ip_local_reserved_ports", "fs.aio-max-nr"]
    ),
    st.sampled_from(["vm.swappiness", "kernel.sem", "net.ipv4.conf.eth0/100.rp_filter"]),
    words(r"(net|vm|fs)(\.[A-Za-z0-9_/:@-]{1,4}){1,3}", 16),
)
SETTING = st.one_of(st.integers(), words(r"[A-Za-z0-9_.:,/%+-]{1,6}( [A-Za-z0-9_.:,/%+-]{1,4}){0,3}", 20))
NOW = st.one_of(words(r"[0-9]{1,4}([ \t]{1,2}[0-9]{1,3}){0,3}", 20), st.sampled_from(["", "(none)", "1-2,4"]))
DIRTY = st.sampled_from([("vm.dirty_bytes", "vm.dirty_ratio"), ("vm.dirty_background_bytes", "vm.dirty_background_ratio"),
                         ("vm.overcommit_kbytes", "vm.overcommit_ratio")])  # fmt: skip


@st.composite
def sysctl(draw: st.DrawFn) -> Case:
    """Any parameters, also in a file; pairs of which one resets the other."""
    settings = draw(st.dictionaries(PARAMETER, SETTING, max_size=3))
    values = {name: draw(NOW) for name in settings}
    if draw(st.booleans()) or not settings:
        bytes_, ratio = draw(DIRTY)
        number, rules = str(draw(st.integers(min_value=1, max_value=99))), draw(st.booleans())
        values |= {bytes_: number if rules else "0", ratio: "0" if rules else number}
        numbers = st.integers(min_value=1, max_value=99)
        settings |= draw(
            st.one_of(
                st.fixed_dictionaries({bytes_: numbers}),
                st.fixed_dictionaries({ratio: numbers}),
                st.fixed_dictionaries({bytes_: numbers, ratio: st.just(0)}),
                st.fixed_dictionaries({bytes_: st.just(0), ratio: numbers}),
                st.fixed_dictionaries({bytes_: numbers, ratio: numbers}),
                st.fixed_dictionaries({ratio: st.just(0)}),
            )
        )
    path = draw(st.sampled_from([None, "/etc/sysctl.d/97-x.conf"]))
    one = valid_tuning("sysctl", settings=settings, **({"file": path} if path else {}))
    places = [path_of(name) for name in values]
    assume(not any(other.startswith(f"{place}/") for place in places for other in places))
    found = draw(STATES)

    def make(folder: Path) -> World:
        made = world(folder, react=kernel_of_parameters)
        for name, value in values.items():
            put(made.host.root, path_of(name), f"{value}\n")
        if path:
            found.put(made.host.root / path.lstrip("/"))
        return made

    return Case(tuning=one, state=(values, found), make=make)


# ---- block_queue -----------------------------------------------------------------------------------------------------

NEW, OLD = ["none", "mq-deadline", "kyber", "bfq"], ["noop", "deadline", "cfq"]
MERGED_MAX, LEAST = 128, 4
PAGE_KIB = 4
QUEUE = {
    "rotational": st.integers(min_value=0, max_value=1),
    "rq_affinity": st.integers(min_value=0, max_value=2),
    "nomerges": st.integers(min_value=0, max_value=2),
}


OWN: Mapping[str, tuple[str, ...]] = {
    "mq-deadline": ("async_depth", "read_expire"),
    "kyber": ("read_lat_nsec",),
    "bfq": ("slice_idle_us",),
    "cfq": ("quantum",),
}
"""Attributes of a scheduler; those that do not follow the length of the queue are 500 initially."""
USUAL = "500"


def depth_of(root: Path, queue: str) -> int:
    """The length of the device's own queue."""
    return int((root / queue.lstrip("/") / "../device_depth").read_text())


def kernel_of_queues(root: Path, path: str, text: str) -> str:
    """Model of schedulers and lengths of queues."""
    queue, _, name = path.rpartition("/")
    file = root / path.lstrip("/")
    now = file.read_text()
    if name == "scheduler":
        shown = bracketed(now, text)
        if shown.split() != now.split():
            depth = depth_of(root, queue)
            anew = depth if text in ("none", "noop") else 2 * min(depth, MERGED_MAX)
            (file.with_name("nr_requests")).write_text(f"{anew}\n")
            shutil.rmtree(file.with_name("iosched"), ignore_errors=True)
            for own in OWN.get(text, ()):
                put(root, f"{queue}/iosched/{own}", f"{anew if own == 'async_depth' else USUAL}\n")
        return shown
    if name == "nr_requests":
        bare = "[none]" in file.with_name("scheduler").read_text()
        if bare and int(text) > depth_of(root, queue):
            refuse()
        length = max(int(text), LEAST)
        if (depth := file.with_name("iosched") / "async_depth").exists():
            depth.write_text(f"{length}\n")
        return str(length)
    return str(int(text) // PAGE_KIB * PAGE_KIB) if name == "read_ahead_kb" else text


@st.composite
def a_queue(draw: st.DrawFn) -> dict[str, str]:
    """Any initial attributes of a disk."""
    offered, depth = draw(st.sampled_from([NEW, NEW, OLD])), draw(st.sampled_from([32, 64, 128, 1023]))
    chosen = draw(st.sampled_from(offered))
    most = depth if chosen == "none" else 2000
    return {
        "scheduler": bracketed(" ".join(offered), chosen),
        "nr_requests": str(draw(st.integers(min_value=4, max_value=most))),
        "read_ahead_kb": str(4 * draw(st.integers(min_value=0, max_value=500))),
        "../device_depth": str(depth),
        **{f"iosched/{own}": str(draw(st.integers(min_value=1, max_value=1000))) for own in OWN.get(chosen, ())},
        **{name: str(draw(values)) for name, values in QUEUE.items()},
    }


@st.composite
def block_queue(draw: st.DrawFn) -> Case:
    """Any attributes of any disks, on new and old kernels."""
    asks = {
        **QUEUE,
        "scheduler": st.lists(st.sampled_from(NEW + OLD), min_size=1, max_size=3, unique=True),
        "nr_requests": st.one_of(st.integers(min_value=4, max_value=64), st.integers(min_value=4, max_value=100_000)),
        "read_ahead_kb": st.one_of(
            st.integers(min_value=0, max_value=99).map(lambda n: 4 * n), st.integers(min_value=0, max_value=9)
        ),
    }
    devices = draw(st.sampled_from([["sd*"], ["sda"], ["sd[ab]", "sda"], ["/dev/sda"], ["nvme*n1"]]))
    one = valid_tuning("block_queue", devices=devices, **draw(some(asks)))
    disks = draw(st.lists(a_queue(), min_size=1, max_size=3))

    def make(folder: Path) -> World:
        made = world(folder, react=kernel_of_queues)
        for letter, attributes in zip("abc", disks, strict=False):
            (made.host.root / f"sys/block/sd{letter}/queue").mkdir(parents=True)
            for name, value in attributes.items():
                put(made.host.root, f"/sys/block/sd{letter}/queue/{name}", f"{value}\n")
        return made

    return Case(tuning=one, state=disks, make=make, outcomes=GOOD | {"failed"})
