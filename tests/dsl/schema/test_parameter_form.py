"""The parameters of a plan as a form: fields as written in the plan, and answers validated like `-p`."""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.core.errors import PlanError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.plan.plan import Field
from proveout.dsl.schema.parameters import read_form

PLAN = """
proveout: 1
name: asked
include: [more.yaml]
params:
  rows: {type: int, default: 1_000, min: 100, max: 100_000, help: how many}
  threads: {type: "list[int]", default: [1, 4], min: 1}
  mode: {type: text, default: sync, choices: [sync, async]}
  on: {type: bool, default: false}
  dsn: {type: text}
"""
MORE = "proveout: 1\nparams:\n  window: {type: duration, default: 10s, max: 1m}\n"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "more.yaml").write_text(MORE)
    (tmp_path / "asked.yaml").write_text(PLAN)
    return tmp_path / "asked.yaml"


def test_fields_are_those_of_the_plan_and_its_includes(plan: Path) -> None:
    fields = {field.name: field for field in read_form(plan).fields}
    assert fields["rows"] == Field(name="rows", type="int", default="1_000", low="100", high="100_000", help="how many")
    assert fields["threads"].default == "1, 4"
    assert fields["mode"].choices == ("sync", "async")
    assert fields["on"].default == "false"
    assert (fields["dsn"].required, fields["rows"].required) == (True, False)
    assert fields["window"].high == "1m"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows", "500", ""),
        ("rows", "5", "`rows` is below its minimum of 100"),
        ("rows", "many", "expected a whole number, not many"),
        ("threads", "1, 2, 8", ""),
        ("threads", "1, 0", "`threads` is below its minimum of 1"),
        ("mode", "async", ""),
        ("mode", "later", "`mode` is not one of its choices (one of sync, async)"),
        ("on", "true", ""),
        ("on", "3", "expected true or false, not 3"),
        ("window", "2m", "`window` is above its maximum of 1m"),
        ("dsn", "host=db1", ""),
    ],
)
def test_an_answer_is_validated_like_an_option_of_the_command_line(
    plan: Path, name: str, text: str, message: str
) -> None:
    assert read_form(plan).objection(name, text) == message
    overrides = {"dsn": "x", name: text}
    with pytest.raises(PlanError) as caught:  # the plan lacks its topology with any answer
        compile_plan(plan, overrides=overrides)
    of_answer = [problem for problem in caught.value.problems if problem.where.file == f"-p {name}"]
    assert bool(of_answer) == bool(message)


def test_the_defaults_of_every_shipped_plan_are_valid_answers() -> None:
    for path in sorted((Path(__file__).parents[3] / "plans").glob("*.yaml")):
        form = read_form(path)
        for field in form.fields:
            assert field.required or form.objection(field.name, field.default) == "", (path.name, field)


def test_an_invalid_parameter_is_left_out(plan: Path) -> None:
    plan.write_text(PLAN.replace("type: bool", "type: boolean"))
    assert "on" not in {field.name for field in read_form(plan).fields}
