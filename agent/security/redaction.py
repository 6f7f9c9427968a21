"""Removes passwords from texts on the wire and from the log of an agent.

Connection strings carry passwords as `password=…` (libpq) and `://user:password@` (URLs); exceptions of drivers quote
both.
"""

from __future__ import annotations

import logging
import re

TEXT_MAX = 4000

_PASSWORD = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s'\"]+)|(://[^:/@\s]*:)[^@\s]+(?=@)", re.IGNORECASE)

_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def redact_passwords(text: str) -> str:
    """`text` with `***` in place of each password."""
    return _PASSWORD.sub(lambda found: f"{found[1] or found[3]}***", text)


def sanitize(text: str) -> str:
    """`text` for the wire: without passwords, at most `TEXT_MAX` characters, no lone surrogates."""
    return redact_passwords(text)[:TEXT_MAX].encode("utf-8", "replace").decode()


class Formatter(logging.Formatter):
    """Log lines, with tracebacks, without passwords and terminal control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        return _CONTROL_CHARACTERS.sub(
            lambda found: f"\\x{ord(found[0]):02x}", redact_passwords(super().format(record))
        )
