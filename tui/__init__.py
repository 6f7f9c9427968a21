"""The terminal UI: view model of a run, screen of a run, home screen."""
