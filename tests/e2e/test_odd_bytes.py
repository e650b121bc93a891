"""C06 and its kin on the real engine: what cannot be text reaches it as it was sent.

After the examples, by its name: refused requests are bad events of the route.
"""

import json

import httpx
import pytest

from slo.records import Outcome, Page
from tests.e2e.conftest import RealStack

pytestmark = pytest.mark.e2e

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"


def chat(content: str) -> bytes:
    body = {"model": "tiny-chat", "max_tokens": 2, "messages": [{"role": "user", "content": "@"}]}
    return json.dumps(body).replace("@", content).encode()


def plain(extra: str) -> bytes:
    return f'{{"model": "tiny-chat", "max_tokens": 2, "prompt": "a"{extra}}}'.encode()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        pytest.param(CHAT, chat("a\\ud83d b"), 400, id="first half of a pair"),
        pytest.param(CHAT, chat("a\\ude00 b"), 400, id="second half of a pair"),
        pytest.param(CHAT, chat("\\ude00\\ud83d"), 400, id="halves in the wrong order"),
        pytest.param(CHAT, chat("\\ud83d\\ude00"), 200, id="a whole pair"),
        pytest.param(CHAT, chat("a\\u0000b"), 200, id="a NUL"),
        pytest.param(PLAIN, plain(', "stop": "\\ud83d"'), 500, id="half a pair in stop"),
        pytest.param(PLAIN, plain(', "user": "\\ud83d"'), 200, id="half a pair nobody reads"),
        pytest.param(CHAT, b'{"model": "tiny-chat", "messages": [', 400, id="half a document"),
        pytest.param(CHAT, b'{"model": "\xff\xfe"}', 400, id="bytes that are no text"),
    ],
)
def test_what_cannot_be_text_reaches_the_engine_as_it_was_sent(
    real: RealStack, path: str, body: bytes, status: int
) -> None:
    """The engine answers through the gateway just as it answers to the same bytes directly."""
    state = real.state
    headers = {"content-type": "application/json"}
    answers = []
    with httpx.Client(trust_env=False, timeout=120) as http:
        for address in (state.replicas["a"], state.gateway_url):
            answers.append(http.post(f"{address}{path}", content=body, headers=headers))
    direct, through = answers
    assert through.status_code == direct.status_code == status, (direct.text, through.text)
    if status != 200:
        assert through.content == direct.content
    else:
        assert through.json()["usage"] == direct.json()["usage"]


def test_a_refused_request_is_a_record_without_its_text(real: RealStack) -> None:
    state = real.state
    token = state.admin_token_file.read_text("utf-8").strip()
    with httpx.Client(trust_env=False, timeout=120) as http:
        sent = {"x-conversation-id": "half-a-pair", "content-type": "application/json"}
        address = f"{state.gateway_url}{CHAT}"
        assert http.post(address, content=chat("secret \\ud83d"), headers=sent).status_code == 400
        journal = http.get(
            f"{state.gateway_url}/_burnproof/journal",
            params={"route": state.route, "tail": 30},
            headers={"authorization": f"Bearer {token}"},
        )
    records = [r for r in Page.from_json(journal.json()).records if r.status == 400]
    assert records
    assert {record.outcome for record in records} == {Outcome.HTTP_ERROR}
    assert "secret" not in journal.text
