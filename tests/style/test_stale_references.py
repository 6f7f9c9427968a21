"""References in docstrings, comments and pages to modules, files, functions, tests and decisions that do not exist."""

import pytest
import vocabulary
from references import Tree, all_stale, read_tree, stale_references

PATHS = [path for path in vocabulary.select_files([]) if path.endswith((".py", ".pyx", ".pxd", ".md"))]


@pytest.fixture(scope="module")
def tree() -> Tree:
    return read_tree()


@pytest.mark.parametrize("folder", sorted({path.split("/")[0] for path in PATHS}))
def test_no_reference_leads_nowhere(tree: Tree, folder: str) -> None:
    stale = all_stale(tree, [path for path in PATHS if path.split("/")[0] == folder])
    assert not stale, "\n".join(stale)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("dsl/a.py", '"""See `agent.gone_module`."""'),
        ("dsl/a.py", '"""See `proveout.dsl.gone_module.compile`."""'),
        ("dsl/a.py", '"""Read by `tests/gone_file.py`."""'),
        ("dsl/a.py", "# the words of `gone_file.py`"),
        ("dsl/a.py", '"""Made by `gone_function_name`."""'),
        ("dsl/a.py", '"""Made by (see `tearing`)."""'),
        ("dsl/__init__.py", '"""Flow: text -> `tearing` -> plan."""'),
        ("dsl/a.py", '"""Why: ADR 9999."""'),
        ("docs/a.md", "The module `agent/gone_file.py` does it."),
        ("docs/a.md", "Shown by `test_of_a_thing_that_is_gone`."),
        ("docs/a.md", "See [there](gone.md)."),
        ("docs/a.md", "See [there](security.md#gone-heading)."),
    ],
)
def test_a_stale_reference_is_found(tree: Tree, path: str, text: str) -> None:
    assert len(list(stale_references(tree, path, text + "\n"))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("dsl/a.py", '"""See `core.statistics.ratio`, `proveout.dsl`, `tests/style/`, `pyproject.toml` and ADR 1."""'),
        ("dsl/a.py", '"""A metric: `memory.used_bytes`; a file of a run: `samples/a.parquet`."""'),
        ("docs/a.md", "`agent/db1` is a role, `test_vocabulary.py` a file, [security](security.md) a page."),
        ("docs/a.md", "```\nsee [there](gone.md)\n```"),
    ],
)
def test_a_reference_that_leads_somewhere_is_not_found(tree: Tree, path: str, text: str) -> None:
    assert list(stale_references(tree, path, text + "\n")) == []
