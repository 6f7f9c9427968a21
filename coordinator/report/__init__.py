"""Reports of a run, made from `results.RunResults`, so that they can be made again from a run's journal.

`run_document` and `comparison_document` build a `document`; `terminal`, `markdown` and `html` render it.
`json_documents`, `ci_reports` and `csv_export` write formats for programs.
"""
