"""The pane "Result" of a finished run: its data, and the pane."""
