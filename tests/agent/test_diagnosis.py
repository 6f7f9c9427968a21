"""Contents of /proc and /sys -> findings of `doctor`; and the findings on this machine."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from proveout.agent import diagnosis
from proveout.agent.engines.mysql import provision as embedded_mysql

PAGES = "sys/kernel/mm/transparent_hugepage/enabled"
GOVERNOR = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
FILES = {
    "proc/stat": "cpu  800 0 100 9000 50 0 0 50 0 0\ncpu0 1 2 3\n",
    "proc/loadavg": "0.00 0.10 0.20 1/100 4711\n",
    "proc/meminfo": "MemTotal: 1 kB\nHugePages_Total:     512\nHugePages_Free:      500\nHugepagesize:       2048 kB\n",
    PAGES: "always [madvise] never\n",
    GOVERNOR: "performance\n",
}


def looked(root: Path, changed: dict[str, str]) -> dict[str, diagnosis.Finding]:
    for name, text in {**FILES, **changed}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {one.name: one for one in diagnosis.machine(root)}


def test_a_well_configured_machine_has_no_notes(tmp_path: Path) -> None:
    found = looked(tmp_path, {})
    for name in ("steal", "load", "huge pages", "transparent huge pages", "governor"):
        assert found[name].state == "ok", found[name]
        assert not found[name].way_out
    assert found["steal"].detail == "0.50% of CPU time since boot"
    assert found["huge pages"].detail == "512 of 2048 KiB, 500 free"


@pytest.mark.parametrize(
    ("file", "text", "name", "detail"),
    [
        ("proc/stat", "cpu  800 0 100 8000 50 0 0 1050\n", "steal", "10.50% of CPU time since boot"),
        ("proc/loadavg", "900.00 1 1 1/1 1\n", "load", "900.00 processes"),
        (PAGES, "[always] madvise never\n", "transparent huge pages", "always"),
        (GOVERNOR, "powersave\n", "governor", "powersave"),
    ],
)
def test_settings_that_distort_measurements_are_noted_with_the_remedy(
    tmp_path: Path, file: str, text: str, name: str, detail: str
) -> None:
    found = looked(tmp_path, {file: text})[name]
    assert found.state == "note"
    assert detail in found.detail
    assert found.way_out


def test_missing_facts_give_no_findings(tmp_path: Path) -> None:
    names = {one.name for one in diagnosis.machine(tmp_path / "empty")}
    assert names == {"machine", "clock", "open files"}


@pytest.mark.parametrize(
    ("status", "maxerror_us", "state", "detail"),
    [
        (0x2001, 12_000, "ok", "synchronized, at most 12.0 ms off, by estimate 0.3 ms"),
        (0x0040, 16_000_000, "note", "not synchronized"),
        (0x2001, 900_000, "note", "synchronized, but at most 900.0 ms off, by estimate 0.3 ms"),
    ],
)
def test_the_clock_is_judged_by_the_kernel_s_status(status: int, maxerror_us: int, state: str, detail: str) -> None:
    found = diagnosis.clock_finding(status, maxerror_us, 300)
    assert (found.state, found.detail) == (state, detail)
    assert bool(found.way_out) == (state == "note")


def test_a_folder_for_runs_may_be_missing_but_must_be_writable(tmp_path: Path) -> None:
    assert diagnosis.runs_folder(tmp_path / "a" / "b").state in ("ok", "note")
    (tmp_path / "file").write_text("")
    found = diagnosis.runs_folder(tmp_path / "file" / "runs")
    assert (found.state, found.way_out) == ("missing", "name another with --runs-dir")


def test_extras_are_those_of_the_package_with_their_dependencies(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = [
        "numpy>=2.0",
        'psycopg[binary]>=3.2; extra == "postgres"',
        'proveout[postgres]; extra == "embedded"',
        'no-such-package>=1; extra == "embedded"',
        'pytest>=8; extra == "dev"',
    ]
    monkeypatch.setattr(metadata, "requires", lambda name: requires)
    assert diagnosis.installable() == {"postgres": ("psycopg",), "embedded": ("psycopg", "no-such-package")}
    found = {one.name: one for one in diagnosis.equipment()}
    assert found["extra postgres"].state == "ok"
    assert found["extra embedded"].state == "absent"
    assert "no-such-package not installed" in found["extra embedded"].detail
    assert found["extra embedded"].way_out == "pip install 'psycopg[binary]>=3.2' 'no-such-package>=1'"


def test_an_absent_server_is_missing_when_the_plan_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(embedded_mysql, "FOLDERS", ())
    found = diagnosis.starts("mysql", None)
    assert found is not None
    assert found.state == "missing"
    assert "mariadb-server" in found.way_out
    assert diagnosis.starts("sqlite", None) is None
    assert diagnosis.drives("sqlite").state == "ok"
    assert diagnosis.drives("nosuch").state == "missing"


def test_this_machine_gives_findings() -> None:
    found = [*diagnosis.program(), *diagnosis.machine(), *diagnosis.measured()]
    assert {"proveout", "hot path", "machine", "clock", "open files"} <= {one.name for one in found}
    assert all(one.detail for one in found)
