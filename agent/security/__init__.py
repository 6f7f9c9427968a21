"""Security of an agent: authorization, task signatures, policy of the host, rules for tasks, trusted paths."""
