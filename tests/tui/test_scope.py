"""A node of the plan limits every pane to it, and the tree follows the run."""

from __future__ import annotations

import dataclasses

import histories
from histories import view_of
from pilots import still

from proveout.proto.events import Event
from proveout.tui import tables
from proveout.tui.header import Top
from proveout.tui.panes import PlanTree
from proveout.tui.run_app import RunApp
from proveout.tui.run_view import LOAD, scoped


def two_rungs() -> list[Event]:
    """A ladder with two finished iterations, and a third one under way."""
    first = dataclasses.replace(
        histories.ended(1, 1, 3000.0),
        metrics={"tps": 3000.0, "hosts": {"db1": {"cpu": {"busy_fraction": 0.25}, "disk": {"write_bytes_per_s": 1e6}}}},
    )
    return [
        *histories.opening(), histories.done("load"), histories.stage("base"),
        histories.begun(1, 1), *histories.ticks(1, 1, 15), first,
        histories.begun(4, 1), *histories.ticks(4, 1, 15), histories.ended(4, 1, 6000.0, valid=False),
        histories.begun(4, 2), *histories.ticks(4, 2, 5), histories.readings("db1", 0.9),
        histories.transactions(4, 2, "measure", 2.0), histories.waits(4, 2, 2.0),
    ]  # fmt: skip


def test_a_finished_iteration_has_its_own_numbers_in_every_pane() -> None:
    whole = view_of(*two_rungs())
    view = scoped(whole, ("base", "1", "base/1/1/1"))
    assert view.shown == "base 1 thr #1"
    assert {moment.tick.id.rung for moment in view.seconds} == {1}
    assert [item.id.rung for item in view.stages[0].finished] == [1]
    assert [one.started.id.rung for one in view.begun] == [1]
    assert (view.transactions, dict(view.waits), view.iteration) == (None, {}, None)
    assert tables.transactions(view)[0][1] == "750"
    assert "which has ended" in tables.transactions_of(view)
    machine, *hosts = tables.hosts(view)
    assert machine[3] == "25 %", "the mean of the iteration, not the newest reading"
    assert [host[3] for host in hosts] == ["", ""], "the CPU of a machine stands once"
    assert "1 thr #1" not in [line.text for line in view.log]


def test_verdicts_are_those_that_read_the_stage() -> None:
    verdicts = [
        {"id": name, "check": {"text": "", "needs": needs}} for name, needs in (("a", ["base"]), ("b", ["cap"]))
    ]
    view = view_of(histories.started({**histories.PLAN, "verdicts": verdicts}))
    assert scoped(view, ("cap",)).planned_verdicts == ("b",)
    assert scoped(view, ()).planned_verdicts == ("a", "b")
    assert scoped(view, ("no such stage",)) is view


def test_a_load_limits_the_transactions() -> None:
    now = histories.transactions(4, 2, "measure", 2.0)
    lines = [
        dataclasses.replace(line, name=f"{'orders' if n else 'reads'}.{line.name}")
        for n, line in enumerate(now.transactions)
    ]
    view = view_of(*two_rungs(), dataclasses.replace(now, transactions=tuple(lines)))
    names = [row[0] for row in tables.transactions(scoped(view, ("base", "4", f"{LOAD}reads")))]
    assert names == ["reads.GetSubscriberData"]


def labels(tree: PlanTree) -> list[str]:
    """The lines that can be seen."""
    return [str(line.node.label).strip() for line in tree._tree_lines]


async def test_the_tree_follows_the_iteration_and_folds_the_other_rungs() -> None:
    app = RunApp(histories.Still(two_rungs()))
    async with app.run_test(size=(120, 40)) as pilot:
        await still(pilot)
        tree = app.screen.query_one(PlanTree)
        assert tree.cursor_node is not None
        assert tree.cursor_node.data == ("base", "4", "base/4/2/1")
        assert [label for label in labels(tree) if "#" in label] == ["✗ #1 INVALID 6,000 p99 2.15 ms", "▶ #2 running"]
        app.view = view_of((app.view.now_unix_s + 1 - histories.START_S, histories.begun(1, 2)), view=app.view)
        app._stale = True
        await still(pilot)
        assert tree.cursor_node.data == ("base", "1", "base/1/2/1")
        assert [label for label in labels(tree) if "#" in label] == ["✓ #1 3,000 p99 -", "▶ #2 running"]


async def test_a_selected_node_limits_the_panes_until_escape() -> None:
    app = RunApp(histories.Still(two_rungs()))
    async with app.run_test(size=(120, 40)) as pilot:
        await still(pilot)
        tree = app.screen.query_one(PlanTree)
        await pilot.press("home", "down", "down", "enter")
        await still(pilot)
        assert tree.cursor_node is not None
        assert tree.cursor_node.data == ("base", "1")
        assert "[only base 1 thr; Esc: all]" in str(app.screen.query_one(Top).content)
        assert "TPS" in str(app.screen.query_one("#load").content)  # type: ignore[attr-defined]
        assert "4 thr" not in str(app.screen.query_one("#load").content)  # type: ignore[attr-defined]
        await pilot.press("escape")
        await still(pilot)
        assert "[only" not in str(app.screen.query_one(Top).content)
        assert tree.cursor_node.data == ("base", "4", "base/4/2/1")
