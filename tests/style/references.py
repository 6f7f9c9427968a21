"""References to modules, files, functions, tests, pages and decisions of the project, found in prose, and whether each
exists.

Data flow: tracked files -> `Tree` (paths, defined names, words of the code) -> `stale_references(tree, path, text)` for
each file -> messages. Prose is what `vocabulary` reads: docstrings and comments of Python, Markdown outside code
blocks. Rules, each on text between backquotes unless another form is named:

1. A path to a source, a page or a plan exists, from the root, from `tests/` or `docs/`, or from the file that names it.
   A file name without a folder (`units.py`) is the name of a tracked file. A name of a test is defined.
2. A dotted name that begins with a package or a module of the project leads to a module, and to a name in it.
3. In Python, each identifier occurs in the code of the project; names of other projects are in OUTSIDE. One after
   "see", or in the docstring of a package, is a module, a definition, or a name in the same file.
4. On a page about the sources, a CONSTANT_NAME occurs in the code, and a _private_name in a module that the page names.
5. A decision (`ADR 12`, without backquotes) exists.
6. A relative link in Markdown leads to a file, and its anchor to a heading there.
"""

from __future__ import annotations

import builtins
import fnmatch
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import vocabulary

ROOT = vocabulary.ROOT
PACKAGES = ("agent", "cli", "coordinator", "core", "dsl", "proto", "tui")
FOLDERS = ("agent", "coordinator", "dsl", "proto", "tui", "benchmarks", "docs", "plans", "src", "tests")
CODE_SUFFIXES = (".py", ".pyx", ".pxd", ".pyi")
FILE_SUFFIXES = (*CODE_SUFFIXES, ".proto", ".md", ".tcss", ".j2")
DATA_SUFFIXES = (".yaml", ".yml", ".sql", ".toml", ".json", ".svg", ".pem", ".key", ".service")
WITH_WORDS = (".proto", ".yaml", ".yml", ".sql", ".toml", ".j2", ".tcss", "Makefile")
EXAMPLES = ("tests/style/references.py", "tests/style/test_prose.py")  # have names that do not exist
OUTSIDE_FILES = frozenset({"fake_agent.py", "sitecustomize.py", "queue.py"})
"""Files of other projects, and names that texts invent as examples."""
OUTSIDE = frozenset(
    {
        *("PQconsumeInput", "PQgetResult", "PQisBusy", "PQsendQueryPrepared", "numeric_recv", "disable_on_error"),
        *("select_stmnt", "lowestDiscernibleValue", "cutime", "ps", "polars", "from_arrow", "node_ip_address"),
        *("not_applicable", "solve__lz4__degree_2", "before_1"),
    }
)
"""Names of other projects: libpq, PostgreSQL, HdrHistogram, /proc, Polars, Ray."""
_SPAN = re.compile(r"(\b[Ss]ee\s+)?`([^`\n]+)`")
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
_PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
_PRIVATE = re.compile(r"_[a-z]\w*(?:\(\))?")
_MEASURED = re.compile(r"_(total|bytes|fraction|per_s|s|us)$")  # names of metrics: `memory.used_bytes`
_DECISION = re.compile(r"\bADRs? (\d{1,4})\b")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_TRIPLE = re.compile(r'"""(.*?)"""', re.DOTALL)
_DEFINITION = re.compile(r"\b(?:def|class|cdef|cpdef)\b[^(\n]*?(\w+)[(:]")


@dataclass
class Tree:
    """The tracked files, and the names in them."""

    paths: frozenset[str]
    words: set[str] = field(default_factory=set)
    """Every word of the code of the project: names, keys, words in literals, names of files."""
    names: dict[str, frozenset[str]] = field(default_factory=dict)
    """Names and words in literals, by file of code."""
    definitions: set[str] = field(default_factory=set)
    modules: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Files of code by the name of the module or package."""
    prose: dict[str, list[vocabulary.Block]] = field(default_factory=dict)
    """Docstrings and comments with references, by file of Python."""

    @cached_property
    def entries(self) -> frozenset[str]:
        """The tracked files and their folders."""
        return self.paths | {str(folder) for path in self.paths for folder in Path(path).parents}

    @cached_property
    def ends(self) -> frozenset[str]:
        """The tracked files, each from any of its folders on."""
        parts = (path.split("/") for path in self.paths)
        return frozenset("/".join(names[start:]) for names in parts for start in range(len(names)))


@cache
def read_tree() -> Tree:
    """Read all tracked files."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = (path for path in listed.split("\0") if path)
    tree = Tree(frozenset(path for path in files if (ROOT / path).is_file() and not (ROOT / path).is_symlink()))
    tree.words |= {*dir(builtins), *sys.stdlib_module_names}
    for path in tree.paths:
        tree.words.update(_WORD.findall(path))
        if path in EXAMPLES:
            tree.modules[Path(path).stem].append(path)
        elif path.endswith(CODE_SUFFIXES):
            _add_code(tree, path)
        elif path.endswith(WITH_WORDS):
            tree.words.update(_WORD.findall((ROOT / path).read_text(encoding="utf-8", errors="replace")))
    return tree


def _add_code(tree: Tree, path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    stem = Path(path).stem
    tree.modules[Path(path).parent.name if stem == "__init__" else stem].append(path)
    code = text
    if path.endswith((".py", ".pyi")):
        docstrings = [match for match in _TRIPLE.finditer(text) if _is_statement(text, match.start())]
        prose = [vocabulary.Block(match[1], text.count("\n", 0, match.start()) + 1) for match in docstrings]
        tree.prose[path] = _with_references(text, prose)
        ends = [0, *(match.end() for match in docstrings)]
        code = (
            "".join(text[end : match.start()] for end, match in zip(ends, docstrings, strict=False)) + text[ends[-1] :]
        )
        code = re.sub(r"#[^\n]*", "", code)
    tree.definitions.update(_DEFINITION.findall(code))
    names = set(_WORD.findall(code))
    tree.names[path] = frozenset(names)
    tree.words |= names


def _is_statement(text: str, at: int) -> bool:
    """Whether a text between three quotes begins its line, as a docstring does."""
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def _with_references(text: str, docstrings: list[vocabulary.Block]) -> list[vocabulary.Block]:
    """Return docstrings and comments with references; a file without one in its comments is not tokenized."""
    blocks = list(docstrings)
    if re.search(r"#[^\n]*(`|ADR)", text):
        blocks += vocabulary.comment_blocks(text)
    return [block for block in blocks if "`" in block.text or "ADR" in block.text]


def prose_of(tree: Tree, path: str) -> Iterable[vocabulary.Block]:
    """Return the prose of a tracked file."""
    found = tree.prose.get(path)
    return vocabulary.read_blocks(path, (ROOT / path).read_text(encoding="utf-8")) if found is None else found


def stale_references(
    tree: Tree, path: str, text: str, blocks: Iterable[vocabulary.Block] | None = None
) -> Iterator[str]:
    """Yield `path:line: reference: reason` for each reference of a file that leads nowhere. `blocks`: its prose."""
    is_page = path.endswith(".md") and path != "docs/glossary.md"
    is_about_sources = str(Path(path).parent) in (".", "docs", "docs/extend") and path != "CHANGELOG.md"
    for block in vocabulary.read_blocks(path, text) if blocks is None else blocks:
        if block.literal:
            continue
        is_package_docstring = path.endswith("/__init__.py") and text.startswith('"""' + block.text)
        for match in _SPAN.finditer(block.text):
            strict = bool(match[1]) or is_package_docstring
            reason = _why_stale(tree, path, match[2])
            if not is_page:
                reason = reason or _why_not_in_code(tree, path, match[2], strict=strict)
            elif is_about_sources:
                reason = reason or _why_not_on_page(tree, text, match[2])
            if reason:
                yield f"{path}:{block.line_at(match.start())}: `{match[2]}`: {reason}"
        for match in _DECISION.finditer(block.text):
            if not any(name.startswith(f"docs/adr/{int(match[1]):04d}-") for name in tree.paths):
                yield f"{path}:{block.line_at(match.start())}: {match[0]}: no such decision in docs/adr"
    if path.endswith(".md"):
        yield from _stale_links(tree, path, text)


def _why_stale(tree: Tree, path: str, reference: str) -> str:
    """Return why a path, a test or a name in a package leads nowhere, "" when it is none or leads somewhere."""
    name, _, inner = reference.partition("::")
    if _PATH.fullmatch(name) and _is_path(name):
        if not _path_exists(tree, path, name):
            return "no such file"
        return "" if not inner or _test_exists(tree, inner) else "no such test"
    if re.fullmatch(r"test_[\w*]+", reference):
        return "" if _test_exists(tree, reference) else "no such test"
    parts = _parts_of(reference)
    if len(parts) > 1 and parts[0] == "proveout" and parts[1] in PACKAGES:
        return _why_unresolved(tree, parts[1:])
    return ""


def _parts_of(reference: str) -> list[str]:
    """The parts of a dotted name; none of another text."""
    is_name = _NAME.fullmatch(reference) and not reference.endswith(DATA_SUFFIXES) and not _is_path(reference)
    return reference.removesuffix("()").split(".") if is_name else []


def _is_path(name: str) -> bool:
    if "/" not in name:
        return name.endswith(FILE_SUFFIXES) and not name.startswith((".", "proveout."))
    is_ours = name.split("/", maxsplit=1)[0] in FOLDERS
    return name.endswith(FILE_SUFFIXES) or (is_ours and name.endswith((*DATA_SUFFIXES, "/")))


def _path_exists(tree: Tree, path: str, name: str) -> bool:
    if name in OUTSIDE_FILES or name in tree.ends:
        return True
    name = name.removeprefix("src/proveout/").rstrip("/")  # links to the folders of the root
    pattern = re.sub("[A-Z]{3,}", "*", name)  # populate_ENGINE.py: one file for each engine
    for base in (".", "tests", "docs", *(str(folder) for folder in Path(path).parents)):
        if str(Path(base, name)) in tree.entries:
            return True
        if "*" in pattern and fnmatch.filter(tree.paths, str(Path(base, pattern))):
            return True
    return False


def _test_exists(tree: Tree, name: str) -> bool:
    if "*" not in name:
        return name in tree.definitions or name in tree.modules
    return bool(fnmatch.filter(tree.definitions, name)) or bool(fnmatch.filter(tree.modules, name))


def _why_unresolved(tree: Tree, parts: list[str]) -> str:
    """Follow packages and modules as far as they go; the next name must occur in the last one."""
    for base in ("", "src/proveout/"):
        for count in range(len(parts), 0, -1):
            stem = base + "/".join(parts[:count])
            files = [name for name in (f"{stem}.py", f"{stem}.pyx", f"{stem}/__init__.py") if name in tree.names]
            if files:
                names = frozenset().union(*(tree.names[file] for file in files))
                rest = parts[count : count + 1]
                return "" if not rest or rest[0] in names or len(rest[0]) == 1 else f"no `{rest[0]}` in {files[0]}"
    return "no such module"


def _why_not_in_code(tree: Tree, path: str, reference: str, *, strict: bool) -> str:
    """Rules 2 and 3 for a name in a docstring or a comment."""
    parts = _parts_of(reference)
    if not parts or parts[0] == "proveout" or re.fullmatch(r"test_\w+", reference):
        return ""
    if len(parts) > 1 and parts[0] in PACKAGES:
        return _why_unresolved(tree, parts)
    measured = _MEASURED.search(parts[-1])
    missing = [part for part in parts if part not in tree.words and part not in OUTSIDE]
    if missing and not measured:
        return f"`{missing[0]}` occurs nowhere in the code"
    if len(parts) > 1:
        return "" if measured else _why_not_in_module(tree, path, parts)
    here = tree.names.get(path, frozenset())
    if strict and parts[0] not in here | tree.definitions | tree.modules.keys():
        return "not a module, a definition, or a name of this file"
    return ""


def _why_not_in_module(tree: Tree, path: str, parts: list[str]) -> str:
    candidates = [name for name in tree.modules.get(parts[0], ()) if name in tree.names]
    if candidates and not re.search(rf"\bimport .*\b{parts[0]}\b", (ROOT / path).read_text(encoding="utf-8")):
        if parts[0] in tree.names.get(path, frozenset()):  # a name of this file
            return ""
        candidates = [name for name in candidates if name.split("/")[0] == path.split("/", maxsplit=1)[0]]
    folders = [str(Path(name).parent) for name in candidates if name.endswith("/__init__.py")]
    inside = {f"{folder}/{parts[1]}{end}" for folder in folders for end in (".py", "/__init__.py")} & tree.paths
    if not candidates or inside or any(parts[1] in tree.names[name] for name in candidates):
        return ""
    return f"no `{parts[1]}` in {' or '.join(sorted(candidates))}"


def _why_not_on_page(tree: Tree, page: str, reference: str) -> str:
    """Rule 4."""
    if _CONSTANT.fullmatch(reference):
        return "" if reference in tree.words or reference in OUTSIDE else "occurs nowhere in the code"
    if _PRIVATE.fullmatch(reference):
        named = set(re.findall(r"[\w/]+\.pyx?\b", page))
        files = [file for file in tree.names if any(file == name or file.endswith(f"/{name}") for name in named)]
        known = any(reference.removesuffix("()") in tree.names[file] for file in files)
        return "" if known else "in no module that this page names"
    return ""


# ---- links of Markdown


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
    headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    return frozenset(_slug(heading) for heading in headings)


def _slug(heading: str) -> str:
    """Return the anchor that GitHub and Python-Markdown give a heading of plain words."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", text.lower()).strip())
