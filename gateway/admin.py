"""The admin API under /_burnproof: leases and their items, journal, counters, stop.

Every call needs the bearer token, every body is parsed strictly, every refusal is one line of JSON
`{"error": code, "message": text}`. Acts are idempotent by id: a caller that lost an answer asks
again. A receipt says what was observed after acting, not what was asked for, and an act that was
answered is in the admin log. No decision is made here.
"""

import hmac
import json
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from faults.lease import ItemState, LeaseError, LeaseState
from gateway.config import one_line
from gateway.core import Core
from gateway.items import KINDS, Running
from gateway.leases import AdminError, Entry
from gateway.names import Name
from gateway.routes import UnknownReplica
from gateway.tracing import RECENT
from slo.errors import SpecErrors

PREFIX = "/_burnproof"
RECENT_SECONDS = 300
"""Span of a route's `recent` counts: long enough to rank routes by risk."""

MAX_PAGE_RECORDS = 10_000
DEFAULT_PAGE_RECORDS = 1_000
DEFAULT_TRACES = 100

Handler = Callable[[web.Request], Awaitable[dict[str, Any] | bytes]]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class OpenLease(_Body):
    """Body of POST /leases."""

    lease_id: Name
    run_id: Name
    route: Name
    seconds: float = Field(gt=0, strict=True)


class RenewLease(_Body):
    """Body of POST /leases/{id}/renew."""

    seconds: float = Field(gt=0, strict=True)


class PutItem(_Body):
    """Body of PUT /leases/{id}/items/{item_id}."""

    kind: str
    spec: dict[str, Any]


class Stop(_Body):
    """Body of POST /stop."""

    reason: str = Field(min_length=1, max_length=500)


def parse_json(raw: bytes) -> dict[str, Any]:
    """Read one JSON object by the letter: no NaN, no key twice.

    Raises:
        AdminError: 400, with one line.
    """
    try:
        document = json.loads(raw, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise AdminError(400, "bad_json", f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise AdminError(400, "bad_json", "not a JSON object")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return document


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


class Admin:
    """The handlers, over one core."""

    def __init__(
        self, core: Core, token: str, reload: Callable[[str], Awaitable[dict[str, Any]]]
    ) -> None:
        self._core = core
        self._reload = reload
        self._expected = f"Bearer {token}".encode()

    def add_routes(self, app: web.Application) -> None:
        """Mount every path; anything else under the prefix is a 404 of ours."""
        for method, path, handler in (
            ("GET", "/state", self.state),
            ("GET", "/routes", self.routes),
            ("POST", "/leases", self.open_lease),
            ("GET", "/leases", self.list_leases),
            ("GET", "/leases/{lease}", self.get_lease),
            ("POST", "/leases/{lease}/renew", self.renew_lease),
            ("POST", "/leases/{lease}/close", self.close_lease),
            ("PUT", "/leases/{lease}/items/{item}", self.put_item),
            ("DELETE", "/leases/{lease}/items/{item}", self.delete_item),
            ("GET", "/journal", self.journal),
            ("GET", "/counters", self.counters),
            ("POST", "/reload", self.reload),
            ("GET", "/traces", self.traces),
            ("POST", "/stop", self.stop),
            ("POST", "/release", self.release),
        ):
            app.router.add_route(method, PREFIX + path, self._guarded(handler))
        app.router.add_route("*", PREFIX + "/{tail:.*}", self._guarded(self.nothing_here))
        app.router.add_route("*", PREFIX, self._guarded(self.nothing_here))

    def _guarded(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def run(request: web.Request) -> web.Response:
            given = request.headers.get("Authorization", "").encode("utf-8", "replace")
            if not hmac.compare_digest(given, self._expected):
                return _error(401, "unauthorized", "the admin token is missing or wrong")
            try:
                return _reply(await handler(request))
            except AdminError as error:
                return _error(error.status, error.code, str(error))
            except LeaseError as error:
                return _error(409, error.code, str(error))
            except ValidationError as error:
                return _error(400, "invalid", one_line(error))
            except (SpecErrors, UnknownReplica) as error:
                return _error(400, "invalid", "; ".join(str(error).splitlines()))
            except web.HTTPRequestEntityTooLarge:
                return _error(413, "too_large", "the body is too large")

        return run

    async def nothing_here(self, request: web.Request) -> dict[str, Any]:
        """Refuse an unknown path or method."""
        raise AdminError(404, "not_found", f"nothing at {request.method} {request.path}"[:300])

    # State

    async def state(self, _request: web.Request) -> dict[str, Any]:
        """Say which process this is and whether it is stopped."""
        self._core.leases.sweep()
        return self._core.state()

    async def routes(self, _request: web.Request) -> dict[str, Any]:
        """Say what each route is and what is on it."""
        now = self._core.clock.mono()
        views = []
        for route in self._core.routes.values():
            leases = self._core.leases.open_on(route)
            view = route.view(now)
            view["leases"] = [entry.lease.lease_id for entry in leases]
            view["in_flight"], view["oldest_in_flight"] = route.in_flight()
            counters = self._core.counters[route.config.name].seconds
            view["recent"] = counters.sums(self._core.clock.unix() - RECENT_SECONDS)
            views.append(view)
        return {"routes": views}

    # Leases

    async def open_lease(self, request: web.Request) -> dict[str, Any]:
        """Open a lease."""
        body = OpenLease.model_validate(parse_json(await request.read()))
        entry = await self._core.leases.open(body.lease_id, body.run_id, body.route, body.seconds)
        await self._core.leases.settle_writes()
        return self._lease_view(entry)

    async def list_leases(self, request: web.Request) -> dict[str, Any]:
        """List the open leases."""
        wanted = request.query.get("open", "true")
        if wanted != "true":
            raise AdminError(400, "invalid", "open: only open=true is known")
        return {"leases": [self._lease_view(entry) for entry in self._core.leases.open_on()]}

    async def get_lease(self, request: web.Request) -> dict[str, Any]:
        """Show one lease."""
        return self._view_of(request.match_info["lease"])

    async def renew_lease(self, request: web.Request) -> dict[str, Any]:
        """Renew a lease."""
        body = RenewLease.model_validate(parse_json(await request.read()))
        return self._lease_view(self._core.leases.renew(request.match_info["lease"], body.seconds))

    async def close_lease(self, request: web.Request) -> dict[str, Any]:
        """Close a lease, or forbid one that never came; say as what it ended, maybe before."""
        lease_id = request.match_info["lease"]
        entry, removed = self._core.leases.close(lease_id)
        await self._core.leases.settle_writes()
        view = self._view_of(lease_id)
        return {
            "lease_id": lease_id,
            "state": view["state"],
            "at": self._core.clock.unix(),
            "removed": removed,
            "still_touching": sum(each["still_touching"] for each in view["items"].values()),
            "observed": {"active_items": [] if entry is None else _active(entry), **view},
        }

    def _view_or_none(self, lease_id: str | None) -> dict[str, Any] | None:
        try:
            return None if lease_id is None else self._view_of(lease_id)
        except AdminError:
            return None

    def _view_of(self, lease_id: str) -> dict[str, Any]:
        found = self._core.leases.find(lease_id)
        if isinstance(found, Entry):
            return self._lease_view(found)
        return {"id": lease_id, "lease_id": lease_id, "state": found, "items": {}}

    def _lease_view(self, entry: Entry) -> dict[str, Any]:
        lease = entry.lease
        left = lease.deadline - self._core.clock.mono()
        is_open = lease.state is LeaseState.OPEN
        items = {}
        for item_id, item in entry.running.items():
            state = lease.items[item_id].state.value
            items[item_id] = {"kind": lease.items[item_id].kind, "state": state, **item.counts()}
        return {
            "id": lease.lease_id,
            "lease_id": lease.lease_id,
            "run_id": entry.run_id,
            "route": entry.route.config.name,
            "state": lease.state.value,
            "seconds_left": max(0.0, left) if is_open else 0.0,
            "granted_seconds": entry.granted_seconds,
            "items": items,
            **({"why": entry.why} if entry.why else {}),
        }

    # Items

    async def put_item(self, request: web.Request) -> dict[str, Any]:
        """Put a split, a fault or a breaker setting under a lease."""
        item_id = request.match_info["item"]
        body = PutItem.model_validate(parse_json(await request.read()))
        model = KINDS.get(body.kind)
        if model is None:
            raise AdminError(400, "invalid", f"kind: {body.kind!r} is none of {', '.join(KINDS)}")
        spec = model.model_validate(body.spec)
        entry, item, first = await self._core.leases.attach(
            request.match_info["lease"], item_id, body.kind, spec
        )
        await self._core.leases.settle_writes()
        return {
            "item_id": item_id,
            "kind": body.kind,
            "state": "active",
            "at": item.at_unix,
            "first": first,
            "observed": self._observed(entry, item),
        }

    async def delete_item(self, request: web.Request) -> dict[str, Any]:
        """Take an item off; say what of it is left."""
        lease_id, item_id = request.match_info["lease"], request.match_info["item"]
        entry, state = self._core.leases.detach(lease_id, item_id)
        await self._core.leases.settle_writes()
        item = None if entry is None else entry.running.get(item_id)
        never = state is ItemState.NEVER_APPLIED
        return {
            "item_id": item_id,
            "state": "never_applied" if never else "removed",
            "at": self._core.clock.unix(),
            "observed": self._observed(entry, item),
        }

    def _observed(self, entry: Entry | None, item: Running | None) -> dict[str, Any]:
        counts = (
            {"exposed": 0, "touched": 0, "still_touching": 0} if item is None else item.counts()
        )
        if entry is None:
            return {"active_items": [], **counts}
        faults = {name: [each.item_id for each in on] for name, on in entry.route.faults.items()}
        return {"active_items": _active(entry), "faults_on_replicas": faults, **counts}

    # Evidence

    async def journal(self, request: web.Request) -> bytes:
        """Return one page of records, with requests in flight as they were before it was read."""
        core = self._core
        core.leases.sweep()
        query = request.query
        limit = _number(query, "limit", DEFAULT_PAGE_RECORDS, 1, MAX_PAGE_RECORDS)
        route = self._route_name(query.get("route"))
        if "tail" in query:
            seconds = _number(query, "tail", 0, 0, 86_400)
            after = core.journal.cursor_for_tail(core.clock.unix() - seconds)
        else:
            after = int(_number(query, "after", -1, -1, 2**62))
        known = {**core.former, **core.routes}
        states = known.values() if route is None else [known[route]]
        in_flight: dict[str, int] = {}
        oldest: list[float] = []
        for state in states:
            counts, first = state.in_flight()
            for arm, count in counts.items():
                in_flight[arm] = in_flight.get(arm, 0) + count
            oldest += [] if first is None else [first]
        lease = self._view_or_none(query.get("lease"))
        head = {
            "now": core.clock.unix(),
            "after": after,
            "epoch": core.epoch,
            "in_flight": in_flight,
            "oldest_in_flight": min(oldest, default=None),
            "lease": lease,
        }
        found = await core.journal.read(after, int(limit), route)
        head |= {"next": found.next, "gap": found.gap, "more": found.more}
        lines = b",".join(entry.line for entry in found.entries)
        return json.dumps(head, allow_nan=False).encode()[:-1] + b',"records":[' + lines + b"]}"

    def _route_name(self, name: str | None) -> str | None:
        if name is not None and name not in self._core.counters:
            raise AdminError(404, "route", f"no route {name}"[:200])
        return name

    async def counters(self, request: web.Request) -> dict[str, Any]:
        """Return the buckets of a route, by second or by minute."""
        query = request.query
        route = self._route_name(query.get("route"))
        if route is None:
            raise AdminError(400, "invalid", "route: missing")
        counters = self._core.counters[route]
        now = self._core.clock.unix()
        if "minutes" in query:
            minutes = _number(query, "minutes", 60, 1, 30 * 24 * 60)
            buckets = counters.minutes.since(now - 60 * minutes)
        else:
            buckets = counters.seconds.since(now - _number(query, "seconds", 60, 1, 3_600))
        return {"now": now, "route": route, "buckets": buckets}

    async def traces(self, request: web.Request) -> dict[str, Any]:
        """Return the latest sampled requests: times, counts and hashes."""
        limit = _number(request.query, "limit", DEFAULT_TRACES, 0, RECENT)
        return {"now": self._core.clock.unix(), **self._core.tracing.view(int(limit))}

    # The configuration, and the stop

    async def reload(self, _request: web.Request) -> dict[str, Any]:
        """Read the configuration file again."""
        answer = await self._reload("admin")
        await self._core.leases.settle_writes()
        return answer

    async def stop(self, request: web.Request) -> dict[str, Any]:
        """Withdraw everything now and refuse leases until released."""
        body = Stop.model_validate(parse_json(await request.read()))
        closed = await self._core.leases.stop(body.reason)
        await self._core.leases.settle_writes()
        return {**self._core.state(), "closed": closed}

    async def release(self, _request: web.Request) -> dict[str, Any]:
        """Allow leases again."""
        was = await self._core.leases.release()
        return {**self._core.state(), "was_stopped": was}


def _active(entry: Entry) -> list[str]:
    return [item.item_id for item in entry.running.values() if item.active]


def _number(query: Any, name: str, default: float, low: float, high: float) -> float:
    text = query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise AdminError(400, "invalid", f"{name}: not a number from {low:g} to {high:g}")
    return value


def _reply(document: dict[str, Any] | bytes) -> web.Response:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return web.Response(body=body, content_type="application/json")


def _error(status: int, code: str, message: str) -> web.Response:
    body = json.dumps({"error": code, "message": " ".join(message.split())}).encode()
    return web.Response(status=status, body=body, content_type="application/json")
