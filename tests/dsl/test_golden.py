"""Plans and the compiler's output for them, as data files.

- `tests/golden/bad/*.yaml` -> the messages in the `.txt` beside it, to the character; of those in PRINTED with the
  lines that they point at, as `proveout check` prints them.
- `plans/*.yaml` -> the text of `explain`, with the digest, in `tests/golden/explain`; of a plan that extends another
  one the lines that differ from the text of that one, with their places in it.
- `tests/golden/good/*.yaml`, which show what no shipped plan does -> the text of `explain` beside each.
- The models of the language -> `plans/plan.schema.json`, which accepts the plans that the compiler accepts, as the YAML 1.2
  readers of editors read them, and as the compiler does. (YAML 1.1 takes the key `on` for a boolean, which no schema of
  names can accept.)

`PROVEOUT_UPDATE_GOLDEN=1 pytest tests/dsl/test_golden.py` writes the files again: read the diff.
"""

from __future__ import annotations

import json
import os
import re
from difflib import unified_diff
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml
from compiled_plans import FOLDER, NAMES, with_notes

from proveout.cli.options import describe
from proveout.coordinator.storage.journal import plan_data, recorded_plan
from proveout.core.errors import PlanError, PlanProblem
from proveout.core.numbers import safe_lines
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.compile.json_schema import schema_json
from proveout.dsl.explain.text import render
from proveout.dsl.explain.timetable import timetable
from proveout.dsl.operations.table import TUNING_KEYS
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import Plan
from proveout.dsl.source.loader import load
from proveout.dsl.source.nodes import Problems, plain
from proveout.dsl.workloads.kinds import of_workload

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
UPDATE = bool(os.environ.get("PROVEOUT_UPDATE_GOLDEN"))

SCHEMA = FOLDER / "plan.schema.json"
BAD = sorted(path.stem for path in (GOLDEN / "bad").glob("*.yaml"))
GOOD = sorted(path.stem for path in (GOLDEN / "good").glob("*.txt"))
PLANS = [
    *FOLDER.glob("*.yaml"),
    *(path for name in ("starters", "fragments", "inventories") for path in (FOLDER / name).glob("**/*.yaml")),
    *(GOLDEN / "good").glob("**/*.yaml"),
]
"""As they were before the first test: `test_reading`, in another process, writes damaged plans beside the good ones."""
PRINTED = {"bidi-escape", "long-line", "newcomer-1", "tab"}
NUMBERS = {word: n for n, word in enumerate(["a", "two", "three", "four", "five", "six", "seven", "eight", "nine"], 1)}


def check_golden(path: Path, text: str) -> None:
    if UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def message(problem: PlanProblem, plan: str) -> str:
    """`line:column: message`, with the file where that is another one, and the hint below."""
    where, at = problem.where, f"{problem.where.line}:{problem.where.column}: " if problem.where.line else ""
    place = at if where.file == plan else f"{where.file}: {at}"
    hint = f"\n  {problem.hint}" if problem.hint else ""
    return safe_lines(f"{place}{problem.message}{hint}")


@pytest.mark.parametrize("name", BAD)
def test_bad_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "bad")
    with pytest.raises(PlanError) as caught:
        compile_plan(Path(f"{name}.yaml"))
    found = caught.value.problems
    printed = [describe(one) for one in found] if name in PRINTED else [message(one, f"{name}.yaml") for one in found]
    check_golden(GOLDEN / "bad" / f"{name}.txt", ("\n\n" if name in PRINTED else "\n").join(printed) + "\n")


def explained(plan: Plan) -> str:
    return render(timetable(plan)) + "\n"


@pytest.mark.parametrize("name", GOOD)
def test_good_plan(name: str) -> None:
    """Recorded as JSON and read back, a plan is equal, positions included, and so is every workload's parameter model."""
    plan = compile_plan(GOLDEN / "good" / f"{name}.yaml")
    check_golden(GOLDEN / "good" / f"{name}.txt", explained(plan))
    back = recorded_plan(json.loads(json.dumps(plan_data(plan))))
    assert back == plan
    assert back.digest == plan.digest
    assert [one.name for one in plan.workloads if to_values(of_workload(one)) != one.parameters] == []


@pytest.mark.parametrize("name", NAMES)
def test_shipped_plan(name: str) -> None:
    """The digest is that of the whole compiled form. It depends on neither the hash seed, which is another one in each
    process of tests, nor the working directory."""
    plan, notes = with_notes(name)
    assert [note.message for note in notes if "cannot be reached" not in note.message] == []
    text, source = explained(plan), (FOLDER / f"{name}.yaml").read_text()
    if extended := re.search(r"^extends: (\S+)\.yaml$", source, re.M):
        base = explained(with_notes(extended[1])[0])
        found = unified_diff(base.splitlines(True), text.splitlines(True), extended[1], name, n=0)
        text = "".join(line for line in found if line.startswith(("---", "+", "@@")))
    check_golden(GOLDEN / "explain" / f"{name}.txt", text)
    if stated := re.search(r"A run takes[\s#]+about[\s#]+(\w+)[\s#]+(minute|second)", source):
        number = NUMBERS.get(stated[1]) or float(stated[1])
        assert abs(number * (60 if stated[2] == "minute" else 1) - timetable(plan).seconds) <= 30, name


def test_every_tuning_operation_is_shown() -> None:
    operations = compile_plan(GOLDEN / "good" / "tuning-operations.yaml").tunings
    assert {one.operation for one in operations} == set(TUNING_KEYS.values())


def test_committed_schema_is_the_one_the_models_give_and_plans_point_editors_at_it() -> None:
    check_golden(SCHEMA, schema_json())
    edited = [path for path in sorted(FOLDER.rglob("*.yaml")) if path.parent.name != "policies"]
    firsts = {path: path.read_text().splitlines()[0].partition("# yaml-language-server: $schema=") for path in edited}
    assert [
        path for path, (before, _, place) in firsts.items() if before or (path.parent / place).resolve() != SCHEMA
    ] == []


class Yaml12(yaml.CSafeLoader):
    """The core schema of YAML 1.2: `on` and `20_000` are texts."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - as in the class above


for tag, pattern, first in (
    ("null", r"null|Null|NULL|~|", ["n", "N", "~", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), first)


@cache
def validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))


def refusals(data: object) -> list[str]:
    found = (jsonschema.exceptions.best_match([error]) for error in validator().iter_errors(data))
    return [f"{list(error.absolute_path)}: {error.message}" for error in found]


def as_compiled(path: Path) -> object:
    problems = Problems()
    root = load(path, path.name, problems)
    assert root is not None and not problems.found
    return json.loads(json.dumps(plain(root)).replace('"null"', "null"))  # an unquoted null drops what a base has


def test_the_schema_accepts_all_plans_as_editors_and_as_the_compiler_read_them() -> None:
    assert len(PLANS) > 60
    as_edited = {path.stem: refusals(yaml.load(path.read_text(), Loader=Yaml12)) for path in PLANS}
    assert {name: found for name, found in as_edited.items() if found} == {}
    as_read = {path.stem: refusals(as_compiled(path)) for path in PLANS if path.parent.name in ("good", "starters")}
    assert {name: found for name, found in as_read.items() if found} == {}


@pytest.mark.parametrize(
    ("workload", "fine"),
    [
        ({"kind": "hlr", "population": "10_000", "range": ["1", "${params.last}"]}, False),
        ({"kind": "hlr", "population": "10_000", "range": [1, "${params.last}"]}, True),
        ({"kind": "hlr", "populaton": 5}, False),
        (
            {"kind": "sql", "transactions": {"Look": {"statements": {"one": "SELECT 1", "two": {"sql": "SELECT 2"}}}}},
            True,
        ),
        ({"kind": "of_another_package", "anything": 5}, True),
        ({"population": 5}, False),
        (None, True),  # a plan that extends another drops it
    ],
)
def test_the_schema_looks_into_workloads(workload: object, fine: bool) -> None:
    assert (refusals({"workloads": {"w": workload}}) == []) == fine


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rate", "many"),
        ("threads", "four"),
        ("measure", "5 parsecs"),
        ("when", 7),
        ("nothing", 1),
        ("before", [{"search": {"workload": "hlr"}}]),  # a search is not a step
    ],
)
def test_the_schema_refuses_a_wrong_value(key: str, value: object) -> None:
    plan = yaml.safe_load((GOLDEN / "good/matrix.yaml").read_text())
    assert not refusals(plan)
    plan["stages"][1]["ladder"][key] = value
    assert refusals(plan)
