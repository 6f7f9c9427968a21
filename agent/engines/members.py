"""The members of a system that a load may connect to, and the one to try first.

Flow: the dsns of an endpoint and the access of the load -> `connect(number)` -> the first member that accepts a
connection with that access. Where changes go to one member, all terminals of a worker begin with the one that was found
last, so that after a promotion one terminal searches and the others follow. Where any member will do, terminals begin
with different ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proveout.agent.engines.driver_contract import Driver, FailureKind, FindsMember, StatementFailure

READ_ONLY_CODES = frozenset({"25006", "1290"})
"""Errors of a change on a member that has become read-only: PostgreSQL's SQLSTATE, MySQL's number."""


class Members:
    """The members of one system. `access` as `Sessions.access`; "": a terminal keeps to the dsn of its number.
    Callable from several threads."""

    def __init__(self, driver: Driver, dsns: Sequence[str], access: str) -> None:
        self._driver, self._access = driver, access
        self._groups: list[Sequence[str]] = []
        self._found: list[int] = []
        self._dsns = dsns

    def connect(self, number: int, within_s: float | None = None) -> Any:
        """A new session for a terminal. Raises StatementFailure (lost) when no member accepts it."""
        driver = self._driver
        if not isinstance(driver, FindsMember):
            return driver.connect(self._dsns[number % len(self._dsns)])
        at = number % len(self._searched(driver))
        members = self._groups[at]
        spread = self._access in ("any", "read_only")
        first = number % len(members) if spread else self._found[at]
        failures: list[StatementFailure] = []
        for index in (*range(first, len(members)), *range(first)):
            try:
                session = driver.open(members[index], access=self._access, within_s=within_s)
            except StatementFailure as failure:
                failures.append(failure)
                continue
            self._found[at] = index
            return session
        raise self._none(failures)

    def _searched(self, driver: FindsMember) -> Sequence[Sequence[str]]:
        """The members in groups: one of all dsns, or without an access those of each dsn."""
        if not self._groups:
            each = [tuple(driver.members(dsn)) for dsn in self._dsns]
            groups = [tuple(member for members in each for member in members)] if self._access else each
            self._found = [0] * len(groups)
            self._groups = list(groups)
        return self._groups

    def _none(self, failures: Sequence[StatementFailure]) -> StatementFailure:
        last = failures[-1]
        if len(failures) == 1:
            return last
        wanted = f" with access {self._access.replace('_', '-')}" if self._access else ""
        texts = "; ".join(dict.fromkeys(failure.what for failure in failures))
        what = f"none of {len(failures)} members accepts a connection{wanted}: {texts}"
        return StatementFailure(last.code, what, FailureKind.LOST)
