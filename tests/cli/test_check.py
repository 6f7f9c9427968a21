"""The commands `check`, `explain` and `schema`: exit codes, messages, no heavy imports, no files written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rich.cells import cell_len

from proveout import __version__
from proveout.cli import VERBS, execute
from proveout.cli.options import describe, show_error
from proveout.core.errors import PlanError, PlanProblem, ProveoutError, Where
from proveout.core.numbers import safe_lines

ROOT = Path(__file__).parents[2]
PLAN = "plans/hlr-cache-embedded.yaml"
PAUSES = """\
proveout: 1
name: t
topology: {hosts: {h: {roles: [client], address: local}}}
stages: [{pause: {duration: 1s}}]
"""


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_check_of_a_valid_plan_also_with_an_inventory(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["check", PLAN]) == 0
    assert capsys.readouterr().out.startswith(f"{PLAN}: fine (6 stages, 4 verdicts, sha256:")
    assert execute(["check", "plans/smoke.yaml", "-i", "plans/inventories/one-server.yaml"]) == 0
    assert execute(["check", "plans/smoke.yaml", "-i", "plans/inventories/nowhere.yaml"]) == 2
    assert "plans/inventories/nowhere.yaml: cannot read the file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ("plans/smok.yaml", "did you mean `plans/smoke.yaml`"),
        ("plans/starters", "did you mean `plans/starters/analytics.yaml` or `plans/starters/cache.yaml`"),
        ("postgresql://bench@localhost/shop", "`proveout bench DSN` measures a database without a plan"),
    ],
)
def test_the_message_about_a_missing_plan_names_what_was_meant(
    named: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["check", named]) == 2
    assert hint in capsys.readouterr().err


NOTED = """
proveout: 1
name: tiny
title: A percentile of few transactions
topology:
  hosts:
    box: {roles: [server, client], address: local}
  systems:
    db: {engine: sqlite, host: box, provision: embedded}
workloads:
  hlr: {kind: hlr, population: 100}
stages:
  - populate: {workload: hlr, into: db}
  - ladder: {id: base, workload: hlr, target: db, threads: [2], rate: 100/s, measure: MEASURE, repeat: REPEAT}
verdicts:
"""
FAR = """
  - {id: far, check: base.at(2).response.p999_us.upper < ms(50)}
  - {id: near, check: base.at(2).response.p99_us.upper < ms(50)}
  - {id: no-errors, check: base.at(2).errors.count.mean == 0}
"""
MEANS = """
  - {id: response, check: base.at(2).response.p99_us.mean < ms(50) && base.at(2).tps > 1}
  - {id: factor, check: "ratio(base.peak.tps, base.at(2).tps).median > 1"}
  - {id: counted, check: base.at(2).errors.count.mean == 0 && base.at(2).errors.fraction.mean < 0.001}
  - {id: warned, severity: warn, check: base.at(2).tps.mean > 1}
  - {id: bounded, check: base.at(2).tps.lower > 1}
"""


@pytest.mark.parametrize(
    ("verdicts", "measure", "repeat", "notes"),
    [
        (
            FAR, "5s", 3,
            (
                "verdict `far` cannot be decided by 3 repeats of `base`: an interval of `p999_us` takes 6",
                "verdict `far` reads p99.9 of `base`, whose window holds 500 transactions: less than one lies beyond",
            ),
        ),
        (FAR, "10s", 6, ()),
        (
            FAR, "10s", 1,
            ("verdict `far` cannot be decided by 1 repeat of `base`", "verdict `near` cannot be decided by 1 repeat"),
        ),
        (
            MEANS, "5s", 3,
            (
                "verdict `response` reads `.mean` of the measured number `base.at(2).response.p99_us`: at its limit",
                "verdict `factor` reads `.median` of the measured number `ratio(base.peak.tps, base.at(2).tps)`",
            ),
        ),
        ("", "2s, ramp_up: 500ms", 3, ("a measure window of 2s after 500ms of ramp-up has 1 whole second, 3 times",)),
        ("", "5s, ramp_up: 0s", 1, ()),
    ],
)  # fmt: skip
def test_check_notes_what_a_run_could_not_show(
    verdicts: str,
    measure: str,
    repeat: int,
    notes: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Repeats and windows too few for an interval, for a percentile and for steady state; means where bounds decide."""
    plan = tmp_path / "tiny.yaml"
    text = (NOTED + verdicts) if verdicts else NOTED.partition("verdicts:")[0]
    plan.write_text(text.replace("MEASURE", measure).replace("REPEAT", str(repeat)))
    assert execute(["check", str(plan)]) == 0
    err = capsys.readouterr().err
    assert [note for note in notes if note not in err] == [], err
    assert err.count("note: ") == len(notes), err


def test_check_notes_ladders_that_are_compared_and_do_not_take_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, ladder = tmp_path / "tiny.yaml", NOTED.partition("  - ladder")[2].partition("verdicts:")[0]
    verdict = 'verdicts:\n  - {id: faster, check: "ratio(after.at(2).tps, base.at(2).tps).lower > 1"}\n'
    for turns, note in (("", True), ("order: interleaved, with: base, ", False)):
        second = f"  - ladder{ladder.replace('id: base, ', f'id: after, {turns}')}"
        text = NOTED.partition("verdicts:")[0] + second + verdict
        plan.write_text(text.replace("MEASURE", "5s").replace("REPEAT", "3"))
        assert execute(["check", str(plan)]) == 0
        shown = capsys.readouterr().err
        assert ("verdict `faster` compares after and base, not interleaved: drift is not" in shown) is note, shown
        assert ("put after directly behind base, with `order: interleaved` and `with: base`" in shown) is note


def test_check_continues_after_a_bad_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("proveout: 1\nnam: x\n")
    assert execute(["check", str(bad), "plans/smoke.yaml"]) == 2
    captured = capsys.readouterr()
    assert "plans/smoke.yaml: fine" in captured.out
    assert f"{bad}:2:1: unknown key `nam`" in captured.err
    assert "did you mean `name`?" in captured.err
    brings = tmp_path / "brings.yaml"
    brings.write_text(f"{PAUSES}report: {{with: [absent.html]}}\n")
    assert execute(["check", str(brings), "plans/smoke.yaml"]) == 2
    captured = capsys.readouterr()
    assert "plans/smoke.yaml: fine" in captured.out
    assert f"{brings}: {tmp_path}/absent.html: No such file" in captured.err
    assert execute(["explain", str(bad)]) == 2
    explained = capsys.readouterr()
    assert explained.out == "" and "unknown key `nam`" in explained.err


def test_check_of_a_file_that_is_not_a_plan_is_one_problem(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "compose.yaml"
    other.write_text("version: '3'\nservices:\n  db: {image: postgres}\nsecrets: {a: {file: a}}\n")
    assert execute(["check", str(other)]) == 2
    shown = capsys.readouterr().err
    assert "this is not a plan of proveout: it has `version`, and no `proveout` and no `stages`" in shown
    assert "`proveout new` writes one" in shown and "1 problem\n" in shown


def test_check_applies_parameters_and_reports_wrong_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["check", "-p", "measure=2s", "-p", "threads=[4, 8]", PLAN]) == 2  # verdict `charts` reads at(1)
    shown = capsys.readouterr().err
    assert "-p threads: [4, 8] leaves out rungs that the plan reads: 1 (line " in shown
    assert "add them: -p threads=1,4,8" in shown and "1 problem" in shown
    assert execute(["check", "-p", "threads=1,4", "-p", "subscribers=1_000", PLAN]) == 0
    assert execute(["check", "-p", "measure=10", PLAN]) == 2
    assert "-p measure: expected a duration" in capsys.readouterr().err
    assert execute(["check", "-p", "subscribers=no", PLAN]) == 2
    assert execute(["check", "-p", "nothing=1", PLAN]) == 2
    assert "the plan has no parameter `nothing`" in capsys.readouterr().err


def test_check_names_the_policy_that_the_programs_of_a_plan_need(capsys: pytest.CaptureFixture[str]) -> None:
    own = "plans/pgbench-embedded.yaml"
    assert execute(["check", own, "plans/hlr-client-lab.yaml"]) == 0
    out = capsys.readouterr().out
    assert f"needs a policy (proveout run {own} --policy FILE) that has under `commands`:" in out
    assert "client1: needs" in out
    assert (
        "- {path: /path/of/pgbench, arguments: [--select-only, --protocol=prepared, '--client={count}', --jobs=1,"
        in out
    )
    assert "cache1: needs a policy (/etc/proveout/policy.yaml of the host)" in out
    assert execute(["check", "plans/smoke.yaml"]) == 0
    assert "policy" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [[], ["chek"], ["check"], ["check", "--nothing", PLAN], ["check", PLAN, "-p", "x"], ["explain", PLAN, PLAN]],
)
def test_a_wrong_command_line_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(arguments) == 2
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    assert captured.out + captured.err


@pytest.mark.parametrize("arguments", [
    "report latest --format png", "report latest --csv a.csv --with b.html", "watch --port 80",
    "runs --parquet a --environment latest", "bench --again --time 5m", "bench --again --sql x", "new ladder --write",
    "ceiling absent.yaml --engine mysql", "ceiling nothing -p a=1", "doctor --pki x", "prove sqlite a.db --sink b",
    "versus a b --plan a.yaml --scale 3", "agent --check-policy a --print-unit", "compare a b --quiet --full",
    "deploy -i a --remove --no-service", "pki init a --days nan", "pki invite a db1 --minutes nan",
    "pki serve a --listen 127.0.0.1:99999", "agent --pki a --listen nonsense",
    "pki invite a db1 --authority lead.lab",
])  # fmt: skip
def test_an_option_that_would_mean_nothing_is_refused(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    option = [word for word in arguments.split() if word.startswith("-")][-1]
    assert execute(arguments.split()) == 2
    assert f"Invalid value for {'--environment' if 'runs' in arguments else option}: " in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples_and_there_is_a_version(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([verb, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"  proveout {verb}" in out.partition("Examples:")[2]
    assert "[[" not in out.partition("\n")[0], "one pair of brackets for what may be left out"
    assert execute(["--version"]) == 0
    assert capsys.readouterr().out == f"proveout {__version__}\n"


def test_a_plan_whose_path_is_not_utf_8_is_refused_before_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, runs = tmp_path / os.fsdecode(b"caf\xe9.yaml"), tmp_path / "runs"
    plan.write_text(PAUSES)
    assert execute(["run", str(plan), "--headless", "--runs-dir", str(runs)]) == 2
    assert "the path is not UTF-8\n  Rename the file" in capsys.readouterr().err
    other = plan.rename(tmp_path / "cafe.yaml")
    assert execute(["run", str(other), "--headless", "--runs-dir", os.fsdecode(bytes(runs) + b"\xe9")]) == 2
    assert "the path is not UTF-8\n  Rename the file" in capsys.readouterr().err
    for option in ("--label", "-p"):
        assert execute(["run", str(other), "--headless", "--runs-dir", str(runs), option, os.fsdecode(b"a=\xe9")]) == 2
        assert "'a=\\udce9' is not UTF-8" in capsys.readouterr().err
    assert not [*tmp_path.glob("runs*")]


def test_an_expected_failure_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost(*_: object, **__: object) -> None:
        raise ProveoutError("the agent is gone", where="db1", way_out="start it again")

    monkeypatch.setattr("proveout.dsl.compile.compiler.compile_with_notes", lost)
    assert execute(["check", PLAN]) == 4
    assert capsys.readouterr().err == "error: db1: the agent is gone\n  start it again\n"


def test_an_interrupt_is_said_and_ends_with_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("proveout.dsl.compile.compiler.compile_with_notes", interrupted)
    assert execute(["check", PLAN]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("before", ["a: ", "\t\ta: ", "title: 日本語, a: ", "\x1b[2J: "])
def test_the_caret_is_below_what_is_wrong(before: str) -> None:
    where = Where(file="a.yaml", line=3, column=len(before) + 1)
    _, line, caret = describe(PlanProblem(message="m", where=where, source_line=f"{before}wrong: 1")).splitlines()
    assert cell_len(line.partition("wrong")[0]) == cell_len(caret.partition("^")[0])


def test_untrusted_text_does_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert safe_lines("a\x1b[31m\u202eb\x9b\nc") == "a\\x1b[31m\\u202eb\\x9b\nc"
    problem = PlanProblem(message="\x1b]0;x\x07", where=Where(file="p\x1b", line=1, column=2), source_line="\x1b[2J")
    show_error(PlanError((problem,)))
    assert "\x1b" not in capsys.readouterr().err


def test_explain_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["explain", "--json", PLAN]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [stage["id"] for stage in table["stages"]] == ["load", "baseline", "cap", "level", "uncached", "cached"]
    assert [stage["iterations"] for stage in table["stages"]] == [0, 9, 60, 0, 5, 5]
    assert table["digest"].startswith("sha256:")
    assert 60 < table["seconds"] < 200
