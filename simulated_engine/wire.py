"""Answers as bytes, in the shape vLLM 0.32 gives them.

A stream is: a role chunk, one chunk a token, the last of which carries the finish reason, then a
usage chunk with empty `choices` if it was asked for, then [DONE]. Chunks are put together from
pieces encoded once a request, since encoding each anew was most of the engine's work.

Two additions say what this is: `system_fingerprint` on the role chunk and on the usage chunk.
"""

import json
from typing import Any

from simulated_engine.options import FINGERPRINT
from simulated_engine.requests import CompletionRequest

DONE = b"data: [DONE]\n\n"

_FINGERPRINT_END = b',"system_fingerprint":"' + FINGERPRINT.encode() + b'"}\n\n'

_ROLE = (
    b',"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
    b'"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null' + _FINGERPRINT_END
)


def compact(value: object) -> bytes:
    """Encode as JSON without spaces."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


class StreamShape:
    """The chunks of one streamed answer."""

    def __init__(self, request: CompletionRequest, identity: str, created: int) -> None:
        self._chat = request.chat
        head = {
            "id": identity,
            "object": "chat.completion.chunk" if request.chat else "text_completion",
            "created": created,
            "model": request.model,
        }
        opening = b"data: " + compact(head)[:-1]
        self._opening = opening
        if request.chat:
            self._before = opening + b',"choices":[{"index":0,"delta":{"content":'
            self._middle = b'},"logprobs":null,"finish_reason":'
        else:
            self._before = opening + b',"choices":[{"index":0,"text":'
            self._middle = b',"logprobs":null,"finish_reason":'
        self._after = self._middle + b'null,"token_ids":null}]}\n\n'

    def role(self) -> bytes:
        """Return what precedes the first token: a role chunk in a chat, nothing otherwise."""
        if not self._chat:
            return b""
        return self._opening + _ROLE

    def token(self, encoded: bytes, finish_reason: str | None) -> bytes:
        """Return the chunk of one token, given as a JSON string."""
        if finish_reason is None:
            return self._before + encoded + self._after
        reason = b'"' + finish_reason.encode() + b'"'
        end = b',"stop_reason":null,"token_ids":null}]}\n\n'
        return self._before + encoded + self._middle + reason + end

    def usage(self, prompt_tokens: int, completion_tokens: int) -> bytes:
        """Return the usage chunk, which has no choice in it."""
        usage = {
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
        }
        return self._opening + b',"choices":[],"usage":' + compact(usage) + _FINGERPRINT_END


def whole_answer(
    request: CompletionRequest, head: dict[str, Any], text: str, finish_reason: str, tokens: int
) -> bytes:
    """Return the body of an answer that is not streamed.

    Args:
        request: What was asked.
        head: `id` and `created`.
        text: The whole answer.
        finish_reason: "length" or "stop".
        tokens: Tokens generated.
    """
    choice: dict[str, Any] = {"index": 0}
    if request.chat:
        choice["message"] = {
            "role": "assistant",
            "content": text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        }
    else:
        choice["text"] = text
    choice |= {
        "logprobs": None,
        "finish_reason": finish_reason,
        "stop_reason": None,
        "token_ids": None,
    }
    return compact(
        {
            "id": head["id"],
            "object": "chat.completion" if request.chat else "text_completion",
            "created": head["created"],
            "model": request.model,
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": {
                "prompt_tokens": request.prompt_tokens,
                "total_tokens": request.prompt_tokens + tokens,
                "completion_tokens": tokens,
                "prompt_tokens_details": None,
                "completion_tokens_details": None,
            },
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "prompt_text": None,
            "kv_transfer_params": None,
        }
    )
