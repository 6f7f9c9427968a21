"""Reports of a run, all written from `results.RunResults`, so that they can be made again from a run's journal.

`result` is JSON for programs, `junit` is XML for CI, `summary` is Markdown for a pull request, `terminal` is for the person who waits.
What they have in common, the rows of their tables, is in `tables` and `comparison`.
"""
