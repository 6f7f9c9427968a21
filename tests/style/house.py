"""The size of the sources: `python tests/style/house.py [DIRECTORY]` prints modules, folders, lines, code tokens, code
tokens a line of code, and the words of the guide.

Generated modules are left out. Lines are those of the .py and .pyx files. Code tokens are the names, operators, numbers
and strings of the .py files without docstrings; a line of code has one of them.
"""

from __future__ import annotations

import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOP = ("agent", "coordinator", "dsl", "proto", "src/proveout", "tui")
CODE = (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
LAYOUT = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
"""Tokens before a docstring; comments and blank lines may stand between."""


def modules(root: Path, suffix: str) -> list[Path]:
    """The files of the sources with this suffix; folders of a link (src/proveout/dsl) are counted once."""
    found = (file for top in TOP for file in sorted((root / top).rglob(f"*{suffix}")))
    return [one for one in found if "_pb2" not in one.name and one == one.resolve()]


def code_of(file: Path) -> tuple[int, int]:
    """Code tokens and lines of code of a module."""
    tokens, lines, before = 0, set[int](), tokenize.NEWLINE
    with tokenize.open(file) as text:
        for token in tokenize.generate_tokens(text.readline):
            docstring = token.type == tokenize.STRING and before in LAYOUT
            if token.type in CODE and not docstring:
                tokens += 1
                lines.update(range(token.start[0], token.end[0] + 1))
            if token.type not in (tokenize.NL, tokenize.COMMENT):
                before = token.type
    return tokens, len(lines)


def main() -> None:
    """Print the table."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    python = modules(root, ".py")
    counted = [code_of(file) for file in python]
    tokens, lines = (sum(column) for column in zip(*counted, strict=True))
    every = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in (*python, *modules(root, ".pyx")))
    print(f"modules {len(python)}, folders {len({file.parent for file in python})}, lines {every}")
    print(f"code tokens {tokens}, of a line of code {tokens / lines:.1f}")
    print(f"words of the guide {sum(len(page.read_text().split()) for page in (root / 'docs/guide').glob('*.md'))}")


if __name__ == "__main__":
    main()
