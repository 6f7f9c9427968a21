"""Tuning on a host: the interpreter of `dsl.operations`.

Flow: the tunings of a task -> `transaction` asks each operation for its queries -> `host` answers them -> changes ->
`host` checks the policy -> `undo_journal` stores the originals, fsynced -> `host` makes the changes -> facts are read
again to verify. `revert` works from the undo journal alone: at the end of the run, after a failure, at the end of the
session, and when an agent starts after a crash.
"""
