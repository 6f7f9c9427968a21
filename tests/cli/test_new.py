"""`proveout new`: every starter compiles under any file name, and nothing is overwritten.

`benchmarks/plans/starters.py` runs them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from proveout.cli import execute
from proveout.cli.new import KINDS, starter
from proveout.cli.options import STARTERS
from proveout.cli.plan_writer import write
from proveout.dsl.compile.compiler import compile_plan
from proveout.dsl.compile.json_schema import schema_json

EXTERNAL = {"oracle", "lab", "database"}


def test_the_list_has_every_starter() -> None:
    assert {path.stem for path in STARTERS.glob("*.yaml")} == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_starter_compiles_where_it_is_written(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"My {kind}, 2nd.yaml"
    write(path, starter(kind, path.stem))
    plan = compile_plan(path)  # by itself: a starter includes nothing
    assert plan.name == f"My-{kind}-2nd"
    assert plan.title
    assert len(plan.verdicts) >= 2
    assert all(parameter.help for parameter in plan.parameters)
    assert "repeats" in {parameter.name for parameter in plan.parameters}, "docs/guide/ci.md sets it"
    assert [one.id for one in plan.verdicts if ".mean" in one.check.text] == [], "an interval decides"
    assert all(system.provision == "embedded" for system in plan.systems) == (kind not in EXTERNAL)


def test_a_plan_is_written_with_its_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    assert execute(["new", "sql", str(path)]) == 0
    assert f"proveout run {path}" in capsys.readouterr().out
    assert path.read_text().startswith("# yaml-language-server: $schema=plan.schema.json\n#\n")
    schema = tmp_path / "plan.schema.json"
    assert schema.read_text() == schema_json()
    path.unlink()
    schema.write_text("{}")
    assert execute(["new", "sql", str(path)]) == 0
    assert schema.read_text() == "{}"
    assert "the schema of another version" in capsys.readouterr().out


def test_a_name_that_no_plan_may_have_leaves_the_starters_own() -> None:
    assert "\nname: ladder\n" in starter("ladder", "2024")
    assert "\nname: ladder\n" in starter("ladder", "…")


def test_existing_files_are_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sql.yaml").write_text("mine")
    assert execute(["new", "sql"]) == 2
    assert "sql.yaml exists already" in capsys.readouterr().err
    assert Path("sql.yaml").read_text() == "mine"
    Path("link.yaml").symlink_to("elsewhere.yaml")
    assert execute(["new", "sql", "link.yaml"]) == 2
    assert not Path("elsewhere.yaml").exists()
    assert execute(["new", "sql", "sql.yaml/x.yaml"]) == 2
    assert "sql.yaml/x.yaml cannot be written" in capsys.readouterr().err
    assert execute(["new", "sql", "plans/x.yaml"]) == 0
    assert Path("plans/x.yaml").is_file(), "the folder is made"


def test_kinds_are_listed_and_an_unknown_one_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["new"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[::2]] == [*KINDS, "own"]
    assert execute(["new", "hrl"]) == 2
    assert "there is no starter 'hrl'" in capsys.readouterr().err
