"""Messages between coordinator and agents, and the events of a run.

`tasks`, `results`, `messages` and `events` are frozen data; `codec` maps the first three to the protobuf messages of
`agent.proto`, and protobuf types go no further than that. Imports only `dsl.plan`.
"""
