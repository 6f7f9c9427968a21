"""Tuning: the changes that a plan may make on a host, as pure data and pure functions.

Data flow: a plan's block -> an `Operation` (a strict model) -> `plan.Tuning` in the compiled plan -> an agent, which
makes the operation again, reads the facts that it `queries`, computes the `changes`, and carries those out as a
transaction (`proveout.agent.tuning`). Nothing in this package reads or writes anything.
"""
