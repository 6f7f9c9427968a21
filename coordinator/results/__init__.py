"""Events of a run -> its results."""
