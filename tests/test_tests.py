"""A rule over the tests themselves: none waits for a time to pass, so none depends on how fast its machine is.

A test waits with `eventually` until something holds. An event at an instant is driven by a clock of the test's
own. `asyncio.sleep(0)` lets other tasks run and is no wait.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
CLOCKS = frozenset(("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time", "time_ns"))
WAITING = ("eventually.py", "soak/", "simulation/", "wire/", "fabric/fake_agent.py")
"""Modules whose subject is time: the one way to wait, long tests, an event loop whose time is simulated, and fakes."""
MAY_WAIT = re.compile(r"sleep\(|\bwhile\b")
"""One of these is in each text with a sleep or a loop."""
ALLOWED = {"fabric/test_agent_parts.py": "a task that takes longer than its deadline, which its progress moves"}
"""Module -> why it may."""


def findings(module: str, text: str) -> Iterator[str]:
    """Yield the sleeps and the loops against a clock."""
    if not MAY_WAIT.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and _named(node) == "sleep" and not _is_zero(node):
            yield f"{module}:{node.lineno}: a sleep"
        if isinstance(node, ast.While) and any(_named(one) in CLOCKS for one in ast.walk(node)):
            yield f"{module}:{node.lineno}: a loop against a clock"


def _named(node: ast.AST) -> str:
    """The name of a called function of `time` or `asyncio`, "" for other nodes."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        return node.func.attr if node.func.value.id in ("time", "asyncio") else ""
    return node.func.id if isinstance(node.func, ast.Name) and node.func.id in ("sleep", "monotonic") else ""


def _is_zero(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def test_no_test_waits_for_a_time_to_pass() -> None:
    modules = {str(path.relative_to(TESTS)): path for path in sorted(TESTS.rglob("*.py"))}
    judged = {name: path for name, path in modules.items() if not name.startswith(WAITING) and name not in ALLOWED}
    found = [text for name, path in judged.items() for text in findings(name, path.read_text())]
    assert not found, "\n".join(["wait with `from eventually import eventually`, or drive a clock:", *found])
    assert not ALLOWED.keys() - modules.keys(), "a module that is allowed is gone"


def test_sleeps_and_loops_are_found() -> None:
    text = """
async def wait():
    while time.monotonic() < end:
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)
    sleep(1)
"""
    assert [one.partition(" ")[2] for one in findings("x", text)] == ["a loop against a clock", "a sleep", "a sleep"]
