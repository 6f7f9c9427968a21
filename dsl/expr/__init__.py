"""Expressions over results: syntax, checking, evaluation."""
