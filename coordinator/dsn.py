"""Externally run systems and exporters: their data source names and urls with the secrets filled in, as late as can be.

Data flow: `System.dsn` with `${secrets.NAME}` -> environment variable or file -> `Endpoint`, which only goes into tasks.
A secret's value is on no disk of ours, in no event, and in no message: errors name the reference, never the value.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from proveout.coordinator.dag import exporter_name
from proveout.dsl.errors import ProveoutError
from proveout.dsl.plan import Plan, Secret, System
from proveout.proto.tasks import Endpoint

_REFERENCE = re.compile(r"(?P<open>'?)\$\{\s*secrets\.(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*\}(?P<close>'?)")


class SecretMissing(ProveoutError):
    """A secret that cannot be had; the run has not begun."""

    exit_code = 2


def external_endpoints(plan: Plan, environment: Mapping[str, str]) -> dict[str, Endpoint]:
    """Endpoints of the systems that run already, and of the exporters (`dag.exporter_name`). SecretMissing."""
    values: dict[str, str] = {}
    secrets = {secret.name: secret for secret in plan.secrets}
    endpoints: dict[str, Endpoint] = {}
    for system in plan.systems:
        if system.dsn is not None:
            _read(secrets, values, " ".join((system.dsn, *system.instances)), environment)
            endpoints[system.name] = Endpoint(
                system=system.name,
                engine=system.engine,
                dsn=filled(system, values),
                instances=tuple(filled(replace(system, dsn=dsn), values) for dsn in system.instances),
            )
    for capture in plan.captures:
        if capture.kind == "prometheus":
            name = exporter_name(capture)
            _read(secrets, values, capture.url, environment)
            url = _REFERENCE.sub(lambda match: quote(values[match.group("name")], safe=""), capture.url)
            endpoints[name] = Endpoint(system=name, engine="prometheus", dsn=url)
    return endpoints


def _read(secrets: Mapping[str, Secret], values: dict[str, str], text: str, environment: Mapping[str, str]) -> None:
    """The values of the secrets that a text refers to, read once. SecretMissing."""
    for match in _REFERENCE.finditer(text):
        name = match.group("name")
        if name not in values:
            values[name] = read_secret(secrets[name], environment)


def filled(system: System, values: Mapping[str, str]) -> str:
    """The system's dsn with each reference replaced, quoted as a libpq conninfo or URI wants it.

    Oracle's `user/password@target` is divided at the first `/` and the last `@`, so a password stands there as it is; so it
    does in the dsn of an engine that another package has the driver for.
    """
    dsn = system.dsn or ""
    is_uri = dsn.startswith(("postgres://", "postgresql://", "mysql://", "mariadb://"))

    def put(match: re.Match[str]) -> str:
        value = values[match.group("name")]
        if is_uri:
            return match.group("open") + quote(value, safe="") + match.group("close")
        if system.engine not in {"postgres", "mysql"}:
            return match.group("open") + value + match.group("close")
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"

    return _REFERENCE.sub(put, dsn)


def secret_variables(plan: Plan) -> frozenset[str]:
    """The variables of the environment that hold secrets of a plan."""
    return frozenset(secret.reference for secret in plan.secrets if secret.kind == "env")


def read_secret(secret: Secret, environment: Mapping[str, str]) -> str:
    """The value of a secret. SecretMissing when it is not set, not there, or readable by others."""
    where = f"{secret.where} secret {secret.name}"
    if secret.kind == "env":
        if value := environment.get(secret.reference):
            return value
        way_out = f"Set it, for instance with `read -rs {secret.reference}; export {secret.reference}`."
        raise SecretMissing(f"the environment has no {secret.reference}", where=where, way_out=way_out)
    path = Path(secret.where.file).parent / Path(secret.reference).expanduser()
    try:
        with path.open(encoding="utf-8") as stream:
            mode = os.fstat(stream.fileno())
            if stat.S_IMODE(mode.st_mode) & 0o077:
                way_out = f"Make it private: chmod 600 {path}"
                raise SecretMissing(f"{path} is readable by others", where=where, way_out=way_out)
            return stream.read().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as fault:
        raise SecretMissing(
            f"{path} cannot be read: {getattr(fault, 'strerror', None) or 'not UTF-8 text'}",
            where=where,
            way_out="The file holds the secret alone, in one line.",
        ) from fault
