"""Passwords struck out of what leaves an agent: texts over the wire, and its log.

Connection strings carry them as `password=…` (libpq) and `://user:password@` (URLs); exceptions of drivers quote both.
"""

from __future__ import annotations

import logging
import re

TEXT_MAX = 4000

_PASSWORD = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s'\"]+)|(://[^:/@\s]*:)[^@\s]+(?=@)", re.IGNORECASE)

_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def struck(text: str) -> str:
    """`text` with `***` for each password."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[3]}***", text)


def for_people(text: str) -> str:
    """`text` fit to go over the wire: passwords struck out, at most `TEXT_MAX` characters, no lone surrogates."""
    return struck(text)[:TEXT_MAX].encode("utf-8", "replace").decode()


class Formatter(logging.Formatter):
    """Log lines, tracebacks included, without passwords and without what would steer a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The finished line."""
        return _STEERING.sub(lambda found: f"\\x{ord(found[0]):02x}", struck(super().format(record)))
