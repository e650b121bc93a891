"""Sampled requests for tests."""

from typing import Any

from topology.traces import RequestTrace


def trace(**changes: Any) -> RequestTrace:
    """Return a stream of four events: role, two tokens, end."""
    raw: dict[str, Any] = {
        "trace_id": "0" * 31 + "1",
        "is_chosen_here": True,
        "route": "chat",
        "replica": "a",
        "arm": "",
        "outcome": "ok",
        "accepted": 1.8e9,
        "is_stream": True,
        "sent_s": 0.01,
        "first_token_s": 0.2,
        "e2e_s": 0.5,
        "chunks": [0.2, 0.2, 0.3, 0.45],
        "content": [0, 1, 1, 0],
        "dropped_chunks": 0,
        "prompt_bytes": 600,
        "prefixes": ["p1", "p2"],
        "client_run_id": "",
    }
    return RequestTrace.from_json({**raw, **changes, "newer": 1})
