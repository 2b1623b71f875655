"""Wire clients of the cluster that a command's options name."""

import argparse

from moldau.cli.common import cluster_place
from moldau.cli.wire import WireCluster
from moldau.cli.wire_security import security_of


def wire_cluster(options: argparse.Namespace) -> WireCluster:
    """A client of the cluster, with the security that the client properties ask for."""
    there = cluster_place(options)
    return WireCluster(there.bootstrap, security=security_of(there.properties))
