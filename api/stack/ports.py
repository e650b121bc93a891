"""Find TCP ports that stay ours: for a process that dies and comes back, and beside other stacks.

Asking the kernel for any free port is not enough. Between a gateway's death and its restart an
outgoing connection may be given its port; so ports come from below the range that the kernel hands
out. And two stacks that start at once may find the same port free; so each port is claimed by the
name of an abstract socket, which the kernel frees when its owner dies, however it dies.
"""

import errno
import random
import socket
from collections.abc import Iterable

HOST = "127.0.0.1"
FIRST, LAST = 20_000, 31_999
"""Source: ip_local_port_range of Linux begins at 32768 by default."""

_ATTEMPTS = 2_000


class Ports:
    """The ports of one stack, claimed until `release`."""

    def __init__(self) -> None:
        self._claims: list[socket.socket] = []

    def take(self, preferred: int | None = None) -> int:
        """Claim a free port: the preferred one if it can be had.

        Raises:
            OSError: no port is free.
        """
        chance = random.Random()
        wanted = [] if preferred is None else [preferred]
        for attempt in range(_ATTEMPTS):
            port = wanted[0] if attempt == 0 and wanted else chance.randint(FIRST, LAST)
            if self._claim(port):
                return port
        raise OSError(errno.EADDRINUSE, f"no free port in {FIRST}-{LAST}")

    def release(self) -> None:
        """Give up every claim."""
        for claim in self._claims:
            claim.close()
        self._claims.clear()

    def _claim(self, port: int) -> bool:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0burnproof-port-{port}")
        except OSError:
            claim.close()
            return False
        if not is_free(port):
            claim.close()
            return False
        self._claims.append(claim)
        return True


def is_free(port: int) -> bool:
    """Tell whether nothing listens on this port of loopback."""
    with socket.socket() as probe:
        # As every server does: the remains of closed connections do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def all_free(ports: Iterable[int]) -> bool:
    """Tell whether nothing listens on any of them."""
    return all(is_free(port) for port in ports)
