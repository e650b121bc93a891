"""Prove faults from outside: the same request before, under and after each of them.

Everything hangs on one lease that is closed whatever happens, and the fault matches the tenant of
these requests alone. A case proves the effect if the answer shows it under the fault and did not
before; the removal, if the answer after it is healthy again and the gateway counts nothing active.
What cannot be shown on one route, because the healthy answer lacks what the fault would change, is
tried on the next, unless a route was named; what no route can show is said so and is no proof.
"""

import time
import uuid
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import httpx

from api.context import Context
from api.fault_cases import CHAT, TENANT, TOKENS, Case, cases
from api.fault_seen import Seen
from faults.catalog import CATALOG
from slo.errors import SpecError, nearest
from targets.errors import TargetUnavailable
from targets.gateway_admin import PIN_HEADER, PROBE_HEADER, GatewayAdmin
from targets.gateway_fleet import GatewayFleet

LEASE_SECONDS = 60.0
"""Renewed before each case; the longest lease that gateways admit."""

LEAST_PACE = 0.6
"""Shortest injected delay in seconds. Source: ours: far above the jitter of a busy laptop."""

PACE_FACTOR = 4.0
"""Delays over the time of a healthy request."""

REQUEST_SECONDS = 60.0

ATTEMPTS = 2
"""Tries of one case: a machine that stood still for a moment must not look like a fault."""


class Verdict(StrEnum):
    """What was shown."""

    PROVEN = "proven"
    UNPROVEN = "UNPROVEN"
    NOT_HERE = "not here"


@dataclass(frozen=True)
class Proof:
    """What one case showed."""

    template: str
    case: str
    effect: Verdict
    removal: Verdict
    seconds: float
    seen: str
    route: str = ""


@dataclass(frozen=True)
class Prober:
    """Sends the requests of a case to one replica."""

    client: httpx.AsyncClient
    token: str
    model: str
    replica: str

    async def ask(self, case: Case) -> Seen:
        """Send the request of a case, and read the answer piece by piece.

        Raises:
            TargetUnavailable: there is no answer at all.
        """
        body: dict[str, Any] = {"model": self.model, **case.body}
        if case.path == CHAT:
            chat = {
                "messages": [{"role": "user", "content": "say something"}],
                "max_tokens": TOKENS,
                "ignore_eos": True,
                "temperature": 0,
                "stream": True,
            }
            body = {**chat, **body}
        headers = {
            PROBE_HEADER: self.token,
            PIN_HEADER: self.replica,
            "x-tenant-id": case.tenant,
            "accept-encoding": "identity",
        }
        try:
            return await self._read(case.path, body, headers)
        except httpx.TransportError as lost:
            told = f"no answer from the gateway to {case.path}: {type(lost).__name__}"
            raise TargetUnavailable(told) from lost

    async def _read(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> Seen:
        began = time.monotonic()
        first, last, gap, raw, broken = 0.0, 0.0, 0.0, b"", False
        async with self.client.stream("POST", path, json=body, headers=headers) as answer:
            first = last = time.monotonic() - began
            try:
                async for piece in answer.aiter_raw():
                    now = time.monotonic() - began
                    gap, last = max(gap, now - last if raw else 0.0), now
                    raw += piece
            except (httpx.NetworkError, httpx.RemoteProtocolError):
                broken = True
            pairs = tuple(
                (key.decode("latin-1"), value.decode("latin-1"))
                for key, value in answer.headers.raw
            )
            status = answer.status_code
        return Seen(status, pairs, raw, first, last, gap, broken)


async def verify(
    context: Context, templates: Sequence[str], route: str | None, replica: str | None
) -> list[Proof]:
    """Prove the templates, one after the other, on one replica of a route.

    Args:
        context: how the stack is reached.
        templates: ids.
        route: None: the first; what it has not is tried on the others.
        replica: None: the last of its route.

    Raises:
        TargetError: the gateway does not answer, or the route is taken by a run.
        SpecError: there is no such route or replica.
    """
    admin = context.admin()
    client = httpx.AsyncClient(
        base_url=context.gateway.urls()[0], timeout=REQUEST_SECONDS, trust_env=False
    )
    try:
        every = await admin.routes()
        asked = every if route is None and replica is None else [_named(every, route, "route")]
        proofs: dict[tuple[str, str], Proof] = {}
        for one in asked:
            shown = {key for key, proof in proofs.items() if proof.effect is not Verdict.NOT_HERE}
            chosen = _named(one["replicas"], replica, "replica", last=True)["name"]
            prober = await _prober(client, context.gateway.token(), one, chosen)
            for proof in await _under_lease(admin, prober, one["name"], templates, shown):
                key = (proof.template, proof.case)
                if key not in proofs or proof.effect is not Verdict.NOT_HERE:
                    proofs[key] = proof
            if all(proof.effect is not Verdict.NOT_HERE for proof in proofs.values()):
                break
        return list(proofs.values())
    finally:
        await client.aclose()
        await admin.aclose()


def _named(
    found: list[dict[str, Any]], name: str | None, what: str, *, last: bool = False
) -> dict[str, Any]:
    if name is None:
        return found[-1 if last else 0]
    names = [each["name"] for each in found]
    if name not in names:
        message = f'there is no {what} "{name}"; there are {", ".join(names)}'
        raise SpecError("", message, nearest(name, names))
    return found[names.index(name)]


async def _prober(
    client: httpx.AsyncClient, token: str, route: dict[str, Any], replica: str
) -> Prober:
    model = route["models"][0]
    if model == "*":
        headers = {PROBE_HEADER: token, PIN_HEADER: replica}
        listed = (await client.get("/v1/models", headers=headers)).json()
        model = str(listed["data"][0]["id"])
    return Prober(client, token, model, replica)


async def _pace(prober: Prober) -> float:
    """Return how long delays should be: well above what this target needs anyway."""
    healthy = Case("", "", {}, bool)
    slowest = max([(await prober.ask(healthy)).seconds for _ in range(2)])
    return min(10.0, max(LEAST_PACE, PACE_FACTOR * slowest))


async def _under_lease(
    admin: GatewayAdmin | GatewayFleet,
    prober: Prober,
    route: str,
    templates: Sequence[str],
    shown: Set[tuple[str, str]],
) -> list[Proof]:
    """Prove on one route what was not shown on another."""
    order = list(CATALOG)
    wanted = [
        case
        for case in cases(await _pace(prober), prober.replica)
        if case.template in templates and (case.template, case.name) not in shown
    ]
    wanted.sort(key=lambda case: order.index(case.template))
    lease = f"verify-{uuid.uuid4().hex[:12]}"
    await admin.open_lease(lease, lease, route, LEASE_SECONDS)
    try:
        found = []
        for number, case in enumerate(wanted):
            proof: Proof | None = None
            for attempt in range(ATTEMPTS):
                await admin.renew_lease(lease, LEASE_SECONDS)
                tried = await _prove(admin, prober, (lease, f"fault-{number}-{attempt}"), case)
                if proof is None or tried.effect is not Verdict.NOT_HERE:
                    proof = tried  # a target that stays broken says nothing new
                if proof.effect is not Verdict.UNPROVEN or proof.removal is Verdict.UNPROVEN:
                    break  # a fault that may still be on is told, whatever a second try shows
            assert proof is not None
            found.append(replace(proof, route=route))
        return found
    finally:
        await admin.close_lease(lease)


async def _prove(
    admin: GatewayAdmin | GatewayFleet, prober: Prober, where: tuple[str, str], case: Case
) -> Proof:
    began = time.monotonic()
    lease, item = where
    before = await prober.ask(case)
    if not case.applies(before):
        told = f"status {before.status} without what the fault needs"
        return Proof(case.template, case.name, Verdict.NOT_HERE, Verdict.NOT_HERE, 0.0, told)
    expects = CATALOG[case.template].expects_effect
    given = {"probability": 1.0, **case.parameters} if expects else {}
    spec = {
        "template": case.template,
        "parameters": given,
        "replicas": [prober.replica],
        "max_seconds": LEASE_SECONDS,
        "seed": 1,
        "match": {"tenant": case.tenant},
    }
    await admin.attach(lease, item, "fault", spec)
    try:
        during = await prober.ask(case)
    finally:
        receipt = await admin.detach(lease, item)
    after = await prober.ask(case)
    if case.holds(after) or not case.applies(after):  # a busy target may be slow by itself, once
        after = await prober.ask(case)
    effect = case.holds(during) is expects and not case.holds(before)
    is_off = item not in receipt["observed"]["active_items"]
    removal = is_off and case.applies(after) and not case.holds(after)
    return Proof(
        case.template,
        case.name,
        Verdict.PROVEN if effect else Verdict.UNPROVEN,
        Verdict.PROVEN if removal else Verdict.UNPROVEN,
        time.monotonic() - began,
        _told(case, before, during),
    )


def _told(case: Case, before: Seen, during: Seen) -> str:
    """Say in a few words what changed."""
    if case.measure is not None:
        return f"{case.measure(before)} → {case.measure(during)}"
    words = []
    for name, one, other in (
        ("status", str(before.status), str(during.status)),
        ("bytes", str(len(before.body)), str(len(during.body))),
        ("seconds", f"{before.seconds:.2f}", f"{during.seconds:.2f}"),
        ("end", _ending(before), _ending(during)),
    ):
        if one != other:
            words.append(f"{name} {one} → {other}")
    return ", ".join(words)


def _ending(seen: Seen) -> str:
    return "broken" if seen.broken else "[DONE]" if seen.is_done else "plain"


__all__ = ["TENANT", "Proof", "Verdict", "verify"]
