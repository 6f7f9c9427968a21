"""Blocks of pages, the commands and the output in them, and the commands of CI workflows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TAG = re.compile(r"<!-- (only parsed|not run): (\S.*?) -->")
VARYING = {
    "run": r"\d{8}-\d{6}-[0-9a-f]{4}",
    "number": r"\d[\d,.:]*(?: (?:µs|ms|s|min)\b)?",
    "outcome": "(?:PASS|FAIL|INCONCLUSIVE)",
    "rule": "─+",
    "blank": r"\s+",
    "any": "…",
}
"""The parts of an output that differ between two runs of a command; a blank is any number of blanks, `…` any text."""
VARIES = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in VARYING.items()))
MATCHES = VARYING | {"any": ".*?"}


def as_shown(text: str) -> re.Pattern[str]:
    """The pattern of an output that a page shows."""
    parts, at = [], 0
    for found in VARIES.finditer(text := text.strip()):
        parts += [re.escape(text[at : found.start()]), MATCHES[found.lastgroup or ""]]
        at = found.end()
    return re.compile("".join([*parts, re.escape(text[at:])]), re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of a page: its language ("" for none, "indented"), its lines, and the tag before it."""

    page: Path
    line: int
    language: str
    lines: tuple[str, ...]
    tag: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def commands(self) -> tuple[str, ...]:
        """The command lines; lines continued by a backslash are joined."""
        text = "\n".join(self.lines).replace("\\\n", " ")
        lines = [line.strip() for line in text.splitlines()]
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        return tuple(line for line in lines if line and not line.startswith("#"))

    @property
    def output(self) -> str:
        """The output that a `console` block shows of its commands."""
        text = "\n".join(self.lines).replace("\\\n", " ")
        shown = [line for line in text.splitlines() if not line.startswith("$ ")]
        return "\n".join(shown).strip() if self.language == "console" else ""


def blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text().splitlines()
    at = 0
    while at < len(lines):
        begin, at = at, at + 1
        fence = re.match(r"( *)(```+)(\S*)", lines[begin])
        if fence:
            while not lines[at].strip().startswith(fence[2]):
                at += 1
            inside = tuple(line.removeprefix(fence[1]) for line in lines[begin + 1 : at])
            yield Block(page, begin + 1, fence[3], inside, _tag_before(lines, begin))
            at += 1
        elif re.match(r"    \S", lines[begin]) and (begin == 0 or not lines[begin - 1].strip()):
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            yield Block(page, begin + 1, "indented", tuple(line[4:] for line in lines[begin:at]), "")


def _tag_before(lines: Sequence[str], at: int) -> str:
    found = TAG.search(lines[at - 1]) if at else None
    return found[1] if found else ""


def commands_of_workflow(node: Any) -> Iterator[str]:
    """The shell commands of a workflow: `run` of steps, lines of scripts."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("run", "script", "before_script"):
                yield from [value] if isinstance(value, str) else value
            else:
                yield from commands_of_workflow(value)
    elif isinstance(node, list):
        for item in node:
            yield from commands_of_workflow(item)
