"""Rules on copies of systems that run already (`restore`), for the compiler. Pure.

A system that proveout starts has its copy without a key; one that runs already needs the key,
because a copy needs rights, disk and the end of other sessions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

from proveout.dsl import engines
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.host_rules import Objection


def restore_problems(system: System, systems: Collection[System]) -> Iterator[Objection]:
    """The objections to copying the data of a system with `restore`."""
    engine = engines.of(system.engine)
    if system.provision is not None:
        message = "`restore` is for a server that runs already: of one that proveout starts, a reset needs no such key"
        yield Objection(message=message, way_out="leave it out")
        return
    if system.can_be_restored:
        yield Objection(message="of a database file, a reset needs no `restore`", way_out="leave it out")
        return
    if system.restore not in engine.restore:
        message = engine.no_restore or f"proveout cannot copy the data of {engine.title} servers that run already"
        yield Objection(message=message, way_out=engine.instead_of_restore)
        return
    ends = {one.name for one in systems if one.propagates_to} | {one.propagates_to for one in systems}
    if system.name in ends:
        message = "an end of a propagation cannot be copied: its slot or subscription belongs to the database"
        yield Objection(message=message, way_out="leave out `restore` or the propagation")
    if system.instances:
        yield Objection(message="a system of several instances cannot be copied", way_out="give one dsn")
    elif not names_database(system.dsn or ""):
        message = "the dsn names no database, so it is not clear what is copied"
        yield Objection(message=message, way_out="dbname=…, or /name after the host of a URI")


def names_database(dsn: str) -> bool:
    """Whether a conninfo or a URI of PostgreSQL names its database.

    >>> names_database("host=db1 dbname=app"), names_database("postgresql://db1/app"), names_database("host=db1")
    (True, True, False)
    """
    if "://" in dsn:
        return len(urlsplit(dsn.replace("${", "").replace("}", "")).path) > 1 or "dbname=" in dsn
    return re.search(r"(?:^|\s)dbname\s*=\s*\S", dsn) is not None


def unrestorable(system: System) -> Objection:
    """The objection to a reset of a system that runs already and has no `restore`."""
    engine = engines.of(system.engine)
    if engine.restore:
        way_out = f"`restore: {engine.restore[0]}` of the system, restore: false, or populate it again"
        return Objection(
            message=f"`{system.name}` runs already, and the plan keeps no copy of its data", way_out=way_out
        )
    why = f": {engine.no_restore}" if engine.no_restore else ""
    message = f"`{system.name}` is not provisioned by proveout and cannot be restored{why}"
    return Objection(message=message, way_out=f"restore: false, or {engine.instead_of_restore}")
