"""Operations that only faults are made of: they disturb a host or a system for a time."""
