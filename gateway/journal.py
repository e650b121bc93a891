"""The request journal: a ring in memory for readers, bounded segments on disk for afterwards.

Readers hold a cursor (the last sequence they saw). Sequences start at 1 in each process and rise
by one, so a reader can prove that nothing was lost between two pages; when the ring no longer
reaches back to its cursor the page is read from disk, and when the disk does not either, the page
says `gap`. A new process is a new epoch. Lines are written by a thread every half second: a
kill loses the last moment of the disk copy, never the truth of a page, since the epoch ends with
the process.
"""

import asyncio
import json
import os
from bisect import bisect_left
from collections import deque
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from slo.records import RequestRecord

RING_RECORDS = 50_000
"""Records kept in memory. Source: ours, 2026-11: 30 MB, half an hour at 25 requests a second."""

UNWRITTEN_RECORDS = 100_000
"""Records that wait for the disk; a disk that hangs for longer costs the oldest of them."""

SEGMENTS = 8
"""Least number of parts that the space on disk is cut into; the oldest goes when a new one needs
its room."""

MAX_SEGMENT_BYTES = 4 * 1024 * 1024
"""Largest part: a page from disk reads whole parts."""


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Entry:
    """A record as it is handed out."""

    seq: int
    at: float
    route: str
    line: bytes


@dataclass(frozen=True, slots=True)
class Slice:
    """One read: the cursor after it, whether records are missing, whether more had ended."""

    entries: list[Entry]
    next: int
    gap: bool
    more: bool


class Journal:
    """Bounded, append-only, read by cursor."""

    def __init__(
        self, folder: Path, epoch: str, max_bytes: int, executor: Executor, ring: int = RING_RECORDS
    ) -> None:
        self._folder = folder
        self._epoch = epoch
        self._segment_bytes = min(max(8 * 1024, max_bytes // SEGMENTS), MAX_SEGMENT_BYTES)
        self._max_bytes = max_bytes
        self._executor = executor
        self._ring: deque[Entry] = deque(maxlen=ring)
        self._unwritten: deque[Entry] = deque(maxlen=UNWRITTEN_RECORDS)
        self._segment: Path | None = None
        self._segment_size = 0
        self.last_seq = 0
        self.write_errors = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._make_room(0)

    def append(self, record: RequestRecord) -> None:
        """Add a record; its sequence must be the next one."""
        if record.seq != self.last_seq + 1:
            raise ValueError(f"sequence {record.seq} does not follow {self.last_seq}")
        line = _encode(record.to_json()).encode()
        entry = Entry(record.seq, record.at, record.route, line)
        self.last_seq = record.seq
        self._ring.append(entry)
        self._unwritten.append(entry)

    @property
    def first_in_ring(self) -> int:
        """The oldest sequence in memory, or the next one when it is empty."""
        return self._ring[0].seq if self._ring else self.last_seq + 1

    def cursor_for_tail(self, since: float) -> int:
        """Return the cursor before the first record in memory that ended at `since` or later."""
        return self.first_in_ring - 1 + bisect_left(self._ring, since, key=lambda entry: entry.at)

    async def read(self, after: int, limit: int, route: str | None) -> Slice:
        """Read records after a cursor; -1 starts at the oldest kept."""
        last = self.last_seq
        if after > last:  # a cursor of another epoch
            return Slice([], last, True, False)
        if after < 0 and self.first_in_ring == 1:
            after = 0
        if after + 1 >= self.first_in_ring:
            # From the new end: a reader that keeps up pays for what is new, not for the ring.
            kept = list(islice(reversed(self._ring), last - after))
            kept.reverse()
            return _slice(kept, after, last, limit, route)
        await self.flush()
        loop = asyncio.get_running_loop()
        kept = await loop.run_in_executor(self._executor, self._from_disk, after, last, limit)
        first = kept[0].seq if kept else last + 1
        cursor = first - 1 if after < 0 else after
        found = _slice(kept, cursor, kept[-1].seq if kept else last, limit, route)
        more = found.more or found.next < last
        hole = bool(kept) and kept[-1].seq - first + 1 != len(kept)  # a write had failed
        return Slice(found.entries, found.next, hole or 0 <= after != first - 1, more)

    def _from_disk(self, after: int, last: int, limit: int) -> list[Entry]:
        found: list[Entry] = []
        segments = sorted(self._folder.glob(f"{self._epoch}-*.jsonl"))
        starts = [int(path.stem.rpartition("-")[2]) for path in segments]
        begin = max(0, bisect_left(starts, after + 2) - 1)
        for path in segments[begin:]:
            for line in path.read_bytes().splitlines():
                raw = json.loads(line)
                if after < raw["seq"] <= last:
                    found.append(Entry(raw["seq"], raw["at"], raw["route"], line))
            if len(found) > limit:
                break
        return found

    async def flush(self) -> None:
        """Write what is not on disk yet."""
        batch = list(self._unwritten)
        self._unwritten.clear()
        if batch:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._executor, self._write, batch)

    def _write(self, batch: list[Entry]) -> None:
        """Write a batch; a full disk must not stop the traffic, so it is counted, not raised."""
        lines: list[bytes] = []
        try:
            for entry in batch:
                if self._segment is None or self._segment_size >= self._segment_bytes:
                    self._put(lines)
                    lines = []
                    self._make_room(self._segment_bytes)
                    self._segment = self._folder / f"{self._epoch}-{entry.seq:012d}.jsonl"
                    self._segment_size = 0
                lines.append(entry.line)
                self._segment_size += len(entry.line) + 1
            self._put(lines)
        except OSError:
            self.write_errors += 1

    def _put(self, lines: list[bytes]) -> None:
        if lines and self._segment is not None:
            with self._segment.open("ab") as stream:
                stream.write(b"\n".join(lines) + b"\n")

    def _make_room(self, wanted: int) -> None:
        """Delete the oldest segments, of any epoch, until `wanted` bytes fit."""
        segments = sorted(self._folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        size = sum(path.stat().st_size for path in segments)
        for path in segments:
            if size + wanted <= self._max_bytes:
                return
            size -= path.stat().st_size
            path.unlink()

    def size_bytes(self) -> int:
        """Return the bytes on disk."""
        return sum(os.stat(path).st_size for path in self._folder.glob("*.jsonl"))


def _slice(kept: list[Entry], after: int, last: int, limit: int, route: str | None) -> Slice:
    entries: list[Entry] = []
    cursor = after
    for entry in kept:
        if route is None or entry.route == route:
            if len(entries) == limit:
                return Slice(entries, cursor, False, True)
            entries.append(entry)
        cursor = entry.seq
    return Slice(entries, last, False, False)
