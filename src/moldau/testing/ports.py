"""Ports for brokers that go down and come back.

The law: they lie below the range from which the kernel takes the ports of outgoing connections. While a broker is down
nobody gets its port by accident, and a client that tries to reach it does not reach itself.
"""

import random
import socket

HOST = "127.0.0.1"
PORTS = range(10_000, 30_000)

_random = random.SystemRandom()  # test runs seed the other one: all workers would choose alike


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, and that no outgoing connection gets."""
    found: list[int] = []
    for _ in PORTS:
        port = _random.choice(PORTS)
        if port not in found and _is_free(port):
            found.append(port)
            if len(found) == count:
                return found
    raise OSError("no free ports")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
