"""The work of `proveout deploy` on one host: read its facts, plan the steps, make them, verify, commit.

Flow: `deploy(target, access, order, tell)` -> a connection -> `facts` -> `steps_of(…)`: the steps that lead from the
facts to the order, none when the host is as wanted -> each step, and a session with the agent from here -> `commit` ->
`Outcome`.
`remove(…)` is the way back. A failure or an interruption before `commit` leaves the host as it was: its program undoes
the change when the connection ends (`host_program`).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import secrets
import sqlite3
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Literal

from cryptography import x509

from proveout.coordinator.agents.session import SessionEvent, connect, connect_patiently
from proveout.coordinator.certificates import INVITATION_MAX, Credentials, Ledger, Member
from proveout.coordinator.deploy.ssh_connection import Connection, HostError, Login, Target
from proveout.coordinator.deploy.wheelhouse import Wheelhouse
from proveout.core.data_classes import dataclass, field, record
from proveout.core.errors import ProveoutError, one_line
from proveout.core.numbers import count_of
from proveout.proto.signing import Shown
from proveout.proto.wire.messages import Hello

Tell = Callable[[str], None]
State = Literal["deployed", "changed", "unchanged", "would change", "removed", "absent", "failed", "interrupted"]

MIB = 1 << 20
BYTECODE = 1.4
"""Bytecode adds about two fifths to the files of an installation."""
STATE_BYTES = 64 * MIB
AGENT_S, CLOSE_S = 60.0, 5.0
UNCHANGED, LEFT = "unchanged", "the host undoes the change by itself, or the next deployment does"
ALL = "0.0.0.0"  # noqa: S104 - an agent accepts only certificates of its authority


@record
class Access:
    """The access to hosts: the login, and the authority's ledger.

    `dry_run`: nothing is changed.
    """

    login: Login
    ledger: Ledger | None = None
    dry_run: bool = False


@record
class Order:
    """The wanted state of hosts: an installation, certificates of the authority at an address, a service.

    `policies` by the name of a host or a role ("" for all), `examples` by role: texts. `service` False: a plain
    background process.
    """

    wheelhouse: Wheelhouse
    ledger: Ledger
    authority: str
    credentials: Credentials
    service: bool = True
    policies: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)


@record
class Outcome:
    """The result for a host, with the steps that were made (or would be), and what a person should know."""

    host: str
    state: State
    text: str = ""
    steps: tuple[str, ...] = ()

    @property
    def is_fine(self) -> bool:
        """Whether the host is as wanted, or would be."""
        return self.state not in ("failed", "interrupted")


@record
class Steps:
    """The steps for a host: a line for each, and which of them change what."""

    mode: str
    lines: tuple[str, ...] = ()
    install: bool = False
    enrol: bool = False
    policy: str = ""

    def __bool__(self) -> bool:
        return bool(self.lines)


# ---- planning ------------------------------------------------------------------------------------------------------


def steps_of(target: Target, order: Order, facts: Mapping[str, Any], now: datetime.datetime) -> Steps:
    """The steps from a host's facts to the order. HostError when it cannot be used."""
    house, record = order.wheelhouse, facts["deployment"]
    _check(order, facts)
    mode = ("systemd" if facts["systemd"] else "manual") if order.service else "process"
    lines = ["undo what an interrupted deployment has left"] if facts["interrupted"] else []
    install = facts["release"] != house.release
    if install:
        _check_room(house, facts)
        old = f" in place of {facts['release']}" if facts["release"] else ""
        lines.append(f"install {house.release}{old} ({len(house.wheels)} wheels, {house.size / MIB:.0f} MiB to copy)")
    policy = _policy(target, order, facts)
    why = _enrolment(target, order, facts, now, is_root=bool(policy or facts["policy"]))
    if why:
        if facts["authority_problem"]:
            raise HostError(
                f"it does not reach the authority at {order.authority}: {facts['authority_problem']}",
                way_out="Run `proveout pki serve`, name its address as hosts reach it with --authority, open the port.",
            )
        lines.append(f"enrol with {order.authority} as agent/{target.name}{why if record else ''}")
    if policy:
        lines.append("write /etc/proveout/policy.yaml")
    lines += _service(target, mode, facts, changes=bool(lines))
    return Steps(mode=mode, lines=tuple(lines), install=install, enrol=bool(why), policy=policy)


def _check(order: Order, facts: Mapping[str, Any]) -> None:
    """HostError when something else uses the places of an agent, or the wheels are for another Python."""
    if facts["foreign"]:
        raise HostError(
            f"{facts['foreign'][0]} exists, and deploy has not made it",
            way_out="Remove it, or leave this host out (--host). Nothing was changed.",
        )
    if why := order.wheelhouse.objection(facts["python"], facts["machine"], facts["libc"]):
        raise HostError(
            f"the wheels do not fit: it has Python {facts['python']} on {facts['machine']}, {why}",
            way_out="Name a Python of that version there with --python, or a --wheelhouse for this one (pip download).",
        )
    if facts["closed"]:
        raise HostError(
            f"its Python is below {facts['closed']}, which other users cannot read, and agents do not run load as root",
            way_out="Name another Python with --python.",
        )


def _check_room(house: Wheelhouse, facts: Mapping[str, Any]) -> None:
    needed = {"/opt/proveout": round(house.size + house.unpacked * BYTECODE), "/var/lib/proveout": STATE_BYTES}
    for place, wanted in needed.items():
        if facts["free"][place] < wanted:
            raise HostError(
                f"{facts['free'][place] / MIB:.0f} MiB are free for {place}, {wanted / MIB:.0f} MiB are needed",
                way_out="Make room there. Nothing was changed.",
            )


def _enrolment(target: Target, order: Order, facts: Mapping[str, Any], now: datetime.datetime, *, is_root: bool) -> str:
    """The reason to enrol the host (a remark in parentheses); "" when its certificate is fine."""
    if not facts["certificate"] or not facts["ca"]:
        return " "
    if facts["ca"].strip() != order.credentials.ca.decode().strip():
        raise HostError(
            "it is enrolled with another authority", way_out="Remove that deployment first: proveout deploy --remove."
        )
    try:
        certificate = x509.load_pem_x509_certificate(facts["certificate"].encode())
        shown, names = Shown.of(certificate), _names(certificate)
    except (ValueError, x509.ExtensionNotFound):
        return " (its certificate cannot be read)"
    reasons = {
        " (its certificate has expired)": shown.ends <= now,
        " (its certificate is revoked)": shown.serial in order.ledger.denied(),
        " (its certificate is for another name)": shown.roles != {f"agent/{target.name}"}
        or target.hostname not in names,
        # that user may have given its key away, and changed what it trusts
        " (its keys are those of an agent that was not root)": is_root and not facts["keys_of_root"],
        " (the authority has another address)": facts["authority"] != order.authority,
    }
    return next((why for why, holds in reasons.items() if holds), "")


def _names(certificate: x509.Certificate) -> set[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = (str(one) for one in found.get_values_for_type(x509.IPAddress))
    return {*found.get_values_for_type(x509.DNSName), *addresses}


def _policy(target: Target, order: Order, facts: Mapping[str, Any]) -> str:
    """The policy to write; "" for none. HostError when the host has another one."""
    wanted = next((order.policies[key] for key in (target.name, *target.roles, "") if key in order.policies), "")
    if not wanted or facts["policy"] == hashlib.sha256(wanted.encode()).hexdigest():
        return ""
    if facts["policy"]:
        raise HostError(
            "it has another policy than the one of --policy",
            way_out="Leave --policy out to keep it; or remove /etc/proveout/policy.yaml there to replace it.",
        )
    return wanted


def _service(target: Target, mode: str, facts: Mapping[str, Any], *, changes: bool) -> list[str]:
    """The lines about the service."""
    record = facts["deployment"]
    start = {
        "systemd": "write the unit proveout-agent.service, enable and start it",
        "process": "start the agent as a background process",
        "manual": "no systemd here: the agent is not started",
    }[mode]
    if changes or not record:
        return [start if not facts["running"] else start.replace("start", "restart")]
    same = record["name"] == target.name and record["listen"] == listen(target) and record["mode"] == mode
    if not same:
        return [f"{start} (its address, name or kind of service has changed)"]
    if record["policy"] != facts["policy"]:
        return [f"{start} (its policy has changed)"]
    if record["unit"] != facts["unit"]:
        return [f"{start} (its unit was edited; use a drop-in)"]
    return [] if facts["running"] or mode == "manual" else [start]


def listen(target: Target) -> str:
    """The address that the agent listens at: all of the host's, with the port of the inventory."""
    return f"{'[::]' if ':' in target.hostname else ALL}:{target.port}"


# ---- one host ------------------------------------------------------------------------------------------------------


async def deploy(target: Target, access: Access, order: Order, tell: Tell) -> Outcome:
    """Deploy to a host; failures are outcomes. When cancelled, the host is as before, or complete."""
    return await _guarded(target, access, tell, lambda work: work.deploy(order))


async def remove(target: Target, access: Access, tell: Tell) -> Outcome:
    """Remove a deployment from a host; failures are outcomes."""
    return await _guarded(target, access, tell, lambda work: work.remove())


async def _guarded(
    target: Target, access: Access, tell: Tell, do: Callable[[_Work], Coroutine[Any, Any, Outcome]]
) -> Outcome:
    """The outcome of work, or that of its failure or interruption, after the host has undone what was not committed."""
    tell("connecting")
    try:
        connection = await Connection.open(target, access.login)
    except ProveoutError as error:
        return Outcome(host=target.name, state="failed", text=_shortly(error))
    except asyncio.CancelledError:
        return Outcome(host=target.name, state="interrupted", text=UNCHANGED)
    work = _Work(target=target, access=access, connection=connection, tell=tell)
    try:
        outcome = await do(work)
    except (ProveoutError, OSError, ValueError, sqlite3.Error) as error:  # answers and certificates are the host's
        return Outcome(host=target.name, state="failed", text=f"{_shortly(error)}; {await _undone(work, 2)}")
    except asyncio.CancelledError:
        tell("interrupted: undoing")
        return Outcome(host=target.name, state="interrupted", text=await _undone(work, 1))
    with contextlib.suppress(asyncio.CancelledError):  # the outcome stands
        await connection.close()
    return outcome


async def _undone(work: _Work, interruptions: int) -> str:
    """`give_up`; so many interruptions end the wait for it."""
    doing = asyncio.ensure_future(work.give_up())
    for _ in range(interruptions):
        with contextlib.suppress(asyncio.CancelledError):
            return await asyncio.shield(doing)
    return LEFT if work.began else UNCHANGED


def _shortly(error: Exception) -> str:
    """A failure without the name of the host, in a line."""
    if not isinstance(error, ProveoutError):
        return one_line(error)
    what, way_out = " ".join(error.what.split()), " ".join(error.way_out.split()).rstrip(".")
    return f"{what} ({way_out})" if way_out else what


@dataclass(slots=True, kw_only=True)
class _Work:
    """Work on one host over an open connection. `began`: a change was begun; `serials`: certificates of before."""

    target: Target
    access: Access
    connection: Connection
    tell: Tell
    began: bool = False
    serials: frozenset[int] = frozenset()

    async def deploy(self, order: Order) -> Outcome:
        """Make the steps, verify the agent, commit."""
        name = self.target.name
        self.serials = self._in_force()
        facts = await self.connection.ask("facts", authority=order.authority)
        steps = steps_of(self.target, order, facts, datetime.datetime.now(datetime.UTC))
        if self.access.dry_run and steps:
            return Outcome(host=name, state="would change", steps=steps.lines)
        if not steps:
            if not facts["busy"]:
                await self._verify(order.credentials)
            return Outcome(host=name, state="unchanged", text=f"{facts['release']}, agent at {self.target.address}")
        _refuse_busy(facts)
        started = await self._make(order, steps)
        if steps.mode == "manual":
            text = f"not started: no systemd there. As user {started['user']}: {started['start']}"
        else:
            self.tell("verifying")
            await self._verify(order.credentials)
            text = f"{order.wheelhouse.release}, agent at {self.target.address}"
        self.tell("committing")
        await _to_its_end(self.connection.ask("commit"))
        self.began = False
        state: State = "changed" if facts["deployment"] else "deployed"
        return Outcome(host=name, state=state, text=text, steps=steps.lines)

    async def _make(self, order: Order, steps: Steps) -> dict[str, Any]:
        """Make the steps; returns the command and the user of the service."""
        ask, house = self.connection.ask, order.wheelhouse
        await ask("begin", release=house.release if steps.install else "")
        self.began = True  # not before: a host that refuses is changed by another deployment, and has its certificates
        if steps.install:
            await self._copy(house)
            self.tell("installing")
            await ask("install", requirements=house.requirements)
        if steps.enrol:
            self.tell("enrolling")
            member = Member(role="agent", name=self.target.name, addresses=(self.target.hostname,))
            token = order.ledger.invite(member, INVITATION_MAX)
            await ask("enrol", authority=order.authority, ca_hash=order.ledger.fingerprint, token=token)
        self.tell("starting the agent")
        example = next((order.examples[role] for role in self.target.roles if role in order.examples), "")
        return await ask(
            "service",
            name=self.target.name,
            listen=listen(self.target),
            mode=steps.mode,
            policy=steps.policy,
            example=example,
        )

    async def _copy(self, house: Wheelhouse) -> None:
        copied = 0

        def moved(count: int) -> None:
            nonlocal copied
            copied += count
            self.tell(f"copying {copied / MIB:.0f} of {house.size / MIB:.0f} MiB")

        for wheel in house.wheels:
            await self.connection.send(wheel.path, wheel.size, wheel.sha256, moved)

    async def remove(self) -> Outcome:
        """Remove the deployment, and revoke the host's certificates."""
        name = self.target.name
        facts = await self.connection.ask("facts", authority="")
        if not facts["deployment"] and not facts["interrupted"]:
            left = f"; not of a deployment, and left: {', '.join(facts['foreign'])}" if facts["foreign"] else ""
            return Outcome(host=name, state="absent", text=f"nothing is deployed{left}")
        what = [f"remove {one[1]}" for one in facts["deployment"].get("made", [])]
        if self.access.dry_run:
            return Outcome(host=name, state="would change", steps=("stop the agent", *what))
        _refuse_busy(facts)
        self.tell("stopping the agent and removing")
        await _to_its_end(self.connection.ask("remove"))
        return Outcome(host=name, state="removed", text=self._revoke(frozenset()), steps=tuple(what))

    async def _verify(self, credentials: Credentials) -> None:
        """Open a session with the agent from here, as a run does. AgentUnreachable, AgentRefused."""
        hello = Hello(run_id=f"deploy-{secrets.token_hex(6)}", epoch=1, host=self.target.name)
        dial = partial(connect, hello.host, self.target.address, credentials, hello, asyncio.Queue[SessionEvent]())
        session = await connect_patiently(dial, AGENT_S, self.tell)
        await session.close(timeout_s=CLOSE_S)

    async def give_up(self) -> str:
        """Close the connection and wait until the host has undone the change; the state of the host, for people."""
        try:
            ending = await self.connection.close()
        finally:  # also when no caller waits for it any more
            if self.began:  # a certificate that the agent of before has renewed meanwhile stays
                self._revoke(self.serials | self._in_force("renew"))
        if ending.undone:
            return "everything was undone"
        if ending.problem:
            return f"not everything was undone: {ending.problem}"
        return f"the connection broke; {LEFT}" if self.began else UNCHANGED

    def _in_force(self, how: str = "") -> frozenset[int]:
        """The certificates of the host that are not revoked; of those made by `how`, when it is given."""
        issued = self.access.ledger.issued() if self.access.ledger else ()
        return frozenset(
            one.serial
            for one in issued
            if one.member.role == "agent" and one.member.name == self.target.name and one.revoked_unix_s is None
            if how in ("", one.how)
        )

    def _revoke(self, kept: frozenset[int]) -> str:
        """Revoke the host's certificates but for those of `kept`; returns their number, for people."""
        serials = sorted(self._in_force() - kept)
        if self.access.ledger is not None:
            for serial in serials:
                self.access.ledger.revoke(f"{serial:x}")
        return f"{count_of(len(serials), 'certificate')} revoked" if serials else ""


def _refuse_busy(facts: Mapping[str, Any]) -> None:
    """HostError when the agent serves a run, which a restart would end."""
    if facts["busy"]:
        way_out = "Wait for the end of that run; when its coordinator is gone, for the ten seconds of its lease."
        raise HostError("its agent serves a run", way_out=way_out)


async def _to_its_end(doing: Coroutine[Any, Any, dict[str, Any]]) -> None:
    """Wait for a request that must not be left halfway: a cancellation takes effect after its answer, as nothing."""
    task = asyncio.ensure_future(doing)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
