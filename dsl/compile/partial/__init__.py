"""What is known of plans that are not valid as a whole."""
