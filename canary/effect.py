"""Was the fault seen in the records?

A fault that claims to be on and touches nothing must not be called a pass. It is called `none`
only when, had it worked, the chance of touching nothing would be below 1 in 1,000; with fewer
exposed requests it is too early to say. It counts requests, and decides nothing else.
"""

from canary.config import EffectConfig
from canary.report import EffectReport
from slo.records import Page, RequestRecord

CHANCE = 0.001
"""Largest chance of calling a working fault `none`. Source: ours, 2026-12."""


class Effect:
    """Watches one fault item."""

    def __init__(self, config: EffectConfig) -> None:
        self._config = config
        self._exposed = 0
        self._touched = 0
        self._claimed = 0

    def add(self, record: RequestRecord) -> None:
        """Take one record."""
        item = self._config.item_id
        if item in record.exposed:
            self._exposed += 1
        if item in record.touched:
            self._touched += 1

    def look_at_page(self, page: Page) -> None:
        """Take what the lease itself counts: it knows of requests still in flight."""
        item = (page.lease or {}).get("items", {}).get(self._config.item_id, {})
        self._claimed = max(self._claimed, item.get("touched") or 0)

    def report(self) -> EffectReport:
        """Return what was seen."""
        touched = max(self._touched, self._claimed)
        return EffectReport(
            item_id=self._config.item_id,
            exposed=max(self._exposed, touched),
            touched=touched,
            state=self._state(touched),
        )

    def _state(self, touched: int) -> str:
        if not self._config.expects_effect:
            return "not_expected"
        if touched:
            return "seen"
        missed: float = (1.0 - self._config.probability) ** self._exposed
        return "none" if missed < CHANCE else "too_little"
