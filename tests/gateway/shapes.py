"""A shaper without a gateway: one request, one item, and the steps written down."""

import json
from typing import Any

from multidict import CIMultiDict

from faults.catalog import parse_parameters
from gateway.flight import Flight
from gateway.items import FaultSpec, RunningFault
from gateway.shaping import Send, Shaper, Step, Wait, shaper_for

SSE = {"Content-Type": "text/event-stream; charset=utf-8"}
PLAIN = {"Content-Type": "application/json"}


def item(template: str, **parameters: Any) -> RunningFault:
    given = {"probability": 1.0, **parameters}
    spec = FaultSpec(template=template, parameters=given, replicas=("a",), max_seconds=60)
    return RunningFault("F", spec, 0.0, parameters=parse_parameters(template, given), seed=1)


def flight(*items: RunningFault, **more: Any) -> Flight:
    return Flight(key="1", accepted_mono=0.0, accepted_unix=0.0, armed=items, **more)


def shaper(it: Flight, kind: dict[str, str] = SSE, status: int = 200) -> Shaper:
    found = shaper_for(it, status, CIMultiDict(kind))
    assert found is not None
    return found


def steps(made: Shaper, *chunks: bytes) -> list[Step]:
    return [*(step for chunk in chunks for step in made.feed(chunk)), *made.end()]


def sent(found: list[Step]) -> bytes:
    return b"".join(step.data for step in found if isinstance(step, Send))


def waits(found: list[Step]) -> list[float]:
    return [step.seconds for step in found if isinstance(step, Wait)]


def tool_chunk(piece: str | None, name: str = "", finish: str | None = None) -> dict[str, Any]:
    function: dict[str, Any] = {"name": name} if name else {}
    if piece is not None:
        function["arguments"] = piece
    delta = {"tool_calls": [{"index": 0, "function": function}]} if function else {}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def joined_arguments(body: bytes) -> str:
    text = ""
    for line in body.split(b"\n"):
        if line.startswith(b"data: {"):
            for choice in json.loads(line[6:])["choices"]:
                for call in choice["delta"].get("tool_calls", ()):
                    text += call["function"].get("arguments", "")
    return text
