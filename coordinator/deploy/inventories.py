"""The hosts that `proveout deploy` works on, and the inventories of Ansible as inventories of proveout."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from proveout.coordinator.deploy.ssh_connection import Target
from proveout.core.data_classes import record
from proveout.core.errors import PlanError, PlanProblem, Where
from proveout.dsl.compile import topology
from proveout.dsl.compile.symbols import Scope
from proveout.dsl.plan.scalars import NAME_PATTERN
from proveout.dsl.rules.host_rules import is_host_and_port
from proveout.dsl.schema.models import SSH_PATTERN
from proveout.dsl.schema.parameters import Parameters
from proveout.dsl.source.ansible_inventory import Host
from proveout.dsl.source.includes import refuse_nulls
from proveout.dsl.source.loader import load
from proveout.dsl.source.nodes import Map, Problems, did_you_mean, node_at


def read(path: Path, only: Collection[str] = ()) -> tuple[Target, ...]:
    """The targets of a file; `only` those of these names. PlanError with all problems and their lines."""
    problems = Problems()
    root = load(path, str(path), problems)
    section = None if root is None else node_at(root, "topology", "hosts")
    if root is not None and not isinstance(section, Map):
        problems.add(root.where, "has no hosts", key="topology.hosts", hint="topology: {hosts: {db1: {…}}}")
    if section is not None:
        refuse_nulls(section, problems)
    nothing = Parameters(values={}, nodes={}, broken=frozenset())
    scope = Scope(problems=problems, parameters=nothing, folder=path.parent, inventory=None)
    found = [
        Target(
            name=host.name,
            roles=host.roles,
            address=host.address,
            ssh=entry.ssh or host.address.rpartition(":")[0].strip("[]"),
        )
        for _, entry, host in topology.hosts(scope, section if isinstance(section, Map) else None)
        if not host.is_local
    ]
    names = scope.declared["host"]
    for name in sorted(set(only) - names):
        hint = did_you_mean(name, names)
        problems.add(Where(file=str(path)), f"the inventory has no host `{name}`", key="--host", hint=hint)
    if problems.found:
        raise problems.error()
    chosen = [target for target in found if not only or target.name in only]
    if not chosen:
        what = "no host has the address of an agent (name:port); `address: local` needs none"
        raise PlanError((PlanProblem(message=what, where=Where(file=str(path))),))
    return tuple(chosen)


NAME_MAX = 64
SHOWN_MAX = 6
ADDRESS, PORT, USER = (
    ("ansible_host", "ansible_ssh_host"),
    ("ansible_port", "ansible_ssh_port"),
    ("ansible_user", "ansible_ssh_user"),
)
CONNECTION = "ansible_connection"
OVER_SSH = ("ssh", "smart", "paramiko", "paramiko_ssh", "libssh")
MAPPED = (*ADDRESS, *PORT, *USER, CONNECTION)
ADVICE: Mapping[str, str] = {
    "ansible_ssh_private_key_file": "write it into ~/.ssh/config (IdentityFile)",
    "ansible_private_key_file": "write it into ~/.ssh/config (IdentityFile)",
    "ansible_ssh_common_args": "write them into ~/.ssh/config",
    "ansible_ssh_extra_args": "write them into ~/.ssh/config",
    "ansible_ssh_args": "write them into ~/.ssh/config",
    "ansible_python_interpreter": "name it to deploy: --python",
    "ansible_password": "left out: deploy logs in with a key",
    "ansible_ssh_pass": "left out: deploy logs in with a key",
    "ansible_become_password": "left out: sudo must not ask",
    "ansible_become_pass": "left out: sudo must not ask",
    "ansible_become": "deploy uses sudo where the user is not root",
    "ansible_become_user": "deploy becomes root",
    "ansible_become_method": "deploy uses sudo",
}
"""Advice on variables that the inventory has no place for."""

HEAD = """# Hosts of {source}, by `proveout inventory import`. Systems and secrets: see plans/inventories.
topology:
  hosts:
"""


@record
class Imported:
    """The text of an inventory, and what it does not hold, a line each."""

    text: str
    notes: tuple[str, ...]


def convert(hosts: Sequence[Host], source: str, *, port: int, roles: Mapping[str, str]) -> Imported:
    """The inventory of hosts. `roles` gives a group another role than its own name; `port` is that of the agents."""
    notes: list[str] = []
    lines: list[str] = []
    taken: dict[str, str] = {}
    for host in hosts:
        connection = _value(host, (CONNECTION,), notes) or "ssh"
        if connection not in (*OVER_SSH, "local"):
            notes.append(f"{host.where}: host `{host.name}` is left out: it is reached by {connection}, not by SSH")
            continue
        name = _name(host.name, taken)
        if name != host.name:
            notes.append(f"{host.where}: host `{host.name}` has the name `{name}`")
        taken[name] = host.name
        lines.append(f"    {name}: {{{', '.join(_entry(host, connection == 'local', port, roles, notes))}}}")
    notes += _unmapped(hosts)
    notes += _renamed({group for host in hosts for group in host.groups}, roles)
    if not any(_role(group, roles) == "client" for host in hosts for group in host.groups):
        notes.append("no host has the role `client`, which generates load: give it to a group with --role GROUP=client")
    return Imported(text=HEAD.format(source=source) + "\n".join([*lines, ""]), notes=tuple(dict.fromkeys(notes)))


def _entry(host: Host, local: bool, port: int, roles: Mapping[str, str], notes: list[str]) -> list[str]:
    """The keys of a host."""
    own = list(dict.fromkeys(_role(group, roles) for group in host.groups))
    entry = [f"roles: [{', '.join(own)}]"]
    if local:
        return [*entry, "address: local"]
    dialled = _value(host, ADDRESS, notes) or host.name
    bracketed = f"[{dialled}]" if ":" in dialled and "[" not in dialled else dialled
    address = f"{bracketed}:{port}"
    entry.append(f"address: {json.dumps(address)}")
    if not is_host_and_port(address):
        notes.append(f"{host.where}: the address `{dialled}` of host `{host.name}` is not a name or an IP address")
    user, ssh_port = _value(host, USER, notes), _value(host, PORT, notes)
    if user or ssh_port:
        ssh = f"{user + '@' if user else ''}{bracketed}{':' + ssh_port if ssh_port else ''}"
        if re.fullmatch(SSH_PATTERN, ssh):
            entry.append(f"ssh: {json.dumps(ssh)}")
        else:
            notes.append(f"{host.where}: the login `{ssh}` of host `{host.name}` is not [user@]host[:port]")
    return entry


def _value(host: Host, names: Iterable[str], notes: list[str]) -> str:
    """The value of the first of these variables; "" for none, and for a template."""
    for name in names:
        if name in host.variables:
            value, where = host.variables[name]
            if "{{" not in value:
                return value
            notes.append(f"{where}: `{name}` of host `{host.name}` is a template, and not used")
    return ""


def _name(text: str, taken: Mapping[str, str]) -> str:
    """A name of a host in plans: its own, its first label, or its own with hyphens."""
    whole = re.sub(r"[^A-Za-z0-9_-]", "-", text)[:NAME_MAX]
    whole = whole if re.match(NAME_PATTERN, whole) else f"host-{whole}"[:NAME_MAX]
    candidates = (text, "" if re.fullmatch(r"[\d.]+", text) else text.split(".", maxsplit=1)[0], whole)
    fitting = (one for one in candidates if re.match(NAME_PATTERN, one) and one not in taken)
    return next(fitting, None) or next(
        f"{whole[:58]}-{count}" for count in range(2, 99_999) if f"{whole[:58]}-{count}" not in taken
    )


def _role(group: str, roles: Mapping[str, str]) -> str:
    role = roles.get(group) or re.sub(r"[^A-Za-z0-9_-]", "-", group)[:NAME_MAX]
    return role if re.match(NAME_PATTERN, role) else f"group-{role}"[:NAME_MAX]


def _renamed(groups: Iterable[str], roles: Mapping[str, str]) -> list[str]:
    """Notes on groups whose role has another name."""
    changed = ((group, _role(group, roles)) for group in sorted(groups))
    return [f"group `{group}` is the role `{role}`" for group, role in changed if role != group]


def _unmapped(hosts: Sequence[Host]) -> list[str]:
    """A note for each variable that the inventory has no place for; values are not shown, as they may be secrets."""
    found: dict[str, list[Host]] = {}
    for host in hosts:
        for name in host.variables:
            if name not in MAPPED:
                found.setdefault(name, []).append(host)
    notes: list[str] = []
    for name, having in found.items():
        where = having[0].variables[name][1]
        names = ", ".join(host.name for host in having[:SHOWN_MAX]) + (", …" if len(having) > SHOWN_MAX else "")
        advice = ADVICE.get(name, "an inventory has no variables; a plan has `params`, and `facts` of hosts")
        notes.append(f"{where}: `{name}` is not imported ({names}): {advice}")
    return notes
