"""The phases of a load: entries and tables of a plan -> levels."""
