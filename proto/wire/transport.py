"""Limits and gRPC options that both ends of the wire share."""

from __future__ import annotations

MAX_MESSAGE_BYTES = 4 * 1024 * 1024

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # No pings to find out how much data is on its way: messages are small, and each ping costs what a message does.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.enable_http_proxy", 0),  # agents are dialled, never fetched through the proxy of a shell's environment
)
