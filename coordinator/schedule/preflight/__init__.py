"""The preflight of a run: what a plan needs of its hosts and systems, asked before anything is changed."""
