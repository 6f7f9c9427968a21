"""Invented plans, runs and comparisons for the tests of the home screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from results_of_runs import COMPARISON

from proveout.core.errors import ProveoutError
from proveout.dsl.plan.plan import Field
from proveout.proto.events import VerdictReached
from proveout.tui import services as shown

HOSTILE = "[red]x[/red]\x1b[31mevil\u202e"
SHOWN = "[red]x[/red]\\x1b[31mevil\\u202e"
START_S = 1_767_225_600.0  # 2026-01-01 00:00 UTC

FIELDS = (
    Field(name="subscribers", type="int", default="1_000", low="100", high="100_000", help="rows in SUBSCRIBER"),
    Field(name="measure", type="duration", default="1s", low="1s", help="the window that counts"),
    Field(name="mode", type="text", default="sync", choices=("sync", "async"), help="how a commit returns"),
    Field(name="dsn", type="text", required=True, help="where the database is"),
)


class Form(NamedTuple):
    fields: tuple[Field, ...]
    objection: Callable[[str, str], str]


class FakeServices:
    """Services with fixed plans and runs; `compiled` has the compilations that the app requested."""

    here, runs_here = "/home/anna/studies", "/home/anna/studies/runs"

    def __init__(self) -> None:
        self.compiled: list[tuple[str, dict[str, str], str]] = []
        self.cards = {
            "/p/smoke.yaml": shown.PlanCard(
                path="/p/smoke.yaml", name="smoke.yaml", plan="smoke", state="fine", title="One small server, end to end",
                lines=("db: postgres on db1, embedded", "1. ladder (ladder): hlr at 1, 4 threads"), seconds=75.0,
                iterations=4,
            ),
            "/p/lab.yaml": shown.PlanCard(
                path="/p/lab.yaml", name="lab.yaml", state="fine", title="A lab of one's own", seconds=7200.0,
                iterations=120, remote=True, tunes_here=True,
            ),
            "/p/bad.yaml": shown.PlanCard(
                path="/p/bad.yaml", name="bad.yaml", state="wrong",
                lines=("bad.yaml:4:1: unknown key `stagez`", "  4 | stagez: []", "    | ^", "  did you mean `stages`?"),
            ),
            "/p/evil.yaml": shown.PlanCard(
                path="/p/evil.yaml", name=f"{HOSTILE}.yaml", state="fine", title=HOSTILE, lines=(HOSTILE,), seconds=1.0
            ),
        }  # fmt: skip
        verdict = VerdictReached(
            id="quick", outcome="PASS", title="It answers at once", severity="fail", check="",
            evidence="1.40 ms <= 50.0 ms",
        )  # fmt: skip
        ladders = (
            shown.Ladder(stage="baseline", rungs=(1, 2, 4, 8), tps=(900.0, 1700.0, 3000.0, 4100.0)),
            shown.Ladder(stage="cache", rungs=(1, 2, 4, 8), tps=(5000.0, 9000.0, 17_000.0, 12_000.0)),
        )
        base = shown.RunCard(
            path="/r/a", name="smoke-20260101-000000-aaaa", state="finished", plan="smoke", title="One small server",
            began_unix_s=START_S, seconds=75.0, reason="every verdict passed", verdicts=(verdict,), ladders=ladders,
        )  # fmt: skip
        fail = replace(verdict, outcome="FAIL", evidence="71.0 ms <= 50.0 ms")
        self.past = {
            "/r/now": replace(base, path="/r/now", name="smoke-now", state="running", reason="", verdicts=(),
            ladders=()),
            "/r/b": replace(base, path="/r/b", name="smoke-b", began_unix_s=START_S - 3600, verdicts=(verdict, fail)),
            "/r/a": base,
            "/r/c": replace(base, path="/r/c", name="smoke-c", state="crashed", reason="the coordinator has stopped",
            verdicts=()),
            "/r/evil": replace(base, path="/r/evil", name=HOSTILE, plan=HOSTILE, title=HOSTILE, reason=HOSTILE),
        }  # fmt: skip

    def plans(self) -> Sequence[shown.Found]:
        return [shown.Found(path=path, name=card.name, stamp=1) for path, card in self.cards.items()]

    def plan(self, path: str, overrides: Mapping[str, str], inventory: str) -> shown.PlanCard:
        self.compiled.append((path, dict(overrides), inventory))
        if "/nowhere" in inventory:
            return replace(self.cards[path], state="wrong", lines=("/nowhere: no such file",))
        return self.cards[path]

    def form(self, path: str) -> shown.Form:
        if path == "/p/bad.yaml":
            raise ProveoutError("cannot be read")
        if path == "/p/evil.yaml":
            field = Field(name=HOSTILE, type="text", default=HOSTILE, help=HOSTILE)
            return Form(fields=(field,), objection=lambda name, text: f"not {text}")

        def objection(name: str, text: str) -> str:
            return "is below its minimum of 100" if name == "subscribers" and text == "9" else ""

        return Form(fields=FIELDS, objection=objection)

    def runs(self) -> Sequence[shown.Found]:
        return [shown.Found(path=path, name=card.name, stamp=1) for path, card in self.past.items()]

    def run(self, path: str) -> shown.RunCard:
        return self.past[path]

    def compare(self, reference: str, other: str, *, despite: bool) -> shown.Comparison:
        if "evil" in other:
            raise ProveoutError(f"{HOSTILE} has not started", where=other)
        differences = (f"db1: kernel: 6.1 -> 6.2 {HOSTILE}",)
        if not despite:
            return shown.Comparison(reference=reference, other=other, refused="They differ.", differences=differences)
        return replace(COMPARISON, reference=reference, other=other, differences=differences)
