"""The long tests of reliability, and everything that is marked `soak` or `thorough`, part by part: `make soak`, or
`python tests/soak/soak.py PART … [--count N]`.

Each part is a process of its own that takes at most `PART_S`, prints one line per failure, and has one line with its
figure at the end; the exit code is 1 when a part failed. The figures are in docs/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parents[1] / "fabric"))
sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))
sys.path.insert(0, str(Path(__file__).parents[1]))

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC logs each broken connection
os.environ.setdefault("PROVEOUT_PATIENCE", "240")

import agent_kills
import clocks
import crowds
import fault_kills
import full_disks
import kill_points
import leaks
import random_kills
import restarts
import screens
import stops
from kill_points import Point

TESTS = Path(__file__).parents[1]
PART_S = 20 * 60.0
Figure = tuple[str, list[str]]
Part = Callable[[int], Figure]


def _points(who: str, count: int, tuned: bool, fault: bool) -> Iterable[int]:
    """Return `count` boundaries, spread over all boundaries of a run."""
    with tempfile.TemporaryDirectory() as folder:
        all_of_them = int(kill_points.die(Point(who, 0, tuned, fault), Path(folder)).boundary.split()[0])
    step = max(1.0, all_of_them / count)
    return sorted({round(1 + number * step) for number in range(count) if 1 + number * step <= all_of_them})


def _die(who: str, count: int, tuned: bool = False, fault: bool = False) -> Figure:
    failures, longest_s, boundaries, points, late = [], 0.0, set(), 0, 0
    for at in _points(who, count, tuned, fault):
        with tempfile.TemporaryDirectory() as folder:
            death = kill_points.die(Point(who, at, tuned, fault), Path(folder))
        if not death.boundary and death.codes == (0,):
            continue  # the number of boundaries varies with the samples: this run ended before number `at`
        points += 1
        late += death.left_tuned
        _progress(f"{who}{', tuned' if tuned else ''}", points, count)
        longest_s = max(longest_s, death.orphans_s)
        boundaries.add(death.boundary.partition(" ")[2])
        failures += [f"{death.boundary}: {wrong}" for wrong in death.wrongs]
    named = ", ".join(sorted(boundaries))
    reverted = f"; the host was restored after each, {late} times by the next agent" if tuned else ""
    return f"killed at {points} points ({named}); processes were left for {longest_s:.1f} s at most{reverted}", failures


def _seeds(first: int, count: int) -> Figure:
    """Run simulated histories (promise 13)."""
    argv = [sys.executable, str(TESTS / "simulation" / "seeds.py"), "--count", str(count), "--from", str(first)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    summary = [line for line in ended.stdout.splitlines() if line.startswith(f"{count} seeds in ")]
    return "".join(summary), [] if ended.returncode == 0 else [ended.stdout + ended.stderr]


def links(count: int) -> Figure:
    """Disconnect a network link during a load (promises 2, 3)."""
    import links as wire  # needs the lab's modules, and root

    pulls = []
    for number in range(count):
        pulls.append(wire.pull(measure_s=20.0))
        _progress("links", number + 1, count)
    failures = [f"{pulled}" for pulled in pulls if pulled.lost_s > 12.0 or pulled.load_s > 12.0 or pulled.left_s > 20.0]
    failures += [f"{pulled}" for pulled in pulls if pulled.code != 0 or not pulled.valid or not pulled.void]
    lost_s, load_s = max(pulled.lost_s for pulled in pulls), max(pulled.load_s for pulled in pulls)
    return (
        f"{count} links disconnected: lost within {lost_s:.1f} s, the load ended within {load_s:.1f} s, run again",
        failures,
    )


def jumps(count: int) -> Figure:
    """Let the wall clock jump during a load and during a lease (promise 3)."""
    if not clocks.library():
        return "", ["libfaketime is not installed (Debian: apt-get install faketime)"]
    with tempfile.TemporaryDirectory() as folder:
        made, failures = clocks.unnoticed(Path(folder), lease_s=10.0)
    latest_s = 0.0
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder:
            jump_s = clocks.HOUR_S if number % 2 else -clocks.HOUR_S
            load_s, _, wrongs = clocks.abandoned(Path(folder), lease_s=10.0, jump_s=jump_s, after_s=5.0)
        failures += wrongs
        latest_s = max(latest_s, load_s)
        _progress("clocks", number + 1, count)
    failures += [f"the load went on for {latest_s:.1f} s"] if latest_s > 12.0 else []
    figure = f"{made} jumps in a run, no loss; {count} in a lease, the load ended within {latest_s:.1f} s of the kill"
    return figure, failures


def pauses(count: int) -> Figure:
    """Stop the worker, the agent and the database for a while (promise 10)."""
    failures = []
    for number in range(count):
        for who in stops.FINDINGS:
            for pause_s in (stops.TOLERATED_S, stops.VOIDING_S):
                with tempfile.TemporaryDirectory() as folder:
                    stopped = stops.stop(who, pause_s, Path(folder))
                failures += [f"{who}, {pause_s:g} s: {wrong}" for wrong in stopped.wrongs]
                print(f"stops: {who}, {pause_s:g} s: {stopped.evidence}", flush=True)
        _progress("stops", number + 1, count)
    return (
        f"{3 * count} pauses of 5 s tolerated and reported, {3 * count} of 15 s void and repeated, or an outage of the database",
        failures,
    )


def restarted(count: int) -> Figure:
    """Restart an external database, or let it refuse connections, at any moment of a run."""
    failures = []
    for number, found in enumerate(restarts.struck(count), 1):
        if found.wrong:
            failures.append(f"{found.kind} at {found.at_s:.1f} s: exit {found.code}: {found.output[-1000:]}")
        _progress("restarts", number, count)
    return f"{count} restarts of an external database, none ended a run: 0, or 3 where an iteration met it", failures


def _pytest(folder: Path, marked: str, report: Path) -> list[ElementTree.Element]:
    """Run the tests of a folder with these markers, all of their seeds, points and examples; return those that ran."""
    argv = [sys.executable, "-m", "pytest", "-q", "-m", marked, f"--junitxml={report}", str(folder)]
    environment = {**os.environ, "PROVEOUT_THOROUGH": "1"}
    subprocess.run(argv, cwd=TESTS.parent, env=environment, check=False, stdout=sys.stderr)
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    return [case for case in suite.iter("testcase") if case.find("skipped") is None]


def _failed(cases: Iterable[ElementTree.Element]) -> list[str]:
    return [
        f"{case.get('classname')}::{case.get('name')}"
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    ]


def _marked(folder: Path, _count: int) -> Figure:
    """Run the tests of a folder that `make test` leaves out, or of which it runs a part."""
    with tempfile.TemporaryDirectory() as place:
        cases = _pytest(folder, "soak or thorough", Path(place) / "report.xml")
    return f"{len(cases)} tests", _failed(cases)


def escapes(count: int) -> Figure:
    """Run the tests marked `escape`: attempts of plans, tasks and servers to access what a host's owner has not
    permitted."""

    def attempts_of(case: ElementTree.Element) -> int:
        told = case.find("properties/property[@name='escapes']")
        return 1 if told is None else int(told.get("value", "1"))

    with tempfile.TemporaryDirectory() as folder:
        tried = _pytest(TESTS, "escape", Path(folder) / "report.xml")
    attempts, reached = sum(map(attempts_of, tried)), _failed(tried)
    failures = reached + ([f"only {attempts} escapes were tried"] if attempts < count else [])
    return f"{attempts} escapes tried in {len(tried)} tests, {len(reached)} reached anything", failures


def _progress(part: str, done: int, count: int) -> None:
    print(f"{part}: {done} of {count}", file=sys.stderr, flush=True)


def _in_turn(name: str, parts: int, part: Callable[[int, int], Figure], count: int) -> dict[str, tuple[Part, int]]:
    """Return parts `name-1`, `name-2`, …: each with the next `count` seeds."""
    return {f"{name}-{n + 1}": ((lambda count, n=n: part(n * count, count)), count) for n in range(parts)}  # type: ignore[misc]


def _folders() -> Iterable[Path]:
    """The folders of tests: those of the source tree's packages, and of the parts of the largest of them."""
    for folder in sorted(TESTS.iterdir()):
        if any(folder.glob("**/test_*.py")):
            yield from (
                (each for each in sorted(folder.iterdir()) if any(each.glob("**/test_*.py")))
                if (folder.name == "agent")
                else (folder,)
            )


PARTS: dict[str, tuple[Part, int]] = {
    "links": (links, 3),
    "clocks": (jumps, 4),
    "stops": (pauses, 1),
    "restarts": (restarted, 20),
    **_in_turn("seeds", 2, _seeds, 5_000),
    "agent": (lambda count: _die("agents", count), 48),
    "coordinator": (lambda count: _die("coordinator", count), 1000),
    "tuned-agent": (lambda count: _die("agents", count, tuned=True), 48),
    "faulty-agent": (lambda count: _die("agents", count, tuned=True, fault=True), 48),
    "tuned-coordinator": (lambda count: _die("coordinator", count, tuned=True), 1000),
    "kills": (lambda count: asyncio.run(agent_kills.kills(count)), 200),
    "screens": (lambda count: screens.killed(count, lambda done: _progress("screens", done, count)), 100),
    "leaks": (lambda count: leaks.ladders(count, lambda done: _progress("leaks", done, 28 * count)), 3),
    "lossy": (lambda count: asyncio.run(crowds.lossy(count)), 20_000),
    "idle": (crowds.idle, 10_000),
    "handshakes": (crowds.handshakes, 4_000),
    "disks": (full_disks.disks, 16),
    **_in_turn(
        "fault-kills",
        3,
        lambda first, count: fault_kills.fault_kills(
            count, lambda done: _progress("fault-kills", done, count), seed=first
        ),
        70,
    ),
    **_in_turn(
        "random-kills",
        7,
        lambda first, count: random_kills.kills(
            count, lambda done: _progress("random-kills", done, count), first=3 * first
        ),
        45,
    ),
    "escapes": (escapes, 300),
    **{
        f"marked-{'-'.join(folder.relative_to(TESTS).parts)}": (
            (lambda count, folder=folder: _marked(folder, count)),
            1,
        )  # type: ignore[misc]
        for folder in _folders()
    },
}
"""Name -> (part, its count): each within `PART_S` on two cores."""
ALONE = ("links", "clocks", "stops", "restarts", "seeds", "fault-kills", "random-kills", "marked")
"""Parts that measure times, or that use all cores by themselves."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", help=f"of {', '.join(PARTS)}; all of them when none is named")
    parser.add_argument("--count", type=int, help="instead of the part's default")
    parser.add_argument("--jobs", type=int, default=1, help="parts at a time, after those that run alone (1)")
    given = parser.parse_args()
    if wrong := [name for name in given.part if name not in PARTS]:
        parser.error(f"there is no part {', '.join(wrong)}; there are {', '.join(PARTS)}")
    names: list[str] = given.part or list(PARTS)
    rows = [_one(name, given.count) for name in names] if len(names) == 1 else _each_apart(names, given)
    print("\n".join(["", "| part | figure | failures | took |", "|---|---|---|---|", *rows]), flush=True)
    return 1 if any(row.split(" | ")[-2] != "0" for row in rows) else 0


def _one(name: str, counted: int | None) -> str:
    """Run a part and return its row of the table."""
    part, count = PARTS[name]
    began_s = time.monotonic()
    try:
        figure, failures = part(counted or count)
    except (AssertionError, OSError, subprocess.SubprocessError, TimeoutError) as error:
        figure, failures = "broken off", [f"{type(error).__name__}: {error}"]
    for failure in failures:
        print(f"{name}: FAILED {failure}", flush=True)
    return f"| {name} | {figure} | {len(failures)} | {time.monotonic() - began_s:.0f} s |"


def _each_apart(names: Sequence[str], given: argparse.Namespace) -> list[str]:
    """Run each part in a process of its own: first those of `ALONE`, then `jobs` of the others at a time."""
    alone = [name for name in names if name.startswith(ALONE)]
    rows = {name: _apart(name, given.count) for name in alone}
    with ThreadPoolExecutor(given.jobs) as lanes:
        others = [name for name in names if name not in alone]
        rows |= dict(zip(others, lanes.map(lambda name: _apart(name, given.count), others), strict=True))
    return [rows[name] for name in names]


def _apart(name: str, count: int | None) -> str:
    """Run a part and return its row; after `PART_S` it is interrupted, so that it ends its runs, and then killed."""
    argv = [sys.executable, __file__, name, *(["--count", str(count)] if count else [])]
    row = f"| {name} | broken off | 1 | |"
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        ends = [
            threading.Timer(PART_S, process.send_signal, [signal.SIGINT]),
            threading.Timer(PART_S + 60, process.kill),
        ]
        for end in ends:
            end.start()
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(f"| {name} |"):
                row = line.rstrip()
            elif line.strip() and not line.startswith("|"):
                print(line, end="", flush=True)
        for end in ends:
            end.cancel()
    print(row, flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
