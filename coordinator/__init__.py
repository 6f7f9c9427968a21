"""The coordinator: compiles a plan into tasks, schedules them on agents, journals, judges."""
