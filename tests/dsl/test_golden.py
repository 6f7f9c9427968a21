"""Plans and the compiler's output for them, as data files.

`tests/golden/bad/*.yaml` -> the messages in the `.txt` beside it, to the character; `tests/golden/good/*.yaml` -> the
canonical plan; `plans/*.yaml` -> the text of `proveout explain`, which holds the digest of the compiled plan.
`PROVEOUT_UPDATE_GOLDEN=1 pytest tests/dsl/test_golden.py` writes the files again: read the diff.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from proveout.cli.common.messages import describe
from proveout.coordinator.storage.event_codec import plan_data, recorded_plan
from proveout.core.errors import PlanError
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.compile.json_schema import schema_json
from proveout.dsl.explain.text import render
from proveout.dsl.explain.timetable import timetable
from proveout.dsl.plan.model_values import to_values
from proveout.dsl.plan.plan import canonical_json
from proveout.dsl.workloads.kinds import of_workload

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
UPDATE = bool(os.environ.get("PROVEOUT_UPDATE_GOLDEN"))

BAD = sorted(path.stem for path in (GOLDEN / "bad").glob("*.yaml"))
GOOD = sorted(path.stem for path in (GOLDEN / "good").glob("*.yaml"))
PLANS = sorted(path.stem for path in (ROOT / "plans").glob("*.yaml"))
NUMBERS = {word: n for n, word in enumerate(["a", "two", "three", "four", "five", "six", "seven", "eight", "nine"], 1)}


def check_golden(path: Path, text: str) -> None:
    if UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def messages(error: PlanError) -> str:
    return "\n\n".join(describe(problem) for problem in error.problems) + "\n"


def test_there_are_enough_cases() -> None:
    assert len(BAD) >= 40
    assert PLANS


@pytest.mark.parametrize("name", BAD)
def test_bad_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "bad")
    with pytest.raises(PlanError) as caught:
        compile_plan(Path(f"{name}.yaml"))
    check_golden(GOLDEN / "bad" / f"{name}.txt", messages(caught.value))


@pytest.mark.parametrize("name", GOOD)
def test_good_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "good")
    plan = compile_plan(Path(f"{name}.yaml"))
    check_golden(GOLDEN / "good" / f"{name}.json", json.dumps(json.loads(canonical_json(plan)), indent=1) + "\n")


@pytest.mark.parametrize("name", PLANS)
def test_shipped_plan(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    path = Path("plans") / f"{name}.yaml"
    found = timetable(compile_plan(path))
    check_golden(GOLDEN / "explain" / f"{name}.txt", render(found) + "\n")
    if stated := re.search(r"A run takes[\s#]+about[\s#]+(\w+)[\s#]+(minute|second)", path.read_text()):
        number = NUMBERS.get(stated[1]) or float(stated[1])
        assert abs(number * (60 if stated[2] == "minute" else 1) - found.seconds) <= 30


@pytest.mark.parametrize("name", PLANS)
def test_compiled_plan_survives_json(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded as JSON and read back, a plan is equal, positions included, and so is every workload's parameter
    model."""
    monkeypatch.chdir(ROOT)
    plan = compile_plan(Path("plans") / f"{name}.yaml")
    back = recorded_plan(json.loads(json.dumps(plan_data(plan))))
    assert back == plan
    assert back.digest == plan.digest
    for workload in plan.workloads:
        assert to_values(of_workload(workload)) == workload.parameters


def test_digest_is_the_same_in_every_process() -> None:
    """Neither the hash seed nor the working directory changes it."""
    code = (
        "import sys; from pathlib import Path; from proveout.dsl.compile.compiler import compile_plan; "
        "print(*(compile_plan(Path(path)).digest for path in sys.argv[1:]))"
    )
    paths = [str(ROOT / "plans" / f"{name}.yaml") for name in PLANS]
    digests = {
        subprocess.run(
            [sys.executable, "-c", code, *paths],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, folder in (("1", ROOT), ("2", ROOT / "tests"))
    }
    assert len(digests) == 1


def test_committed_schema_is_the_one_the_models_give() -> None:
    check_golden(ROOT / "plans" / "plan.schema.json", schema_json())


EDITED = [path for path in sorted((ROOT / "plans").rglob("*.yaml")) if path.parent.name != "policies"]


@pytest.mark.parametrize("path", EDITED, ids=lambda path: path.stem)
def test_first_line_points_editors_at_the_schema(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    assert (path.parent / first.removeprefix(prefix)).resolve() == ROOT / "plans" / "plan.schema.json"
