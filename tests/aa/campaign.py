"""Many A/A runs through one running gateway, a few at a time, each as an experiment would be.

A run has its own lease, split and `null` fault; its clients talk while a reader takes the journal
page by page into a `Session`, as the observe activity does. The pages are kept: other judges may
read the same evidence afterwards.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from canary.config import EffectConfig, GuardConfig, JudgeConfig, ObserveConfig
from canary.report import ObserveReport
from canary.session import Session
from gateway.routing import unit_hash
from slo.objective import Objective
from slo.records import Page, RequestRecord
from targets.gateway_admin import GatewayAdmin
from tests.aa.conversations import Conversation, conversations
from tests.aa.processes import REPLICAS, ROUTES, Stack, stack

SHARE = 0.2
ALPHA = 0.01
CLIENTS_AT_ONCE = 8
"""Conversations in flight on each route."""

POLL_SECONDS = 0.5
LEASE_SECONDS = 60.0
RENEW_SECONDS = 5.0
FAULT_SECONDS = 600.0


@dataclass
class Run:
    """One A/A run: what the clients saw, what the gateway wrote, what the judge said."""

    number: int
    chaos: str
    config: ObserveConfig
    report: ObserveReport
    pages: list[Page]
    sent: Counter[tuple[str, int]]
    """Answers the clients got, by unit and status."""
    effect: dict[str, Any] = field(default_factory=dict)

    @property
    def records(self) -> list[RequestRecord]:
        """Every record of the run."""
        return [record for page in self.pages for record in page.records]


@dataclass
class Campaign:
    """All runs, and what they cost."""

    runs: list[Run]
    seconds: float
    processor_seconds: dict[str, float]

    @property
    def requests(self) -> int:
        """Requests that the clients sent."""
        return sum(run.sent.total() for run in self.runs)


def comparison(accepted_after: float, lease_id: str, fault_id: str, **judge: Any) -> ObserveConfig:
    """Return what an experiment with these arms gives to its observation, limits aside."""
    return ObserveConfig(
        mode="compare",
        objectives=(Objective(name="chat", objective_ratio=0.985),),
        judge=JudgeConfig(share=SHARE, alpha=ALPHA, **judge),
        guard=GuardConfig(abort_burn_rate=20, budget_share=0.05),
        effect=EffectConfig(item_id=fault_id, expects_effect=False, probability=1.0),
        accepted_after=accepted_after,
        lease_id=lease_id,
        max_seconds=FAULT_SECONDS,
    )


async def run_campaign(folder: Path, runs: int) -> Campaign:
    """Run them all, one after another on each route."""
    async with stack(folder) as running:
        admin = GatewayAdmin(running.url, running.token)
        connector = aiohttp.TCPConnector(limit=0)
        numbers = iter(range(runs))
        done: list[Run] = []
        began, cost = time.monotonic(), running.processor_seconds()
        try:
            async with aiohttp.ClientSession(connector=connector) as session:
                async with asyncio.TaskGroup() as group:
                    for route in ROUTES:
                        driver = Driver(running, admin, session, route)
                        group.create_task(_take_turns(driver, numbers, done))
        finally:
            await admin.aclose()
        spent = {
            name: seconds - cost[name] for name, seconds in running.processor_seconds().items()
        }
        done.sort(key=lambda run: run.number)
        return Campaign(done, time.monotonic() - began, spent)


async def _take_turns(driver: "Driver", numbers: Iterator[int], done: list[Run]) -> None:
    for number in numbers:
        done.append(await driver.run(number))


class Driver:
    """Clients and reader of one route."""

    def __init__(
        self, running: Stack, admin: GatewayAdmin, session: aiohttp.ClientSession, route: str
    ) -> None:
        self._url = f"{running.url}/v1/chat/completions"
        self._admin = admin
        self._session = session
        self._route = route

    async def run(self, number: int) -> Run:
        """Hold one lease, let the clients talk, judge what the journal says."""
        lease, split, fault = (f"run{number}-{word}" for word in ("lease", "split", "fault"))
        chaos = REPLICAS[number % len(REPLICAS)]
        admin = self._admin
        start = (await admin.state())["last_seq"]
        await admin.open_lease(lease, f"run{number}", self._route, LEASE_SECONDS)
        await admin.attach(lease, split, "split", _split(number, chaos))
        receipt = await admin.attach(lease, fault, "fault", _null_fault(number, chaos))
        config = comparison(receipt["at"], lease, fault)
        sent: Counter[tuple[str, int]] = Counter()
        clients = asyncio.create_task(self._talk(conversations(number, self._route), sent))
        try:
            report, pages = await self._observe(config, start, clients, sent)
        finally:
            clients.cancel()
            await asyncio.wait([clients])
        closed = await admin.close_lease(lease)
        assert set(closed["removed"]) == {split, fault}, closed
        return Run(number, chaos, config, report, pages, sent)

    async def _talk(self, talks: list[Conversation], sent: Counter[tuple[str, int]]) -> None:
        waiting = iter(talks)

        async def client() -> None:
            for talk in waiting:
                unit, headers = unit_hash(talk.key), {"x-conversation-id": talk.key}
                for body in talk.bodies:
                    async with self._session.post(self._url, data=body, headers=headers) as answer:
                        await answer.read()
                    sent[unit, answer.status] += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS_AT_ONCE):
                group.create_task(client())

    async def _observe(
        self,
        config: ObserveConfig,
        cursor: int,
        clients: "asyncio.Task[None]",
        sent: Counter[tuple[str, int]],
    ) -> tuple[ObserveReport, list[Page]]:
        """Feed the pages as they come until every answer has its record."""
        session, pages, found = Session(config), list[Page](), 0
        assert config.lease_id is not None
        renewed = time.monotonic()
        while True:
            raw = await self._admin.journal(self._route, cursor, lease_id=config.lease_id)
            page = Page.from_json(raw)
            pages.append(page)
            session.feed(page)
            cursor, found = page.next, found + len(page.records)
            if clients.done():
                await clients
                if found >= sent.total() and not page.in_flight:
                    return session.report(), pages
            if time.monotonic() - renewed > RENEW_SECONDS:
                await self._admin.renew_lease(config.lease_id, LEASE_SECONDS)
                renewed = time.monotonic()
            await asyncio.wait([clients], timeout=POLL_SECONDS)


def _split(number: int, chaos: str) -> dict[str, Any]:
    return {
        "experiment": f"aa-{number}",
        "salt": f"salt of run {number}",
        "share": SHARE,
        "control": [name for name in REPLICAS if name != chaos],
        "chaos": [chaos],
        "unit": "conversation",
    }


def _null_fault(number: int, chaos: str) -> dict[str, Any]:
    return {
        "template": "null",
        "parameters": {},
        "replicas": [chaos],
        "max_seconds": FAULT_SECONDS,
        "seed": number,
    }
