"""The next iteration of a ladder, a search or a tool stage. Pure.

Called by `decide`. The choice depends on finished iterations only, so that a resumed run continues where it stopped. A
deferred rate is resolved here, when its stage begins and the stages that it needs have ended. In a tool stage an
outside program runs on all hosts of the stage at the same time; each is a load of its own, and the results are merged
like those of loads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import Any

from proveout.coordinator.measure.load_merge import present_hosts
from proveout.coordinator.schedule import iteration
from proveout.coordinator.schedule.batches import batch, emit_provisional_verdicts, forget_parts, part_of
from proveout.coordinator.schedule.rate_search import Probe, Rates
from proveout.coordinator.schedule.setup_stages import PARTS, check_after, pool_part, read_schemas
from proveout.coordinator.schedule.state import RunProgress, Turn, Undecided, Unresolved
from proveout.coordinator.schedule.tasks import tool_data_root
from proveout.core.numbers import percent
from proveout.core.statistics import FUTILE, repeats_confidence
from proveout.dsl.plan import iteration_order
from proveout.dsl.plan.stages import Drop, Ladder, Measuring, Open, Phased, Search, Stage, Tool
from proveout.dsl.plan.topology import Expression
from proveout.proto.events import IterationFinished, IterationId, IterationStarted, LadderCut, StageFinished
from proveout.proto.wire.tasks import PrepareFio


def _resolved(turn: Turn, stage: Ladder | Search) -> tuple[float | None, ...] | None:
    """The stage's rates as numbers; None when a rate cannot be resolved, which fails the stage."""
    wanted: tuple[float | Expression, ...]
    match stage:
        case Ladder(arrival=Open(rate=rate)):
            wanted = (rate,)
        case Ladder(arrival=Phased() as phased):
            return (phased.rate,)
        case Ladder():
            return (None,)
        case Search():
            start = stage.rate_from if stage.rate_start is None else stage.rate_start
            wanted = (stage.rate_from, stage.rate_to, start)
    numbers: list[float | None] = []
    for value in wanted:
        number = turn.evaluator.number(value, turn.state.progress)
        if isinstance(number, Unresolved):
            turn.notice("warning", f"stage {stage.id} is skipped: {number.reason}")
            finish_stage(turn, stage, "failed")
            return None
        numbers.append(number)
    return tuple(numbers)


def ladder_part(turn: Turn, stage: Ladder) -> bool:
    """Begin the next iteration of a ladder or of its interleaved ladders; each repeat runs all rungs below the cut.
    False when all are done."""
    together = iteration_order.group(turn.state.plan, stage)
    members = tuple(member for member in together if not turn.state.progress.finished(member.id))
    rates: dict[str, float | None] = {}
    for member in members:
        resolved = _resolved(turn, member)
        if resolved is None:
            return True
        rates[member.id] = resolved[0]
        if check_after(turn, member, "iteration"):
            return True
        _cut(turn, member)
    due = _next_slot(turn, members, together[0])
    if _steps_between(turn, together, due):
        return True
    if due is not None:
        return begin(turn, due.ladder, (due.rung, due.repeat), rates[due.ladder.id], "measure")
    if not _drops(turn, stage) and check_after(turn, stage, "stage"):
        return True
    ended = turn.state.progress.stages_finished
    if not any(ended[one.id].outcome == "ok" for one in together if one.id in ended):
        _notice_repeats(turn, members)
    return False


def _next_slot(turn: Turn, members: tuple[Ladder, ...], leader: Ladder) -> iteration_order.Slot | None:
    """The next rung of the ladders that take turns; None when all rungs below the cuts, or enough repeats, have run."""
    progress, decided = turn.state.progress, -1
    newest = progress.newest({member.id for member in members})  # those of the repeats before it are settled
    for slot in iteration_order.slots(members, leader, newest.id.repeat if newest else 1):
        # of a load alone, the cut of all loads
        by = progress.folded.stages.get(slot.ladder.interleaved_with or "" if slot.ladder.alone else slot.ladder.id)
        cut = by.cut if by is not None else None
        if cut is not None and slot.rung > cut.at_rung:
            continue
        if slot.repeat != decided and _enough_repeats(turn, members, slot.repeat - 1):
            return None
        decided = slot.repeat
        if not settled(slot.ladder, progress.tries(slot.ladder.id, slot.rung, slot.repeat)[0]):
            return slot
    return None


def _steps_between(turn: Turn, together: tuple[Ladder, ...], due: iteration_order.Slot | None) -> bool:
    """Begin the next step between two turns: those after the last turn, then those before the turn of `due`, or with
    None only the former. False when all have run.

    That they have run is known to this process only, and forgotten when an agent is lost; they are then run again,
    which is why they have to be repeatable. After a resume the turn that was left is the one that last had an
    iteration.
    """
    if not any(member.before or member.after for member in together):
        return False
    coming = None if due is None else (due.ladder.id, due.repeat)
    begun = f"({together[0].id}):"  # no stage has such an id
    mark = f"{begun}{coming}"
    if mark in turn.state.parts_done:
        return False
    left = _last_turn(turn.state.progress, together)
    if left is not None and (left[0].id, left[1]) == coming:
        left = None
    if left is not None and _drops(turn, left[0]) and check_after(turn, left[0], "turn"):
        return True
    for name in (*(left[0].after if left is not None else ()), *(due.ladder.before if due is not None else ())):
        step = turn.state.plan.stage(name)
        runs, (under_way, began_s) = PARTS[type(step)](turn, step), turn.state.under_way
        if runs and under_way != name:
            turn.set(under_way=(name, turn.at_s))
        if runs:
            return True
        if under_way == name:
            took_s = turn.state.took_s.get(name, 0.0) + turn.at_s - began_s
            turn.set(under_way=("", 0.0), took_s={**turn.state.took_s, name: took_s})
    for name in (name for member in together for name in (*member.before, *member.after)):
        forget_parts(turn, turn.state.plan.stage(name))
    others = frozenset(part for part in turn.state.parts_done if not part.startswith(begun))
    turn.set(parts_done=others | {mark})
    return False


def _last_turn(progress: RunProgress, together: tuple[Ladder, ...]) -> tuple[Ladder, int] | None:
    """The ladder and the repeat of the last iteration that was begun."""
    members = {member.id: member for member in together}
    begun = (event.id for event in reversed(progress.history) if isinstance(event, IterationStarted))
    return next(((members[one.stage], one.repeat) for one in begun if one.stage in members), None)


def _drops(turn: Turn, ladder: Ladder) -> bool:
    """Whether the steps after a turn drop what the turn has loaded, so that it is checked before them."""
    return any(isinstance(turn.state.plan.stage(name), Drop) for name in ladder.after)


def _enough_repeats(turn: Turn, ladders: tuple[Ladder, ...], repeats: int) -> bool:
    """Whether each verdict that reads these ladders is decided after `repeats` repeats, all of which have ended, or has
    hardly a chance to be.

    Evaluated after each repeat, on the numbers up to it, with the same outcome after a resume.
    """
    least, progress, ids = ladders[0].repeat_min, turn.state.progress, {ladder.id for ladder in ladders}
    if least is None or repeats < least:
        return False
    newest = progress.newest(ids)
    begun = [item.id for item in progress.voided if item.id.stage in ids] + ([newest.id] if newest else [])
    if any(slot.repeat > repeats for slot in begun):
        return False
    return all(one.chance < FUTILE for one in turn.evaluator.undecided(ladders, progress, repeats))


def _notice_repeats(turn: Turn, ladders: tuple[Ladder, ...]) -> None:
    """Report the number of repeats, and whether they decided the verdicts."""
    ids = {ladder.id for ladder in ladders}
    ran = max((item.id.repeat for item in turn.state.progress.iterations if item.id.stage in ids), default=0)
    if not ladders or ladders[0].repeat_min is None or not ran:
        return
    left = turn.evaluator.undecided(ladders, turn.state.progress, ran)
    most, least = ladders[0].repeat, ladders[0].repeat_min
    text = f"{', '.join(sorted(ids))}: {ran} of at most {most} repeats, "
    if not left:
        text += "more would decide no verdict"
    elif ran == most:
        text += f"which did not decide {', '.join(one.id for one in left)}"
    else:
        text += f"as {most} would hardly decide " + ", ".join(f"{one.id} ({_futile(one)})" for one in left)
    level = percent(repeats_confidence(most, least, ran))
    turn.notice("warning" if left else "info", f"{text} (intervals at {level}, for {ladders[0].looks} looks)")


def _futile(one: Undecided) -> str:
    chance = "below 1 %" if one.chance < FUTILE / 10.0 else percent(one.chance)
    return f"chance {chance}" if one.within is None else f"chance {chance}, within ± {percent(one.within)} of its limit"


def begin(turn: Turn, stage: Measuring, slot: tuple[int, int], rate: float | None, phase: str) -> bool:
    """Begin the next attempt of a rung in a repeat; False when one was valid or the retries are used up."""
    rung, repeat = slot
    finished, attempt = turn.state.progress.tries(stage.id, rung, repeat)
    if settled(stage, finished):
        return False
    if not isinstance(stage, Tool) and (pool_part(turn, stage) or read_schemas(turn, stage)):
        return True
    identity = IterationId(stage=stage.id, rung=rung, repeat=repeat, attempt=attempt)
    # a generator, as only an automatic ramp-up reads it, and a long run has thousands
    ended = turn.state.progress.iterations
    earlier = (one for one in ended if (one.id.stage, one.id.rung) == (stage.id, rung) and one.valid)
    iteration.begin(turn, stage, identity, rate, iteration.windows_of(stage, phase, earlier))
    return True


def settled(stage: Measuring, finished: Sequence[IterationFinished]) -> bool:
    """Whether a rung in a repeat needs no further attempt."""
    return any(i.valid for i in finished) or len(finished) > stage.retries


def _cut(turn: Turn, stage: Ladder) -> None:
    """Record where `stop_when` held for the newest iteration, once for each lower rung at which it did."""
    finished = turn.state.progress.newest({stage.id})
    cut = turn.state.progress.folded.stages[stage.id].cut
    if finished is None or not finished.valid or (cut is not None and cut.at_rung <= finished.id.rung):
        return
    evidence = turn.evaluator.stops(stage, finished)
    if evidence is not None:
        skipped = tuple(rung for rung in stage.threads if rung > finished.id.rung)
        turn.emit(LadderCut(stage=stage.id, at_rung=finished.id.rung, skipped=skipped, evidence=evidence))


def search_part(turn: Turn, stage: Search) -> bool:
    """Begin the next probe of a search, and emit the finished probes and the answer. False when the search is over."""
    rates = _resolved(turn, stage)
    if rates is None:
        return True
    low, high, start = rates
    assert low is not None and high is not None  # noqa: S101
    if check_after(turn, stage, "iteration"):
        return True
    if stage.id in turn.state.progress.searches:
        return check_after(turn, stage, "stage")
    tries: dict[int, list[IterationFinished]] = {}
    for one in turn.state.progress.of_stage(stage.id):
        tries.setdefault(one.id.repeat, []).append(one)
    probes = tuple(found[-1] for found in takewhile(partial(settled, stage), tries.values()))
    replayed = turn.evaluator.replay(stage, Rates(low=low, high=high, start=start), probes)
    for report in replayed.reports[len(turn.state.progress.folded.stages[stage.id].probes) :]:
        turn.emit(report)
    if isinstance(due := replayed.next, Probe):
        if stage.over == "threads":
            return begin(turn, stage, (round(due.rate), due.number), None, due.phase)
        return begin(turn, stage, (stage.threads, due.number), due.rate, due.phase)
    turn.emit(due)
    return check_after(turn, stage, "stage")


def finish_stage(turn: Turn, stage: Stage, outcome: str) -> None:
    """Record the end of a stage, with the metrics that expressions read."""
    if turn.state.progress.finished(stage.id):
        return
    seconds = turn.at_s - turn.state.stage_began_s  # for interleaved ladders since the first of them began
    if iteration_order.ladder_of_step(turn.state.plan, stage) is not None:
        seconds = turn.state.took_s.get(stage.id, 0.0)
    ok = outcome == "ok"
    metrics = turn.evaluator.metrics(stage, turn.state.progress, seconds) if ok else {}
    turn.emit(StageFinished(stage=stage.id, outcome="ok" if ok else "failed", seconds=seconds, metrics=metrics))
    emit_provisional_verdicts(turn, stage)
    forget_parts(turn, stage)


def tool_part(turn: Turn, stage: Tool) -> bool:
    """Begin the next part of a tool stage: its files, then every rung in every repeat. False when all are done."""
    state = turn.state
    due = [
        (depth, repeat)
        for repeat in range(1, stage.repeat + 1)
        for depth in stage.iodepths
        if not settled(stage, state.progress.tries(stage.id, depth, repeat)[0])
    ]
    if not due:
        return False
    hosts = present_hosts(stage.clients, state.progress.without)
    tasks = [(host, PrepareFio(job=stage.job, data_root=tool_data_root(state, host))) for host in hosts]
    files = batch(turn, [tasks], name=part_of(stage, "files"), stage=stage.id)
    return files or begin(turn, stage, due[0], None, "measure")


RUNS: Mapping[type, Callable[[Turn, Any], bool]] = MappingProxyType(
    {**PARTS, Ladder: ladder_part, Search: search_part, Tool: tool_part}
)
"""Kind of stage -> its function, which begins the next part, or returns False when all are done."""
