"""Identities, task signatures, enrolment, audit log."""
