"""Drive several gateways of one route as if they were one: leases on all, records of all.

Users run two or more gateways behind one address. Nothing is shared between them: a split with the
same salt gives the same unit the same arm everywhere, and each gateway ends its own lease by its
own clock. So an act is done on every one of them, and counts as done only when every one has said
so. What one gateway cannot be asked is never taken for a yes: an open, a renewal or an attachment
fails, and what was done on the others ends with the run's withdrawal, on the silent one with its
lease.

What was hard is taking a fault off a gateway that does not answer: it may serve traffic with the
fault on. It is proven clean by time alone: once the lease is closed at another gateway nobody can
renew it any more (a renewal is asked of all and refused there), so one lease and one round of
renewing later it is over everywhere. Until then withdrawing fails and is tried again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NoReturn, TypeVar
from urllib.parse import urlsplit

from faults.lease import MAX_SECONDS
from targets.errors import TargetError, TargetRejected, TargetTimeout, TargetUnavailable
from targets.gateway_admin import GatewayAdmin
from targets.gateway_pages import (
    CLOCKS_APART_SECONDS,
    Answer,
    Json,
    clocks_apart,
    closed_state,
    epoch_of,
    merge_leases,
    merge_pages,
    merge_receipts,
    merge_routes,
)

RENEWAL_ROUND_SECONDS = 10.0
"""A renewal that is on its way when the lease is closed arrives within this. Source: ours: five
seconds between two rounds and five until a call gives up."""

GIVE_UP_SECONDS = 10.0
"""A removal that a silent gateway does not confirm for this long ends the whole lease."""

READ_AGAIN_SECONDS = 2.0
"""For how long a page is asked of a gateway that does not answer, before it counts as silent.
Source: ours: the guard is blind meanwhile."""

_PAUSE_SECONDS = 0.2

T = TypeVar("T")
Call = Callable[[GatewayAdmin], Awaitable[T]]


def names_of(urls: Sequence[str]) -> list[str]:
    """Return what each gateway is called in evidence: its address without scheme and user.

    Raises:
        ValueError: two are the same.
    """
    parts = [urlsplit(url) for url in urls]
    names = [each.netloc.rpartition("@")[2] + each.path.rstrip("/") for each in parts]
    if len(set(names)) != len(names):
        raise ValueError("BURNPROOF_GATEWAY_URL names one gateway twice")
    return names


def connect(urls: Sequence[str], token: str) -> "GatewayAdmin | GatewayFleet":
    """Return the adapter for one gateway, or for all of several.

    Raises:
        ValueError: two addresses are the same.
    """
    names = names_of(urls)
    if len(urls) == 1:
        return GatewayAdmin(urls[0], token)
    members = zip(names, urls, strict=True)
    return GatewayFleet({name: GatewayAdmin(url, token) for name, url in members})


class GatewayFleet:
    """Talk to all gateways at once. Close it with `aclose`."""

    def __init__(
        self,
        members: Mapping[str, GatewayAdmin],
        renewal_round_seconds: float = RENEWAL_ROUND_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the gateways by name; the clock is in seconds."""
        self._members = dict(sorted(members.items()))
        self._round = renewal_round_seconds
        self._clock = clock
        self._unproven: dict[tuple[str, str], float] = {}
        """(lease, gateway) → when the lease was closed elsewhere and that gateway was silent."""
        self._undetached: dict[tuple[str, str], float] = {}
        """(item, gateway) → since when its removal is not confirmed."""
        self._over: set[str] = set()
        """Silent gateways whose leases were proven to be over by time."""

    async def aclose(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(member.aclose() for member in self._members.values()))

    # Asking all

    async def _ask(self, call: Call[T]) -> tuple[dict[str, T], dict[str, TargetError]]:
        """Ask every gateway at once; return what was answered, and who did not."""
        return await self._gather({name: call(each) for name, each in self._members.items()})

    async def _gather(
        self, calls: Mapping[str, Awaitable[T]]
    ) -> tuple[dict[str, T], dict[str, TargetError]]:
        answers = await asyncio.gather(*calls.values(), return_exceptions=True)
        said: dict[str, T] = {}
        failed: dict[str, TargetError] = {}
        for name, answer in zip(calls, answers, strict=True):
            if isinstance(answer, TargetError):
                failed[name] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                said[name] = answer
        return said, failed

    async def _all(self, call: Call[T]) -> dict[str, T]:
        """Ask every gateway and need every answer.

        Raises:
            TargetError: the worst of the refusals, with the gateway's name.
        """
        said, failed = await self._ask(call)
        if failed:
            _raise(failed)
        return said

    async def _any(self, call: Call[T]) -> tuple[dict[str, T], dict[str, TargetError]]:
        """Ask every gateway and need one answer."""
        said, failed = await self._ask(call)
        if not said:
            _raise(failed)
        return said, failed

    # State

    async def state(self) -> Json:
        """Return the state of all that answer: the latest clock, stopped if one is."""
        said, failed = await self._any(lambda member: member.state())
        answers = {name: Answer(body, 0.0, 0.0) for name, body in said.items()}
        answers |= {name: Answer(None, 0.0, 0.0, str(error)) for name, error in failed.items()}
        return {
            "now": max(body["now"] for body in said.values()),
            "epoch": epoch_of(answers),
            "stopped": any(body.get("stopped") for body in said.values()),
            "gateways": {name: said.get(name, {"silent": True}) for name in self._members},
        }

    async def routes(self) -> list[Json]:
        """Return the routes, which all gateways must have alike.

        Raises:
            TargetRejected: two gateways differ (`gateways_differ`).
            TargetError: one does not answer: nothing may be begun without it.
        """
        merged, differ = merge_routes(await self._all(lambda member: member.routes()))
        if differ:
            raise TargetRejected(differ, "gateways_differ")
        return merged

    # Leases

    async def open_lease(self, lease_id: str, run_id: str, route: str, seconds: float) -> Json:
        """Open a lease at every gateway.

        Raises:
            TargetRejected: as one gateway, or `clocks_apart`, or `gateways_differ`.
            TargetError: one does not answer; what was opened ends by itself, or by a close.
        """
        states = await self._all(lambda member: self._timed(member.state))
        hashes = {(each.body or {}).get("config", {}).get("hash") for each in states.values()}
        if len(hashes) > 1:
            raise TargetRejected(
                "the gateways do not have the same configuration: give it to all and reload them",
                "gateways_differ",
            )
        apart = clocks_apart(states)
        if apart > CLOCKS_APART_SECONDS:
            raise TargetRejected(
                f"the clocks of the gateways are {apart:.1f} s apart: set them by NTP",
                "clocks_apart",
            )
        return self._lease(
            await self._all(lambda member: member.open_lease(lease_id, run_id, route, seconds))
        )

    async def renew_lease(self, lease_id: str, seconds: float) -> Json:
        """Renew a lease at every gateway; one refusal is a refusal, wherever it is."""
        return self._lease(await self._all(lambda member: member.renew_lease(lease_id, seconds)))

    async def lease(self, lease_id: str) -> Json:
        """Return one lease as all gateways see it."""
        return self._lease(await self._all(lambda member: member.lease(lease_id)))

    def _lease(self, views: Mapping[str, Json]) -> Json:
        merged = merge_leases(views)
        assert merged is not None
        return merged

    async def open_leases(self) -> list[Json]:
        """Return the leases that are open at any gateway that answers.

        A silent one is no proof that there are none: `close_lease` is what proves.
        """
        said, _ = await self._any(lambda member: member.open_leases())
        ids = dict.fromkeys(view["lease_id"] for views in said.values() for view in views)
        return [
            self._lease(
                {
                    name: view
                    for name, views in said.items()
                    for view in views
                    if view["lease_id"] == lease_id
                }
            )
            for lease_id in ids
        ]

    async def attach(self, lease_id: str, item_id: str, kind: str, spec: Json) -> Json:
        """Attach an item at every gateway."""
        return merge_receipts(
            await self._all(lambda member: member.attach(lease_id, item_id, kind, spec))
        )

    async def detach(self, lease_id: str, item_id: str) -> Json:
        """Remove an item at every gateway; a gateway that stays silent costs the whole lease.

        Raises:
            TargetError: it is not proven yet.
        """
        said, failed = await self._any(lambda member: member.detach(lease_id, item_id))
        self._raise_refusal(failed)
        for name in self._members:
            if name not in failed:
                self._undetached.pop((item_id, name), None)
        since = [self._undetached.setdefault((item_id, name), self._clock()) for name in failed]
        if since and self._clock() - min(since) < GIVE_UP_SECONDS:
            _raise(failed)
        if failed:
            await self.close_lease(lease_id)
        receipt = merge_receipts(said)
        states = {each["state"] for each in said.values()}
        return {**receipt, "state": "removed" if "removed" in states else receipt["state"]}

    async def close_lease(self, lease_id: str) -> Json:
        """Close a lease at every gateway, or prove that it is over at one that does not answer.

        Raises:
            TargetUnavailable: it may still hold at a silent gateway; ask again.
        """
        said, failed = await self._any(lambda member: member.close_lease(lease_id))
        self._raise_refusal(failed)
        receipt = merge_receipts(said)
        lengths = [each.get("observed", {}).get("granted_seconds") for each in said.values()]
        lasts = max((each for each in lengths if each), default=MAX_SECONDS) + self._round
        for name in said:
            self._unproven.pop((lease_id, name), None)
        self._over -= set(said)
        for name, error in failed.items():
            since = self._unproven.setdefault((lease_id, name), self._clock())
            left = since + lasts - self._clock()
            if left > 0:
                raise TargetUnavailable(
                    f"gateway {name} does not confirm the close of {lease_id}, which is over there "
                    f"by itself in {left:.0f} s: {error}"
                ) from error
            self._over.add(name)
            receipt["gateways"][name] = {"state": "lapsed", "proven_by": "time"}
        states = [each["state"] for each in receipt["gateways"].values()]
        return {**receipt, "state": closed_state(states)}

    def _raise_refusal(self, failed: Mapping[str, TargetError]) -> None:
        """Raise what is a word of a gateway, and no silence."""
        refused = {name: error for name, error in failed.items() if not error.retryable}
        if refused:
            _raise(refused)

    # Records

    async def journal(
        self,
        route: str,
        after: int | None = None,
        tail_seconds: float | None = None,
        lease_id: str | None = None,
        limit: int = 5000,
        cursors: Mapping[str, int] | None = None,
    ) -> Json:
        """Read one page of all records, in order of (end time, gateway, sequence).

        A gateway that does not answer is named on the page, which is then a gap.

        Raises:
            TargetError: none answers, or one refuses.
        """

        def read(name: str, member: GatewayAdmin) -> Awaitable[Answer]:
            mine = None if cursors is None else cursors.get(name)
            tail = tail_seconds if cursors is None else 0.0
            return self._patiently(lambda: member.journal(route, mine, tail, lease_id, limit))

        answers, refused = await self._gather(
            {name: read(name, each) for name, each in self._members.items()}
        )
        if refused:
            _raise(refused)
        if not any(answer.body for answer in answers.values()):
            raise TargetUnavailable("; ".join(f"{k}: {a.silent}" for k, a in answers.items()))
        return merge_pages(answers, 0 if cursors is None or after is None else after)

    async def _patiently(self, call: Callable[[], Awaitable[Json]]) -> Answer:
        began = self._clock()
        while True:
            try:
                return await self._timed(call)
            except (TargetUnavailable, TargetTimeout) as silent:
                if self._clock() - began > READ_AGAIN_SECONDS:
                    return Answer(None, began, self._clock(), str(silent))
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _timed(self, call: Callable[[], Awaitable[Json]]) -> Answer:
        sent = self._clock()
        body = await call()
        return Answer(body, sent, self._clock())

    async def traces(self, limit: int) -> Json:
        """Return the latest sampled requests of all that answer.

        Each gateway hashes prompts with a key of its own, so one beginning has a hash at each.
        """
        said, _ = await self._any(lambda member: member.traces(limit))
        traces = [trace for body in said.values() for trace in body["traces"]]
        return {
            "sampled": sum(body["sampled"] for body in said.values()),
            "block_bytes": max(body["block_bytes"] for body in said.values()),
            "traces": sorted(traces, key=lambda trace: float(trace["accepted"])),
        }

    # Everything

    async def probe(self, model: str, replica: str, deadline_seconds: float) -> Json:
        """Ask one replica for one token through every gateway; return the worst answer.

        A silent gateway whose leases are over by time is left out.
        """
        asked = {name: each for name, each in self._members.items() if name not in self._over}
        answers = await asyncio.gather(
            *(each.probe(model, replica, deadline_seconds) for each in asked.values())
        )
        found = dict(zip(asked, answers, strict=True))
        for name, answer in found.items():
            if answer["status"] != 200:
                return {**answer, "error": f"through gateway {name}: {answer['error']}"}
        return {
            "status": 200,
            "seconds": max((each["seconds"] for each in answers), default=0.0),
            "error": "",
        }

    async def stop(self, reason: str) -> Json:
        """Withdraw everything everywhere; those that answer are stopped, whoever does not."""
        said = await self._all(lambda member: member.stop(reason))
        return {"stopped": True, "gateways": said}

    async def release(self) -> Json:
        """Allow new leases again, everywhere."""
        said = await self._all(lambda member: member.release())
        return {"stopped": False, "gateways": said}


def _raise(failed: Mapping[str, TargetError]) -> NoReturn:
    """Raise the worst: a refusal before a silence, and name every gateway that failed."""
    refused = [error for error in failed.values() if not error.retryable]
    worst = refused[0] if refused else next(iter(failed.values()))
    told = "; ".join(f"gateway {name}: {error}" for name, error in failed.items())
    raise type(worst)(told, worst.code) from worst
