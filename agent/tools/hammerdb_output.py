"""Output of a TPROC-C run of HammerDB with the timed driver -> its result, and the times of the procedures. Pure.

Flow: standard output -> the last `System achieved N NOPM from M … TPM` (or, as older releases and one setting have it,
`M … TPM at N NOPM`), or the `result` of a job report in JSON -> the object of `jobs JOBID timing`, or the
`response_times` of a job report, where the script prints one -> numbers by name.

JSON stands between other lines of a script, so each object that begins a line is tried. Source: the modules for TPROC-C
and for jobs of HammerDB 4 to 6 (schema hammerdb-job-report-v1).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from proveout.agent.values.value_table import NoValue, number
from proveout.dsl.workloads.program.parameters import PROCEDURES

_NOPM_FIRST = re.compile(r"System achieved (?P<nopm>\d+) NOPM from (?P<tpm>\d+) ")
_TPM_FIRST = re.compile(r"System achieved (?P<tpm>\d+) .{1,80}? TPM at (?P<nopm>\d+) NOPM")
_FAILED = re.compile(r"FINISHED FAILED|Error in Virtual User \d+", re.IGNORECASE)
_OBJECT = re.compile(r"^[ \t]*\{", re.MULTILINE)
_TIMES = ("calls", "min_ms", "avg_ms", "max_ms", "p50_ms", "p95_ms", "p99_ms")
OBJECTS_MAX = 100


def numbers(output: str) -> dict[str, float]:
    """`nopm`, `tpm`, and `neword_avg_ms` and the others where the output has times. NoValue without a result."""
    objects = list(_objects(output))
    result = _result(output, objects)
    if result is None:
        why = (
            "a virtual user failed" if _FAILED.search(output) else "is it the timed driver, and did it run to its end?"
        )
        raise NoValue(f"the output of HammerDB has no `System achieved … NOPM`: {why}")
    return result | _times(objects)


def _result(output: str, objects: list[Mapping[str, Any]]) -> dict[str, float] | None:
    found = [*_NOPM_FIRST.finditer(output), *_TPM_FIRST.finditer(output)]
    if found:
        last = max(found, key=lambda match: match.start())
        return {"nopm": float(last["nopm"]), "tpm": float(last["tpm"])}
    for document in reversed(objects):
        result = document.get("result")
        if isinstance(result, dict) and {"nopm", "tpm"} <= result.keys():
            return {name: number(result[name]) for name in ("nopm", "tpm")}
    return None


def _objects(output: str) -> Iterator[Mapping[str, Any]]:
    """The JSON objects of the output, the first ones."""
    decoder = json.JSONDecoder()
    end = 0
    for _, match in zip(range(OBJECTS_MAX), _OBJECT.finditer(output), strict=False):
        if match.start() < end:
            continue
        try:
            found, end = decoder.raw_decode(output, match.end() - 1)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def _times(objects: list[Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for document in objects:
        for name, row in _rows(document):
            if name.lower() in PROCEDURES:
                found |= {f"{name.lower()}_{time}": number(row[time]) for time in _TIMES if time in row}
    return found


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(procedure, times): of the summary of all users, or of a job report."""
    times = document.get("response_times")
    if isinstance(times, dict) and isinstance(times.get("rows"), list):
        for row in times["rows"]:
            if isinstance(row, dict):
                yield str(row.get("name", "")), row
        return
    yield from ((str(name), row) for name, row in document.items() if isinstance(row, dict))
