"""Secrets of a plan: the destinations that may receive them, and the files that they are read from."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from urllib.parse import parse_qsl, unquote, urlsplit

from proveout.core.data_classes import dataclass, record
from proveout.dsl import engines
from proveout.dsl.plan.topology import Host, Secret, System

# A secret with `to` is sent only to these hosts. A secret without `to` is sent, in a dsn, to hosts of the topology
# (their agents have shown a certificate of the lab) and to the agent's own host, but never to an exporter. A secret is
# accepted only as a user or a password: in a host name or a query it would leak through DNS or logs. Forms whose
# destination is not in the text itself (`service=`, a proxy) are refused. Sources: libpq "Connection Strings", Oracle
# Net Services "Easy Connect Plus" and "Connect descriptor", RFC 3986.

REFERENCE = re.compile(r"\$\{\s*secrets\.([^{}]*?)\s*\}")
HERE = "localhost"
"""The place of unix sockets, and of all addresses of loopback: the host of the agent that connects."""

_MARK = "\ue000"
"""Stands for a secret while a text is taken apart."""
_HOST = re.compile(r"[a-z0-9_]([a-z0-9._-]*[a-z0-9_])?")
_CONNINFO = re.compile(r"\s*([A-Za-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s'\\]|\\.)*)(?:\s|$)", re.S)
_CREDENTIALS = frozenset({"user", "password", "sslpassword"})
_LIBPQ_URI = engines.of("postgres").schemes
_LEADS_ELSEWHERE = frozenset({"service", "servicefile", "oauth_issuer"})
_EASY = re.compile(r"(?:(?:tcp|tcps):)?(?://)?([^/?()=\s]+)(?:/[^?()\s]*)?(?:\?(\S*))?")
_EASY_KEYS = frozenset(
    {
        "connect_timeout", "expire_time", "failover", "load_balance", "pool_boundary", "pool_connection_class",
        "pool_purity",
        "retry_count", "retry_delay", "sdu", "ssl_server_cert_dn", "ssl_server_dn_match", "transport_connect_timeout",
        "wallet_location",
    }
)  # fmt: skip
_DESCRIPTOR_KEYS = frozenset(
    {
        "address", "address_list", "backup", "connect_data", "connect_timeout", "delay", "description",
        "description_list", "enable",
        "expire_time", "failover", "failover_mode", "host", "instance_name", "load_balance", "method", "pool_boundary",
        "pool_connection_class", "pool_purity", "port", "protocol", "recv_buf_size", "retries", "retry_count",
        "retry_delay", "sdu",
        "security", "send_buf_size", "server", "service_name", "sid", "source_route", "ssl_server_cert_dn",
        "ssl_server_dn_match",
        "transport_connect_timeout", "type", "ur", "wallet_location",
    }
)  # fmt: skip


class Unclear(ValueError):
    """A text whose destination cannot be determined, or which puts a secret where it would be disclosed."""


@dataclass(frozen=True, slots=True)
class Place:
    """A host, in its plain form, and a port where one is written."""

    host: str
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


@record
class Uses:
    """The names of secrets in a text, and the places that they are sent to."""

    secrets: tuple[str, ...]
    places: tuple[Place, ...]


def place(text: str) -> Place:
    """`db1.lab`, `db1.lab:5432`, `[::1]:5432`, `/run/postgresql`. Raises Unclear."""
    if text.startswith(("/", "@")):
        return Place(HERE)
    found = re.fullmatch(r"\[([0-9A-Fa-f:.]+)\](?::(\d{1,5}))?|([^:\[\]]+)(?::(\d{1,5}))?|([0-9A-Fa-f:.]+)", text)
    if found is None:
        raise Unclear(f"`{text}` is not a host, or host:port")
    return Place(_plain(found[1] or found[3] or found[5]), int(port) if (port := found[2] or found[4]) else None)


def _plain(host: str) -> str:
    """A host's name in lower case, an address in its shortest form; `HERE` for loopback."""
    name = host.lower().rstrip(".")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        if not _HOST.fullmatch(name):
            raise Unclear(f"`{_shown(host)}` is not the name of a host") from None
        return name
    mapped = getattr(address, "ipv4_mapped", None)
    address = address if mapped is None else mapped
    return HERE if address.is_loopback else str(address)


def _shown(text: str) -> str:
    return text.replace(_MARK, "${…}")


# ---- what a text leads to --------------------------------------------------------------------------------------------


def of_system(system: System, systems: Iterable[System]) -> Uses:
    """The secrets of a system's dsns and where they go: to its hosts, and to those of the system that its changes go on
    to.

    The sink of a propagation is given the source's dsn (CREATE SUBSCRIPTION). Raises Unclear.
    """
    dsns = dict.fromkeys(dsn for dsn in (system.dsn, system.admin, *system.instances) if dsn)
    names = tuple(name for dsn in dsns for name in REFERENCE.findall(dsn))
    if not names:
        return Uses(secrets=(), places=())
    sink = next((one for one in systems if one.name == system.propagates_to), None)
    if sink is not None and not system.propagates_by_itself:
        dsns |= dict.fromkeys(dsn for dsn in (sink.dsn, *sink.instances) if dsn)
    found = {where for dsn in dsns for where in of_dsn(system.engine, dsn)}
    return Uses(secrets=names, places=tuple(sorted(found, key=str)))


def of_dsn(engine: str, dsn: str) -> Sequence[Place]:
    """Where a dsn leads, and its secrets with it. Raises Unclear."""
    text = REFERENCE.sub(_MARK, dsn).strip()
    scheme = text.partition("://")[0].lower() if "://" in text.partition("@")[0] else ""
    form = engines.of(engine).dsn_form
    if scheme in _LIBPQ_URI or (scheme and form != "connect_string"):
        return _of_uri(text, many=scheme in _LIBPQ_URI)
    if form == "conninfo" or (form != "connect_string" and "=" in text and "@" not in text):
        return _of_conninfo(text)
    return _of_connect_string(text)


def of_url(url: str) -> Uses:
    """The secrets of an exporter's url and where they go. Raises Unclear."""
    names = tuple(REFERENCE.findall(url))
    places = _of_uri(REFERENCE.sub(_MARK, url), many=False) if names else ()
    return Uses(secrets=names, places=tuple(places))


def _of_uri(text: str, *, many: bool) -> Sequence[Place]:
    """`scheme://user:password@host:port/path?key=value`; `many`: as libpq has it, hosts may be several, or in the
    query."""
    if re.search(r"[\s\\\x00-\x1f]", text):
        raise Unclear("a blank or a backslash in an address")
    try:
        parts = urlsplit(text)
    except ValueError:
        raise Unclear("not an address") from None
    authority = re.split(r"[/?#]", text.partition("://")[2], maxsplit=1)[0]
    if authority != parts.netloc or authority.count("@") > 1:
        raise Unclear("more than one @, or an unencoded / or ? before it")
    hosts = (
        [unquote(one) for one in authority.rpartition("@")[2].split(",")] if many else [authority.rpartition("@")[2]]
    )
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    _refuse_secrets(("the path", parts.path), ("the fragment", parts.fragment), *pairs)
    places = [place(host.removesuffix(":")) for host in hosts if host]
    if many and any(key.lower() == "port" for key, _ in pairs):  # it takes the place of those in the authority
        places = [Place(one.host) for one in places]
    places += _hosts_of_pairs(pairs) if many else []
    if any(key == "unix_socket" for key, _ in pairs):
        places.append(Place(HERE))
    return places or [Place(HERE)]


def _of_conninfo(text: str) -> Sequence[Place]:
    """libpq's `host=db1 dbname=x password=…`. All hosts count, also those that a later word overrides."""
    at, pairs = 0, []
    while at < len(text):
        found = _CONNINFO.match(text, at)
        if found is None:
            raise Unclear("not words of the form key=value")
        value = found[2][1:-1] if found[2].startswith("'") else found[2]
        pairs.append((found[1].lower(), re.sub(r"\\(.)", r"\1", value)))
        at = found.end()
    if any(key == "dbname" and ("=" in value or "://" in value) for key, value in pairs):
        raise Unclear("a connection string in the place of a database's name")
    _refuse_secrets(*pairs)
    return _hosts_of_pairs(pairs) or [Place(HERE)]


def _hosts_of_pairs(pairs: Sequence[tuple[str, str]]) -> list[Place]:
    if other := next((key for key, _ in pairs if key.lower() in _LEADS_ELSEWHERE), ""):
        raise Unclear(f"`{other}` names a host that is not written there")
    ports = [value.split(",") for key, value in pairs if key.lower() == "port"]
    found = []
    for hosts in (value.split(",") for key, value in pairs if key.lower() in {"host", "hostaddr"}):
        clear = len(ports) == 1 and len(ports[0]) in (1, len(hosts))  # one for all, or one for each
        for host, port in zip(hosts, ports[0] * len(hosts) if clear else [""] * len(hosts), strict=False):
            if host:
                known = int(port) if re.fullmatch(r"[0-9]{1,5}", port) else None
                found.append(place(host) if host.startswith(("/", "@")) else Place(_plain(host), known))
    return found


def _of_connect_string(text: str) -> Sequence[Place]:
    """Oracle's and TimesTen's `user/password@connect-string`: Easy Connect, a descriptor, or an alias, which counts as
    a host."""
    _, at, target = text.rpartition("@")
    if not at:
        raise Unclear("no @ before the host")
    _refuse_secrets(("the connect string", target))
    if target.startswith("("):  # a descriptor
        keys = {key.lower() for key in re.findall(r"\(\s*([^=()\s]+)\s*=", target)} - _DESCRIPTOR_KEYS
        hosts = [host.strip("\"' ") for host in re.findall(r"\(\s*host\s*=\s*([^()]*)\)", target, re.I)]
        if keys or not hosts:
            raise Unclear(f"`{min(keys)}` could lead elsewhere" if keys else "a descriptor without a HOST")
        return [Place(_plain(host)) for host in hosts]
    found = _EASY.fullmatch(target)
    if found is None:
        raise Unclear("not of the form //host:port/service")
    if unknown := {key.lower() for key, _ in parse_qsl(found[2] or "", keep_blank_values=True)} - _EASY_KEYS:
        raise Unclear(f"`{min(unknown)}` could lead elsewhere")
    return [place(one) for one in re.split(r"[,;]", found[1].rstrip(":")) if one]


def _refuse_secrets(*pairs: tuple[str, str]) -> None:
    for key, value in pairs:
        if _MARK in key or (_MARK in value and key.lower() not in _CREDENTIALS):
            raise Unclear(f"a secret is in {_shown(key)}, not in a user or a password")


# ---- whether it may --------------------------------------------------------------------------------------------------


def objections(
    uses: Uses, secrets: Iterable[Secret], hosts: Iterable[Host], *, exporter: bool
) -> Iterator[tuple[Secret, str, Place]]:
    """Each secret that may not go to a destination of a text, the reason, and the place."""
    known = {secret.name: secret for secret in secrets}
    agents = hosts_of(hosts)
    for name in dict.fromkeys(uses.secrets):
        if name not in known:
            continue  # reported as unknown where it is resolved
        for where in uses.places:
            if objection := _objection(known[name], where, agents, exporter=exporter):
                yield known[name], objection, where


def _objection(secret: Secret, where: Place, agents: frozenset[str], *, exporter: bool) -> str:
    if secret.to:
        fine = any(_covers(place(entry), where) for entry in secret.to)
        return "" if fine else f"the secret `{secret.name}` may go to {', '.join(secret.to)}, not to {where}"
    if exporter:
        return f"the secret `{secret.name}` does not name the exporter at {where} as a place where it may go"
    if where.host == HERE or where.host in agents:
        return ""
    return f"the secret `{secret.name}` may go only to hosts of the topology, and {where} is not one of them"


def _covers(entry: Place, where: Place) -> bool:
    return entry.host == where.host and entry.port in (None, where.port)


def hosts_of(hosts: Iterable[Host]) -> frozenset[str]:
    """The hosts at which agents of the topology run, by the names of their addresses and the first labels of these."""
    names = {place(host.address).host for host in hosts if not host.is_local}
    addresses = re.compile(r"[0-9.]+|.*:.*")
    return frozenset({*names, *(name.partition(".")[0] for name in names if not addresses.fullmatch(name))})


def is_within(where: Place, reach: Iterable[str]) -> bool:
    """Whether a place is one of these hosts, or the agent's own."""
    return where.host == HERE or any(_covers(place(entry), where) for entry in reach)


# A plan names the file or the variable that a secret is read from. So a plan could have the coordinator send away
# whatever its user can read. `refused_path` judges a name as text, before and after links are followed;
# `refused_content` judges what was read. Both are pure and give the reason, or "".

BYTES_MAX = 4096
"""A password in one line; a file that is longer is something else."""

_FOLDERS = frozenset(
    {".aws", ".azure", ".docker", ".gnupg", ".kube", ".password-store", ".pki", ".ssh", "gcloud", "keyrings",
    "letsencrypt", "pki"}
)  # fmt: skip
_PLACES = (
    "/dev",
    "/etc/gshadow",
    "/etc/krb5.keytab",
    "/etc/shadow",
    "/etc/ssh",
    "/etc/ssl/private",
    "/proc",
    "/sys",
    "/var/lib/proveout",
)
_NAMES = re.compile(
    r"id_(rsa|dsa|ecdsa|ed25519)(_sk)?|.*\.(p12|pfx|jks|keystore|kdbx|ppk|keytab)|\.netrc|\.git-credentials", re.I
)
_KEYS = re.compile(
    r"-----BEGIN [A-Z0-9 ]*PRIVATE "
    r"KEY|AGE-SECRET-KEY-1|PuTTY-User-Key-File|\"private_key\"|\"kty\"\s*:|b3BlbnNzaC1rZXktdjE|openssh-key-v1"
)
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{64,}={0,2}")


def refused_path(path: str) -> str:
    """The reason why no secret is read from a path; "" when its name is permitted."""
    parts = PurePosixPath(path).parts
    if folder := next((part for part in parts[:-1] if part.lower() in _FOLDERS), ""):
        return f"{path} lies in a folder of keys and credentials ({folder})"
    if found := next((one for one in _PLACES if path == one or path.startswith(f"{one}/")), ""):
        return f"{path} lies in {found}, where there are no passwords of plans"
    if parts and _NAMES.fullmatch(parts[-1]):
        return f"{path} has the name of a private key or of a user's credentials"
    return ""


def refused_content(content: bytes) -> str:
    """The reason why the content cannot be the secret of a plan; "" when it can be a password."""
    if len(content) > BYTES_MAX:
        return f"holds more than {BYTES_MAX} bytes"
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return "is not UTF-8 text"
    if _KEYS.search(text) or _is_encoded_key(text.strip()):
        return "looks like a private key"
    if "\n" in text.rstrip("\r\n") or "\x00" in text:
        return "holds more than one line"
    return ""


def _is_encoded_key(text: str) -> bool:
    """Whether a text is Base64 of a key: DER as in PKCS#1, #8 and #12, or any of the written forms."""
    if not _ENCODED.fullmatch(text):
        return False
    plain = text.translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4))
    except (binascii.Error, ValueError):
        return False
    return _is_der(data) or _KEYS.search(data.decode("latin-1")) is not None


def _is_der(data: bytes) -> bool:
    """Whether it is one DER SEQUENCE with a long length, from the first byte to the last."""
    if len(data) < 2 or data[0] != 0x30 or not 0x81 <= data[1] <= 0x83:
        return False
    size = data[1] & 0x0F
    return int.from_bytes(data[2 : 2 + size], "big") == len(data) - 2 - size
