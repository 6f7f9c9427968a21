"""Outputs whose columns the plan names -> the window of a load and its numbers."""

from __future__ import annotations

from typing import Any

import pytest

from proveout.agent.errors import TaskFault
from proveout.agent.tools.generator_output import Measured, declared
from proveout.dsl.plan.stages import Windows
from proveout.dsl.workloads.program import Program

S = 1_000_000_000
T0_NS = 50 * S
UNIX_S = 1_700_000_000.0
WINDOWS = Windows(ramp_up_s=2.0, measure_s=3.0, ramp_down_s=1.0)
ARGV = ["client", "{threads}", "{measure_s}"]
LOG = "sec;tx;err;p90\n" + "".join(f"{second};{100 * second};{second};{second / 10}\n" for second in range(1, 7))


def read(text: str, /, *, start_ns: int = T0_NS, **parameters: Any) -> tuple[Measured, dict[str, float]]:
    model = Program(**{"argv": ARGV, **parameters})
    found, values = declared(text.encode(), model, WINDOWS, T0_NS, start_ns, unix_of_t0_s=UNIX_S)
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
    ],
)
def test_another_output_is_a_fault(text: str, parameters: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskFault, match=words):
        read(text, **parameters)
