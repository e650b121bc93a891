"""Drive Burnproof's gateway over its admin API: leases, items, journal, stop.

It translates HTTP into the error tree of `targets.errors` and nothing more: it never retries an act
(the caller's activity policy does) and never decides. The hard part is a lost answer: after a
time-out the act may have happened, so every act carries an id and may be repeated, and the reverts
accept "was never applied".
"""

import time
from collections.abc import Mapping
from typing import Any

import httpx

from targets.errors import (
    TargetError,
    TargetNotFound,
    TargetProtocolError,
    TargetRejected,
    TargetTimeout,
    TargetUnavailable,
)

ADMIN = "/_burnproof"
# Source: ours, 2026-12. An admin act on loopback takes 1-3 ms; an inject attempt is bounded by 8 s.
TIMEOUT_SECONDS = 5.0
PROBE_HEADER = "x-burnproof-probe"
PIN_HEADER = "x-burnproof-replica"


class GatewayAdmin:
    """Talk to one gateway. Holds one connection pool; close it with `aclose`."""

    def __init__(
        self,
        base_url: str,
        token: str,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Take the gateway's address and admin token; `transport` is the seam for tests."""
        self._token = token
        self._client = httpx.AsyncClient(
            base_url=base_url.rstrip("/"),
            timeout=TIMEOUT_SECONDS,
            transport=transport,
            trust_env=False,
        )

    async def aclose(self) -> None:
        """Close the connection pool."""
        await self._client.aclose()

    async def state(self) -> dict[str, Any]:
        """Return the gateway's own state: epoch, clock, stopped, what it dropped at start."""
        return await self._call("GET", "/state")

    async def routes(self) -> list[dict[str, Any]]:
        """Return every route with its replicas, breakers, split and open leases."""
        found = (await self._call("GET", "/routes"))["routes"]
        return list(found)

    async def open_lease(
        self, lease_id: str, run_id: str, route: str, seconds: float
    ) -> dict[str, Any]:
        """Open a lease; repeating it while open is done already.

        Raises:
            TargetRejected: closed before (`lease_closed`), route taken (`route_busy`), `stopped`.
        """
        body = {"lease_id": lease_id, "run_id": run_id, "route": route, "seconds": seconds}
        return await self._call("POST", "/leases", body)

    async def renew_lease(self, lease_id: str, seconds: float) -> dict[str, Any]:
        """Move the deadline to `seconds` from now. A lapsed lease is refused for ever."""
        return await self._call("POST", f"/leases/{lease_id}/renew", {"seconds": seconds})

    async def lease(self, lease_id: str) -> dict[str, Any]:
        """Return one lease as the gateway sees it."""
        return await self._call("GET", f"/leases/{lease_id}")

    async def open_leases(self) -> list[dict[str, Any]]:
        """Return the leases that are open now."""
        found = (await self._call("GET", "/leases?open=true"))["leases"]
        return list(found)

    async def attach(
        self, lease_id: str, item_id: str, kind: str, spec: dict[str, Any]
    ) -> dict[str, Any]:
        """Attach a split, a fault or a breaker setting to an open lease; return what was seen."""
        path = f"/leases/{lease_id}/items/{item_id}"
        return await self._call("PUT", path, {"kind": kind, "spec": spec})

    async def detach(self, lease_id: str, item_id: str) -> dict[str, Any]:
        """Remove an item; removing what was never there is done already."""
        return await self._call("DELETE", f"/leases/{lease_id}/items/{item_id}")

    async def close_lease(self, lease_id: str) -> dict[str, Any]:
        """Close a lease and everything on it, also one this gateway never saw (a tombstone)."""
        return await self._call("POST", f"/leases/{lease_id}/close", {})

    async def journal(
        self,
        route: str,
        after: int | None = None,
        tail_seconds: float | None = None,
        lease_id: str | None = None,
        limit: int = 5000,
        cursors: Mapping[str, int] | None = None,
    ) -> dict[str, Any]:
        """Read one page of request records after a cursor, or from `tail_seconds` ago.

        `cursors` are for several gateways (`gateway_fleet`): this one has `after`.
        """
        query: dict[str, str | int | float] = {"route": route, "limit": limit}
        if after is not None:
            query["after"] = after
        elif tail_seconds is not None:
            query["tail"] = tail_seconds
        if lease_id is not None:
            query["lease"] = lease_id
        return await self._call("GET", "/journal", params=query)

    async def traces(self, limit: int) -> dict[str, Any]:
        """Return the latest sampled requests and what they stand for."""
        return await self._call("GET", "/traces", params={"limit": limit})

    async def stop(self, reason: str) -> dict[str, Any]:
        """Withdraw everything now and refuse new leases until released."""
        return await self._call("POST", "/stop", {"reason": reason})

    async def release(self) -> dict[str, Any]:
        """Allow new leases again."""
        return await self._call("POST", "/release", {})

    async def probe(self, model: str, replica: str, deadline_seconds: float) -> dict[str, Any]:
        """Ask one replica for one token through the gateway, labelled so that no SLI counts it.

        Returns:
            status (0 when no token came: no connection, or an answer that holds none), seconds,
            text of the error if any.
        """
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "ping"}],
            "max_tokens": 1,
            "temperature": 0,
        }
        headers = {PROBE_HEADER: self._token, PIN_HEADER: replica}
        began = time.monotonic()
        try:
            answer = await self._client.post(
                "/v1/chat/completions", json=body, headers=headers, timeout=deadline_seconds
            )
        except httpx.TimeoutException:
            return {"status": 0, "error": f"no token within {deadline_seconds:g} s"}
        except httpx.TransportError as lost:
            return {"status": 0, "error": f"connection failed: {type(lost).__name__}"}
        status, error = answer.status_code, ""
        if status != httpx.codes.OK:
            error = answer.text[:200]
        elif not _holds_a_token(answer):
            status, error = 0, f"answered 200 without a token: {answer.text[:200]!r}"
        return {
            "status": status,
            "seconds": time.monotonic() - began,
            "error": error,
        }

    async def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        params: dict[str, str | int | float] | None = None,
    ) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {self._token}"}
        try:
            answer = await self._client.request(
                method, ADMIN + path, json=body, params=params, headers=headers
            )
        except httpx.TimeoutException as late:
            raise TargetTimeout(f"gateway gave no answer to {method} {path} in time") from late
        except httpx.RequestError as lost:
            raise TargetUnavailable(
                f"gateway does not answer {method} {path}: {type(lost).__name__}"
            ) from lost
        return _read(method, path, answer)


def _read(method: str, path: str, answer: httpx.Response) -> dict[str, Any]:
    try:
        body = answer.json()
    except ValueError as garbled:
        raise TargetProtocolError(
            f"gateway answered {answer.status_code} to {method} {path} without JSON"
        ) from garbled
    if not isinstance(body, dict):
        raise TargetProtocolError(f"gateway answered {method} {path} with no JSON object")
    if answer.is_success:
        return body
    code = str(body.get("error", ""))
    raise _error_class(answer.status_code)(
        f"gateway refused {method} {path}: {code}: {str(body.get('message', ''))[:300]}", code
    )


def _error_class(status: int) -> type[TargetError]:
    if status == httpx.codes.NOT_FOUND:
        return TargetNotFound
    if status >= httpx.codes.INTERNAL_SERVER_ERROR:
        return TargetUnavailable
    return TargetRejected


def _holds_a_token(answer: httpx.Response) -> bool:
    """Tell whether a completion has a choice: any proxy can answer 200 for a dead engine."""
    try:
        document = answer.json()
    except ValueError:
        return False
    choices = document.get("choices") if isinstance(document, dict) else None
    return isinstance(choices, list) and any(isinstance(choice, dict) for choice in choices)
