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


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """An agent's log of six lines, whose head the log of a run has noted."""
    path = tmp_path / "agent.log"
    AuditLog(tmp_path / "run.log").note("agent", host="db1", head=written(path).head())
    return path


@pytest.fixture
def run(agent: Path) -> Path:
    return agent.with_name("run.log")


def test_an_unchanged_log_verifies_and_goes_on(agent: Path, run: Path) -> None:
    found = verify(agent, [run])
    assert (found.head.number, found.seen_by_others) == (6, 1)
    assert agent.stat().st_mode & 0o777 == 0o600
    again = AuditLog(agent).note("task", key="of another process")
    assert verify(agent).head == again


def rehashed(all_: list[bytes]) -> list[bytes]:
    """Change a line and correct its hash: the hash in the next line shows the change."""
    line = json.loads(all_[3]) | {"key": "kX"}
    line["hash"] = _hash(line)
    return [*all_[:3], json.dumps(line).encode() + b"\n", *all_[4:]]


CHANGES: list[tuple[Callable[[list[bytes]], list[bytes]], str, int]] = [
    (lambda all_: [*all_[:3], all_[3].replace(b"k2", b"kX"), *all_[4:]], "this line was changed", 4),
    (lambda all_: [*all_[:-1], all_[-1].replace(b"k4", b"kX")], "this line was changed", 6),
    (
        lambda all_: [*all_[:3], all_[3].replace(b'"key":', b'"key": "kX", "key":'), *all_[4:]],
        "this line was changed",
        4,
    ),
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
    change: Callable[[list[bytes]], list[bytes]], message: str, at: int, agent: Path
) -> None:
    agent.write_bytes(b"".join(change(lines(agent))))
    with pytest.raises(AuditFault, match=message) as caught:
        verify(agent)
    assert caught.value.where == f"{agent}:{at}"


def shortened(agent: Path) -> None:
    agent.write_bytes(b"".join(lines(agent)[:-1]))


def rewritten(agent: Path) -> None:
    head = Head(log=json.loads(lines(agent)[0])["log"], number=0, hash=BEGIN)
    descriptor = os.open(agent, os.O_RDWR | os.O_TRUNC)
    for number in range(8):
        head = _append(descriptor, head, "task", {"key": f"forged{number}"})
    os.close(descriptor)


def begun_anew(agent: Path) -> None:
    agent.unlink()
    written(agent)


@pytest.mark.parametrize(
    ("forge", "length", "message", "at"),
    [
        (shortened, 5, "lines are missing at its end: it has 5, and another log has seen 6", ""),
        (rewritten, 8, "was rewritten", ":6"),
        (begun_anew, 6, "the other logs have never seen this one", ""),
    ],
)
def test_a_whole_log_that_is_another_one_is_found_with_the_log_of_the_other_side(
    forge: Callable[[Path], None], length: int, message: str, at: str, agent: Path, run: Path
) -> None:
    forge(agent)
    assert verify(agent).head.number == length
    with pytest.raises(AuditFault, match=message) as caught:
        verify(agent, [run])
    assert caught.value.where == f"{agent}{at}"


def test_a_line_torn_by_a_crash_is_recorded_and_the_log_continues(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = written(path)
    with path.open("ab") as stream:
        stream.write(b'{"n": 7, "what": "ta')
    log.note("task", key="after")
    assert verify(path).head.number == 8
    assert json.loads(lines(path)[6])["what"] == "torn"


def test_a_line_torn_by_a_full_disk_is_an_error_and_the_log_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    log, whole = written(path), os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, data[:40]))
    with pytest.raises(OSError, match="No space left"):
        log.note("task", key="lost")
    monkeypatch.undo()
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
    path, beside = tmp_path / "audit.log", tmp_path / "new"
    log, other = AuditLog(path), AuditLog(path)
    for one in (log, other, log):
        one.note("task", key="of one of two processes")
    assert verify(path).head.number == 4
    AuditLog(beside).note("begin anew")
    beside.replace(path)
    log.note("task", key="in the new one")
    assert verify(path).head.number == 3


@pytest.mark.parametrize(
    "last",
    [b"1\n", b"x" * 200_000, b"[" * 60_000 + b"\n", b'{"log": "x", "n": 1, "hash": null}\n'],
    ids=["number", "long", "deep", "odd"],
)
def test_a_log_with_an_invalid_last_line_is_not_continued(last: bytes, agent: Path) -> None:
    with agent.open("ab") as stream:
        stream.write(last)
    content = agent.read_bytes()
    with pytest.raises(OSError, match="not a line of an audit log"):
        AuditLog(agent).note("task", key="after")
    with pytest.raises(AuditFault):
        verify(agent)
    assert agent.read_bytes() == content


def test_the_verb(agent: Path, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["audit", "verify", str(agent)]) == 0
    assert "this log alone cannot show" in capsys.readouterr().out
    assert execute(["audit", "verify", str(agent), "--against", str(run)]) == 0
    assert "\n1 time another log has seen it, the last time at line 6: all agree" in capsys.readouterr().out
    agent.write_bytes(b"".join(CHANGES[0][0](lines(agent))))
    assert execute(["audit", "verify", str(agent)]) == 1
    assert f"{agent}:4: this line was changed" in capsys.readouterr().err
    agent.write_bytes(b"")
    assert execute(["audit", "verify", str(agent)]) == 1
    assert "the log is empty" in capsys.readouterr().err
    assert execute(["audit", "verify", str(run.with_name("none"))]) == 1
