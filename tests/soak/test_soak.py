"""The gateway for two minutes under traffic and faults: nothing lost, nothing leaked."""

import json
import os
from pathlib import Path

import pytest

from faults.catalog import CATALOG
from tests.soak.soaking import Options, soak
from tests.soak.turns import TURNS
from tests.soak.verdict import Limits, judge

SECONDS = float(os.environ.get("BURNPROOF_SOAK_SECONDS", "115"))
GROWTH_BYTES = 1_500.0
"""A leaked request would leave more: its head, body, flight and text."""

OPTIONS = Options(
    seconds=SECONDS,
    turn_seconds=max(1.0, SECONDS / len(TURNS) - 1.0),
    sample_seconds=0.5,
    journal_bytes=2 * 1024 * 1024,
    memory_records=1_000,
)


def test_every_template_of_the_catalogue_has_its_turn() -> None:
    assert {template for template, _ in TURNS} == set(CATALOG)


@pytest.mark.timeout(SECONDS + 240)
async def test_under_faults_no_record_is_lost_and_nothing_grows(tmp_path: Path) -> None:
    soaked = await soak(tmp_path, OPTIONS)
    judged = judge(soaked, Limits(SECONDS * 0.4, GROWTH_BYTES))
    failed = {name: judged["figures"][name] for name, met in judged["met_each"].items() if not met}
    assert not failed, json.dumps(judged, indent=1)
    assert judged["figures"]["journal_bytes"]["written"] > OPTIONS.journal_bytes  # it was bounded
