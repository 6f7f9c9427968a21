"""plans/plan.schema.json accepts the plans that the compiler accepts, as the YAML 1.2 readers of editors read them, and
as the compiler does. (YAML 1.1 takes the key `on` for a boolean, which no schema of names can accept.)"""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from proveout.dsl.source.loader import load
from proveout.dsl.source.nodes import Problems, plain

ROOT = Path(__file__).parents[3]
SCHEMA = jsonschema.Draft202012Validator(json.loads((ROOT / "plans/plan.schema.json").read_text()))
PLANS = [
    *(ROOT / "plans").glob("*.yaml"),
    *(
        path
        for folder in ("starters", "fragments", "inventories")
        for path in (ROOT / "plans" / folder).glob("**/*.yaml")
    ),
    *(ROOT / "tests/golden/good").glob("**/*.yaml"),
]


class Yaml12(yaml.CSafeLoader):
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


def refusals(data: object) -> list[str]:
    found = (jsonschema.exceptions.best_match([error]) for error in SCHEMA.iter_errors(data))
    return [f"{list(error.absolute_path)}: {error.message}" for error in found]


def as_compiled(path: Path) -> object:
    problems = Problems()
    root = load(path, path.name, problems)
    assert root is not None and not problems.found
    return json.loads(json.dumps(plain(root)).replace('"null"', "null"))  # an unquoted null drops what a base has


def test_all_plans_are_valid_as_editors_and_as_the_compiler_read_them() -> None:
    assert len(PLANS) > 60
    as_edited = {path.stem: refusals(yaml.load(path.read_text(), Loader=Yaml12)) for path in PLANS}
    assert {name: found for name, found in as_edited.items() if found} == {}
    as_read = {path.stem: refusals(as_compiled(path)) for path in PLANS if path.parent.name in ("good", "starters")}
    assert {name: found for name, found in as_read.items() if found} == {}


@pytest.mark.parametrize(
    ("key", "value"), [("rate", "many"), ("threads", "four"), ("measure", "5 parsecs"), ("when", 7), ("nothing", 1)]
)
def test_a_wrong_value_is_refused(key: str, value: object) -> None:
    plan = yaml.safe_load((ROOT / "plans/smoke.yaml").read_text())
    ladder = next(stage["ladder"] for stage in plan["stages"] if "ladder" in stage)
    assert not refusals(plan | {"captures": {}})
    ladder[key] = value
    assert refusals(plan | {"captures": {}})


def test_a_search_is_not_a_step_of_a_ladder() -> None:
    good = yaml.safe_load((ROOT / "tests/golden/good/matrix.yaml").read_text())
    assert not refusals(good)
    good["stages"][1]["ladder"]["before"] = [{"search": {"workload": "hlr"}}]
    assert refusals(good)
