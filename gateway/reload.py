"""Reading the configuration again while streams are in flight.

The file is read and checked whole first: a bad one, or one that changes what only a start can
change, changes nothing and leaves one line. A good one takes effect in one turn of the loop, so
that no request sees half of it. Requests in flight keep the route and the replica that they have.
Leases, journal, counters and the breakers of replicas that stay are kept; a lease whose route or
replica is not there any more is withdrawn, and says why. What was hard is a replica that keeps its
name and gets another address: it is another engine, so its breaker starts anew and no lease that
was meant for the old one may touch it.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gateway import metrics as names
from gateway.config import FIXED, ConfigError, GatewayConfig, load_config
from gateway.core import Core
from gateway.items import EVERY_REPLICA, SplitSpec
from gateway.leases import AdminError, Entry
from gateway.routes import RouteState

log = logging.getLogger("gateway.reload")


@dataclass
class Changes:
    """What a new configuration did to the routes."""

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    gone: dict[str, frozenset[str]] = field(default_factory=dict)
    """Route → replicas that left it or have another address now."""


class Reloader:
    """Reads the configuration file again, one reload at a time."""

    def __init__(self, core: Core, path: Path | None, executor: Executor) -> None:
        self._core = core
        self._path = path
        self._executor = executor
        self._turn = asyncio.Lock()

    async def reload(self, by: str) -> dict[str, Any]:
        """Read the file and put it in force. `by`: who asked, for the log.

        Raises:
            AdminError: 400, with one line; everything is as it was.
        """
        async with self._turn:
            try:
                config = await self._read()
            except ConfigError as error:
                self._count("refused")
                self._core.leases.note("reload_refused", by=by, why=str(error))
                log.error("configuration not reloaded: %s", error)
                raise AdminError(400, "config", str(error)) from error
            return self._apply(config, by)

    async def _read(self) -> GatewayConfig:
        if self._path is None:
            raise ConfigError("this gateway was started without a file: start it anew")
        loop = asyncio.get_running_loop()
        config = await loop.run_in_executor(self._executor, load_config, self._path)
        for key in FIXED:
            if getattr(config, key) != getattr(self._core.config, key):
                raise ConfigError(f"{self._path}: {key}: only a start can change it; start anew")
        return config

    def _apply(self, config: GatewayConfig, by: str) -> dict[str, Any]:
        """Put a checked configuration in force: no await in here."""
        core = self._core
        if config == core.config:
            self._count("unchanged")
            log.info("configuration unchanged, generation %d", core.generation)
            return {**core.config_view(), "changed": False}
        changes = apply_routes(core, config)
        withdrawn = [
            {"lease_id": entry.lease.lease_id, "why": why}
            for entry in core.leases.open_on()
            if (why := why_withdrawn(entry, changes))
        ]
        for each in withdrawn:
            core.leases.withdraw(each["lease_id"], each["why"])
        core.take_config(config)
        self._count("applied")
        answer = {
            **core.config_view(),
            "changed": True,
            "routes": {
                "added": changes.added,
                "removed": changes.removed,
                "changed": changes.changed,
            },
            "withdrawn": withdrawn,
        }
        core.leases.note("reload", by=by, **answer)
        log.info("configuration reloaded, generation %d, %s", core.generation, core.config_hash)
        return answer

    def _count(self, result: str) -> None:
        self._core.metrics.add(names.RELOADS, (("result", result),))


def apply_routes(core: Core, config: GatewayConfig) -> Changes:
    """Give the core its new routes: those that stay keep their state."""
    changes, now = Changes(), core.clock.mono()
    before = dict(core.routes)
    after: dict[str, RouteState] = {}
    for wanted in config.routes:
        state = before.get(wanted.name)
        if state is None:
            state = RouteState(wanted)
            changes.added.append(wanted.name)
        elif state.config != wanted:
            changes.gone[wanted.name] = state.reconfigure(wanted, now)
            changes.changed.append(wanted.name)
        after[wanted.name] = state
    changes.removed = [name for name in before if name not in after]
    core.take_routes(after)
    return changes


def why_withdrawn(entry: Entry, changes: Changes) -> str:
    """Return why a lease cannot go on; empty if it can."""
    route = entry.route.config.name
    if route in changes.removed:
        return f"route {route} left the configuration"
    gone = changes.gone.get(route, frozenset())
    named = {name for item in entry.running.values() if item.active for name in _named(item.spec)}
    hit = sorted(gone if EVERY_REPLICA in named else gone & named)
    if not hit:
        return ""
    return f"replica {', '.join(hit)} of route {route} left the configuration or moved"


def _named(spec: Any) -> Sequence[str]:
    if isinstance(spec, SplitSpec):
        return (*spec.control, *spec.chaos)
    replicas: Sequence[str] = spec.replicas
    return replicas
