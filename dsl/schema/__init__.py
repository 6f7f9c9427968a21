"""Models of the plan format and their validation."""
