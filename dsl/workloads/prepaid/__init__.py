"""The prepaid workload."""
