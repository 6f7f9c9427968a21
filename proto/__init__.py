"""What crosses the wire between coordinator and agents, and what a run says of itself.

`messages` and `events` are frozen data; `codec` maps `messages` to the protobuf messages of `agent.proto`, and protobuf
types go no further than that. Imports only `dsl.plan`.
"""
