"""Outside programs that an agent runs as a load: from a job to argv, from output to results."""
