"""The guards of tests/conftest.py do refuse what they are there to refuse."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

CONFTEST = (Path(__file__).parents[1] / "conftest.py").read_text()

pytest_plugins = ["pytester"]


def test_a_connection_to_the_outside_is_refused_before_a_packet_leaves() -> None:
    with socket.socket() as outside, pytest.raises(AssertionError, match="loopback only"):
        outside.connect(("192.0.2.1", 80))  # TEST-NET-1: nobody is there
    with socket.socket() as outside, pytest.raises(AssertionError, match="loopback only"):
        outside.connect_ex(("192.0.2.1", 80))
    with pytest.raises(AssertionError, match=r"example\.invalid"):
        socket.create_connection(("example.invalid", 80))


async def test_an_asyncio_connection_to_the_outside_is_refused() -> None:
    with pytest.raises(AssertionError, match="loopback only"):
        await asyncio.open_connection("192.0.2.1", 80)


async def test_a_loopback_connection_works(free_port: Callable[[], int]) -> None:
    port = free_port()
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port)
    async with server:
        reader, writer = await asyncio.open_connection("localhost", port)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


def test_free_ports_differ(free_port: Callable[[], int]) -> None:
    assert len({free_port() for _ in range(20)}) == 20


def test_a_task_left_on_the_loop_fails_its_test(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(
        """
        import asyncio
        import pytest

        async def test_leaves_a_task():
            asyncio.get_running_loop().kept = asyncio.create_task(asyncio.sleep(60))

        async def test_ends_its_task():
            await asyncio.create_task(asyncio.sleep(0))

        async def test_cancels_its_task():
            asyncio.create_task(asyncio.sleep(60)).cancel()

        @pytest.mark.allow_pending_tasks("shows the marker")
        async def test_is_marked():
            asyncio.get_running_loop().kept = asyncio.create_task(asyncio.sleep(60))

        def test_has_no_loop():
            asyncio.run(asyncio.sleep(0))
        """
    )
    done = pytester.runpytest_subprocess(
        "-o",
        "asyncio_mode=auto",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        "-o",
        "markers=allow_pending_tasks(reason): shown",
    )
    done.assert_outcomes(passed=5, errors=1)
    done.stdout.fnmatch_lines(
        ["E *the test left tasks on its loop*sleep*", "ERROR *test_leaves_a_task*"]
    )
