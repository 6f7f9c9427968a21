"""Reports over many runs and over repetitions: noise, trend."""
