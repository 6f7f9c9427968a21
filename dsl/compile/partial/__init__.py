"""Plans that are not valid as a whole, compiled as far as they go."""
