"""The arguments and the environment of a load generator (shares of hosts, windows, rates, key ranges, its target); its outputs ->
windows, seconds, latencies and numbers; the files in its folder.

The texts of HammerDB are made after its sources; no HammerDB ran for them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import psutil
import pytest

from proveout.agent.capture.query_values import NoValue
from proveout.agent.errors import TaskFault
from proveout.agent.sandbox.privileges import INHERITED
from proveout.agent.security.policy import Policy, Tool
from proveout.agent.tools import generator
from proveout.agent.tools.generator import PASSWORD_FILE, address, checked, load_fields, variables
from proveout.agent.tools.generator_output import Measured, _seconds, declared, numbers, pgbench, sysbench
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Workload
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.program import BUILT_IN_VALUES, FIELDS, Program
from proveout.proto.wire.tasks import Endpoint, LoadShare, RunLoad

FOLDER = Path("/run/tool")
KEY = "run-1/ladder/8/3/1/load/client2"
POSTGRES = Endpoint(system="db", engine="postgres", dsn="host=db1 port=5433 dbname=hlr user=u password='s e'")
LADDER = Windows(ramp_up_s=60.0, measure_s=120.0, ramp_down_s=30.0)


def task(model: Program, endpoint: Endpoint = POSTGRES, windows: Windows = LADDER, **share: Any) -> RunLoad:
    return RunLoad(
        workload=Workload(name="w", kind="program", parameters=to_values(model)),
        endpoint=endpoint,
        share=LoadShare(**{"first": 6, "count": 2, "total": 8, **share}),
        windows=windows,
        workers=0,
        seed=7,
        label="l",
    )


def fields(*argv: str, endpoint: Endpoint = POSTGRES, **more: Any) -> Mapping[str, str]:
    share = {name: more.pop(name) for name in ("rate",) if name in more}
    model = Program(argv=["client", "{threads}", "{measure_s}", *argv], output="hammerdb", **more)
    spec = task(model, endpoint, **share)
    checked(spec, model)
    return load_fields(KEY, spec, model, address(endpoint), folder=FOLDER, seconds=179.5)


def test_every_field_has_a_value() -> None:
    found = fields("{range_from}", "{range_to}", "{rate}", range=[1, 1000], rate=100.0)
    assert {*found} == {*FIELDS}
    expected = {
        "threads": "2", "total_threads": "8", "first_thread": "6", "rate": "25", "total_rate": "100",
        "range_from": "751", "range_to": "1000", "seconds": "180", "ramp_up_s": "60", "measure_s": "120",
        "ramp_down_s": "30", "ramp_up_min": "1", "measure_min": "2", "stage": "ladder", "rung": "8", "repeat": "3",
        "attempt": "1", "seed": "7", "host": "db1", "port": "5433", "user": "u", "database": "hlr", "socket": "",
        "connect_string": "", "password_file": "/run/tool/password",
    }  # fmt: skip
    assert found == expected


def test_shares_of_a_range_are_disjoint_and_whole() -> None:
    model = Program(
        argv=["c", "{threads}", "{seconds}", "{range_from}", "{range_to}"], output="pgbench", range=[5, 104]
    )
    parts = []
    for first, count in ((0, 1), (1, 2), (3, 4)):
        spec = task(model, first=first, count=count, total=7)
        found = load_fields(KEY, spec, model, address(POSTGRES), folder=FOLDER, seconds=1.0)
        parts.append((int(found["range_from"]), int(found["range_to"])))
    assert parts == [(5, 18), (19, 46), (47, 104)]


@pytest.mark.parametrize(
    ("engine", "dsn", "expected", "variable"),
    [
        (
            "mysql",
            "mysql://u:p%40w@db1:3307/hlr?unix_socket=/run/m.sock",
            {"host": "db1", "port": "3307", "user": "u", "database": "hlr", "socket": "/run/m.sock"},
            ("MYSQL_PWD", "p@w"),
        ),
        (
            "oracle",
            "hlr/p/w@//rac1:1522/HLR1",
            {"host": "rac1", "port": "1522", "user": "hlr", "database": "HLR1", "connect_string": "//rac1:1522/HLR1"},
            ("LOAD_PASSWORD", "p/w"),
        ),
        ("oracle", "hlr/pw@ALIAS", {"host": "", "connect_string": "ALIAS"}, ("LOAD_PASSWORD", "pw")),
        ("sqlite", "/data/a?b=1/x?.db", {"database": "/data/a?b=1/x?.db"}, ("LOAD_FOLDER", "/run/tool")),
        ("duckdb", "/data/a?b/x.db?threads=2", {"database": "/data/a?b/x.db"}, ("LOAD_FOLDER", "/run/tool")),
        ("none", "none", {"database": ""}, ("LOAD_THREADS", "2")),
    ],
)
def test_the_target_of_each_engine(
    engine: str, dsn: str, expected: Mapping[str, str], variable: tuple[str, str]
) -> None:
    endpoint = Endpoint(system="db", engine=engine, dsn=dsn)
    found = fields(endpoint=endpoint)
    assert {name: found[name] for name in expected} == expected
    name, value = variable
    assert variables(found, address(endpoint), FOLDER)[name] == value
    assert value not in found.values() or not name.endswith(("PASSWORD", "PWD"))


def test_tasks_that_a_program_cannot_run_are_refused() -> None:
    alias = Endpoint(system="rac", engine="oracle", dsn="hlr/pw@ALIAS")
    with pytest.raises(TaskFault, match=r"the field \{host\} has no value: the dsn of system 'rac'"):
        fields("{host}", endpoint=alias)
    with pytest.raises(TaskFault, match="belong together"):
        fields(rate=10.0)
    with pytest.raises(TaskFault, match="belong together"):
        fields("{rate}")
    model = Program(argv=["hammerdbcli"], output="hammerdb")
    with pytest.raises(TaskFault, match="whole minutes"):
        checked(task(model, windows=Windows(ramp_up_s=30.0, measure_s=60.0, ramp_down_s=0.0)), model)


@pytest.mark.server
async def test_the_program_of_a_ramp_up_ends_where_that_of_the_window_cannot_start(
    task_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generator, "_unprivileged", lambda: INHERITED)
    task_context.policy = Policy(commands=(Tool(path="/bin/sleep", arguments=("2", "60")),))
    model = Program(argv=["/bin/sleep", "{threads}", "{seconds}"], output="sysbench")
    with pytest.raises(TaskFault, match="the argument '120' of the command /bin/sleep"):
        await generator.run_generator(task_context, task(model))
    children = [" ".join(child.cmdline()) for child in psutil.Process().children()]
    assert not [line for line in children if "program_launcher" in line]


@pytest.mark.server
@pytest.mark.parametrize("code", [0, 1])
async def test_the_password_that_a_program_writes_is_not_shown_and_of_a_long_output_both_ends_are_kept(
    code: int, task_context: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def started() -> int:
        return time.monotonic_ns()

    task_context.started, task_context.armed = started, lambda: None
    monkeypatch.setattr(generator, "_unprivileged", lambda: INHERITED)
    script = tmp_path / "client"
    filler = "" if code else "head -c 2000000 /dev/zero | tr '\\0' '\\n'"
    script.write_text(f'#!/bin/sh\necho "password: $PGPASSWORD"\n{filler}\necho "tps: 7"\nexit {code}\n')
    script.chmod(0o755)
    task_context.policy = Policy(commands=(Tool(path=str(script), arguments=("{count}",)),))
    form = {"format": "pairs"}
    model = Program(argv=[str(script), "{threads}", "{seconds}"], output=form, metrics={"tps": {}})
    windows = Windows(ramp_up_s=0.0, measure_s=0.1, ramp_down_s=0.0)
    try:
        written = (await generator.run_generator(task_context, task(model, windows=windows))).output
    except TaskFault as fault:
        written = fault.what
    assert "password: ***" in written and "s e" not in written
    assert code or (written.endswith("tps: 7\n") and " are left out here]" in written and len(written) < 1_100_000)


async def test_the_cpu_time_of_a_window_is_not_that_of_its_ramp_up(task_context: Any) -> None:
    """Each program counts from 0: between two of them there is nothing to interpolate."""

    async def of(answer: object) -> Any:
        return answer

    model = Program(argv=["client", "{threads}", "{seconds}"], output="sysbench")
    made = generator._Generator(task_context, task(model), model, cast(Any, None))
    made._cpu.append((0, 9.8, 2))
    ended = SimpleNamespace(
        go=lambda: of(None), output=lambda _: of(b""), ended=lambda: of(0), pid=os.getpid(), words=""
    )
    await made._ended(cast(Any, ended), 1.0)
    assert (0, 9.8, 2) not in made._cpu


# ---- outputs ---------------------------------------------------------------------------------------------------------

S = 1_000_000_000
T0_NS = 50 * S
AHEAD_NS = 1_000_000 * S
WINDOWS = Windows(ramp_up_s=1.0, measure_s=2.0, ramp_down_s=0.0)


def line(after_s: float, took: str = "500") -> bytes:
    """A transaction that ended `after_s` after T0."""
    at_us = round(((T0_NS + AHEAD_NS) / S + after_s) * 1e6)
    return f"0 1 {took} 0 {at_us // 1_000_000} {at_us % 1_000_000}\n".encode()


def test_the_ramp_up_is_cut_from_a_log_of_pgbench() -> None:
    times = [0.2, 0.9, 1.0, 1.5, 2.4, 2.999999, 3.0, 3.2]
    first, second = b"".join(map(line, times[::2])), b"".join(map(line, times[1::2]))
    found = pgbench([first, second], WINDOWS, T0_NS, AHEAD_NS)
    assert found.load.counts.ok == found.load.ended == 4
    assert (found.start_ns, found.end_ns) == (T0_NS + S, T0_NS + 3 * S)
    assert found.load.response.sum_ns == 4 * 500_000
    assert found.load.response.min_ns == found.load.response.max_ns == 500_000
    assert [one.window for one in found.seconds] == ["ramp_up", "measure", "measure"]
    assert [one.transactions[0].counts.ok for one in found.seconds] == [2, 2, 2]
    found = pgbench([first, second], replace(WINDOWS, measure_s=1.5), T0_NS, AHEAD_NS)
    assert [(one.transactions[0].counts.ok, one.duration_s) for one in found.seconds] == [(2, 1.0), (2, 1.0), (1, 0.5)]


def test_a_second_without_transactions_counts_and_failed_ones_have_no_latency() -> None:
    found = pgbench([line(0.1) + line(2.5)], WINDOWS, T0_NS, AHEAD_NS)
    assert [one.transactions[0].counts.ok for one in found.seconds] == [1, 0, 1]
    found = pgbench([line(1.5) + line(1.6, "serialization") + line(1.7, "failed")], WINDOWS, T0_NS, AHEAD_NS)
    assert found.load.counts.ok == 1
    assert found.load.counts.error_count == 2
    assert sum(found.load.response.counts) == 1


def test_the_seconds_of_a_long_run_are_made_in_one_pass() -> None:
    """With a look at every transaction for every second, this test would take minutes."""
    windows = Windows(ramp_up_s=0.0, measure_s=50_000.0, ramp_down_s=0.0)
    ended, took = np.arange(4_000_000), np.ones(4_000_000, dtype=np.int64)
    ended[-1] = 49_999 * S
    found = [one.transactions[0].counts.ok for one in _seconds(ended, took, windows, T0_NS)]
    assert found == [3_999_999, *[0] * 49_998, 1]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", "no transactions"),
        ("0 1 2\n", "line 1 of its log"),
        ("0 1 2 0 x y\n", "line 1"),
        (f"0 1 2 0 {2**63} 0\n", "line 1"),
        ("1345828501 5601 1542744 483552416 61 2573\n", "aggregate-interval"),
    ],
)
def test_another_log_is_a_fault(log: str, words: str) -> None:
    with pytest.raises(TaskFault, match=words):
        pgbench([log.encode()], WINDOWS, T0_NS, AHEAD_NS)


SYSBENCH = """
[ 1s ] thds: 4 tps: 2.00 qps: 2.00 (r/w/o: 2.00/0.00/0.00) lat (ms,95%): 2.00 err/s: 0.00 reconn/s: 0.00
[ 2s ] thds: 4 tps: 1.00 qps: 1.00 (r/w/o: 1.00/0.00/0.00) lat (ms,95%): 8.00 err/s: 1.00 reconn/s: 0.00
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       1.012 |****************************************  2
       8.130 |*******                                   1

SQL statistics:
    transactions:                        3 (1.50 per sec.)
    ignored errors:                      1      (0.50 per sec.)

General statistics:
    total time:                          2.0054s

Latency (ms):
         min:                                    1.00
         avg:                                    3.33
         max:                                    8.20
         95th percentile:                        8.13
         sum:                                   10.00
"""


def test_a_run_of_sysbench_is_the_measure_window() -> None:
    start_ns = T0_NS + S + 5_000_000
    found = sysbench(SYSBENCH, T0_NS, start_ns)
    assert found.load.counts.ok == 3 and found.load.counts.error_count == 1
    assert found.start_ns == start_ns
    assert found.end_ns - found.start_ns == pytest.approx(2.0054 * S)
    assert sum(found.load.response.counts) == 3
    assert (found.load.response.min_ns, found.load.response.max_ns) == (1_000_000, 8_200_000)
    assert found.load.response.sum_ns == 10_000_000
    assert [(one.second, one.transactions[0].counts.ok) for one in found.seconds] == [(1, 2), (2, 1)]


@pytest.mark.parametrize(("gone", "words"), [("total time:", "seconds"), ("|*", "histogram=on"), ("sum:", "sum_ms")])
def test_an_incomplete_report_is_a_fault(gone: str, words: str) -> None:
    text = "\n".join(line for line in SYSBENCH.splitlines() if gone not in line)
    with pytest.raises(TaskFault, match=words):
        sysbench(text, T0_NS, T0_NS)


def test_a_number_of_transactions_that_cannot_be_is_a_fault() -> None:
    with pytest.raises(TaskFault, match="output of sysbench: its number of transactions is impossible"):
        sysbench(SYSBENCH.replace("  1\n\nSQL", f"  {2**53}\n\nSQL"), T0_NS, T0_NS)


@pytest.mark.parametrize("number", ["1.2.3", ".", "9" * 400])
@pytest.mark.parametrize("of", ["2.00", "1.012", "2.0054", "10.00"])
def test_a_number_that_is_none_is_a_fault(of: str, number: str) -> None:
    with pytest.raises(TaskFault, match="cannot parse the output of sysbench"):
        sysbench(SYSBENCH.replace(of, number, 1), T0_NS, T0_NS)


@pytest.mark.parametrize("text", ["\n" * 2**20, "[ 1s ] thds: 1 tps: 1 " * 2**16])
def test_a_hostile_report_is_read_in_linear_time(text: str) -> None:
    """With backtracking, this test would take an hour."""
    assert sysbench(SYSBENCH + text, T0_NS, T0_NS).load.counts.ok == 3


def rung(folder: Path) -> generator._Generator:
    end = Endpoint(system="db", engine="postgres", dsn="host=db user=u password=word")
    spec, model = SimpleNamespace(endpoint=end), SimpleNamespace(argv=("pgbench",))
    of: Any = generator._Generator
    made: generator._Generator = of(None, spec, model, SimpleNamespace(path=folder))
    return made


@pytest.mark.parametrize("kind", ["pipe", "link", "hard link"])
def test_what_is_not_a_file_of_the_program_is_not_read(kind: str, tmp_path: Path) -> None:
    """A pipe without a writer blocks who opens it to read."""
    folder, secret = tmp_path / "folder", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("root's")
    for name in ("pgbench_log.1", "out.csv"):
        match kind:
            case "pipe":
                os.mkfifo(folder / name)
            case "link":
                (folder / name).symlink_to(secret)
            case _:
                os.link(secret, folder / name)
    (folder / "pgbench_log.2").write_text("a line")
    assert rung(folder)._logs() == [b"a line"]
    with pytest.raises(TaskFault, match=r"has left no file 'out\.csv'"):
        rung(folder)._file("out.csv")


def test_large_files_of_a_program_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "LOG_BYTES_MAX", 10)
    (tmp_path / "pgbench_log.1").write_text("seven")
    assert rung(tmp_path)._logs() == [b"seven"]
    (tmp_path / "pgbench_log.2").write_text("seven, and more")
    with pytest.raises(TaskFault, match=r"'pgbench_log\.2' is larger"):
        rung(tmp_path)._logs()


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_password_is_not_written_into_what_is_there(kind: str, tmp_path: Path) -> None:
    """Another process of the same user can open what it has made, and read the password."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.touch(mode=0o666)
    path = folder / PASSWORD_FILE
    path.symlink_to(other) if kind == "link" else path.touch(mode=0o666)
    with pytest.raises(TaskFault, match="was made by another program"):
        rung(folder)._write_password()
    assert path.read_text() == ""
    path.unlink()
    rung(folder)._write_password()
    assert path.read_text() == "word"
    assert path.stat().st_mode & 0o777 == 0o600


# ---- outputs whose columns the plan names ----------------------------------------------------------------------------------

UNIX_S = 1_700_000_000.0
LONGER = Windows(ramp_up_s=2.0, measure_s=3.0, ramp_down_s=1.0)
ARGV = ["client", "{threads}", "{measure_s}"]
LOG = "sec;tx;err;p90\n" + "".join(f"{second};{100 * second};{second};{second / 10}\n" for second in range(1, 7))


def read(text: str, /, *, start_ns: int = T0_NS, **parameters: Any) -> tuple[Measured, dict[str, float]]:
    model = Program(**{"argv": ARGV, **parameters})
    found, values = declared(text.encode(), model, LONGER, T0_NS, start_ns, unix_of_t0_s=UNIX_S)
    return found, dict(values)


def log(**more: Any) -> dict[str, Any]:
    return {"format": "csv", "separator": ";", "log": {"time": "sec", "transactions": "tx", "errors": "err", **more}}


def test_the_ramps_are_cut_from_a_log() -> None:
    metrics = {"p90_ms": {"column": "p90", "take": "max"}, "rows": {"column": "tx", "take": "last"}}
    found, values = read(LOG, output=log(), metrics=metrics)
    assert found.load.counts.ok == 300 + 400 + 500
    assert found.load.counts.error_count == 3 + 4 + 5
    assert (found.start_ns, found.end_ns) == (T0_NS + 2 * S, T0_NS + 5 * S)
    assert values == {"p90_ms": 0.5, "rows": 500.0}
    assert [one.window for one in found.seconds] == ["ramp_up"] * 2 + ["measure"] * 4
    assert not found.load.response.counts, "numbers of intervals are no distribution"
    found, _ = read(LOG, output=log(), start_ns=T0_NS + S)
    assert found.load.counts.ok == 200 + 300 + 400, "a run that began late is cut later"


def test_times_since_1970_and_rates() -> None:
    rows = "".join(f"{(UNIX_S + 0.4 + second) * 1000:.0f};{100 * second};0;0\n" for second in range(1, 7))
    columns = {"time": "sec", "clock": "unix", "unit": "ms", "tps": "tx"}
    found, _ = read("sec;tx;err;p90\n" + rows, output={"format": "csv", "separator": ";", "log": columns})
    assert found.load.counts.ok == 300 + 400 + 500, "the rows whose middle lies in the window"
    assert found.start_ns == pytest.approx(T0_NS + 2.4 * S, abs=S // 1000)
    for late_ms in (0, 1):  # half a second after T0, give or take a millisecond
        ends = (UNIX_S * 1000 + 500 + 1000 * second + late_ms * (second % 2) for second in range(1, 7))
        rows = "".join(f"{end:.0f};100;0;0\n" for end in ends)
        found, _ = read("sec;tx;err;p90\n" + rows, output={"format": "csv", "separator": ";", "log": columns})
        assert len({one.second for one in found.seconds}) == len(found.seconds) == 6


def test_a_summary() -> None:
    metrics = {"tps": {}, "errors": {}, "p90_ms": {"column": "latency p90"}}
    found, values = read("tps: 250.5\nerrors: 2\nlatency p90: 1.5 ms\n", output="pairs", metrics=metrics)
    assert found.load.counts.ok == round(250.5 * 3)
    assert found.load.counts.error_count == 2
    assert (found.start_ns, found.end_ns) == (T0_NS + 2 * S, T0_NS + 5 * S), "its windows are its own"
    assert values == {"p90_ms": 1.5}
    apart = {
        "argv": ["client", "{threads}", "{seconds}"],
        "output": "json",
        "metrics": {"transactions": {"column": "n"}},
    }
    found, _ = read('{"n": 12}', **apart, start_ns=T0_NS + 3 * S)
    assert (found.load.counts.ok, found.start_ns, found.end_ns) == (12, T0_NS + 3 * S, T0_NS + 6 * S), (
        "that of its window"
    )


@pytest.mark.parametrize(
    ("text", "parameters", "words"),
    [
        ("sec;tx\n1;2\n", {"output": log()}, "no column 'err'"),
        (LOG.replace("\n3;", "\n2;"), {"output": log()}, "do not grow"),
        (LOG.replace("400", "-400"), {"output": log()}, "row 4 of its log has a negative number"),
        ("sec;tx;err;p90\n1;2;0;0\n2;2;0;0\n", {"output": log()}, "0 s of the 3 s of the measure window"),
        ("no numbers", {"output": "json", "metrics": {"tps": {}}}, "not JSON"),
        ("errors: 1\n", {"output": "pairs", "metrics": {"tps": {}}}, "no column 'tps'"),
        ("tps: -1\n", {"output": "pairs", "metrics": {"tps": {}}}, "negative"),
        (
            "tps: 1e200\n",
            {"output": "pairs", "metrics": {"tps": {}}},
            "client: its number of transactions is impossible",
        ),
        (LOG.replace("400", "1e200"), {"output": log()}, "client: its number of transactions is impossible"),
    ],
)
def test_another_output_is_a_fault(text: str, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskFault, match=words):
        read(text, **parameters)


# ---- HammerDB, in the forms of its releases --------------------------------------------------------------------------------

VERSION_4 = """\
Vuser 1:Beginning rampup time of 2 minutes
Vuser 2:Processing 10000000 transactions with output suppressed...
Vuser 1:Rampup complete, Taking start Transaction Count.
Vuser 1:Test complete, Taking end Transaction Count.
Vuser 1:4 Active Virtual Users configured
Vuser 1:TEST RESULT : System achieved 58311 NOPM from 134193 PostgreSQL TPM
Vuser 1:FINISHED SUCCESS
"""
TIMING = {
    "NEWORD": {"elapsed_ms": "420091.5", "calls": "291557", "avg_ms": "3.250", "p99_ms": "9.100", "sd": "1871.2"},
    "SLEV": {"elapsed_ms": "420091.5", "calls": "29000", "min_ms": "0.5", "avg_ms": "1.5", "max_ms": "20.0"},
}


def test_the_line_of_the_last_result_in_either_order() -> None:
    assert numbers(VERSION_4) == {"nopm": 58311.0, "tpm": 134193.0}
    other = "Vuser 1:TEST RESULT : System achieved 350123 Oracle TPM at 116544 NOPM\n"
    assert numbers(VERSION_4 + other) == {"nopm": 116544.0, "tpm": 350123.0}


def test_times_of_the_procedures_between_other_lines() -> None:
    found = numbers(
        f"{VERSION_4}\nTRANSACTION RESPONSE TIMES\n{json.dumps(TIMING, indent=2)}\nTRANSACTION COUNT\n{{ no\n"
    )
    assert found["neword_avg_ms"] == 3.25
    assert found["neword_p99_ms"] == 9.1
    assert found["slev_calls"] == 29000.0
    assert "slev_p99_ms" not in found, "a number that is missing is not 0"
    assert found.keys() <= BUILT_IN_VALUES["hammerdb"].keys()


def test_a_job_report_in_json() -> None:
    report = {
        "schema": "hammerdb-job-report-v1",
        "job": {"jobid": "674D", "benchmark": "TPROC-C"},
        "result": {"type": "tproc_c_result", "active_virtual_users": 4, "nopm": 58311, "tpm": 134193},
        "response_times": {"unit": "milliseconds", "rows": [{"name": "PAYMENT", "calls": 10, "avg_ms": 2.5}]},
    }
    found = numbers(json.dumps(report))
    assert found == {"nopm": 58311.0, "tpm": 134193.0, "payment_calls": 10.0, "payment_avg_ms": 2.5}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is it the timed driver"),
        ("Vuser 2:FINISHED FAILED\n", "a virtual user failed"),
        ('{"result": {"nopm": "many", "tpm": 1}}', "is not a number"),
        (f"System achieved {'9' * 400} NOPM from 1 TPM", "is not a number"),
    ],
)
def test_an_output_without_a_result_is_refused(text: str, words: str) -> None:
    with pytest.raises(NoValue, match=words):
        numbers(text)
