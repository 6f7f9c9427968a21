"""plans/plan.schema.json accepts the plans that the compiler accepts, as the YAML 1.2 readers of editors read them, and
as the compiler does. (YAML 1.1 takes the key `on` for a boolean, which no schema of names can accept.)"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import yaml

from proveout.dsl.source.loader import load
from proveout.dsl.source.nodes import Problems, plain

ROOT = Path(__file__).parents[3]
PLANS = sorted(
    path
    for folder in ("plans", "plans/starters", "plans/fragments", "plans/inventories", "tests/golden/good")
    for path in (ROOT / folder).glob("*.yaml" if folder == "plans" else "**/*.yaml")
)


class Yaml12(yaml.SafeLoader):
    """The core schema of YAML 1.2: `on` and `20_000` are texts."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - as in the class above


for name, pattern, first in (
    ("null", r"null|Null|NULL|~|", ["n", "N", "~", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(f"^(?:{pattern})$"), first)


@cache
def schema() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads((ROOT / "plans/plan.schema.json").read_text()))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_plan_is_valid(path: Path) -> None:
    plan = yaml.load(path.read_text(), Loader=Yaml12)
    found = [jsonschema.exceptions.best_match([error]) for error in schema().iter_errors(plan)]
    assert [(list(error.absolute_path), error.message) for error in found] == []


@pytest.mark.parametrize("path", PLANS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_plan_is_valid_as_the_compiler_reads_it(path: Path) -> None:
    problems = Problems()
    root = load(path, path.name, problems)
    assert root is not None
    assert not problems.found
    data = json.loads(json.dumps(plain(root)).replace('"null"', "null"))  # an unquoted null drops what a base has
    assert [error.message for error in schema().iter_errors(data)] == []


@pytest.mark.parametrize(
    ("key", "value"), [("rate", "many"), ("threads", "four"), ("measure", "5 parsecs"), ("when", 7), ("nothing", 1)]
)
def test_a_wrong_value_is_refused(key: str, value: object) -> None:
    plan = yaml.safe_load((ROOT / "plans/smoke.yaml").read_text())
    ladder = next(stage["ladder"] for stage in plan["stages"] if "ladder" in stage)
    assert not list(schema().iter_errors(plan | {"captures": {}}))
    ladder[key] = value
    assert list(schema().iter_errors(plan | {"captures": {}}))
