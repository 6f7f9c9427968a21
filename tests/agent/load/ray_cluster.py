"""A Ray cluster of another program, for a test: `ray_cluster.py PRIVILEGES`; the environment configures its
authentication.

Two nodes by `ray.cluster_utils.Cluster`; prints the address on stdout; exits at the end of stdin.
"""

from __future__ import annotations

import os
import sys

from proveout.agent.sandbox.privileges import Privileges

Privileges.from_argument(sys.argv[1]).drop(keeps_root=True)
os.environ["HOME"] = os.environ["RAY_TMPDIR"]

from ray.cluster_utils import Cluster  # noqa: E402 - as the user that the cluster is to be of

SMALL = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}

cluster = Cluster(initialize_head=True, head_node_args=SMALL)
try:
    cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    sys.stdout.write(f"address {cluster.address}\n")
    sys.stdout.flush()
    sys.stdin.read()
finally:
    cluster.shutdown()
