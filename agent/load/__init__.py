"""Load generation: pacing (when), engine (the hot loop), recorder (histograms), pool (worker processes)."""
