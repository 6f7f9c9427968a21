"""Any file, any value: applied twice nothing changes, reverted everything is as it was, to the byte."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tuning_bench import StubUnits, host_in, picture, put, tuning

from proveout.agent.tuning import undoing
from proveout.agent.tuning.records import change_of, change_text, original_of, original_text
from proveout.agent.tuning.transaction import Transaction
from proveout.agent.tuning.undo import UndoJournal
from proveout.dsl.plan import Tuning
from proveout.dsl.tuning.facts import UnitFact

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=200)
MODES = st.sampled_from([0o600, 0o640, 0o644, 0o664, 0o444])
OWNERS = st.sampled_from(["root", "daemon", "nobody"])
NUMBERS = st.integers(min_value=0, max_value=200)
FEW = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def tunings(draw: st.DrawFn) -> list[Tuning]:
    """Some operations with any arguments, in any order, each on what is its own."""
    made = [
        tuning("file", "old", path="/etc/app/old", content=draw(TEXTS), mode=draw(MODES), owner=draw(OWNERS)),
        tuning("file", "new", path="/etc/app/new", content=draw(TEXTS), mode=draw(MODES)),
        tuning("sysctl", settings={"vm.swappiness": str(draw(NUMBERS))}, file="/etc/sysctl.d/9-x.conf"),
        tuning("thp", enabled=draw(st.sampled_from(["always", "madvise", "never"]))),
        tuning("limits", file="/etc/security/limits.d/9.conf", users={"oracle": {"nofile": draw(NUMBERS)}}),
        tuning(
            "service", unit="tuned", state=draw(st.sampled_from(["running", "stopped"])), enabled=draw(st.booleans())
        ),
    ]
    return draw(st.permutations(made))


@FEW
@given(
    content=st.binary(max_size=300),
    mode=MODES,
    xattr=st.binary(max_size=20),
    swappiness=NUMBERS,
    wanted=tunings(),
    active=st.booleans(),
)
def test_twice_changes_nothing_and_reverted_is_as_before(
    content: bytes, mode: int, xattr: bytes, swappiness: int, wanted: list[Tuning], active: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        old = put(root, "/etc/app/old", "")
        old.write_bytes(content)
        old.chmod(mode)
        os.setxattr(old, "user.x", xattr)
        put(root, "/proc/sys/vm/swappiness", f"{swappiness}\n")
        put(root, "/etc/security/limits.d/other.conf", "")
        (root / "etc/sysctl.d").mkdir()
        thp = put(root, "/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
        units = StubUnits(tuned=UnitFact(active=active, enabled=not active))
        before, was = picture(root), dict(units.units)
        host, journal = host_in(root, units=units), UndoJournal(Path(folder) / "undo")
        choosing = _Choosing(thp)
        transaction = Transaction(host=host, journal=journal, run="r", watch=choosing.after)
        first = transaction.apply(wanted)
        choosing.settle()
        assert {state.outcome for state in first} <= {"applied", "unchanged"}, first
        once = picture(root)
        assert {state.outcome for state in transaction.apply(wanted)} == {"unchanged"}
        assert picture(root) == once
        assert {state.outcome for state in undoing.revert(host, journal)} <= {"reverted"}
        choosing.settle()
        assert picture(root) == before
        assert units.units == was
        journal.close()


class _Choosing:
    """The kernel's part of an attribute with choices: a word that is written is shown in brackets."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def after(self, _step: str) -> None:
        self.settle()

    def settle(self) -> None:
        word = self._file.read_text().strip()
        if "[" not in word:
            shown = " ".join(f"[{one}]" if one == word else one for one in ("always", "madvise", "never"))
            self._file.write_text(f"{shown}\n")


@FEW
@given(content=st.binary(max_size=300), mode=MODES, before=TEXTS, after=TEXTS)
def test_the_undo_journal_reads_what_it_wrote(content: bytes, mode: int, before: str, after: str) -> None:
    from proveout.agent.tuning.files import NONE, Original
    from proveout.dsl.tuning.change import Change, Command, SetText, Statement, UnitAction, WriteFile

    changes: list[Change] = [
        WriteFile(path="/x", content=content, mode=mode),
        SetText(path="/proc/sys/x", before=before, after=after),
        Command(argv=("/bin/x", before), undo=(after,)),
        Statement(system="db", text=before, undo=after),
        UnitAction(unit="x.service", verb="stop", undo="start"),
    ]
    for change in changes:
        assert change_of(change_text(change)) == change
    original = Original(exists=True, content=content, mode=mode, xattrs={"user.x": content}, mtime_ns=10**18)
    for one in (original, NONE, None):
        assert original_of(original_text(one)) == one
