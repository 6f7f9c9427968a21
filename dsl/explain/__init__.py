"""Plan -> what would run, as data and as text (`proveout explain`)."""
