"""Loading a workload's tables: the task's handler, jobs, worker processes."""
