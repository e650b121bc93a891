"""The gateway's own small durable record: leases that are open, ids that may never open, the stop.

`leases.jsonl` gets one line when a lease opens and one when it ends, each with fsync; at start it
is read back, every lease found open is dropped, and the file is written anew (temporary file,
fsync, rename), so that a kill at any byte leaves a file that can be read: a torn last line is
ignored, and since a lease line is durable *before* the lease may hold anything, a torn line never
held a fault. `admin.jsonl` tells what was done, by line; `stop.json` is there while the gateway is
stopped. No token is ever handed to this module. All methods block: they run in the one writer
thread.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TOMBSTONES_KEPT = 20_000
"""Ended lease ids remembered. Source: ours: days of experiments; late calls come in minutes."""

ADMIN_LOG_BYTES = 16 * 1024 * 1024
"""Size at which the admin log moves to `admin.jsonl.1` and starts anew."""


@dataclass(slots=True)
class Found:
    """What the record said at start."""

    ended: dict[str, str] = field(default_factory=dict)
    """Lease id → closed, lapsed or dropped; the newly dropped included."""
    dropped: list[str] = field(default_factory=list)
    """Leases that were open when the last process died."""
    stop: dict[str, Any] | None = None


class DurableRecord:
    """The three files, in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._leases = folder / "leases.jsonl"
        self._admin = folder / "admin.jsonl"
        self._stop = folder / "stop.json"

    def recover(self, at: float) -> Found:
        """Read the record, drop what was open, and write it anew."""
        found = Found()
        opened: dict[str, dict[str, Any]] = {}
        for line in _lines(self._leases):
            lease_id, state = line.get("lease_id"), line.get("state")
            if not isinstance(lease_id, str) or not isinstance(state, str):
                continue
            if state == "open":
                opened[lease_id] = line
            else:
                opened.pop(lease_id, None)
                found.ended.pop(lease_id, None)
                found.ended[lease_id] = state
        for lease_id in opened:
            found.ended[lease_id] = "dropped"
            found.dropped.append(lease_id)
        kept = list(found.ended.items())[-TOMBSTONES_KEPT:]
        found.ended = dict(kept)
        lines = [{"lease_id": lease_id, "state": state, "at": at} for lease_id, state in kept]
        _replace(self._leases, b"".join(_line(each) for each in lines))
        for lease_id in found.dropped:
            self.tell({"at": at, "act": "drop", "lease_id": lease_id, "why": "gateway restarted"})
        stops = list(_lines(self._stop))
        found.stop = stops[-1] if stops else None
        return found

    def lease(self, line: dict[str, Any]) -> None:
        """Add a line about a lease and wait until it is on disk."""
        _append(self._leases, line)

    def tell(self, line: dict[str, Any]) -> None:
        """Add a line to the admin log."""
        if self._admin.exists() and self._admin.stat().st_size > ADMIN_LOG_BYTES:
            self._admin.replace(self._admin.with_suffix(".jsonl.1"))
        _append(self._admin, line)

    def stop(self, line: dict[str, Any] | None) -> None:
        """Set the stop, or release it with None."""
        if line is not None:
            _replace(self._stop, _line(line))
            return
        self._stop.unlink(missing_ok=True)
        _sync_folder(self._folder)


def _line(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _append(path: Path, document: dict[str, Any]) -> None:
    is_new = not path.exists()
    with path.open("ab") as stream:
        stream.write(_line(document))
        stream.flush()
        os.fsync(stream.fileno())
    if is_new:
        _sync_folder(path.parent)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the readable lines of a file; none if there is no file."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    found = []
    for line in raw.split(b"\n"):
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict):
            found.append(document)
    return found
