"""Messages between coordinator and agents, and their protobuf form."""
