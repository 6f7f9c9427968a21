"""The names that a stage's captures give its expressions, subject by subject."""
