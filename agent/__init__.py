"""The daemon on a host: it serves one coordinator session, runs tasks, and cleans up after itself whatever happens."""
