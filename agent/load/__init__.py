"""Load generation: pacing, think time, the load loops, worker processes, pools, aggregation of results."""
