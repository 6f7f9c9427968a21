"""PostgreSQL's extended query protocol, in Python and compiled."""
