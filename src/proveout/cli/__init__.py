"""The command line: one module per verb, each thin."""
