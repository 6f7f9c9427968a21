"""Reports of a run, made from `results.RunResults`, so that they can be made again from a run's journal.

`run_document` and `compare.comparison_document` build a `document`; `terminal`, `markdown` and `html` render it.
`result_json`, `junit`, `csv_export` and `annotations` write formats for programs.
"""
