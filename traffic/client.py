"""One request sent, its answer read, one record made.

The body goes out as the exact bytes given: no client library gets to encode, or to refuse, a
strange text. Redirects are not followed and no proxy is read from the environment, so load stays
where it was aimed.
"""

import asyncio
import time
from dataclasses import dataclass

import aiohttp
from yarl import URL

from traffic.records import ClientRecord, Outcome
from traffic.stream import StreamReader

_CONVERSATION_HEADER = "x-conversation-id"
_REQUEST_HEADER = "x-request-id"
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of one request."""

    record: ClientRecord
    text: str
    simulated: bool | None
    """None when no completion came back to tell."""


class Client:
    """Sends requests to one address."""

    def __init__(self, session: aiohttp.ClientSession, url: URL, timeout_seconds: float) -> None:
        self._session = session
        self._url = url
        self._timeout = timeout_seconds

    async def send(self, identity: str, unit: str, body: bytes) -> Answer:
        """Send one request and read its answer to the end.

        A cancellation is an ending too: it gives a record with outcome client_abort. The caller
        must therefore look at its own stop flag, not wait for CancelledError.
        """
        reader = StreamReader()
        started, begin = time.time(), time.monotonic()
        try:
            async with asyncio.timeout(self._timeout):
                await self._exchange(identity, unit, body, reader)
            outcome = _judge(reader)
        except TimeoutError:
            outcome = Outcome.TIMEOUT
        except asyncio.CancelledError:
            outcome = Outcome.CLIENT_ABORT
        except (aiohttp.ClientError, OSError):
            outcome = Outcome.TRANSPORT
        end = time.monotonic()
        reader.close(end)
        first = reader.first_token
        record = ClientRecord(
            id=identity,
            unit=unit or identity,
            started=started,
            ttft=None if first is None else first - begin,
            max_gap=reader.max_gap,
            e2e=end - begin,
            status=reader.status,
            outcome=outcome,
            tokens=reader.tokens if outcome is not Outcome.STREAM_ERROR else 0,
        )
        heard = reader.first_token is not None or reader.simulated
        return Answer(record, reader.text, reader.simulated if heard else None)

    async def _exchange(self, identity: str, unit: str, body: bytes, reader: StreamReader) -> None:
        headers = {"content-type": _JSON, _REQUEST_HEADER: identity}
        if unit:
            headers[_CONVERSATION_HEADER] = unit
        async with self._session.post(
            self._url, data=body, headers=headers, allow_redirects=False
        ) as response:
            reader.status = response.status
            if response.content_type == _JSON:
                reader.whole(await response.read(), time.monotonic())
                return
            async for data in response.content.iter_any():
                reader.feed(data, time.monotonic())


def _judge(reader: StreamReader) -> Outcome:
    if reader.status != 200:
        return Outcome.HTTP_ERROR
    if reader.error is not None:
        return Outcome.STREAM_ERROR
    return Outcome.OK if reader.complete else Outcome.TRUNCATED
