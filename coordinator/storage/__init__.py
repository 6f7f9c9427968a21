"""The run directory: journal, event codec, audit log, resume."""
