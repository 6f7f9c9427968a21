"""Results, reports and JUnit of a run whose coordinator was killed, or whose disk was full, after the last event: they
are written later.
"""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import thorough
from failed_run import failed_run

from proveout.cli import execute
from proveout.coordinator.measure.samples import SamplesUnreadable
from proveout.coordinator.report import run_document
from proveout.coordinator.storage import run_directory

LOOKS_LIKE = {
    "result.json": b'"proveout.result/1"',
    "report.html": b"</html>",
    "junit.xml": b"</testsuites>",
    "copy.json": b'"proveout.result/1"',
    "summary.md": b"a verdict failed",
}


def finished(folder: Path, exit_code: int = 1) -> run_directory.RunDirectory:
    """A run after its last event, before its coordinator writes the results."""
    places = {"junit": "junit.xml", "json": "copy.json", "summary": "summary.md"}
    (folder / "out").mkdir(parents=True)
    outputs = {name: str(folder / "out" / place) for name, place in places.items()}
    return failed_run(folder / "runs", exit_code=exit_code, outputs=outputs)


def files(folder: Path, directory: run_directory.RunDirectory) -> dict[str, bytes]:
    """The existing result files, by name."""
    places = [directory.path / "result.json", directory.path / "report.html", *sorted((folder / "out").iterdir())]
    return {path.name: path.read_bytes() for path in places if path.is_file() and not path.name.startswith(".")}


_REPORT_AND_DIE = """
import os, signal, sys
from pathlib import Path
from proveout.cli import outputs as result_files
from proveout.coordinator.report import ci_reports, html, json_documents, markdown, run_document, terminal
from proveout.coordinator.storage import run_directory

def report(folder, at):
    directory = run_directory.find(folder / "runs", "latest")
    outputs = directory.command().outputs
    seen = 0

    def boundary(event, arguments):
        nonlocal seen
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if str(folder) in str(arguments[:1]) and (writes or event in ("os.rename", "os.remove")):
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(boundary)
    result_files.report(directory, outputs, "none")
    return seen

for argument in sys.argv[1:]:
    at, _, folder = argument.partition(":")
    child = os.fork()
    if not child:
        os._exit(report(Path(folder), int(at)))
    print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def report_and_die(moments: Mapping[Path, int]) -> list[int]:
    """Write the results of each folder in a process that kills itself before that file operation; return how each ended.

    A process that completes returns its number of file operations.
    """
    argv = [sys.executable, "-c", _REPORT_AND_DIE, *(f"{at}:{folder}" for folder, at in moments.items())]
    output = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=180).stdout
    return [int(line.split()[1]) for line in output.splitlines() if line.startswith("ended")]


@pytest.mark.thorough
def test_results_are_complete_after_a_kill_at_any_boundary(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    finished(whole)
    (boundaries,) = report_and_die({whole: 0})
    assert boundaries >= 15, "open, rename and remove of five files"
    points = thorough.every(6, range(1, boundaries + 1))
    made = {at: finished(tmp_path / str(at)) for at in points}
    assert report_and_die({tmp_path / str(at): at for at in points}) == [-signal.SIGKILL] * len(points)
    for at, directory in made.items():
        folder = tmp_path / str(at)
        left = files(folder, directory)
        assert all(LOOKS_LIKE[name] in data for name, data in left.items()), f"{at}: a file that is not whole"
        assert execute(["resume", "latest", "--headless", "--runs-dir", str(folder / "runs")]) == 1, at
        again = files(folder, directory)
        assert set(again) == set(LOOKS_LIKE), at
        assert all(LOOKS_LIKE[name] in again[name] for name in again), at
        assert all(again[name] == data for name, data in left.items()), at
        assert not list(folder.rglob(".*")), "nothing that the killed process has left"


def test_a_resume_of_a_finished_run_ends_with_its_exit_code(tmp_path: Path) -> None:
    directory = finished(tmp_path, 3)
    runs = ["--runs-dir", str(tmp_path / "runs")]
    (tmp_path / "out" / "junit.xml").write_text("of an earlier run")
    os.utime(tmp_path / "out" / "junit.xml", (1e9, 1e9))
    chosen = tmp_path / "chosen.md"
    argv = ["resume", directory.name, "--headless", "--summary", str(chosen), *runs]
    assert execute(argv) == 3
    found = files(tmp_path, directory)
    assert b"</testsuites>" in found["junit.xml"], "what is older than the run's end is not of this run"
    assert chosen.is_file()
    assert "summary.md" not in found, "another file was named instead"
    (tmp_path / "out" / "junit.xml").write_text("of a later run")
    (directory.path / "result.json").write_text("[" * 100_000)
    assert execute(argv) == 3
    assert (tmp_path / "out" / "junit.xml").read_text() == "of a later run"
    assert json.loads((directory.path / "result.json").read_text())


def test_damaged_samples_leave_out_the_page_and_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def damaged(*_: object) -> object:
        raise SamplesUnreadable("the samples cannot be read")

    directory = finished(tmp_path)
    monkeypatch.setattr(run_document, "page_document", damaged)
    assert execute(["resume", str(directory.path), "--headless"]) == SamplesUnreadable.exit_code
    assert files(tmp_path, directory).keys() == LOOKS_LIKE.keys() - {"report.html"}
    said = capsys.readouterr()
    assert "a verdict failed" in said.out and "the samples cannot be read" in said.err


@pytest.mark.parametrize(("output", "encoding", "expected", "said"), [
    ("a pipe without a reader", "utf-8", 3, ""),
    ("a terminal that was closed", "utf-8", 3, ""),
    ("a file", "latin-1", 3, ""),
    ("/dev/full", "utf-8", 3, "standard output cannot be written: No space left on device"),
])  # fmt: skip
def test_a_command_ends_with_its_exit_code_whatever_becomes_of_its_output(
    tmp_path: Path, output: str, encoding: str, expected: int, said: str
) -> None:
    directory = finished(tmp_path, expected)
    if output == "a pipe without a reader":
        other, stream = os.pipe()
        os.close(other)
    elif output == "a terminal that was closed":
        other, stream = pty.openpty()
        os.close(other)
    else:
        stream = os.open(tmp_path / "output" if output == "a file" else output, os.O_WRONLY | os.O_CREAT)
    argv = [sys.executable, "-m", "proveout", "resume", str(directory.path), "--headless"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        argv, stdout=stream, stderr=subprocess.PIPE, text=True, env=environment, timeout=60, check=False
    )
    os.close(stream)
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (expected, True, False)


def test_a_pipe_and_a_link_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    directory, pipe, link = finished(tmp_path), tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("linked")
    (tmp_path / "linked").touch()
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert execute(["report", str(directory.path), "--csv", str(pipe), "--benchstat", str(link)]) == 0
    assert os.read(reader, 100).startswith(b"run,") and link.is_symlink() and (tmp_path / "linked").read_text()
    os.close(reader)


def test_report_writes_the_missing_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = finished(tmp_path)
    runs = ["--runs-dir", str(tmp_path / "runs")]
    assert execute(["report", "latest", *runs]) == 0
    assert set(files(tmp_path, directory)) == {"result.json", "report.html"}
    assert str(directory.path / "result.json") in capsys.readouterr().out
    (directory.path / "result.json").write_text("{}")
    assert execute(["report", "latest", *runs]) == 0
    assert (directory.path / "result.json").read_text() == "{}", "it is newer than the run's end"


def test_a_finished_run_without_results_is_listed_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = finished(tmp_path)
    runs = ["--runs-dir", str(tmp_path / "runs")]
    assert execute(["runs", *runs]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if directory.name in line]
    assert "finished" in line and "1 FAIL" in line
    assert execute(["compare", "latest", "latest", *runs]) == 2
    assert "nothing can differ" in capsys.readouterr().err, "it was read"


def test_a_resume_names_a_command_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = finished(tmp_path)
    (directory.path / "command.json").write_text("[" * 100_000)
    assert execute(["resume", "latest", "--headless", "--runs-dir", str(tmp_path / "runs")]) == 1
    assert "command.json cannot be read" in capsys.readouterr().err
    assert set(files(tmp_path, directory)) == {"result.json", "report.html"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(argv, capture_output=True, check=False).returncode != 0:
        pytest.skip("takes root, and a host that lets the tests mount a tmpfs")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_results_are_written_when_the_disk_has_space_again(
    small_disk: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finished(tmp_path / "made")
    shutil.copytree(tmp_path / "made", small_disk / "run")
    folder = small_disk / "run"
    runs = ["--runs-dir", str(folder / "runs")]
    directory = run_directory.find(folder / "runs", "latest")
    about = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(bytes(about.f_bavail * about.f_frsize - (44 << 10)))
    chosen = ["--junit", str(folder / "out" / "junit.xml")]
    assert execute(["resume", "latest", "--headless", *chosen, *runs]) == 4
    captured = capsys.readouterr()
    assert f"file system {small_disk} of host {os.uname().nodename}" in captured.err
    assert "of 2 MiB are free" in captured.err
    assert "proveout resume" in captured.err
    assert "a verdict failed" in captured.out, "the verdicts are printed when the journal can be opened"
    assert execute(["runs", *runs]) == 0
    assert "1 FAIL" in capsys.readouterr().out, "a full disk can be read"
    assert not [path.name for path in folder.rglob(".*")], "nothing half written is left"
    (small_disk / "filler").unlink()
    assert execute(["resume", "latest", "--headless", *chosen, *runs]) == 1
    assert {"result.json", "report.html", "junit.xml"} <= set(files(folder, directory))
