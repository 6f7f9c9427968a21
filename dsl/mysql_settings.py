"""MySQL settings that a plan cannot give to a server that proveout starts. Data only; the compiler and the agents read it.

MySQL takes any unambiguous beginning of an option's name, and `loose_` before it, so a name is compared by its beginning.
"""

from __future__ import annotations

OWN = frozenset(
    {
        "basedir", "bind_address", "datadir", "defaults_extra_file", "defaults_file", "extra_port", "general_log_file",
        "innodb_data_home_dir", "innodb_log_group_home_dir", "innodb_tmpdir", "innodb_undo_directory", "log_bin_basename",
        "log_bin_index", "log_error", "log_basename", "pid_file", "port", "relay_log", "secure_file_priv", "server_uuid",
        "skip_grant_tables", "skip_networking", "slave_load_tmpdir", "slow_query_log_file", "socket", "tmpdir", "user",
    }
)  # fmt: skip
"""Where a server's files, sockets and accounts are: proveout sets them itself."""

CODE = frozenset(
    {
        "chroot", "gdb", "init_connect", "init_file", "init_slave", "lc_messages_dir", "plugin_dir", "plugin_load",
        "plugin_load_add", "wsrep_notify_cmd", "wsrep_provider", "wsrep_sst_method",
    }
)  # fmt: skip
"""What runs commands or loads code."""

_PREFIXES = ("loose_", "maximum_", "enable_", "disable_")


def objection(name: str) -> str | None:
    """Why a setting cannot be given to an embedded server; None when it can."""
    plain = name.lower().replace("-", "_")
    for prefix in _PREFIXES:
        plain = plain.removeprefix(prefix)
    if any(code.startswith(plain) or plain.startswith(code) for code in CODE):
        return f"`{name}` would run a command or load code on the server, which a plan cannot"
    if plain != "log_bin" and any(own.startswith(plain) for own in OWN):
        return f"proveout sets `{name}` itself"
    return None
