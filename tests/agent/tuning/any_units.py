"""Operations on units and mounts: any state in the output of systemctl, any /etc/fstab."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from any_host import GOOD, Case, Found, World, files, some, valid_tuning, words, world
from hypothesis import strategies as st
from tuning_bench import StubUnits, put

from proveout.agent.errors import TaskFault
from proveout.dsl.operations.disks import unit_of
from proveout.dsl.operations.facts import UnitFact

STATES = ["enabled", "enabled", "disabled", "enabled-runtime", "static", "masked", "indirect", "generated", None]
ENABLED = {"enabled": True, "enabled-runtime": True, "disabled": False}


class LikeSystemd(StubUnits):
    """Units with the rules of systemd: a masked unit does not start, `disable` does not change a unit that is enabled
    until the next boot."""

    def act(self, unit: str, verb: str) -> None:
        now = self.units.get(unit)
        if now is None or (now.state == "masked" and verb in ("start", "try-restart", "enable")):
            raise TaskFault("fault", f"systemctl {verb} -- {unit} failed with exit code 1")
        super().act(unit, verb)
        changed = self.units[unit]
        if verb == "disable" and now.state == "enabled-runtime":
            self.units[unit] = replace(changed, enabled=True)
        elif verb in ("enable", "disable"):
            self.units[unit] = replace(changed, state="enabled" if changed.enabled else "disabled")


@st.composite
def service(draw: st.DrawFn) -> Case:
    """Any unit of any kind in any state."""
    name = draw(st.one_of(st.sampled_from(["tuned", "irqbalance.timer"]), words(r"[A-Za-z0-9][A-Za-z0-9:_.@-]{0,8}")))
    asks = draw(some({"state": st.sampled_from(["running", "stopped"]), "enabled": st.booleans()}))
    one = valid_tuning("service", unit=name, **asks)
    state, active = draw(st.sampled_from(STATES)), draw(st.booleans())
    found = (
        {str(dict(one.parameters)["unit"]): UnitFact(active=active, enabled=ENABLED.get(state), state=state)}
        if state
        else {}
    )

    def make(folder: Path) -> World:
        units = LikeSystemd()
        units.units = dict(found)
        return world(folder, units=units, seen=lambda: dict(units.units))

    starts_masked = state == "masked" and asks.get("state") == "running"
    outcomes = frozenset({"failed" if starts_masked else "applied", "unchanged", "refused"})
    return Case(tuning=one, state=found, make=make, outcomes=outcomes)


FSTABS = st.sampled_from([
    b"", b"# by hand\nUUID=1 / ext4 defaults 0 1", b"UUID=1 / ext4 defaults 0 1\r\none\n# LABEL=ttdb /ttdb xfs x 0 0\n",
    b"LABEL=ttdb /ttdb xfs noatime 0 2\n", b"LABEL=old  /ttdb\txfs defaults\nnone swap swap sw 0 0\n",
    b"LABEL=ttdb /ttdb/ xfs defaults 0 0", b"\xff /odd ext4 x\n",
])  # fmt: skip


class Mounting(StubUnits):
    """The unit of a mount point, there while it is mounted or in /etc/fstab; `refuses`: it does not start."""

    def __init__(self, root: Path, at: str, line: str, refuses: bool) -> None:
        super().__init__()
        self._mounts, self._fstab, self._at, self._line, self._refuses = (
            root / "proc/self/mounts",
            root / "etc/fstab",
            at,
            line,
            refuses,
        )

    def fact(self, unit: str) -> UnitFact | None:
        assert unit == unit_of(self._at)
        mounted = f" {self._at} " in self._mounts.read_text()
        listed = self._fstab.exists() and f" {self._at} ".encode() in self._fstab.read_bytes()
        return UnitFact(active=mounted, enabled=None, state="generated") if mounted or listed else None

    def act(self, unit: str, verb: str) -> None:
        """Mount or unmount it; a second time has no effect, and a unit that systemd has not read fails."""
        if self.fact(unit) is None or (verb == "start" and self._refuses):
            raise TaskFault("fault", f"systemctl {verb} -- {unit} failed with exit code 1")
        others = self._mounts.read_text().replace(self._line, "")
        self._mounts.write_text(others + (self._line if verb == "start" else ""))


@st.composite
def mount(draw: st.DrawFn) -> Case:
    """Any mount point, device and options, and any /etc/fstab; mounted before, also from another device, or not."""
    at = draw(st.sampled_from(["/ttdb", "/ttdb", "/u01/app-x", "/.data"]))
    device = draw(st.sampled_from(["LABEL=ttdb", "/dev/disk/by-id/disk", "/dev/pmem0", "/dev/none"]))
    kinds = st.sampled_from(["noatime", "nodev", "dax=always", "defaults"])
    options = draw(st.lists(kinds, min_size=1, max_size=3, unique=True))
    fstab = draw(st.one_of(files(FSTABS), files(FSTABS), files(FSTABS), st.just(Found(kind="absent"))))
    mounted = draw(st.sampled_from(["", "", "", "/dev/pmem0", "/dev/sdz"]))
    refuses = draw(st.sampled_from([False] * 5 + [True]))
    shown = ",".join(["rw", *(option for option in options if option != "defaults")])

    def make(folder: Path) -> World:
        made = world(folder)
        root = made.host.root
        fstab.put(root / "etc/fstab")
        put(root, "/dev/pmem0", "")
        (root / "dev/disk/by-id").mkdir(parents=True)
        (root / "dev/disk/by-id/disk").symlink_to("../../pmem0")
        (root / at[1:]).mkdir(parents=True)
        there = f"{mounted} {at} xfs rw 0 0\n" if mounted else ""
        put(root, "/proc/self/mounts", f"/dev/sda1 / ext4 rw 0 0\n{there}")
        made.host.units = Mounting(root, at, f"/dev/pmem0 {at} xfs {shown} 0 0\n", refuses)
        return made

    outcomes = {*GOOD, *(["needs_restart"] if mounted else []), *(["failed"] if refuses else [])}
    one = valid_tuning("mount", at=at, device=device, type="xfs", options=options)
    return Case(tuning=one, state=(fstab, mounted, refuses), make=make, outcomes=frozenset(outcomes))
