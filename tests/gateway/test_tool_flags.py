"""A14: what a fault did to a tool call is a flag of the record, streamed or not."""

import json
from pathlib import Path

import pytest

from slo.objective import Indicator
from tests.gateway.harness import DONE, FINISH, Gate, Seen, Stub, answer, event, streams

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
ASKED = {
    "model": "m",
    "messages": [],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}],
}
ARGUMENTS = '{"city": "Oslo", "days": 2}'


def call(arguments: str, **more: str) -> dict[str, object]:
    return {"index": 0, "function": {"arguments": arguments, **more}}


def delta(*calls: object) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"tool_calls": list(calls)}}]})


async def whole(seen: Seen) -> None:
    message = {"tool_calls": [call(ARGUMENTS, name="weather")]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    body = json.dumps({"choices": [choice]}).encode()
    await seen.send(answer(body, "Content-Type: application/json"))


FIRST, SECOND = delta(call(ARGUMENTS[:9], name="weather")), delta(call(ARGUMENTS[9:]))


@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        (None, ()),
        ("truncated", ("bad_tool_json",)),
        ("missing-required", ("bad_tool_fields",)),
        ("wrong-type", ("bad_tool_fields",)),
    ],
)
async def test_each_kind_of_spoilt_call_has_its_flag_and_a_sound_one_has_none(
    tmp_path: Path, kind: str | None, flags: tuple[str, ...], is_stream: bool
):
    script = streams(FIRST, SECOND, FINISH, DONE) if is_stream else whole
    async with Stub(script) as stub, Gate(tmp_path, {"a": stub.url}) as gate:
        if kind is not None:
            await gate.lease()
            await gate.fault("gateway/tool-calls", {"kind": kind, "probability": 1.0})
        asked = {**ASKED, "stream": is_stream}
        async with gate.client.post(gate.url + "/v1/chat/completions", json=asked) as got:
            await got.read()
        record = await gate.record()
        assert (record.outcome, record.flags) == ("ok", flags)
        assert record.touched == (() if kind is None else ("F",))
        strict = Indicator(bad_flags=("bad_tool_json", "bad_tool_fields"))
        assert strict.is_bad(record) == bool(flags)
