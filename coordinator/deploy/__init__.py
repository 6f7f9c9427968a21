"""Agents on other hosts: install, enrol, start and remove them over SSH (`proveout deploy`)."""
