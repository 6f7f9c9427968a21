"""docs/extend/workload.md, followed literally: its files make a package, which is installed, checked, explained and
run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "extend" / "workload.md"
FILE = re.compile(r'^```\w+ title="(?P<name>[\w./]+)"\n(?P<text>.*?)^```$', re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path, package_folder: Path) -> Path:
    """A folder with the files of the page; its link `site` leads to the package as pip would install it."""
    (tmp_path / "site").symlink_to(package_folder)
    for match in FILE.finditer(PAGE.read_text(encoding="utf-8")):
        path = tmp_path / ("site" if "/" in match["name"] else ".") / match["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(match["text"], encoding="utf-8")
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = tmp_path / "site" / "shop_bench-1.0.dist-info"
    metadata.mkdir()
    name = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (metadata / "METADATA").write_text(name, encoding="utf-8")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")
    return tmp_path


def proveout(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str((folder / "site").resolve()), "PROVEOUT_PASS_ENV": "PYTHONPATH"}
    argv = [sys.executable, "-m", "proveout", *arguments]
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_the_plan_is_checked_and_explained(folder: Path) -> None:
    checked = proveout(folder, "check", "counters.yaml")
    assert checked.returncode == 0, checked.stderr
    explained = proveout(folder, "explain", "counters.yaml")
    assert "about 50 rows" in explained.stdout
    wrong = (folder / "counters.yaml").read_text(encoding="utf-8").replace("counters: 50", "counters: 0")
    (folder / "wrong.yaml").write_text(wrong, encoding="utf-8")
    assert "wrong.yaml:9:39: `counters` must be at least 1" in proveout(folder, "check", "wrong.yaml").stderr


def test_the_description_imports_no_numpy(folder: Path) -> None:
    code = "import sys, shop_bench; print('numpy' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str((folder / "site").resolve())}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


@pytest.mark.slow
def test_the_plan_runs(folder: Path) -> None:
    ran = proveout(folder, "run", "counters.yaml", "--headless")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (result,) = (folder / "runs").glob("*/result.json")
    verdicts = {verdict["id"]: verdict["outcome"] for verdict in json.loads(result.read_text())["verdicts"]}
    assert verdicts.keys() >= {"counts", "invariants:db"}
    assert set(verdicts.values()) == {"PASS"}
