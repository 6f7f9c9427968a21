"""Check the wording of docstrings, comments, messages and documentation pages against `vocabulary.yaml`.

Data flow: files -> blocks of prose with their first line -> matches of the patterns -> allow-list -> findings, exit
code. Python: docstrings, comments and string literals (in tests: docstrings, comments and names of
tests, as their strings quote other texts). Markdown: everything but code blocks. Other sources: comments. Code between
backquotes counts as one opaque word, in every language.

`python tests/style/vocabulary.py [PATH ...]`; without PATH: every file that git tracks and the
rules below select.
"""

from __future__ import annotations

import ast
import fnmatch
import io
import re
import subprocess
import sys
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = Path(__file__).with_name("vocabulary.yaml")

COMMENT_MARKS = {".proto": "//", ".js": "//", ".sql": "--"} | dict.fromkeys(
    (".yaml", ".yml", ".toml", ".sh", "Makefile"), "#"
)
PROSE_SUFFIXES = (".py", ".pyx", ".pxd", ".md")
SKIPPED = (
    "*_pb2.py", "*_pb2_grpc.py",  # generated from .proto files, which are checked
    "docs/reference/*", "docs/studies/*.md",  # generated from sources, which are checked
    "tests/golden/*", "tests/*.yaml",  # data of tests
    "tests/style/*vocabulary.*",  # quotes the words
)  # fmt: skip
_WORD = re.compile(r"``[^`]+``|`[^`\n]+(?:\n[^`\n]+)?`|[^\s`]+|`")
_FENCE = re.compile(r"\s*(```|~~~)")
_BLOCK_START = re.compile(r"\s*(#+ |[-*] |\d+\. |\|)")


class Rule(NamedTuple):
    """A pattern that must not occur; `opening`: only where a text begins."""

    pattern: re.Pattern[str]
    instead: str
    opening: bool


class Block(NamedTuple):
    """A piece of prose. `line` is its first line; `literal` is the last line when the offsets of lines are unknown."""

    text: str
    line: int
    literal: int = 0

    def line_at(self, offset: int) -> int:
        """The line of a place in the text."""
        return self.line + self.text.count("\n", 0, offset)


class Finding(NamedTuple):
    """A match of a rule."""

    path: str
    line: int
    found: str
    instead: str

    def __str__(self) -> str:
        return f'{self.path}:{self.line}: "{self.found}": {self.instead}'


class Allowed(NamedTuple):
    """Lines of `path` (a glob) that contain `text` have no findings."""

    path: str
    text: str

    def covers(self, path: str, text: str) -> bool:
        return fnmatch.fnmatch(path, self.path) and self.text in text


def read_rules(path: Path = RULES) -> tuple[list[Rule], list[Allowed]]:
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    allowed = [Allowed(entry.get("path", "*"), entry["text"]) for entry in data["allow"] or ()]
    return [compile_rule(entry) for entry in data["patterns"]], allowed


def compile_rule(entry: dict[str, Any]) -> Rule:
    return Rule(re.compile(entry["pattern"], re.IGNORECASE), entry["instead"], entry.get("at") == "opening")


def find_matches(rules: Iterable[Rule], block: Block) -> Iterator[tuple[int, str, str]]:
    """Yield (offset, matched words, advice) for each match in a block; runs of whitespace count as one blank, code as
    one ¤."""
    words = list(_WORD.finditer(block.text))
    texts = ["¤" if word[0].startswith("`") else word[0] for word in words]
    starts = list(accumulate((len(text) + 1 for text in texts), initial=0))
    text = " ".join(texts)
    for rule in rules:
        for match in filter(None, [rule.pattern.match(text)]) if rule.opening else rule.pattern.finditer(text):
            yield words[bisect_right(starts, match.start()) - 1].start(), match[0].strip(), rule.instead


# ---- blocks of prose


def read_blocks(path: str, text: str) -> Iterator[Block]:
    """Yield the prose of a file by its type."""
    name = Path(path)
    if name.suffix == ".py":
        yield from python_blocks(text, is_test=path.startswith("tests/"))
    elif name.suffix in {".pyx", ".pxd"}:  # `ast` cannot parse their docstrings
        yield from comment_blocks(text)
        for match in re.finditer(r'"""(.*?)"""', text, re.DOTALL):
            yield Block(match[1], text.count("\n", 0, match.start()) + 1)
    elif name.suffix == ".md":
        yield from markdown_blocks(text)
    elif mark := COMMENT_MARKS.get(name.suffix or name.name):
        yield from marked_blocks(text, mark)


def python_blocks(text: str, *, is_test: bool) -> Iterator[Block]:
    """Yield docstrings, comments and string literals with at least two words; of tests docstrings, comments and
    names. A docstring is a string that is a statement, also below an assignment."""
    yield from comment_blocks(text)
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in formatted for part in ast.walk(node) if part is not node}
    for node in nodes:
        last = getattr(node, "end_lineno", 0)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in docstrings:
                yield Block(node.value, node.lineno)
            elif not is_test and id(node) not in inner and len(node.value.split()) > 1:
                yield Block(node.value, node.lineno, last)
        elif isinstance(node, ast.JoinedStr) and not is_test and id(node) not in inner:
            parts = [part.value if isinstance(part, ast.Constant) else "¤" for part in node.values]
            yield Block("".join(map(str, parts)), node.lineno, last)
        elif is_test and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Block(node.name.replace("_", " "), node.lineno)


def comment_blocks(text: str) -> Iterator[Block]:
    """Yield comments of Python."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = (token for token in tokens if token.type == tokenize.COMMENT)
    yield from _adjoining((*token.start, token.string.lstrip("#").strip()) for token in comments)


def marked_blocks(text: str, mark: str) -> Iterator[Block]:
    """Yield comments that run from a mark to the end of the line."""
    lines = ((number, *line.partition(mark)) for number, line in enumerate(text.splitlines(), 1))
    yield from _adjoining(
        (number, -number if before.strip() else 0, comment.strip())  # beside code by itself
        for number, before, found, comment in lines
        if found and (not before.strip() or before.endswith(" "))
    )


def _adjoining(comments: Iterable[tuple[int, int, str]]) -> Iterator[Block]:
    """Blocks of comments with their lines and columns: those on adjoining lines of the same column are one."""
    lines: list[str] = []
    first = last = column = 0
    for number, start, comment in comments:
        if lines and (number != last + 1 or start != column):
            yield Block("\n".join(lines), first)
            lines = []
        first, column, last = first if lines else number, start, number
        lines.append(comment)
    if lines:
        yield Block("\n".join(lines), first)


def markdown_blocks(text: str) -> Iterator[Block]:
    """Yield paragraphs, headings, list items and table rows outside code blocks; a comment of HTML counts as text."""
    lines: list[str] = []
    first, fenced = 0, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = bool(_FENCE.match(line))
        if lines and (fence or fenced or not line.strip() or _BLOCK_START.match(line)):
            yield Block("\n".join(lines), first)
            lines = []
        if fence:
            fenced = not fenced
        elif not fenced and line.strip():
            first = first if lines else number
            lines.append(line if lines else _BLOCK_START.sub(_indent, line))


def _indent(match: re.Match[str]) -> str:
    return match[0] if "|" in match[0] else " " * len(match[0])  # a table row has no opening


# ---- files


def select_files(paths: Iterable[str]) -> Iterator[str]:
    """Yield the tracked files below `paths` (all without any), relative to the root."""
    given = [str(Path(path).resolve().relative_to(ROOT)) for path in paths]
    argv = ["git", "ls-files", "-z", "--", *given]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in sorted(set(listed.split("\0")) - {""}):
        known = name.endswith(PROSE_SUFFIXES) or (Path(name).suffix or Path(name).name) in COMMENT_MARKS
        is_file = (ROOT / name).is_file() and not (ROOT / name).is_symlink()
        if known and is_file and not any(fnmatch.fnmatch(name, glob) for glob in SKIPPED):
            yield name


def check_text(path: str, text: str, rules: Iterable[Rule], allowed: Iterable[Allowed] = ()) -> list[Finding]:
    """Find the matches of a file that the allow-list does not cover, in order."""
    lines = text.splitlines() or [""]
    findings = []
    for block in read_blocks(path, text):
        for offset, found, instead in find_matches(rules, block):
            line = _line_of(block, offset, found, lines)
            if not any(one.covers(path, lines[line - 1]) for one in allowed):
                findings.append(Finding(path, line, found, instead))
    return sorted(findings, key=lambda finding: finding.line)


def _line_of(block: Block, offset: int, found: str, lines: list[str]) -> int:
    """The line of a match; a literal of several parts can break between its words."""
    if not block.literal:
        return min(block.line_at(offset), len(lines))
    within = range(block.line, block.literal + 1)
    places = (at for words in (found, found.split(maxsplit=1)[0]) for at in within if words in lines[at - 1])
    return next(places, block.line)


def main(paths: list[str]) -> int:
    """Print the findings in these files and folders, or in all tracked files. Exit code 1 when there are any, or when
    an entry of the allow-list is not used."""
    rules, allowed = read_rules()
    texts = [(path, (ROOT / path).read_text(encoding="utf-8")) for path in select_files(paths)]
    found = [str(finding) for path, text in texts for finding in check_text(path, text, rules, allowed)]
    for entry in [] if paths else [one for one in allowed if not any(one.covers(*text) for text in texts)]:
        found.append(f"{RULES.relative_to(ROOT)}: allowed text {entry.text!r} ({entry.path}) does not occur: remove it")
    advice = "; for text that is correct as it is, add `allow` in tests/style/vocabulary.yaml" if found else ""
    print("\n".join([*found, f"vocabulary: {len(texts)} files, {len(found)} findings{advice}"]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
