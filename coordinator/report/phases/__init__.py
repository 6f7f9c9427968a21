"""The phases of loads in reports."""
