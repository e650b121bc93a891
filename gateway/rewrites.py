"""Answers whose meaning is changed: constant embeddings, and spoilt arguments of tool calls.

A plain answer is held back to its end and rewritten whole. A streamed tool call is held back until
its arguments are complete, and the spoilt text is dealt out over the same events; all else passes
at once. An answer that has nothing to spoil leaves byte for byte as it came.
"""

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from faults.parameters import ToolCalls
from gateway.events import document_of, dump, event_of, is_done
from gateway.flight import Flight
from gateway.items import RunningFault
from gateway.steps import Send, Step
from gateway.stream_shapers import EventShaper

MAX_WHOLE_BYTES = 32 * 1024 * 1024
"""Longest plain answer that is rewritten; longer ones pass."""

Json = dict[str, Any]
Rewrite = Callable[[Json], bool]
"""Changes a document in place; says whether it could."""


class Whole:
    """Holds a plain JSON answer back and rewrites it."""

    def __init__(self, flight: Flight, item: RunningFault, rewrite: Rewrite) -> None:
        self._flight = flight
        self._item = item
        self._rewrite = rewrite
        self._held = bytearray()
        self._passes = False

    def feed(self, chunk: bytes) -> Iterable[Step]:
        """Hold everything back while the item lasts."""
        self._held += chunk
        if not self._item.active or len(self._held) > MAX_WHOLE_BYTES:
            self._passes = True
        if self._passes:
            yield from self._release()

    def end(self) -> Iterable[Step]:
        """Give the answer, rewritten if it can be."""
        if self._item.active and not self._passes:
            try:
                document = json.loads(self._held)
            except (ValueError, RecursionError):
                document = None
            if isinstance(document, dict) and self._rewrite(document):
                self._flight.touch(self._item)
                self._held = bytearray(dump(document))
        yield from self._release()

    def _release(self) -> Iterable[Step]:
        held, self._held = bytes(self._held), bytearray()
        if held:
            yield Send(held)


def constant_embeddings(document: Json, vector: str) -> bool:
    """Replace every vector, list or base64 of 32-bit floats, by one of the same dimension."""
    data = document.get("data")
    changed = False
    for entry in data if isinstance(data, list) else ():
        old = entry.get("embedding") if isinstance(entry, dict) else None
        if isinstance(old, list) and old:
            entry["embedding"] = [_component(vector, len(old))] * len(old)
            changed = True
        elif isinstance(old, str) and (size := _dimension(old)):
            packed = struct.pack("<f", _component(vector, size)) * size
            entry["embedding"] = base64.b64encode(packed).decode()
            changed = True
    return changed


def _component(vector: str, size: int) -> float:
    return 1 / math.sqrt(size) if vector == "unit" else 0.0


def _dimension(text: str) -> int:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return 0
    return len(raw) // 4 if len(raw) % 4 == 0 else 0


def spoil_arguments(arguments: str, kind: str, required: tuple[str, ...]) -> str | None:
    """Return spoilt arguments of a tool call, or None if there is nothing to spoil.

    Args:
        arguments: the complete JSON text.
        kind: how, as `ToolCalls` has it.
        required: the fields that the tool's schema requires, if known.
    """
    text = arguments.rstrip()
    if kind == "truncated":
        return text[: len(text) // 2] if len(text) >= 2 else None
    try:
        fields = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or not fields:
        return None
    name = next((field for field in required if field in fields), next(iter(fields)))
    if kind == "missing-required":
        del fields[name]
    else:
        fields[name] = _other_type(fields[name])
    return json.dumps(fields, ensure_ascii=False)


def _other_type(value: object) -> object:
    return 0 if isinstance(value, str) or value is None else json.dumps(value)


def required_fields(request: bytes) -> Mapping[str, tuple[str, ...]]:
    """Return tool name → required fields, as a request's schemas have them."""
    try:
        document = json.loads(request)
    except (ValueError, RecursionError):
        return {}
    tools = document.get("tools") if isinstance(document, dict) else None
    found = {}
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, dict) else None
        schema = function.get("parameters") if isinstance(function, dict) else None
        required = schema.get("required") if isinstance(schema, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(required, list) and isinstance(name, str):
            found[name] = tuple(field for field in required if isinstance(field, str))
    return found


def spoil_tool_calls(document: Json, kind: str, required: Mapping[str, tuple[str, ...]]) -> bool:
    """Spoil every tool call of a plain answer."""
    changed = False
    for _, call in _calls(document, "message"):
        function = call["function"]
        wanted = required.get(str(function.get("name")), ())
        spoilt = spoil_arguments(function.get("arguments") or "", kind, wanted)
        if spoilt is not None:
            function["arguments"] = spoilt
            changed = True
    return changed


Key = tuple[int, int]


def _calls(document: Json, part: str) -> Iterable[tuple[Key, Json]]:
    """Give each tool call of an answer or of a chunk, with its choice and its index."""
    choices = document.get("choices")
    for place, choice in enumerate(choices if isinstance(choices, list) else ()):
        message = choice.get(part) if isinstance(choice, dict) else None
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        for position, call in enumerate(calls if isinstance(calls, list) else ()):
            if not isinstance(call, dict) or not isinstance(call.get("function"), dict):
                continue
            arguments = call["function"].get("arguments")
            if arguments is None or isinstance(arguments, str):
                yield (_index(choice, place), _index(call, position)), call


def _index(part: Json, position: int) -> int:
    index = part.get("index", position)
    return index if isinstance(index, int) else position


class ToolStream(EventShaper):
    """Holds streamed tool calls back until they are complete, and spoils their arguments."""

    def __init__(self, flight: Flight, item: RunningFault, given: ToolCalls) -> None:
        super().__init__(flight, item)
        self._given = given
        self._waiting: list[tuple[bytes, Json | None]] = []
        self._calling: set[int] = set()
        """Choices whose calls may go on."""

    def shape(self, event: bytes) -> Iterable[Step]:
        """Hold back from the first piece of a call until the answer is finished."""
        document = document_of(event)
        chunk = document or {}
        self._calling |= {choice for (choice, _), _ in _calls(chunk, "delta")}
        if not self._calling and not self._waiting:
            yield Send(event)
            return
        self._waiting.append((event, document))
        self._calling -= _finished(chunk)
        if is_done(event) or not self._calling:
            yield from self._spoil()

    def end(self) -> Iterable[Step]:
        """Spoil what waits, if the answer ended without saying so."""
        if self._acts():
            yield from self._spoil()
        yield from super().end()

    def held(self) -> Iterable[Step]:
        """Give the waiting events as they came."""
        waiting, self._waiting = self._waiting, []
        for event, _ in waiting:
            yield Send(event)

    def _spoil(self) -> Iterable[Step]:
        spoilt = self._spoilt()
        self._calling.clear()
        if not spoilt:
            yield from self.held()
            return
        self.act(last=False)
        waiting, self._waiting = self._waiting, []
        for event, document in waiting:
            changed = False
            for key, call in _calls(document or {}, "delta"):
                if spoilt.get(key) and call["function"].get("arguments"):
                    call["function"]["arguments"] = spoilt[key].pop(0)
                    changed = True
            yield Send(event_of(document) if changed and document is not None else event)

    def _spoilt(self) -> dict[Key, list[str]]:
        """Return the new arguments of each call that can be spoilt, in as many pieces as before."""
        names: dict[Key, str] = {}
        pieces: dict[Key, list[str]] = {}
        for _, document in self._waiting:
            for key, call in _calls(document or {}, "delta"):
                function = call["function"]
                names[key] = names.get(key) or str(function.get("name") or "")
                if piece := function.get("arguments"):
                    pieces.setdefault(key, []).append(piece)
        found = {}
        for key, parts in pieces.items():
            wanted = self._flight.required_fields.get(names[key], ())
            new = spoil_arguments("".join(parts), self._given.kind, wanted)
            if new is not None:
                found[key] = _deal(new, [len(part) for part in parts])
        return found


def _deal(text: str, sizes: list[int]) -> list[str]:
    """Cut the text into pieces of these sizes; the last one gets what is left."""
    pieces, at = [], 0
    for size in sizes[:-1]:
        pieces.append(text[at : at + size])
        at += size
    return [*pieces, text[at:]]


def _finished(document: Json) -> set[int]:
    """Return the choices that a chunk finishes."""
    choices = document.get("choices")
    return {
        _index(choice, place)
        for place, choice in enumerate(choices if isinstance(choices, list) else ())
        if isinstance(choice, dict) and choice.get("finish_reason")
    }
