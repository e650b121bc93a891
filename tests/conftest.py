"""What every test gets: only loopback connections, no task left on its loop, and free ports.

The guards are autouse on purpose: a test that talks to the outside, or that leaves work behind on
the event loop, fails where it was written and not later in somebody else's suite. The connection
guard is an audit hook, so that it also sees sockets made by libraries before it was installed; it
cannot see connections that are made outside Python (uvloop, the Temporal core).
"""

import asyncio
import inspect
import ipaddress
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import hypothesis
import pytest
import pytest_asyncio

hypothesis.settings.register_profile(
    "burnproof",
    deadline=None,  # two cores are shared with other suites: a slow example is no failure
    print_blob=True,
    derandomize=os.environ.get("CI") == "true",  # CI fails for what changed, not by chance
)
hypothesis.settings.load_profile("burnproof")


class OutsideConnectionError(AssertionError):
    """A test tried to reach an address that is not on this machine."""


def _is_local(host: Any) -> bool:
    if host in {None, "", "localhost", b"localhost"}:
        return True
    text = host.decode() if isinstance(host, bytes) else str(host)
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _refuse_outside(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.connect" and args[0].family in {socket.AF_INET, socket.AF_INET6}:
        host = args[1][0]
    elif event == "socket.getaddrinfo":
        host = args[0]
    else:
        return
    if not _is_local(host):
        raise OutsideConnectionError(f"a test may reach loopback only, not {host!r}")


sys.addaudithook(_refuse_outside)


@pytest.fixture(autouse=True)
def _guard_tasks(request: pytest.FixtureRequest) -> None:
    if inspect.iscoroutinefunction(inspect.unwrap(getattr(request.node, "obj", None))):
        request.getfixturevalue("_no_task_is_left_behind")


@pytest_asyncio.fixture
async def _no_task_is_left_behind(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    before = asyncio.all_tasks()
    yield
    if request.node.get_closest_marker("allow_pending_tasks"):
        return
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:  # a task that was cancelled a moment ago is given the loop to end
        await asyncio.wait(left, timeout=0.2)
    names = sorted(repr(task.get_coro()) for task in left if not task.done())
    assert not names, f"the test left tasks on its loop: {names}"


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Give a function that finds a free TCP port on loopback, another one at each call."""
    given: set[int] = set()

    def find() -> int:
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port: int = probe.getsockname()[1]
            if port not in given:
                given.add(port)
                return port

    return find
