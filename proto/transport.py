"""Limits and options that both ends of the wire share.

Importing this before `grpc` also sets two of its environment defaults: its C core prints handshake failures of every
stranger to stderr (the sessions report what matters themselves), and its fork handlers would run in every child that an
agent starts, although none of them uses gRPC. A value that the user has set stays.
"""

from __future__ import annotations

import os

MAX_MESSAGE_BYTES = 4 * 1024 * 1024

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),  # agents are dialled, never fetched through the proxy of a shell's environment
)

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
