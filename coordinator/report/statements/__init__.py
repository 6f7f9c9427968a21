"""The top statements of systems in reports, with their plans."""
