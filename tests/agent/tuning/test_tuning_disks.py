"""`filesystem`, `zero_blocks` and `block_queue` on a loop device with a name in /dev/disk/by-id, like a
real disk; skipped on hosts without loop devices or mkfs.ext4. mkfs.xfs is not proven here: its arguments are those of
mkfs.xfs(8). `partition`: test_every_operation."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tuning_bench import tuning

from proveout.agent.security import policy
from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tuning import transaction
from proveout.agent.tuning.host import Host
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo_journal import UndoJournal
from proveout.dsl.plan.stages import Tuning
from proveout.proto.wire.results import TuningState

PROGRAMS = (
    "/usr/sbin/parted", "/usr/sbin/partprobe", "/usr/sbin/wipefs", "/usr/sbin/blkid", "/usr/sbin/mkfs.ext4", "/usr/bin/dd", "/usr/bin/cmp",
)  # fmt: skip
pytestmark = pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="this host has no mkfs.ext4")


def host_of(disk: str) -> Host:
    """A host whose policy lists the programs with the arguments that are known of them, and the disk."""
    tools = tuple(Tool(path=program, arguments=("*",), known=policy.known_arguments(program)) for program in PROGRAMS)
    return Host(
        policy=Policy(
            source="/etc/proveout/policy.yaml", tools=tools, devices=(disk,), destructive=True, paths=("/sys/block",)
        )
    )


def new(kind: str, disk: str, *, keep: bool = True, **fields: object) -> Tuning:
    return replace(tuning(kind, keep=keep, device=disk, **fields), destructive=True)


def apply(host: Host, journal: UndoJournal, *tunings: Tuning) -> tuple[TuningState, ...]:
    return Transaction(host=host, journal=journal, run="r").apply(tunings)


def outcome(disk: str, journal: UndoJournal, one: Tuning) -> tuple[str, str]:
    """(outcome, lines) of one tuning."""
    (state, *_) = apply(host_of(disk), journal, one)
    return state.outcome, "\n".join(state.lines)


def ran(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, timeout=180, check=False).stdout.strip()


def found(disk: str, key: str) -> str:
    return ran("/usr/sbin/blkid", "--probe", "-s", key, "-o", "value", disk)


def test_a_filesystem_is_made_once_mounted_and_never_lost_unawares(
    disk: str, journal: UndoJournal, tmp_path: Path
) -> None:
    one = new("filesystem", disk, type="ext4", label="ttdb")
    fails = new("zero_blocks", disk, size="1MiB")  # refused: the device has a filesystem by then
    states = apply(host_of(disk), journal, one, fails)
    assert [state.outcome for state in states] == ["refused", "kept"]
    assert states[1].lines == (f"the former data of {disk} cannot be restored: mkfs.ext4 has overwritten it",)
    assert journal.outstanding() == ()
    assert (found(disk, "TYPE"), found(disk, "LABEL")) == ("ext4", "ttdb")
    uuid = found(disk, "UUID")
    assert outcome(disk, journal, one) == ("unchanged", "")
    other = new("filesystem", disk, type="ext4", label="other")
    says = f"{disk} is not empty: blkid finds LABEL=ttdb TYPE=ext4 USAGE=filesystem"
    assert outcome(disk, journal, other) == ("refused", says)
    place = tmp_path / "ttdb"
    place.mkdir()
    given_up = new("filesystem", disk, type="ext4", label="other", replaces=uuid)
    subprocess.run(["mount", os.path.realpath(disk), str(place)], check=True, timeout=60)
    try:
        (place / "data").write_text("precious")
        assert outcome(disk, journal, given_up) == ("refused", f"{disk} is mounted at {place}")
        assert (place / "data").read_text() == "precious"
    finally:
        subprocess.run(["umount", str(place)], check=True, timeout=60)
    wrong = new("filesystem", disk, type="ext4", label="other", replaces="00000000-1111-2222-3333-444444444444")
    refused, lines = outcome(disk, journal, wrong)
    assert (refused, f"blkid finds LABEL=ttdb UUID={uuid}" in lines) == ("refused", True)
    assert outcome(disk, journal, given_up)[0] == "applied"
    assert found(disk, "LABEL") == "other"
    assert outcome(disk, journal, new("zero_blocks", disk, size="1MiB", replaces=found(disk, "UUID")))[0] == "applied"
    assert found(disk, "TYPE") == ""


# ---- block_queue on a real kernel ------------------------------------------------------------------------------------

ATTRIBUTES = ("scheduler", "nr_requests", "rq_affinity", "nomerges", "read_ahead_kb")
OF_THE_SCHEDULER = {"iosched/read_expire": "120", "iosched/async_depth": "700"}


@pytest.fixture
def queue(disk: str) -> Path:
    """The kernel's folder of a queue that is longer than possible without a scheduler; its scheduler is not the default."""
    folder = Path("/sys/block") / Path(os.path.realpath(disk)).name / "queue"
    if "mq-deadline" not in (folder / "scheduler").read_text():
        pytest.skip("this kernel has no other scheduler")
    for name, text in {"scheduler": "mq-deadline", "nr_requests": "1000", **OF_THE_SCHEDULER}.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    "fields",
    [
        {"scheduler": ["none"], "rq_affinity": 2, "nomerges": 1},
        {"scheduler": ["none"], "rq_affinity": 2, "nomerges": 1, "nr_requests": 64},
        {"nr_requests": 64},
        {"scheduler": ["none"], "nr_requests": 100_000},
    ],
    ids=["scheduler", "and length", "length, which the scheduler's depth follows", "a length that is refused"],
)
def test_a_queue_is_set_and_set_back(fields: dict[str, object], queue: Path, disk: str, journal: UndoJournal) -> None:
    """Without a scheduler the kernel refuses a length of 1000, with one it starts at 256: only the right order of reverts
    restores 1000."""

    def as_it_is() -> dict[str, str]:
        names = (*ATTRIBUTES, *OF_THE_SCHEDULER)
        return {name: (queue / name).read_text() for name in names if (queue / name).exists()}

    before, one = as_it_is(), tuning("block_queue", devices=[queue.parent.name], **fields)
    state, *undone = apply(host_of(disk), journal, one)
    if fields.get("nr_requests") == 100_000:
        assert (state.outcome, "nr_requests to '100000': Invalid argument" in state.lines[0]) == ("failed", True)
    else:
        assert state.outcome == "applied", state.lines
        assert as_it_is() != before
        assert {state.outcome for state in transaction.look(host_of(disk), journal)} == {"in_place"}
        undone = list(transaction.revert(host_of(disk), journal))
    assert {state.outcome for state in undone} == {"reverted"}
    assert as_it_is() == before
