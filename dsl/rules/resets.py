"""Resets: which systems have a copy to restore, and the DDL that a plan's statements remove."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

from proveout.core.data_classes import record
from proveout.core.errors import PlanProblem
from proveout.dsl import engines
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.stages import Drop, Ladder, Populate, Reset, Sql, Stage
from proveout.dsl.plan.topology import System
from proveout.dsl.rules.host_rules import Objection, noted
from proveout.dsl.workloads.sql_text import scan

# A system that proveout starts has its copy without a key; one that runs already needs the key,
# because a copy needs rights, disk and the end of other sessions.


def restore_problems(system: System, systems: Collection[System]) -> Iterator[Objection]:
    """The objections to copying the data of a system with `restore`."""
    engine = engines.of(system.engine)
    if system.provision is not None:
        message = "`restore` is for a server that runs already: of one that proveout starts, a reset needs no such key"
        yield Objection(message, "leave it out")
        return
    if system.can_be_restored:
        yield Objection("of a database file, a reset needs no `restore`", "leave it out")
        return
    if system.restore not in engine.restore:
        message = engine.no_restore or f"proveout cannot copy the data of {engine.title} servers that run already"
        yield Objection(message, engine.instead_of_restore)
        return
    ends = {one.name for one in systems if one.propagates_to} | {one.propagates_to for one in systems}
    if system.name in ends:
        message = "an end of a propagation cannot be copied: its slot or subscription belongs to the database"
        yield Objection(message, "leave out `restore` or the propagation")
    if system.instances:
        yield Objection("a system of several instances cannot be copied", "give one dsn")
    elif not names_database(system.dsn or ""):
        message = "the dsn names no database, so it is not clear what is copied"
        yield Objection(message, "dbname=…, or /name after the host of a URI")


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
        return Objection(f"`{system.name}` runs already, and the plan keeps no copy of its data", way_out)
    why = f": {engine.no_restore}" if engine.no_restore else ""
    message = f"`{system.name}` is not provisioned by proveout and cannot be restored{why}"
    return Objection(message, f"restore: false, or {engine.instead_of_restore}")


# A reset restores the copy of a system that its last populate has saved (of a system that runs already and is not
# populated: the one from before the first stage), so that tables, indexes and other objects that an sql stage has made
# since are gone. Data flow: the compiled plan -> `since_copy` (for each system of a reset the sql stages since the
# copy, with their DDL) -> `notes` for `check` and `explain`, the statements that the scheduler executes again (`keep:
# ddl`), and the words of the notice in a run.
#
# An earlier reset has removed what was made before it; one with `keep`, or with a condition, is not taken for that.
#
# What runs before a reset: the stages before it that are not steps of a ladder; of a reset that is a step, the steps
# before it in the same list too.

DDL = frozenset({"ALTER", "ANALYZE", "CLUSTER", "COMMENT", "CREATE", "DROP", "GRANT", "REINDEX", "RENAME", "REVOKE"})
"""The first words of statements that change objects, or the statistics about them."""
STATISTICS = "ANALYZE"
"""A stage of these alone has made nothing: the restored copy has statistics of its own."""
SHOWN_MAX = 60


@record
class SinceCopy:
    """An sql stage that has changed a system since it was copied, with the DDL among its statements; `populated`: the
    copy is of a populate, and not of what was there before the run."""

    system: str
    stage: Sql
    statements: tuple[str, ...]
    populated: bool = True

    @property
    def shown(self) -> str:
        """The first statement, shortened, and the number of the others."""
        first = " ".join(self.statements[0].split())
        more = f" and {len(self.statements) - 1} more" if len(self.statements) > 1 else ""
        return (first if len(first) <= SHOWN_MAX else f"{first[: SHOWN_MAX - 1]}…") + more


def since_copy(plan: Plan, reset: Reset) -> tuple[SinceCopy, ...]:
    """The DDL of sql stages since the copy that a reset restores, of each of its systems, in the order of the stages;
    () for a reset that restores nothing."""
    if not reset.restore:
        return ()
    conditional = {one.stage for one in plan.conditions}
    before = tuple(one for one in _before(plan, reset) if not (isinstance(one, Reset) and one.id in conditional))
    return tuple(found for system in reset.systems for found in _of_system(before, system))


def notes(plan: Plan) -> tuple[PlanProblem, ...]:
    """A note for each reset that removes what sql stages have made."""
    return tuple(
        noted(
            f"reset `{stage.id}` {removal(found)}", stage, "keep: ddl executes these statements again after the restore"
        )
        for stage in plan.stages
        if isinstance(stage, Reset) and not stage.keep
        for found in since_copy(plan, stage)
    )


def removal(found: SinceCopy) -> str:
    """The words for what a reset does to an object: "restores `db` …, which removes what stage `index` has made"."""
    as_of = "as its last populate left it" if found.populated else "as it was before the run"
    return f"restores `{found.system}` {as_of}, which removes what stage `{found.stage.id}` has made: {found.shown}"


def _before(plan: Plan, reset: Reset) -> Iterator[Stage]:
    ladder = iteration_order.ladder_of_step(plan, reset)
    last = reset if ladder is None else ladder
    ladders = [stage for stage in plan.stages if isinstance(stage, Ladder)]
    steps = {name for one in ladders for name in (*one.before, *one.after)}
    yield from (one for one in plan.stages[: plan.stages.index(last)] if one.id not in steps)
    if ladder is not None:
        own = ladder.before if reset.id in ladder.before else ladder.after
        yield from (plan.stage(name) for name in own[: own.index(reset.id)])


def _of_system(before: tuple[Stage, ...], system: str) -> tuple[SinceCopy, ...]:
    found: list[SinceCopy] = []
    populated = False
    for stage in before:
        match stage:
            case Populate(into=into) if system in into:
                found, populated = [], True
            case Drop(systems=systems) if system in systems:
                found = []
            case Reset(systems=systems, restore=True, keep="") if system in systems:
                found = []
            case Sql(system=name) if name == system:
                statements = tuple(text for text in stage.statements if is_ddl(text))
                if not all(_first_word(text) == STATISTICS for text in statements):
                    found.append(SinceCopy(system=system, stage=stage, statements=statements, populated=populated))
            case _:
                pass
    return tuple(found)


def is_ddl(statement: str) -> bool:
    """Whether a statement changes objects.

    >>> is_ddl("-- an index\nCREATE INDEX i ON t (a)"), is_ddl("INSERT INTO t VALUES (1)")
    (True, False)
    """
    return _first_word(statement) in DDL


def _first_word(statement: str) -> str:
    return next((token.upper for token in scan(statement) if token.kind == "word"), "")
