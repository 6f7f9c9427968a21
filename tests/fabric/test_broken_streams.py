"""Streams that break, stall and lose replies: a session lasts as long as its lease, tasks run once, outcomes arrive
once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from fabric_bench import Bench, Proxy, eventually, is_gone, lines, task

from proveout.coordinator.agents.connect import StreamEnded, open_stream
from proveout.coordinator.agents.session import Lost
from proveout.dsl.plan.topology import Capture
from proveout.proto.wire.messages import Cancel, Finish, Hello, Sample, TaskAccepted, TaskDone, TaskFailed
from proveout.proto.wire.results import SqlDone
from proveout.proto.wire.tasks import Endpoint, RunCapture, RunSql, Task

pytestmark = pytest.mark.server

MakeProxy = Callable[[str], Proxy]
HELLO = Hello(run_id="run", epoch=1, host="db1", beat_s=0.1, lease_s=15.0)


async def through(bench: Bench, proxies: MakeProxy, lease_s: float = 15.0):  # type: ignore[no-untyped-def]
    proxy = proxies(await bench.start())
    return proxy, await bench.connect(await proxy.start(), lease_s=lease_s)


async def test_a_task_continues_while_the_stream_is_broken(bench: Bench, proxies: MakeProxy, tmp_path: Path) -> None:
    proxy, line = await through(bench, proxies)
    line.session.send(task("k", f"await {tmp_path}/go", f"append {tmp_path}/f"))
    await line.accepted("k")
    proxy.cut()
    await eventually(lambda: proxy.connections >= 4, "it is dialled again, each time by a probe and a stream")
    (tmp_path / "go").touch()
    assert isinstance(await line.outcome("k"), TaskDone)
    assert lines(tmp_path / "f") == ["effect"]
    assert not any(isinstance(event, Lost) for event in line.rest())


async def test_messages_sent_while_the_stream_is_broken_arrive(bench: Bench, proxies: MakeProxy) -> None:
    proxy, line = await through(bench, proxies)
    line.session.send(task("old", "sleep 600"))
    await line.accepted("old")
    proxy.cut()
    line.session.send(Cancel(key="old", reason="enough"))
    line.session.send(task("new", "sleep 0"))
    assert await line.failure("old") == ("cancelled", "enough")
    assert isinstance(await line.outcome("new"), TaskDone)


async def test_samples_taken_while_the_stream_is_broken_are_kept(bench: Bench, proxies: MakeProxy) -> None:
    proxy, line = await through(bench, proxies)
    spec = RunCapture(capture=Capture(name="c", kind="os", every_s=1.0))
    line.session.send(Task(key="c", spec=spec, deadline_s=60))
    await line.message(Sample, "c")
    proxy.cut()
    before = len([message for message in line.messages() if isinstance(message, Sample)])
    for _ in range(20):
        await line.message(Sample, "c")
    line.session.send(Finish(key="c"))
    done = await line.outcome("c")
    assert isinstance(done, TaskDone)
    sequences = [message.sequence for message in line.messages() if isinstance(message, Sample)]
    missing = sorted(set(range(1, done.result.samples + 1)) - set(sequences))  # type: ignore[union-attr]
    assert sequences == sorted(set(sequences))
    if missing:  # samples in flight when the stream broke are one gap in the numbers, with none after it
        assert missing == list(range(missing[0], missing[-1] + 1))
        assert sequences[before - 1] < missing[0] < sequences[-1] - 10


async def test_a_lost_reply_has_one_effect_and_one_outcome(bench: Bench, proxies: MakeProxy, tmp_path: Path) -> None:
    proxy, line = await through(bench, proxies)
    proxy.drops_replies = True  # the task arrives, the agent's answers do not
    line.session.send(task("k", f"append {tmp_path}/f"))
    await eventually(lambda: lines(tmp_path / "f") == ["effect"], "the task ran")
    proxy.cut()
    assert isinstance(await line.outcome("k"), TaskDone)
    line.session.send(task("after", "sleep 0"))
    await line.outcome("after")
    counts = Counter((type(message), getattr(message, "key", "")) for message in line.messages())
    assert counts[TaskAccepted, "k"] == counts[TaskDone, "k"] == 1
    assert lines(tmp_path / "f") == ["effect"]


async def test_a_task_that_cannot_be_sent_fails_and_the_session_goes_on(bench: Bench, proxies: MakeProxy) -> None:
    _, line = await through(bench, proxies)
    big = RunSql(endpoint=Endpoint(system="db", engine="sqlite", dsn="/x.db"), statements=("x" * (5 << 20),))
    line.session.send(Task(key="big", spec=big, deadline_s=60))
    code, message = await line.failure("big")
    assert code == "invalid"
    assert "it cannot be sent: a Task of" in message
    line.session.send(task("after", "sleep 0"))
    assert isinstance(await line.outcome("after"), TaskDone)
    assert not any(isinstance(event, Lost) for event in line.rest())


async def test_every_task_has_one_outcome_over_a_stream_that_keeps_breaking(
    bench: Bench, proxies: MakeProxy, tmp_path: Path
) -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    proxy, line = await through(bench, proxies, lease_s=20.0)
    keys = [f"k{number}" for number in range(120)]

    async def disturb() -> None:
        while True:
            await asyncio.sleep(chance.uniform(0.01, 0.06))
            proxy.drops_replies = chance.random() < 0.5
            await asyncio.sleep(chance.uniform(0.0, 0.02))
            proxy.cut()

    disturbing = asyncio.create_task(disturb())
    for key in keys:
        line.session.send(task(key, f"append {tmp_path}/f {key}"))
        await asyncio.sleep(chance.uniform(0, 0.01))
    disturbing.cancel()
    proxy.cut()
    left = set(keys)
    while left:
        outcome = await line.receive(
            lambda event: isinstance(getattr(event, "message", event), (TaskDone, TaskFailed, Lost))
        )
        assert not isinstance(outcome, Lost), f"seed {seed}: {outcome}"
        assert isinstance(outcome.message, TaskDone), f"seed {seed}: {outcome}"
        left.remove(outcome.message.key)  # KeyError: an outcome came twice
    assert sorted(lines(tmp_path / "f")) == sorted(keys), f"seed {seed}"


async def test_an_agent_without_a_coordinator_exits_when_its_lease_expires(
    bench: Bench, proxies: MakeProxy, tmp_path: Path
) -> None:
    proxy, line = await through(bench, proxies, lease_s=6.0)
    directory = bench.fabric.directory
    assert directory is not None
    line.session.send(task("r", f"resource a {tmp_path}/f"))
    line.session.send(task("k", f"sleep 600 {tmp_path}/f"))
    await line.accepted("k")
    proxy.hold()  # no more data arrives, and no side closes the connection
    assert (await line.lost()).startswith("no answer for")
    await eventually(lambda: all(is_gone(pid) for pid in bench.fabric.pids), "the agent is gone")
    assert lines(tmp_path / "f") == ["stopped", "closed a keep_data=True"]
    assert not directory.exists()


async def test_no_event_follows_lost(bench: Bench, proxies: MakeProxy) -> None:
    proxy, line = await through(bench, proxies, lease_s=6.0)
    proxy.hold()
    await line.lost()
    line.session.send(task("k", "sleep 0"))
    await line.session.close()
    assert line.events.empty()


# ---- one stream at a time, by hand -----------------------------------------------------------------------------------


async def test_the_same_task_twice_has_one_effect(bench: Bench, tmp_path: Path) -> None:
    address = await bench.start()
    stream, _ = await open_stream("db1", address, bench.fabric.credentials, HELLO, 60)
    once = task("k", f"append {tmp_path}/f")
    for _ in range(50):
        await stream.write(once)
    await stream.write(task("last", "sleep 0"))
    answers = []
    while not answers or answers[-1] != TaskDone(key="last", result=SqlDone(counts=(0,))):
        answers.append(await stream.read())
    of_once = [type(answer) for answer in answers if getattr(answer, "key", "") == "k"]
    assert of_once.count(TaskAccepted) == 50
    assert set(of_once) == {TaskAccepted, TaskDone}
    assert lines(tmp_path / "f") == ["effect"]
    await stream.close()


async def test_the_same_key_for_another_task_is_refused(bench: Bench, tmp_path: Path) -> None:
    address = await bench.start()
    stream, _ = await open_stream("db1", address, bench.fabric.credentials, HELLO, 60)
    await stream.write(task("k", f"append {tmp_path}/f one"))
    assert [type(await stream.read()) for _ in range(2)] == [TaskAccepted, TaskDone]
    await stream.write(task("k", f"append {tmp_path}/f two"))
    answer = await stream.read()
    assert isinstance(answer, TaskFailed)
    assert (answer.error.code, answer.error.message) == ("refused", "the key of this task was used for another task")
    assert lines(tmp_path / "f") == ["one"]
    await stream.close()


async def test_a_second_stream_of_the_same_coordinator_replaces_the_first(bench: Bench) -> None:
    address = await bench.start()
    first, one = await open_stream("db1", address, bench.fabric.credentials, HELLO, 60)
    second, two = await open_stream("db1", address, bench.fabric.credentials, HELLO, 60)
    assert one.session == two.session
    with pytest.raises(StreamEnded):
        await asyncio.wait_for(first.read(), 60)
    await second.write(task("k", "sleep 0"))
    assert isinstance(await second.read(), TaskAccepted)
    await first.close()
    await second.close()
