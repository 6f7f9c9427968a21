"""The sdist holds the whole tree: sdist -> wheel -> clean environment -> `proveout check` works there. Versions are pinned.

Needs to install the dependencies into a fresh environment, so it is skipped where pip cannot reach any source of them.
"""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def _run(*argv: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    out = tmp_path_factory.mktemp("dist")
    made = _run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", str(out), cwd=ROOT)
    assert made.returncode == 0, made.stdout + made.stderr
    (sdist,) = out.glob("*.tar.gz")
    unpacked = tmp_path_factory.mktemp("sdist")
    made = _run("tar", "-xzf", str(sdist), cwd=unpacked)
    assert made.returncode == 0, made.stderr
    (tree,) = unpacked.iterdir()
    made = _run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), cwd=tree)
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = out.glob("*.whl")
    return sdist, wheel


def test_wheel_from_sdist_has_every_tracked_module_and_plan(built: tuple[Path, Path]) -> None:
    _, wheel = built
    tracked = _run("git", "ls-files", "dsl", "coordinator", "agent", "proto", "tui", "plans", cwd=ROOT)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    wanted = {f"proveout/{name}" for name in tracked.stdout.split()}
    with zipfile.ZipFile(wheel) as archive:
        assert wanted - set(archive.namelist()) == set()


def test_wheel_has_the_licence_and_its_name(built: tuple[Path, Path]) -> None:
    _, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = [name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        assert b"\nLicense-Expression: Apache-2.0\nLicense-File: LICENSE\n" in archive.read(metadata)


def test_clean_environment_runs_check(built: tuple[Path, Path], tmp_path: Path) -> None:
    _, wheel = built
    made = _run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"), cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    python = tmp_path / "venv" / "bin" / "python"
    install = _run(
        sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check",
        "install", "--quiet", "--no-compile", "--constraint", str(ROOT / "constraints.txt"), str(wheel), cwd=tmp_path,
    )  # fmt: skip
    if any(sign in install.stderr for sign in ("Failed to establish a new connection", "name resolution")):
        pytest.skip("no source of the dependencies can be reached")
    assert install.returncode == 0, install.stderr
    plan = tmp_path / "venv" / "lib"
    (plan,) = plan.glob("python*/site-packages/proveout/plans/hlr-cache-embedded.yaml")
    checked = _run(str(tmp_path / "venv" / "bin" / "proveout"), "check", str(plan), cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_dependency_has_one_tested_version() -> None:
    """Each is in constraints.txt, or pinned by its extra because it cannot be installed with those versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    required = {one for group in (project["dependencies"], *extras) for one in group if not one.startswith("proveout[")}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    tested = {_package(line) for line in lines if "==" in line}
    assert [one for one in sorted(required) if _package(one) not in tested and "==" not in one] == []


def _package(requirement: str) -> str:
    return re.split(r"[\[=<>~!; ]", requirement)[0].lower().replace("_", "-")
