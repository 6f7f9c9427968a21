"""The verbs over many runs, and over repetitions of one rung."""
