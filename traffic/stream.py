"""Reading of one streamed answer, as the user at the other end sees it.

Fed with bytes as they come, cut anywhere, it knows when the first token was there and how the
stream ended. Traps it has to survive: comments and empty `data:` lines as keepalives, a usage
chunk with empty `choices`, a role chunk that is no token, an error object inside a 200 stream, a
clean close without an end.
"""

import json

_DATA = b"data:"
_SIMULATED = "SIMULATED"


class StreamReader:
    """State of one stream; times are seconds on the caller's clock."""

    def __init__(self) -> None:
        self._rest = b""
        self._texts: list[str] = []
        self._chunks = 0
        self._usage: int | None = None
        self._finished = False
        self._done = False
        self._last_token: float | None = None
        self.status = 0
        """HTTP status, kept here since a stream may break after it came; 0 before."""
        self.first_token: float | None = None
        """When the first non-empty text or tool delta came."""
        self.max_gap = 0.0
        """Longest silence after the first token, seconds."""
        self.error: str | None = None
        """Message of an error object in the stream."""
        self.simulated = False
        """The engine called itself simulated."""

    @property
    def tokens(self) -> int:
        """Tokens of the answer: the engine's count if it gave one, else text chunks."""
        return self._chunks if self._usage is None else self._usage

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._texts)

    @property
    def complete(self) -> bool:
        """The stream said why it ended and sent its end mark."""
        return self._finished and self._done

    def feed(self, data: bytes, now: float) -> None:
        """Take the next bytes, which came at `now`."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(_DATA):
                self._payload(line[len(_DATA) :].strip(), now)

    def whole(self, body: bytes, now: float) -> None:
        """Take the body of an answer that was not streamed."""
        self._payload(body, now)
        self._done = self._finished

    def close(self, now: float) -> None:
        """Note the end: a silence before it counts as a gap unless the answer was complete."""
        if self._last_token is not None and not self.complete:
            self.max_gap = max(self.max_gap, now - self._last_token)

    def _payload(self, payload: bytes, now: float) -> None:
        if not payload:
            return
        if payload == b"[DONE]":
            self._done = True
            return
        try:
            chunk = json.loads(payload)
        except (ValueError, RecursionError):
            self.error = self.error or "a data line is not JSON"
            return
        if isinstance(chunk, dict):
            self._chunk(chunk, now)

    def _chunk(self, chunk: dict[str, object], now: float) -> None:
        if chunk.get("error") is not None:
            self.error = str(chunk["error"])[:500]
            return
        if chunk.get("system_fingerprint") == _SIMULATED:
            self.simulated = True
        usage = chunk.get("usage")
        if isinstance(usage, dict) and isinstance(usage.get("completion_tokens"), int):
            self._usage = usage["completion_tokens"]
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            return
        choice = choices[0]
        # A whole answer carries a message where a stream carries deltas.
        delta = choice.get("delta") or choice.get("message")
        text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
        tools = isinstance(delta, dict) and bool(delta.get("tool_calls"))
        if isinstance(text, str) and text:
            self._texts.append(text)
        if tools or (isinstance(text, str) and text):
            self._token(now)
        if choice.get("finish_reason") is not None:
            self._finished = True

    def _token(self, now: float) -> None:
        self._chunks += 1
        if self._last_token is None:
            self.first_token = now
        else:
            self.max_gap = max(self.max_gap, now - self._last_token)
        self._last_token = now
