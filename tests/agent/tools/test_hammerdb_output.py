"""The output of HammerDB, in the forms of its releases -> its result and the times of the procedures.

The texts are made after the sources of HammerDB; no HammerDB ran for them.
"""

from __future__ import annotations

import json

import pytest

from proveout.agent.capture.query_values import NoValue
from proveout.agent.tools.generator_output import numbers
from proveout.dsl.workloads.program import BUILT_IN_VALUES

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
    ],
)
def test_an_output_without_a_result_is_refused(text: str, words: str) -> None:
    with pytest.raises(NoValue, match=words):
        numbers(text)
