"""The plan language: YAML in, a frozen `Plan` out. Imports nothing else of proveout."""
