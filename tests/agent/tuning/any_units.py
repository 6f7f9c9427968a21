"""Operations on units and mounts, and programs of the plan: any state in the output of systemctl, any /etc/fstab."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from any_files import Found, files
from any_host import GOOD, Case, World, some, valid_tuning, words, world
from hypothesis import strategies as st
from tuning_bench import StubUnits, put

from proveout.agent.errors import TaskFault
from proveout.agent.tuning.programs import Processes
from proveout.dsl.operations.disks import unit_of
from proveout.dsl.operations.facts import Output, UnitFact

STATES = ["enabled", "enabled", "disabled", "enabled-runtime", "static", "masked", "indirect", "generated"]
ENABLED = {"enabled": True, "enabled-runtime": True, "disabled": False}


class LikeSystemd(StubUnits):
    """Units with the rules of systemd: a masked unit does not start, `disable` does not change a unit that is enabled
    until the next boot."""

    def act(self, unit: str, verb: str) -> None:
        """Execute one action."""
        now = self.units.get(unit)
        if now is None or (now.state == "masked" and verb in ("start", "restart", "enable")):
            raise TaskFault("fault", f"systemctl {verb} -- {unit} failed with exit code 1")
        super().act(unit, verb)
        changed = self.units[unit]
        if verb == "disable" and now.state == "enabled-runtime":
            self.units[unit] = replace(changed, enabled=True, state="enabled-runtime")
        elif verb in ("enable", "disable"):
            self.units[unit] = replace(changed, state="enabled" if changed.enabled else "disabled")


@st.composite
def service(draw: st.DrawFn) -> Case:
    """Any unit of any kind in any state."""
    name = draw(st.one_of(st.sampled_from(["tuned", "irqbalance.timer"]), words(r"[A-Za-z0-9][A-Za-z0-9:_.@-]{0,8}")))
    one = valid_tuning(
        "service", unit=name, **draw(some({"state": st.sampled_from(["running", "stopped"]), "enabled": st.booleans()}))
    )
    unit = dict(one.parameters)["unit"]
    state = draw(st.sampled_from([*STATES, None]))
    found = UnitFact(active=draw(st.booleans()), enabled=ENABLED.get(state), state=state) if state else None

    def make(folder: Path) -> World:
        units = LikeSystemd()
        if found is not None:
            units.units[str(unit)] = found
        return world(folder, units=units, seen=lambda: dict(units.units))

    starts_masked = state == "masked" and dict(one.parameters).get("state") == "running"
    return Case(
        tuning=one,
        state=found,
        make=make,
        outcomes=frozenset({"failed" if starts_masked else "applied", "unchanged", "refused"}),
    )


# ---- mount -----------------------------------------------------------------------------------------------------------

FSTABS = st.sampled_from([
    b"", b"# by hand\nUUID=1 / ext4 defaults 0 1", b"UUID=1 / ext4 defaults 0 1\r\none\n# LABEL=ttdb /ttdb xfs x 0 0\n",
    b"LABEL=ttdb /ttdb xfs noatime 0 2\n", b"LABEL=old  /ttdb\txfs defaults\nnone swap swap sw 0 0\n",
    b"LABEL=ttdb /ttdb/ xfs defaults 0 0", b"\xff /odd ext4 x\n",
])  # fmt: skip


class Mounting(StubUnits):
    """Mount units whose mounts are in /proc/self/mounts."""

    def __init__(self, root: Path, at: str, line: str, refuses: bool) -> None:
        super().__init__()
        self._file, self._line, self._refuses = root / "proc/self/mounts", line, refuses
        self._unit, self._at = unit_of(at), at

    def fact(self, unit: str) -> UnitFact | None:
        """A unit exists for a mounted device and for a line in /etc/fstab."""
        assert unit == self._unit
        mounted = f" {self._at} " in self._file.read_text()
        fstab = self._file.parents[2] / "etc/fstab"
        if not mounted and not (fstab.exists() and f" {self._at} ".encode() in fstab.read_bytes()):
            return None
        return UnitFact(active=mounted, enabled=None, state="generated")

    def act(self, unit: str, verb: str) -> None:
        """Mount or unmount it; a second time has no effect, and a unit that systemd has not read fails."""
        assert unit == self._unit
        if self.fact(unit) is None or (verb == "start" and self._refuses):
            raise TaskFault("fault", f"systemctl start -- {unit} failed with exit code 1")
        others = "".join(line for line in self._file.read_text().splitlines(keepends=True) if line != self._line)
        self._file.write_text(others + (self._line if verb == "start" else ""))


@st.composite
def mount(draw: st.DrawFn) -> Case:
    """Any mount point, device and options, and any /etc/fstab; mounted before, also from another device, or not."""
    at = draw(st.sampled_from(["/ttdb", "/ttdb", "/u01/app-x", "/.data"]))
    device = draw(st.sampled_from(["LABEL=ttdb", "/dev/disk/by-id/disk", "/dev/pmem0", "/dev/none"]))
    options = draw(
        st.lists(st.sampled_from(["noatime", "nodev", "dax=always", "defaults"]), min_size=1, max_size=3, unique=True)
    )
    one = valid_tuning("mount", at=at, device=device, type="xfs", options=options)
    fstab: Found = draw(st.one_of(files(FSTABS), files(FSTABS), files(FSTABS), st.just(Found(kind="absent"))))
    mounted = draw(st.sampled_from(["", "", "", "/dev/pmem0"]))
    refuses = draw(st.sampled_from([False] * 5 + [True]))
    shown = ",".join(["rw", *(option for option in options if option != "defaults")])

    def make(folder: Path) -> World:
        made = world(folder)
        root = made.host.root
        fstab.put(root / "etc/fstab")
        put(root, "/dev/pmem0", "")
        (root / "dev/disk/by-id").mkdir(parents=True)
        (root / "dev/disk/by-id/disk").symlink_to("../../pmem0")
        (root / at.lstrip("/")).mkdir(parents=True)
        there = f"{mounted} {at} xfs rw 0 0\n" if mounted else ""
        put(root, "/proc/self/mounts", f"/dev/sda1 / ext4 rw 0 0\n{there}")
        made.host.units = Mounting(root, at, f"/dev/pmem0 {at} xfs {shown} 0 0\n", refuses)
        return made

    outcomes = {*GOOD, *(["needs_restart"] if mounted else []), *(["failed"] if refuses else [])}
    return Case(tuning=one, state=(fstab, mounted, refuses), make=make, outcomes=frozenset(outcomes))


# ---- command -----------------------------------------------------------------------------------------------------------


class Volumes(Processes):
    """A program that makes and removes volumes of an array, and lists them; `stuck`: it makes none."""

    def __init__(self, there: set[str], stuck: bool) -> None:
        self.there, self.stuck = set(there), stuck

    def run(self, argv: Sequence[str], within_s: float = 60.0) -> Output:
        verb, name = argv[1], argv[-1]
        if verb == "show":
            return Output(
                code=0 if name in self.there else 1, text=f"volume {name}\n" if name in self.there else "none\n"
            )
        if verb == "create" and not self.stuck:
            self.there.add(name)
        elif verb == "remove":
            self.there.discard(name)
        return Output(code=0, text="")


@st.composite
def command(draw: st.DrawFn) -> Case:
    """A volume that is there or not; with or without programs that make and remove it."""
    program, name = "/opt/lab/volume", draw(words(r"[a-z]{1,6}"))
    applies = draw(st.sampled_from([True, True, False]))
    steps = {"apply": [[program, "create", name]], "revert": [[program, "remove", name]]} if applies else {}
    verify = draw(st.sampled_from([{}, {"prints": f"volume {name}"}, {"prints": "another text"}]))
    one = valid_tuning("command", verify={"run": [program, "show", name], **verify}, **steps)
    asks_for_another = verify.get("prints") == "another text"
    there = draw(st.sampled_from([set[str](), set[str](), set[str]() if asks_for_another else {name}]))
    stuck = draw(st.sampled_from([False] * 4 + [True]))

    def make(folder: Path) -> World:
        tools = Volumes(there, stuck)
        return world(folder, tools=tools, seen=lambda: set(tools.there))

    fails = stuck or asks_for_another
    outcomes = {"applied", "unchanged", *(["failed"] if fails else []), *([] if applies else ["refused"])}
    return Case(tuning=one, state=(there, stuck), make=make, outcomes=frozenset(outcomes))
