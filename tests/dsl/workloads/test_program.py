"""The workload kind `program`: its argv template, and the arguments of a host's share."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from proveout.dsl.workloads.program.parameters import Program, words

ARGV = ["pgbench", "--client={threads}", "--time={seconds}"]


def test_fields_are_filled_in() -> None:
    model = Program(argv=ARGV, output="pgbench")
    assert words(model.argv, {"threads": "4", "seconds": "10"}) == ("pgbench", "--client=4", "--time=10")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([*ARGV, "{rate}"], "unknown field {rate}; the fields are {threads}"),
        (ARGV[:2], "no argument has {seconds}"),
        (ARGV[::2], "no argument has {threads}"),
        (["./pgbench", *ARGV[1:]], "neither the absolute path"),
        ([*ARGV, "a\0b"], "control characters"),
        ([], "at least 1"),
    ],
)
def test_templates_that_cannot_work_are_refused(argv: list[str], message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Program(argv=argv, output="pgbench")
    assert message in str(caught.value)
