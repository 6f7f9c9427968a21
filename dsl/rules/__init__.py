"""Rules that a plan must satisfy, beyond the types of its fields."""
