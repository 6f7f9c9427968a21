"""An audit log with changed, removed, reordered or rewritten lines does not verify, within the limits of a hash chain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from proveout.cli import execute
from proveout.proto.audit_log import BEGIN, AuditFault, AuditLog, Head, _append, _hash, verify


def written(path: Path, count: int = 5) -> AuditLog:
    log = AuditLog(path)
    for number in range(count):
        log.note("task", key=f"k{number}", kind="RunLoad")
    return log


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_an_unchanged_log_verifies(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    head = written(path).head()
    found = verify(path)
    assert str(found.head) == head
    assert found.head.number == 6
    assert path.stat().st_mode & 0o777 == 0o600
    again = AuditLog(path).note("task", key="of another process")
    assert verify(path).head == again


def rehashed(all_: list[bytes]) -> list[bytes]:
    """Change a line and correct its hash: the hash in the next line shows the change."""
    line = json.loads(all_[3]) | {"key": "kX"}
    line["hash"] = _hash(line)
    return [*all_[:3], json.dumps(line).encode() + b"\n", *all_[4:]]


CHANGES: list[tuple[Callable[[list[bytes]], list[bytes]], str, int]] = [
    (lambda all_: [*all_[:3], all_[3].replace(b"k2", b"kX"), *all_[4:]], "this line was changed", 4),
    (lambda all_: [*all_[:-1], all_[-1].replace(b"k4", b"kX")], "this line was changed", 6),
    (rehashed, "removed, added or moved", 5),
    (lambda all_: [*all_[:2], *all_[3:]], "removed, added or moved", 3),
    (lambda all_: all_[1:], "removed, added or moved", 1),
    (lambda all_: [*all_[:2], all_[3], all_[2], *all_[4:]], "removed, added or moved", 3),
    (lambda all_: [*all_[:3], all_[2], *all_[3:]], "removed, added or moved", 4),
    (lambda all_: [*all_[:3], b"garbage\n", *all_[3:]], "not a line of an audit log", 4),
    (lambda all_: [*all_[:-1], all_[-1][:-20]], "not a line of an audit log", 6),
]


@pytest.mark.parametrize(("change", "message", "at"), CHANGES)
def test_changes_are_found_with_their_line(
    change: Callable[[list[bytes]], list[bytes]], message: str, at: int, tmp_path: Path
) -> None:
    path = tmp_path / "audit.log"
    written(path)
    path.write_bytes(b"".join(change(lines(path))))
    with pytest.raises(AuditFault, match=message) as caught:
        verify(path)
    assert caught.value.where == f"{path}:{at}"


def test_removed_last_lines_are_found_only_with_the_log_of_the_other_side(tmp_path: Path) -> None:
    agent, run = tmp_path / "agent.log", tmp_path / "run.log"
    AuditLog(run).note("agent", host="db1", head=written(agent).head())
    whole = lines(agent)
    agent.write_bytes(b"".join(whole[:-1]))
    assert verify(agent).head.number == 5
    with pytest.raises(AuditFault, match="lines are missing at its end: it has 5, and another log has seen 6"):
        verify(agent, [run])
    agent.write_bytes(b"".join(whole))
    assert verify(agent, [run]).seen_by_others == 1


def test_a_rewritten_log_is_found_with_the_log_of_the_other_side(tmp_path: Path) -> None:
    agent, run = tmp_path / "agent.log", tmp_path / "run.log"
    AuditLog(run).note("agent", host="db1", head=written(agent).head())
    name = json.loads(lines(agent)[0])["log"]
    descriptor = os.open(agent, os.O_RDWR | os.O_TRUNC)
    head = Head(log=name, number=0, hash=BEGIN)
    for number in range(8):
        head = _append(descriptor, head, "task", {"key": f"forged{number}"})
    os.close(descriptor)
    assert verify(agent).head.number == 8
    with pytest.raises(AuditFault, match="was rewritten") as caught:
        verify(agent, [run])
    assert caught.value.where == f"{agent}:6"


def test_a_line_torn_by_a_crash_is_recorded_and_the_log_continues(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = written(path)
    with path.open("ab") as stream:
        stream.write(b'{"n": 7, "what": "ta')
    log.note("task", key="after")
    assert verify(path).head.number == 8
    assert json.loads(lines(path)[6])["what"] == "torn"


def test_processes_that_write_concurrently_make_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    code = f"from pathlib import Path; from proveout.proto.audit_log import AuditLog; log = AuditLog(Path({str(path)!r}))\n"
    code += "for number in range(50): log.note('task', key=str(number))"
    writers = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    assert verify(path).head.number == 151


def test_a_log_replaced_by_another_process_is_reopened(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log, other = AuditLog(path), AuditLog(path)
    log.note("task", key="first")
    other.note("task", key="of another process")
    log.note("task", key="again")
    assert verify(path).head.number == 4
    beside = path.with_name("new")
    AuditLog(beside).note("begin anew")
    beside.replace(path)
    log.note("task", key="in the new one")
    assert verify(path).head.number == 3


@pytest.mark.parametrize(
    "last",
    [b"1\n", b"x" * 200_000, b"[" * 60_000 + b"\n", b'{"log": "x", "n": 1, "hash": null}\n'],
    ids=["number", "long", "deep", "odd"],
)
def test_a_log_with_an_invalid_last_line_is_not_continued(last: bytes, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    written(path)
    with path.open("ab") as stream:
        stream.write(last)
    content = path.read_bytes()
    with pytest.raises(OSError, match="not a line of an audit log"):
        AuditLog(path).note("task", key="after")
    with pytest.raises(AuditFault):
        verify(path)
    assert path.read_bytes() == content


def test_a_log_that_was_removed_and_restarted_is_found_with_the_log_of_the_other_side(tmp_path: Path) -> None:
    agent, run = tmp_path / "agent.log", tmp_path / "run.log"
    AuditLog(run).note("agent", host="db1", head=written(agent).head())
    agent.unlink()
    written(agent)
    assert verify(agent).head.number == 6
    with pytest.raises(AuditFault, match="the other logs have never seen this one"):
        verify(agent, [run])
    agent.write_bytes(b"")
    with pytest.raises(AuditFault, match="the log is empty"):
        verify(agent)


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agent, run = tmp_path / "agent.log", tmp_path / "run.log"
    AuditLog(run).note("agent", host="db1", head=written(agent).head())
    assert execute(["audit", "verify", str(agent)]) == 0
    assert "this log alone cannot show" in capsys.readouterr().out
    assert execute(["audit", "verify", str(agent), "--against", str(run)]) == 0
    assert "1 times another log has seen it, the last time at line 6: all agree" in capsys.readouterr().out
    agent.write_bytes(b"".join(CHANGES[0][0](lines(agent))))
    assert execute(["audit", "verify", str(agent)]) == 1
    assert f"{agent}:4: this line was changed" in capsys.readouterr().err
    assert execute(["audit", "verify", str(tmp_path / "none")]) == 1
