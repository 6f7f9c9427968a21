"""What a person can do about a verdict that is INCONCLUSIVE. Pure.

Data flow: how the check was judged and what it stands on -> one sentence that `verdict` puts behind the evidence. Each way out is a key of
the plan or a thing to look at, never just "try again".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proveout.coordinator.results.results import RunResults
from proveout.coordinator.verdict.checks import Judged
from proveout.coordinator.verdict.provenance import Standing

WAYS_OUT = {
    "load": "look into the load's first errors and the server's log",
    "errors": "remove the cause of the first error, or allow more of them (`limits: {errors: …}`)",
    "rate-held": "lower the `rate` or give it more `threads`",
    "client-cpu": "add client hosts, or load processes (`workers`)",
    "client-host": "add client hosts",
    "steady-state": "lengthen `ramp_up` until throughput has settled, and `measure`",
    "variation": "lengthen `measure`, or look for what disturbs the server (checkpoints, other load)",
    "start-skew": "take other load off the client hosts, or allow a later begin that `ramp_up` covers (`limits: {start_skew: …}`)",
    "clock": "take load off the client hosts and the network to them: offsets are measured by round trips, however clocks are set",
    "samples": "take load off the client hosts, or use fewer `threads` on each",
    "pause": "find out what stood still: the load's processes or their machine (`pause:…` says which)",
    "outage": "look into the server's log and its host for what kept it from answering (a stop, a lock, a full disk)",
    "mix": "look for whatever else works on the tables, and for statements that hang",
    "logical-failures": "bring the data back before the stage (`reset`), and keep others from its tables",
}


SEE = "see the run's notices and its `capture:…` findings for why the number is not there"


def advise(judged: Judged, stands: Standing, results: RunResults) -> str:
    """`; what to do: …`."""
    ways = list(dict.fromkeys(_ways(judged, stands, results))) or [SEE]
    return f"; what to do: {'; or '.join(ways)}"


def _ways(judged: Judged, stands: Standing, results: RunResults) -> Iterator[str]:
    for check in stands.failed_checks:
        yield WAYS_OUT.get(check.partition(":")[0], f"look into `{check}`")
    if judged.open and not stands.excluded:
        yield from _repeats(stands.stages, results)
    for stage in stands.stages:
        search = results.stages[stage].search
        if search is not None and search.rate is None:
            yield f"widen the `rate` of {stage}, or see in its probes why the lowest was refused"
        ended = results.stages[stage].finished
        if ended is not None and ended.outcome == "failed":
            yield f"see in the run's notices why {stage} was given up"
        cut = results.stages[stage].cut
        if cut is not None and not judged.open and not stands.excluded:
            yield f"judge a rung that was run, or let {stage} climb on (`stop_when`)"
        if stands.knees and stage in stands.knees:
            yield f"add rungs to {stage} above and between, or repeats"


def _repeats(stages: Sequence[str], results: RunResults) -> Iterator[str]:
    """A narrower interval: by more repeats of the ladders that are read, or by longer windows."""
    for stage in stages:
        data = results.plan_stage(stage)
        if results.stages[stage].kind != "ladder" or not data:
            continue
        most, least = data.get("repeat", 1), data.get("repeat_min")
        if least is None:
            yield f"`repeat: auto(3..{max(10, 2 * int(most))})` on {stage}, or a longer `measure`"
        else:
            yield f"`repeat: auto({least}..{2 * int(most)})` on {stage}, or a longer `measure`"
