"""The agent's gRPC service: sessions, leases, tasks, the task journal, the outbox."""
