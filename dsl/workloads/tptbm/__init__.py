"""The TPTBM workload."""
