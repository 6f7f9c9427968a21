"""The agent: a daemon on each host that runs the coordinator's tasks.

gRPC reads its cipher suites once, at import, and its Python interface has no setting for the TLS version. So this
package, which every agent imports before gRPC, disables TLS 1.2: the only cipher suite that it allows needs a
pre-shared key, and there is none. The cipher suites of TLS 1.3 are not affected by this list.
"""

from __future__ import annotations

import os

os.environ["GRPC_SSL_CIPHER_SUITES"] = "ECDHE-PSK-CHACHA20-POLY1305"
