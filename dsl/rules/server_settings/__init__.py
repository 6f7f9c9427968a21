"""Settings of the servers that proveout starts: their names, types and limits, from the servers themselves."""
