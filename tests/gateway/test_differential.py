"""The gateway and nginx, before the same upstream, give the same answers (fuzz)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gateway.differential import compare

EXCHANGES = int(os.environ.get("BURNPROOF_FUZZ_EXCHANGES", "500"))
"""How many in all. More is a bench: the time limit grows with it."""

SEED = int(os.environ.get("BURNPROOF_FUZZ_SEED", "1"))


@pytest.mark.timeout(60 + EXCHANGES // 10)
async def test_random_exchanges_end_alike_through_the_gateway_and_through_nginx(
    tmp_path: Path, free_port: Callable[[], int]
):
    await compare(tmp_path, (free_port(), free_port()), EXCHANGES, SEED)
