"""The screens: what is shown together, and which keys it has."""
