"""The preflight of a run: checks of hosts and systems before anything is changed."""
