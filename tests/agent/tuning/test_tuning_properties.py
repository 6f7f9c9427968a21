"""Any change is read from the undo journal as it was written; any edit of an INI file changes one value; any page of a
disk has a name or none. Any host and any arguments: test_every_operation."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proveout.agent.tuning.file_changes import NONE, Original
from proveout.agent.tuning.records import change_of, change_text, original_of, original_text
from proveout.dsl.operations.change import Change, Command, KeepSpans, SetText, Statement, UnitAction, WriteFile
from proveout.dsl.operations.host.ini_section import edit
from proveout.dsl.operations.storage.multipath import wwid

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=200)
MODES = st.sampled_from([0o600, 0o640, 0o644, 0o664, 0o444])
LINES = st.sampled_from(
    ["[a]", "[b]", " [A] ; x", "k=1", "K = 2 ", "other=3", "# k=4", "", "nonsense", "k", "=", "k=="]
)
FEW = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(content=st.binary(max_size=300), mode=MODES, before=TEXTS, after=TEXTS)
def test_entries_of_the_undo_journal_are_read_as_written(content: bytes, mode: int, before: str, after: str) -> None:
    changes: list[Change] = [
        WriteFile(path="/x", content=content, mode=mode),
        SetText(path="/proc/sys/x", before=before, after=after),
        SetText(path="/sys/x", before=before, after=after, part="undo", only_if=("/sys/y", after), adjusted=True),
        KeepSpans(device="/dev/disk/by-id/x", spans=((0, 512), (1024, 512)), probe=("/bin/x", before)),
        Command(argv=("/bin/x", before), undo=(after,)),
        Statement(system="db", text=before, undo=after),
        UnitAction(unit="x.service", verb="stop", undo="start"),
    ]
    for change in changes:
        assert change_of(change_text(change)) == change
    original = Original(exists=True, content=content, mode=mode, xattrs={"user.x": content}, mtime_ns=10**18)
    for one in (original, NONE, None):
        assert original_of(original_text(one)) == one


@FEW
@given(
    lines=st.lists(LINES, max_size=12), end=st.sampled_from(["\n", "\r\n"]), value=st.sampled_from(["1", "x y", "[c]"])
)
def test_an_edit_changes_one_value_and_no_other_byte(lines: list[str], end: str, value: str) -> None:
    before = end.join(lines).encode()
    once = edit(before, "a", {"k": value}, create=False)
    if isinstance(once, str):
        assert once.startswith("has ")
        return
    assert edit(once, "a", {"k": value}, create=False) == once
    old, new = before.split(b"\n"), once.split(b"\n")
    assert len(old) - len([line for line in old if line in new]) <= 1


@FEW
@given(page=st.binary(max_size=80))
def test_a_page_of_any_bytes_has_a_name_or_none(page: bytes) -> None:
    name = wwid(b"\x00\x83" + page)
    assert name is None or (name[0] in "23" and int(name, 16) >= 0)
