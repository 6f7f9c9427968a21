"""The hot loop of a load worker: connections, transactions, timers, records."""
