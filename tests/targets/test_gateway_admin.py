"""The gateway's admin client: every answer is a value or one error of ours, and acts carry ids."""

import json
from collections.abc import Callable

import httpx
import pytest

from targets.errors import (
    TargetError,
    TargetNotFound,
    TargetProtocolError,
    TargetRejected,
    TargetTimeout,
    TargetUnavailable,
)
from targets.gateway_admin import GatewayAdmin

TOKEN = "a-token-that-stays-here"


def admin(handler: Callable[[httpx.Request], httpx.Response]) -> GatewayAdmin:
    return GatewayAdmin("http://127.0.0.1:1", TOKEN, httpx.MockTransport(handler))


def raising(error: Exception) -> Callable[[httpx.Request], httpx.Response]:
    def handler(request: httpx.Request) -> httpx.Response:
        raise error

    return handler


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, TargetRejected),
        (401, TargetRejected),
        (404, TargetNotFound),
        (409, TargetRejected),
        (423, TargetRejected),
        (500, TargetUnavailable),
        (503, TargetUnavailable),
    ],
)
async def test_a_refusal_is_the_error_of_its_status_with_the_gateways_own_code(
    status: int, kind: type[TargetError]
) -> None:
    body = {"error": "lease_closed", "message": "it lapsed"}
    client = admin(lambda request: httpx.Response(status, json=body))
    with pytest.raises(kind, match="it lapsed") as caught:
        await client.renew_lease("a", 20)
    assert type(caught.value) is kind
    assert caught.value.code == "lease_closed"


def transport_errors() -> list[type[Exception]]:
    """Every error that the library can raise for a request, found by walking its tree."""
    found, todo = [], [httpx.RequestError]
    while todo:
        kind = todo.pop()
        found.append(kind)
        todo.extend(kind.__subclasses__())
    return sorted(found, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", transport_errors(), ids=lambda kind: kind.__name__)
async def test_every_error_of_the_library_is_one_of_ours(kind: type[Exception]) -> None:
    client = admin(raising(kind("lost")))
    with pytest.raises(TargetError) as caught:
        await client.state()
    wanted = TargetTimeout if issubclass(kind, httpx.TimeoutException) else TargetUnavailable
    assert type(caught.value) is wanted
    assert caught.value.retryable
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("content", [b"<html>", b"[1]", b"", b"null"])
async def test_an_answer_that_is_no_object_is_a_protocol_error(content: bytes) -> None:
    client = admin(lambda request: httpx.Response(200, content=content))
    with pytest.raises(TargetProtocolError):
        await client.routes()


async def test_acts_name_their_lease_and_item_and_carry_the_token() -> None:
    seen: list[tuple[str, str, object, str]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content) if request.content else None
        seen.append((request.method, request.url.path, body, request.headers["authorization"]))
        return httpx.Response(200, json={"state": "open"})

    client = admin(handler)
    await client.open_lease("l", "r", "chat", 20)
    await client.attach("l", "fault", "fault", {"template": "null"})
    await client.detach("l", "fault")
    await client.close_lease("l")
    await client.aclose()
    assert [(method, path) for method, path, _, _ in seen] == [
        ("POST", "/_burnproof/leases"),
        ("PUT", "/_burnproof/leases/l/items/fault"),
        ("DELETE", "/_burnproof/leases/l/items/fault"),
        ("POST", "/_burnproof/leases/l/close"),
    ]
    assert seen[0][2] == {"lease_id": "l", "run_id": "r", "route": "chat", "seconds": 20}
    assert {token for *_, token in seen} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (httpx.ReadTimeout("late"), "no token within 2 s"),
        (httpx.ConnectError("refused"), "connection failed: ConnectError"),
    ],
)
async def test_a_probe_that_gets_no_answer_is_status_0_and_says_why(
    error: Exception, said: str
) -> None:
    found = await admin(raising(error)).probe("tiny", "b", 2.0)
    assert found == {"status": 0, "error": said}


@pytest.mark.parametrize(
    "body", ["", "{}", "[]", "<html>all is well</html>", '{"choices": []}', '{"choices": [7]}', "{"]
)
async def test_a_200_that_holds_no_token_is_no_sign_of_life(body: str) -> None:
    found = await admin(lambda _: httpx.Response(200, text=body)).probe("tiny", "b", 2.0)
    assert found["status"] == 0
    assert found["error"].startswith("answered 200 without a token")


async def test_an_error_never_shows_the_token() -> None:
    client = admin(lambda request: httpx.Response(401, json={"error": "token", "message": "no"}))
    with pytest.raises(TargetRejected) as caught:
        await client.state()
    assert TOKEN not in repr(caught.value) + str(caught.value)
