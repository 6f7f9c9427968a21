"""Errors of python-oracledb: the ORA- code that a DBA looks up, the text on one line, and the kind of failure for a
load.

Flow: `oracledb.Error` -> `error_text(error)` -> code and text -> `kind_of(code, …)`. The driver wraps some server
errors in codes of its own (DPY-4011 for a connection that has ended, DPY-6005 for a listener that is not there); behind
those stands the code that Oracle's own clients show, and this one is reported. Source: Oracle Database Error Messages;
`oracledb.errors`.
"""

from __future__ import annotations

import re
from typing import Any

from proveout.agent.engines.driver_contract import FailureKind
from proveout.core.data_classes import dataclass

NO_LISTENER = "ORA-12541"
END_OF_FILE = "ORA-03113"
NO_TABLE = "ORA-00942"

# 08177 can't serialize, 00060 deadlock, 04068 a package was replaced under the session, 14402 .. a partition moved
RETRYABLE = frozenset({"ORA-08177", "ORA-00060", "ORA-04068", "ORA-14403"})
# The session or the instance is gone or not available: the load connects again.
LOST = frozenset(
    {
        "ORA-00018", "ORA-00020", "ORA-00028", "ORA-00031", "ORA-00600", "ORA-00603", "ORA-01012", "ORA-01017",
        "ORA-01033", "ORA-01034", "ORA-01041", "ORA-01089", "ORA-01090", "ORA-01092", "ORA-02391", "ORA-02396",
        "ORA-03113", "ORA-03114", "ORA-03135", "ORA-12153", "ORA-12170", "ORA-12505", "ORA-12514", "ORA-12516",
        "ORA-12518", "ORA-12519", "ORA-12520", "ORA-12528", "ORA-12537", "ORA-12541", "ORA-12547", "ORA-12570",
        "ORA-12583", "ORA-28000", "ORA-28001",
        "DPY-1001", "DPY-4011", "DPY-4024", "DPY-6000", "DPY-6001", "DPY-6003", "DPY-6005",
    }
)  # fmt: skip
_HELP = re.compile(r"\s*Help: https?://\S+")
_ORA = re.compile(r"ORA-\d{5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorText:
    """An error: its code as a DBA looks it up (`ORA-00942`), and its message on one line, with its codes."""

    code: str
    text: str


def error_text(error: BaseException) -> ErrorText:
    """Return the code and the text of a python-oracledb error."""
    inner: Any = error.args[0] if error.args else None
    text = words(str(error)) or type(error).__name__
    code = str(getattr(inner, "full_code", "")) or _first(text)
    number = int(getattr(inner, "code", 0) or 0)
    if code.startswith("DPY-") and number:
        code = f"ORA-{number:05d}"
    elif code == "DPY-4011":
        code = END_OF_FILE
    elif code == "DPY-6005" and "refused" in text:
        code = NO_LISTENER
    elif code.startswith("DPY-6") and (similar := _ORA.search(text)):  # "(Similar to ORA-12514)"
        code = similar[0]
    if code in {END_OF_FILE, NO_LISTENER} and code not in text:
        named = "end-of-file on communication channel" if code == END_OF_FILE else "no listener"
        text = f"{code}: {named} ({text})"
    return ErrorText(code=code, text=text)


def words(message: str) -> str:
    """A message on one line, without the address of its help page."""
    return " ".join(_HELP.sub("", message).split())


def kind_of(code: str, logical: frozenset[str] = frozenset()) -> FailureKind:
    """Return the kind of a code; `logical` are those that the statement's specification counts as logical failures."""
    if code in logical:
        return FailureKind.LOGICAL
    if code in RETRYABLE:
        return FailureKind.RETRYABLE
    return FailureKind.LOST if code in LOST else FailureKind.ERROR


def _first(text: str) -> str:
    match = re.match(r"(?:ORA|DPY|DPI|TT)-?\d+", text)
    return match[0] if match else "ORA-00600"
