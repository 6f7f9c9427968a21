"""`topology:` and `secrets:` -> hosts, systems, equipment, declared facts and secrets of the plan, with everything that
can be wrong about them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from proveout.core.errors import Where
from proveout.dsl import engines, extensions
from proveout.dsl.compile.result_names import with_cost
from proveout.dsl.compile.symbols import Scope, where_of
from proveout.dsl.plan.keys import made
from proveout.dsl.plan.scalars import STANDBYS_MAX, setting_text
from proveout.dsl.plan.topology import Declared, Expectation, Host, Secret, System
from proveout.dsl.rules import host_rules, session_settings
from proveout.dsl.rules import secrets as destinations
from proveout.dsl.rules.host_rules import (
    PGBOUNCER,
    Objection,
    dsn_problems,
    instances_problems,
    is_host_and_port,
    pooler_problems,
    provision_problems,
    standby_problems,
    version_problems,
    without_dsn_problems,
)
from proveout.dsl.rules.resets import restore_problems
from proveout.dsl.rules.secrets import refused_path
from proveout.dsl.rules.session_settings import setting_objections
from proveout.dsl.schema.models import EquipmentEntry, HostEntry, NodeKeys, SecretEntry, SystemEntry, Topology
from proveout.dsl.source.nodes import Map, Node, Seq, did_you_mean

_SECRET = re.compile(r"\$\{\s*secrets\.([^{}]*?)\s*\}")
_OWN_GROUP = "a replicated database of your own is one system, with its dsn"
_PLAIN_DSN = "write the host, and the secret as the user or the password"
_PASSWORD = re.compile(
    r"(?:password|passwd|pwd)\s*=\s*(?P<word>'[^']*'|[^\s&;]*)|^(?:[a-z0-9+]+://)?[^:/@\s]*[:/](?P<url>[^/@]*)@", re.I
)


def add_topology(scope: Scope, root: Map) -> None:
    _add_secrets(scope, root.get("secrets"))
    node = root.get("topology")
    if node is None:
        scope.problems.add(root.where, "there is no topology", hint="give `topology:` here or an inventory with -i")
        scope.unknowable |= {"host", "system"}
    if node is not None and not isinstance(node, Map):
        scope.problems.add(node.where, "`topology` must be a mapping", key="topology")
        scope.unknowable |= {"host", "system"}
    topology = node if isinstance(node, Map) else Map(entries=(), where=root.where)
    for key, _ in topology.entries:
        if key.text not in Topology.model_fields:
            hint = did_you_mean(key.text, Topology.model_fields)
            scope.problems.add(key.where, f"unknown key `{key.text}`", key=f"topology.{key.text}", hint=hint)
    _add_hosts(scope, topology.get("hosts"))
    if not scope.declared["host"] and "host" not in scope.unknowable:
        scope.problems.add(topology.where, "the topology has no hosts", key="topology.hosts")
        scope.unknowable.add("host")
    _add_systems(scope, topology.get("systems"))
    _add_equipment(scope, topology.get("equipment"))


def _add_secrets(scope: Scope, section: Node | None) -> None:
    for key, node, entry in scope.entries(section, "secret", SecretEntry, "secrets"):
        path = f"secrets.{key.text}"
        if (entry.env is None) == (entry.file is None):
            scope.problems.add(
                key.where, "a secret has either `env` or `file`", key=path, hint="{env: NAME_OF_VARIABLE}"
            )
        elif entry.file is not None and not entry.file.startswith("/"):
            scope.problems.add(key.where, "the file of a secret is an absolute path", key=path)
        elif entry.file is not None and (reason := refused_path(entry.file)):
            hint = "write the password alone into a file of its own"
            scope.problems.add(where_of(node, "file"), reason, key=f"{path}.file", hint=hint)
        else:
            kind: Literal["env", "file"] = "file" if entry.env is None else "env"
            secret = Secret(
                name=key.text,
                kind=kind,
                reference=entry.env or entry.file or "",
                to=_places(scope, node, entry.to or [], f"{path}.to"),
                where=key.where,
            )
            scope.secrets[key.text] = secret


def _places(scope: Scope, node: Map, words: Iterable[str], path: str) -> tuple[str, ...]:
    """The hosts that a secret names."""
    found: list[str] = []
    for word in words:
        try:
            found.append(str(destinations.place(word)))
        except destinations.Unclear as fault:
            hint = "to: [db1.lab, 10.0.0.7:9100]"
            scope.problems.add(where_of(node, "to"), str(fault), key=path, hint=hint)
    return tuple(found)


def refuse_destinations(scope: Scope, uses: destinations.Uses, where: Where, key: str, *, exporter: bool) -> None:
    """A problem for each secret that is sent where it may not go."""
    reasons = list(destinations.objections(uses, scope.secrets.values(), scope.hosts.values(), exporter=exporter))
    for reason, place in reasons:
        secret = next(one for one in scope.secrets.values() if f"`{one.name}`" in reason)
        to = ", ".join((*secret.to, str(place)))
        hint = f"permit it: secrets: {{{secret.name}: {{{secret.kind}: {secret.reference}, to: [{to}]}}}}"
        scope.problems.add(where, reason, key=key, hint=hint)
    if scope.inventory is None or reasons:
        return
    # the hosts that an inventory names: where its agents run, and where its secrets may go
    inventory = scope.inventory
    hosts = destinations.hosts_of(host for host in scope.hosts.values() if host.where.file == inventory)
    secrets = (secret for secret in scope.secrets.values() if secret.where.file == inventory)
    reach = {*hosts, *(place for secret in secrets for place in secret.to)}
    for place in uses.places:
        if uses.secrets and not destinations.is_within(place, reach):
            message = f"{place} is not a host of the inventory {scope.inventory}, so no secret goes there"
            hint = f"if it may, declare it in the inventory: secrets: {{{uses.secrets[0]}: {{…, to: [{place}]}}}}"
            scope.problems.add(where, message, key=key, hint=hint)


def _add_hosts(scope: Scope, section: Node | None) -> None:
    addresses: dict[str, str] = {}
    for key, node, entry in scope.entries(section, "host", HostEntry, "topology.hosts"):
        path = f"topology.hosts.{key.text}"
        host = made(Host, entry, name=key.text, where=key.where)
        if host.address != "local" and not is_host_and_port(host.address):
            where = where_of(node, "address")
            hint = "`local`, or name:port of a running agent"
            scope.problems.add(where, f"`{host.address}` is not an address", key=f"{path}.address", hint=hint)
            continue
        if host.address != "local" and host.address in addresses:
            other = addresses[host.address]
            scope.problems.add(where_of(node, "address"), f"host `{other}` has the same address", key=f"{path}.address")
        addresses[host.address] = key.text
        scope.hosts[key.text] = with_cost(scope, host, entry, node)
        _declare(scope, node, entry, Declared(name=key.text, kind="host", where=key.where), path)


def _add_systems(scope: Scope, section: Node | None) -> None:
    nodes: dict[str, Map] = {}
    for key, node, entry in scope.entries(section, "system", SystemEntry, "topology.systems"):
        path = f"topology.systems.{key.text}"
        nodes[key.text] = node
        written = made(System, entry, name=key.text, where=key.where)
        host = scope.resolve("host", written.host, scope.hosts, where_of(node, "host"), f"{path}.host")
        if _system_is_fine(scope, node, written, host, path) and host is not None:
            settings = _checked_settings(scope, node, written, entry.session, path)
            dsn = written.instances[0] if written.instances else _dsn(written)
            scope.systems[key.text] = replace(written, dsn=dsn, settings=settings)
            own = {name: setting_text(value) for name, value in entry.session.items()}
            scope.sessions[key.text] = session_settings.expanded(written.engine, own)
            _declare(scope, node, entry, Declared(name=key.text, kind="system", where=key.where), path)
    _check_propagation(scope, nodes)
    _check_standbys(scope, nodes)
    _check_fronts(scope, nodes)
    for system in scope.systems.values():
        if system.restore:
            found = restore_problems(system, scope.systems.values())
            _note(scope, where_of(nodes[system.name], "restore"), f"topology.systems.{system.name}.restore", found)
        _check_secrets(scope, nodes[system.name], system)


def _dsn(entry: System) -> str | None:
    """A system that proveout does not connect to has a dsn without meaning: it is neither started nor looked for."""
    return engines.NO_DATABASE if entry.engine == engines.NO_DATABASE else entry.dsn


def _add_equipment(scope: Scope, section: Node | None) -> None:
    found: list[tuple[Map, NodeKeys, str]] = []
    for key, node, entry in scope.entries(section, "equipment", EquipmentEntry, "topology.equipment"):
        path = f"topology.equipment.{key.text}"
        for kind in ("host", "system"):
            if key.text in scope.declared.get(kind, set()):
                scope.problems.add(key.where, f"a {kind} has the name `{key.text}`", key=path)
        found.append((node, entry, key.text))
        scope.equipment[key.text] = made(Declared, entry, name=key.text, where=key.where)
    for node, entry, name in found:
        path = f"topology.equipment.{name}"
        connected = _connected(scope, node, scope.equipment[name].connects, path)
        declared = _declare(scope, node, entry, replace(scope.equipment[name], connects=connected), path)
        for one in host_rules.unmet(declared, {}):
            hint = "no agent measures equipment: correct the fact or the expectation"
            if not one.found:
                hint = did_you_mean(one.fact, entry.facts) or "declare it under `facts`"
            scope.problems.add(one.where, str(one), key=f"{path}.expect.{one.fact}", hint=hint)


def _connected(scope: Scope, node: Map, words: Sequence[str], path: str) -> tuple[str, ...]:
    """The hosts and the equipment that equipment is connected to, each once."""
    found: list[str] = []
    for index, word in enumerate(words):
        where = (
            where_of(node, "connects", index) if isinstance(node.get("connects"), Seq) else where_of(node, "connects")
        )
        if word in scope.equipment:
            found.append(word)
        elif word == "all" or word.startswith("role:") or word in scope.declared["host"]:
            found += scope.select_hosts([word], where, f"{path}.connects") or ()
        elif not {"host", "equipment"} & scope.unknowable and word not in scope.declared["equipment"]:
            hint = did_you_mean(word, scope.declared["host"] | scope.declared["equipment"])
            message = f"`{word}` is neither a host nor equipment of this plan"
            scope.problems.add(where, message, key=f"{path}.connects", hint=hint)
    return tuple(dict.fromkeys(found))


def _declare(scope: Scope, node: Map, entry: NodeKeys, declared: Declared, path: str) -> Declared:
    """Declared and expected facts of an entry, added to the scope where there are any."""
    expectations: list[Expectation] = []
    for name, wanted in entry.expect.items():
        where = where_of(node, "expect", name)
        if objections := list(host_rules.pattern_problems(wanted.pattern or "")):
            _note(scope, where_of(node, "expect", name, "pattern"), f"{path}.expect.{name}.pattern", objections)
            continue
        expectations.append(
            Expectation(
                fact=name,
                one_of=tuple(wanted.one_of or ()),
                min=wanted.min,
                max=wanted.max,
                pattern=wanted.pattern or "",
                where=where,
            )
        )
    whole = replace(declared, facts=tuple(sorted(entry.facts.items())), expect=tuple(expectations))
    if entry.facts or expectations or declared.is_equipment:
        scope.facts.append(whole)
    return whole


def _check_secrets(scope: Scope, node: Map, system: System) -> None:
    """Check the destinations of the secrets in a system's dsns."""
    name = "instances" if system.instances else "dsn"
    where, key = where_of(node, name), f"topology.systems.{system.name}.{name}"
    try:
        uses = destinations.of_system(system, scope.systems.values())
    except destinations.Unclear as fault:
        scope.problems.add(where, f"the destination of a secret is not clear: {fault}", key=key, hint=_PLAIN_DSN)
        return
    refuse_destinations(scope, uses, where, key, exporter=False)


def _system_is_fine(scope: Scope, node: Map, entry: System, host: Host | None, path: str) -> bool:
    """Whether the rest of the plan can be checked with it."""
    if entry.engine not in engines.ENGINES and not _is_announced(scope, node, entry, path):
        return False
    before = len(scope.problems.found)
    if entry.engine == engines.NO_DATABASE and entry.dsn is None and entry.provision is None and not entry.instances:
        pass  # it has no address
    elif entry.instances:
        _check_instances(scope, node, entry, path)
    elif (entry.provision is None) == (entry.dsn is None):
        message = (
            "`provision` and `dsn` exclude each other" if entry.dsn else "a system has either `provision` or `dsn`"
        )
        hint = "provision: embedded starts one; dsn: … reaches one that runs already"
        scope.problems.add(node.where, message, key=path, hint=hint)
    if entry.dsn is not None:
        _note(scope, where_of(node, "dsn"), f"{path}.dsn", without_dsn_problems(entry.engine))
    if entry.provision == "embedded" and engines.of(entry.engine).has_driver:
        _note(scope, where_of(node, "provision"), f"{path}.provision", provision_problems(entry.engine))
    if entry.provision is not None and host is not None and not host.is_local:
        where = where_of(node, "provision")
        what = "an embedded system" if entry.provision == "embedded" else "a PgBouncer"
        message = f"{what} needs a host with `address: local`; `{host.name}` is at {host.address}"
        scope.problems.add(where, message, key=f"{path}.provision")
    if entry.synchronous and entry.standby_of is None:
        where = where_of(node, "synchronous")
        hint = "standby_of: the name of its primary"
        scope.problems.add(where, "`synchronous` is for a standby", key=f"{path}.synchronous", hint=hint)
    if entry.standby_of is not None:
        found = list(standby_problems(entry.engine)) if engines.of(entry.engine).has_driver else []
        if not found and entry.provision is None:
            found = [Objection(message="a standby has `provision: embedded`", way_out=_OWN_GROUP)]
        _note(scope, where_of(node, "standby_of"), f"{path}.standby_of", found)
    _note(scope, where_of(node, "version"), f"{path}.version", version_problems(entry))
    _check_front(scope, node, entry, path)
    _check_dsn(scope, node, entry, path)
    return len(scope.problems.found) == before


def _is_announced(scope: Scope, node: Map, entry: System, path: str) -> bool:
    """Whether another package has a driver for an engine; of those only the metadata is read here."""
    announced = extensions.announced(extensions.DRIVERS)
    if entry.engine not in announced:
        hint = did_you_mean(entry.engine, [*engines.ENGINES, *announced])
        scope.problems.add(
            where_of(node, "engine"), f"`engine` cannot be {entry.engine}", key=f"{path}.engine", hint=hint
        )
        return False
    if entry.provision is not None:
        where = where_of(node, "provision")
        message = f"proveout cannot start {entry.engine}, whose driver is of another package"
        hint = "start it yourself and give its dsn"
        scope.problems.add(where, message, key=f"{path}.provision", hint=hint)
    return entry.provision is None


def _checked_settings(
    scope: Scope, node: Map, entry: System, session: Mapping[str, str | float | bool], path: str
) -> tuple[tuple[str, str], ...]:
    """The settings of a system without those that it cannot have, which are noted; those of its sessions too."""
    if entry.settings and entry.dsn is not None and engines.of(entry.engine).has_driver:
        where = where_of(node, "settings")
        hint = "set them on the server; proveout only starts what it provisions"
        scope.problems.add(where, "`settings` of a system that runs already", key=f"{path}.settings", hint=hint)
        return ()
    for name, value in session.items():
        if objection := session_settings.objection(entry.engine, name, setting_text(value)):
            where = where_of(node, "session", name)
            scope.problems.add(where, objection, key=f"{path}.session.{name}")
    fine: list[tuple[str, str]] = []
    for name, value in entry.settings:
        found = setting_objections(entry.engine, name, value, entry.provision)
        _note(scope, where_of(node, "settings", name), f"{path}.settings.{name}", found)
        if not found:
            fine.append((name, value))
    return tuple(fine)


def _note(scope: Scope, where: Where, key: str, found: Iterable[Objection]) -> None:
    """Report what an agent would object to as well."""
    for objection in found:
        scope.problems.add(where, objection.message, key=key, hint=objection.way_out)


def _check_instances(scope: Scope, node: Map, entry: System, path: str) -> None:
    """Several dsns instead of one, each to another instance."""
    where, dsns = where_of(node, "instances"), entry.instances
    if entry.dsn is not None or entry.provision is not None:
        other = "dsn" if entry.dsn is not None else "provision"
        scope.problems.add(where, f"`instances` and `{other}` exclude each other", key=f"{path}.instances")
    _note(scope, where, f"{path}.instances", instances_problems(entry.engine, dsns))


def _check_dsn(scope: Scope, node: Map, entry: System, path: str) -> None:
    if entry.admin is not None and (entry.provision is not None or not engines.of(entry.engine).tune):
        where, message = (
            where_of(node, "admin"),
            "`admin` is for a `dsn` or `instances` of an engine that is tuned by SQL",
        )
        scope.problems.add(where, message, key=f"{path}.admin", hint="leave it away")
    given = {"dsn": entry.dsn, "admin": entry.admin}
    dsns = {name: [dsn] if dsn is not None else [] for name, dsn in given.items()} | {"instances": entry.instances}
    for name, found in dsns.items():
        for dsn in found:
            _check_one_dsn(scope, where_of(node, name), entry.engine, dsn, f"{path}.{name}")


def _check_one_dsn(scope: Scope, where: Where, engine: str, dsn: str, key: str) -> None:
    for match in _SECRET.finditer(dsn):
        scope.resolve("secret", match[1], scope.secrets, where, key)
    for match in _PASSWORD.finditer(dsn):
        word = match["word"] if match["word"] is not None else match["url"]
        if word and not _SECRET.fullmatch(word):
            hint = "declare it under secrets: and write ${secrets.name}"
            scope.problems.add(where, "a literal password in a dsn", key=key, hint=hint)
    _note(scope, where, key, dsn_problems(engine, dsn))


def _check_propagation(scope: Scope, nodes: dict[str, Map]) -> None:
    for system in list(scope.systems.values()):
        if system.propagates_to is None:
            continue
        where = where_of(nodes[system.name], "propagates_to")
        path = f"topology.systems.{system.name}.propagates_to"
        sink = scope.resolve("system", system.propagates_to, scope.systems, where, path)
        if sink is None:
            continue
        if leads_back(scope, system):
            scope.problems.add(where, f"the changes of `{system.name}` would come back to it", key=path)
        if sink.engine in engines.of(system.engine).propagates_to:
            continue
        for end in (system, sink):
            if not engines.of(end.engine).has_driver or engines.of(end.engine).links_to:
                continue
            message = f"only PostgreSQL propagates to PostgreSQL, and TimesTen to Oracle; `{end.name}` is {end.engine}"
            scope.problems.add(where, message, key=path)


def _check_standbys(scope: Scope, nodes: dict[str, Map]) -> None:
    """Each standby has one primary, of its engine, that proveout starts too."""
    groups: dict[str, list[System]] = {}
    for system in list(scope.systems.values()):
        if system.standby_of is None:
            continue
        where = where_of(nodes[system.name], "standby_of")
        path = f"topology.systems.{system.name}.standby_of"
        primary = scope.resolve("system", system.standby_of, scope.systems, where, path)
        if primary is None:
            continue
        group = groups.setdefault(primary.name, [])
        group.append(system)
        if found := _standby_problem(primary, system) or _group_problem(group):
            scope.problems.add(where, found.message, key=path, hint=found.way_out)
        else:
            _check_followed(scope, nodes[system.name], system, primary)


def _check_front(scope: Scope, node: Map, entry: System, path: str) -> None:
    """A PgBouncer has no data and no sessions of its own."""
    key = "provision" if entry.provision == PGBOUNCER else "in_front_of"
    found = pooler_problems(entry.engine, entry.provision, entry.in_front_of)
    _note(scope, where_of(node, key), f"{path}.{key}", found)
    if entry.provision != PGBOUNCER:
        return
    for name in ("standby_of", "propagates_to", "session"):
        if node.get(name) is not None:
            hint = f"give it at `{entry.in_front_of}`" if entry.in_front_of and name != "session" else "leave it away"
            scope.problems.add(where_of(node, name), f"a PgBouncer has no `{name}`", key=f"{path}.{name}", hint=hint)


def _check_fronts(scope: Scope, nodes: dict[str, Map]) -> None:
    """Each PgBouncer is in front of one PostgreSQL that proveout starts, and nothing replicates to or from it."""
    for system in list(scope.systems.values()):
        for key, name in (("standby_of", system.standby_of), ("propagates_to", system.propagates_to)):
            if name is not None and name in scope.systems and scope.systems[name].in_front_of is not None:
                message = f"`{name}` is a PgBouncer, and has no data"
                hint = f"{key}: {scope.systems[name].in_front_of}"
                path = f"topology.systems.{system.name}.{key}"
                scope.problems.add(where_of(nodes[system.name], key), message, key=path, hint=hint)
        if system.in_front_of is None:
            continue
        where, path = where_of(nodes[system.name], "in_front_of"), f"topology.systems.{system.name}.in_front_of"
        behind = scope.resolve("system", system.in_front_of, scope.systems, where, path)
        if behind is not None and (behind.engine != system.engine or behind.provision != "embedded"):
            hint = "engine: postgres and provision: embedded at the system behind it; or your own PgBouncer by its dsn"
            message = f"`{behind.name}` is not a PostgreSQL that proveout starts, which a PgBouncer is in front of"
            scope.problems.add(where, message, key=path, hint=hint)


def _standby_problem(primary: System, system: System) -> Objection | None:
    if primary.name == system.name:
        return Objection(message=f"`{system.name}` cannot be a standby of itself")
    if primary.standby_of is not None:
        hint = f"standby_of: {primary.standby_of}" if primary.standby_of != system.name else ""
        return Objection(message=f"`{primary.name}` is a standby itself, and a standby follows a primary", way_out=hint)
    if (primary.engine, primary.version) != (system.engine, system.version):
        what = f"{primary.engine} {primary.version or ''}".strip()
        return Objection(message=f"a standby is of the engine and version of its primary: `{primary.name}` is {what}")
    if primary.provision is None:
        message = f"`{primary.name}` runs already; proveout makes standbys of what it starts"
        return Objection(message=message, way_out=_OWN_GROUP)
    if primary.propagates_to is not None or system.propagates_to is not None:
        message = "a system with standbys does not propagate: the propagation would end with a promotion"
        return Objection(message=message)
    return None


def _group_problem(standbys: list[System]) -> Objection | None:
    """The last one of a primary's standbys is one too many."""
    last, engine = standbys[-1], standbys[-1].engine
    most = engines.of(engine).synchronous_max
    if last.synchronous and most is not None and sum(one.synchronous for one in standbys) > most:
        message = f"a commit of {engine} waits for {most} synchronous standby, not for all of several"
        return Objection(message=message, way_out="synchronous: false for the others")
    if len(standbys) > STANDBYS_MAX:
        return Objection(message=f"`{last.standby_of}` has more than {STANDBYS_MAX} standbys")
    return None


def _check_followed(scope: Scope, node: Map, system: System, primary: System) -> None:
    """A standby has room for what its primary has room for."""
    followed = engines.of(system.engine).followed
    own, wanted = dict(system.settings), dict(primary.settings)
    for name in sorted(own.keys() & set(followed)):
        if own[name] != wanted.get(name):
            where = where_of(node, "settings", name)
            key = f"topology.systems.{system.name}.settings.{name}"
            message = f"`{name}` of a standby is that of its primary"
            scope.problems.add(where, message, key=key, hint=f"set it at `{primary.name}` alone")


def leads_back(scope: Scope, system: System) -> bool:
    """Whether a system's changes would come back to it."""
    seen: set[str] = set()
    name: str | None = system.name
    while name is not None and name not in seen:
        seen.add(name)
        following = scope.systems.get(name)
        name = following.propagates_to if following else None
    return name == system.name
