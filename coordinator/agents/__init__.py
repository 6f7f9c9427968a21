"""Connections to agents: dialling, sessions, clock synchronisation, local agents."""
