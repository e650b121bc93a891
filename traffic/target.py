"""Which address the driver may load: this machine's own, unless told otherwise.

A load generator pointed at the wrong host is an attack. Names are not resolved: but for
"localhost" only a literal loopback address counts as local, so that a changed DNS entry cannot
redirect the load.
"""

from ipaddress import ip_address

from yarl import URL


class RemoteTarget(Exception):
    """The address is not this machine's and --allow-remote was not given."""


def check_target(url: str, allow_remote: bool) -> URL:
    """Return the address parsed.

    Raises:
        RemoteTarget: not loopback, and not allowed.
        ValueError: not an http or https address.
    """
    parsed = URL(url)
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError(f"not an http address: {url}")
    if not allow_remote and not _is_loopback(parsed.host):
        raise RemoteTarget(
            f"{parsed.host} is not a loopback address; --allow-remote sends load there"
        )
    return parsed


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
