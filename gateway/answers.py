"""Writing to the client: our own answers, and bytes of others without our touch.

Own answers are written inside the handler, not returned to the framework, so that their record is
made after they were sent. The framework's habit of adding Server, Date and Content-Type to every
answer is undone here: an answer of a replica leaves with the headers it came with.
"""

import json

from aiohttp import web
from multidict import CIMultiDict

from gateway.flight import Cause, Flight

_ADDED = ("Server", "Date", "Content-Type")


class ClientGone(Exception):
    """The client's connection is closed."""


class Untouched(web.StreamResponse):
    """An answer that leaves with the headers it was given, and those of its framing."""

    kept: frozenset[str] = frozenset()

    def send_headers_with_body(self) -> None:
        """Let the headers leave in one packet with the body's begin, which is at hand."""
        self._send_headers_immediately = False


def untouched(
    flight: Flight, status: int, headers: CIMultiDict[str], reason: str | None = None
) -> Untouched:
    """Make an answer to which nothing is added but the two labels of a probe."""
    response = Untouched(status=status, reason=reason, headers=headers)
    response.kept = frozenset(name for name in _ADDED if name in response.headers)
    if flight.probe:
        response.headers["x-burnproof-arm"] = flight.arm
        response.headers["x-burnproof-replica"] = flight.replica
    return response


async def remove_added(_request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler: take away what the framework added to such an answer."""
    if isinstance(response, Untouched):
        for name in _ADDED:
            if name not in response.kept:
                response.headers.pop(name, None)


async def write(response: web.StreamResponse, data: bytes, *, last: bool = False) -> None:
    """Write to the client; the last piece leaves in one packet with the end mark.

    Raises:
        ClientGone: Its connection is closed.
    """
    try:
        if last:
            await response.write_eof(data)
        else:
            await response.write(data)
    except ConnectionError as error:
        raise ClientGone from error


async def answer(
    request: web.Request, flight: Flight, status: int, headers: CIMultiDict[str], body: bytes
) -> web.StreamResponse:
    """Send an answer of our own, whole.

    Raises:
        ClientGone: The client's connection is closed.
    """
    flight.status = status
    response = untouched(flight, status, headers)
    response.content_length = len(body)
    response.send_headers_with_body()
    try:
        await response.prepare(request)
        await response.write_eof(b"" if request.method == "HEAD" else body)
    except ConnectionError as error:
        raise ClientGone from error
    return response


async def refuse(
    request: web.Request, flight: Flight, status: int, message: str
) -> web.StreamResponse:
    """Send an error of our own, in the shape that OpenAI clients read.

    Raises:
        ClientGone: The client's connection is closed.
    """
    if status in {404, 413}:
        flight.cause = Cause.SHED
    error = {"message": message, "type": "burnproof_gateway", "param": None, "code": status}
    headers = CIMultiDict({"Content-Type": "application/json"})
    return await answer(request, flight, status, headers, json.dumps({"error": error}).encode())
