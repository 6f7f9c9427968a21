"""A program for a separate network namespace: sets every number below /proc/sys/net that a plan may set, reverts it, and
prints the differences.

Its argument is the folder of the undo journal. First the parameters of one interface are changed, so that a parameter
that sets those of all interfaces is detected.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError
from tuning_bench import POLICY, tuning

from proveout.agent.tuning import transaction
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.operations.kernel import name_of

NET = Path("/proc/sys/net")
READ_AND_WRITE = 0o600


def numbers() -> dict[Path, int]:
    """Parameter -> value, for all readable and writable ones."""
    found = {}
    for path in sorted(NET.rglob("*")):
        if path.is_file() and path.stat().st_mode & READ_AND_WRITE == READ_AND_WRITE:
            with suppress(OSError, ValueError):
                found[path] = int(path.read_text())
    return found


def another(path: Path, value: int) -> str:
    """Another value: the other one of a switch; for a time, one that is not a multiple of a second."""
    return str(1 - value if value in (0, 1) else value + 500 if path.name.endswith("_ms") else value + 1)


def make_one_unlike_the_others() -> None:
    """Change the parameters of the loopback interface, in a separate namespace."""
    for path, value in numbers().items():
        if path.parent.name == "lo":
            with suppress(OSError):
                path.write_text(another(path, value))


def given_back(host: Host, journal: UndoJournal) -> Iterator[str]:
    """For each parameter "applied", "refused" or "failed", or a description of a permanent, unreported change."""
    before = numbers()
    for path, value in before.copy().items():
        try:
            one = tuning("sysctl", settings={name_of(str(path)): another(path, value)})
        except ValidationError:
            yield "refused"
            continue
        made, *undone = Transaction(host=host, journal=journal, run="r").apply([one])
        undone += transaction.revert(host, journal)
        after = numbers()
        silent = not any(state.lines for state in undone)
        changed = [f"{name_of(str(one))}: {before[one]} -> {after[one]}" for one in before if before[one] != after[one]]
        yield f"{name_of(str(path))} leaves {changed}" if changed and silent else made.outcome
        before = after


def main() -> None:
    make_one_unlike_the_others()
    journal = UndoJournal(Path(sys.argv[1]))
    for line in given_back(Host(policy=POLICY), journal):
        print(line)
    journal.close()


if __name__ == "__main__":
    main()
