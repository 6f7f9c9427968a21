"""proveout: a declarative test-plan language with a distributed agent fabric that proves out database systems."""

import os

__version__ = "0.1.0"

# gRPC reads this once, when it is imported: below `ERROR` it writes a line of its own for each stranger whose TLS handshake
# fails, into whatever the terminal shows. Sessions report what matters themselves. A value that the user has set stays.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
