"""The gateway and nginx, before the same upstream, give the same answers (fuzz)."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.gateway.differential import compare

EXCHANGES = int(os.environ.get("BURNPROOF_FUZZ_EXCHANGES", "5000"))
"""How many in all; `make bench-fuzz` does more."""

SEED = int(os.environ.get("BURNPROOF_FUZZ_SEED", "1"))


@pytest.mark.timeout(240 + EXCHANGES // 10)
async def test_random_exchanges_end_alike_through_the_gateway_and_through_nginx(
    tmp_path: Path, free_port: Callable[[], int]
):
    tally = await compare(tmp_path, free_port(), EXCHANGES, SEED)
    assert tally.agreed == EXCHANGES
    for kind in KINDS:
        assert tally.kinds[kind] >= EXCHANGES // 200, list(tally.lines())


KINDS = (
    *("request in chunks", "request with a body", "request bare"),
    *("answer framed by length", "answer framed by chunked", "answer framed by close"),
    *("answer without a body", "100 kB", "HTTP/1.0", "trailers", "on a used connection"),
    *("client leaves in its request", "client leaves unread", "upstream breaks off"),
)
"""What must have been drawn often enough."""
