"""The HLR workload (TATP)."""
