"""The HTML report, the rows and the figures of one history with hostile names and samples of a capture.

The tests parse the page and open it in Chromium.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from hostile_run import BEGUN_S, HOSTILE, history, run_directory
from records import run_started

from proveout.cli import execute
from proveout.coordinator.measure.samples import SamplesUnreadable
from proveout.coordinator.report import csv_export
from proveout.coordinator.report import html as html_renderer
from proveout.coordinator.report.document import Document, Outcome, Outcomes, Section
from proveout.coordinator.report.figures import figure as pictures
from proveout.coordinator.report.figures import selection
from proveout.coordinator.report.figures.timeline import read_timeline
from proveout.coordinator.report.run_document import page_document
from proveout.coordinator.results.results import load_results
from proveout.coordinator.storage.journal import Journal
from proveout.coordinator.storage.run_directory import RunDirectory
from proveout.core.numbers import safe
from proveout.dsl.schema.models import FIGURES
from proveout.proto.events import Claim, FactsTaken, RunFinished, VerdictReached

ELSEWHERE = (
    "iops-by-queue-depth", "latency-at-peak", "interference", "fault-timeline", "fault-occurrences", "matrix-overview",
    "search", "phases", "versus",
)  # fmt: skip
"""Figures of tools (`test_tool_stage`), of several loads (`test_results`), of loads in turns (`test_phases`), and those of
`test_figures`."""
OF_LOADS = tuple(name for name in FIGURES if name not in ELSEWHERE)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NO_LIBRARIES = "window.vegaEmbed = () => new Promise(() => 0);"
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: .ci/run installs it")


pytestmark = pytest.mark.screen


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    made = run_directory(tmp_path_factory.mktemp("run"))
    with Journal(made.path) as journal:
        for stamped in history("scaling", "lag"):
            journal.append(stamped.event)
    return made


class Reader(HTMLParser):
    """The elements of the page: tags with attributes, and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def html(directory: RunDirectory) -> str:
    """The page of a run whose plan names no figures, without the libraries of charts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "javascript", lambda: NO_LIBRARIES)
        return html_renderer.render(page_document(load_results(history()), directory))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the user's caches, empty at first."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


def test_hostile_names_do_not_become_elements(html: str) -> None:
    read = Reader(html)
    assert len(read.all("script")) == 3  # the charts' data, the libraries, the page's script
    assert not read.all("img")
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    assert not {"\x1b", "\u202e"} & set(html)
    assert "{{7*7}}" in "".join(read.text)


def test_the_page_has_verdicts_findings_topology_and_the_command(html: str) -> None:
    text = "".join(Reader(html).text)
    for part in (
        "1 > 2",
        "slow against fast",
        "steady-state",
        "4 of 4",
        "proveout run study.yaml -p 'a=1; rm -rf /' --policy /etc/policy.yaml",
    ):
        assert part in text, part
    order = ("Failed: ", "fast against slow", "✗ FAIL", "Scaling:", "Topology", "To repeat the run")
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert 3 <= html.count('class="tile ') <= 5
    assert "prefers-color-scheme: dark" in html


def test_every_figure_has_its_place_its_numbers_and_a_chart(html: str, directory: RunDirectory) -> None:
    results = load_results(history())
    drawn, missing = selection.figures(results, read_timeline(results, directory.samples))
    assert {figure.name for figure in drawn} == set(OF_LOADS)
    assert not missing
    read = Reader(html)
    assert len(read.all("figure")) == len(drawn) == len({figure.slug for figure in drawn})
    assert len([one for one in read.all("div") if one.get("data-alt")]) == len(drawn), "the browser draws them"
    specs = json.loads(re.findall(r'id="specs">(.*?)</script>', html, re.DOTALL)[0])
    assert specs == json.loads(json.dumps({figure.slug: figure.spec for figure in drawn}))
    for figure in drawn:
        assert figure.rows
        assert {len(row) for row in figure.rows} == {len(figure.heads)}
    shown = [html_renderer.render(Document(title="", about="", sections=(Section(title="", blocks=(one,)),)))
             for one in (drawn[0], replace(drawn[0], rows=()))]  # fmt: skip
    assert ["The table below has the numbers." in page for page in shown] == [True, False], "where it has any"
    alts = " ".join(one["data-alt"] or "" for one in read.all("div") if one.get("data-alt"))
    assert "busy on average in its iterations" in alts, "between them nothing is captured"
    assert "equipment" not in html


def test_without_the_package_that_draws_a_page_has_the_numbers_and_the_command(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    read = Reader(html_renderer.render(page_document(load_results(history()), directory)))
    assert "Figures are shown as tables: a picture needs vl_convert" in "".join(read.text)
    assert len(read.all("figure")) >= len(OF_LOADS)
    assert (read.all("script"), read.all("img")) == ([], [])


def test_the_data_embedded_in_the_page(html: str) -> None:
    links = [link["href"] or "" for link in Reader(html).all("a") if "download" in link]
    parts = [base64.b64decode(link.partition(",")[2]) for link in links]
    lines = list(csv.DictReader(io.StringIO(parts[0].decode())))
    assert pq.read_table(io.BytesIO(parts[1])).num_rows == len(lines) == 8 * 3


def test_figures_have_the_order_of_the_plan_without_those_left_out_and_missing_numbers_are_reported(
    tmp_path: Path,
) -> None:
    def wanted(**keys: list[str]) -> list[str]:
        results = load_results([run_started({"figures": [], "without_figures": [], **keys})])
        return list(selection.wanted(results))

    def others(*names: str) -> list[str]:
        return [name for name in FIGURES if name not in names]

    assert wanted() == others()
    assert wanted(figures=["lag", "host-cpu"]) == ["lag", "host-cpu", *others("lag", "host-cpu")]
    assert wanted(without_figures=["lag"]) == others("lag")
    assert wanted(figures=["lag"], without_figures=["lag", "others"]) == ["lag"], "a name in both is shown"
    assert wanted(figures=["of-another-version"], without_figures=["others"]) == []
    results = load_results(history("lag", "scaling", "relative-tps-latency"))
    drawn, missing = selection.figures(results, read_timeline(results, tmp_path))
    assert list(dict.fromkeys(figure.name for figure in drawn)) == ["scaling", "relative-tps-latency"]
    assert missing == {"lag": "there are no samples of a `lag` capture inside a measure window"}


def test_the_timeline_is_in_seconds_of_the_run(directory: RunDirectory) -> None:
    results = load_results(history())
    timeline = read_timeline(results, directory.samples)
    begun_s = results.started_unix_s - BEGUN_S
    first = timeline.windows[0]
    assert (first.start_s, first.end_s) == pytest.approx((2.0 - begun_s, 4.0 - begun_s))
    assert timeline.cpu[0].values == pytest.approx([0.25] * 16)
    assert timeline.lag[1].times[0] == pytest.approx(5.0 - begun_s)


def test_a_damaged_file_of_samples_is_named(tmp_path: Path) -> None:
    directory = run_directory(tmp_path)
    (directory.samples / "slow-1-1-1.load.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(SamplesUnreadable, match="slow-1-1-1"):
        read_timeline(load_results(history()), directory.samples)


def test_a_row_for_each_rung_repeat_and_transaction() -> None:
    found = list(csv.DictReader(io.StringIO(csv_export.to_csv(load_results(history())), newline="")))
    costs = ("server_cpu_us", "client_cpu_us", "reads", "price_per_million")
    assert tuple(found[0]) == (*csv_export.COLUMNS, *csv_export.SETS, *(f"cost.{name}" for name in costs))
    whole = found[0]
    about = (whole["stage"], whole["target"], whole["threads"], whole["transaction"])
    assert about == ("slow", "base", "1", csv_export.ALL)
    assert (whole["ok"], whole["logical_failures"], whole["errors"]) == (str(70 + 30), "6", "4")
    assert float(whole["tps"]) == 101.0
    assert found[2]["transaction"] == safe(HOSTILE)
    assert {line["valid"] for line in found if line["threads"] == "4" and line["repeat"] == "2"} == {"False"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('=HYPERLINK("http://192.0.2.1")', '\'=HYPERLINK("http://192.0.2.1")'),
        ("-2+3", "'-2+3"),
        ("\t=1", "' =1"),
        ("-1.5e3", "-1.5e3"),
        ("two\nlines\x1b[2J\u202e", "two\\nlines\\x1b[2J\\u202e"),
        (None, None),
    ],
)
def test_a_cell_of_csv_is_one_line_and_not_a_formula(text: object, shown: object) -> None:
    assert csv_export._cell(text) == shown


def test_report_writes_what_is_asked_for(
    directory: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["report", str(directory.path), "--csv", str(tmp_path / "r.csv"), "--parquet", str(tmp_path / "r.parquet")]
    words += ["--markdown", str(tmp_path / "r.md"), "--figures", str(tmp_path / "pictures"), "--format", "png"]
    assert execute(words) == 0
    assert (tmp_path / "r.csv").read_text().count("slow") == pq.read_table(tmp_path / "r.parquet")[
        "stage"
    ].to_pylist().count("slow")
    assert (tmp_path / "r.md").read_text().startswith("# ")
    pictures = list((tmp_path / "pictures").iterdir())
    written = [line for line in capsys.readouterr().out.splitlines() if line.endswith(".png")]
    assert len(pictures) == len(written) >= 2, "of the figures that the plan names"
    assert all(picture.read_bytes().startswith(b"\x89PNG") for picture in pictures)
    assert not (directory.path / "report.html").exists()
    monkeypatch.chdir(tmp_path)
    files = [str(tmp_path / name) for name in ("r.html", "r.txt")]
    assert execute(["report", str(directory.path), "--csv", "-", "--html", files[0], "--text", files[1]]) == 0
    said = capsys.readouterr()
    assert said.out == (tmp_path / "r.csv").read_bytes().decode(), "without the paths of the others"
    assert sorted(said.err.split()) == files
    assert not Path("-").exists()


def test_report_refuses_what_it_cannot_do(
    directory: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["report", "nothing-of-that-name", "--runs-dir", str(tmp_path)]) == 2
    assert execute(["report", str(directory.path), "--csv", str(tmp_path / "no" / "r.csv")]) == 2
    assert execute(["report", str(directory.path), "--figures", str(tmp_path), "--format", "gif"]) == 2
    said = capsys.readouterr().err
    assert "there is no run nothing-of-that-name" in said and "cannot be written" in said
    assert "Traceback" not in said


def test_report_says_where_there_is_nothing_to_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = run_directory(tmp_path)
    with Journal(directory.path) as journal:
        journal.append(run_started({}))
    assert execute(["report", str(directory.path), "--figures", str(tmp_path / "pictures")]) == 0
    assert capsys.readouterr() == ("", "no figures: the run has no numbers to draw\n")


def test_an_incomplete_run_has_a_report(tmp_path: Path) -> None:
    directory = run_directory(tmp_path)
    events = history("scaling")
    cut = [stamped for stamped in events if not isinstance(stamped.event, VerdictReached | RunFinished | FactsTaken)]
    shutil.rmtree(directory.samples)
    (directory.path / "command.json").unlink()
    text = "".join(Reader(html_renderer.render(page_document(load_results(cut), directory))).text)
    assert "not finished" in text and "No verdict was reached." in text
    nothing = html_renderer.render(page_document(load_results(events[:1]), directory))
    assert "<figure" not in nothing and "<script" not in nothing


def browse(path: Path, tmp_path: Path) -> tuple[str, list[str], list[str]]:
    """Return the page's DOM after its scripts, its messages on the console, and its requests to a network."""
    assert CHROMIUM is not None
    log = tmp_path / "net.json"
    argv = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-extensions",
        "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-component-update",
        "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
        f"--log-net-log={log}", "--enable-logging=stderr", "--virtual-time-budget=10000", "--window-size=1600,900",
        "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    recorded = json.loads(log.read_text())
    requests = [event["params"] for event in recorded["events"] if "url" in event.get("params", {})]
    # Requests of the browser itself do not have a page as their initiator.
    of_page = [one["url"] for one in requests if one.get("initiator", "not an origin") != "not an origin"]
    return done.stdout, console, [url for url in of_page if not url.startswith(("data:", "file:"))]


@needs_chromium
def test_the_page_works_in_chromium_from_a_file(html: str, cache: Path, tmp_path: Path) -> None:
    """In a frame of a small width, because the windows of a browser have a minimum width: each figure has its chart,
    none is drawn wider than the page and made smaller with its letters. Nothing is said on the console and nothing
    asked for but by a page beside it."""
    text = html.replace(NO_LIBRARIES, pictures.javascript()).replace('<details class="">', '<details class="" open>')
    charts = "[...document.querySelectorAll('svg.marks')]"
    scale = f"Math.min(...{charts}.map((one) => one.getBoundingClientRect().width / one.viewBox.baseVal.width))"
    drawn = "document.querySelectorAll('div[data-drawn=yes]').length"
    about = f"[innerWidth, document.documentElement.scrollWidth, Math.round(100 * {scale}), {drawn}, {charts}.length]"
    probe = f"<script>setTimeout(() => parent.postMessage({about}, '*'), 3000)</script>"
    (tmp_path / "inner.html").write_text(text.rpartition("</body>")[0] + probe, encoding="utf-8")
    (tmp_path / "asks.html").write_text("<img src=http://127.0.0.1:9/x><script>console.error('said')</script>")
    script = "<script>onmessage = (e) => { said.textContent = e.data.join(' ') }</script>"
    frame = "<iframe src=inner.html width=390 height=800 style='border:0'></iframe>"
    (tmp_path / "outer.html").write_text(f"<p id=said></p>{script}{frame}<iframe src=asks.html></iframe>")
    dom, console, requests = browse(tmp_path / "outer.html", tmp_path)
    assert requests == ["http://127.0.0.1:9/x"]
    assert [line for line in console if "said" not in line] == []
    assert len(console) == 1
    figures = len(Reader(text).all("figure"))
    found = re.search(r'id="said">([^<]+)<', dom)
    assert found is not None, dom[:500]
    width, needed, percent, *counts = map(int, found[1].split())
    assert width == 390 >= needed
    assert percent >= 95
    assert counts == [figures, figures]


def test_the_script_cannot_end_its_element(cache: Path) -> None:
    made = pictures.javascript()
    assert "</script" not in made
    assert "vegaEmbed" in made
    (kept,) = (cache / "proveout").iterdir()
    kept.write_text("kept")
    assert pictures.javascript() == "kept"
    kept.write_text(made)


def test_the_script_is_made_for_a_user_without_an_account_and_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 5)
    monkeypatch.setattr(pictures, "_converter", lambda: SimpleNamespace(javascript_bundle=lambda _: "made"))
    assert pictures.javascript() == "made"


def test_a_verdict_shows_its_claim_against_its_limit_and_folds_the_evidence() -> None:
    claim = Claim(of=HOSTILE, value="3 ms", limit="≤ 5 ms", operator="<=", mean=3e3, lower=2e3, upper=4e3, bound=5e3)
    evidence = ("read: 3 ms", "note: busy")
    one = Outcome(outcome="FAIL", tone="bad", title="v", evidence=evidence, check="a <= b", claims=(claim,))
    plain = replace(one, claims=())
    section = Section(title="Verdicts", blocks=(Outcomes((one, plain)),))
    drawn, bare = html_renderer.render(Document(title="t", about="", sections=(section,))).split('class="verdict ')[1:]
    assert "<b>3 ms</b>, limit 5 ms" in drawn, "`3 ms ≤ 5 ms` under a FAIL reads as true"
    assert drawn.index('<details class="why">') < drawn.index("<li>read: 3 ms</li>") < drawn.index('<svg class="claim"')
    assert bare.index('<details class="why">') < bare.index("<li>note: busy</li>") < bare.index("read: 3 ms</p>")
    several = replace(section, blocks=(Outcomes((replace(one, claims=(claim, claim)),)),))
    page = html_renderer.render(Document(title="t", about="", sections=(several,)))
    assert page.count("&lt;img") and "<img" not in page
