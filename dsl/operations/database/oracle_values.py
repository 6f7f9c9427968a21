"""The names and values of Oracle's initialization parameters that a plan may set; pure text, without pydantic, because
the policy of a host uses it too.

Three groups: parameters that no plan sets, because they decide the identity of the database, how it is reached or where
it writes; parameters that the owner of the host consents to by name (hidden ones, and `CONSENT`); and all others.
Source: Database Reference; DISPATCHERS: its syntax there, without ADDRESS, DESCRIPTION and LISTENER, which decide where
the database is reached.
"""

from __future__ import annotations

import re

NAME = re.compile(r"_?[a-z][a-z0-9_]{0,79}")
_NEVER = re.compile(
    r"(local_|remote_)?listener.*|.*_listener|remote_login.*|remote_os.*|os_authent_prefix|os_roles|sec_.*|audit_.*|spfile|ifile|"
    r"control_files|db_name|db_unique_name|instance_name|instance_number|thread|.*_dump_dest|diagnostic_dest|o7_dictionary.*|"
    r"utl_file_dir|enable_ddl_logging|ldap_.*|wallet_root|tde_.*|dispatchers|service_names|cluster_database"
)
CONSENT = frozenset({"audit_trail", "dispatchers"})
AUDIT_TRAILS = ("none", "os", "db", "xml")
_DISPATCHERS = re.compile(
    r"\(PROTOCOL=(TCP|TCPS)\)( ?\((SERVICE=[A-Za-z][A-Za-z0-9_.$#-]{0,63}"
    r"|(DISPATCHERS|CONNECTIONS|SESSIONS|TICKS)=[0-9]{1,5}"
    r"|(POOL|MULTIPLEX)=(ON|OFF))\)){0,8}",
    re.I,
)
STORED_ONLY = frozenset({"dispatchers"})
"""Parameters that ALTER SYSTEM could change at once, but of which running processes keep the old value."""


def is_hidden(name: str) -> bool:
    """Whether it is a hidden parameter, which Oracle does not document."""
    return name.startswith("_")


def needs_consent(name: str) -> bool:
    """Whether the policy of the host must list it."""
    return NAME.fullmatch(name) is not None and (name in CONSENT or (is_hidden(name) and not _is_never(name)))


def _is_never(name: str) -> bool:
    return name not in CONSENT and _NEVER.fullmatch(name.removeprefix("_")) is not None


def name_objection(name: str) -> str:
    """The reason why no plan may set a parameter; "" where it may."""
    if not NAME.fullmatch(name):
        return f"`{name}` is not the name of an initialization parameter, as sga_target"
    if _is_never(name):
        return (
            f"`{name}` decides the identity of the database, how it is reached or what it records, so no plan sets it"
        )
    return ""


def value_objection(name: str, value: str) -> str:
    """The reason against a value of a parameter; "" where there is none."""
    if name == "audit_trail" and value.lower() not in AUDIT_TRAILS:
        return f"audit_trail is one of {', '.join(AUDIT_TRAILS)}, not {value!r}"
    if name == "dispatchers" and not _DISPATCHERS.fullmatch(value):
        return (
            f"dispatchers is (PROTOCOL=TCP)(SERVICE=orclXDB)(DISPATCHERS=3), without addresses and listeners: {value!r}"
        )
    return ""


def in_sql(name: str) -> str:
    """The name in a statement: a hidden one in double quotes."""
    return f'"{name}"' if is_hidden(name) else name
