"""Tuning on a host: the interpreter of `dsl.operations`.

Data flow: a task's tunings -> `transaction` asks each operation for its queries -> `reading` answers -> changes -> `permission` asks the host's
policy -> `undo` keeps the originals, fsynced -> `making` makes the changes -> facts are read again to verify. What is undone, is undone from
the undo journal alone: at the run's end, at a failure, at the session's end, and when an agent starts after a crash.
"""
