"""Endpoints of systems and exporters that run already: their dsns and urls with the secrets filled in, as late as
possible.

Data flow: `System.dsn` with `${secrets.NAME}` -> `_check_destinations`, whether the secrets may go to its hosts ->
environment variable or file -> `Endpoint`, which only tasks contain. A secret's value is in no file of ours, in no
event and in no message: errors contain the reference, not the value.

The compiler has checked the destinations of secrets. They are checked again before a secret is read, as a plan may come
from a journal.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from urllib.parse import quote

from proveout.coordinator.schedule.tasks import admin_name, exporter_name
from proveout.core.errors import ProveoutError
from proveout.dsl import engines
from proveout.dsl.plan.plan import Plan
from proveout.dsl.plan.topology import Secret, System
from proveout.dsl.rules import secrets as destinations
from proveout.dsl.rules.secrets import BYTES_MAX, refused_content, refused_path
from proveout.proto.wire.tasks import Endpoint

_URI = tuple(f"{scheme}://" for engine in engines.ENGINES.values() for scheme in engine.schemes)
_REFERENCE = re.compile(r"(?P<open>'?)\$\{\s*secrets\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*\}(?P<close>'?)")


class SecretMissing(ProveoutError):
    """A secret that cannot be read; the run has not begun."""

    exit_code = 2


class SecretRefused(ProveoutError):
    """A secret that must not be read, or must not be sent to the destination in the plan; the run has not begun."""

    exit_code = 2


def external_endpoints(plan: Plan, environment: Mapping[str, str]) -> dict[str, Endpoint]:
    """Endpoints of the systems that run already, of their `admin`, and of the exporters (`schedule.tasks.admin_name`,
    `exporter_name`). SecretMissing, SecretRefused."""
    _check_destinations(plan)
    secrets = {secret.name: secret for secret in plan.secrets}
    value = cache(lambda name: read_secret(secrets[name], environment))
    endpoints: dict[str, Endpoint] = {}
    for system in plan.systems:
        if system.dsn is not None:
            dsn, *instances = (filled(system, one, value) for one in (system.dsn, *system.instances))
            made = partial(Endpoint, system=system.name, engine=system.engine)
            endpoints[system.name] = made(dsn=dsn, instances=tuple(instances))
            if system.admin is not None:
                endpoints[admin_name(system.name)] = made(dsn=filled(system, system.admin, value))
    for capture in plan.captures:
        if capture.kind == "prometheus":
            name = exporter_name(capture)
            url = _REFERENCE.sub(lambda match: quote(value(match["name"]), safe=""), capture.url)
            endpoints[name] = Endpoint(system=name, engine="prometheus", dsn=url)
    return endpoints


def _check_destinations(plan: Plan) -> None:
    """SecretRefused when a dsn or url would send a secret where it may not go."""
    for system in plan.systems:
        _check_uses(plan, f"{system.where} system {system.name}", partial(destinations.of_system, system, plan.systems))
    for capture in plan.captures:
        if capture.kind == "prometheus":
            where = f"{capture.where} capture {capture.name}"
            _check_uses(plan, where, partial(destinations.of_url, capture.url), exporter=True)


def _check_uses(plan: Plan, where: str, find_uses: Callable[[], destinations.Uses], *, exporter: bool = False) -> None:
    try:
        uses = find_uses()
    except destinations.Unclear as fault:
        way_out = "Write the host, and the secret as the user or the password."
        raise SecretRefused(
            f"the destination of a secret is not clear: {fault}", where=where, way_out=way_out
        ) from None
    for _, reason, place in destinations.objections(uses, plan.secrets, plan.hosts, exporter=exporter):
        way_out = f"If it may go there, add the destination to the secret's declaration: to: [{place}]"
        raise SecretRefused(reason, where=where, way_out=way_out)


def filled(system: System, dsn: str, value: Callable[[str], str]) -> str:
    """A dsn of a system with each reference replaced by the `value` of its secret, quoted as a libpq conninfo or URI
    wants it.

    Oracle's `user/password@target` is divided at the first `/` and the last `@`, so a password is inserted there
    without quotes, as in the dsn of an engine whose driver is in another package.
    """
    is_uri = dsn.startswith(_URI)

    def put(match: re.Match[str]) -> str:
        secret = value(match["name"])
        if is_uri:
            return match["open"] + quote(secret, safe="") + match["close"]
        if engines.of(system.engine).dsn_form not in {"conninfo", "uri"}:
            return match["open"] + secret + match["close"]
        # with these a value is the same in quotes, without, and as a part of one
        return match["open"] + re.sub(r"[\\'\s]", r"\\\g<0>", secret) + match["close"] if secret else "''"

    return _REFERENCE.sub(put, dsn)


def secret_variables(plan: Plan) -> frozenset[str]:
    """The variables of the environment that hold secrets of a plan."""
    return frozenset(secret.reference for secret in plan.secrets if secret.kind == "env")


def read_secret(secret: Secret, environment: Mapping[str, str]) -> str:
    """The value of a secret. SecretMissing when it is unset, absent, or readable by others; SecretRefused when it is a
    key."""
    where = f"{secret.where} secret {secret.name}"
    if secret.kind == "file":
        return _read_file(Path(secret.where.file).parent / Path(secret.reference).expanduser(), where)
    value = environment.get(secret.reference)
    if not value:
        way_out = f"Set it, for instance with `read -rs {secret.reference}; export {secret.reference}`."
        raise SecretMissing(f"the environment has no {secret.reference}", where=where, way_out=way_out)
    if reason := refused_content(value.encode("utf-8", errors="surrogateescape")):
        raise SecretRefused(f"the variable {secret.reference} {reason}", where=where, way_out=_WAY_OUT)
    return value


_WAY_OUT = "A secret is a password in one line; proveout does not send private keys."


def _read_file(path: Path, where: str) -> str:
    """The password in a file, following links. Its name and its content are checked."""
    real = os.path.realpath(path)
    if reason := refused_path(str(path)) or refused_path(real):
        raise SecretRefused(reason, where=where, way_out="Write the password alone into a file of its own.")
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        raise SecretMissing(f"{path} cannot be read: {fault.strerror}", where=where, way_out=_ONE_LINE) from fault
    with open(descriptor, "rb") as stream:  # noqa: PTH123 - a descriptor, so that the checked file is the one that is read
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise SecretRefused(f"{path} is not a regular file", where=where, way_out=_ONE_LINE)
        if stat.S_IMODE(found.st_mode) & 0o077:
            way_out = f"Make it private: chmod 600 {path}"
            raise SecretMissing(f"{path} is readable by others", where=where, way_out=way_out)
        if reason := refused_path(
            str(Path(f"/proc/self/fd/{stream.fileno()}").readlink())
        ):  # a folder was replaced meanwhile
            raise SecretRefused(reason, where=where, way_out=_WAY_OUT)
        content = stream.read(BYTES_MAX + 1)
    if reason := refused_content(content):
        raise SecretRefused(f"{path} {reason}", where=where, way_out=_WAY_OUT)
    return content.decode("utf-8").rstrip("\r\n")


_ONE_LINE = "The file holds the secret alone, in one line."
