"""Expected facts: read and checked before hosts are tuned, or when a system has started; nothing runs if one fails."""

from __future__ import annotations

from dataclasses import replace

from scheduler_driver import PLAN, Driver

from proveout.coordinator.schedule.state import AgentGone, SendMessage
from proveout.core.errors import Where
from proveout.dsl.plan.stages import Tuning
from proveout.dsl.plan.topology import Declared, Expectation, System
from proveout.proto import events
from proveout.proto.wire.messages import TaskDone, TaskFailed
from proveout.proto.wire.results import FactsRead, SystemStarted, TaskError
from proveout.proto.wire.tasks import ApplyTuning, Endpoint, StartSystem, Task

SOCKETS = Declared(
    name="s1",
    kind="host",
    expect=(Expectation(fact="cpu_sockets", one_of=(2,), where=Where(file="p.yaml", line=7, column=3)),),
)
VERSION = Declared(
    name="db",
    kind="system",
    expect=(Expectation(fact="version", pattern="18.*", where=Where(file="p.yaml", line=9, column=5)),),
)
TUNED = replace(
    PLAN,
    declared=(SOCKETS, VERSION),
    tunings=(
        Tuning(name="swap", operation="sysctl", parameters=(("settings", (("vm.swappiness", 1),)),), hosts=("s1",)),
    ),
)
ENDPOINT = Endpoint(system="db", engine="postgres", dsn="d", version="17.4")


def tasks(driver: Driver) -> list[str]:
    sent = (c.message for c in driver.commands if isinstance(c, SendMessage))
    return [task.key.split("/", 5)[-1] for task in sent if isinstance(task, Task)]


def answer(driver: Driver, facts: dict[str, int], version: str) -> None:
    driver.hear("facts", "s1", 2.0, TaskDone, result=FactsRead(facts=tuple(facts.items())))
    found = replace(ENDPOINT, version=version)
    driver.hear("inspect:db", "s1", 2.0, TaskDone, result=SystemStarted(endpoint=found, fresh=False))


def errors(driver: Driver) -> list[str]:
    return [e.text for e in driver.emitted() if isinstance(e, events.Notice) and e.level == "error"]


def test_all_that_do_not_hold_are_named_and_nothing_is_tuned() -> None:
    driver = Driver(TUNED)
    driver.up()
    assert sorted(tasks(driver)) == ["facts/s1", "inspect:db/s1"]  # of the hosts only the one with an expectation
    answer(driver, {"cpu_sockets": 4}, "17.4")
    assert errors(driver) == [
        "p.yaml:7:3: s1: cpu_sockets is 4; expected 2 (correct the host, or the expectation)",
        "p.yaml:9:5: db: version is 17.4; expected text like 18.* (correct the system, or the expectation)",
    ]
    assert driver.state.ending is not None
    assert (driver.state.ending.exit_code, driver.state.ending.reason) == (
        4,
        "2 expectations do not hold; no host or system was changed",
    )
    assert not any(
        isinstance(c, SendMessage) and isinstance(getattr(c.message, "spec", None), ApplyTuning)
        for c in driver.commands
    )
    assert not any(isinstance(e, events.StageStarted) for e in driver.emitted())


def test_what_holds_is_recorded_and_the_run_goes_on_to_its_tuning() -> None:
    driver = Driver(TUNED)
    driver.up()
    answer(driver, {"cpu_sockets": 2}, "18.1")
    assert errors(driver) == []
    assert tasks(driver)[-1] == "tune/s1"
    assert driver.state.progress.taken["before", "s1", ""].facts == {"cpu_sockets": 2}
    assert driver.state.progress.taken["before", "s1", "db"].facts == {"engine": "postgres", "version": "18.1"}


def test_a_fact_that_is_not_read_does_not_pass_and_a_wrong_name_has_a_suggestion() -> None:
    def refused(expected: str, answer: type, **fields: object) -> str:
        driver = Driver(replace(PLAN, declared=(replace(SOCKETS, expect=(Expectation(fact=expected, min=1.0),)),)))
        driver.up()
        driver.hear("facts", "s1", 2.0, answer, **fields)
        (text,) = errors(driver)
        return text

    told = refused("cpu_socket", TaskDone, result=FactsRead(facts=(("cpu_sockets", 2),)))
    assert "cpu_socket is neither measured nor declared; expected at least 1 (did you mean `cpu_sockets`?)" in told
    error = TaskError(code="failed", message="no /proc", way_out="")
    assert "cpu_sockets is neither measured nor declared" in refused("cpu_sockets", TaskFailed, error=error)


def test_a_system_that_proveout_starts_is_checked_when_it_runs() -> None:
    embedded = System(name="db", engine="postgres", host="s1", provision="embedded")
    driver = Driver(replace(PLAN, systems=(embedded,), declared=(VERSION,)))
    driver.up()
    assert tasks(driver) == ["start:db/s1"]
    assert isinstance(driver.task("start:db", "s1").spec, StartSystem)
    driver.hear("start:db", "s1", 2.0, TaskDone, result=SystemStarted(endpoint=ENDPOINT, fresh=True))
    driver.hear("inspect:db", "s1", 2.0, TaskDone, result=SystemStarted(endpoint=ENDPOINT, fresh=False))
    assert "db: version is 17.4; expected text like 18.*" in errors(driver)[0]
    assert driver.state.ending is not None
    assert (
        driver.state.ending.reason == "an expectation does not hold; no data was loaded, and tuned hosts are reverted"
    )


def test_a_resumed_run_does_not_check_a_host_that_it_has_tuned() -> None:
    """The facts may be those that its own tuning has made."""
    driver = Driver(TUNED)
    seen = events.TuningSeen(host="s1", act="apply", stage="", states=(), seconds=0.1)
    driver.state = replace(driver.state, progress=replace(driver.state.progress, history=(seen,)))
    driver.up()
    assert tasks(driver) == ["tune/s1"]


def test_a_host_that_is_lost_while_it_is_read_is_read_again() -> None:
    driver = Driver(TUNED)
    driver.up()
    driver.put(AgentGone(at_s=2.0, host="s1", reason="cut"))
    before = len(tasks(driver))
    driver.up()
    assert sorted(tasks(driver)[before:]) == ["facts/s1", "inspect:db/s1"]
    answer(driver, {"cpu_sockets": 2}, "18.1")
    assert tasks(driver)[-1] == "tune/s1"
