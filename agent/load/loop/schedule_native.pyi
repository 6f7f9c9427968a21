from proveout.agent.load.loop.schedule import Schedule as Schedule
