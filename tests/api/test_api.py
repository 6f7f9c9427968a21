"""The Python API over a run directory as the coordinator leaves it; the guide's examples are run on it."""

from __future__ import annotations

import doctest
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
import records

import proveout
from proveout import api
from proveout.coordinator.measure import samples
from proveout.coordinator.measure.samples import SamplesUnreadable
from proveout.coordinator.storage.journal import Journal
from proveout.core.errors import ProveoutError
from proveout.proto import events as e
from proveout.proto.wire.messages import Sample
from proveout.proto.wire.results import (
    CaptureSample,
    Histogram,
    LoadSecond,
    Reading,
    TransactionCounts,
    TransactionLoad,
)

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "python-api.md"
BEGUN_S = 1_700_000_000.0
WINDOWS = ("ramp_up", "measure", "measure", "ramp_down")
PLAN = {
    "stages": [{"id": "ladder", "kind": "ladder", "target": "db", "workload": "w", "threads": [1, 4],
    "clients": ["box"], "arrival": {"kind": "closed"}}],
    "systems": [{"name": "db", "host": "box", "engine": "postgres", "propagates_to": None}],
    "hosts": [{"name": "box", "roles": ["client"], "address": "local"}],
    "figures": [],
}  # fmt: skip


def iteration(rung: int, repeat: int, tps: float, at_s: float) -> e.IterationFinished:
    latency = {f"{name}_us": 500.0 for name in ("min", "avg", "p50", "p90", "p95", "p99", "max")}
    one = records.summary("GET", ok=int(tps * 2), tps=tps, response=latency, service=latency)
    metrics = {"tps": tps, "response": latency, "transactions": {"GET": {"tps": tps, "response": latency}}}
    more = {"measure_s": 2.0, "transactions": (one,), "started_unix_s": BEGUN_S + at_s}
    return records.iteration("ladder", rung, repeat, metrics, **more)


ITERATIONS = tuple(
    iteration(rung, repeat, 100.0 * rung**0.5 + spread, at_s)
    for rung, repeat, spread, at_s in ((1, 1, -1.0, 2.0), (4, 1, -3.0, 8.0), (1, 2, 1.0, 14.0), (4, 2, 3.0, 20.0))
)


def write_samples(item: e.IterationFinished, folder: Path) -> None:
    """As the coordinator does it: 4 s of load at `tps`, half in the first second; a counter looked at each second."""
    gathered = samples.Gathering(id=item.id, hosts={"load": "box", "os": "box"}, names={"os": "host"})
    tps = round(item.metrics["tps"] / 100.0) * 100
    for number, window in enumerate(WINDOWS):
        ok = tps // 2 if number == 0 else tps
        response = Histogram(indices=(7,), counts=(ok,), sum_ns=ok * 500_000, min_ns=500_000, max_ns=500_000)
        counts = TransactionCounts(name="GET", ok=ok, logical_failures=0, retried=0, missed=0, errors=())
        load = TransactionLoad(counts=counts, response=response, service=response, schedule=response)
        at_ns = (100 + number) * 10**9
        second = LoadSecond(second=number, window=window, start_ns=at_ns, duration_s=1.0, transactions=(load,))  # type: ignore[arg-type]
        gathered.add(Sample(key="load", sequence=number + 1, sample=second))
        readings = (Reading(metric="cpu.idle_s_total", value=float(number)),)
        look = CaptureSample(capture="host", at_ns=at_ns + 500_000_000, readings=readings)
        gathered.add(Sample(key="os", sequence=number + 1, sample=look))
    samples.write(gathered, folder)


def journalled(ended: bool) -> list[e.Event]:
    begun, *iterations, finished = records.whole_ladder("ladder", ITERATIONS)
    events = [records.run_started(PLAN, "study-1", name="study", title="T <b>"), begun, *iterations]
    if not ended:
        return events
    outcomes: dict[str, e.Outcome] = {"fast-enough": "PASS", "scales": "FAIL"}
    verdicts = (
        e.VerdictReached(
            id=name,
            title="T <b>",
            severity="fail",
            outcome=outcome,
            check="c",
            evidence="ladder.at(4).tps.mean = 200/s",
        )
        for name, outcome in outcomes.items()
    )
    return [*events, finished, *verdicts, records.run_finished(exit_code=1, reason="a verdict failed")]


def make(runs: Path, *, ended: bool = True) -> Path:
    folder = runs / "study-1"
    (folder / "samples").mkdir(parents=True)
    clock = iter(BEGUN_S + number * 1e-6 for number in range(100))
    with Journal(folder, clock=lambda: next(clock)) as journal:
        for event in journalled(ended):
            journal.append(event)
    for item in ITERATIONS:
        write_samples(item, folder / "samples")
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make(folder)
    return folder


@pytest.fixture(scope="module")
def run(runs: Path) -> api.Run:
    return proveout.open_run(runs_dir=runs)


def test_the_guide_s_examples_and_the_ways_to_name_a_run(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVEOUT_RUNS_DIR", str(runs))
    found = doctest.testfile(str(GUIDE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted > 15
    assert found.failed == 0
    opened = [api.open_run("study-1", runs_dir=runs), api.open_run(runs / "study-1"), api.open_run(runs_dir=runs)]
    assert {(one.id, one.path) for one in opened} == {("study-1", runs / "study-1")}


def test_a_run_under_way_has_what_has_ended(tmp_path: Path) -> None:
    run = api.open_run(make(tmp_path, ended=False))
    assert (run.status, run.exit_code, dict(run.verdicts)) == ("unfinished", None, {})
    assert list(run.rungs("ladder")) == [1, 4]
    assert run.estimates().num_rows > 0
    with pytest.raises(api.NotThere):
        run.value("ladder.at(4).tps.mean")


def test_what_is_not_there_is_said_with_what_is(run: api.Run, tmp_path: Path) -> None:
    with pytest.raises(api.NotThere, match=r"no stage 'other'.*\n.*ladder"):
        run.rungs("other")
    with pytest.raises(api.NotThere, match="no stage 'other'"):
        run.samples(stage="other")
    with pytest.raises(api.NotThere, match="waits"):
        run.value("ladder.at(4).waits.db_time_s.mean")
    with pytest.raises(api.NotThere, match=r"is not a number\n.*cv.*lower.*mean.*median.*n.*upper"):
        run.value("ladder.at(4).tps")
    with pytest.raises(api.NotThere, match="load, captures"):
        run.samples("traces")  # type: ignore[arg-type]
    with pytest.raises(ProveoutError, match="there is no run"):
        api.open_run(runs_dir=tmp_path)
    for found, name in ((run.stages, "ladder"), (run.verdicts, "scales"), (run.figures, "scaling-ladder")):
        with pytest.raises(api.NotThere, match=r"'other'\n.*There is"):
            found["other"]
        assert "other" not in found and name in found, list(found)
    with pytest.raises(api.NotThere, match=r"no rung of ladder 9\n.*1, 4"):
        run.rungs("ladder")[9]


def test_samples_are_on_the_run_s_time(run: api.Run) -> None:
    load = run.samples("load")
    first = load.slice(0, 4)
    assert first["at_s"].to_pylist() == pytest.approx([2.0, 3.0, 4.0, 5.0])
    assert first["window"].to_pylist() == list(WINDOWS)
    assert first["avg_us"].to_pylist() == pytest.approx([500.0] * 4)
    assert load["threads"].to_pylist() == [1] * 4 + [4] * 4 + [1] * 4 + [4] * 4
    captured = run.samples("captures")
    assert captured["at_s"].to_pylist()[:4] == pytest.approx([2.5, 3.5, 4.5, 5.5])
    assert captured.slice(4, 1).to_pylist()[0] | {"at_s": 0} == {
        "stage": "ladder", "threads": 4, "repeat": 1, "attempt": 1, "valid": True, "at_s": 0, "host": "box",
        "capture": "host", "metric": "cpu.idle_s_total", "label": "", "value": 0.0,
    }  # fmt: skip


def test_estimates_have_the_numbers_that_verdicts_read(run: api.Run) -> None:
    rows = {(row["threads"], row["metric"]): row for row in run.estimates().to_pylist()}
    found = rows[4, "tps"]
    for name in ("mean", "lower", "upper", "cv"):
        assert found[name] == pytest.approx(run.value(f"ladder.at(4).tps.{name}"))
    assert (found["n"], rows[1, "response.p99_us"]["mean"]) == (2, 500.0)
    assert rows[1, "transactions.GET.tps"]["mean"] == pytest.approx(100.0)


def test_tables_without_rows_have_their_columns_and_a_damaged_file_is_named(run: api.Run, tmp_path: Path) -> None:
    bare = make(tmp_path)
    damaged, *others = sorted((bare / "samples").iterdir())
    for file in others:
        file.unlink()
    damaged.write_bytes(b"PAR1 no")
    with pytest.raises(SamplesUnreadable, match=damaged.name):
        api.open_run(bare).samples("captures" if "captures" in damaged.name else "load")
    damaged.unlink()
    empty = api.open_run(bare)
    for kind in ("load", "captures"):
        assert empty.samples(kind).num_rows == 0  # type: ignore[arg-type]
        assert empty.samples(kind).schema.equals(run.samples(kind).schema)  # type: ignore[arg-type]


def test_sql_joins_the_tables_and_says_how_to_get_duckdb(run: api.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT s.threads, avg(s.tps) AS tps FROM load s WHERE s.window = 'measure' GROUP BY 1 ORDER BY 1"
    assert run.sql(query).fetchall() == [(1, 100.0), (4, 200.0)]
    assert run.sql("SELECT id FROM verdicts WHERE outcome = 'FAIL'").fetchall() == [("scales",)]
    assert run.sql("SELECT count(*) FROM Iterations, CAPTURES").fetchall() == [(8 * 16,)]
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(api.NotThere, match="pip install 'duckdb"):
        run.sql("SELECT 1")


def test_a_notebook_shows_runs_and_figures(run: api.Run) -> None:
    html = run._repr_html_()
    assert "T &lt;b&gt;" in html
    assert html.count("<tr>") == 2
    chart = run.figures["relative-tps-latency-ladder"]
    shown = chart._repr_mimebundle_()
    assert ET.fromstring(shown["image/svg+xml"]).tag.endswith("svg")
    assert chart.png()[:8] == b"\x89PNG\r\n\x1a\n"
    assert chart.spec["$schema"].startswith("https://vega.github.io/schema/vega-lite/")
    assert isinstance(chart.table(), pa.Table)
    assert chart.table().num_rows == 2


def test_import_proveout_is_light() -> None:
    code = (
        "import sys, proveout; before = set(sys.modules);"
        "heavy = {'proveout.api', 'proveout.coordinator', 'numpy', 'pyarrow', 'pydantic'} & before;"
        "assert not heavy, heavy; proveout.Run; assert 'proveout.api' in sys.modules;"
        "assert not {'pyarrow', 'vl_convert', 'duckdb', 'grpc'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
