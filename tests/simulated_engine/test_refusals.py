import json

import pytest

from tests.simulated_engine.running import chat, serving

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
BAD = "BadRequestError"


def surrogate(path):
    """A body with half a surrogate pair, escaped, as the bytes would come."""
    field = {"messages": [{"role": "user", "content": "a"}]} if path == CHAT else {"prompt": "a"}
    return json.dumps(field).replace('"a"', '"a\\ud83d b"').encode()


REFUSALS = [
    pytest.param(CHAT, b"{oops", 400, "Bad Request", "JSON decode error", id="no JSON"),
    pytest.param(CHAT, b"[1]", 400, BAD, "must be a JSON object", id="no object"),
    pytest.param(CHAT, surrogate(CHAT), 400, BAD, "TextEncodeInput", id="surrogate in a chat"),
    pytest.param(PLAIN, surrogate(PLAIN), 400, BAD, "TextEncodeInput", id="surrogate in a prompt"),
    pytest.param(
        PLAIN,
        b'{"prompt": "a", "stop": "\\ud83d"}',
        500,
        "InternalServerError",
        "",
        id="surrogate in stop is an empty 500",
    ),
    pytest.param(
        CHAT, b'{"model": "\\ud83d", "messages": []}', 400, BAD, "surrogates", id="in the model"
    ),
    pytest.param(CHAT, chat("x" * 9000), 400, BAD, "at least 2049 input tokens", id="over-long"),
    pytest.param(
        CHAT, chat("x" * 200_000), 400, BAD, "more than 190464 characters", id="far over-long"
    ),
    pytest.param(
        CHAT,
        chat(max_tokens=100_000),
        400,
        BAD,
        "cannot be greater than max_model_len=2048",
        id="max_tokens beyond the context",
    ),
    pytest.param(
        CHAT, chat(max_tokens=2045), 400, BAD, "for a total of 2051 tokens", id="sum over-long"
    ),
    pytest.param(CHAT, chat(max_tokens=-1), 400, BAD, "must be at least 1", id="negative length"),
    pytest.param(PLAIN, {"prompt": ""}, 400, BAD, "must be provided", id="empty prompt"),
    pytest.param(CHAT, chat(n=3), 400, BAD, "n must be 1", id="more than one choice"),
    pytest.param(
        CHAT,
        b'{"messages": [{"content": "a"}], "temperature": NaN}',
        400,
        BAD,
        "finite",
        id="temperature NaN",
    ),
    pytest.param(
        CHAT,
        chat(model="nope"),
        404,
        "NotFoundError",
        "The model `nope` does not exist",
        id="unknown model",
    ),
]


@pytest.mark.parametrize(("path", "body", "status", "kind", "words"), REFUSALS)
async def test_a_bad_request_is_refused_like_vllm_refuses_it(path, body, status, kind, words):
    async with serving() as (url, session):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with session.post(url + path, data=data) as response:
            answer = await response.json()
            assert response.status == status
            assert response.headers["server"] == "burnproof-simulated-engine"
        async with session.post(url + CHAT, json=chat()) as response:
            assert response.status == 200, "the engine must go on serving"
    assert answer["error"]["type"] == kind
    assert answer["error"]["code"] == status
    assert words in answer["error"]["message"]
    assert bool(words) == bool(answer["error"]["message"])


async def test_an_unknown_path_is_404_and_a_wrong_method_405():
    async with serving() as (url, session):
        async with session.get(f"{url}/nope") as response:
            assert (response.status, await response.json()) == (404, {"detail": "Not Found"})
        async with session.get(url + CHAT) as response:
            assert response.status == 405
