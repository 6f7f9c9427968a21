"""The home screen: plans, runs, the form to start a run, the comparison of two runs."""
