"""A client's reading of one HTTP/1 answer, to the byte, with no help from the gateway's code."""

import asyncio
from dataclasses import dataclass, field


@dataclass
class Got:
    """An answer as a client read it."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    whole: bool = False

    @property
    def closes(self) -> bool:
        """Whether the connection ends with this answer."""
        return not self.whole or any(
            name.lower() == "connection" and value.lower() == "close"
            for name, value in self.headers
        )


async def read_answer(reader: asyncio.StreamReader, *, is_head: bool = False) -> Got:
    """Read an answer to its end, or to where it breaks off."""
    got = Got()
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *rest = head.rstrip("\r\n").split("\r\n")
        got.status = int(line.split()[1])
        got.headers = [(name, value.strip()) for name, _, value in (x.partition(":") for x in rest)]
        low = {name.lower(): value for name, value in got.headers}
        if is_head or got.status in {204, 304}:
            got.whole = True
        elif low.get("transfer-encoding") == "chunked":
            await _read_chunks(reader, got)
        elif "content-length" in low:
            await _read_length(reader, got, int(low["content-length"]))
        else:
            got.body = await reader.read()
            got.whole = True
    except (asyncio.IncompleteReadError, ConnectionError):
        got.whole = False
    return got


async def _read_length(reader: asyncio.StreamReader, got: Got, length: int) -> None:
    pieces, left = [], length
    try:
        while left and (data := await reader.read(left)):
            pieces.append(data)
            left -= len(data)
    finally:
        got.body = b"".join(pieces)
    got.whole = not left


async def _read_chunks(reader: asyncio.StreamReader, got: Got) -> None:
    pieces: list[bytes] = []
    try:
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            left = size
            while left:
                data = await reader.read(left)
                if not data:
                    return
                pieces.append(data)
                left -= len(data)
            await reader.readexactly(2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        got.whole = True
    finally:
        got.body = b"".join(pieces)


def read_metrics(text: str) -> dict[str, float]:
    """Return the sum of each metric of a page over its labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            name = name.partition("{")[0]
            found[name] = found.get(name, 0.0) + float(value)
    return found
