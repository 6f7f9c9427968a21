"""Reports of others beside a run: their tables, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from records import run_started

from proveout.cli import outputs
from proveout.coordinator.report import brought_in
from proveout.coordinator.report.document import Paragraph, Table
from proveout.coordinator.report.run_document import page_document
from proveout.coordinator.results.results import load_results
from proveout.coordinator.storage import run_directory
from proveout.dsl.compile.compiler import compile_plan

# The forms are those of the vendors' documentation: Oracle Database Performance Tuning Guide, spdoc.txt, sar(1).
AWR = """<html><body><h1>WORKLOAD REPOSITORY report</h1>
<table summary="This table displays database instance information"><tr><th>DB Name</th><th>Unique Name</th></tr>
<tr><td>HLR</td><td>hlr</td></tr></table>
<h3>Load Profile</h3><table border="0" summary="This table displays load profile"><tr><th></th><th>Per Second</th></tr>
<tr><td>DB Time(s):</td><td align="right">12.4</td></tr><tr><td>Redo size (bytes):</td><td>9,876.5</td></tr></table>
<h3>Top 10 Foreground Events by Total Wait Time</h3>
<table summary="This table displays top 10 wait events by total wait time"><tr><th>Event</th><th>Waits</th><th>% DB time</th></tr>
<tr><td>log file sync</td><td>1,234</td><td>65.9</td></tr><tr><td>DB CPU</td><td>&#160;</td><td>5.4</td></tr></table>
<h3>Segments by Physical Writes</h3><table summary="This table displays top segments"><tr><th>Owner</th></tr><tr><td>X</td></tr></table>
"""
STATSPACK = """
Load Profile              Per Second    Per Transaction
~~~~~~~~~~~~      ------------------  -----------------
      DB time(s):               12.4                0.1
       Redo size:            9,876.5              321.0

Top 5 Timed Events                                                    Avg %Total
~~~~~~~~~~~~~~~~~~                                                   wait   Call
Event                                            Waits    Time (s)   (ms)   Time
----------------------------------------- ------------ ----------- ------ ------
log file sync                                    1,234       5,678      5   65.9
CPU time                                                       100           5.4
          -------------------------------------------------------------
"""
SAR = """Linux 5.4.17 (rac2) \t11/28/20 \t_x86_64_\t(40 CPU)

10:00:01 AM     CPU     %user     %nice   %system   %iowait    %steal     %idle
10:01:01 AM     all      8.10      0.00      2.90      1.30      0.00     87.70
Average:        all      8.10      0.00      2.90      1.30      0.00     87.70
"""


def tables(text: str) -> dict[str, Table]:
    return {table.title: table for table in brought_in.parsed(text)[1]}


def test_an_awr_report_has_its_load_profile_and_its_top_events() -> None:
    found = tables(AWR)
    assert list(found) == ["WORKLOAD REPOSITORY report", "Load Profile", "Top 10 Foreground Events by Total Wait Time"]
    assert found["Load Profile"].rows == (("DB Time(s):", "12.4"), ("Redo size (bytes):", "9,876.5"))
    events = found["Top 10 Foreground Events by Total Wait Time"]
    assert events.heads == ("Event", "Waits", "% DB time")
    assert events.rows[0] == ("log file sync", "1,234", "65.9")
    assert tables('<table summary="load profile"><tr></tr><tr></tr></table>') == {}, "no cell"


def test_a_statspack_report_has_the_same_by_the_columns_of_its_dashes() -> None:
    found = tables(STATSPACK)
    assert found["Load Profile"].rows[0] == ("DB time(s):", "12.4", "0.1")
    assert found["Top 5 Timed Events"].rows == (
        ("log file sync", "1,234", "5,678", "5", "65.9"),
        ("CPU time", "", "100", "", "5.4"),
    )


def test_sar_has_its_averages() -> None:
    kind, (table,) = brought_in.parsed(SAR)
    assert (kind, table.heads[:2]) == ("sar", ("CPU", "%user"))
    assert table.rows == (("all", "8.10", "0.00", "2.90", "1.30", "0.00", "87.70"),)


def test_what_is_left_out_of_a_large_report_is_said(tmp_path: Path) -> None:
    lines = SAR.splitlines()
    processors = [f"Average:        {number:3}{lines[-1][19:]}" for number in range(40)]
    (found,) = tables("\n".join([*lines, *processors])).values()
    assert (found.title, len(found.rows)) == ("averages, the first 20 of 41 rows", 20)
    heads = [f"10:00:01 AM  {'  '.join(f'h{part}_{at}' for at in range(part))}" for part in range(1, 15)]
    averages = [f"Average:  {'  '.join(['1.00'] * part)}" for part in range(1, 15)]
    text = "\n".join(line for pair in zip(heads, averages, strict=True) for line in pair)
    (tmp_path / "sar.txt").write_text(text)
    about, *shown = brought_in.section([tmp_path / "sar.txt"]).blocks
    assert isinstance(about, Paragraph) and about.text.endswith("sar sar.txt, the first 12 of 14 tables")
    assert list(tables(text))[-1] == "averages, the first 12 of 14 columns" and len(shown) == 12


def test_a_section_says_what_was_brought_in_and_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sar.txt").write_text(SAR)
    first, *_ = brought_in.section([tmp_path / "sar.txt"]).blocks
    assert first == Paragraph("Brought in, not measured by proveout: sar sar.txt")
    (tmp_path / "note.txt").write_text("nothing here\n")
    with pytest.raises(brought_in.NotReadable, match="has no table that proveout knows"):
        brought_in.section([tmp_path / "note.txt"])
    with pytest.raises(brought_in.NotReadable, match="No such file"):
        brought_in.section([tmp_path / "absent.html"])


def test_a_file_that_the_plan_names_is_kept_with_the_run_and_is_at_the_end_of_its_report(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"  # the name of the compiled plan in a run directory
    plan.write_text(PLAN)
    (tmp_path / "sar.txt").write_text(SAR)
    compiled = compile_plan(plan)
    directory = run_directory.create(tmp_path / "runs", compiled, run_directory.Command(plan=str(plan)), NOW)
    (tmp_path / "sar.txt").unlink()
    results = load_results([run_started({"brought_in": list(compiled.brought_in)})])
    (found,) = outputs.brought_in_by(results, directory)
    assert found.blocks[0] == Paragraph("Brought in, not measured by proveout: sar sar.txt")
    assert "87.70" in str(outputs.renderers(directory)["markdown"](results))
    assert repr(PLAN) in str(page_document(results, directory).sections)
    assert outputs.brought_in_by(load_results([run_started({})]), directory) == ()


NOW = datetime(2026, 11, 28, tzinfo=UTC)
PLAN = """
proveout: 1
name: t
topology: {hosts: {h: {roles: [client], address: local}}}
stages: [{pause: {duration: 1s}}]
report: {with: [sar.txt]}
"""
