"""Database drivers: how a workload's statements reach an engine. `base.py` is the contract; `table.py` lists them."""
