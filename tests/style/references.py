"""References to modules, files, names, tests, pages and decisions of the project in prose, and whether each exists.

Data flow: tracked files -> `Tree` (paths, names of the code) -> `stale_references(tree, path, text)` for each file ->
messages. Prose is what `vocabulary` reads: docstrings and comments of Python, Markdown outside code blocks. Rules, each
on text between backquotes unless another form is named:

1. A path, or the name of a file, is that of a tracked file or folder, from any folder on. A name of a test is defined.
2. A dotted name that begins with a package or a module leads to a module, and to a name in it.
3. In Python each identifier occurs in the code, on a page about the sources each CONSTANT_NAME and _private_name; names
   of other projects are in OUTSIDE.
4. A decision (`ADR 12`, without backquotes) exists. A relative link in Markdown leads to a file, and its anchor to a
   heading there.
"""

from __future__ import annotations

import builtins
import fnmatch
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path

import vocabulary

ROOT = vocabulary.ROOT
PACKAGES = ("agent", "cli", "coordinator", "core", "dsl", "proto", "tui")
FOLDERS = ("agent", "coordinator", "dsl", "proto", "tui", "benchmarks", "docs", "plans", "src", "tests")
CODE = (".py", ".pyx", ".pxd", ".pyi")
FILES = (*CODE, ".proto", ".md", ".tcss", ".j2")
DATA = (".yaml", ".yml", ".sql", ".toml", ".json", ".svg", ".pem", ".key", ".service")
WITH_WORDS = (".proto", ".yaml", ".yml", ".sql", ".toml", ".j2", ".tcss", "Makefile")
EXAMPLES = ("tests/style/references.py", "tests/style/test_prose.py")  # have names that do not exist
OUTSIDE = frozenset(
    {
        *("PQconsumeInput", "PQgetResult", "PQisBusy", "PQsendQueryPrepared", "numeric_recv", "disable_on_error"),
        *("select_stmnt", "lowestDiscernibleValue", "cutime", "ps", "polars", "from_arrow", "node_ip_address"),
        *("not_applicable", "solve__lz4__degree_2", "before_1", "fake_agent.py", "sitecustomize.py", "queue.py"),
    }
)
"""Names of other projects (libpq, PostgreSQL, HdrHistogram, /proc, Polars, Ray), and names that texts invent."""
_SPAN = re.compile(r"`([^`\n]+)`")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
_PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
_OF_SOURCES = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|_[a-z]\w*(?:\(\))?")
_MEASURED = re.compile(r"_(total|bytes|fraction|per_s|s|us)$")  # names of metrics: `memory.used_bytes`
_DECISION = re.compile(r"\bADRs? (\d{1,4})\b")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_TRIPLE = re.compile(r'"""(.*?)"""', re.DOTALL)


@dataclass
class Tree:
    """The tracked files and folders, each from any of its folders on, and the names in the code."""

    paths: frozenset[str]
    entries: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    """Every word of the code of the project: names, keys, words in literals, names of files."""
    names: dict[str, frozenset[str]] = field(default_factory=dict)
    """Names and words in literals, by file of code."""
    modules: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Files of code by the path of the module or package from any of its folders on."""
    prose: dict[str, list[vocabulary.Block]] = field(default_factory=dict)
    """Docstrings and comments, by file of Python."""


def _from_each_folder(path: str) -> Iterator[str]:
    parts = path.split("/")
    yield from ("/".join(parts[start:]) for start in range(len(parts)))


@cache
def read_tree() -> Tree:
    """Read all tracked files."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = (path for path in listed.split("\0") if path)
    tree = Tree(frozenset(path for path in files if (ROOT / path).is_file() and not (ROOT / path).is_symlink()))
    tree.words |= {*dir(builtins), *sys.stdlib_module_names}
    for path in tree.paths:
        for entry in accumulate(path.split("/"), "{}/{}".format):
            tree.entries.update(_from_each_folder(entry))
        tree.words.update(_WORD.findall(path))
        if path.endswith(CODE):
            _add_code(tree, path)
        elif path.endswith(WITH_WORDS):
            tree.words.update(_WORD.findall((ROOT / path).read_text(encoding="utf-8", errors="replace")))
    return tree


def _add_code(tree: Tree, path: str) -> None:
    code = (ROOT / path).read_text(encoding="utf-8") if path not in EXAMPLES else ""
    for name in _from_each_folder(str(Path(path).with_suffix("")).removesuffix("/__init__")):
        tree.modules[name].append(path)
    if path.endswith((".py", ".pyi")):
        quoted = _TRIPLE.finditer(code)  # docstrings are those with nothing before them in their line
        triples = [one for one in quoted if not code[code.rfind("\n", 0, one.start()) + 1 : one.start()].strip()]
        tree.prose[path] = [vocabulary.Block(one[1], code.count("\n", 0, one.start()) + 1) for one in triples]
        if re.search(r"#[^\n]*(`|ADR)", code):
            tree.prose[path] += vocabulary.comment_blocks(code)
        ends = [0, *(one.end() for one in triples)]
        between = (code[end : one.start()] for end, one in zip(ends, triples, strict=False))
        code = re.sub(r"#[^\n]*", "", "".join([*between, code[ends[-1] :]]))
    tree.names[path] = frozenset(_WORD.findall(code))
    tree.words |= tree.names[path]


def stale_references(tree: Tree, path: str, text: str) -> Iterator[str]:
    """Yield `path:line: reference: reason` for each reference of a file that leads nowhere."""
    is_page = path.endswith(".md") and path != "docs/glossary.md"
    is_about_sources = str(Path(path).parent) in (".", "docs", "docs/extend") and path != "CHANGELOG.md"
    for block in tree.prose.get(path) or vocabulary.read_blocks(path, text):
        if block.literal:
            continue
        for match in _SPAN.finditer(block.text):
            checked = not is_page or (is_about_sources and bool(_OF_SOURCES.fullmatch(match[1])))
            if reason := _why_stale(tree, path, match[1], checked=checked):
                yield f"{path}:{block.line_at(match.start())}: `{match[1]}`: {reason}"
        for match in _DECISION.finditer(block.text):
            if not any(name.startswith(f"docs/adr/{int(match[1]):04d}-") for name in tree.paths):
                yield f"{path}:{block.line_at(match.start())}: {match[0]}: no such decision in docs/adr"
    if path.endswith(".md"):
        yield from _stale_links(tree, path, text)


def _why_stale(tree: Tree, path: str, reference: str, *, checked: bool) -> str:
    """Return why a reference leads nowhere, "" when it leads somewhere; `checked`: its identifiers too."""
    name, _, inner = reference.partition("::")
    if _PATH.fullmatch(name) and _is_path(name):
        if not _path_exists(tree, path, name):
            return "no such file"
        return "" if not inner or inner in tree.words else "no such test"
    if re.fullmatch(r"test_[\w*]+", reference):
        is_there = fnmatch.filter(tree.words, reference) if "*" in reference else reference in tree.words
        return "" if is_there else "no such test"
    if not _NAME.fullmatch(reference) or reference.endswith(DATA):
        return ""
    parts = reference.removesuffix("()").removeprefix("proveout.").split(".")
    if parts[0] in PACKAGES and len(parts) > 1 and (checked or reference.startswith("proveout.")):
        return _why_unresolved(tree, parts)
    if not checked or parts[0] == "proveout" or _MEASURED.search(parts[-1]):
        return ""
    if missing := [part for part in parts if part not in tree.words | OUTSIDE]:
        return f"`{missing[0]}` occurs nowhere in the code"
    is_local = len(parts) < 2 or parts[0] in tree.names.get(path, frozenset())
    return "" if is_local else _why_unresolved(tree, parts)


def _is_path(name: str) -> bool:
    if "/" not in name:
        return name.endswith(FILES) and not name.startswith((".", "proveout."))
    is_ours = name.split("/", maxsplit=1)[0] in FOLDERS
    return name.endswith(FILES) or (is_ours and name.endswith((*DATA, "/")))


def _path_exists(tree: Tree, path: str, name: str) -> bool:
    name = name.rstrip("/")
    pattern = re.sub("[A-Z]{3,}", "*", name.removeprefix("src/proveout/"))  # populate_ENGINE.py: for each
    if "*" in pattern:
        return bool(fnmatch.filter(tree.entries, pattern))
    return name in OUTSIDE or bool({name, pattern, f"src/proveout/{pattern}"} & tree.entries)


def _why_unresolved(tree: Tree, parts: list[str]) -> str:
    """Follow packages and modules as far as they go; the next name must occur in the last one."""
    for count in range(len(parts), 0, -1):
        files = tree.modules.get("/".join(parts[:count]), [])
        if files and (count > 1 or parts[0] not in PACKAGES or len(parts) == 1):
            found = frozenset().union(*(tree.names[file] for file in files))
            rest = parts[count : count + 1]
            return "" if not rest or rest[0] in found or len(rest[0]) == 1 else f"no `{rest[0]}` in {files[0]}"
    return "no such module" if parts[0] in PACKAGES else ""


def _stale_links(tree: Tree, path: str, text: str) -> Iterator[str]:
    for block in vocabulary.markdown_blocks(text):
        for match in _LINK.finditer(block.text):
            target, _, anchor = match[1].partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            file = ((ROOT / path).parent / target if target else ROOT / path).resolve()
            relative = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)
            place = f"{path}:{block.line_at(match.start())}: link to {match[1]}"
            if relative not in tree.entries:
                yield f"{place}: no such file"
            elif anchor and relative.endswith(".md") and anchor not in _anchors(relative):
                yield f"{place}: no such heading"


@cache
def _anchors(path: str) -> frozenset[str]:
    """The anchors that GitHub and Python-Markdown give the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    texts = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower() for heading in headings)
    return frozenset(re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", text).strip()) for text in texts)
