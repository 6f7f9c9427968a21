"""proveout: a declarative test-plan language with a distributed agent fabric that proves out database systems."""

__version__ = "0.1.0"
