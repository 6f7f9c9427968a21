"""The agent: a daemon on each host that runs the coordinator's tasks.

gRPC reads its cipher suites once, when it is imported, and its Python interface has no setting for the TLS version. So this package,
which every agent imports before gRPC, leaves TLS 1.2 without a usable cipher suite: the one that is named needs a pre-shared key, and
there is none. TLS 1.3 has suites of its own, which this list does not touch.
"""

from __future__ import annotations

import os

os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-CHACHA20-POLY1305"
