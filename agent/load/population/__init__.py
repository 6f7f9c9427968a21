"""Loading a workload's tables: jobs, worker processes, table markers."""
