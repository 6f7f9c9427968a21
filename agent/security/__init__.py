"""What an agent may do and for which coordinator: authorization, signatures, policy, rules for tasks, trusted paths."""
