"""The first answer of a run: its headline numbers, and what its verdicts compare with what."""
