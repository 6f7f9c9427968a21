"""The loads of a stage: threads and rates of each add up to those of the rung."""

from __future__ import annotations

import pytest

from proveout.dsl.plan.loads import alone_ladders, named, part, parts, targets, threads_most, workloads
from proveout.dsl.plan.phases import Level
from proveout.dsl.plan.stages import Closed, Ladder, Load, Open, Phased, Search, Think, Windows
from proveout.dsl.plan.topology import Expression

WINDOWS = Windows(ramp_up_s=1.0, measure_s=5.0, ramp_down_s=0.0)
LOADS = (
    Load(name="a", workload="w", target="one", clients=("c1",), share=(1, 6), think=Think(mean_s=0.5)),
    Load(name="b", workload="v", target="two", clients=("c1", "c2"), share=(1, 3)),
    Load(name="c", workload="w", target="two", clients=("c2",), share=(1, 2), session=(("x", "1"),)),
    Load(name="nightly", workload="q", target="one", clients=("c2",), threads=3, rate=2.0, distribution="poisson"),
)


def ladder(**changes: object) -> Ladder:
    fields: dict[str, object] = {
        "id": "l", "workload": "", "target": "", "clients": ("c1", "c2"), "threads": (6, 7, 64), "windows": WINDOWS,
        "loads": LOADS,
    }  # fmt: skip
    return Ladder(**(fields | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("rung", [6, 7, 8, 63, 64, 1000])
def test_the_shares_of_a_rung_add_up_to_it_and_own_threads_stay(rung: int) -> None:
    *shared, own = parts(ladder())
    assert sum(one.threads(rung) for one in shared) == rung
    assert all(abs(one.threads(rung) - rung * one.share) < 1 for one in shared)
    assert own.threads(rung) == 3 and own.beside and not any(one.beside for one in shared)


def test_a_rate_is_divided_and_a_rate_of_its_own_is_not() -> None:
    assert [one.rate(600.0) for one in parts(ladder())] == [pytest.approx(100.0), pytest.approx(200.0), 300.0, 2.0]
    assert [one.rate(None) for one in parts(ladder())] == [None, None, None, 2.0]
    line = Level(for_s=10.0, at_s=(0.0, 10.0), values=(60.0, 120.0))
    wave = Level(for_s=10.0, values=(60.0,), amplitude=20.0, period_s=5.0)
    divided = part(ladder(arrival=Phased(levels=(line, wave))), "c").arrival
    assert isinstance(divided, Phased)
    assert [(level.values, level.amplitude) for level in divided.levels] == [((30.0, 60.0), 0.0), ((30.0,), 10.0)]
    later = Open(rate=Expression(text="cap.rate"))
    assert part(ladder(arrival=later), "c").arrival == later


def test_each_part_is_a_stage_of_that_load_alone() -> None:
    first, _, third, own = parts(ladder(arrival=Closed(think=Think(mean_s=9.0))))
    assert first.arrival == Closed(think=Think(mean_s=0.5)) and third.arrival == Closed(think=Think(mean_s=9.0))
    assert (third.stage.id, third.stage.workload, third.stage.target, third.stage.clients) == ("l", "w", "two", ("c2",))
    assert third.stage.session == (("x", "1"),) and third.stage.loads == ()
    assert own.arrival == Open(rate=2.0, distribution="poisson")
    stage = ladder(loads=(), workload="w", target="one")
    (one,) = parts(stage)
    assert one.stage is stage and one.name == "" and one.threads(5) == 5 and one.rate(7.0) == 7.0


def test_a_search_divides_its_rate_and_keeps_the_loads_beside_it() -> None:
    accept = Expression(text="tps > 1")
    search = Search(
        id="s", workload="", target="", clients=("c1",), threads=12, rate_from=1.0, rate_to=9.0, accept=accept,
        probe=WINDOWS, confirm=WINDOWS, loads=LOADS,
    )  # fmt: skip
    assert [one.threads(12) for one in parts(search)] == [2, 4, 6, 3]
    assert [one.stage.distribution for one in parts(search) if isinstance(one.stage, Search)][2:] == [
        "constant",
        "poisson",
    ]


def test_targets_workloads_and_connections_are_those_of_all_loads() -> None:
    assert targets(ladder()) == ("one", "two") and workloads(ladder()) == ("w", "v", "q")
    assert threads_most(ladder()) == {"one": 11 + 3, "two": 21 + 32}
    data = {"id": "l", "workload": "", "loads": [{"workload": one.workload, "target": one.target} for one in LOADS]}
    assert (named(data)["workload"], named(data)["target"]) == ("w + v + q", "one + two")


@pytest.mark.parametrize("rung", [6, 7, 64])
def test_a_load_alone_has_the_threads_that_it_has_among_the_others(rung: int) -> None:
    for whole in parts(ladder()):
        (alone,) = parts(ladder(alone=whole.name, interleaved_with="l", id="m"))
        assert alone.threads(rung) == whole.threads(rung) and alone.arrival == whole.arrival
        assert not alone.beside, "its numbers are the rung's own"
    assert targets(ladder(alone="c")) == ("two",) and workloads(ladder(alone="nightly")) == ("q",)
    assert threads_most(ladder(alone="nightly")) == {"one": 3}


def test_the_ladders_of_a_stage_that_run_its_loads_alone_are_found_by_load() -> None:
    one, other = (
        ladder(id=f"l__{name}_alone", alone=name, interleaved_with=of) for name, of in (("a", "l"), ("b", "k"))
    )
    turns = ladder(id="z", interleaved_with="l")
    assert alone_ladders((ladder(), one, other, turns), ladder()) == {"a": one}
    data = {"id": "x", "alone": "b", "loads": [{"name": n, "workload": n, "target": n} for n in "ab"]}
    assert (named(data)["workload"], named(data)["target"]) == ("b", "b")
