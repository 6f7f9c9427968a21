"""The commands of the page `lab-first-run`: each is executed unchanged on the host that the page names, and must print
the output that the page shows.

Data flow: the page -> `steps` (a block of commands or of output, with the host of the sentence before it) ->
`hand_made.Lab`. Services (`pki serve`, `agent`) are started in the background. The blocks of section 2 are executed
again for each other host, with its name. Not executed: the run of half an hour.

Not tested: separate machines with their own clocks and networks, and a user other than root.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest
from eventually import eventually
from hand_made import DB1, FAKETIME, OBJECTION, Lab
from servers import Server, programs
from shell_blocks import as_shown

pytestmark = [pytest.mark.server, pytest.mark.soak]

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "lab-first-run.md"
STAYS = ("proveout pki serve", "proveout agent ")
ADMITTED, RUN = "2.", "5."
LISTED = "proveout pki list"
WHOLE = "proveout run study.yaml\n"


@dataclass(frozen=True)
class Step:
    """Commands of a host (`language` sh), statements (sql), or the output of the previous step (text)."""

    section: str
    host: str
    language: str
    text: str


def steps(page: str) -> Iterator[Step]:
    section = host = ""
    for part in re.split(r"^( *```\w+\n.*?^ *```$)", page, flags=re.MULTILINE | re.DOTALL):
        fence = re.match(r"( *)```(\w+)\n(.*?)\n *```$", part, re.DOTALL)
        if fence:
            yield Step(section, host, fence[2], fence[3].replace(f"\n{fence[1]}", "\n").removeprefix(fence[1]))
            continue
        section = (re.findall(r"^## (.*)$", part, re.MULTILINE) or [section])[-1]
        host = (re.findall(r"\*\*[Oo]n (\w+)\*\*", part) or [host])[-1]


STEPS = tuple(steps(PAGE.read_text()))


class Walk:
    """Executes steps; `output` is that of the last commands."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.output, self.log, self.invitation, self.shown = lab, "", ("", ""), "", 0

    def step(self, step: Step) -> None:
        match step.language:
            case "sh":
                lines = step.text.splitlines()
                self.output = "".join(self.command(step.host, line) for line in lines)
            case "text":
                for line in step.text.splitlines():
                    self.shows(as_shown(line))
            case "sql":
                self.statements(step.text)

    def shows(self, pattern: re.Pattern[str]) -> None:
        """Check that the output matches: wait for it in the log of a service, or find it in that of ended commands."""
        self.shown += 1
        if self.log[0]:
            eventually(lambda: pattern.search(self.lab.read(*self.log)), lambda: self.lab.read(*self.log))
        else:
            assert pattern.search(self.output), f"{pattern.pattern}\n{self.output[-4000:]}"

    def command(self, host: str, line: str) -> str:
        self.log = ("", "")
        if "proveout pki enrol" in line:
            alike = re.escape(line).replace("…", r"\S+")
            assert re.fullmatch(alike, self.invitation), "the invitation differs from the command on the page"
            line = self.invitation
        if line.startswith(STAYS):
            self.log = (host, line.split()[1])
            self.lab.start(host, line, self.log[1])
            return ""
        output = self.lab.run(host, line, code=None if line.startswith("proveout run") else 0)
        if line.startswith("proveout pki invite"):
            self.invitation = output.strip()
        return output

    def statements(self, text: str) -> None:
        """Execute statements as the administrator of db1's server, through its socket."""
        with psycopg.connect(
            host=str(self.lab.folder / "pg"), user="postgres", dbname="postgres", autocommit=True
        ) as own:
            for line in text.splitlines():
                own.execute(line.encode())


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """The guide's four hosts in their initial state; at the end their processes are ended and they are removed."""
    if OBJECTION:
        pytest.skip(OBJECTION)
    made = Lab()
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def server(lab: Lab) -> None:
    """An existing PostgreSQL on db1 that accepts connections from the lab's hosts."""
    made = Server(network=lab.network, host=DB1, folder=lab.folder / "pg", programs=programs(lab.folder), settings={})
    lab.stays.append(made.start("not-this-one"))


@pytest.fixture(scope="module")
def walk(lab: Lab, server: None) -> Walk:
    """Execute the page up to its run."""
    walk = Walk(lab)
    for step in STEPS:
        if step.section.startswith(RUN):
            break
        if LISTED in step.text:
            for name in ("client1", "client2"):
                admit(walk, name)
        walk.step(step)
    return walk


def admit(walk: Walk, name: str) -> None:
    """Execute the steps of db1 for another host."""
    mine = [step for step in STEPS if step.section.startswith(ADMITTED)]
    for step in itertools.takewhile(lambda step: LISTED not in step.text, mine):
        swapped = replace(step, host=step.host.replace("db1", name), text=step.text.replace("db1", name))
        walk.step(swapped)


def test_every_command_up_to_the_run_has_the_output_of_the_page(walk: Walk) -> None:
    sections = dict.fromkeys(step.section[:1] for step in STEPS)
    assert list(sections) == ["1", "2", "3", "4", "5"]
    assert walk.shown >= 16, "the page shows what its commands say"


def test_the_commands_of_the_run_have_the_output_of_the_page(walk: Walk) -> None:
    for step in STEPS:
        if step.section.startswith(RUN):
            walk.step(replace(step, text=step.text.removeprefix(WHOLE)))
    page = Path(walk.output.strip())  # the file that `proveout report` has written
    assert "A PostgreSQL server under load from two client machines" in page.read_text()


# ---- what goes wrong ---------------------------------------------------------------------------------------------

ADDRESSES: Mapping[str, tuple[str, str]] = {
    "no connection: No route to host": ("gone", "10.77.0.99:7443"),
    "certificate is not valid for": ("numbered", "10.77.0.11:7443"),
    "this is the agent of host db1, not of client1": ("client1", "db1.lab:7443"),
    "the agent is busy with run": ("client2", "client2.lab:7443"),
}
"""Error -> a host of a plan that causes it: its name and its address in the plan. Those that need no other machine, and the
tokens of an invitation, are in tests/fabric."""
INVITE = "proveout pki invite ~/lab-authority db1 --address db1.lab --authority lead.lab:7444"


def asked(lab: Lab, hosts: Mapping[str, str], before: str = "") -> str:
    """Return the errors of `explain --facts` on lead for hosts that cannot be queried."""
    topology = ", ".join(f'{name}: {{roles: [server], address: "{address}"}}' for name, address in hosts.items())
    lines = ["proveout: 1", "name: asked", f"topology: {{hosts: {{{topology}}}}}", "stages: [{pause: {duration: 60s}}]"]
    lines.append(f"tuning: [{{name: swapping, on: [{', '.join(hosts)}], sysctl: {{vm.swappiness: 10}}}}]")
    (lab.folder / "lead" / "home" / "asked.yaml").write_text("\n".join(lines))
    output = lab.run("lead", f"{before} proveout explain --facts asked.yaml", code=None)
    _, found, answers = output.partition("as the hosts are now")
    assert found, output
    return answers


@pytest.fixture(scope="module")
def answers(lab: Lab, walk: Walk) -> Iterator[str]:
    """Return the errors for all the hosts in one query, while a run uses the agent of client2."""
    pausing = "proveout: 1\nname: pausing\nstages: [{pause: {duration: 10m}}]\n"
    topology = 'topology: {hosts: {client2: {roles: [client], address: "client2.lab:7443"}}}\n'
    (lab.folder / "lead" / "home" / "pausing.yaml").write_text(pausing + topology)
    running = lab.start("lead", "exec proveout run pausing.yaml --headless", "pausing")
    lab.until_logged("lead", "pausing", "agent client2 is up")
    yield asked(lab, dict(ADDRESSES.values()))
    running.terminate()


@pytest.mark.parametrize("words", ADDRESSES)
def test_an_unavailable_host_is_named_with_its_address_and_the_way_out(words: str, answers: str) -> None:
    host, address = ADDRESSES[words]
    (line,) = [line for line in answers.splitlines() if f"host {host} ({address}): " in line]
    assert words in line
    assert line.endswith(")"), "there is a way out"


@pytest.mark.skipif(not FAKETIME, reason="needs libfaketime")
def test_a_clock_that_is_an_hour_off_is_reported_as_the_error(lab: Lab, walk: Walk) -> None:
    output = asked(lab, {"db1": "db1.lab:7443"}, FAKETIME.format("-1h"))
    assert "host db1 (db1.lab:7443): the agent's certificate is not yet valid" in output.replace(
        "certificate is not accepted: ", ""
    )
    assert "Compare the clocks" in output
    line = lab.run("lead", INVITE).strip().replace("/etc/proveout/pki", "/etc/second")
    output = lab.run("db1", f"{FAKETIME.format('-1h')} {line}", code=4)
    assert output.startswith("error: lead.lab:7444: ") and "the authority's certificate is valid from" in output
    assert "Set the clock" in output
