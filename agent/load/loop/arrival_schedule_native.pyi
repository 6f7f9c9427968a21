from proveout.agent.load.loop.arrival_schedule import Schedule as Schedule
