"""The phases of a load: their numbers, their time to recover, and their validity."""
