"""The lab of docs/lab: hosts in network namespaces with clocks of their own, enrolled agents, servers, and a client
that is cut off in mid-run.

Needs root, network namespaces and the embedded PostgreSQL. Hosts share one machine, so that slow or lossy networks and
drifting clocks are not tested.
"""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from eventually import eventually
from hand_made import OBJECTION

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]
LAB = ROOT / "docs" / "lab" / "lab.py"
PLAN = Path(__file__).with_name("smallest.yaml")
TWO_LOADS = Path(__file__).with_name("two_loads.yaml")
PATIENCE_S = 300.0
SAME_T0_NS = 50_000_000
"""Bound of the clock estimates of both hosts and of the start of their first second."""
MONTH_NS = 28 * 24 * 3600 * 1_000_000_000


needs_a_lab = pytest.mark.skipif(bool(OBJECTION), reason=OBJECTION)


class Place:
    """The folder and the name prefix of a lab of this test, distinct from all others of the machine."""

    def __init__(self, folder: Path) -> None:
        mark = secrets.token_hex(4)
        self.prefix, self.directory = f"pv{mark}", Path(f"/var/lib/proveout-lab-{mark}")
        self.folder = folder

    def argv(self, verb: str, *more: str) -> list[str]:
        where = ["--prefix", self.prefix, "--directory", str(self.directory), "--runs-dir", str(self.folder / "runs")]
        return [sys.executable, str(LAB), verb, *where, *more]

    def namespaces(self) -> list[str]:
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        return [line.split()[0] for line in listed.splitlines() if line.startswith(self.prefix)]

    def is_gone(self) -> bool:
        return not self.namespaces() and not self.directory.exists()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    subprocess.run(place.argv("down"), check=True, capture_output=True)
    assert place.is_gone()


def run(place: Place, plan: Path, *more: str) -> tuple[dict[str, Any], str]:
    """Run a plan and check that it passes and that the lab is removed; return its result and output."""
    result = place.folder / "result.json"
    argv = place.argv("run", "--plan", str(plan), "--headless", "--json", str(result), *more)
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:] + ended.stdout[-4000:]
    assert place.is_gone()
    return json.loads(result.read_text()), ended.stdout


@needs_a_lab
@pytest.mark.soak
def test_a_run_across_hosts_whose_clocks_are_months_apart(place: Place) -> None:
    said, told = run(place, PLAN)
    assert "4 tables with the same rows" in told  # no row was lost between the hosts
    assert set(said["agents"]) == {"db1", "cache1", "storage1", "client1", "client2"}
    assert {verdict["outcome"] for verdict in said["verdicts"]} == {"PASS"}
    iteration = next(one for one in said["stages"][1]["iterations"] if one["valid"])
    findings = {finding["check"]: finding for finding in iteration["findings"]}
    assert findings["start-skew"]["ok"], findings["start-skew"]
    for client in ("client1", "client2"):  # the namespaces' own settings
        assert f"{client}: tuning room for connections: applied" in told
        assert f"{client}: tuning room for connections: reverted" in told


@needs_a_lab
@pytest.mark.soak
def test_loads_of_two_client_hosts_begin_at_one_instant(place: Place) -> None:
    said, _ = run(place, TWO_LOADS)
    (stage,) = (one for one in said["stages"] if one["id"] == "halves")
    counted = [one for one in stage["iterations"] if one["valid"]]
    assert len(counted) == 4
    for one in counted:
        loads = one["metrics"]["loads"]
        skews_ms = [loads[name]["client"]["start_skew_ms"] for name in ("low", "high")]
        assert one["metrics"]["client"]["start_skew_ms"] == max(skews_ms) > 0.0, "that of the later one"
        assert {f["load"] for f in one["findings"] if f["check"] == "start-skew"} == {"low", "high"}
    (directory,) = (place.folder / "runs").iterdir()
    files = sorted((directory / "samples").glob("halves-*.load.parquet"))
    assert len(files) == len(stage["iterations"])
    for file in files:
        rows = [row for row in pq.read_table(file).to_pylist() if row["second"] == 0]
        began = {row["host"]: (row["coordinator_ns"], row["host_ns"]) for row in rows}
        (first, first_own), (second, second_own) = began["client1"], began["client2"]
        assert abs(first - second) < SAME_T0_NS, "one T0, in the coordinator's time"
        assert abs(first_own - second_own) > MONTH_NS, "on clocks that are far apart"


@needs_a_lab
@pytest.mark.soak
def test_a_run_goes_on_without_a_disconnected_client(place: Place) -> None:
    said, told = run(place, PLAN, "-p", "repeats=2", "--cut", "client2@base")
    assert "client2 was lost" in told and "continues without client2" in told
    assert [lost["host"] for lost in said["lost"]] == ["client2"]


@needs_a_lab
def test_a_lab_killed_during_its_set_up_leaves_nothing(place: Place) -> None:
    making = subprocess.Popen(
        place.argv("run", "--plan", str(PLAN)), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    eventually(lambda: len(place.namespaces()) >= 3, "it has begun")
    making.send_signal(signal.SIGKILL)
    making.wait()
    eventually(place.is_gone, "the guard has removed it")


@needs_a_lab
def test_ctrl_c_also_removes_an_earlier_lab(place: Place) -> None:
    subprocess.run(["ip", "netns", "add", f"{place.prefix}-db1"], check=True)
    place.directory.mkdir()
    (place.directory / ".proveout-lab").touch()
    making = subprocess.Popen(place.argv("run", "--plan", str(PLAN)), stderr=subprocess.PIPE, text=True)
    with making:
        assert making.stderr is not None
        assert making.stderr.readline() == "== the remains of an earlier lab are removed\n"
        making.send_signal(signal.SIGINT)
        said = making.stderr.read()
    assert making.returncode == 130, said
    assert "Traceback" not in said
    assert said.splitlines()[-2:] == ["== the lab is removed", "interrupted"]
    assert place.is_gone()


def test_a_folder_that_does_not_belong_to_a_lab_is_not_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("x")
    argv = [sys.executable, str(LAB), "down", "--prefix", f"pv{secrets.token_hex(4)}", "--directory", str(precious)]
    subprocess.run(argv, capture_output=True, check=False)
    assert (precious / "thesis").read_text() == "x"


def test_an_invalid_cut_is_refused() -> None:
    argv = [sys.executable, str(LAB), "run", "--cut", "nobody@base"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert "--cut" in said.stderr
