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
_KEEP = "burnproof_keep_headers"


class ClientGone(Exception):
    """The client's connection is closed."""


def strip_added(response: web.StreamResponse, flight: Flight) -> None:
    """Mark an answer so that nothing is added to it, but the two labels of a probe."""
    response[_KEEP] = frozenset(name for name in _ADDED if name in response.headers)
    if flight.probe:
        response.headers["x-burnproof-arm"] = flight.arm
        response.headers["x-burnproof-replica"] = flight.replica


async def remove_added(_request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler: take away what the framework added to a marked answer."""
    keep = response.get(_KEEP)
    if keep is not None:
        for name in _ADDED:
            if name not in keep:
                response.headers.pop(name, None)


async def write(response: web.StreamResponse, data: bytes) -> None:
    """Write to the client.

    Raises:
        ClientGone: Its connection is closed.
    """
    try:
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
    response = web.StreamResponse(status=status, headers=headers)
    response.content_length = len(body)
    strip_added(response, flight)
    try:
        await response.prepare(request)
        await response.write(body)
        await response.write_eof()
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
