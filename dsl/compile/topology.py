"""`topology:` and `secrets:` -> hosts, systems, equipment, declared facts and secrets of the plan, with everything that
can be wrong about them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from proveout.dsl import engines, extensions
from proveout.dsl.compile.symbols import Entry, Scope
from proveout.dsl.plan.keys import made
from proveout.dsl.plan.scalars import STANDBYS_MAX, setting_text
from proveout.dsl.plan.topology import Declared, Expectation, FactValue, Host, Secret, System
from proveout.dsl.rules import host_rules, session_settings
from proveout.dsl.rules import secrets as destinations
from proveout.dsl.rules.host_rules import PGBOUNCER, Objection, is_host_and_port
from proveout.dsl.rules.resets import restore_problems
from proveout.dsl.schema.models import EquipmentEntry, HostEntry, HostKeys, NodeKeys, SecretEntry, SystemEntry, Topology
from proveout.dsl.source.nodes import LITERAL_PASSWORD, Map, Node, Scalar, did_you_mean, locate

_OWN_GROUP = "a replicated database of your own is one system, with its dsn"
_OF_LOGIN = (  # compiled at its first use, as it takes 2 ms of `check`
    r"(?i)(?:password|passwd|pwd)\s*=\s*(?P<word>'[^']*'|[^\s&;]*)|^(?:[a-z0-9+]+://)?[^:/@\s]*[:/](?P<url>[^/@]*)@"
)
_REFERRED = "${secrets.name}"
"""Stands for every secret while a password is looked for."""


def add_topology(scope: Scope, root: Map) -> None:
    _add_secrets(scope, root.get("secrets"))
    node = root.get("topology")
    if node is None:
        scope.problems.add(root.where, "there is no topology", hint="give `topology:` here or an inventory with -i")
    elif not isinstance(node, Map):
        scope.problems.add(node.where, "`topology` must be a mapping", key="topology")
    topology = node if isinstance(node, Map) else Map(entries=(), where=root.where)
    scope.unknowable |= set() if topology is node else {"host", "system"}
    for key in (key for key, _ in topology.entries if key.text not in Topology.model_fields):
        hint = did_you_mean(key.text, Topology.model_fields)
        scope.problems.add(key.where, f"unknown key `{key.text}`", key=f"topology.{key.text}", hint=hint)
    _add_hosts(scope, topology.get("hosts"))
    if not scope.declared["host"] and "host" not in scope.unknowable:
        scope.problems.add(topology.where, "the topology has no hosts", key="topology.hosts")
        scope.unknowable.add("host")
    _add_systems(scope, topology.get("systems"))
    _add_equipment(scope, topology.get("equipment"))


# ---- secrets ---------------------------------------------------------------------------------------------------------


def _add_secrets(scope: Scope, section: Node | None) -> None:
    for one, entry in scope.entries(section, "secret", SecretEntry, "secrets"):
        if (entry.env is None) == (entry.file is None):
            one.problem("a secret has either `env` or `file`", hint="{env: NAME_OF_VARIABLE}")
        elif entry.file is not None and not entry.file.startswith("/"):
            one.problem("the file of a secret is an absolute path")
        elif entry.file is not None and (reason := destinations.refused_path(entry.file)):
            one.problem(reason, "file", hint="write the password alone into a file of its own")
        else:
            scope.secrets[one.name] = Secret(
                name=one.name,
                kind="file" if entry.env is None else "env",
                reference=entry.env or entry.file or "",
                to=tuple(_places(one, entry.to or ())),
                where=one.start,
            )


def _places(one: Entry, words: Sequence[str]) -> Iterator[str]:
    for word in words:
        try:
            yield str(destinations.place(word))
        except destinations.Unclear as fault:
            one.problem(str(fault), "to", hint="to: [db1.lab, 10.0.0.7:9100]")


def check_destinations(
    one: Entry, key: str, uses_of: Callable[[], destinations.Uses], *, plain: str, exporter: bool
) -> None:
    """A problem for each secret of a value that is sent where it may not go; `plain`: a form that shows where."""
    scope = one.scope
    try:
        uses = uses_of()
    except destinations.Unclear as fault:
        one.problem(f"the destination of a secret is not clear: {fault}", key, hint=plain)
        return
    refused = list(destinations.objections(uses, scope.secrets.values(), scope.hosts.values(), exporter=exporter))
    for secret, reason, place in refused:
        to = ", ".join((*secret.to, str(place)))
        hint = f"permit it: secrets: {{{secret.name}: {{{secret.kind}: {secret.reference}, to: [{to}]}}}}"
        one.problem(reason, key, hint=hint)
    if scope.inventory is None or refused:
        return
    # the hosts that an inventory names: where its agents run, and where its secrets may go
    hosts = destinations.hosts_of(host for host in scope.hosts.values() if host.where.file == scope.inventory)
    secrets = (secret for secret in scope.secrets.values() if secret.where.file == scope.inventory)
    reach = {*hosts, *(place for secret in secrets for place in secret.to)}
    for place in uses.places:
        if uses.secrets and not destinations.is_within(place, reach):
            message = f"{place} is not a host of the inventory {scope.inventory}, so no secret goes there"
            hint = f"if it may, declare it in the inventory: secrets: {{{uses.secrets[0]}: {{…, to: [{place}]}}}}"
            one.problem(message, key, hint=hint)


# ---- hosts and equipment ---------------------------------------------------------------------------------------------


def hosts(scope: Scope, section: Node | None) -> Iterator[tuple[Entry, HostKeys, Host]]:
    """The valid hosts of a topology; two with one address, and one that is called as all are, are problems."""
    addresses: dict[str, str] = {}
    for one, entry in scope.entries(section, "host", HostEntry, "topology.hosts"):
        host = made(Host, entry, name=one.name, where=one.start)
        if not host.is_local and not is_host_and_port(host.address):
            hint = "`local`, or name:port of a running agent"
            one.problem(f"`{host.address}` is not an address", "address", hint=hint)
            continue
        place = host.address.lower()
        if not host.is_local and place in addresses:
            one.problem(f"host `{addresses[place]}` has the same address", "address")
        addresses[place] = one.name
        if one.name == "all":
            one.problem("`all` stands for every host where hosts are named", hint="another name")
        yield one, entry, host


def _add_hosts(scope: Scope, section: Node | None) -> None:
    for one, entry, host in hosts(scope, section):
        scope.hosts[one.name] = _with_cost(one, host, entry)
        _declare(one, entry, Declared(name=one.name, kind="host", where=one.start))


def _with_cost(one: Entry, host: Host, entry: HostKeys) -> Host:
    """The host with its price; all prices have one currency."""
    if entry.cost is None:
        return host
    amount, currency = entry.cost.per_hour
    other = next((other for other in one.scope.hosts.values() if other.currency not in ("", currency)), None)
    if other is not None:
        message = f"the cost is in {currency}, that of host `{other.name}` in {other.currency}"
        one.problem(message, "cost", hint="write the costs of all hosts in one currency")
    return replace(host, price_per_hour=amount, currency=currency)


def _add_equipment(scope: Scope, section: Node | None) -> None:
    found = list(scope.entries(section, "equipment", EquipmentEntry, "topology.equipment"))
    for one, entry in found:
        for kind in ("host", "system"):
            if one.name in scope.declared[kind]:
                one.problem(f"a {kind} has the name `{one.name}`")
        scope.equipment[one.name] = made(Declared, entry, name=one.name, where=one.start)
    for one, entry in found:
        equipment = scope.equipment[one.name]
        declared = _declare(one, entry, replace(equipment, connects=_connected(one, equipment.connects)))
        for unmet in host_rules.unmet(declared, {}):
            hint = "no agent measures equipment: correct the fact or the expectation"
            if not unmet.found:
                hint = did_you_mean(unmet.fact, entry.facts) or "declare it under `facts`"
            one.problem(str(unmet), "expect", unmet.fact, hint=hint)


def _connected(one: Entry, words: Sequence[str]) -> tuple[str, ...]:
    """The hosts and the equipment that equipment is connected to, each once."""
    scope, found = one.scope, list[str]()
    for index, word in enumerate(words):
        if word in scope.equipment:
            found.append(word)
        elif word == "all" or word.startswith("role:") or word in scope.declared["host"]:
            found += one.select_hosts([word], "connects", index) or ()
        elif not {"host", "equipment"} & scope.unknowable and word not in scope.declared["equipment"]:
            hint = did_you_mean(word, scope.declared["host"] | scope.declared["equipment"])
            one.problem(f"`{word}` is neither a host nor equipment of this plan", "connects", index, hint=hint)
    return tuple(dict.fromkeys(found))


def _declare(one: Entry, entry: NodeKeys, declared: Declared) -> Declared:
    """Declared and expected facts of an entry, added to the scope where there are any."""
    expectations = [
        Expectation(
            fact=name,
            one_of=tuple(wanted.one_of or ()),
            min=wanted.min,
            max=wanted.max,
            pattern=wanted.pattern or "",
            where=one.where("expect", name),
        )
        for name, wanted in entry.expect.items()
        if not one.object_to(host_rules.pattern_problems(wanted.pattern or ""), "expect", name, "pattern")
    ]
    facts = tuple((name, _as_stated(one, name, value)) for name, value in sorted(entry.facts.items()))
    whole = replace(declared, facts=facts, expect=tuple(expectations))
    if entry.facts or expectations or declared.is_equipment:
        one.scope.facts.append(whole)
    return whole


def _as_stated(one: Entry, name: str, value: FactValue) -> FactValue:
    """A fact, a number as the plan writes it where that is not the number's own text: the version 19.10 is not 19.1."""
    node, _ = locate(one.body, ("facts", name))
    if isinstance(node, Scalar) and isinstance(value, float) and node.in_text != str(value):
        return node.in_text
    return value


# ---- systems ---------------------------------------------------------------------------------------------------------


def _add_systems(scope: Scope, section: Node | None) -> None:
    entries: dict[str, Entry] = {}
    for one, entry in scope.entries(section, "system", SystemEntry, "topology.systems"):
        entries[one.name] = one
        written = made(System, entry, name=one.name, where=one.start)
        host = one.resolve("host", written.host, scope.hosts, "host")
        if _is_fine(one, written, host) and host is not None:
            # a system that proveout does not connect to has a dsn without meaning: it is neither started nor looked for
            own = engines.NO_DATABASE if written.engine == engines.NO_DATABASE else written.dsn
            dsn = written.instances[0] if written.instances else own
            session = {name: setting_text(value) for name, value in entry.session.items()}
            settings = plain_settings(one, written.engine, _checked_settings(one, written, session), "settings")
            scope.systems[one.name] = replace(written, dsn=dsn, settings=tuple(sorted(settings.items())))
            session = plain_settings(one, written.engine, session.items(), "session")
            scope.sessions[one.name] = session_settings.expanded(written.engine, session)
            _declare(one, entry, Declared(name=one.name, kind="system", where=one.start))
    _check_links(scope, entries)
    _check_standbys(scope, entries)
    while lost := [one.name for one in scope.systems.values() if one.follows and one.follows not in scope.systems]:
        for name in lost:  # what it follows is not there, or has a problem of its own
            del scope.systems[name]
    for system in scope.systems.values():
        one, key = entries[system.name], "instances" if system.instances else "dsn"
        if system.restore:
            one.object_to(restore_problems(system, scope.systems.values()), "restore")
        plain = "write the host, and the secret as the user or the password"
        uses = partial(destinations.of_system, system, scope.systems.values())
        check_destinations(one, key, uses, plain=plain, exporter=False)


def _is_fine(one: Entry, entry: System, host: Host | None) -> bool:
    """Whether the rest of the plan can be checked with it."""
    if (entry.engine not in engines.ENGINES and not _is_announced(one, entry)) or one.partial:
        return False
    before = len(one.scope.problems.found)
    _check_address(one, entry)
    found = list(host_rules.program_problems(entry))
    if entry.standby_of is not None and entry.provision is None and ("standby_of",) not in [it.at for it in found]:
        found.append(Objection("a standby has `provision: embedded`", _OWN_GROUP, ("standby_of",)))
    one.object_to(found)
    if entry.provision is not None and host is not None and not host.is_local:
        what = "an embedded system" if entry.provision == "embedded" else "a PgBouncer"
        message = f"{what} needs a host with `address: local`; `{host.name}` is at {host.address}"
        one.problem(message, "provision")
    if entry.synchronous and entry.standby_of is None:
        hint = "standby_of: the name of its primary"
        one.problem("`synchronous` is for a standby", "synchronous", hint=hint)
    for name in ("standby_of", "propagates_to", "session") if entry.provision == PGBOUNCER else ():
        if one.body.get(name) is not None:
            hint = f"give it at `{entry.in_front_of}`" if entry.in_front_of and name != "session" else "leave it away"
            one.problem(f"a PgBouncer has no `{name}`", name, hint=hint)
    return len(one.scope.problems.found) == before


def _is_announced(one: Entry, entry: System) -> bool:
    """Whether another package has a driver for an engine; of those only the metadata is read here."""
    announced = extensions.announced(extensions.DRIVERS)
    if entry.engine not in announced:
        hint = did_you_mean(entry.engine, [*engines.ENGINES, *announced])
        if entry.engine:  # else it has a problem already
            one.note(f"`engine` cannot be {entry.engine}", "engine", hint=hint)
        return False
    if entry.provision is not None:
        message = f"proveout cannot start {entry.engine}, whose driver is of another package"
        one.problem(message, "provision", hint="start it yourself and give its dsn")
    return entry.provision is None


def plain_settings(one: Entry, engine: str, settings: Iterable[tuple[str, str]], key: str) -> dict[str, str]:
    """Settings by the names that servers know them by; each is there once."""
    found, twice = session_settings.by_plain_name(engine, settings)
    for name in twice:
        one.problem(f"`{name}` is there twice: names of settings have no case", key, name, hint="leave one out")
    return found


def _checked_settings(one: Entry, entry: System, session: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The settings of a system without those that it cannot have, which are noted; those of its sessions too."""
    if entry.settings and entry.dsn is not None and engines.of(entry.engine).has_driver:
        hint = "set them on the server; proveout only starts what it provisions"
        one.problem("`settings` of a system that runs already", "settings", hint=hint)
        return ()
    for name, value in session.items():
        if objection := session_settings.objection(entry.engine, name, value):
            one.problem(objection, "session", name)
    found = tuple(
        (name, value)
        for name, value in entry.settings
        if not one.object_to(
            session_settings.setting_objections(entry.engine, name, value, entry.provision), "settings", name
        )
    )
    if len(found) < len(entry.settings):
        one.scope.unsettled.add(one.name)
    return found


def _check_address(one: Entry, entry: System) -> None:
    """A system is started, or has one dsn or several, which are each valid."""
    given = {"dsn": entry.dsn, "provision": entry.provision}
    other = next((name for name, value in given.items() if value is not None), None)
    if entry.instances:
        if other is not None:
            one.problem(f"`instances` and `{other}` exclude each other", "instances")
        one.object_to(host_rules.instances_problems(entry.engine, entry.instances), "instances")
    elif (entry.provision is None) == (entry.dsn is None) and (other or entry.engine != engines.NO_DATABASE):
        message = "`provision` and `dsn` exclude each other" if other else "a system has either `provision` or `dsn`"
        hint = "provision: embedded starts one; dsn: … reaches one that runs already"
        one.note(message, hint=hint, where=one.body.where)
    if entry.dsn is not None:
        one.object_to(host_rules.without_dsn_problems(entry.engine))
    if entry.admin is not None and (entry.provision is not None or not engines.of(entry.engine).tune):
        message = "`admin` is for a `dsn` or `instances` of an engine that is tuned by SQL"
        one.problem(message, "admin", hint="leave it away")
    for key, dsns in (("dsn", [entry.dsn]), ("admin", [entry.admin]), ("instances", entry.instances)):
        for dsn in filter(None, dsns):
            _check_dsn(one, key, entry.engine, dsn)


def _check_dsn(one: Entry, key: str, engine: str, dsn: str) -> None:
    for name in destinations.REFERENCE.findall(dsn):
        one.resolve("secret", name, one.scope.secrets, key)
    plain = destinations.REFERENCE.sub(_REFERRED, dsn)
    words = [match["word"] if match["word"] is not None else match["url"] for match in re.finditer(_OF_LOGIN, plain)]
    if engines.of(engine).dsn_form == "connect_string":  # from the first / to the last @, whatever is between
        words.append(plain.partition("/")[2].rpartition("@")[0])
    if any(word and word not in (_REFERRED, f"'{_REFERRED}'") for word in words):
        hint = "declare it under secrets: and write ${secrets.name}"
        one.problem(f"{LITERAL_PASSWORD} in a dsn", key, hint=hint)
    one.object_to(host_rules.dsn_problems(engine, dsn), key)


def _check_links(scope: Scope, entries: Mapping[str, Entry]) -> None:
    """Each PgBouncer is in front of one PostgreSQL that proveout starts, and nothing replicates to or from it; changes
    go on where the engines can carry them."""
    for system in scope.systems.values():
        one = entries[system.name]
        for key, name in (("standby_of", system.standby_of), ("propagates_to", system.propagates_to)):
            if name in scope.systems and (behind := scope.systems[name].in_front_of) is not None:
                one.problem(f"`{name}` is a PgBouncer, and has no data", key, hint=f"{key}: {behind}")
        back = one.system(system.in_front_of, "in_front_of")
        if back is not None and (back.engine != system.engine or back.provision != "embedded"):
            hint = "engine: postgres and provision: embedded at the system behind it; or your own PgBouncer by its dsn"
            message = f"`{back.name}` is not a PostgreSQL that proveout starts, which a PgBouncer is in front of"
            one.problem(message, "in_front_of", hint=hint)
        key = "propagates_to"
        sink = one.system(system.propagates_to, key)
        if sink is None:
            continue
        if leads_back(scope, system):
            one.problem(f"the changes of `{system.name}` would come back to it", key)
        if sink.engine in engines.of(system.engine).propagates_to:
            continue
        for end in (system, sink):
            if engines.of(end.engine).has_driver and not engines.of(end.engine).links_to:
                message = "only PostgreSQL propagates to PostgreSQL, and TimesTen to Oracle"
                one.problem(f"{message}; `{end.name}` is {end.engine}", key)


def _check_standbys(scope: Scope, entries: Mapping[str, Entry]) -> None:
    """Each standby has one primary, of its engine, that proveout starts too."""
    groups: dict[str, list[System]] = {}
    for system in scope.systems.values():
        one = entries[system.name]
        primary = one.system(system.standby_of, "standby_of")
        if primary is None:
            continue
        group = groups.setdefault(primary.name, [])
        group.append(system)
        if found := _standby_problem(primary, system) or _group_problem(group):
            one.object_to((found,), "standby_of")
            continue
        if scope.unsettled & {system.name, primary.name}:
            continue
        own, wanted = dict(system.settings), dict(primary.settings)
        for name in sorted(
            own.keys() & set(engines.of(system.engine).followed)
        ):  # it has room for what the primary has
            if own[name] != wanted.get(name):
                message = f"`{name}` of a standby is that of its primary"
                one.problem(message, "settings", name, hint=f"set it at `{primary.name}` alone")


def _standby_problem(primary: System, system: System) -> Objection | None:
    hint = ""
    if primary.name == system.name:
        message = f"`{system.name}` cannot be a standby of itself"
    elif primary.standby_of is not None:
        hint = f"standby_of: {primary.standby_of}" if primary.standby_of != system.name else ""
        message = f"`{primary.name}` is a standby itself, and a standby follows a primary"
    elif (primary.engine, primary.version) != (system.engine, system.version):
        what = f"{primary.engine} {primary.version or ''}".strip()
        message = f"a standby is of the engine and version of its primary: `{primary.name}` is {what}"
    elif primary.provision is None:
        message, hint = f"`{primary.name}` runs already; proveout makes standbys of what it starts", _OWN_GROUP
    elif primary.propagates_to is not None or system.propagates_to is not None:
        message = "a system with standbys does not propagate: the propagation would end with a promotion"
    else:
        return None
    return Objection(message, hint)


def _group_problem(standbys: list[System]) -> Objection | None:
    """The last one of a primary's standbys is one too many."""
    last, engine = standbys[-1], standbys[-1].engine
    most = engines.of(engine).synchronous_max
    if last.synchronous and most is not None and sum(one.synchronous for one in standbys) > most:
        message = f"a commit of {engine} waits for {most} synchronous standby, not for all of several"
        return Objection(message, "synchronous: false for the others")
    if len(standbys) > STANDBYS_MAX:
        return Objection(f"`{last.standby_of}` has more than {STANDBYS_MAX} standbys")
    return None


def leads_back(scope: Scope, system: System) -> bool:
    """Whether a system's changes would come back to it."""
    seen: set[str] = set()
    name: str | None = system.name
    while name is not None and name not in seen:
        seen.add(name)
        following = scope.systems.get(name)
        name = following.propagates_to if following else None
    return name == system.name
