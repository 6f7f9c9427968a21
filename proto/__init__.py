"""What crosses the wire between coordinator and agents, and what a run says of itself.

`tasks`, `results`, `messages` and `events` are frozen data; `codec` maps the first three to the protobuf messages of `agent.proto`, and protobuf
types go no further than that. Imports only `dsl.plan`.
"""
