"""Unprivileged helper processes: a root agent reads data of databases and exporters only in them."""
