"""mkdocs hooks: add pages from outside docs/ and complete the navigation.

Data flow: mkdocs calls `on_config` (appends pages that mkdocs.yml does not name to the section of their folder) and
`on_files` (README.md becomes the home page; CHANGELOG.md, CONTRIBUTING.md and plans/ become pages; decisions get a
list). Source: mkdocs' user guide, "Hooks"; https://www.mkdocs.org/dev-guide/plugins/#events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"Extend": "extend", "Reference": "reference", "Design": "design", "Decisions": "adr"}

_ITEM = re.compile(r"(-|\d+\.) ")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation."""
    nav = config.nav or []
    for section in nav:
        for title, pages in section.items():
            if title in FOLDERS:
                pages += [name for name in _pages(FOLDERS[title]) if name not in pages]
    known = str(nav)
    others = [page for page in _pages("") if page not in known]
    config.nav = [*nav, {"Further": others}] if others else nav
    return config


def _pages(folder: str) -> list[str]:
    docs = ROOT / "docs"
    return [str(page.relative_to(docs)) for page in sorted((docs / folder).glob("*.md"))]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files from outside docs/."""
    made = {
        "index.md": _from_above(ROOT / "README.md"),
        "changelog.md": _from_above(ROOT / "CHANGELOG.md"),
        "contributing.md": _from_above(ROOT / "CONTRIBUTING.md"),
    }
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    for plan in sorted((ROOT / "plans").rglob("*")):
        if plan.is_file():
            files.append(File.generated(config, f"plans/{plan.relative_to(ROOT / 'plans')}", content=plan.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Convert GitHub's Markdown to Python-Markdown: links to files outside docs/, and lists directly after a
    sentence."""
    if page.file.src_uri.startswith("guide/"):
        markdown = markdown.replace("](../../", "](../").replace("](../README.md", "](../index.md")
    markdown = markdown.replace("](../CONTRIBUTING.md", f"]({'../' * page.file.src_uri.count('/')}contributing.md")
    return "\n".join(_with_lists_apart(markdown.split("\n")))


def _with_lists_apart(lines: Sequence[str]) -> Iterator[str]:
    before, fenced = "", False
    for line in lines:
        fenced ^= line.lstrip().startswith("```")
        if not fenced and _ITEM.match(line) and before.strip() and before[0] != " " and not _ITEM.match(before):
            yield ""
        yield line
        before = line


def _from_above(page: Path) -> str:
    """The text of a page above docs/, with its links rewritten."""
    text = page.read_text(encoding="utf-8")
    text = text.replace("](CHANGELOG.md)", "](changelog.md)").replace("](CONTRIBUTING.md", "](contributing.md")
    return text.replace("](README.md", "](index.md").replace("](docs/", "](")
