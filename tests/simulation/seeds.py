"""Run many seeds of the simulation, or print the history of one.

    python tests/simulation/seeds.py                     10,000 seeds from 0
    python tests/simulation/seeds.py --count 500 --from 20000
    python tests/simulation/seeds.py --seed 4711         one history, event by event

Exit code 1 when a rule was broken; the output names the seed, its faults, and the command that replays it.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sim_faults import Fault
from sim_history import History

BATCH = 50
MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one seed."""

    seed: int
    ends: tuple[str, ...]
    faults: tuple[str, ...]
    kinds: tuple[str, ...]
    wrongs: tuple[str, ...]
    history: tuple[str, ...]
    true_s: float

    def __str__(self) -> str:
        lines = [f"seed {self.seed}:", *(f"  {fault}" for fault in self.faults), *(f"  WRONG {w}" for w in self.wrongs)]
        return "\n".join([*lines, f"replay: {replay(self.seed)}"])


def replay(seed: int) -> str:
    return f"python tests/simulation/seeds.py --seed {seed}"


def play(seed: int, *, faults: tuple[Fault, ...] | None = None) -> Outcome:
    """Run one seed, with these faults or with those that it draws. The same seed always gives the same outcome."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        history = History(seed, Path(folder), faults).run()
    return Outcome(
        seed=seed,
        ends=tuple(end.status for end in history.ends),
        faults=tuple(str(fault) for fault in history.faults),
        kinds=tuple(f"{'agent' if fault.host else 'coordinator'} {fault.kind}" for fault in history.faults),
        wrongs=tuple(history.world.wrongs),
        history=tuple(line.replace(folder, "…") for line in history.world.history),  # errors name files in it
        true_s=history.loop.now_s,
    )


def _played(seed: int) -> Outcome:
    return dataclasses.replace(play(seed), history=())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="run this seed and print its history")
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if given.seed is not None:
        outcome = play(given.seed)
        print("\n".join(outcome.history))
        print(outcome)
        return 1 if outcome.wrongs else 0
    began_s = time.monotonic()
    bad, kinds, ends, true_s = 0, Counter[str](), Counter[str](), 0.0
    with ProcessPoolExecutor(given.jobs) as pool:
        for outcome in pool.map(_played, range(given.first, given.first + given.count), chunksize=BATCH):
            kinds.update(outcome.kinds)
            ends.update(outcome.ends)
            true_s += outcome.true_s
            if outcome.wrongs:
                bad += 1
                print(outcome, flush=True)
    took_s = time.monotonic() - began_s
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = cpu.ru_utime + cpu.ru_stime
    took = f"{took_s:.0f} s ({cpu_s:.0f} s of CPU, {cpu_s / given.count * 1e3:.0f} ms each)"
    print(f"{given.count} seeds in {took}, {true_s / 3600:.0f} simulated hours, {bad} broke a rule")
    print("ends:", ", ".join(f"{n} {kind}" for kind, n in ends.most_common()))
    print("faults:", ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
