"""One completion request, read from bytes and checked the way the real engine checks.

It decides what is refused and with which words; it does not answer. The order of the checks is
part of the imitation: which error a doubly wrong request gets is what a fault campaign compares.
Strange on purpose, since the real engine is: half a surrogate pair is a clean 400 in a prompt and
an empty 500 in `stop`.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulated_engine.errors import ApiError, bad_request, internal_error
from simulated_engine.language import count_tokens

_TOKENS_PER_MESSAGE = 4
"""Tokens a chat template adds for each message. Source: ours, ChatML's markers."""

_MAX_CHARACTERS_PER_TOKEN = 93
"""Characters beyond which a prompt is refused unread, per token of context.

Source: vLLM 0.32 with a context of 2,048 tokens refuses above 190,464 characters."""

_DEFAULT_COMPLETION_TOKENS = 16
"""Source: OpenAI's completions reference, `max_tokens`."""


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request that will be answered."""

    model: str
    chat: bool
    prompt: bytes
    """What the answer's text depends on."""
    prompt_tokens: int
    max_tokens: int
    stream: bool
    include_usage: bool
    ignore_eos: bool


def read_request(
    raw: bytes, chat: bool, max_model_len: int, default_model: str
) -> CompletionRequest:
    """Read and check a request body, all but whether its model exists.

    Raises:
        ApiError: the body is no JSON object, or a field is refused.
    """
    fields = _read_object(raw)
    model = fields.get("model") or default_model
    if not isinstance(model, str):
        raise bad_request("model must be a string", "model")
    _refuse_surrogates(model, "'utf-8' codec can't encode character: surrogates not allowed")
    text = _chat_text(fields) if chat else _prompt_text(fields)
    prompt, prompt_tokens = _tokenise(text, chat, fields, max_model_len)
    _check_sampling(fields)
    stream_options = fields.get("stream_options")
    return CompletionRequest(
        model=model,
        chat=chat,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        max_tokens=_max_tokens(fields, chat, prompt_tokens, max_model_len),
        stream=bool(fields.get("stream", False)),
        include_usage=isinstance(stream_options, dict)
        and bool(stream_options.get("include_usage", False)),
        ignore_eos=bool(fields.get("ignore_eos", False)),
    )


def _read_object(raw: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(raw)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise ApiError(
            400,
            "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.1', "
            f"'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {{'error': "
            f"'{reason}'}}}}",
            "Bad Request",
            "body.1",
        ) from error
    if not isinstance(fields, dict):
        raise bad_request("the request body must be a JSON object", "body")
    return fields


def _refuse_surrogates(text: str, message: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise bad_request(message) from error


def _chat_text(fields: Mapping[str, Any]) -> str:
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad_request("messages must be a non-empty list", "messages")
    parts: list[str] = []
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            parts.append(content)
        elif isinstance(content, list):
            parts += [str(part["text"]) for part in content if _is_text_part(part)]
    return "\n".join(parts)


def _is_text_part(part: object) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _prompt_text(fields: Mapping[str, Any]) -> str:
    prompt = fields.get("prompt")
    if isinstance(prompt, list):
        prompt = " ".join(str(item) for item in prompt)
    if not isinstance(prompt, str) or not prompt:
        raise bad_request(
            "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)",
            "prompt",
        )
    return prompt


def _tokenise(
    text: str, chat: bool, fields: Mapping[str, Any], max_model_len: int
) -> tuple[bytes, int]:
    limit = f"This model's maximum context length is {max_model_len} tokens. However, your prompt "
    advice = "Please reduce the length of the input prompt."
    most = max_model_len * _MAX_CHARACTERS_PER_TOKEN
    if len(text) > most:
        raise bad_request(
            f"{limit}contains {len(text)} characters (more than {most} characters, which is the "
            f"upper bound for {max_model_len} input tokens). {advice} "
            f"(parameter=input_text, value={len(text)})",
            "input_text",
        )
    encoded = _refuse_surrogates(
        text,
        "TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]",
    )
    extra = _TOKENS_PER_MESSAGE * len(fields["messages"]) if chat else 0
    tokens = max(1, count_tokens(text) + extra)
    if tokens > max_model_len:
        at_least = max_model_len + 1
        raise bad_request(
            f"{limit}contains at least {at_least} input tokens, which exceeds this limit even "
            f"without any output tokens. {advice} (parameter=input_tokens, value={at_least})",
            "input_tokens",
        )
    return encoded, tokens


def _check_sampling(fields: Mapping[str, Any]) -> None:
    temperature = fields.get("temperature")
    if isinstance(temperature, float) and not math.isfinite(temperature):
        raise bad_request(
            f"temperature must be a finite number, got {temperature}. "
            f"(parameter=temperature, value={temperature})",
            "temperature",
        )
    if fields.get("n") not in {None, 1}:
        raise bad_request("the simulated engine gives one choice only: n must be 1", "n")
    stop = fields.get("stop")
    for text in stop if isinstance(stop, list) else [stop]:
        if isinstance(text, str):
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise internal_error("") from error


def _max_tokens(
    fields: Mapping[str, Any], chat: bool, prompt_tokens: int, max_model_len: int
) -> int:
    room = max_model_len - prompt_tokens
    asked = fields.get("max_completion_tokens") if chat else None
    if asked is None:
        asked = fields.get("max_tokens")
    if asked is None:
        return max(1, room if chat else min(room, _DEFAULT_COMPLETION_TOKENS))
    if not isinstance(asked, int) or asked < 1:
        raise bad_request(
            f"max_tokens must be at least 1, got {asked}. (parameter=max_tokens, value={asked})",
            "max_tokens",
        )
    if asked > max_model_len:
        raise bad_request(
            f"max_tokens={asked} cannot be greater than max_model_len={max_model_len}. "
            f"Please request fewer output tokens. (parameter=max_tokens, value={asked})",
            "max_tokens",
        )
    if asked > room:
        raise bad_request(
            f"This model's maximum context length is {max_model_len} tokens. However, you "
            f"requested {asked} output tokens and your prompt contains {prompt_tokens} input "
            f"tokens, for a total of {asked + prompt_tokens} tokens. Please reduce the length "
            "of the input prompt or the number of requested output tokens.",
            "input_tokens",
        )
    return asked
